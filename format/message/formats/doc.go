// Package formats knows the formats of messages by name: it is what connectors of topics offer as the option format.
//
//	raw       partition, offset, time, key, value and headers of a message as columns
//	json      JSON objects, with or without the schemas of Kafka Connect's converter
package formats

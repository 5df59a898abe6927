// Package formats knows the formats of messages by name: it is what connectors of topics offer as the option format.
//
//	raw       partition, offset, time, key, value and headers of a message as columns
//	json      JSON objects, with or without the schemas of Kafka Connect's converter
//	debezium  Debezium's envelopes in JSON, with schemas (to read) or without
//
// and with a registry of schemas
//
//	avro, json-schema     rows
//	protobuf              rows, to read
//	debezium-avro         Debezium's envelopes in Avro
//	debezium-json-schema  and in other languages, to read: debezium-protobuf
package formats

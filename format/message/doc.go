// Package message turns the messages of topics into typed batches and back: what every connector of a log without tables shares.
//
// A [Format] is a way to write rows as messages. It learns the schema of a topic from a sample of its messages, or from a registry of
// schemas, and makes decoders and encoders. A [Decoder] takes one message after the other and hands out batches of one dataset; an
// [Encoder] takes a batch apart into messages. A connector brings messages to and fro and knows positions; it knows nothing of formats.
//
//	raw       key, value, headers and time of a message as columns, byte for byte, with partition and offset as the key
//	json      the members of a JSON object are the columns
//
// Formats that need more (Avro, Protobuf, JSON Schema, Debezium's envelopes) are packages of their own beside this one.
//
// Invariants: what a decoder makes of a message depends on that message, the schema and, with a registry, on schemas that never change;
// never on how messages are cut into batches. A message that can't be decoded becomes a [record.Reject] that names topic, partition
// and offset, and never another row. Numbers are taken from their digits. Nothing of a message is kept after Append.
//
// The package does no I/O.
package message

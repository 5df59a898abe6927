// Package avro reads and writes messages in Avro with the schemas of a registry.
//
// Every message is read with the schema that it was written with: the registry has it under the id that the message carries, and fields
// become columns by their names, so that old and new messages of one topic meet in one schema that keeps the values of both. Logical
// types have their types in package record; so has what Kafka Connect's converter writes (connect.name and connect.parameters). A union
// of null and one type is a column that may be null; any other union is a struct with a field for each branch, as Connect has it.
// Types that contain themselves are refused.
//
// To write, each column has the schema that [Mapping] says, and where that does not say all, the property leat.type, from which leat
// reads exactly the type that it was. Names that Avro does not allow are changed, and kept in the property leat.name.
package avro

// Package jsonschema reads and writes messages that are JSON behind the id of a JSON Schema in a registry.
//
// Properties become columns by their names. What Kafka Connect's converter adds (connect.type, and the name of a type as the title)
// gives them the types of Connect; otherwise an integer is one of 64 bits, a number is kept with all its digits, text is text whatever
// its format, and what has no one type is a JSON document. Messages are not checked against what else a schema demands.
//
// To write, values have the form of package record, the schema says which kind of JSON that is, and leat.type says the type.
package jsonschema

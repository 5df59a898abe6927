// Package protobuf reads messages in Protobuf with the schemas of a registry.
//
// Fields become columns by their names. A field that has presence and is not set is NULL, any other one has its default. Enums are their
// labels, google.protobuf.Timestamp is an instant and Duration an amount of time in nanoseconds, the wrapper types are the values that
// they wrap, and google.protobuf.Struct, Value and ListValue are JSON. Messages that contain themselves are refused, and so is a label
// that an enum lacks.
package protobuf

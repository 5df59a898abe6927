// Package connect is what the formats of messages have in common: values with the types of Kafka Connect and Debezium, whatever they
// were written in.
//
// A [Schema] is a type of Connect: a plain type and perhaps a name that says what its values mean (io.debezium.time.MicroTimestamp, a
// logical type of Avro). A [Cell] is one value as it was found: a number, bytes, a JSON text, or other cells on the same [Tape]. So a
// decoder of a wire format only finds values; [TypeOf] says as what type of package record they are read, and [Compile] makes the
// function that appends one to a builder, exactly or with an error.
//
// Invariant: an [Appender] appends one value, also where it returns an error (then a null): the columns of a row stay in step, and the
// row is left out afterwards.
package connect

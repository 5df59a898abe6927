// Package pgcopy turns the binary format of PostgreSQL's COPY into batches of Arrow columns and back, without I/O.
//
// A [Decoder] is an io.Writer that a COPY … TO STDOUT (FORMAT binary) is written to, in pieces of any size; it hands over whole batches.
// An [Encoder] appends rows to a byte slice that a COPY … FROM STDIN (FORMAT binary) takes. A [Builder] collects the values of one
// column, in the binary form or in the text form: package pgoutput reads change streams with it. Values go straight between the wire
// and the columns' own buffers: nothing is allocated per value.
//
// How a value looks on the wire follows from the send and receive functions of its type, not from the type's name: that is a
// [Type]. Package connectors/postgres finds it in the catalogues.
//
// Conversions are exact or refused: a value that its column can't hold (NaN in a decimal, a timestamp beyond 64 bits since 1970)
// sets aside its row, which then rides on the batch as a record.Reject.
//
// Source of the formats: the documentation of COPY, and the send, receive and output functions in PostgreSQL's src/backend/utils/adt.
package pgcopy

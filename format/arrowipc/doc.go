// Package arrowipc reads and writes Arrow IPC: the stream form (.arrows) and the file form (.arrow, .feather), which has a footer.
//
// Every type of the vocabulary is kept exactly: extension types travel in the field metadata as the Arrow format says, so other
// readers see what they are stored as. The key's column names travel in the schema's metadata under leat:key.
//
// Reading takes files of any writer: dictionaries and run ends are decoded, views and 64-bit offsets become ordinary columns, narrow
// decimals and half floats widen, the zone of instants becomes UTC, months-only and other Arrow intervals become leat's, lists of
// fixed size become lists. Nothing changes its value: what has no exact form is an error. Text that is no UTF-8 and documents that are
// no JSON are set aside with their row number.
//
// Damaged input gives an error of code arrow.damaged, never a panic. Batches are bounded by what the writer put into one message.
package arrowipc

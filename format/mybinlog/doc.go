// Package mybinlog reads the binary logs of MySQL and MariaDB, without I/O: events, sets of GTIDs, and the images of
// rows.
//
// [ParseHeader] reads what stands in front of each event, and one function for each kind of event what is behind that: [ParseFormat],
// [ParseTableMap], [ParseRows] and others. [RowsEvent.Image] goes from row to row without allocating: each value is a piece of the event.
// [Payload] and [Inflate] take compressed transactions and events apart, [AppendJSON] and [AppendDecimal] print what is packed.
//
// The log says little about the values in it: whether a number has a sign, which character set a text is in, and what the labels of an
// ENUM are, stands elsewhere, unless the server was told to write it (binlog_row_metadata).
//
// Every function checks what it reads against the length of the event: a log that is damaged, or of a version that is not known here, is
// an error, and never a guess.
//
// Sources: MySQL's internals documentation of the replication protocol and of its binary JSON, and MariaDB's of its own events.
package mybinlog

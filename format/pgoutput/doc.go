// Package pgoutput reads the messages of PostgreSQL's logical decoding plugin pgoutput, protocol versions 1 to 4, and collects changes
// into batches of Arrow columns, without I/O.
//
// [Parse] reads one message; [ParseChange], [ParseBegin] and [ParseCommit] read the most frequent ones without allocating. A [Rows]
// collects the changes of one
// relation into a record.Batch: values go straight from the message into the columns' own buffers, in the text form as well as in the
// binary one, and come out as package pgcopy's Decoder gives them for the same rows.
//
// The text form is read as a session with DateStyle = 'ISO', IntervalStyle = postgres, bytea_output = hex and
// extra_float_digits = 1 or more prints it; whoever opens the stream sets these. With other settings text is refused, never guessed;
// only extra_float_digits leaves no trace in it. What the server prints by other settings (money by lc_monetary) is kept as it comes.
//
// Sources: the chapter "Logical Replication Message Formats" of PostgreSQL's documentation, and the output functions of its types.
package pgoutput

// Package debezium encodes changes as Debezium's connectors do, for consumers that read Debezium's events today, and turns what those
// write back into typed changes.
//
// [NewFormat], [NewConnect] and [NewAvro] are formats of messages: envelopes in JSON, which are read with schemas and without, and written
// without (schemas.enable=false) or with, and in Avro with the schemas of a registry. [Over] reads envelopes in other wire formats.
// Reading: a tombstone that follows its deletion says nothing more, and one that compaction left without it is the deletion of its key; a
// value that the source did not send is unchanged; op r is an upsert where rows have keys; op m is about no row; transaction metadata and
// the source block are passed over.
//
// [Encoder.Events] takes a batch apart into events, [Encoder.AppendKey] and [Encoder.AppendValue] make the key and the value of a message;
// [Writer] puts values on lines. The layout is that of the PostgreSQL connector
// (https://debezium.io/documentation/reference/connectors/postgresql.html): the envelope with before, after, source, op and the times; a
// changed key is a deletion and a creation; a truncation has no key. A position is known for transactions, not for single changes: lsn is
// where the transaction ends, and txId has its epoch in front where the source tells it.
//
// Values are as Debezium's defaults say, but where those lose something: see [Mapping]. A value that the source did not send (an
// unchanged large value) is "__debezium_unavailable_value".
//
// The package does no I/O.
package debezium

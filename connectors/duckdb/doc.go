// Package duckdb reads and writes DuckDB database files.
//
// As a source it is bounded: tables are read in the order in which their rows are stored, page by page, and a run that was
// interrupted goes on behind the exact row, as long as nothing changed the table in between (which is noticed by its row count).
// Views and queries have no such order: each is one replay unit.
//
// As a sink it appends, upserts and deletes by key, or replaces a dataset as a whole; rows and the lane's progress are committed in
// one transaction, so that nothing is lost or doubled by a crash. The progress is in the table _leat_progress of the same file
// (docs/formats/duckdb-progress.md). Rows are gathered up to a budget before they are inserted, because DuckDB is fast at large
// statements and slow at small ones.
//
// Changes of a stream are folded first, so that each key is written once with what becomes of it in all (see fold), and then applied
// with a few statements: delete the keys, insert the rows. An update in place would make the next checkpoint write whole columns. A
// value that was not sent is read from the table, wherever its row moves; rows that wait for a key until their transaction's end are in
// a temporary table. Rows of a dataset without a key are found by all their columns, one for each change. Batches with unsent values,
// and changes without a key, are applied when they come, so that rows which can't be are refused by name. What a constraint of
// somebody else's table refuses, but for NOT NULL, fails the whole: DuckDB takes nothing back but transactions.
//
// Columns follow the source inside the same transaction. A table with indexes, or one of which the transaction deleted rows before, is
// copied for that, because DuckDB does not change it.
//
// Tables that the sink creates have no primary key, whose index would slow down every load: the key stands in the table's comment,
// where the source finds it. A DuckDB file has one writing process at a time.
//
// DuckDB comes with C++ code: a build without cgo, or without the build tag duckdb_arrow, knows the connector's name and says so.
package duckdb

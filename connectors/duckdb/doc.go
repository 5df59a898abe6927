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
// Tables that the sink creates have no primary key, whose index would slow down every load: the key stands in the table's comment,
// where the source finds it. A DuckDB file has one writing process at a time.
//
// DuckDB comes with C++ code: a build without cgo, or without the build tag duckdb_arrow, knows the connector's name and says so.
package duckdb

// Package changelog writes changes: not what a dataset holds, but everything that happened to it, in order.
//
// [Changes] takes a batch apart into single changes, each with its operation, its row, what is known of the row before, and the source
// transaction that it belongs to. [JSON] writes one JSON object for each change, [Parquet] one row. Both number the changes, so that a
// reader who has several files puts them in order and sees at once where one is missing or comes twice.
//
// A value that the source did not send is neither written nor replaced by anything: its column is named as unchanged. What is not known
// of a row before is left out.
//
// The package does no I/O and knows no files, see connectors/file for those. The records are described in docs/formats/change-log.md.
package changelog

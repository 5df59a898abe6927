// Package parquet reads and writes Parquet files.
//
// Writing: columns are stored as Parquet's own types wherever it has them (decimals of any precision, unsigned integers, dates, times,
// timestamps with their unit and UTC flag, UUID, JSON, lists, maps), so that every reader sees the same values. What Parquet lacks
// is stored as something that any reader can use, see [Mapping]: numbers without fixed precision, intervals, enums, bits and addresses
// as text, durations as counts, arrays as nested lists. The file's metadata keeps the exact types under the key leat:schema, and
// leat reads them back as they were. Pages are compressed with zstd; columns but floating-point ones get statistics, and
// a dictionary where a sample of the first batch repeats itself. Row groups end by bytes, so memory does not grow with rows; none is
// empty, and a file without rows is a valid one. Columns without nesting are encoded several at a time.
//
// Reading: files of any writer, row group by row group, in batches bounded by bytes. Nothing is coerced: units and zones are as
// the file says (INT96 is nanoseconds in UTC, and an error out of their range), decimals of every physical type are exact. Text that
// is no UTF-8 and documents that are no JSON are set aside with their row number. Damaged input gives an error of code
// parquet.damaged, never a panic.
package parquet

// Package format is the shape that all file formats share: a [Reader] makes batches of one input, a [Writer] makes bytes of the
// batches of one dataset.
//
// The formats are in the packages below: csv and jsonl read an io.Reader, parquet and arrowipc an io.ReaderAt of known size; all
// write to an io.Writer. They decide nothing about I/O: which file, which compression, when to sync and when to rename is up to the
// caller (see connectors/file). Each has
//
//	NewReader(input, Options) (*Reader, error)   // implements format.Reader and format.Skipper
//	NewWriter(w io.Writer, s *record.Schema, o WriterOptions) (*Writer, error)   // implements format.Writer
//	Mapping(s *record.Schema) []connector.Mapping   // how the format stores each column, pure
//
// Invariants: what a reader returns does not depend on how the input arrives in pieces, nor on the sizes that are asked for; a
// reader that stood at an [Offset] and one that skipped to it return exactly the same rows from there on; a row that can't be read
// becomes a record.Reject where it stood, or an error, and never another row.
package format

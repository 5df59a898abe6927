package format

import "github.com/leatdata/leat/record"

// Want is what one Next should return at most. Rows 0: any number. Bytes 0: any number; otherwise the bytes of input, or of memory
// where a format can't tell, after which a batch ends. At least one row is returned however large it is.
type Want struct {
	Rows  int
	Bytes int64
}

// Offset is where a reader stands in its input: behind Rows rows, rejected ones included.
type Offset struct {
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes,omitempty"` // first byte behind those rows in the decoded input; 0: the format can't tell
	Lines int64 `json:"lines,omitempty"` // line ends in front of Bytes, for messages; 0: the format has no lines
}

// Reader turns an input into batches of one dataset. Methods are never called concurrently. After an error other than io.EOF only
// Close may be called.
type Reader interface {
	// Schema returns the schema of the batches to come; nil until it is known. A batch's own schema is what counts: a format
	// without a fixed schema may add columns later, with a higher version.
	Schema() *record.Schema
	// Next returns the next rows, in order, without a position: at least one row or one reject, and io.EOF behind the last one.
	// Size holds the bytes of input that the batch was made of, where the format can tell. The caller owns the batch; the reader
	// never touches its memory again.
	Next(want Want) (*record.Batch, error)
	// Offset returns where the reader stands: behind what the last Next returned.
	Offset() Offset
	// Close releases what the reader holds, but for the input itself, which the caller closes. It may be called more than once.
	Close() error
}

// Skipper is a reader that can go forward without making batches: all of this module are. Before the first Next only.
type Skipper interface {
	// Skip goes forward over the next n rows, rejected ones included; io.ErrUnexpectedEOF: there are fewer.
	Skip(n int64) error
}

// Writer turns batches of one dataset into bytes. Methods are never called concurrently. After an error only Close may be called, and
// what was written is no valid file.
type Writer interface {
	// Write appends the rows of a batch of the writer's schema. It keeps no reference to the batch. Only inserts have a place in
	// a file: the caller refuses other operations.
	Write(b *record.Batch) error
	// Close writes what is buffered and what ends the file (a footer), so that also a file without rows is a valid one with its
	// schema. It does not close the io.Writer. It may be called more than once; only the first call writes.
	Close() error
}

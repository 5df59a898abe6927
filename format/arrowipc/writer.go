package arrowipc

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/record"
)

// Options are a writer's choices. The zero value is the stream form without compression.
type Options struct {
	File        bool   // the file form, with a footer, which can be read from the middle
	Compression string // of the columns: empty (none), zstd or lz4
}

// Writer writes batches of one schema. It implements format.Writer.
type Writer struct {
	schema *record.Schema
	cols   *arrow.Schema // with the key in its metadata
	w      interface {
		Write(rec arrow.RecordBatch) error
		Close() error
	}
	closed bool
}

var _ format.Writer = (*Writer)(nil)

// NewWriter begins a stream or a file with the schema; nothing is written before the first Write or Close.
func NewWriter(w io.Writer, s *record.Schema, o Options) (*Writer, error) {
	if err := record.Register(); err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	out := &Writer{schema: s, cols: s.Columns}
	if len(s.Key) > 0 {
		names, err := json.Marshal(s.KeyNames())
		if err != nil {
			return nil, fmt.Errorf("key of %s: %w", s.Dataset, err)
		}
		meta := arrow.NewMetadata([]string{keyMetadata}, []string{string(names)})
		out.cols = arrow.NewSchema(s.Columns.Fields(), &meta)
	}
	opts := []ipc.Option{ipc.WithSchema(out.cols)}
	switch o.Compression {
	case "", "none":
	case "zstd":
		opts = append(opts, ipc.WithZstd())
	case "lz4":
		opts = append(opts, ipc.WithLZ4())
	default:
		return nil, connector.UnknownName("compression", o.Compression, []string{"none", "zstd", "lz4"})
	}
	if !o.File {
		out.w = ipc.NewWriter(w, opts...)
		return out, nil
	}
	fw, err := ipc.NewFileWriter(w, opts...)
	if err != nil {
		return nil, fmt.Errorf("beginning an Arrow file: %w", err)
	}
	out.w = fw
	return out, nil
}

// Write appends the rows of a batch, see format.Writer.
func (w *Writer) Write(b *record.Batch) error {
	if b.NumRows() == 0 {
		return nil
	}
	if !b.Rows.Schema().Equal(w.schema.Columns) {
		return fmt.Errorf("writing Arrow IPC: rows of %s into a file of %s", b.Rows.Schema(), w.schema.Columns)
	}
	rec := b.Rows
	if w.cols != w.schema.Columns {
		rec = array.NewRecordBatch(w.cols, rec.Columns(), rec.NumRows())
	}
	return writing(func() error { return w.w.Write(rec) })
}

// Close ends the stream or file, see format.Writer.
func (w *Writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	return writing(w.w.Close)
}

func writing(f func() error) error {
	if err := f(); err != nil {
		return fmt.Errorf("writing Arrow IPC: %w", err)
	}
	return nil
}

package parquet

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/arrowipc"
	"github.com/leatdata/leat/format/internal/arrowtype"
	"github.com/leatdata/leat/record"
)

const (
	codeDamaged = "parquet.damaged"
	batchBytes  = 4 << 20 // memory of one read from a row group
	batchRows   = 8_192
	bufferBytes = 128 << 10 // of each column's stream
)

// Reader reads one file, row group by row group. It implements format.Reader and format.Skipper.
type Reader struct {
	file   *file.Reader
	arrow  *pqarrow.FileReader
	schema *record.Schema
	types  []arrow.DataType // what each column becomes

	group  int                  // the next row group
	open   pqarrow.RecordReader // of the row group before; nil: none
	left   int64                // rows that the open row group still has
	cur    arrow.RecordBatch    // rows that were not handed out yet; nil: none
	rows   int64                // rows that were handed out or skipped
	failed error
	closed bool
}

var (
	_ format.Reader  = (*Reader)(nil)
	_ format.Skipper = (*Reader)(nil)
)

// NewReader reads the footer of a file of the given size in bytes. The caller closes r.
func NewReader(r io.ReaderAt, size int64, dataset string) (*Reader, error) {
	out := new(Reader)
	err := guard("reading the footer", func() error {
		if err := record.Register(); err != nil {
			return err //nolint:wrapcheck // says it all
		}
		props := parquet.NewReaderProperties(memory.DefaultAllocator)
		props.BufferedStreamEnabled, props.BufferSize = true, bufferBytes
		var err error
		if out.file, err = file.NewParquetReader(io.NewSectionReader(r, 0, size), file.WithReadProps(props)); err != nil {
			return notParquet(err)
		}
		hints := out.cutHints(dataset)
		arrowProps := pqarrow.ArrowReadProperties{BatchSize: batchRows}
		if out.arrow, err = pqarrow.NewFileReader(out.file, arrowProps, memory.DefaultAllocator); err != nil {
			return notParquet(err)
		}
		return out.setSchema(dataset, hints)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func guard(doing string, f func() error) error { return arrowtype.Guard(codeDamaged, doing, f) }

func notParquet(err error) error {
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "parquet.format", Doing: "reading Parquet", Err: err,
		Hint: "is it a whole Parquet file? It begins and ends with PAR1",
	}
}

// hints are what a file's metadata says about its types beyond Parquet's own.
type hints struct {
	exact *record.Schema // what leat wrote; nil: nothing
	arrow *record.Schema // what Arrow's writers keep; nil: nothing
}

// cutHints takes the schemas out of the file's metadata: the library would trust them, and can't read all that they may say.
func (r *Reader) cutHints(dataset string) hints {
	meta := r.file.MetaData()
	parse := func(key string) *record.Schema {
		doc := meta.KeyValueMetadata().FindValue(key)
		if doc == nil {
			return nil
		}
		raw, err := base64.StdEncoding.DecodeString(*doc)
		if err != nil {
			return nil
		}
		ipc, err := arrowipc.NewReader(bytes.NewReader(raw), dataset)
		if err != nil {
			return nil
		}
		return ipc.Schema()
	}
	out := hints{exact: parse(schemaKey), arrow: parse(arrowSchemaKey)}
	meta.FileMetaData.KeyValueMetadata = nil
	return out
}

// fits reports whether a schema of the metadata still has the file's columns.
func (r *Reader) fits(s *record.Schema) bool {
	if s == nil || s.Columns.NumFields() != len(r.arrow.Manifest.Fields) {
		return false
	}
	for i := range r.arrow.Manifest.Fields {
		if r.arrow.Manifest.Fields[i].Field.Name != s.Columns.Field(i).Name {
			return false
		}
	}
	return true
}

// setSchema finds what each column becomes: the exact type that leat wrote, or what the file says by itself. A hint counts only where
// values of its type are stored as the file has them.
func (r *Reader) setSchema(dataset string, h hints) error {
	exact, arrows := r.fits(h.exact), r.fits(h.arrow)
	fields := make([]arrow.Field, len(r.arrow.Manifest.Fields))
	for i := range fields {
		sf := &r.arrow.Manifest.Fields[i]
		t, err := natural(sf, r.file.MetaData().Schema)
		if err != nil {
			return &connector.Error{
				Class: connector.ClassPermanent, Code: "parquet.type", Doing: "reading Parquet", Dataset: dataset, Column: sf.Field.Name,
				Err: err, Hint: "leave the column out with --columns",
			}
		}
		fields[i] = arrow.Field{Name: sf.Field.Name, Type: t, Nullable: sf.Field.Nullable}
		switch {
		case exact && same(stored(h.exact.Columns.Field(i).Type).arrow, t):
			fields[i] = h.exact.Columns.Field(i)
		case arrows && same(stored(h.arrow.Columns.Field(i).Type).arrow, t):
			fields[i].Type = h.arrow.Columns.Field(i).Type
		}
		r.types = append(r.types, fields[i].Type)
	}
	r.schema = &record.Schema{Dataset: dataset, Columns: arrow.NewSchema(fields, nil)}
	if exact {
		r.schema.Key = h.exact.Key
	}
	return r.schema.Validate() //nolint:wrapcheck // says it all
}

// Schema returns the schema, which never changes.
func (r *Reader) Schema() *record.Schema { return r.schema }

// Rows returns how many rows the file says it has.
func (r *Reader) Rows() int64 { return r.file.NumRows() }

// Offset returns how many rows were handed out or skipped.
func (r *Reader) Offset() format.Offset { return format.Offset{Rows: r.rows} }

// Next returns the next rows, see format.Reader. A batch never spans two row groups; the wanted bytes are bytes of memory.
func (r *Reader) Next(want format.Want) (*record.Batch, error) {
	var out *record.Batch
	err := r.step("reading rows", func() error {
		if err := r.fill(); err != nil {
			return err
		}
		part := r.take(r.wanted(want))
		cols := make([]arrow.Array, len(r.types))
		for i, t := range r.types {
			c, err := arrowtype.Convert(part.Column(i), t)
			if err != nil {
				return &connector.Error{
					Class: connector.ClassPermanent, Code: "parquet.value", Doing: "reading Parquet", Dataset: r.schema.Dataset,
					Column: r.schema.Columns.Field(i).Name, Err: err,
				}
			}
			cols[i] = c
		}
		var err error
		out, err = arrowtype.Rows(r.schema, cols, int(part.NumRows()), r.rows-part.NumRows()+1)
		return err //nolint:wrapcheck // says it all
	})
	return out, err
}

// step runs f under guard; after an error the reader is of no use.
func (r *Reader) step(doing string, f func() error) error {
	if r.failed != nil {
		return r.failed
	}
	err := guard(doing, func() error {
		err := f()
		var e *connector.Error
		if err == nil || errors.Is(err, io.EOF) && err.Error() == io.EOF.Error() || errors.As(err, &e) {
			return err
		}
		return arrowtype.Damaged(codeDamaged, fmt.Sprintf("%s behind row %d", doing, r.rows), err)
	})
	if err != nil {
		r.failed = err
	}
	return err
}

// fill makes cur hold at least one row.
func (r *Reader) fill() error {
	for r.cur == nil || r.cur.NumRows() == 0 {
		if r.left == 0 {
			if err := r.nextGroup(); err != nil {
				return err
			}
			continue
		}
		if !r.open.Next() {
			if err := r.open.Err(); err != nil {
				return fmt.Errorf("row group %d: %w", r.group-1, err)
			}
			return fmt.Errorf("row group %d ends %d rows too early", r.group-1, r.left)
		}
		rec := r.open.RecordBatch()
		if r.left -= rec.NumRows(); r.left < 0 {
			return fmt.Errorf("row group %d has more rows than it says", r.group-1)
		}
		for i, c := range rec.Columns() {
			if int64(c.Len()) != rec.NumRows() {
				return fmt.Errorf("column %q has %d rows, others %d", rec.ColumnName(i), c.Len(), rec.NumRows())
			}
			if err := arrowtype.Validate(c); err != nil {
				return fmt.Errorf("column %q: %w", rec.ColumnName(i), err)
			}
		}
		rec.Retain() // the library lets go of it when it reads the next one
		r.cur = rec
	}
	return nil
}

// nextGroup opens the next row group that has rows; io.EOF behind the last one.
func (r *Reader) nextGroup() error {
	r.release()
	for ; r.group < r.file.NumRowGroups(); r.group++ {
		meta := r.file.MetaData().RowGroup(r.group)
		n := meta.NumRows()
		if n < 0 {
			return fmt.Errorf("row group %d says it has %d rows", r.group, n)
		}
		if n == 0 {
			continue
		}
		// The library opens the columns of structs on goroutines of its own, where nothing catches a panic: they are opened here first.
		for c := range r.file.MetaData().Schema.NumColumns() {
			pages, err := r.file.RowGroup(r.group).GetColumnPageReader(c)
			if err != nil {
				return fmt.Errorf("row group %d: %w", r.group, err)
			}
			if err := pages.Close(); err != nil {
				return fmt.Errorf("row group %d: %w", r.group, err)
			}
		}
		r.arrow.Props.BatchSize = max(1, min(batchRows, batchBytes/max(1, meta.TotalByteSize()/n)))
		ctx := context.Background() //nolint:forbidigo // an io.ReaderAt can't be cancelled
		open, err := r.arrow.GetRecordReader(ctx, nil, []int{r.group})
		if err != nil {
			return fmt.Errorf("row group %d: %w", r.group, err)
		}
		r.open, r.left = open, n
		r.group++
		return nil
	}
	return io.EOF
}

// wanted returns how many rows of cur a batch may have.
func (r *Reader) wanted(want format.Want) int64 {
	n := r.cur.NumRows()
	if want.Rows > 0 {
		n = min(n, int64(want.Rows))
	}
	if want.Bytes > 0 {
		total := int64(0)
		for _, c := range r.cur.Columns() {
			total += size(c)
		}
		if perRow := total / r.cur.NumRows(); perRow > 0 {
			n = min(n, max(1, want.Bytes/perRow))
		}
	}
	return n
}

// take cuts n rows off cur.
func (r *Reader) take(n int64) arrow.RecordBatch {
	part := r.cur
	if n < part.NumRows() {
		part = r.cur.NewSlice(0, n)
		r.cur = r.cur.NewSlice(n, r.cur.NumRows())
	} else {
		r.cur = nil
	}
	r.rows += part.NumRows()
	return part
}

// Skip goes forward over n rows, see format.Skipper: over whole row groups without reading them.
func (r *Reader) Skip(n int64) error {
	for n > 0 && r.left == 0 && r.cur == nil && r.group < r.file.NumRowGroups() {
		rows := r.file.MetaData().RowGroup(r.group).NumRows()
		if rows > n || rows < 0 {
			break
		}
		n -= rows
		r.rows += rows
		r.group++
	}
	for n > 0 {
		err := r.step("skipping rows", r.fill)
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		n -= r.take(min(n, r.cur.NumRows())).NumRows()
	}
	return nil
}

func (r *Reader) release() {
	if r.open != nil {
		r.open.Release()
		r.open = nil
	}
}

// Close releases what the reader holds.
func (r *Reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed, r.cur, r.failed = true, nil, errors.New("the reader is closed")
	return guard("closing", func() error {
		r.release()
		if err := r.file.Close(); err != nil {
			return fmt.Errorf("closing a Parquet file: %w", err)
		}
		return nil
	})
}

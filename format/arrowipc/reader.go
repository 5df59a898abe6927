package arrowipc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/internal/arrowtype"
	"github.com/leatdata/leat/record"
)

const (
	codeDamaged = "arrow.damaged"
	keyMetadata = "leat:key"
)

// magic begins and ends the file form; two bytes of padding follow it at the beginning.
var magic = []byte("ARROW1") //nolint:gochecknoglobals // a constant

// Reader reads the batches of one input. It implements format.Reader and format.Skipper.
type Reader struct {
	schema *record.Schema
	types  []arrow.DataType // what each column becomes
	in     *messages
	rd     *ipc.Reader
	cur    arrow.RecordBatch // rows that were not handed out yet; nil: none
	rows   int64             // rows that were handed out or skipped
	failed error
	closed bool
}

var (
	_ format.Reader  = (*Reader)(nil)
	_ format.Skipper = (*Reader)(nil)
)

// NewReader reads the schema of a stream or a file; both are read from their beginning to their end. Where r is an io.Seeker too, Skip
// goes over whole batches without reading them. The caller closes r.
func NewReader(r io.Reader, dataset string) (*Reader, error) {
	out := new(Reader)
	err := guard("reading the schema", func() error {
		if err := record.Register(); err != nil {
			return err //nolint:wrapcheck // says it all
		}
		if err := out.begin(r); err != nil {
			return notArrow(err)
		}
		return out.setSchema(out.rd.Schema(), dataset)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// begin tells the two forms apart and reads the schema's message.
func (r *Reader) begin(in io.Reader) error {
	head := make([]byte, len(magic)+2)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return unexpected(err)
	}
	r.in = &messages{r: in, file: n == len(head) && bytes.HasPrefix(head, magic)}
	if !r.in.file {
		r.in.r = &joined{head: head[:n], Reader: in}
	}
	r.rd, err = ipc.NewReaderFromMessageReader(r.in, ipc.WithAllocator(allocator{memory.DefaultAllocator}))
	if err != nil {
		return unexpected(err)
	}
	if !r.in.file {
		r.in.r = in // the first message took the head
	}
	return nil
}

// joined reads the head first. It hides what else the reader can do.
type joined struct {
	io.Reader

	head []byte
}

func (j *joined) Read(p []byte) (int, error) {
	if len(j.head) > 0 {
		n := copy(p, j.head)
		j.head = j.head[n:]
		return n, nil
	}
	return j.Reader.Read(p) //nolint:wrapcheck // a reader's own error
}

func notArrow(err error) error {
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "arrow.format", Doing: "reading Arrow IPC", Err: err,
		Hint: "is it an Arrow IPC file (.arrow) or stream (.arrows)? Parquet files end in .parquet",
	}
}

func guard(doing string, f func() error) error { return arrowtype.Guard(codeDamaged, doing, f) }

// setSchema finds what each column becomes.
func (r *Reader) setSchema(s *arrow.Schema, dataset string) error {
	fields := s.Fields()
	r.types = make([]arrow.DataType, len(fields))
	for i := range fields {
		t, err := arrowtype.Normal(fields[i].Type)
		if err != nil {
			return &connector.Error{
				Class: connector.ClassPermanent, Code: "arrow.type", Doing: "reading Arrow IPC", Dataset: dataset, Column: fields[i].Name,
				Err: err, Hint: "leave the column out with --columns",
			}
		}
		fields[i].Type, r.types[i] = t, t
	}
	r.schema = &record.Schema{Dataset: dataset, Columns: arrow.NewSchema(fields, nil)}
	meta := s.Metadata()
	if doc, ok := meta.GetValue(keyMetadata); ok {
		var names []string
		if err := json.Unmarshal([]byte(doc), &names); err != nil {
			return fmt.Errorf("key %s: %w", doc, err)
		}
		keyed, err := r.schema.WithKey(names...)
		if err != nil {
			return err //nolint:wrapcheck // says it all
		}
		r.schema = keyed
	}
	return r.schema.Validate() //nolint:wrapcheck // says it all
}

// Schema returns the schema, which never changes.
func (r *Reader) Schema() *record.Schema { return r.schema }

// Offset returns how many rows were handed out or skipped.
func (r *Reader) Offset() format.Offset { return format.Offset{Rows: r.rows} }

// Next returns the next rows, see format.Reader. A batch never spans two messages; the wanted bytes are bytes of memory.
func (r *Reader) Next(want format.Want) (*record.Batch, error) {
	var out *record.Batch
	err := r.step("reading a batch", func() error {
		if err := r.fill(); err != nil {
			return err
		}
		part := r.takeRows(r.size(want))
		cols := make([]arrow.Array, len(r.types))
		for i, t := range r.types {
			c, err := arrowtype.Convert(part.Column(i), t)
			if err != nil {
				return &connector.Error{
					Class: connector.ClassPermanent, Code: "arrow.value", Doing: "reading Arrow IPC", Dataset: r.schema.Dataset,
					Column: r.schema.Columns.Field(i).Name, Err: err,
				}
			}
			cols[i] = c
		}
		first := r.rows - part.NumRows() + 1
		var err error
		out, err = arrowtype.Rows(r.schema, cols, int(part.NumRows()), first)
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
		if err == nil || errors.Is(err, io.EOF) {
			return err
		}
		if _, ok := errors.AsType[*connector.Error](err); ok {
			return err
		}
		return arrowtype.Damaged(codeDamaged, fmt.Sprintf("%s behind row %d", doing, r.rows), err)
	})
	if err != nil {
		r.failed = err
	}
	return err
}

// nextRecord reads the next rows and checks that they are what they say. The error is io.EOF behind the last ones; the caller says what
// was being done.
func nextRecord(rd *ipc.Reader) (arrow.RecordBatch, error) {
	if !rd.Next() {
		if err := rd.Err(); err != nil {
			return nil, err //nolint:wrapcheck // see above
		}
		return nil, io.EOF
	}
	rec := rd.RecordBatch()
	for i, c := range rec.Columns() {
		if err := arrowtype.Validate(c); err != nil {
			return nil, fmt.Errorf("column %q: %w", rec.ColumnName(i), err)
		}
		if int64(c.Len()) != rec.NumRows() {
			return nil, fmt.Errorf("column %q has %d rows, the batch %d", rec.ColumnName(i), c.Len(), rec.NumRows())
		}
	}
	rec.Retain() // the library lets go of it when it reads the next one
	return rec, nil
}

// fill makes cur hold at least one row.
func (r *Reader) fill() error {
	for r.cur == nil || r.cur.NumRows() == 0 {
		rec, err := nextRecord(r.rd)
		if err != nil {
			return err
		}
		r.cur = rec
	}
	return nil
}

// size returns how many rows of cur a batch may have.
func (r *Reader) size(want format.Want) int64 {
	n := r.cur.NumRows()
	if want.Rows > 0 {
		n = min(n, int64(want.Rows))
	}
	if want.Bytes > 0 {
		memory := int64(0)
		for _, c := range r.cur.Columns() {
			memory += int64(c.Data().SizeInBytes())
		}
		if perRow := memory / r.cur.NumRows(); perRow > 0 {
			n = min(n, max(1, want.Bytes/perRow))
		}
	}
	return n
}

// takeRows cuts n rows off cur.
func (r *Reader) takeRows(n int64) arrow.RecordBatch {
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

// Skip goes forward over n rows, see format.Skipper.
func (r *Reader) Skip(n int64) error {
	r.in.skipped = func(rows int64) bool {
		if rows > n || rows < 0 {
			return false
		}
		n -= rows
		r.rows += rows
		return true
	}
	defer func() { r.in.skipped = nil }()
	for n > 0 {
		err := r.step("skipping rows", r.fill)
		if errors.Is(err, io.EOF) {
			if n > 0 {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		if err != nil {
			return err
		}
		n -= r.takeRows(min(n, r.cur.NumRows())).NumRows()
	}
	return nil
}

// Close releases what the reader holds.
func (r *Reader) Close() error {
	if !r.closed {
		r.closed, r.cur, r.failed = true, nil, errors.New("the reader is closed")
		r.rd.Release()
	}
	return nil
}

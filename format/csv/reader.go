package csv

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/internal/column"
	"github.com/leatdata/leat/record"
)

// Options say how one input is read.
type Options struct {
	Dialect
	Dataset   string
	NoHeader  bool            // the first row is data
	Names     []string        // the columns of an input without header, in order; nil: col_1, col_2 …
	Null      []string        // bare text that is NULL; nil: the empty text
	SetAside  bool            // rows with too few or too many fields are set aside; false: they are an error
	Schema    *record.Schema  // what is read; nil: all columns of the header, as text
	Declared  map[string]bool // columns whose type the user declared: they take all that package record reads as the type
	Expected  []string        // the columns that the header must have, in any order; nil: at least those of Schema
	Union     bool            // columns may be missing: they are NULL
	Sampled   bool            // types come from a sample: messages say how to see all of the input
	BatchHint int             // rows of a batch where Next wants any number; 0: 8,192
}

// Reader reads CSV. It implements format.Reader, and goes on at an offset with Resume.
type Reader struct {
	o      Options
	s      *scanner
	schema *record.Schema
	file   []string // the file's columns, in order
	to     []int    // file column -> column of the schema; -1: not read
	absent []int    // columns of the schema that the file lacks
	cols   []*column.Column
	lax    []bool // the column's type is declared
	bareNo bool   // bare empty text is NULL
	tokens []string
	rows   int64
	failed error // behind what was handed out

	rejects []record.Reject
	dropped []int // rows of the batch under way that are set aside
}

var (
	_ format.Reader  = (*Reader)(nil)
	_ format.Skipper = (*Reader)(nil)
)

// NewReader reads the header. An input without any row gives a reader that is at its end; its schema is nil where none was given.
func NewReader(r io.Reader, o Options) (*Reader, error) {
	d, err := o.check()
	if err != nil {
		return nil, err
	}
	x := &Reader{o: o, s: newScanner(r, d), schema: o.Schema}
	x.file, err = x.s.header(!o.NoHeader, o.Names)
	if errors.Is(err, io.EOF) {
		x.failed = io.EOF
		return x, nil
	}
	if err != nil {
		return nil, err
	}
	if x.schema == nil {
		x.schema = TextSchema(o.Dataset, x.file)
	}
	return x, x.bind()
}

// TextSchema is a schema of text columns.
func TextSchema(dataset string, names []string) *record.Schema {
	fields := make([]arrow.Field, len(names))
	for i, n := range names {
		fields[i] = arrow.Field{Name: n, Type: arrow.BinaryTypes.String, Nullable: true}
	}
	return &record.Schema{Dataset: dataset, Columns: arrow.NewSchema(fields, nil), Version: 1}
}

func (r *Reader) bind() error {
	names := r.schema.Names()
	var err error
	if r.to, err = match(r.file, r.o.Expected, names, r.o.Union); err != nil {
		return err
	}
	for i, n := range names {
		c, err := column.New(r.schema.Columns.Field(i).Type)
		if err != nil {
			return fmt.Errorf("column %q: %w", n, err)
		}
		r.cols = append(r.cols, c)
		r.lax = append(r.lax, r.o.Declared[n])
		if !slices.Contains(r.file, n) {
			r.absent = append(r.absent, i)
		}
	}
	r.setNull(r.o.Null)
	return nil
}

func (r *Reader) setNull(tokens []string) {
	r.bareNo = tokens == nil
	for _, t := range tokens {
		if t == "" {
			r.bareNo = true
			continue
		}
		r.tokens = append(r.tokens, t)
	}
}

// Schema returns the schema, which never changes; nil where the input has no row and none was given.
func (r *Reader) Schema() *record.Schema { return r.schema }

// Columns returns the columns that the input has, in its order.
func (r *Reader) Columns() []string { return r.file }

// Offset returns where the reader stands, see format.Reader.
func (r *Reader) Offset() format.Offset {
	return format.Offset{Rows: r.rows, Bytes: r.s.Offset(), Lines: r.s.lines}
}

// Close releases nothing: the caller closes the input.
func (r *Reader) Close() error {
	r.failed = io.EOF
	return nil
}

// Skip goes forward over n rows, see format.Skipper.
func (r *Reader) Skip(n int64) error {
	for range n {
		ok, err := r.s.next()
		switch {
		case err != nil:
			return err
		case !ok:
			return io.ErrUnexpectedEOF
		}
		r.s.consume()
		r.rows++
	}
	return nil
}

// Resume goes to an offset that a reader of the same input returned: by a seek where the input is an io.Seeker, else over the rows.
// Before the first Next only.
func (r *Reader) Resume(at format.Offset) error {
	sought := false
	if at.Bytes > 0 {
		var err error
		if sought, err = r.s.SeekTo(at.Bytes); err != nil {
			return fmt.Errorf("going to byte %d: %w", at.Bytes, err)
		}
	}
	if !sought {
		return r.Skip(at.Rows - r.rows)
	}
	r.s.lines, r.s.size = at.Lines, 0
	r.rows = at.Rows
	if errors.Is(r.failed, io.EOF) {
		r.failed = nil
	}
	return nil
}

const batchRows = 8_192

// Next returns the next rows, see format.Reader. The wanted bytes are bytes of input.
func (r *Reader) Next(want format.Want) (*record.Batch, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	if want.Rows <= 0 {
		want.Rows = max(r.o.BatchHint, batchRows)
	}
	from, n := r.s.Offset(), 0
	for n+len(r.rejects) < want.Rows && (want.Bytes <= 0 || r.s.Offset()-from < want.Bytes) {
		ok, err := r.s.next()
		if err == nil && !ok {
			err = io.EOF
		}
		if err == nil {
			ok, err = r.row(n)
		}
		if err != nil {
			r.failed = err
			break
		}
		if ok {
			n++
		}
		r.s.consume()
		r.rows++
		if r.full() {
			break
		}
	}
	if n+len(r.rejects) == 0 {
		return nil, r.failed
	}
	return r.batch(n, r.s.Offset()-from)
}

func (r *Reader) full() bool {
	for _, c := range r.cols {
		if c.Data() >= column.MaxData {
			return true
		}
	}
	return false
}

// batch hands out the collected rows, without those that were set aside in their middle.
func (r *Reader) batch(n int, size int64) (*record.Batch, error) {
	rows, err := column.Finish(r.schema.Columns, r.cols, n)
	if err != nil {
		return nil, err
	}
	b := &record.Batch{Schema: r.schema, Rows: rows, Rejects: r.rejects, Size: size}
	dropped := r.dropped
	r.rejects, r.dropped = nil, r.dropped[:0]
	if len(dropped) == 0 {
		return b, nil
	}
	return b.Keep(func(i int) bool {
		_, found := slices.BinarySearch(dropped, i)
		return !found
	})
}

// row appends the scanned row as row n. It is false where nothing was appended, because the row is set aside.
func (r *Reader) row(n int) (bool, error) {
	switch {
	case r.s.problem != "":
		at := r.s.Offset() + int64(r.s.problemAt)
		r.reject(record.Reject{Offset: at, Class: "bad_syntax", Message: r.s.problem + ": " + "want a delimiter or a line end there"})
		return false, nil
	case r.s.invalid() >= 0:
		r.rejectEncoding()
		return false, nil
	case len(r.s.fields) != len(r.file):
		return false, r.ragged()
	}
	bad := false
	line, fields := r.s.row(), r.s.fields
	for i, to := range r.to {
		if to < 0 {
			continue
		}
		f, c := &fields[i], r.cols[to]
		b := line[f.start:f.end]
		if bad || (!f.quoted && r.isNull(f)) {
			c.Null()
			continue
		}
		if f.escaped {
			b = r.s.value(f)
		}
		if c.Kind == column.Text {
			c.Bytes(b)
			continue
		}
		if err := c.Set(b, r.lax[to]); err != nil {
			c.Null()
			bad = true
			r.dropped = append(r.dropped, n)
			r.rejectValue(to, f, b, err)
		}
	}
	for _, i := range r.absent {
		r.cols[i].Null()
	}
	return true, nil
}

func (r *Reader) isNull(f *field) bool {
	return (r.bareNo && f.start == f.end) || (len(r.tokens) > 0 && r.isToken(f))
}

// isToken reports whether bare text stands for NULL.
func (r *Reader) isToken(f *field) bool { return slices.Contains(r.tokens, string(r.s.value(f))) }

func (r *Reader) ragged() error {
	text := fmt.Sprintf("%d fields expected, %d found", len(r.file), len(r.s.fields))
	if !r.o.SetAside {
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "csv.ragged",
			Err:  fmt.Errorf("line %d (byte %d): %s", r.s.line(), r.s.Offset(), text),
			Hint: "correct that line, or say ragged=reject to set such rows aside",
		}
	}
	r.reject(record.Reject{Offset: r.s.Offset(), Class: "bad_syntax", Message: text})
	return nil
}

// maxShown is how much of a value messages show, in bytes.
const maxShown = 120

func shown(b []byte) string {
	if len(b) > maxShown {
		return string(b[:maxShown]) + "…"
	}
	return string(b)
}

func (r *Reader) rejectValue(col int, f *field, value []byte, why error) {
	name := r.schema.Columns.Field(col).Name
	message := fmt.Sprintf("expected %s: %v", r.cols[col].Type, why)
	if !r.lax[col] {
		message = fmt.Sprintf("expected %s, as in all rows that were looked at before; to read the column as text say types=%s:text",
			r.cols[col].Type, name)
		if r.o.Sampled {
			message += ", to look at all rows first say infer=all"
		}
	}
	r.reject(record.Reject{
		Offset: r.s.Offset() + int64(f.start), Column: name, Value: shown(value), Class: "bad_value", Message: message,
	})
}

func (r *Reader) rejectEncoding() {
	at := r.s.invalid()
	row := r.s.row()
	column := ""
	for i, f := range r.s.fields {
		if at >= f.start && at < f.end && i < len(r.file) {
			column = r.file[i]
		}
	}
	r.reject(record.Reject{
		Offset: r.s.Offset() + int64(at), Column: column, Class: "bad_encoding",
		Message: fmt.Sprintf("byte %#02x is not valid UTF-8; %s", row[at], encodingHint),
	})
}

// reject sets the scanned row aside, with its bytes.
func (r *Reader) reject(j record.Reject) {
	raw := r.s.row()
	j.Dataset, j.Line, j.Raw = r.schema.Dataset, r.s.line(), append([]byte(nil), raw...)
	r.rejects = append(r.rejects, j)
}

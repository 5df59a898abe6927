package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/internal/column"
	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/record"
)

// Options say how one input is read.
type Options struct {
	Dataset          string
	MaxLine          int64           // longest line in bytes; 0: 256 MiB
	Schema           *record.Schema  // what is known; nil: nothing, all columns come late
	Declared         map[string]bool // columns whose type the user declared: they take all that package record reads as the type
	Fixed            bool            // other keys than those of Schema are left out; false: they add columns
	RejectDuplicates bool            // rows with equal keys are set aside; false: the last one counts
	Sampled          bool            // types come from a sample: messages say how to see all of the input
}

// Reader reads JSON Lines. It implements format.Reader, and goes on at an offset with Resume.
type Reader struct {
	o       Options
	l       *lines
	schema  *record.Schema
	cols    []*target
	index   map[string]int
	rows    int64
	failed  error
	doubles int64

	rejects []record.Reject
	dropped []int
	late    []arrow.Field // columns that the row under way adds
	scratch []byte
	keyText []byte
	guess   [][]byte // the keys of the columns as they most often stand in a line
	turn    int64    // counts looks at lines, so that a column knows whether its slot is of this one
	twice   string
	lex     jsontext.Lexer
	member  func(key, v jsontext.Span) bool
}

var (
	_ format.Reader  = (*Reader)(nil)
	_ format.Skipper = (*Reader)(nil)
)

// NewReader returns a reader; nothing is read before the first Next.
func NewReader(r io.Reader, o Options) (*Reader, error) {
	x := &Reader{o: o, l: newLines(r, o.MaxLine), schema: o.Schema, index: map[string]int{}}
	if x.schema == nil {
		x.schema = &record.Schema{Dataset: o.Dataset, Columns: arrow.NewSchema(nil, nil)}
	}
	x.member = x.keep
	for _, f := range x.schema.Columns.Fields() {
		if err := x.add(f); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func (r *Reader) add(f arrow.Field) error {
	t, err := newTarget(f, r.o.Declared[f.Name])
	if err != nil {
		return err
	}
	r.index[f.Name] = len(r.cols)
	r.cols = append(r.cols, t)
	key := record.AppendJSONString(nil, f.Name)
	if bytes.IndexByte(key, '\\') >= 0 {
		key = nil
	}
	r.guess = append(r.guess, key)
	return nil
}

// Schema returns the schema of the next batch, as far as it is known.
func (r *Reader) Schema() *record.Schema { return r.schema }

// Duplicates returns in how many rows a key stood more than once.
func (r *Reader) Duplicates() int64 { return r.doubles }

// Offset returns where the reader stands, see format.Reader.
func (r *Reader) Offset() format.Offset {
	return format.Offset{Rows: r.rows, Bytes: r.l.Offset(), Lines: r.l.lines}
}

// Close releases nothing: the caller closes the input.
func (r *Reader) Close() error {
	r.failed = io.EOF
	return nil
}

// Skip goes forward over n rows, see format.Skipper.
func (r *Reader) Skip(n int64) error {
	for range n {
		ok, err := r.l.next()
		switch {
		case err != nil:
			return err
		case !ok:
			return io.ErrUnexpectedEOF
		}
		r.l.consume()
		r.rows++
	}
	return nil
}

// Resume goes to an offset that a reader of the same input returned: by a seek where the input is an io.Seeker, else over the rows.
// Before the first Next only. The schema is the caller's: columns that came late belong into Options.Schema.
func (r *Reader) Resume(at format.Offset) error {
	if at.Bytes > 0 {
		sought, err := r.l.SeekTo(at.Bytes)
		if err != nil {
			return fmt.Errorf("going to byte %d: %w", at.Bytes, err)
		}
		if sought {
			r.rows, r.l.lines, r.l.size, r.l.begun = at.Rows, at.Lines, 0, true
			return nil
		}
	}
	return r.Skip(at.Rows - r.rows)
}

const batchRows = 8_192

// Next returns the next rows, see format.Reader. The wanted bytes are bytes of input. A batch also ends in front of a row that adds
// columns.
func (r *Reader) Next(want format.Want) (*record.Batch, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	if want.Rows <= 0 {
		want.Rows = batchRows
	}
	from, n := r.l.Offset(), 0
	for n+len(r.rejects) < want.Rows && (want.Bytes <= 0 || r.l.Offset()-from < want.Bytes) {
		ok, err := r.l.next()
		if err == nil && !ok {
			err = io.EOF
		}
		if err == nil && r.rows == 0 {
			err = r.l.array()
		}
		if err != nil {
			r.failed = err
			break
		}
		ok = r.row(n)
		if len(r.late) > 0 {
			if n+len(r.rejects) > 0 {
				break
			}
			if err := r.extend(); err != nil {
				r.failed = err
				break
			}
			ok = r.row(n)
		}
		if ok {
			n++
		}
		r.l.consume()
		r.rows++
		if r.full() {
			break
		}
	}
	r.late = nil
	if n+len(r.rejects) == 0 {
		return nil, r.failed
	}
	return r.batch(n, r.l.Offset()-from)
}

func (r *Reader) full() bool {
	for _, c := range r.cols {
		if c.Data() >= column.MaxData {
			return true
		}
	}
	return false
}

// extend makes a schema with the late columns.
func (r *Reader) extend() error {
	fields := append(slices.Clone(r.schema.Columns.Fields()), r.late...)
	for _, f := range r.late {
		if err := r.add(f); err != nil {
			return err
		}
	}
	r.late = nil
	next := *r.schema
	next.Columns = arrow.NewSchema(fields, nil)
	next.Version++
	r.schema = &next
	return nil
}

// batch hands out the collected rows, without those that were set aside in their middle.
func (r *Reader) batch(n int, size int64) (*record.Batch, error) {
	cols := make([]*column.Column, len(r.cols))
	for i, c := range r.cols {
		cols[i] = c.Column
	}
	rows, err := column.Finish(r.schema.Columns, cols, n)
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

// row appends the current line as row n. It is false where nothing was appended: the line is set aside, or adds columns.
func (r *Reader) row(n int) bool {
	line := r.l.row()
	if at := r.l.Invalid(len(line)); at >= 0 {
		r.reject(record.Reject{
			Offset: r.l.Offset() + int64(at), Class: "bad_encoding",
			Message: fmt.Sprintf("byte %#02x is not valid UTF-8; say which encoding it is, such as encoding=windows-1252", line[at]),
		})
		return false
	}
	r.lex = jsontext.Lexer{B: trim(line), Guess: r.guess}
	r.late, r.twice = nil, ""
	r.turn++
	if !r.lex.Line(r.member) {
		r.reject(record.Reject{Offset: r.l.Offset() + int64(r.lex.P), Class: "bad_syntax", Message: r.lex.Fault})
		r.late = nil
		return false
	}
	if r.twice != "" && r.o.RejectDuplicates {
		r.reject(record.Reject{
			Offset: r.l.Offset(), Column: r.twice, Class: "duplicate_key", Message: "the key stands more than once in the row",
		})
		r.late = nil
		return false
	}
	if len(r.late) > 0 {
		return false
	}
	if r.twice != "" {
		r.doubles++
	}
	r.values(n)
	return true
}

// keep remembers where the value of a column stands.
func (r *Reader) keep(key, v jsontext.Span) bool {
	i, known := r.find(r.lex.B[key.Start:key.End], key.Kind)
	if known {
		t := r.cols[i]
		if t.turn == r.turn {
			r.twice = t.name
		}
		t.turn, t.slot = r.turn, v
		return true
	}
	if r.o.Fixed {
		return true
	}
	name := string(jsontext.TextOf(r.lex.B[key.Start:key.End], key.Kind, &r.keyText))
	at := slices.IndexFunc(r.late, func(f arrow.Field) bool { return f.Name == name })
	switch {
	case at >= 0 && v.Kind == jsontext.Null:
		r.late = slices.Delete(r.late, at, at+1) // the last one counts
	case at >= 0:
		r.late[at].Type = lateType(v.Kind)
	case v.Kind != jsontext.Null:
		r.late = append(r.late, arrow.Field{Name: name, Type: lateType(v.Kind), Nullable: true})
	}
	return true
}

// find looks a key up; keys mostly come in the order of the columns.
func (r *Reader) find(key []byte, k jsontext.Kind) (int, bool) {
	if r.lex.Guessed {
		return r.lex.Next - 1, true
	}
	i, ok := r.index[string(jsontext.TextOf(key, k, &r.keyText))]
	if ok {
		r.lex.Next = i + 1
	}
	return i, ok
}

// trim takes the line end away.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}

// values appends what was kept of the line.
func (r *Reader) values(n int) {
	line := r.l.row()
	bad := false
	for _, t := range r.cols {
		if bad || t.turn != r.turn || t.slot.Kind == jsontext.Null {
			t.Null()
			continue
		}
		b := line[t.slot.Start:t.slot.End]
		if err := t.set(b, t.slot.Kind, &r.scratch); err != nil {
			t.Null()
			bad = true
			r.dropped = append(r.dropped, n)
			r.rejectValue(t, b, err)
		}
	}
}

func (r *Reader) rejectValue(t *target, b []byte, why error) {
	message := fmt.Sprintf("expected %s, found %s", t.Type, t.slot.Kind)
	switch {
	case t.declared && !errors.Is(why, errKind):
		message = fmt.Sprintf("expected %s: %v", t.Type, why)
	case !t.declared:
		message += fmt.Sprintf("; to keep all values of the column say types=%s:json", t.name)
		if r.o.Sampled {
			message += ", to look at all rows first say infer=all"
		}
	}
	r.reject(record.Reject{
		Offset: r.l.Offset() + int64(t.slot.Start), Column: t.name, Value: shown(b), Class: "bad_value", Message: message,
	})
}

// reject sets the current line aside, with its bytes.
func (r *Reader) reject(j record.Reject) {
	j.Dataset, j.Line, j.Raw = r.schema.Dataset, r.l.lines+1, append([]byte(nil), r.l.row()...)
	r.rejects = append(r.rejects, j)
}

package pgcopy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/record"
)

// Column is one column of a COPY … FROM STDIN.
type Column struct {
	Name string
	Type Type
}

// Encoder appends rows in the binary format. It has no state between calls and may be used concurrently.
type Encoder struct {
	cols []Column
	kind []record.Type
}

// NewEncoder makes an encoder for record batches with the columns of schema, whose i-th column goes into cols[i]. It is an error where
// a column has no exact way into its wire type; single values that don't fit are found while encoding.
func NewEncoder(schema *arrow.Schema, cols []Column) (*Encoder, error) {
	if schema.NumFields() != len(cols) {
		return nil, fmt.Errorf("%d columns for %d wire types", schema.NumFields(), len(cols))
	}
	e := &Encoder{cols: cols, kind: make([]record.Type, len(cols))}
	for i, f := range schema.Fields() {
		t, err := record.TypeOf(f.Type)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		if !CanEncode(t, cols[i].Type) {
			return nil, fmt.Errorf("column %q: %w", f.Name, unsupported(cols[i].Type, t))
		}
		e.kind[i] = t
	}
	return e, nil
}

// AppendHeader appends what every binary COPY starts with.
func AppendHeader(dst []byte) []byte {
	return append(append(dst, signature...), 0, 0, 0, 0, 0, 0, 0, 0)
}

// AppendTrailer appends what every binary COPY ends with.
func AppendTrailer(dst []byte) []byte { return append(dst, 0xff, 0xff) }

// AppendRows appends rows from (inclusive) to (exclusive). A value that does not fit is a *ValueError; dst then ends with the row
// before it, so that a caller may leave the row out and go on behind it.
func (e *Encoder) AppendRows(dst []byte, rb arrow.RecordBatch, from, to int) ([]byte, error) {
	b, err := e.Bind(rb)
	if err != nil {
		return dst, err
	}
	for i := from; i < to; i++ {
		if dst, err = b.AppendRow(dst, i); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// Rows is a record batch that is ready to be encoded row by row.
type Rows struct {
	e    *Encoder
	rb   arrow.RecordBatch
	cols []encodedColumn
}

type encodedColumn struct {
	put   putFunc
	arr   arrow.Array
	nulls bool
}

// Bind prepares a record batch, so that AppendRow allocates nothing.
func (e *Encoder) Bind(rb arrow.RecordBatch) (*Rows, error) {
	if int(rb.NumCols()) != len(e.cols) {
		return nil, fmt.Errorf("a record batch of %d columns, want %d", rb.NumCols(), len(e.cols))
	}
	r := &Rows{e: e, rb: rb, cols: make([]encodedColumn, len(e.cols))}
	for i := range r.cols {
		arr := rb.Column(i)
		put := putter(arr, e.kind[i], e.cols[i].Type)
		if put == nil {
			return nil, fmt.Errorf("column %q is %s: %w", e.cols[i].Name, arr.DataType(), unsupported(e.cols[i].Type, e.kind[i]))
		}
		r.cols[i] = encodedColumn{put: put, arr: arr, nulls: arr.NullN() > 0}
	}
	return r, nil
}

// AppendRow appends row i; see AppendRows for errors.
func (r *Rows) AppendRow(dst []byte, i int) ([]byte, error) {
	start := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(r.cols)))
	for c := range r.cols {
		col := &r.cols[c]
		if col.nulls && col.arr.IsNull(i) {
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		var err error
		if dst, err = col.put(dst, i); err != nil {
			value := shorten(string(record.AppendText(nil, col.arr, i)))
			return dst[:start], &ValueError{Row: i, Column: r.e.cols[c].Name, Value: value, Err: err}
		}
	}
	return dst, nil
}

// putFunc appends length and value of row i, which is not null.
type putFunc func(dst []byte, i int) ([]byte, error)

// CanEncode reports whether values of t have a way into wire type w, if not every value.
func CanEncode(t record.Type, w Type) bool { //nolint:cyclop // a case for each form
	switch w.Form {
	case Raw:
		return true // the bytes of text and binary, the canonical text of all others
	case Versioned:
		return t.Kind == record.JSON || t.Kind == record.String || t.Kind == record.Foreign || t.Nested()
	case Bool:
		return t.Kind == record.Bool
	case Int2, Int4, Int8:
		return integer(t.Kind)
	case Float4:
		return t.Kind == record.Float32
	case Float8:
		return t.Kind == record.Float32 || t.Kind == record.Float64
	case Numeric:
		return integer(t.Kind) || t.Kind == record.Decimal || t.Kind == record.Numeric
	case UUID:
		return t.Kind == record.UUID
	case Date:
		return t.Kind == record.Date
	case Time:
		return t.Kind == record.Time
	case Timestamp:
		return t.Kind == record.Timestamp
	case Interval:
		return t.Kind == record.Interval || t.Kind == record.Duration
	case Bits:
		return t.Kind == record.Bits
	case Network, MAC:
		return t.Kind == record.Network
	case Array:
		return (t.Kind == record.Array || t.Kind == record.List) && w.Elem != nil && CanEncode(*t.Elem, *w.Elem)
	}
	return false
}

func integer(k record.Kind) bool { return k >= record.Int8 && k <= record.Uint64 }

var (
	errIntegerRange = errors.New("the number is out of the range of the target's integer type")
	errSubMicro     = errors.New("the value has digits below a microsecond")
	errTimeRange    = errors.New("the value is out of PostgreSQL's range")
)

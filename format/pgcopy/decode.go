package pgcopy

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// Default size of a batch.
const (
	DefaultRows  = 8192
	DefaultBytes = 4 << 20
)

// DecoderOptions are the sizes and checks of a Decoder. The zero value is the default.
type DecoderOptions struct {
	Rows      int   // most rows in a batch; 0: DefaultRows
	Bytes     int64 // a batch ends with the row that reaches this many bytes on the wire; 0: DefaultBytes
	CheckUTF8 bool  // refuse text that is not valid UTF-8: for servers that don't vouch for it
}

// Decoder reads a binary COPY that is written to it and hands over batches. It is not safe for concurrent use.
type Decoder struct {
	schema *record.Schema
	types  []Type
	cols   []*column
	opt    DecoderOptions
	emit   func(*record.Batch) error

	rest    []byte // an unfinished part of the stream
	header  bool
	trailer bool
	rows    int
	wire    int64
	total   int64
	rejects []record.Reject
}

// NewDecoder makes a decoder for rows of schema, whose i-th column is of wire type types[i]. Batches carry the schema itself, the
// rows that could not be carried as Rejects, and the bytes on the wire as Size; emit may keep them. An error of emit ends Write.
func NewDecoder(schema *record.Schema, types []Type, o DecoderOptions, emit func(*record.Batch) error) (*Decoder, error) {
	if o.Rows <= 0 {
		o.Rows = DefaultRows
	}
	if o.Bytes <= 0 {
		o.Bytes = DefaultBytes
	}
	if len(types) != schema.Columns.NumFields() {
		return nil, fmt.Errorf("%d wire types for %d columns", len(types), schema.Columns.NumFields())
	}
	d := &Decoder{schema: schema, types: types, opt: o, emit: emit, cols: make([]*column, len(types))}
	for i, f := range schema.Columns.Fields() {
		c, err := newColumn(types[i], f.Type, o.CheckUTF8)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		d.cols[i] = c
	}
	return d, nil
}

// errPartial says that the stream goes on in the next Write.
var errPartial = errors.New("more of the row is to come")

// Write takes the next part of the stream, cut anywhere. p is not kept.
func (d *Decoder) Write(p []byte) (int, error) {
	n := len(p)
	if len(d.rest) > 0 {
		d.rest = append(d.rest, p...)
		p = d.rest
	}
	p, err := d.consume(p)
	if err != nil && !errors.Is(err, errPartial) {
		return 0, err
	}
	d.rest = append(d.rest[:0], p...)
	return n, nil
}

// consume decodes whole rows and returns what is left.
func (d *Decoder) consume(p []byte) ([]byte, error) {
	if !d.header {
		rest, err := skipHeader(p)
		if err != nil {
			return p, err
		}
		p, d.header = rest, true
	}
	for len(p) > 0 {
		if d.trailer {
			return nil, errors.New("binary COPY: data behind the end of the rows")
		}
		size, err := d.tuple(p)
		if err != nil {
			return p, err
		}
		p = p[size:]
		if d.rows >= d.opt.Rows || d.wire >= d.opt.Bytes {
			if err := d.flush(); err != nil {
				return p, err
			}
		}
	}
	return nil, nil
}

// skipHeader returns what is behind the header of a binary COPY.
func skipHeader(p []byte) ([]byte, error) {
	if len(p) < headerLength {
		return p, errPartial
	}
	if string(p[:len(signature)]) != signature {
		return p, errors.New("this is no binary COPY: the signature is missing")
	}
	if flags := binary.BigEndian.Uint32(p[len(signature):]); flags != 0 {
		return p, fmt.Errorf("binary COPY: unknown flags %#x", flags)
	}
	extension := binary.BigEndian.Uint32(p[len(signature)+4:])
	if uint64(len(p)-headerLength) < uint64(extension) {
		return p, errPartial
	}
	return p[headerLength+int(extension):], nil
}

// tuple decodes the row at the beginning of p and returns its length.
func (d *Decoder) tuple(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, errPartial
	}
	switch n := int(int16(binary.BigEndian.Uint16(p))); n {
	case -1:
		d.trailer = true
		return 2, nil
	case len(d.cols):
	default:
		return 0, fmt.Errorf("binary COPY: a row of %d columns, want %d", n, len(d.cols))
	}
	at := 2
	for i, c := range d.cols {
		if n, ok := c.fast(p[at:]); ok {
			at += n
			continue
		}
		v, null, err := field(p, &at)
		if err != nil {
			d.unwind(i)
			return 0, err
		}
		if null {
			c.appendNull()
			continue
		}
		if err := c.append(v); err != nil {
			d.unwind(i)
			if !Refused(err) {
				return 0, fmt.Errorf("binary COPY: column %q of wire type %s: %w", d.schema.Columns.Field(i).Name, d.types[i].Form, err)
			}
			return d.reject(p, i, err)
		}
	}
	d.rows++
	d.total++
	d.wire += int64(at)
	return at, nil
}

// field returns the value at *at and moves on behind it.
func field(p []byte, at *int) (v []byte, null bool, err error) {
	if len(p)-*at < 4 {
		return nil, false, errPartial
	}
	size := binary.BigEndian.Uint32(p[*at:])
	*at += 4
	if size == nullLength {
		return nil, true, nil
	}
	if uint64(len(p)-*at) < uint64(size) {
		if size > 1<<30 {
			return nil, false, fmt.Errorf("binary COPY: a value of %d bytes", size)
		}
		return nil, false, errPartial
	}
	v = p[*at : *at+int(size)]
	*at += int(size)
	return v, false, nil
}

// unwind takes back the first n values of an unfinished row.
func (d *Decoder) unwind(n int) {
	for _, c := range d.cols[:n] {
		c.pop()
	}
}

// reject sets the row at the beginning of p aside. The row is decoded once more, into types that hold every value.
func (d *Decoder) reject(p []byte, col int, why error) (int, error) {
	lenient, err := d.lenient()
	if err != nil {
		return 0, err
	}
	at, err := lenient.tuple(p)
	if err != nil {
		return 0, err
	}
	b := &record.Batch{Schema: lenient.schema, Rows: lenient.take()}
	d.rejects = append(d.rejects, RejectOf(b, 0, d.schema.Columns.Field(col).Name, why))
	d.total++
	d.wire += int64(at)
	return at, nil
}

// lenient is a decoder of the same rows that refuses no value.
func (d *Decoder) lenient() (*Decoder, error) {
	fields := d.schema.Columns.Fields()
	for i := range fields {
		fields[i].Type = Lenient(fields[i].Type)
	}
	schema := *d.schema
	schema.Columns = arrow.NewSchema(fields, nil)
	o := d.opt
	o.CheckUTF8 = false
	return NewDecoder(&schema, d.types, o, nil)
}

// lenientInstant is the type whose values are instants where timestamps become text.
const lenientInstant = "timestamptz"

// Lenient returns the type of a column that holds every value of the server that a column of dt may refuse, as text where need be. A
// row that is set aside is shown in such columns.
func Lenient(dt arrow.DataType) arrow.DataType {
	t, err := record.TypeOf(dt)
	if err != nil {
		return dt
	}
	switch t.Kind { //nolint:exhaustive // all others hold every value already
	case record.Decimal:
		return record.NumericType()
	case record.Timestamp:
		if t.Zoned {
			return record.ForeignType("postgres", lenientInstant)
		}
		return record.ForeignType("postgres", "timestamp")
	case record.Interval:
		return record.ForeignType("postgres", "interval")
	case record.Date:
		return record.InfiniteDateType()
	case record.Array:
		return record.ArrayType(Lenient(t.Elem.Arrow), t.Rank)
	}
	return dt
}

// take returns the rows so far.
func (d *Decoder) take() arrow.RecordBatch {
	cols := make([]arrow.Array, len(d.cols))
	for i, c := range d.cols {
		cols[i] = array.MakeFromData(c.take())
	}
	rb := array.NewRecordBatch(d.schema.Columns, cols, int64(d.rows))
	d.rows, d.wire = 0, 0
	return rb
}

func (d *Decoder) flush() error {
	b := &record.Batch{Schema: d.schema, Size: d.wire, Rejects: d.rejects}
	b.Rows = d.take()
	d.rejects = nil
	return d.emit(b)
}

// Finish hands over the last rows. It is an error if the stream has not ended.
func (d *Decoder) Finish() error {
	if !d.trailer || len(d.rest) > 0 {
		return errors.New("binary COPY: the stream ends before its rows do")
	}
	if d.rows == 0 && len(d.rejects) == 0 {
		return nil
	}
	return d.flush()
}

// Rows returns how many rows were read so far, with those set aside.
func (d *Decoder) Rows() int64 { return d.total }

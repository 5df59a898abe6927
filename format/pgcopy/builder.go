package pgcopy

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// Builder collects the values of one column, as the server sends them, one by one: in binary or in text, in any mixture, with the same
// result. Values are decoded straight into the buffers that Arrow takes over. It is not safe for concurrent use.
type Builder struct{ c column }

// NewBuilder makes a builder for values of wire type t as values of dt; it is an error where there is no exact way. With checkUTF8 text
// that is not valid UTF-8 is refused: for servers that don't vouch for it.
func NewBuilder(t Type, dt arrow.DataType, checkUTF8 bool) (*Builder, error) {
	c, err := newColumn(t, dt, checkUTF8)
	if err != nil {
		return nil, err
	}
	return &Builder{c: *c}, nil
}

// Append adds a value in the form that the send function of the server's type makes. After an error nothing is added; see Refused. v is
// not kept.
func (b *Builder) Append(v []byte) error { return b.c.append(v) }

// AppendText is Append for the form that the output function makes under DateStyle ISO, IntervalStyle postgres, bytea_output hex and
// extra_float_digits of at least 1. Other forms are errors.
func (b *Builder) AppendText(v []byte) error { return b.c.appendText(v) }

// AppendNull adds a null.
func (b *Builder) AppendNull() { b.c.appendNull() }

// Pop takes back the last value; there must be one.
func (b *Builder) Pop() { b.c.pop() }

// Len returns the number of values.
func (b *Builder) Len() int { return b.c.n }

// Take returns the values and starts anew.
func (b *Builder) Take() arrow.Array { return array.MakeFromData(b.c.take()) }

// Refused reports whether err means that a column can't hold a value that is otherwise fine: the row is set aside. All other errors of
// Append and AppendText mean that the bytes are not what the server sends for the type.
func Refused(err error) bool {
	for _, refusal := range []error{errNotFinite, errDecimalFits, errTimestampRange, errInfinite, errInfiniteInterval, errUTF8} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// RejectOf is row i of b, set aside because of the value in the named column. The columns of b are of the types that Lenient gives.
func RejectOf(b *record.Batch, i int, column string, why error) record.Reject {
	return record.Reject{
		Dataset: b.Schema.Dataset,
		Key:     b.KeyJSON(i),
		Column:  column,
		Value:   shorten(string(record.AppendText(nil, b.Rows.Column(b.Schema.Column(column)), i))),
		Class:   "not_representable",
		Message: why.Error(),
		Raw:     b.RowJSON(i),
	}
}

package jsonl

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/format/internal/column"
	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/format/internal/literal"
	"github.com/leatdata/leat/record"
)

// target is a column under way.
type target struct {
	*column.Column

	name     string
	declared bool
	trial    array.Builder // of nested types: a value is tried there first, as a failed one spoils its builder
	slot     jsontext.Span
	turn     int64 // the look at a line that slot belongs to
}

func newTarget(f arrow.Field, declared bool) (*target, error) {
	c, err := column.New(f.Type)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", f.Name, err)
	}
	t := &target{Column: c, name: f.Name, declared: declared}
	if c.Type.Nested() {
		t.trial = array.NewBuilder(memory.DefaultAllocator, f.Type)
	}
	return t, nil
}

var errKind = errors.New("another kind of value")

// set appends the value of kind k that the bytes b are. Nothing is appended where it returns an error.
func (t *target) set(b []byte, k jsontext.Kind, scratch *[]byte) error {
	switch t.Kind {
	case column.Document:
		t.Bytes(b)
		return nil
	case column.Text:
		switch {
		case k == jsontext.Text || k == jsontext.Escaped:
			t.Bytes(jsontext.TextOf(b, k, scratch))
			return nil
		case t.declared:
			t.Bytes(b)
			return nil
		}
		return errKind
	case column.Bool:
		if k == jsontext.Truth {
			t.Bool(b[0] == 't')
			return nil
		}
		return errKind
	case column.Int64:
		if v, ok := literal.Int(b); ok && k == jsontext.Number {
			t.Int64(v)
			return nil
		}
	case column.Float64:
		if v, ok := literal.JSONFloat(b); ok && k == jsontext.Number {
			t.Float64(v)
			return nil
		}
	case column.Numeric:
		if k == jsontext.Number {
			return t.numeric(b)
		}
	case column.Date, column.Timestamp:
		if k == jsontext.Text && t.temporal(b[1:len(b)-1]) {
			return nil
		}
	default:
		return t.other(b)
	}
	if !t.declared {
		return errKind
	}
	one := array.NewBuilder(memory.DefaultAllocator, t.Type.Arrow)
	if err := record.ParseJSON(one, b); err != nil {
		return err
	}
	t.Copy(one.NewArray())
	return nil
}

func (t *target) numeric(b []byte) error {
	if literal.IsNumeric(b) {
		t.Bytes(b)
		return nil
	}
	s, err := record.CanonicalNumeric(string(b))
	if err != nil {
		return err
	}
	t.String(s)
	return nil
}

// temporal takes only what is printed again as the same text.
func (t *target) temporal(b []byte) bool {
	if t.Kind == column.Date {
		v, ok := literal.Date(b)
		if ok {
			t.Date(v)
		}
		return ok
	}
	v, zoned, ok := literal.Timestamp(b)
	if !ok || zoned != t.Type.Zoned || !literal.IsCanonicalTimestamp(b) {
		return false
	}
	t.Timestamp(v)
	return true
}

// other goes through package record.
func (t *target) other(b []byte) error {
	if t.trial != nil {
		if err := record.ParseJSON(t.trial, b); err != nil {
			t.trial = array.NewBuilder(memory.DefaultAllocator, t.Type.Arrow)
			return err
		}
		t.trial.NewArray().Release()
	}
	return record.ParseJSON(t.Builder(), b)
}

// maxShown is how much of a value messages show, in bytes.
const maxShown = 120

func shown(b []byte) string {
	if len(b) > maxShown {
		return string(b[:maxShown]) + "…"
	}
	return string(b)
}

// lateType is the type of a column whose first value comes late: the widest one of that value's kind.
func lateType(k jsontext.Kind) arrow.DataType {
	switch k {
	case jsontext.Truth:
		return arrow.FixedWidthTypes.Boolean
	case jsontext.Number:
		return record.NumericType()
	case jsontext.Text, jsontext.Escaped:
		return arrow.BinaryTypes.String
	default:
		return record.JSONType()
	}
}

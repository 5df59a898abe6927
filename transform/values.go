package transform

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// converter returns how to append value i of a column, which is not null, to a builder as the new value. It is asked once for each
// column of a batch, so that it may keep buffers.
type converter func(col int, arr arrow.Array, b array.Builder) func(i int) error

// change makes a plan that turns the values of some columns into values of another type. A row whose value can't be turned is set
// aside with the reason.
func change(in *record.Schema, to map[int]arrow.DataType, convert converter) *plan {
	out := *in
	fields := slices.Clone(in.Columns.Fields())
	for c, dt := range to {
		fields[c] = arrow.Field{Name: fields[c].Name, Type: dt, Nullable: fields[c].Nullable}
	}
	meta := in.Columns.Metadata()
	out.Columns = arrow.NewSchema(fields, &meta)
	ch := &changer{out: &out, to: to, convert: convert}
	return &plan{out: &out, apply: ch.apply}
}

type changer struct {
	out     *record.Schema
	to      map[int]arrow.DataType
	convert converter
}

func (ch *changer) apply(b *record.Batch) (*record.Batch, error) {
	c := *b
	c.Schema = ch.out
	bad := map[int]bool{}
	if b.Rows != nil {
		c.Rows = ch.columns(b.Rows, func(i, col int, err error) {
			if bad[i] {
				return
			}
			bad[i] = true
			c.Rejects = append(slices.Clip(c.Rejects), reject(b, i, col, err))
		})
	}
	if b.Old != nil { // an image before is only looked at for its key: what can't be turned is unknown
		c.Old = ch.columns(b.Old, func(int, int, error) {})
	}
	return c.Keep(func(i int) bool { return !bad[i] })
}

func (ch *changer) columns(rb arrow.RecordBatch, fail func(i, col int, err error)) arrow.RecordBatch {
	cols := slices.Clone(rb.Columns())
	for col, dt := range ch.to {
		bld := array.NewBuilder(memory.DefaultAllocator, dt)
		bld.Reserve(int(rb.NumRows()))
		value := ch.convert(col, rb.Column(col), bld)
		for i := range int(rb.NumRows()) {
			if cols[col].IsNull(i) {
				bld.AppendNull()
				continue
			}
			if err := value(i); err != nil {
				fail(i, col, err)
				bld.AppendNull()
			}
		}
		cols[col] = bld.NewArray()
	}
	return array.NewRecordBatch(ch.out.Columns, cols, rb.NumRows())
}

// maxShownValue bounds how much of a value a message shows, in bytes.
const maxShownValue = 80

func reject(b *record.Batch, i, col int, err error) record.Reject {
	r := b.Reject(i)
	r.Column, r.Class, r.Message = b.Rows.ColumnName(col), "bad_value", err.Error()
	if !b.Rows.Column(col).IsNull(i) {
		r.Value = shorten(string(record.AppendText(nil, b.Rows.Column(col), i)))
	}
	return r
}

func shorten(s string) string {
	if len(s) <= maxShownValue {
		return s
	}
	cut := maxShownValue
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// Cast turns columns into other types: column to the name of a type, see record.ParseType. Values go through their canonical text
// form; a number with nothing but zeros behind the point is a whole one; between dates and timestamps midnight is added or must be
// there, and a zone-less timestamp is taken as UTC. A value that the type can't hold exactly sets its row aside, except that floats
// round, as their type says.
func Cast(types map[string]string) (Step, error) {
	to := make(map[string]arrow.DataType, len(types))
	for col, name := range types {
		dt, err := record.ParseType(name)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", col, err)
		}
		to[col] = dt
	}
	return newPlanned(func(in *record.Schema) (*plan, error) {
		names := sortedKeys(to)
		at, err := indices(in, names)
		if err != nil {
			return nil, err
		}
		byIndex := make(map[int]arrow.DataType, len(at))
		kinds := make(map[int][2]record.Type, len(at))
		for i, c := range at {
			from, err := record.TypeOf(in.Columns.Field(c).Type)
			if err != nil {
				return nil, err
			}
			target, err := record.TypeOf(to[names[i]])
			if err != nil {
				return nil, err
			}
			byIndex[c], kinds[c] = to[names[i]], [2]record.Type{from, target}
		}
		return change(in, byIndex, func(col int, arr arrow.Array, b array.Builder) func(i int) error {
			return castTo(b, arr, kinds[col][0], kinds[col][1])
		}), nil
	}), nil
}

// castTo goes through the value's text, but for what the same can be had of directly: whole numbers, and text of anything.
func castTo(b array.Builder, arr arrow.Array, from, to record.Type) func(i int) error {
	var buf []byte
	if to.Nested() {
		return func(i int) error {
			if from.Nested() {
				buf = record.AppendJSON(buf[:0], arr, i)
				return whole(b, func(b array.Builder) error { return record.ParseJSON(b, buf) })
			}
			return whole(b, func(b array.Builder) error { return record.ParseText(b, string(record.AppendText(nil, arr, i))) })
		}
	}
	through := func(i int) error {
		buf = record.AppendText(buf[:0], arr, i)
		return record.ParseText(b, castText(string(buf), from, to))
	}
	if b, ok := b.(*array.StringBuilder); ok {
		return func(i int) error {
			if buf = record.AppendText(buf[:0], arr, i); !utf8.Valid(buf) {
				return record.ParseText(b, string(buf))
			}
			b.BinaryBuilder.Append(buf)
			return nil
		}
	}
	if number := wholeNumbers(arr); number != nil {
		return func(i int) error {
			if appendWhole(b, number(i)) {
				return nil
			}
			return through(i)
		}
	}
	return through
}

// whole appends a nested value, or nothing: a nested builder keeps the beginning of a value that failed, so that another one tries first.
func whole(b array.Builder, parse func(array.Builder) error) error {
	trial := array.NewBuilder(memory.DefaultAllocator, b.Type())
	defer trial.Release()
	if err := parse(trial); err != nil {
		return err
	}
	return parse(b)
}

// appendWhole appends a number that the builder's type has; false: that is for others to say.
func appendWhole(b array.Builder, n int64) bool {
	switch b := b.(type) {
	case *array.Int16Builder:
		if n == int64(int16(n)) {
			b.Append(int16(n))
			return true
		}
	case *array.Int32Builder:
		if n == int64(int32(n)) {
			b.Append(int32(n))
			return true
		}
	case *array.Int64Builder:
		b.Append(n)
		return true
	case *array.Float64Builder:
		if n <= exactWhole && n >= -exactWhole {
			b.Append(float64(n))
			return true
		}
	}
	return false
}

// castText adapts the text form where two types write the same moment differently.
func castText(s string, from, to record.Type) string {
	switch {
	case strings.HasSuffix(s, "infinity"):
		return s
	case to.Kind >= record.Int8 && to.Kind <= record.Uint64 && from.Kind >= record.Float32 && from.Kind <= record.Numeric:
		if whole, frac, ok := strings.Cut(s, "."); ok && strings.Trim(frac, "0") == "" {
			s = whole
		}
	case from.Kind == record.Date && to.Kind == record.Timestamp:
		s += "T00:00:00"
		if to.Zoned {
			s += "Z"
		}
	case from.Kind == record.Timestamp && to.Kind == record.Date:
		s = strings.TrimSuffix(strings.TrimSuffix(s, "Z"), "T00:00:00")
	case from.Kind == record.Timestamp && to.Kind == record.Timestamp && from.Zoned && !to.Zoned:
		s = strings.TrimSuffix(s, "Z")
	case to.Kind == record.Timestamp && to.Zoned && !from.Zoned && from.Kind == record.Timestamp:
		s += "Z"
	}
	return s
}

// Hash replaces values by the hex form of their HMAC-SHA256 under a key, so that equal values stay equal and nobody without the key
// can guess them. Nulls stay null.
func Hash(columns []string, key string) (Step, error) {
	if key == "" {
		return nil, errors.New("hash: a key is needed, or short values could be guessed by trying: key: ${env:HASH_KEY}")
	}
	return textStep(columns, func() func(dst, s []byte) []byte {
		mac := hmac.New(sha256.New, []byte(key))
		var sum []byte
		return func(dst, s []byte) []byte {
			mac.Reset()
			mac.Write(s)
			sum = mac.Sum(sum[:0])
			return hex.AppendEncode(dst, sum)
		}
	}), nil
}

// Mask replaces every character but the last keep ones with a star. Nulls stay null.
func Mask(columns []string, keep int) Step {
	return textStep(columns, func() func(dst, s []byte) []byte {
		return func(dst, s []byte) []byte {
			for left := utf8.RuneCount(s); left > 0; left-- {
				r, n := utf8.DecodeRune(s)
				if s = s[n:]; left > keep {
					r = '*'
				}
				dst = utf8.AppendRune(dst, r)
			}
			return dst
		}
	})
}

// textStep makes columns text: what f appends of their text. f is asked once for each column of a batch.
func textStep(columns []string, f func() func(dst, s []byte) []byte) Step {
	return newPlanned(func(in *record.Schema) (*plan, error) {
		at, err := indices(in, columns)
		if err != nil {
			return nil, err
		}
		to := make(map[int]arrow.DataType, len(at))
		for _, c := range at {
			to[c] = arrow.BinaryTypes.String
		}
		return change(in, to, func(_ int, arr arrow.Array, b array.Builder) func(i int) error {
			var buf, out []byte
			value := f()
			return func(i int) error {
				buf = record.AppendText(buf[:0], arr, i)
				out = value(out[:0], buf)
				b.(*array.StringBuilder).BinaryBuilder.Append(out) //nolint:forcetypeassert // the type is the one above
				return nil
			}
		}), nil
	})
}

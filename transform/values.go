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

// change makes a plan that turns the values of some columns into values of another type, through their text form. A row whose value
// can't be turned is set aside with the reason.
func change(in *record.Schema, to map[int]arrow.DataType, value func(col int, arr arrow.Array, i int, b array.Builder) error) *plan {
	out := *in
	fields := slices.Clone(in.Columns.Fields())
	for c, dt := range to {
		fields[c] = arrow.Field{Name: fields[c].Name, Type: dt, Nullable: fields[c].Nullable}
	}
	meta := in.Columns.Metadata()
	out.Columns = arrow.NewSchema(fields, &meta)
	ch := &changer{out: &out, to: to, value: value}
	return &plan{out: &out, apply: ch.apply}
}

type changer struct {
	out   *record.Schema
	to    map[int]arrow.DataType
	value func(col int, arr arrow.Array, i int, b array.Builder) error
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
		for i := range int(rb.NumRows()) {
			if cols[col].IsNull(i) {
				bld.AppendNull()
				continue
			}
			if err := ch.value(col, rb.Column(col), i, bld); err != nil {
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
		return change(in, byIndex, func(col int, arr arrow.Array, i int, b array.Builder) error {
			if kinds[col][1].Nested() && kinds[col][0].Nested() {
				return record.ParseJSON(b, record.AppendJSON(nil, arr, i))
			}
			return record.ParseText(b, castText(string(record.AppendText(nil, arr, i)), kinds[col][0], kinds[col][1]))
		}), nil
	}), nil
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
	return textStep(columns, func(s []byte) string {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write(s)
		return hex.EncodeToString(mac.Sum(nil))
	}), nil
}

// Mask replaces every character but the last keep ones with a star. Nulls stay null.
func Mask(columns []string, keep int) Step {
	return textStep(columns, func(s []byte) string {
		runes := []rune(string(s))
		for i := range max(0, len(runes)-keep) {
			runes[i] = '*'
		}
		return string(runes)
	})
}

func textStep(columns []string, f func([]byte) string) Step {
	return newPlanned(func(in *record.Schema) (*plan, error) {
		at, err := indices(in, columns)
		if err != nil {
			return nil, err
		}
		to := make(map[int]arrow.DataType, len(at))
		for _, c := range at {
			to[c] = arrow.BinaryTypes.String
		}
		return change(in, to, func(_ int, arr arrow.Array, i int, b array.Builder) error {
			return record.ParseText(b, f(record.AppendText(nil, arr, i)))
		}), nil
	})
}

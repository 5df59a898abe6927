package transform

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// Casts say and give what they do through text: all types to all types, at their limits. A value that fails leaves nothing behind.
func TestCastIsThroughText(t *testing.T) {
	limits := connectortest.Case{Name: "limits", Type: arrow.PrimitiveTypes.Int64}
	for _, n := range []int64{
		0, -1, math.MaxInt16, math.MaxInt16 + 1, math.MinInt16, math.MinInt16 - 1, math.MaxInt32, math.MaxInt32 + 1, math.MinInt32,
		math.MinInt32 - 1, exactWhole, exactWhole + 1, -exactWhole, -exactWhole - 1, math.MaxInt64, math.MinInt64,
	} {
		limits.Values = append(limits.Values, strconv.FormatInt(n, 10))
	}
	cases := append(connectortest.Cases(), limits)
	for _, from := range cases {
		arr := connectortest.Batch("t", from).Rows.Column(1)
		for _, to := range cases {
			a, b := kind(t, from.Type), kind(t, to.Type)
			fast := array.NewBuilder(memory.DefaultAllocator, to.Type)
			slow := array.NewBuilder(memory.DefaultAllocator, to.Type)
			cast := castTo(fast, arr, a, b)
			for i := range arr.Len() {
				if arr.IsNull(i) {
					continue
				}
				trial := array.NewBuilder(memory.DefaultAllocator, to.Type)
				parse := func(on array.Builder) error {
					if a.Nested() && b.Nested() {
						return record.ParseJSON(on, record.AppendJSON(nil, arr, i))
					}
					return record.ParseText(on, castText(string(record.AppendText(nil, arr, i)), a, b))
				}
				want := said(parse(trial))
				if got := said(cast(i)); got != want {
					t.Errorf("%s to %s, %s: %q, want %q", from.Name, to.Name, record.AppendText(nil, arr, i), got, want)
				}
				if want != "" { // as the step does
					fast.AppendNull()
					slow.AppendNull()
				} else if err := parse(slow); err != nil {
					t.Fatal(err)
				}
			}
			got, want := fast.NewArray(), slow.NewArray()
			if got.Len() != want.Len() {
				t.Fatalf("%s to %s: %d values, want %d", from.Name, to.Name, got.Len(), want.Len())
			}
			for i := range got.Len() {
				if g, w := string(record.AppendJSON(nil, got, i)), string(record.AppendJSON(nil, want, i)); g != w {
					t.Errorf("%s to %s: %s, want %s", from.Name, to.Name, g, w)
				}
			}
		}
	}
}

func kind(t *testing.T, dt arrow.DataType) record.Type {
	t.Helper()
	out, err := record.TypeOf(dt)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Expressions see what the text of a value says, of all types.
func TestValuesAreTheirText(t *testing.T) {
	for _, c := range connectortest.Cases() {
		arr := connectortest.Batch("t", c).Rows.Column(1)
		value := valuesOf(arr)
		for i := range arr.Len() {
			got := value(i)
			if arr.IsNull(i) {
				if got != nil {
					t.Errorf("%s: a null is %v", c.Name, got)
				}
				continue
			}
			text := string(record.AppendText(nil, arr, i))
			var want any = text
			switch zeroOf(kind(t, c.Type)).(type) {
			case bool:
				want = text == "true"
			case int64:
				want, _ = strconv.ParseInt(text, 10, 64)
			case float64:
				want = number(arr, i)
			}
			nan := got != got && want != want // only NaN differs from itself
			if got != want && !nan {
				t.Errorf("%s: %#v, want %#v", c.Name, got, want)
			}
		}
	}
}

func TestDecimalIsItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := rapid.Int32Range(-3, 30).Draw(t, "scale")
		b := array.NewDecimal128Builder(memory.DefaultAllocator, &arrow.Decimal128Type{Precision: 38, Scale: scale})
		n := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-exactWhole-3, exactWhole+3), rapid.Int64Range(-10000, 10000)).Draw(t, "n")
		v := decimal128.FromI64(n)
		if rapid.Bool().Draw(t, "large") {
			v = decimal128.New(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "high"), uint64(n))
		}
		b.Append(v)
		arr := b.NewDecimal128Array()
		if got, want := decimal(arr, 0), number(arr, 0); got != want || math.Signbit(got) != math.Signbit(want) {
			t.Fatalf("%v, want %v for %s", got, want, record.AppendText(nil, arr, 0))
		}
	})
}

func TestMaskHidesCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, keep := rapid.String().Draw(t, "text"), rapid.IntRange(-1, 5).Draw(t, "keep")
		b := array.NewStringBuilder(memory.DefaultAllocator)
		b.Append(s)
		fields := arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.BinaryTypes.String}}, nil)
		in := &record.Batch{Schema: &record.Schema{Columns: fields}, Rows: array.NewRecordBatch(fields, []arrow.Array{b.NewArray()}, 1)}
		out, err := Mask([]string{"v"}, keep).Apply(in)
		if err != nil {
			t.Fatal(err)
		}
		n := utf8.RuneCountInString(s)
		want := strings.Repeat("*", min(max(0, n-keep), n)) + string([]rune(s)[min(max(0, n-keep), n):])
		if got := string(record.AppendText(nil, out.Rows.Column(0), 0)); got != want {
			t.Fatalf("%q of %q, want %q", got, s, want)
		}
	})
}

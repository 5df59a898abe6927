package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// batchWith is a batch of a key and one column of JSON values.
func batchWith(t *testing.T, typ arrow.DataType, values ...string) *record.Batch {
	t.Helper()
	s := &record.Schema{Dataset: "d", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "v", Type: typ},
	}, nil)}
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	for i, v := range values {
		if err := record.ParseJSON(b.Field(0), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		if err := record.ParseJSON(b.Field(1), []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	return &record.Batch{Schema: s, Rows: b.NewRecordBatch()}
}

func fitOf(t *testing.T, s *record.Schema, l connector.Limits, p connector.Policy) *fitter {
	t.Helper()
	ms := []connector.Mapping{{Column: "id"}, {Column: "v", Limits: l}}
	f, err := newFitter(s, nil, ms, []connector.Policy{0, p})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Every limit on every kind: what does not fit is refused with a reason, and all else passes untouched.
//
// cases C001, C002, C025, C026.
func TestLimits(t *testing.T) {
	micros := func(unit arrow.TimeUnit) arrow.DataType { return &arrow.TimestampType{Unit: unit, TimeZone: "UTC"} }
	ints := record.ArrayType(arrow.PrimitiveTypes.Int32, 1)
	cases := []struct {
		name   string
		typ    arrow.DataType
		limits connector.Limits
		values []string
		bad    []int
	}{
		{"float NaN", arrow.PrimitiveTypes.Float64, connector.Limits{NoNaN: true}, []string{"1.5", `"NaN"`, `"Infinity"`, "null"}, []int{1}},
		{"float infinity", arrow.PrimitiveTypes.Float32, connector.Limits{NoInfinity: true}, []string{`"-Infinity"`, `"NaN"`, "0"}, []int{0}},
		{"numeric NaN", record.NumericType(), connector.Limits{NoNaN: true, NoInfinity: true}, []string{`"NaN"`, "0.0", `"Infinity"`, `"-Infinity"`}, []int{0, 2, 3}},
		{
			"numeric digits", record.NumericType(),
			connector.Limits{Precision: 5, Scale: 2},
			[]string{"8", "12.125", "999.99", "1000", "-999.99", "0.00000000000000000000000417", "7.500000"},
			[]int{1, 3, 5},
		},
		{
			"decimal digits", &arrow.Decimal128Type{Precision: 38, Scale: 10},
			connector.Limits{Precision: 6, Scale: 4},
			[]string{"1.0000000000", "1.0000100000", "99.9999000000", "100.0000000000"},
			[]int{1, 3},
		},
		{"int range", arrow.PrimitiveTypes.Int64, connector.Limits{Min: -5, Max: 5}, []string{"-6", "-5", "5", "6", "null"}, []int{0, 3}},
		{
			"uint beyond int64", arrow.PrimitiveTypes.Uint64,
			connector.Limits{Min: 0, Max: math.MaxInt64},
			[]string{"9223372036854775807", "9223372036854775808", "18446744073709551615"},
			[]int{1, 2},
		},
		{"uint8 range", arrow.PrimitiveTypes.Uint8, connector.Limits{Min: 0, Max: 127}, []string{"127", "128"}, []int{1}},
		{"NUL in text", arrow.BinaryTypes.String, connector.Limits{NoNUL: true}, []string{`"ab"`, `"ab\u0000cd"`, `""`}, []int{1}},
		{"no NUL in text", arrow.BinaryTypes.String, connector.Limits{NoNUL: true}, []string{`"ab"`, "null"}, nil},
		{
			"NUL in JSON", record.JSONType(),
			connector.Limits{NoNUL: true},
			[]string{`{"t":"x\u0000y"}`, `{"t":"x\\u0000y"}`, `{"t":"x\\\u0000y"}`, `{}`},
			[]int{0, 2},
		},
		{"characters", arrow.BinaryTypes.String, connector.Limits{MaxChars: 3}, []string{`"abc"`, `"äöü"`, `"abcd"`}, []int{2}},
		{"labels", record.EnumType("e", nil), connector.Limits{Labels: []string{"a", "b"}}, []string{`"a"`, `"c"`}, []int{1}},
		{"dates", record.InfiniteDateType(), connector.Limits{NoInfinity: true}, []string{`"infinity"`, `"2020-01-01"`, `"-infinity"`}, []int{0, 2}},
		{"date range", arrow.FixedWidthTypes.Date32, connector.Limits{Min: 0, Max: 10}, []string{`"1969-12-31"`, `"1970-01-11"`, `"1970-01-12"`}, []int{0, 2}},
		{
			"infinite outside of a range passes where infinity does", record.InfiniteTimestampType(true),
			connector.Limits{Min: 0, Max: 1_000_000},
			[]string{`"infinity"`, `"1970-01-01T00:00:01Z"`, `"1970-01-01T00:00:02Z"`},
			[]int{2},
		},
		{
			"nanoseconds", micros(arrow.Nanosecond),
			connector.Limits{MicrosOnly: true},
			[]string{`"2020-01-01T00:00:00.000001Z"`, `"2020-01-01T00:00:00.000000001Z"`},
			[]int{1},
		},
		{"seconds in range", micros(arrow.Second), connector.Limits{Min: 0, Max: 5_000_000}, []string{`"1970-01-01T00:00:05Z"`, `"1970-01-01T00:00:06Z"`}, []int{1}},
		{"array rank", ints, connector.Limits{Rank: 1}, []string{`[]`, `[1]`, `[[1,2],[3,4]]`}, []int{2}},
		{"array max rank", ints, connector.Limits{MaxRank: 2}, []string{`[[1]]`, `[[[1]]]`}, []int{1}},
		{"array bounds", ints, connector.Limits{LowerBounds: true}, []string{`[7]`, `{"lower":[0],"values":[7,8]}`}, []int{1}},
		{
			"inside of arrays", record.ArrayType(arrow.PrimitiveTypes.Float64, 1),
			connector.Limits{NoNaN: true},
			[]string{`[1,null]`, `[1,"NaN","NaN"]`, `[2]`},
			[]int{1},
		},
		{"inside of lists", arrow.ListOf(arrow.BinaryTypes.String), connector.Limits{NoNUL: true}, []string{`["a"]`, `["a","\u0000"]`}, []int{1}},
		{
			"inside of structs", arrow.StructOf(arrow.Field{Name: "f", Type: arrow.PrimitiveTypes.Int8, Nullable: true}),
			connector.Limits{Min: 0, Max: 9},
			[]string{`{"f":3}`, `{"f":10}`, `{"f":null}`},
			[]int{1},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			whole := batchWith(t, c.typ, c.values...)
			before := rowsOf(whole)
			f := fitOf(t, whole.Schema, c.limits, connector.PolicyFail)
			fit, err := f.apply(whole)
			out, rejects := fit.batch, fit.rejects
			if err != nil || fit.altered != 0 {
				t.Fatal(err)
			}
			var want []string
			var bad []int
			for i, r := range before {
				if !slices.Contains(c.bad, i) {
					want = append(want, r)
				}
			}
			for _, r := range rejects {
				var i int
				if _, err := fmt.Sscanf(string(r.Key), `{"id":%d}`, &i); err != nil {
					t.Fatal(err)
				}
				bad = append(bad, i)
				if r.Dataset != "d" || r.Column != "v" || r.Message == "" || r.Class != "not_representable" || string(r.Raw) != before[i] {
					t.Fatalf("%+v", r)
				}
			}
			if !slices.Equal(bad, c.bad) || !slices.Equal(rowsOf(out), want) || !slices.Equal(rowsOf(whole), before) {
				t.Fatalf("refused %v, want %v; kept %v", bad, c.bad, rowsOf(out))
			}
			// A window on longer arrays gives the same.
			sliced := *whole
			sliced.Rows = whole.Rows.NewSlice(1, whole.Rows.NumRows())
			fit, err = f.apply(&sliced)
			inWindow := 0
			for _, i := range c.bad {
				if i > 0 {
					inWindow++
				}
			}
			if err != nil || len(fit.rejects) != inWindow {
				t.Fatalf("sliced: %v, %d refused, want %d", err, len(fit.rejects), inWindow)
			}
		})
	}
}

func rowsOf(b *record.Batch) []string {
	var out []string
	for i := range b.NumRows() {
		out = append(out, string(b.RowJSON(i)))
	}
	return out
}

// The policies change exactly the values that don't fit, and count them; one that can't help leaves the row refused.
//
// cases C001, C025.
func TestPolicies(t *testing.T) {
	cases := []struct {
		name    string
		typ     arrow.DataType
		limits  connector.Limits
		policy  connector.Policy
		values  string
		want    string
		altered int64
		refused int
	}{
		{"null", arrow.PrimitiveTypes.Float64, connector.Limits{NoNaN: true}, connector.PolicyNull, `1 "NaN" 2 "NaN"`, `1 null 2 null`, 2, 0},
		{"null for arrays", record.ArrayType(arrow.PrimitiveTypes.Int32, 1), connector.Limits{Rank: 1}, connector.PolicyNull, `[1] [[1]]`, `[1] null`, 1, 0},
		{"strip", arrow.BinaryTypes.String, connector.Limits{NoNUL: true}, connector.PolicyStrip, `"a\u0000b" "c"`, `"ab" "c"`, 1, 0},
		{"strip JSON", record.JSONType(), connector.Limits{NoNUL: true}, connector.PolicyStrip, `{"t":"x\u0000\\u0000"}`, `{"t":"x\\u0000"}`, 1, 0},
		{"clamp ints", arrow.PrimitiveTypes.Int64, connector.Limits{Min: -5, Max: 5}, connector.PolicyClamp, `-9 0 9`, `-5 0 5`, 2, 0},
		{"clamp uint", arrow.PrimitiveTypes.Uint64, connector.Limits{Min: 0, Max: 100}, connector.PolicyClamp, `18446744073709551615`, `100`, 1, 0},
		{"clamp numerics", record.NumericType(), connector.Limits{Precision: 4, Scale: 2, NoNaN: true, NoInfinity: true}, connector.PolicyClamp, `1.125 -1.125 1e9 "-Infinity" "NaN"`, `1.13 -1.13 99.99 -99.99`, 4, 1},
		{"clamp floats", arrow.PrimitiveTypes.Float64, connector.Limits{NoInfinity: true, NoNaN: true}, connector.PolicyClamp, `"Infinity" "NaN"`, `1.7976931348623157e+308`, 1, 1},
		{"clamp dates", arrow.FixedWidthTypes.Date32, connector.Limits{Min: 0, Max: 1}, connector.PolicyClamp, `"1960-01-01" "2020-01-01" "1970-01-01"`, `"1970-01-01" "1970-01-02" "1970-01-01"`, 2, 0},
		{"clamp infinite dates", record.InfiniteDateType(), connector.Limits{NoInfinity: true, Min: -1, Max: 1}, connector.PolicyClamp, `"-infinity" "infinity"`, `"1969-12-31" "1970-01-02"`, 2, 0},
		{"clamp text", arrow.BinaryTypes.String, connector.Limits{MaxChars: 2}, connector.PolicyClamp, `"äöü"`, `"äö"`, 1, 0},
		{"clamp can't help", arrow.BinaryTypes.String, connector.Limits{NoNUL: true}, connector.PolicyClamp, `"\u0000" "a"`, `"a"`, 0, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := batchWith(t, c.typ, strings.Fields(c.values)...)
			fit, err := fitOf(t, b.Schema, c.limits, c.policy).apply(b)
			if err != nil {
				t.Fatal(err)
			}
			out, rejects, altered := fit.batch, fit.rejects, fit.altered
			var got []string
			for i := range out.NumRows() {
				got = append(got, string(record.AppendJSON(nil, out.Rows.Column(1), i)))
			}
			if strings.Join(got, " ") != c.want || altered != c.altered || len(rejects) != c.refused {
				t.Fatalf("got %s, altered %d, refused %v", got, altered, rejects)
			}
			if !out.Rows.Schema().Equal(out.Schema.Columns) {
				t.Fatal("rows and schema differ")
			}
		})
	}
}

// Of a deleted row only the key counts, and values that the source did not send don't.
func TestFitOfChanges(t *testing.T) {
	b := batchWith(t, arrow.PrimitiveTypes.Float64, `"NaN"`, `"NaN"`, `"NaN"`)
	b.Ops = []record.Op{record.Delete, record.Update, record.Update}
	b.Unchanged = map[int][]uint64{1: {1 << 1}}
	fit, err := fitOf(t, b.Schema, connector.Limits{NoNaN: true}, connector.PolicyFail).apply(b)
	if err != nil || len(fit.rejects) != 1 || string(fit.rejects[0].Key) != `{"id":2}` {
		t.Fatalf("%v %v", err, fit.rejects)
	}
}

// A column that becomes text keeps every value in its canonical form; what does not fit as text is refused as such.
//
// cases C001, C002.
func TestTextPolicy(t *testing.T) {
	b := batchWith(t, record.NumericType(), `"NaN"`, "98765432109876543210987654321098765432109.5", "null")
	old := *b
	b.Old = old.Rows
	inexact := connector.Mapping{
		Column: "v", Native: "decimal(38,9)", Fidelity: connector.Inexact, Why: "more digits", Policies: []connector.Policy{connector.PolicyText},
	}
	asked := 0
	ask := func(_ context.Context, s *record.Schema) ([]connector.Mapping, error) {
		asked++
		if s.Columns.Field(1).Type.ID() == arrow.STRING {
			return []connector.Mapping{{Column: "v", Native: "varchar", Fidelity: connector.Checked, Limits: connector.Limits{MaxChars: 10}}}, nil
		}
		return []connector.Mapping{inexact}, nil
	}
	offer := SinkOffer{Name: "s", Contract: connector.SinkContract{Modes: modes}}
	_, ps, err := newLayout(t.Context(), SinkSpec{Name: "s"}, offer, b.Schema, ask)
	if err != nil || len(ps) != 1 || !strings.Contains(ps[0].Message, "more digits") || !strings.Contains(ps[0].Hint, "v=text") {
		t.Fatalf("%v %v", ps, err)
	}
	for _, key := range []string{"v", "d.v", "*"} {
		l, ps, err := newLayout(t.Context(), SinkSpec{Name: "s", Policies: map[string]connector.Policy{key: connector.PolicyText}}, offer, b.Schema, ask)
		if err != nil || len(ps) > 0 {
			t.Fatalf("%s: %v %v", key, ps, err)
		}
		fit, err := l.fit.apply(b)
		out := fit.batch
		if err != nil || len(fit.rejects) != 1 || out.NumRows() != 2 || out.Old.NumRows() != 2 {
			t.Fatalf("%v %v", err, fit.rejects)
		}
		if got := rowsOf(out)[0]; got != `{"id":0,"v":"NaN"}` || l.report.Columns[1].Policy != connector.PolicyText {
			t.Fatal(got)
		}
	}
	if asked != 7 {
		t.Fatalf("asked %d times", asked)
	}
	if _, ps, _ := newLayout(t.Context(), SinkSpec{Name: "s", Policies: map[string]connector.Policy{"v": connector.PolicyClamp}}, offer, b.Schema, ask); len(ps) != 1 {
		t.Fatalf("a policy that does not help: %v", ps)
	}
}

// A batch without limits passes as it is, and one with limits that all values keep costs no copy.
func BenchmarkFit(b *testing.B) {
	s := &record.Schema{Dataset: "d", Columns: arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Float64}, {Name: "s", Type: arrow.BinaryTypes.String},
	}, nil)}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	for i := range 8192 {
		rb.Field(0).(*array.Float64Builder).Append(float64(i))          //nolint:forcetypeassert // by construction
		rb.Field(1).(*array.StringBuilder).Append("some text of a row") //nolint:forcetypeassert // by construction
	}
	batch := &record.Batch{Schema: s, Rows: rb.NewRecordBatch()}
	f, err := newFitter(s, nil, []connector.Mapping{{Limits: connector.Limits{NoNaN: true}}, {Limits: connector.Limits{NoNUL: true}}}, make([]connector.Policy, 2))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.apply(batch); err != nil {
			b.Fatal(err)
		}
	}
}

// The image before is what the row was written as: a policy treats both alike, so that a dataset without a key finds its rows again.
//
// case C034.
func TestPoliciesOnOldImages(t *testing.T) {
	b := batchWith(t, arrow.BinaryTypes.String, `"new\u0000"`, `"gone\u0000"`)
	keyless := *b.Schema
	keyless.Key = nil
	b.Schema = &keyless
	b.Ops = []record.Op{record.Update, record.Delete}
	b.Old = batchWith(t, arrow.BinaryTypes.String, `"old\u0000"`, `null`).Rows
	got, err := fitOf(t, b.Schema, connector.Limits{NoNUL: true}, connector.PolicyStrip).apply(b)
	if err != nil || len(got.rejects) > 0 {
		t.Fatal(err, got.rejects)
	}
	text := func(rb arrow.RecordBatch, i int) string { return string(record.AppendText(nil, rb.Column(1), i)) }
	if now, gone, before := text(got.batch.Rows, 0), text(got.batch.Rows, 1), text(got.batch.Old, 0); now != "new" || gone != "gone" || before != "old" {
		t.Errorf("now %q, gone %q, before %q", now, gone, before)
	}
}

// Changes say by their own key which row they mean: another key is refused. Without a key, rows are told apart by their images before: upserts
// and deletes by key have none.
func TestKeyOfChanges(t *testing.T) {
	in := batchWith(t, arrow.BinaryTypes.String, `"a"`).Schema
	keyless := *in
	keyless.Key = nil
	for input, byImage := range map[connector.Input]int{connector.Changelog: 0, connector.Keyed: 1} {
		offer := SinkOffer{Mode: connector.Upsert, Input: input, Contract: connector.SinkContract{NeedsKey: true, Keyless: true}}
		if _, ps := withKey(SinkSpec{Key: []string{"v"}}, offer, in, in); len(ps) != 1 {
			t.Errorf("another key: %v", ps)
		}
		if _, ps := withKey(SinkSpec{Key: []string{"id"}}, offer, in, in); len(ps) != 0 {
			t.Errorf("the same key: %v", ps)
		}
		if _, ps := withKey(SinkSpec{}, offer, &keyless, &keyless); len(ps) != byImage {
			t.Errorf("no key: %v", ps)
		}
	}
}

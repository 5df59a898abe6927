package record_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/record"
)

// one makes an array of one value.
func one[B array.Builder](dt arrow.DataType, add func(B)) arrow.Array {
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	add(b.(B)) //nolint:forcetypeassert // the caller knows the type
	return b.NewArray()
}

func float(f float64) arrow.Array {
	return one(arrow.PrimitiveTypes.Float64, func(b *array.Float64Builder) { b.Append(f) })
}

func stored[B array.Builder](dt arrow.DataType, add func(B)) arrow.Array {
	return one(dt, func(b array.Builder) {
		add(b.(interface{ StorageBuilder() array.Builder }).StorageBuilder().(B)) //nolint:forcetypeassert // the caller knows the type
	})
}

func date(days int32) arrow.Array {
	return stored(record.InfiniteDateType(), func(b *array.Date32Builder) { b.Append(arrow.Date32(days)) })
}

func instant(v int64) arrow.Array {
	return stored(record.InfiniteTimestampType(true), func(b *array.TimestampBuilder) { b.Append(arrow.Timestamp(v)) })
}

func interval(months, days int32, micros int64) arrow.Array {
	return stored(record.IntervalType(), func(b *array.FixedSizeBinaryBuilder) {
		b.Append(record.IntervalValue{Months: months, Days: days, Micros: micros}.Bytes())
	})
}

func parsed(dt arrow.DataType, text string) arrow.Array {
	return one(dt, func(b array.Builder) {
		if err := record.ParseText(b, text); err != nil {
			panic(err)
		}
	})
}

func decimal(unscaled int64, precision, scale int32) arrow.Array {
	return one(&arrow.Decimal128Type{Precision: precision, Scale: scale}, func(b *array.Decimal128Builder) {
		b.Append(decimal128.FromI64(unscaled))
	})
}

// cases C002, C004, C010, C011, C012, C016: the one text form, and the one JSON form, written out.
func TestCanonicalForms(t *testing.T) {
	tiny := "0.00000000000000000000000417"
	wide := "98765432109876543210987654321098765432109.5"
	for _, c := range []struct {
		arr        arrow.Array
		text, json string // json empty: the text; ": the text in quotes
	}{
		{float(1790), "1790", ""},
		{float(1e6), "1000000", ""},
		{float(0.0000001), "0.0000001", ""},
		{float(1e20), "100000000000000000000", ""},
		{float(1e21), "1e+21", ""},
		{float(5e-324), "5e-324", ""},
		{float(math.MaxFloat64), "1.7976931348623157e+308", ""},
		{float(math.Copysign(0, -1)), "-0", ""},
		{float(math.NaN()), "NaN", `"`},
		{float(math.Inf(-1)), "-Infinity", `"`},
		{parsed(record.NumericType(), tiny), tiny, ""},
		{parsed(record.NumericType(), wide), wide, ""},
		{parsed(record.NumericType(), "1e6"), "1000000", ""},
		{parsed(record.NumericType(), "12.125e-4"), "0.0012125", ""},
		{parsed(record.NumericType(), "+007.10"), "7.10", ""},
		{parsed(record.NumericType(), "-0.00"), "0.00", ""},
		{parsed(record.NumericType(), "nan"), "NaN", `"`},
		{decimal(-2560000, 20, 4), "-256.0000", ""},
		{decimal(-655360000, 20, 4), "-65536.0000", ""},
		{decimal(-1, 20, 4), "-0.0001", ""},
		{decimal(0, 20, 4), "0.0000", ""},
		{decimal(-17, 5, -3), "-17000", ""},
		{date(0), "1970-01-01", `"`},
		{date(-735160), "-0043-03-15", `"`}, // the ides of March, 44 BC
		{date(4759474), "+15000-12-31", `"`},
		{date(math.MaxInt32), "infinity", `"`},
		{date(math.MinInt32), "-infinity", `"`},
		{instant(-1), "1969-12-31T23:59:59.999999Z", `"`},
		{instant(math.MinInt64), "-infinity", `"`},
		{interval(1, -1, 1), "P1M-1DT0.000001S", `"`},
		{interval(-13, 0, 0), "P-1Y-1M", `"`},
		{interval(0, math.MaxInt32, 0), "P2147483647D", `"`},
		{interval(0, 0, -1), "PT-0.000001S", `"`},
		{interval(0, 0, 0), "PT0S", `"`},
		{interval(0, 0, -3_661_500_000), "PT-1H-1M-1.5S", `"`},
		{parsed(arrow.BinaryTypes.Binary, `\x00ff`), `\x00ff`, `"AP8="`},
		{parsed(record.UUIDType(), "01234567-89AB-cdef-0123-456789abcdef"), "01234567-89ab-cdef-0123-456789abcdef", `"`},
		{parsed(record.JSONType(), ` {"a" :1}`), ` {"a" :1}`, ""},
	} {
		want := c.json
		switch want {
		case "":
			want = c.text
		case `"`:
			want = `"` + c.text + `"`
		}
		if got := string(record.AppendText(nil, c.arr, 0)); got != c.text {
			t.Errorf("%s: text %s, want %s", c.arr.DataType(), got, c.text)
		}
		if got := string(record.AppendJSON(nil, c.arr, 0)); got != want {
			t.Errorf("%s: JSON %s, want %s", c.arr.DataType(), got, want)
		}
	}
}

// case C012: dates are those of the calendar, as the time package computes it.
func TestDatesAgreeWithTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		days := rapid.Int64Range(-4_000_000, 60_000_000).Draw(t, "days")
		at := time.Unix(days*86_400, 0).UTC()
		want := at.Format("2006-01-02")
		switch y := at.Year(); {
		case y < 0:
			want = fmt.Sprintf("-%04d%s", -y, at.Format("-01-02"))
		case y > 9999:
			want = fmt.Sprintf("+%d%s", y, at.Format("-01-02"))
		}
		if got := string(record.AppendDate(nil, days)); got != want {
			t.Fatalf("day %d is %s, want %s", days, got, want)
		}
		if back, err := record.ParseDate(want); err != nil || back != days {
			t.Fatalf("%s is day %d, %v, want %d", want, back, err, days)
		}
	})
}

// case C002: a decimal's text is the number, whatever its sign and scale.
func TestDecimalsAreTheNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		precision := rapid.Int32Range(1, 38).Draw(t, "precision")
		scale := rapid.Int32Range(-10, precision).Draw(t, "scale")
		n := unscaled(t, precision)
		arr := one(&arrow.Decimal128Type{Precision: precision, Scale: scale}, func(b *array.Decimal128Builder) {
			b.Append(decimal128.FromBigInt(n))
		})
		text := string(record.AppendText(nil, arr, 0))
		got, ok := new(big.Rat).SetString(text)
		want := new(big.Rat).SetInt(n)
		power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale, -scale))), nil))
		if scale >= 0 {
			want.Quo(want, power)
		} else {
			want.Mul(want, power)
		}
		if !ok || got.Cmp(want) != 0 {
			t.Fatalf("%s at scale %d is %s", n, scale, text)
		}
		if strings.ContainsAny(text, "eE+") {
			t.Fatalf("not plain digits: %s", text)
		}
	})
}

// Zones of timestamps: an instant is the same whatever zone it is written in.
func TestTimestampZones(t *testing.T) {
	for text, want := range map[string]string{
		"2024-03-30 23:30:00+02":          "2024-03-30T21:30:00Z",
		"2024-03-30T23:30:00+0530":        "2024-03-30T18:00:00Z",
		"2024-03-30T23:30:00.25-05:30":    "2024-03-31T05:00:00.25Z",
		"1900-01-01T00:00:00+00:53:28":    "1899-12-31T23:06:32Z",
		"0044-03-15 12:00:00+00 BC":       "-0043-03-15T12:00:00Z",
		"2024-02-29T24:00:00Z":            "2024-03-01T00:00:00Z",
		"-290308-12-21T19:59:05.224193Z":  "-290308-12-21T19:59:05.224193Z",
		"+294247-01-10T04:00:54.775806Z":  "+294247-01-10T04:00:54.775806Z",
		"-290308-12-21T20:59:05.224193+1": "",
	} {
		b := array.NewBuilder(memory.DefaultAllocator, record.InfiniteTimestampType(true))
		err := record.ParseText(b, text)
		if want == "" {
			if err == nil {
				t.Errorf("%s was read", text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := string(record.AppendText(nil, b.NewArray(), 0)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// cases C002, C011, C012: text that is no value of the type, or none that it holds exactly, is refused and appends nothing.
func TestParseTextRejects(t *testing.T) {
	d := func(p, s int32) arrow.DataType { return &arrow.Decimal128Type{Precision: p, Scale: s} }
	for _, c := range []struct {
		dt    arrow.DataType
		texts []string
	}{
		{arrow.FixedWidthTypes.Boolean, []string{"", "yes", "1", "TRUE "}},
		{arrow.PrimitiveTypes.Int8, []string{"", "128", "-129", "1.0", "1e1", "0x1", "1_0", " 1", "١"}},
		{arrow.PrimitiveTypes.Int64, []string{"9223372036854775808", "1.79E+3", "NaN"}},
		{arrow.PrimitiveTypes.Uint64, []string{"-1", "18446744073709551616"}},
		{arrow.PrimitiveTypes.Float32, []string{"1e39", "1e-60", "x"}},
		{arrow.PrimitiveTypes.Float64, []string{"", "1e309", "-0.001e-400", "0x1p4", "1_0", "1,5", "1.2.3"}},
		{d(5, 2), []string{"1000", "0.001", "1e3", "NaN", "Infinity", "", ".", "1.005"}},
		{d(5, -3), []string{"1", "1500", "NaN", "Infinity", "100000000"}},
		{d(2, 5), []string{"0.001", "1"}},
		{&arrow.Decimal256Type{Precision: 76, Scale: 0}, []string{"1" + strings.Repeat("0", 76), "0.5"}},
		{record.NumericType(), []string{"", "-", ".", "1e", "1e999999999", "--1", "1 ", "0x1", "1.2.3", "infinitely", "1e1e1"}},
		{arrow.BinaryTypes.String, []string{"\xff", "a\xc0\x80"}},
		{arrow.BinaryTypes.Binary, []string{"", "00", `\x0`, `\xzz`}},
		{&arrow.FixedSizeBinaryType{ByteWidth: 2}, []string{`\x00`, `\x000000`}},
		{arrow.FixedWidthTypes.Date32, []string{
			"", "infinity", "2023-02-29", "2023-13-01", "2023-00-01", "2023-01-00", "23-01-01", "2023-1-1", "2023-01-01T00:00:00",
			"0000-01-01 BC", "-0001-01-01 BC", "02023-01-01", "+5881580-07-12", "-5877641-06-22", "9999999-01-01", "2023-01-0x",
		}},
		{record.InfiniteDateType(), []string{"+5881580-07-11", "-5877641-06-23", "Infinity", "inf"}},
		{arrow.FixedWidthTypes.Time64us, []string{
			"", "1:00:00", "24:00:01", "24:00:00.1", "12:60:00", "12:00:60", "12:00", "12:00:00.", "12:00:00.0000001", "12:00:00Z", "-1:00:00",
		}},
		{arrow.FixedWidthTypes.Time32s, []string{"12:00:00.5"}},
		{&arrow.TimestampType{Unit: arrow.Microsecond}, []string{
			"2023-01-01", "2023-01-01T00:00:00Z", "2023-01-01T00:00:00+01", "2023-01-01T00:00:00.1234567", "+294247-01-10T04:00:54.775808",
			"-290308-12-21T19:59:05.224191", "infinity",
		}},
		{record.InstantType(), []string{"2023-01-01T00:00:00", "2023-01-01T00:00:00+1", "2023-01-01T00:00:00+01:00:00:00", "2023-01-01T00:00:00+xx"}},
		{record.InfiniteTimestampType(false), []string{"+294247-01-10T04:00:54.775807", "-290308-12-21T19:59:05.224192"}},
		{arrow.FixedWidthTypes.Duration_us, []string{"", "PT", "P1D", "PT1.5H", "PT1S2M", "PT0.0000001S", "PT2562047789H", "1:00"}},
		{record.IntervalType(), []string{
			"", "P", "PT", "P1YT", "1 day", "P1", "P1.5D", "PT1.5H", "P1H", "PT1D", "P2147483648D", "P178956971Y", "PT9223372036855S", "P--1D", "P1TD",
			"PT0.0000001S",
		}},
		{record.UUIDType(), []string{"", "01234567-89ab-cdef-0123-456789abcde", "0123456789abcdef0123456789abcdef", "g1234567-89ab-cdef-0123-456789abcdef"}},
		{record.JSONType(), []string{"", "{", "nul", "\"\xff\"", `"\ud800"`, "1 2", "{a:1}"}},
		{record.EnumType("mood", []string{"ok"}), []string{"", "OK", "ok "}},
		{record.BitsType(3, false), []string{"", "10", "1010", "102"}},
		{record.BitsType(3, true), []string{"1010", "2"}},
		{record.NetworkType("inet"), []string{"", "10.0.0", "10.0.0.1/33", "fe80::1%eth0", "host"}},
		{record.NetworkType("cidr"), []string{"10.0.0.1", "10.0.0.1/8", "::1"}},
		{record.NetworkType("macaddr"), []string{"08:00:2b:01:02:03:04:05", "08:00:2b:01:02", "x"}},
		{record.NetworkType("macaddr8"), []string{"08:00:2b:01:02:03"}},
		{arrow.ListOf(arrow.PrimitiveTypes.Int8), []string{"", "{1}", "[1"}},
	} {
		for _, text := range c.texts {
			b := array.NewBuilder(memory.DefaultAllocator, c.dt)
			err := record.ParseText(b, text)
			if err == nil {
				t.Errorf("%s: %q was read as %v", c.dt, text, b.NewArray())
				continue
			}
			if b.Len() != 0 {
				t.Errorf("%s: %q appended something", c.dt, text)
			}
		}
	}
}

// cases C024, C090: JSON that is no value of the type, or no good JSON, is refused; nothing is guessed.
func TestParseJSONRejects(t *testing.T) {
	st := arrow.StructOf(arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	ints := record.ArrayType(arrow.PrimitiveTypes.Int32, 1)
	for _, c := range []struct {
		dt   arrow.DataType
		docs []string
	}{
		{arrow.PrimitiveTypes.Int64, []string{``, `"1"`, `1.5`, `true`, `1 2`, `[1]`, `9223372036854775808`, `01`, `+1`}},
		{arrow.PrimitiveTypes.Float64, []string{`"1"`, `NaN`, `1e309`, `"inf"`}},
		{record.NumericType(), []string{`"1.5"`, `{}`}},
		{arrow.FixedWidthTypes.Boolean, []string{`"true"`, `1`}},
		{arrow.BinaryTypes.String, []string{`1`, `true`, `{}`, `"\ud800"`, `"\udc00\ud800"`, "\"\xff\"", `"a`, "\"\n\""}},
		{arrow.BinaryTypes.Binary, []string{`"?"`, `"AA"`, `1`}},
		{arrow.FixedWidthTypes.Date32, []string{`0`, `"2023-02-30"`}},
		{record.JSONType(), []string{``, `{"a":}`, `"\ud83d"`, strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)}},
		{arrow.ListOf(arrow.PrimitiveTypes.Int64), []string{`1`, `{}`, `["x"]`, `[[1]]`, strings.Repeat("[", 2_000) + strings.Repeat("]", 2_000)}},
		{st, []string{`[]`, `{"n":1,"n":123}`, `{"m":1}`, `{"n":1,"m":null}`, `{"n":"1"}`}},
		{arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), []string{`{}`, `[["a"]]`, `[["a",1,2]]`, `[[null,1]]`, `[{"a":1}]`}},
		{ints, []string{
			`1`, `[[1],[2,3]]`, `[[1],2]`, `[1,[2]]`, `[[]]`, `[[1],null]`, `{"values":[1],"lower":[1,1]}`, `{"values":[1],"more":1}`, `{"lower":[1]}`,
			`{"dims":[2],"values":[1]}`, `{"dims":[1],"values":[]}`, `{"dims":[],"values":[1]}`, `{"dims":[-1,-1],"values":[1]}`, `{"dims":[0],"values":[]}`,
			`{"dims":[4294967296],"values":[]}`, `{"lower":[0.5],"values":[1]}`, `{"lower":["0"],"values":[1]}`,
		}},
	} {
		for _, doc := range c.docs {
			b := array.NewBuilder(memory.DefaultAllocator, c.dt)
			if err := record.ParseJSON(b, []byte(doc)); err == nil {
				t.Errorf("%s: %.60s was read as %v", c.dt, doc, b.NewArray())
			} else if len(err.Error()) > 400 {
				t.Errorf("%s: the error has %d bytes", c.dt, len(err.Error()))
			}
		}
	}
}

// case C024: numbers come from their literals.
func TestJSONNumbersKeepTheirDigits(t *testing.T) {
	st := arrow.StructOf(
		arrow.Field{Name: "id", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "big", Type: arrow.PrimitiveTypes.Uint64},
		arrow.Field{Name: "d", Type: record.NumericType()}, arrow.Field{Name: "doc", Type: record.JSONType()})
	const doc = `{"id":9007199254740993,"big":18446744073709551615,"d":0.12345678901234567890123,"doc":{"n":1.10,"e":1E400,"n":2}}`
	b := array.NewBuilder(memory.DefaultAllocator, st)
	if err := record.ParseJSON(b, []byte(doc)); err != nil {
		t.Fatal(err)
	}
	if got := string(record.AppendJSON(nil, b.NewArray(), 0)); got != doc {
		t.Errorf("%s became %s", doc, got)
	}
}

// A JSON null is a null of the column, at every depth; a document of a JSON column that is null can only come as text.
func TestJSONNull(t *testing.T) {
	for _, dt := range append(scalars(), arrow.ListOf(record.JSONType()), record.ArrayType(record.JSONType(), 1)) {
		b := array.NewBuilder(memory.DefaultAllocator, dt)
		if err := record.ParseJSON(b, []byte(" null ")); err != nil {
			t.Errorf("%s: %v", dt, err)
		}
		if arr := b.NewArray(); arr.NullN() != 1 {
			t.Errorf("%s: null became %v", dt, arr)
		}
	}
	if arr := parsed(record.JSONType(), "null"); arr.NullN() != 0 || string(record.AppendText(nil, arr, 0)) != "null" {
		t.Errorf("the document null became %v", arr)
	}
}

// case C026: JSON documents that are arrays are elements, not dimensions.
func TestArraysOfDocuments(t *testing.T) {
	b := array.NewBuilder(memory.DefaultAllocator, record.ArrayType(record.JSONType(), 1))
	for _, doc := range []string{`[1,{"a":[]}]`, `{"dims":[2],"values":[[1,2],{}]}`, `{"dims":[1,2],"lower":[1,0],"values":[[],null]}`, `[]`} {
		if err := record.ParseJSON(b, []byte(doc)); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		arr := b.NewArray()
		if got := string(record.AppendJSON(nil, arr, 0)); got != doc {
			t.Errorf("%s became %s", doc, got)
		}
	}
}

// case C090: bad Unicode, lone surrogates and depth are reported; duplicate keys in a document of a JSON column stay as they are.
func TestCheckJSON(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, good := range []string{
		`{"n":2,"n":123}`, `"\ud83d\ude00"`, `"\\ud800"`, `"\\\ud83d\ude00"`, nested(1000), ` 1 `, `"["`, `{"a":"\"[{"}`, `"\u0000"`,
	} {
		if err := record.CheckJSON([]byte(good)); err != nil {
			t.Errorf("%.40s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		`{"s":"\ud800"}`: "surrogate", `"\udc00"`: "surrogate", `"\ud800\ud800"`: "surrogate", `"\ud800x"`: "surrogate", `"\ud800\n"`: "surrogate",
		"{\"s\":\"\xff\"}": "UTF-8", "\"\xed\xa0\x80\"": "UTF-8", nested(1001): "deeper than 1000", nested(10_000): "deeper",
		``: "invalid JSON", `{"a":1,}`: "invalid JSON", `1 2`: "invalid JSON", `"\x"`: "invalid JSON", `"\u12"`: "invalid JSON", `"\`: "invalid JSON",
		`"`: "invalid JSON", `]`: "invalid JSON", "\"\t\"": "invalid JSON",
	} {
		if err := record.CheckJSON([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", bad, err, want)
		}
	}
}

// A JSON string is what encoding/json reads back as the same text, with nothing escaped that need not be.
func TestJSONString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "s")
		got := record.AppendJSONString([]byte("x"), s)
		var back string
		if err := json.Unmarshal(got[1:], &back); err != nil || got[0] != 'x' {
			t.Fatalf("%s: %v", got, err)
		}
		if want := string(bytes.ToValidUTF8([]byte(s), nil)); back != s && strings.ReplaceAll(back, "\ufffd", "") != strings.ReplaceAll(want, "\ufffd", "") {
			t.Fatalf("%q became %q", s, back)
		}
	})
	for s, want := range map[string]string{"<&>/\u2028é": "\"<&>/\u2028é\"", "\"\\\n\r\t\b\x00\x7f": "\"\\\"\\\\\\n\\r\\t\\u0008\\u0000\x7f\""} {
		if got := string(record.AppendJSONString(nil, s)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

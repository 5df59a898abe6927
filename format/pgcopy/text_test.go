package pgcopy_test

import (
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// textCase is a column, what the server prints for values, and record's JSON of them.
type textCase struct {
	name   string
	wire   pgcopy.Type
	arrow  arrow.DataType
	values [][2]string
	not    []string // what the server never prints for the type, with the settings that are known here
}

func textCases() []textCase {
	dims := record.ArrayType(arrow.PrimitiveTypes.Int32, 1)
	boxes := record.ArrayType(record.ForeignType("postgres", "box"), 1)
	semicolons := pgcopy.ArrayOf(form(pgcopy.Raw), 0)
	semicolons.Delim = ':'
	return []textCase{
		{"bool", form(pgcopy.Bool), arrow.FixedWidthTypes.Boolean, [][2]string{{"t", "true"}, {"f", "false"}}, []string{"", "true", "T", "1", "tf"}},
		{
			"int2", form(pgcopy.Int2), arrow.PrimitiveTypes.Int16,
			[][2]string{{"-32768", "-32768"}, {"32767", "32767"}, {"0", "0"}},
			[]string{"32768", "-32769", "1.0", "", "-"},
		},
		{
			"int4", form(pgcopy.Int4), arrow.PrimitiveTypes.Int32,
			[][2]string{{"-2147483648", "-2147483648"}, {"2147483647", "2147483647"}},
			[]string{"2147483648", "-2147483649", "0x1", " 1"},
		},
		{
			"int8", form(pgcopy.Int8), arrow.PrimitiveTypes.Int64,
			[][2]string{{"-9223372036854775808", "-9223372036854775808"}, {"9223372036854775807", "9223372036854775807"}},
			[]string{"9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e3", "+-1", "--1"},
		},
		{
			"float4", form(pgcopy.Float4), arrow.PrimitiveTypes.Float32,
			[][2]string{{"NaN", `"NaN"`}, {"-Infinity", `"-Infinity"`}, {"1e-45", "1e-45"}, {"0.1", "0.1"}, {"-0", "-0"}},
			[]string{"1e39", "nan", "inf", "0x1p3", ""},
		},
		{
			"float8", form(pgcopy.Float8), arrow.PrimitiveTypes.Float64,
			[][2]string{{"NaN", `"NaN"`}, {"Infinity", `"Infinity"`}, {"5e-324", "5e-324"}, {"1e+22", "1e+22"}},
			[]string{"1e309", "infinity", "1_0", "1e", "e"},
		},
		{
			"numeric(12,2)", form(pgcopy.Numeric), &arrow.Decimal128Type{Precision: 12, Scale: 2},
			[][2]string{{"0.00", "0.00"}, {"-0.01", "-0.01"}, {"9999999999.99", "9999999999.99"}, {"7", "7.00"}, {"7.5", "7.50"}, {"7.5000", "7.50"}},
			[]string{"", "-", ".5", "5.", "1e3", "+1", "1 ", "00.5", "-0.00", "1.2.3", "infinity"},
		},
		{
			"numeric(38,10)", form(pgcopy.Numeric), &arrow.Decimal128Type{Precision: 38, Scale: 10},
			[][2]string{
				{"-9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999"},
				{"12345678901234567890", "12345678901234567890.0000000000"},
				{"123456789012345678", "123456789012345678.0000000000"},
				{"0.0000000001", "0.0000000001"},
			},
			nil,
		},
		{
			"numeric(76,30)", form(pgcopy.Numeric), &arrow.Decimal256Type{Precision: 76, Scale: 30},
			[][2]string{{strings.Repeat("9", 46) + "." + strings.Repeat("9", 30), strings.Repeat("9", 46) + "." + strings.Repeat("9", 30)}},
			nil,
		},
		{
			"numeric", form(pgcopy.Numeric), record.NumericType(),
			[][2]string{{"NaN", `"NaN"`}, {"-Infinity", `"-Infinity"`}, {"0.0", "0.0"}, {"-1.100", "-1.100"}, {"10", "10"}},
			[]string{"nan", "1e3", "01", "-0", "1."},
		},
		{"text", form(pgcopy.Raw), arrow.BinaryTypes.String, [][2]string{{"", `""`}, {`a\b`, `"a\\b"`}, {"NULL", `"NULL"`}}, nil},
		{"bytea", form(pgcopy.Raw), arrow.BinaryTypes.Binary, [][2]string{{`\x`, `""`}, {`\x00ff5c`, `"AP9c"`}}, []string{"", "abc", `\000`, `\x0`, `\xzz`}},
		{"jsonb", form(pgcopy.Versioned), record.JSONType(), [][2]string{{`{"a": 1}`, `{"a": 1}`}}, nil},
		{
			"uuid", form(pgcopy.UUID), record.UUIDType(),
			[][2]string{{"01234567-89ab-cdef-0123-456789abcdef", `"01234567-89ab-cdef-0123-456789abcdef"`}},
			[]string{"", "0123456789abcdef0123456789abcdef", "01234567-89ab-cdef-0123-456789abcdeg", "01234567889ab-cdef-0123-456789abcdef"},
		},
		{
			"date", form(pgcopy.Date), record.InfiniteDateType(),
			[][2]string{
				{"infinity", `"infinity"`},
				{"-infinity", `"-infinity"`},
				{"0044-03-15 BC", `"-0043-03-15"`},
				{"0001-02-29 BC", `"0000-02-29"`},
				{"4713-01-01 BC", `"-4712-01-01"`},
				{"15000-06-01", `"+15000-06-01"`},
				{"5874897-12-31", `"+5874897-12-31"`},
				{"1969-12-31", `"1969-12-31"`},
			},
			[]string{"", "01-02-2026", "2026-02-30", "2026-13-01", "2026-00-01", "2026-01-00", "0000-01-01", "26-01-01", "2026/01/01", "1900-02-29", "99999999-01-01"},
		},
		{
			"time", form(pgcopy.Time), arrow.FixedWidthTypes.Time64us,
			[][2]string{{"24:00:00", `"24:00:00"`}, {"00:00:00.000001", `"00:00:00.000001"`}, {"01:02:03.5", `"01:02:03.5"`}},
			[]string{"", "24:00:00.1", "24:00:01", "1:02:03", "01:60:00", "01:02:60", "01:02", "01:02:03.", "01:02:03.1234567", "01:02:03+00", "01:02:03 PM"},
		},
		{
			"timestamp", form(pgcopy.Timestamp), record.InfiniteTimestampType(false),
			[][2]string{
				{"infinity", `"infinity"`},
				{"4714-11-24 00:00:00 BC", `"-4713-11-24T00:00:00"`},
				{"294246-12-31 23:59:59.999999", `"+294246-12-31T23:59:59.999999"`},
				{"1970-01-01 00:00:00", `"1970-01-01T00:00:00"`},
			},
			[]string{"", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00+00", "01.02.2026 00:00:00", "Sun Feb 01 01:02:03 2026", "2026-01-01 00:00:00 AD"},
		},
		{
			"timestamptz", form(pgcopy.Timestamp), record.InfiniteTimestampType(true),
			[][2]string{
				{"2026-01-01 00:00:00.123456+02", `"2025-12-31T22:00:00.123456Z"`},
				{"2026-01-01 00:00:00-03:30", `"2026-01-01T03:30:00Z"`},
				{"1900-01-01 00:00:00-00:44:30", `"1900-01-01T00:44:30Z"`},
				{"0001-01-01 00:00:00+05:45 BC", `"-0001-12-31T18:15:00Z"`},
				{"-infinity", `"-infinity"`},
			},
			[]string{"2026-01-01 00:00:00", "2026-01-01 00:00:00Z", "2026-01-01 00:00:00 UTC", "2026-01-01 00:00:00+2", "2026-01-01 00:00:00+99", "2026-01-01 00:00:00+02:", "2026-01-01 00:00:00+02:00:00:00"},
		},
		{
			"interval", form(pgcopy.Interval), record.IntervalType(),
			[][2]string{
				{"00:00:00", `"PT0S"`},
				{"1 mon -1 days +00:00:00.000001", `"P1M-1DT0.000001S"`},
				{"-1 years -1 mons", `"P-1Y-1M"`},
				{"1 year 2 mons 3 days 04:05:06.7", `"P1Y2M3DT4H5M6.7S"`},
				{"-00:00:00.5", `"PT-0.5S"`},
				{"-1 years +1 day", `"P-1Y1D"`},
				{"2562047788:00:54.775807", `"PT2562047788H54.775807S"`},
				{"-2562047788:00:54.775808", `"PT-2562047788H-54.775808S"`},
				{"-178956970 years -8 mons", `"P-178956970Y-8M"`},
				{"2147483647 days", `"P2147483647D"`},
			},
			[]string{
				"", "0", "P1D", "PT0S", "@ 1 day", "1-2", "1-2 3 4:05:06", "3 4:05:06", "1 day ago", "1 week", "1", "1 day 2", "01:02", "2562047788:00:54.775808",
				"-2562047788:00:54.775809", "2147483648 days", "178956971 years", "9999999999:00:00", "01:02:03 1 day", "1 day  01:02:03",
			},
		},
		{"varbit", form(pgcopy.Bits), record.BitsType(0, true), [][2]string{{"", `""`}, {"101", `"101"`}}, []string{"2", "B1", "X1"}},
		{"inet", form(pgcopy.Network), record.NetworkType("inet"), [][2]string{{"10.1.2.3/8", `"10.1.2.3/8"`}}, nil},
		{
			"int4[]", pgcopy.ArrayOf(form(pgcopy.Int4), 23), dims,
			[][2]string{
				{"{}", "[]"},
				{"{NULL,1}", "[null,1]"},
				{"{{1,2},{3,4}}", "[[1,2],[3,4]]"},
				{"[0:1]={7,8}", `{"lower":[0],"values":[7,8]}`},
				{"[-1:0][5:5]={{1},{2}}", `{"lower":[-1,5],"values":[[1],[2]]}`},
				{"{{{{{{1}}}}}}", "[[[[[[1]]]]]]"},
				{"{{{1},{2}},{{3},{4}}}", "[[[1],[2]],[[3],[4]]]"},
			},
			[]string{
				"", "{", "}", "{1", "{1,}", "{,1}", "{1}}", "{{1},2}", "{1,{2}}", "{{1,2},{3}}", "{{1},{2,3}}", "{{{{{{{1}}}}}}}", "{}{}", "{1};", "[0:1]={7}",
				"[0:1]={7,8,9}", "[0:1]={}", "[0:1]{7,8}", "[1:0]={}", "[0]={7}", "[0:1][0:0]={7,8}", "[0:0]={{7}}", "[a:b]={1}", "{{}}", "{{},{}}", "{ 1}", "{x}",
				"[0:99999999999]={1}", `{"1}`, "[-2147483648:2147483647]={1}", "1", "{1;2}",
			},
		},
		{
			"text[]", pgcopy.ArrayOf(form(pgcopy.Raw), 25), record.ArrayType(arrow.BinaryTypes.String, 1),
			[][2]string{
				{`{"a,b","c\"d",""}`, `["a,b","c\"d",""]`},
				{`{NULL,"NULL",null}`, `[null,"NULL","null"]`},
				{`{"\\","{","}"," "}`, `["\\","{","}"," "]`},
				{`{{a},{"b\\"}}`, `[["a"],["b\\"]]`},
			},
			[]string{`{"}`, `{"a}`, `{"a\`, `{"a\"}`, `{a"b}`, `{a\b}`, `{"a"b}`, `{a{b}`},
		},
		{"box[]", pgcopy.ArrayOf(form(pgcopy.Raw), 603), boxes, [][2]string{{"{(1,1),(0,0);(2,2),(1,1)}", `["(1,1),(0,0)","(2,2),(1,1)"]`}}, nil},
		{"geometry[]", semicolons, boxes, [][2]string{{`{0101:"a:b"}`, `["0101","a:b"]`}}, nil},
		{"numeric[]", pgcopy.ArrayOf(form(pgcopy.Numeric), 1700), record.ArrayType(&arrow.Decimal128Type{Precision: 5, Scale: 1}, 1), [][2]string{{"{1.5,NULL}", "[1.5,null]"}}, []string{"{1,x}"}},
	}
}

// What the server prints is read; anything else is an error that is no refusal, and leaves nothing behind.
// cases C001, C002, C012, C016, C026.
func TestText(t *testing.T) {
	for _, c := range textCases() {
		t.Run(c.name, func(t *testing.T) {
			b, err := pgcopy.NewBuilder(c.wire, c.arrow, true)
			if err != nil {
				t.Fatal(err)
			}
			bad := func() {
				t.Helper()
				for _, v := range c.not {
					n := b.Len()
					if err := b.AppendText([]byte(v)); err == nil || pgcopy.Refused(err) || b.Len() != n {
						t.Errorf("%q: error %v, %d values", v, err, b.Len()-n)
					}
				}
			}
			bad()
			for i, v := range c.values {
				if err := b.AppendText([]byte(v[0])); err != nil {
					t.Fatal(err)
				}
				if i%2 == 0 {
					bad()
					b.AppendNull()
					b.Pop()
				}
			}
			b.AppendNull()
			arr := b.Take()
			for i, v := range c.values {
				if got := string(record.AppendJSON(nil, arr, i)); got != v[1] {
					t.Errorf("%q: got %s, want %s", v[0], got, v[1])
				}
			}
			if n := len(c.values); arr.Len() != n+1 || !arr.IsNull(n) || arr.NullN() != 1 || b.Len() != 0 {
				t.Errorf("%d values, %d null", arr.Len(), arr.NullN())
			}
		})
	}
}

// NaN has the bits that the server sends in binary.
func TestTextNaN(t *testing.T) {
	b, err := pgcopy.NewBuilder(form(pgcopy.Float8), arrow.PrimitiveTypes.Float64, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.AppendText([]byte("NaN")); err != nil {
		t.Fatal(err)
	}
	if err := b.Append([]byte{0x7f, 0xf8, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	arr, _ := b.Take().(*array.Float64)
	if x, y := math.Float64bits(arr.Value(0)), math.Float64bits(arr.Value(1)); x != y {
		t.Errorf("%x in text, %x in binary", x, y)
	}
}

// A value that the column can't hold is refused, in either form; the lenient column holds it.
// cases C001, C012.
func TestTextRefused(t *testing.T) {
	decimal := &arrow.Decimal128Type{Precision: 5, Scale: 1}
	for _, c := range []struct {
		wire  pgcopy.Type
		arrow arrow.DataType
		value string
		text  string
	}{
		{form(pgcopy.Numeric), decimal, "NaN", "NaN"},
		{form(pgcopy.Numeric), decimal, "0.15", "0.15"},
		{form(pgcopy.Numeric), decimal, "-10000.0", "-10000.0"},
		{form(pgcopy.Numeric), decimal, strings.Repeat("9", 200), strings.Repeat("9", 200)},
		{pgcopy.ArrayOf(form(pgcopy.Numeric), 1700), record.ArrayType(decimal, 1), "{1.0,NULL,0.15}", "[1.0,null,0.15]"},
		{form(pgcopy.Timestamp), record.InfiniteTimestampType(true), "294276-12-31 23:59:59.999999+00", "+294276-12-31T23:59:59.999999Z"},
		{form(pgcopy.Timestamp), record.InfiniteTimestampType(false), "294276-12-31 23:59:59.999999", "+294276-12-31T23:59:59.999999"},
		{form(pgcopy.Timestamp), &arrow.TimestampType{Unit: arrow.Microsecond}, "infinity", "infinity"},
		{form(pgcopy.Date), arrow.FixedWidthTypes.Date32, "-infinity", "-infinity"},
		{form(pgcopy.Interval), record.IntervalType(), "-infinity", "-infinity"},
		{form(pgcopy.Raw), arrow.BinaryTypes.String, "a\xff", "a\xff"},
		{form(pgcopy.Versioned), record.JSONType(), "\"\xff\"", "\"\xff\""},
	} {
		b, err := pgcopy.NewBuilder(c.wire, c.arrow, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.AppendText([]byte(c.value)); !pgcopy.Refused(err) || b.Len() != 0 {
			t.Errorf("%.50s as %s: error %v", c.value, c.arrow, err)
		}
		lenient, err := pgcopy.NewBuilder(c.wire, pgcopy.Lenient(c.arrow), false)
		if err != nil {
			t.Fatal(err)
		}
		if err := lenient.AppendText([]byte(c.value)); err != nil {
			t.Fatal(err)
		}
		if got := string(record.AppendText(nil, lenient.Take(), 0)); got != c.text {
			t.Errorf("%.50s became %.50s, want %.50s", c.value, got, c.text)
		}
	}
}

// Nothing is allocated for a value, in either form.
func TestNoAllocations(t *testing.T) {
	for _, c := range textCases() {
		b, err := pgcopy.NewBuilder(c.wire, c.arrow, true)
		if err != nil {
			t.Fatal(err)
		}
		value := []byte(c.values[0][0])
		if n := testing.AllocsPerRun(1000, func() {
			if err := b.AppendText(value); err != nil {
				t.Error(err)
			}
		}); n >= 1 {
			t.Errorf("%s: %v allocations for a value", c.name, n)
		}
	}
}

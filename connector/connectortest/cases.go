package connectortest

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/record"
)

// Case is a column of one type and its edge values.
type Case struct {
	Name   string         // the column: lower-case letters, digits and _
	Type   arrow.DataType // a type of the vocabulary
	Values []string       // JSON documents as record.ParseJSON reads them, in canonical form; the last one is null
}

// Field returns the case's column, which may be null.
func (c Case) Field() arrow.Field { return arrow.Field{Name: c.Name, Type: c.Type, Nullable: true} }

// Cases returns a column of edge values for every kind of the vocabulary, with its variants. The result is the caller's own.
func Cases() []Case {
	return slices.Concat(integerCases(), numberCases(), textCases(), dateCases(), timestampCases(), amountCases(), arrayCases(),
		nestedCases())
}

// Pick returns the cases of the named columns, in order; an unknown name is left out.
func Pick(names ...string) []Case {
	var picked []Case
	for _, n := range names {
		for _, c := range Cases() {
			if c.Name == n {
				picked = append(picked, c)
			}
		}
	}
	return picked
}

func newCase(name string, t arrow.DataType, values ...string) Case {
	return Case{Name: name, Type: t, Values: append(values, "null")}
}

// quoted makes JSON strings of plain texts.
func quoted(values ...string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(record.AppendJSONString(nil, v))
	}
	return out
}

func integerCases() []Case {
	return []Case{
		newCase("bool", arrow.FixedWidthTypes.Boolean, "true", "false"),
		newCase("int8", arrow.PrimitiveTypes.Int8, "0", "127", "-128"),
		newCase("int16", arrow.PrimitiveTypes.Int16, "0", "32767", "-32768", "256"),
		newCase("int32", arrow.PrimitiveTypes.Int32, "0", "2147483647", "-2147483648", "-65536"),
		newCase("int64", arrow.PrimitiveTypes.Int64, "0", "9223372036854775807", "-9223372036854775808", "9007199254740993"),
		newCase("uint8", arrow.PrimitiveTypes.Uint8, "0", "255", "128"),
		newCase("uint16", arrow.PrimitiveTypes.Uint16, "0", "65535", "32768"),
		newCase("uint32", arrow.PrimitiveTypes.Uint32, "0", "4294967295", "2147483648"),
		newCase("uint64", arrow.PrimitiveTypes.Uint64, "0", "18446744073709551615", "9223372036854775808", "7540279650942975243",
			"7540279650942975245"),
	}
}

func numberCases() []Case {
	return []Case{
		newCase("float32", arrow.PrimitiveTypes.Float32, "0", "-0", "0.1", "3.4028235e+38", "-3.4028235e+38", "1e-45", `"NaN"`,
			`"Infinity"`, `"-Infinity"`, "16777216"),
		newCase("float64", arrow.PrimitiveTypes.Float64, "0", "-0", "0.1", "1.7976931348623157e+308", "-1.7976931348623157e+308", "5e-324",
			"2.2250738585072014e-308", `"NaN"`, `"Infinity"`, `"-Infinity"`, "9007199254740992", "1e+21"),
		newCase("decimal_38_10", &arrow.Decimal128Type{Precision: 38, Scale: 10}, "0.0000000000", "0.0000000001", "-0.0000000001",
			"9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999", "-256.0000000000",
			"12345678901234567890.0000000000"),
		newCase("decimal_20_4", &arrow.Decimal128Type{Precision: 20, Scale: 4}, "0.0000", "-0.0001", "-256.0000", "-65536.0000",
			"-200000.0000",
			"9999999999999999.9999", "-9999999999999999.9999"),
		newCase("decimal_38_18", &arrow.Decimal128Type{Precision: 38, Scale: 18}, "0.000123456789012345", "-7.000000000000000001",
			"99999999999999999999.999999999999999999"),
		newCase("decimal_9_2", &arrow.Decimal128Type{Precision: 9, Scale: 2}, "0.00", "9999999.99", "-9999999.99", "-2.56", "-655.36"),
		newCase("decimal_18_0", &arrow.Decimal128Type{Precision: 18, Scale: 0}, "0", "999999999999999999", "-999999999999999999", "-256"),
		newCase("decimal_76_30", &arrow.Decimal256Type{Precision: 76, Scale: 30}, "0."+strings.Repeat("0", 30),
			strings.Repeat("9", 46)+"."+strings.Repeat("9", 30), "-"+strings.Repeat("9", 46)+"."+strings.Repeat("9", 30),
			"-256."+strings.Repeat("0", 30), "-0."+strings.Repeat("0", 29)+"1"),
		newCase("numeric", record.NumericType(), "0", "1.10", "-1.100", "0.00000000000000000001", strings.Repeat("1234567890", 20),
			"-"+strings.Repeat("9", 100)+"."+strings.Repeat("8", 100), `"NaN"`, `"Infinity"`, `"-Infinity"`),
	}
}

func textCases() []Case {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	b64 := func(b ...byte) string { return `"` + base64.StdEncoding.EncodeToString(b) + `"` }
	id := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255}
	return []Case{
		newCase("text", arrow.BinaryTypes.String, quoted("", "plain", `say "hi"`, "it's", "a,b;c\td|e", "two\nlines", "cr\rlf\r\nend\n",
			`back\slash \n \\`, `\N`, "NULL", "null", " padded ", "007", "+1", "=1+1", "😀 grüße 你好", "e\u0301", "\u0001\u001f\u007f",
			"\ufeffbom", "true", "\u2028", strings.Repeat("long ", 2_000))...),
		newCase("text_nul", arrow.BinaryTypes.String, quoted("before\x00after", "\x00")...),
		newCase("binary", arrow.BinaryTypes.Binary, b64(), b64(all...), b64(0), b64('\\', 'x'), b64('\n'), b64(255, 254)),
		newCase("binary_16", &arrow.FixedSizeBinaryType{ByteWidth: 16}, b64(make([]byte, 16)...), b64(id...)),
		newCase("uuid", record.UUIDType(), quoted("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
			"01234567-89ab-cdef-0123-456789abcdef")...),
		newCase("json", record.JSONType(), `{}`, `[]`, `"text"`, `true`, `12345678901234567890123.4567890123456789`,
			`{"b":1,"a":[1,2.50,null]}`,
			`{"a":1,"a":2}`, `{ "spaced" : [ 1 , 2 ] }`, `"say \"hi\" \\ \u00e9 é 😀"`, `{"":""}`),
		newCase("enum", record.EnumType("mood", []string{"sad", "it's", "ok", "", "two words"}),
			quoted("sad", "it's", "ok", "", "two words")...),
		newCase("bits_8", record.BitsType(8, false), quoted("00000000", "11111111", "10000001")...),
		newCase("bits_varying", record.BitsType(0, true), quoted("", "1", "0101", strings.Repeat("10", 60))...),
		newCase("inet", record.NetworkType("inet"), quoted("192.168.0.1", "10.1.2.3/8", "::1", "2001:db8::ff/64")...),
		newCase("cidr", record.NetworkType("cidr"), quoted("10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0")...),
		newCase("macaddr", record.NetworkType("macaddr"), quoted("08:00:2b:01:02:03", "00:00:00:00:00:00")...),
		newCase("foreign", record.ForeignType("postgres", "int4range"), quoted("[1,10)", "empty", "(,5)")...),
	}
}

func dateCases() []Case {
	return []Case{
		newCase("date", arrow.FixedWidthTypes.Date32, quoted("1970-01-01", "1969-12-31", "0001-01-01", "0000-02-29", "-0043-03-15",
			"-4712-01-01",
			"9999-12-31", "+15000-06-30", "2000-02-29")...),
		newCase("date_infinite", record.InfiniteDateType(),
			quoted("1970-01-01", "infinity", "-infinity", "-0043-03-15", "+15000-06-30")...),
		newCase("time_us", arrow.FixedWidthTypes.Time64us, quoted("00:00:00", "23:59:59.999999", "24:00:00", "12:34:56.1")...),
		newCase("time_ns", arrow.FixedWidthTypes.Time64ns, quoted("00:00:00", "23:59:59.999999999", "00:00:00.000000001")...),
		newCase("time_ms", arrow.FixedWidthTypes.Time32ms, quoted("00:00:00", "23:59:59.999", "24:00:00")...),
		newCase("time_s", arrow.FixedWidthTypes.Time32s, quoted("00:00:00", "23:59:59", "24:00:00")...),
	}
}

func timestampCases() []Case {
	local := func(u arrow.TimeUnit) arrow.DataType { return &arrow.TimestampType{Unit: u} }
	utc := func(u arrow.TimeUnit) arrow.DataType { return &arrow.TimestampType{Unit: u, TimeZone: "UTC"} }
	micros := []string{
		"1970-01-01T00:00:00", "1969-12-31T23:59:59.999999", "2026-01-01T00:00:00.123456", "-0043-03-15T12:00:00", "-4712-01-01T00:00:00",
		"9999-12-31T23:59:59.999999", "+15000-06-30T00:00:00", "+294246-12-31T23:59:59.999999", "0001-01-01T00:00:00",
		"1900-01-01T00:00:00.000001",
	}
	nanos := []string{
		"1970-01-01T00:00:00", "2026-01-01T00:00:00.123456789", "1677-09-21T00:12:43.145224193", "2262-04-11T23:47:16.854775807",
		"1969-12-31T23:59:59.999999999",
	}
	seconds := []string{"1970-01-01T00:00:00", "-0043-03-15T12:00:00", "9999-12-31T23:59:59"}
	zoned := func(values []string, more ...string) []string {
		var out []string
		for _, v := range values {
			out = append(out, v+"Z")
		}
		return quoted(append(out, more...)...)
	}
	return []Case{
		newCase("timestamp_us", local(arrow.Microsecond), quoted(micros...)...),
		newCase("instant_us", utc(arrow.Microsecond), zoned(micros)...),
		newCase("timestamp_infinite", record.InfiniteTimestampType(false), quoted(append(micros, "infinity", "-infinity")...)...),
		newCase("instant_infinite", record.InfiniteTimestampType(true), zoned(micros, "infinity", "-infinity")...),
		newCase("timestamp_ns", local(arrow.Nanosecond), quoted(nanos...)...),
		newCase("instant_ns", utc(arrow.Nanosecond), zoned(nanos)...),
		newCase("timestamp_ms", local(arrow.Millisecond), quoted(append(seconds, "1969-12-31T23:59:59.999")...)...),
		newCase("instant_ms", utc(arrow.Millisecond), zoned(seconds, "1969-12-31T23:59:59.999Z")...),
		newCase("timestamp_s", local(arrow.Second), quoted(seconds...)...),
		newCase("instant_s", utc(arrow.Second), zoned(seconds)...),
	}
}

func amountCases() []Case {
	return []Case{
		newCase("duration_us", arrow.FixedWidthTypes.Duration_us,
			quoted("PT0S", "PT0.000001S", "PT-0.000001S", "PT1H2M3.5S", "PT-100H")...),
		newCase("duration_ns", arrow.FixedWidthTypes.Duration_ns, quoted("PT0S", "PT-0.000000001S", "PT2562047H47M16.854775807S")...),
		newCase("duration_ms", arrow.FixedWidthTypes.Duration_ms, quoted("PT0S", "PT-0.001S", "PT25H")...),
		newCase("duration_s", arrow.FixedWidthTypes.Duration_s, quoted("PT0S", "PT-1S", "PT25H")...),
		newCase("interval", record.IntervalType(), quoted("PT0S", "P1M-1DT0.000001S", "P-1Y-1M", "P2147483647D", "P-2147483648D",
			"P1Y2M3DT4H5M6.7S",
			"PT-0.000001S", "P178956970Y7M", "PT100H")...),
	}
}

func arrayCases() []Case {
	return []Case{
		newCase("array_int", record.ArrayType(arrow.PrimitiveTypes.Int32, 1), `[]`, `[null,1]`, `[1,2,3]`, `[null]`,
			`[-2147483648,2147483647]`),
		newCase("array_int_2d", record.ArrayType(arrow.PrimitiveTypes.Int64, 2), `[]`, `[[1,2],[3,null]]`, `[[1],[2],[3]]`, `[[null]]`),
		newCase("array_any", record.ArrayType(arrow.PrimitiveTypes.Int32, 1), `[]`, `[1]`, `[[1,2],[3,4]]`, `{"lower":[0],"values":[7,8]}`,
			`[[[1],[2]]]`, `{"lower":[-1,5],"values":[[1,2],[3,4]]}`),
		newCase("array_text", record.ArrayType(arrow.BinaryTypes.String, 1), `[]`, `["a","say \"hi\"","it's",""]`, `[null,"NULL","null"]`,
			`["a,b","{c}","back\\slash","two\nlines"," padded "]`, `["😀"]`),
		newCase("array_binary", record.ArrayType(arrow.BinaryTypes.Binary, 1), `[]`, `["","AAH/",null]`, `["XHg="]`),
		newCase("array_decimal", record.ArrayType(&arrow.Decimal128Type{Precision: 20, Scale: 4}, 1), `[]`, `[-0.0001,null,-256.0000]`),
	}
}

func nestedCases() []Case {
	list := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	st := arrow.StructOf(
		arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		arrow.Field{Name: "b c", Type: arrow.BinaryTypes.String, Nullable: true},
	)
	return []Case{
		newCase("list_int", list, `[]`, `[null]`, `[1,null,9007199254740993]`, `[0]`),
		newCase("list_nested", arrow.ListOf(list), `[]`, `[[]]`, `[null]`, `[[1],[],null]`, `[[null],[2,3]]`),
		newCase("list_text", arrow.ListOf(arrow.BinaryTypes.String), `[]`, `[""]`, `["a",null,"say \"hi\""]`),
		newCase("struct", st, `{"a":1,"b c":"x"}`, `{"a":null,"b c":null}`, `{"a":-1,"b c":"it's, \"x\""}`),
		newCase("struct_nested", arrow.StructOf(arrow.Field{Name: "in", Type: st, Nullable: true}), `{"in":{"a":1,"b c":""}}`,
			`{"in":null}`, `{"in":{"a":null,"b c":null}}`),
		newCase("list_struct", arrow.ListOf(st), `[]`, `[null]`, `[{"a":1,"b c":null},null,{"a":null,"b c":"y"}]`),
		newCase("map", arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), `[]`, `[["a",1]]`, `[["",null],["it's",-1]]`),
	}
}

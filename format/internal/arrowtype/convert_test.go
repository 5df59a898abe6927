package arrowtype

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/record"
)

// fromJSON builds an array of any Arrow type with the library's own reader.
func fromJSON(t *testing.T, dt arrow.DataType, doc string) arrow.Array {
	t.Helper()
	arr, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(doc))
	if err != nil {
		t.Fatalf("%s: %v", dt, err)
	}
	return arr
}

func text(arr arrow.Array) string {
	var rows []json.RawMessage
	for i := range arr.Len() {
		rows = append(rows, record.AppendJSON(nil, arr, i))
	}
	doc, err := json.Marshal(rows)
	if err != nil {
		return err.Error()
	}
	return string(doc)
}

// Types that the vocabulary lacks become ones that it has, value by value the same, also behind an offset.
func TestForeignTypes(t *testing.T) {
	item := func(dt arrow.DataType) arrow.Field { return arrow.Field{Name: "item", Type: dt, Nullable: true} }
	dict := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	for _, c := range []struct {
		from      arrow.DataType
		to        string
		doc, want string
	}{
		{dict, "string", `["a","b",null,"a"]`, ``},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint16, ValueType: arrow.PrimitiveTypes.Int64}, "int64", `[7,null,8,7]`, ``},
		{arrow.BinaryTypes.LargeString, "string", `["a",null,"😀","x"]`, ``},
		{arrow.BinaryTypes.StringView, "string", `["a",null,"longer than what is inlined",""]`, ``},
		{arrow.BinaryTypes.LargeBinary, "binary", `["AAE=",null,"",""]`, ``},
		{arrow.BinaryTypes.BinaryView, "binary", `["AAE=",null,"","MTIzNDU2Nzg5MDEyMzQ1Njc4OTA="]`, ``},
		{&arrow.Float16Type{}, "float32", `[1.5,null,-2,0]`, ``},
		{&arrow.Decimal32Type{Precision: 9, Scale: 2}, "decimal(9,2)", `["1.25",null,"-9999999.99","0.00"]`, `[1.25,null,-9999999.99,0.00]`},
		{&arrow.Decimal64Type{Precision: 18, Scale: 0}, "decimal(18,0)", `["999999999999999999",null,"-256","0"]`, `[999999999999999999,null,-256,0]`},
		{arrow.FixedWidthTypes.Date64, "date", `["2024-02-29",null,"1969-12-31","1970-01-01"]`, ``},
		{&arrow.TimestampType{Unit: arrow.Millisecond, TimeZone: "Europe/Berlin"}, "timestamp[ms, UTC]", `["2026-01-01T00:00:00Z",null,"1970-01-01T00:00:00Z","1970-01-01T00:00:00.5Z"]`, ``},
		{arrow.FixedWidthTypes.MonthInterval, "interval", `[{"months":14},null,{"months":-1},{"months":0}]`, `["P1Y2M",null,"P-1M","PT0S"]`},
		{arrow.FixedWidthTypes.DayTimeInterval, "interval", `[{"days":1,"milliseconds":-1},null,{"days":0,"milliseconds":0},null]`, `["P1DT-0.001S",null,"PT0S",null]`},
		{arrow.FixedWidthTypes.MonthDayNanoInterval, "interval", `[{"months":1,"days":-1,"nanoseconds":1000},null,null,null]`, `["P1M-1DT0.000001S",null,null,null]`},
		{arrow.LargeListOf(arrow.BinaryTypes.LargeString), "list<string>", `[["a",null],null,[],["b"]]`, ``},
		{arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int32), "list<int32>", `[[1,2],null,[3,null],[5,6]]`, ``},
		{arrow.ListViewOf(arrow.PrimitiveTypes.Int32), "list<int32>", `[[1,2],null,[],[5]]`, ``},
		{
			arrow.StructOf(item(dict), arrow.Field{Name: "n", Type: arrow.BinaryTypes.LargeString, Nullable: true}), "struct<item: string, n: string>",
			`[{"item":"a","n":null},null,{"item":null,"n":"x"},{"item":"b","n":"y"}]`, ``,
		},
		{
			arrow.MapOf(arrow.BinaryTypes.LargeString, arrow.BinaryTypes.LargeString), "map<string, string>",
			`[[{"key":"a","value":"b"}],null,[],[{"key":"c","value":null}]]`, `[[["a","b"]],null,[],[["c",null]]]`,
		},
		{arrow.Null, "string", `[null,null,null,null]`, ``},
	} {
		to, err := Normal(c.from)
		if err != nil {
			t.Errorf("%s: %v", c.from, err)
			continue
		}
		if typ, err := record.TypeOf(to); err != nil || typ.String() != c.to {
			t.Errorf("%s becomes %s (%v), want %s", c.from, typ, err, c.to)
		}
		arr := fromJSON(t, c.from, c.doc)
		got, err := Convert(arr, to)
		if err != nil {
			t.Errorf("%s: %v", c.from, err)
			continue
		}
		want := c.want
		if want == "" {
			want = c.doc
		}
		if diff := cmp.Diff(want, text(got)); diff != "" {
			t.Errorf("%s: %s", c.from, diff)
		}
		sliced, err := Convert(array.NewSlice(arr, 1, 3), to)
		if err != nil || text(sliced) != text(array.NewSlice(got, 1, 3)) {
			t.Errorf("%s, rows 1 and 2: %s, %v", c.from, text(sliced), err)
		}
	}
}

// What has no exact form is an error.
func TestInexactIsRefused(t *testing.T) {
	millis := array.NewDate64Builder(memory.DefaultAllocator)
	millis.Append(86_400_001)
	nanos := fromJSON(t, arrow.FixedWidthTypes.MonthDayNanoInterval, `[{"months":0,"days":0,"nanoseconds":1}]`)
	for _, arr := range []arrow.Array{millis.NewArray(), nanos} {
		to, err := Normal(arr.DataType())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Convert(arr, to); err == nil || !strings.Contains(err.Error(), "row 0") {
			t.Errorf("%s: %v", arr.DataType(), err)
		}
	}
	for _, dt := range []arrow.DataType{
		arrow.SparseUnionOf(nil, nil), &arrow.Decimal128Type{Precision: 40, Scale: 2}, &arrow.Decimal128Type{Precision: 9, Scale: -1 << 31},
	} {
		if to, err := Normal(dt); err == nil {
			t.Errorf("%s becomes %s", dt, to)
		}
	}
}

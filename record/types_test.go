package record_test

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/record"
)

func TestTypeOf(t *testing.T) {
	ints := arrow.PrimitiveTypes.Int32
	for _, c := range []struct {
		dt   arrow.DataType
		want record.Type
		text string
	}{
		{arrow.FixedWidthTypes.Boolean, record.Type{Kind: record.Bool}, "bool"},
		{arrow.PrimitiveTypes.Uint64, record.Type{Kind: record.Uint64}, "uint64"},
		{&arrow.Decimal256Type{Precision: 76, Scale: -2}, record.Type{Kind: record.Decimal, Precision: 76, Scale: -2}, "decimal(76,-2)"},
		{record.NumericType(), record.Type{Kind: record.Numeric}, "numeric"},
		{&arrow.FixedSizeBinaryType{ByteWidth: 4}, record.Type{Kind: record.Binary, Width: 4}, "binary"},
		{record.UUIDType(), record.Type{Kind: record.UUID}, "uuid"},
		{record.JSONType(), record.Type{Kind: record.JSON}, "json"},
		{record.EnumType("mood", []string{"a", "b"}), record.Type{Kind: record.Enum, Name: "mood", Labels: []string{"a", "b"}}, "enum(mood)"},
		{record.BitsType(8, true), record.Type{Kind: record.Bits, Width: 8, Varying: true}, "bits"},
		{record.NetworkType("cidr"), record.Type{Kind: record.Network, Name: "cidr"}, "network(cidr)"},
		{record.ForeignType("postgres", "point"), record.Type{Kind: record.Foreign, System: "postgres", Name: "point"}, "foreign(point)"},
		{record.InfiniteDateType(), record.Type{Kind: record.Date, Infinite: true}, "date"},
		{arrow.FixedWidthTypes.Date32, record.Type{Kind: record.Date}, "date"},
		{arrow.FixedWidthTypes.Time64ns, record.Type{Kind: record.Time, Unit: arrow.Nanosecond}, "time"},
		{
			record.InfiniteTimestampType(true),
			record.Type{Kind: record.Timestamp, Unit: arrow.Microsecond, Zoned: true, Infinite: true},
			"timestamp[us, UTC]",
		},
		{&arrow.TimestampType{Unit: arrow.Millisecond}, record.Type{Kind: record.Timestamp, Unit: arrow.Millisecond}, "timestamp[ms]"},
		{record.InstantType(), record.Type{Kind: record.Timestamp, Unit: arrow.Microsecond, Zoned: true}, "timestamp[us, UTC]"},
		{arrow.FixedWidthTypes.Duration_s, record.Type{Kind: record.Duration, Unit: arrow.Second}, "duration"},
		{record.IntervalType(), record.Type{Kind: record.Interval}, "interval"},
		{record.ArrayType(ints, 0), record.Type{Kind: record.Array, Rank: 1, Elem: &record.Type{Kind: record.Int32, Arrow: ints}}, "array<int32>"},
		{arrow.ListOf(ints), record.Type{Kind: record.List, Elem: &record.Type{Kind: record.Int32, Arrow: ints}}, "list<int32>"},
		{
			arrow.MapOf(arrow.BinaryTypes.String, ints),
			record.Type{
				Kind: record.Map, Elem: &record.Type{Kind: record.Int32, Arrow: ints},
				Key: &record.Type{Kind: record.String, Arrow: arrow.BinaryTypes.String},
			},
			"map<string, int32>",
		},
		{
			arrow.StructOf(arrow.Field{Name: "a", Type: ints}),
			record.Type{Kind: record.Struct, Fields: []record.Field{{Name: "a", Type: record.Type{Kind: record.Int32, Arrow: ints}}}},
			"struct<a: int32>",
		},
	} {
		got, err := record.TypeOf(c.dt)
		if err != nil {
			t.Errorf("%s: %v", c.dt, err)
			continue
		}
		c.want.Arrow = c.dt
		if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b arrow.DataType) bool { return arrow.TypeEqual(a, b) })); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.dt, diff)
		}
		if got.String() != c.text {
			t.Errorf("%s prints as %s, want %s", c.dt, got, c.text)
		}
		nested := c.want.Elem != nil || c.want.Fields != nil
		if got.Nested() != nested {
			t.Errorf("%s: nested %v", c.dt, got.Nested())
		}
	}
}

func TestTypeOfRefuses(t *testing.T) {
	large, err := extensions.NewJSONType(arrow.BinaryTypes.LargeString)
	if err != nil {
		t.Fatal(err)
	}
	strange := arrow.BinaryTypes.LargeString
	for _, dt := range []arrow.DataType{
		strange, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.StringView, arrow.FixedWidthTypes.Date64, arrow.FixedWidthTypes.Float16,
		arrow.FixedWidthTypes.MonthInterval, arrow.Null, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
		arrow.LargeListOf(arrow.PrimitiveTypes.Int8), arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8), &arrow.Decimal32Type{Precision: 5},
		extensions.NewBool8Type(), large, arrow.ListOf(strange), arrow.MapOf(strange, arrow.PrimitiveTypes.Int8),
		arrow.MapOf(arrow.PrimitiveTypes.Int8, strange), arrow.StructOf(arrow.Field{Name: "a", Type: strange}), record.ArrayType(strange, 1),
	} {
		if got, err := record.TypeOf(dt); err == nil {
			t.Errorf("%s is %s", dt, got)
		}
	}
}

// Extension types of damaged or foreign metadata are refused, not believed.
func TestDeserializeRefuses(t *testing.T) {
	for _, c := range []struct {
		typ     *record.ExtType
		storage arrow.DataType
		data    string
	}{
		{record.NumericType(), arrow.PrimitiveTypes.Int64, `{}`},
		{record.NumericType(), arrow.BinaryTypes.String, `{`},
		{record.InfiniteDateType(), arrow.PrimitiveTypes.Int32, ``},
		{record.InfiniteTimestampType(true), arrow.FixedWidthTypes.Date32, ``},
		{record.IntervalType(), arrow.BinaryTypes.Binary, `{}`},
		{record.IntervalType(), &arrow.FixedSizeBinaryType{ByteWidth: 8}, `{}`},
		{record.ArrayType(arrow.PrimitiveTypes.Int8, 1), arrow.ListOf(arrow.PrimitiveTypes.Int8), `{}`},
		{record.ArrayType(arrow.PrimitiveTypes.Int8, 1), arrow.StructOf(
			arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int8}, arrow.Field{Name: "b", Type: arrow.PrimitiveTypes.Int8},
			arrow.Field{Name: "c", Type: arrow.ListOf(arrow.PrimitiveTypes.Int8)}), `{}`},
	} {
		if got, err := c.typ.Deserialize(c.storage, c.data); err == nil {
			t.Errorf("%s over %s with %q became %s", c.typ, c.storage, c.data, got)
		}
	}
	for _, a := range scalars() {
		for _, b := range scalars() {
			if arrow.TypeEqual(a, b) != (record.FormatType(a) == record.FormatType(b)) && !strings.Contains(a.String()+b.String(), "Berlin") {
				t.Errorf("%s and %s: equal %v, names %s and %s", a, b, arrow.TypeEqual(a, b), record.FormatType(a), record.FormatType(b))
			}
		}
	}
}

// Every type has a name that leads back to it.
func TestFormatTypeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dt := anyType(t, 3)
		name := record.FormatType(dt)
		back, err := record.ParseType(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if again := record.FormatType(back); again != name {
			t.Fatalf("%s became %s", name, again)
		}
	})
}

func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.OneOf(rapid.StringN(1, 5, -1), rapid.SampledFrom([]string{".", `"`, `""`, `"."`, `a"b.c`, "a."})), 1, 4).Draw(t, "parts")
		name := record.JoinName(parts...)
		if diff := cmp.Diff(parts, record.SplitName(name)); diff != "" {
			t.Fatalf("%s (-want +got)\n%s", name, diff)
		}
	})
	for want, parts := range map[string][]string{
		"public.orders": {"public", "orders"}, "orders": {"", "orders"}, `"a.b".c`: {"a.b", "c"}, `"say ""hi"""`: {`say "hi"`}, "Ö x": {"Ö x"}, "": {},
	} {
		if got := record.JoinName(parts...); got != want {
			t.Errorf("%q joins to %s, want %s", parts, got, want)
		}
	}
}

func TestOpNames(t *testing.T) {
	for o, want := range map[record.Op]string{
		record.Insert: "insert", record.Update: "update", record.Upsert: "upsert", record.Delete: "delete", record.Op(9): "op(9)",
	} {
		if o.String() != want {
			t.Errorf("%d is %s, want %s", o, o, want)
		}
	}
	if got := record.Kind(200).String(); got != "kind(200)" {
		t.Error(got)
	}
}

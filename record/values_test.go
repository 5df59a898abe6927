package record_test

import (
	"math"
	"math/big"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/record"
)

var units = []arrow.TimeUnit{arrow.Second, arrow.Millisecond, arrow.Microsecond, arrow.Nanosecond}

// scalars are all types of the vocabulary that aren't made of others.
func scalars() []arrow.DataType {
	list := []arrow.DataType{
		arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32,
		arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32,
		arrow.PrimitiveTypes.Uint64, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String,
		arrow.BinaryTypes.Binary, &arrow.FixedSizeBinaryType{ByteWidth: 3}, arrow.FixedWidthTypes.Date32,
		arrow.FixedWidthTypes.Time32s, arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64us, arrow.FixedWidthTypes.Time64ns,
		record.NumericType(), record.EnumType("mood", []string{"sad", "it's", ""}), record.EnumType("unknown", nil),
		record.BitsType(0, true), record.BitsType(5, true), record.BitsType(3, false), record.NetworkType("inet"),
		record.NetworkType("cidr"), record.NetworkType("macaddr"), record.NetworkType("macaddr8"),
		record.ForeignType("postgres", "int4range"), record.InfiniteDateType(), record.InfiniteTimestampType(true),
		record.InfiniteTimestampType(false), record.IntervalType(), record.UUIDType(), record.JSONType(), record.InstantType(),
	}
	for _, u := range units {
		list = append(list, &arrow.TimestampType{Unit: u}, &arrow.TimestampType{Unit: u, TimeZone: "Europe/Berlin"},
			&arrow.DurationType{Unit: u})
	}
	for _, ps := range [][2]int32{{1, 0}, {9, 2}, {18, 18}, {38, 0}, {38, 37}, {5, -3}, {2, 5}} {
		list = append(list, &arrow.Decimal128Type{Precision: ps[0], Scale: ps[1]})
	}
	for _, ps := range [][2]int32{{39, 10}, {76, 0}, {76, 76}, {60, -8}} {
		list = append(list, &arrow.Decimal256Type{Precision: ps[0], Scale: ps[1]})
	}
	return list
}

// anyType draws a type, at most this many levels deep.
func anyType(t *rapid.T, depth int) arrow.DataType {
	kind := 0
	if depth > 0 {
		kind = rapid.IntRange(0, 7).Draw(t, "nesting")
	}
	switch kind {
	case 4:
		return arrow.ListOf(anyType(t, depth-1))
	case 5:
		return arrow.MapOf(rapid.SampledFrom(scalars()).Draw(t, "key"), anyType(t, depth-1))
	case 6:
		return record.ArrayType(anyType(t, depth-1), rapid.IntRange(0, 3).Draw(t, "rank"))
	case 7:
		return arrow.StructOf(
			arrow.Field{Name: rapid.SampledFrom([]string{"a", "", `"`, "é\n"}).Draw(t, "name"), Type: anyType(t, depth-1), Nullable: true},
			arrow.Field{Name: "b", Type: anyType(t, depth-1), Nullable: true})
	default:
		return rapid.SampledFrom(scalars()).Draw(t, "type")
	}
}

func anyArray(t *rapid.T, dt arrow.DataType, rows int) arrow.Array {
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	for range rows {
		fill(t, b)
	}
	return b.NewArray()
}

// fill appends any value of the builder's type, or null.
func fill(t *rapid.T, b array.Builder) {
	if rapid.IntRange(0, 5).Draw(t, "null") == 0 {
		b.AppendNull()
		return
	}
	fillValue(t, b)
}

func fillValue(t *rapid.T, b array.Builder) {
	switch b := b.(type) {
	case *array.ListBuilder:
		b.Append(true)
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			fill(t, b.ValueBuilder())
		}
	case *array.MapBuilder:
		b.Append(true)
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			fillValue(t, b.KeyBuilder())
			fill(t, b.ItemBuilder())
		}
	case *array.StructBuilder:
		b.Append(true)
		for i := range b.NumField() {
			fill(t, b.FieldBuilder(i))
		}
	case interface{ StorageBuilder() array.Builder }:
		fillExtension(t, b.(array.Builder), b.StorageBuilder()) //nolint:forcetypeassert // it came as one
	default:
		fillScalar(t, b)
	}
}

func fillScalar(t *rapid.T, b array.Builder) {
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(rapid.Bool().Draw(t, "v"))
	case *array.Int8Builder:
		b.Append(rapid.Int8().Draw(t, "v"))
	case *array.Int16Builder:
		b.Append(rapid.Int16().Draw(t, "v"))
	case *array.Int32Builder:
		b.Append(rapid.Int32().Draw(t, "v"))
	case *array.Int64Builder:
		b.Append(int64s(t))
	case *array.Uint8Builder:
		b.Append(rapid.Uint8().Draw(t, "v"))
	case *array.Uint16Builder:
		b.Append(rapid.Uint16().Draw(t, "v"))
	case *array.Uint32Builder:
		b.Append(rapid.Uint32().Draw(t, "v"))
	case *array.Uint64Builder:
		b.Append(uint64(int64s(t)))
	case *array.Float32Builder:
		b.Append(math.Float32frombits(rapid.OneOf(rapid.Uint32(), rapid.SampledFrom([]uint32{
			0, 1 << 31, 1, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x00800000, 0x007fffff, 0x4b800000,
		})).Draw(t, "bits")))
	case *array.Float64Builder:
		b.Append(math.Float64frombits(rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{
			0, 1 << 63, 1, math.Float64bits(math.MaxFloat64), 0x7ff << 52, 0xfff << 52, 0x7ff8 << 48, 1 << 52, 1<<52 - 1,
			math.Float64bits(1e21), math.Float64bits(1e-7), math.Float64bits(123456789.25), math.Float64bits(0.1),
		})).Draw(t, "bits")))
	case *array.Decimal128Builder:
		b.Append(decimal128.FromBigInt(unscaled(t, b.Type().(*arrow.Decimal128Type).Precision))) //nolint:forcetypeassert // by construction
	case *array.Decimal256Builder:
		b.Append(decimal256.FromBigInt(unscaled(t, b.Type().(*arrow.Decimal256Type).Precision))) //nolint:forcetypeassert // by construction
	case *array.StringBuilder:
		b.Append(texts(t))
	case *array.BinaryBuilder:
		b.Append(rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "v"))
	case *array.FixedSizeBinaryBuilder:
		w := b.Type().(*arrow.FixedSizeBinaryType).ByteWidth //nolint:forcetypeassert // by construction
		b.Append(rapid.SliceOfN(rapid.Byte(), w, w).Draw(t, "v"))
	case *array.Date32Builder:
		b.Append(arrow.Date32(rapid.Int32().Draw(t, "v")))
	case *array.Time32Builder:
		b.Append(arrow.Time32(rapid.Int64Range(0, int64(arrow.Time32(86_400*perSecond(b.Type())))).Draw(t, "v")))
	case *array.Time64Builder:
		b.Append(arrow.Time64(rapid.Int64Range(0, 86_400*perSecond(b.Type())).Draw(t, "v")))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(timestamps(t, b.Type())))
	case *array.DurationBuilder:
		b.Append(arrow.Duration(int64s(t)))
	default:
		t.Fatalf("no values for %s", b.Type())
	}
}

func int64s(t *rapid.T) int64 {
	return rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, 1<<53 + 1, -1})).Draw(t, "v")
}

// timestamps are those whose text has a year that ParseDate reads: all but the outer ones in seconds and milliseconds.
func timestamps(t *rapid.T, dt arrow.DataType) int64 {
	const years = 5_900_000
	v := int64s(t)
	if limit := float64(perSecond(dt)) * years * 365 * 86_400; math.Abs(float64(v)) > limit {
		v %= int64(limit)
	}
	return v
}

func perSecond(dt arrow.DataType) int64 {
	u := dt.(arrow.TemporalWithUnit).TimeUnit() //nolint:forcetypeassert // by construction
	return map[arrow.TimeUnit]int64{arrow.Second: 1, arrow.Millisecond: 1e3, arrow.Microsecond: 1e6, arrow.Nanosecond: 1e9}[u]
}

// unscaled draws a whole number of at most this many digits.
func unscaled(t *rapid.T, precision int32) *big.Int {
	n := rapid.IntRange(1, int(precision)).Draw(t, "digits")
	if rapid.IntRange(0, 4).Draw(t, "all") == 0 {
		n = int(precision)
	}
	digits := rapid.StringOfN(rapid.SampledFrom([]rune("0123456789")), n, n, -1).Draw(t, "unscaled")
	if rapid.IntRange(0, 4).Draw(t, "nines") == 0 {
		digits = strings.Repeat("9", n)
	}
	v, _ := new(big.Int).SetString(digits, 10)
	if rapid.Bool().Draw(t, "negative") {
		v.Neg(v)
	}
	return v
}

func texts(t *rapid.T) string {
	return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"", "null", `"`, `\`, "\x00", "a\nb\r\t", "\u2028\u2029", "<&>", "\U0010ffff", "\ufffd", "\ufeff", "e\u0301", "\x7f", `\u0041`,
	})).Draw(t, "text")
}

func numerics(t *rapid.T) string {
	if rapid.IntRange(0, 5).Draw(t, "special") == 0 {
		return rapid.SampledFrom([]string{"NaN", "Infinity", "-Infinity", "0", "0.00", "0.0000001"}).Draw(t, "text")
	}
	s := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign") + rapid.StringMatching(`[1-9][0-9]{0,200}`).Draw(t, "whole")
	if rapid.Bool().Draw(t, "point") {
		s += "." + rapid.StringMatching(`[0-9]{1,200}`).Draw(t, "fraction")
	}
	return s
}

func fillExtension(t *rapid.T, b, storage array.Builder) {
	typ, err := record.TypeOf(b.Type())
	if err != nil {
		t.Fatal(err)
	}
	if typ.Kind == record.Array {
		fillArray(t, b)
		return
	}
	text, ok := storage.(*array.StringBuilder)
	if !ok {
		fillStorage(t, typ, storage)
		return
	}
	text.Append(extensionText(t, typ))
}

func extensionText(t *rapid.T, typ record.Type) string {
	switch typ.Kind {
	case record.Numeric:
		return numerics(t)
	case record.JSON:
		return rapid.SampledFrom([]string{
			`{}`, `[]`, `[ 1 , [2] ]`, `"null"`, `true`, `1e400`, `18446744073709551616.10`, `{"b":1,"a":{"a":null},"b":2}`,
			"{\n}", `"\ud83d\ude00é\u0000"`, `[[[]]]`,
		}).Draw(t, "document")
	case record.Enum:
		if typ.Labels == nil {
			return texts(t)
		}
		return rapid.SampledFrom(typ.Labels).Draw(t, "label")
	case record.Bits:
		low, high := typ.Width, typ.Width
		if typ.Width == 0 {
			high = 20
		}
		if typ.Varying {
			low = 0
		}
		return rapid.StringOfN(rapid.SampledFrom([]rune("01")), low, high, -1).Draw(t, "bits")
	case record.Network:
		return rapid.SampledFrom(map[string][]string{
			"inet":     {"10.1.2.3", "10.1.2.3/8", "::1", "2001:db8::ff/64", "::ffff:10.0.0.1", "0.0.0.0/0"},
			"cidr":     {"10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0", "10.1.2.3/32"},
			"macaddr":  {"08:00:2b:01:02:03"},
			"macaddr8": {"08:00:2b:01:02:03:04:05"},
		}[typ.Name]).Draw(t, "address")
	default:
		return texts(t)
	}
}

func fillStorage(t *rapid.T, typ record.Type, storage array.Builder) {
	switch storage := storage.(type) {
	case *array.Date32Builder:
		storage.Append(arrow.Date32(rapid.OneOf(rapid.Int32(), rapid.SampledFrom([]int32{math.MinInt32, math.MaxInt32})).Draw(t, "days")))
	case *array.FixedSizeBinaryBuilder:
		if typ.Kind == record.Interval {
			storage.Append(record.IntervalValue{
				Months: rapid.OneOf(rapid.Int32(), rapid.SampledFrom([]int32{math.MinInt32, math.MaxInt32, -13})).Draw(t, "months"),
				Days:   rapid.OneOf(rapid.Int32(), rapid.SampledFrom([]int32{math.MinInt32, math.MaxInt32})).Draw(t, "days"),
				Micros: int64s(t),
			}.Bytes())
			return
		}
		fillScalar(t, storage)
	default:
		fillScalar(t, storage)
	}
}

func fillArray(t *rapid.T, b array.Builder) {
	ab, err := record.NewArrayBuilder(b)
	if err != nil {
		t.Fatal(err)
	}
	dims := rapid.SliceOfN(rapid.Int32Range(1, 3), 0, 3).Draw(t, "dims")
	lower := make([]int32, len(dims))
	custom := rapid.Bool().Draw(t, "bounds")
	count := min(len(dims), 1)
	for i, d := range dims {
		lower[i], count = 1, count*int(d)
		if custom {
			lower[i] = rapid.Int32().Draw(t, "lower")
		}
	}
	ab.Append(dims, lower)
	for range count {
		fill(t, ab.Elements())
	}
}

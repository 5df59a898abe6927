package arrowtype

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// Convert returns arr as an array of type to, value by value the same, or an error that names the first value that has no exact
// form. Beyond what [Normal] asks for it converts between the vocabulary and what formats without these types store, both ways: text
// and bytes, text and the types that are kept as text (intervals and decimals too), seconds and milliseconds, durations and their
// counts, arrays and nested lists. Structure is trusted: see [Validate].
func Convert(arr arrow.Array, to arrow.DataType) (arrow.Array, error) {
	if arrow.TypeEqual(arr.DataType(), to, arrow.CheckMetadata()) {
		return arr, nil
	}
	switch a := arr.(type) {
	case *array.Null:
		return array.MakeArrayOfNull(memory.DefaultAllocator, to, a.Len()), nil
	case *array.Dictionary:
		return fromDictionary(a, to)
	case *array.RunEndEncoded:
		return fromRunEnds(a, to)
	}
	if ext, ok := to.(arrow.ExtensionType); ok {
		return toExtension(arr, ext)
	}
	if ext, ok := arr.(array.ExtensionArray); ok {
		return fromExtension(ext, to)
	}
	switch to := to.(type) {
	case *arrow.StructType:
		return toStruct(arr, to)
	case *arrow.MapType:
		return toMap(arr, to)
	case *arrow.ListType:
		return toList(arr, to)
	}
	return toPlain(arr, to)
}

func unsupported(arr arrow.Array, to arrow.DataType) error {
	return fmt.Errorf("values of type %s can't be read as %s", arr.DataType(), to)
}

func fromDictionary(a *array.Dictionary, to arrow.DataType) (arrow.Array, error) {
	values, err := Convert(a.Dictionary(), to)
	if err != nil {
		return nil, err
	}
	indices := array.NewInt64Builder(memory.DefaultAllocator)
	indices.Reserve(a.Len())
	for i := range a.Len() {
		if a.IsNull(i) {
			indices.AppendNull()
			continue
		}
		v := a.GetValueIndex(i)
		if v < 0 || v >= values.Len() {
			return nil, fmt.Errorf("dictionary index %d: the dictionary has %d values", v, values.Len())
		}
		indices.Append(int64(v))
	}
	return take(values, indices.NewArray())
}

// take picks values by index. The library's own function does not know extension types everywhere: their storage is taken.
func take(values, indices arrow.Array) (arrow.Array, error) {
	if ext, ok := values.(array.ExtensionArray); ok {
		st, err := take(ext.Storage(), indices)
		if err != nil {
			return nil, err
		}
		return array.NewExtensionArrayWithStorage(ext.ExtensionType(), st), nil
	}
	out, err := compute.TakeArray(context.Background(), values, indices) //nolint:forbidigo // it never waits
	if err != nil {
		return nil, fmt.Errorf("decoding a dictionary of %s: %w", values.DataType(), err)
	}
	return out, nil
}

func fromRunEnds(a *array.RunEndEncoded, to arrow.DataType) (arrow.Array, error) {
	values, err := Convert(a.Values(), to)
	if err != nil {
		return nil, err
	}
	indices := array.NewInt64Builder(memory.DefaultAllocator)
	indices.Reserve(a.Len())
	for i := range a.Len() {
		v := a.GetPhysicalIndex(i)
		if v < 0 || v >= values.Len() {
			return nil, fmt.Errorf("row %d is in run %d of %d", i, v, values.Len())
		}
		indices.Append(int64(v))
	}
	return take(values, indices.NewArray())
}

func toExtension(arr arrow.Array, to arrow.ExtensionType) (arrow.Array, error) {
	t, err := record.TypeOf(to)
	if err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	if ext, ok := arr.(array.ExtensionArray); ok {
		return Convert(ext.Storage(), to)
	}
	var storage arrow.Array
	switch {
	case t.Kind == record.Array && arr.DataType().ID() == arrow.LIST:
		return toArray(arr, to, t)
	case t.Kind == record.Interval && !arrow.TypeEqual(arr.DataType(), to.StorageType()):
		storage, err = toInterval(arr, to.StorageType())
	default:
		storage, err = Convert(arr, to.StorageType())
	}
	if err != nil {
		return nil, err
	}
	return array.NewExtensionArrayWithStorage(to, storage), nil
}

// build makes an array of type to, one value at a time; nulls stay nulls.
func build[B array.Builder](arr arrow.Array, to arrow.DataType, add func(b B, i int) error) (arrow.Array, error) {
	b, ok := array.NewBuilder(memory.DefaultAllocator, to).(B)
	if !ok {
		return nil, unsupported(arr, to)
	}
	b.Reserve(arr.Len())
	for i := range arr.Len() {
		if arr.IsNull(i) {
			b.AppendNull()
			continue
		}
		if err := add(b, i); err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
	}
	return b.NewArray(), nil
}

// bytesOf returns a function that reads value i of any text or binary array; nil for others.
func bytesOf(arr arrow.Array) func(i int) []byte {
	switch a := arr.(type) {
	case *array.String:
		return func(i int) []byte { return []byte(a.Value(i)) }
	case *array.LargeString:
		return func(i int) []byte { return []byte(a.Value(i)) }
	case *array.StringView:
		return func(i int) []byte { return []byte(a.Value(i)) }
	case *array.Binary:
		return a.Value
	case *array.LargeBinary:
		return a.Value
	case *array.BinaryView:
		return a.Value
	}
	return nil
}

func toPlain(arr arrow.Array, to arrow.DataType) (arrow.Array, error) {
	switch to := to.(type) {
	case *arrow.StringType, *arrow.BinaryType:
		return toBytes(arr, to)
	case *arrow.Float32Type:
		if a, ok := arr.(*array.Float16); ok {
			return build(arr, to, func(b *array.Float32Builder, i int) error { b.Append(a.Value(i).Float32()); return nil })
		}
	case *arrow.Decimal128Type:
		return toDecimal128(arr, to)
	case *arrow.Date32Type:
		if a, ok := arr.(*array.Date64); ok {
			return build(arr, to, func(b *array.Date32Builder, i int) error { return appendDay(b, int64(a.Value(i))) })
		}
	case *arrow.TimestampType:
		return toTimestamp(arr, to)
	case *arrow.Time32Type:
		return toTime32(arr, to)
	case *arrow.DurationType, *arrow.Int64Type:
		if arr.DataType().ID() == arrow.INT64 || arr.DataType().ID() == arrow.DURATION {
			return relabel(arr, to), nil
		}
	case *arrow.Decimal256Type:
		if a, ok := arr.(*array.String); ok {
			return parsed(a, to)
		}
	}
	return nil, unsupported(arr, to)
}

// relabel returns the same bytes as another type of the same layout.
func relabel(arr arrow.Array, to arrow.DataType) arrow.Array {
	d := arr.Data()
	return array.MakeFromData(array.NewData(to, d.Len(), d.Buffers(), nil, d.NullN(), d.Offset()))
}

// parsed reads canonical text.
func parsed(a *array.String, to arrow.DataType) (arrow.Array, error) {
	return build(a, to, func(b array.Builder, i int) error { return record.ParseText(b, a.Value(i)) })
}

// printed writes canonical text.
func printed(arr arrow.Array) (arrow.Array, error) {
	var buf []byte
	return build(arr, arrow.BinaryTypes.String, func(b *array.StringBuilder, i int) error {
		buf = record.AppendText(buf[:0], arr, i)
		b.BinaryBuilder.Append(buf)
		return nil
	})
}

func toBytes(arr arrow.Array, to arrow.DataType) (arrow.Array, error) {
	if arr.DataType().ID() == arrow.STRING || arr.DataType().ID() == arrow.BINARY {
		return relabel(arr, to), nil
	}
	value := bytesOf(arr)
	if value == nil && arrow.IsDecimal(arr.DataType().ID()) && to.ID() == arrow.STRING {
		return printed(arr)
	}
	if value == nil {
		return nil, unsupported(arr, to)
	}
	total := 0
	add := func(i int) ([]byte, error) {
		v := value(i)
		if total += len(v); total > math.MaxInt32 {
			return nil, fmt.Errorf("more than 2 GiB of %s in one batch: read fewer rows at a time", arr.DataType())
		}
		return v, nil
	}
	if to.ID() == arrow.STRING {
		return build(arr, to, func(b *array.StringBuilder, i int) error {
			v, err := add(i)
			b.BinaryBuilder.Append(v)
			return err
		})
	}
	return build(arr, to, func(b *array.BinaryBuilder, i int) error {
		v, err := add(i)
		b.Append(v)
		return err
	})
}

func toDecimal128(arr arrow.Array, to *arrow.Decimal128Type) (arrow.Array, error) {
	if a, ok := arr.(*array.String); ok {
		return parsed(a, to)
	}
	from, ok := arr.DataType().(arrow.DecimalType)
	if !ok || from.GetScale() != to.Scale || from.GetPrecision() > to.Precision {
		return nil, unsupported(arr, to)
	}
	switch a := arr.(type) {
	case *array.Decimal32:
		return build(arr, to, func(b *array.Decimal128Builder, i int) error {
			b.Append(decimal128.FromI64(int64(a.Value(i))))
			return nil
		})
	case *array.Decimal64:
		return build(arr, to, func(b *array.Decimal128Builder, i int) error {
			b.Append(decimal128.FromI64(int64(a.Value(i))))
			return nil
		})
	}
	return nil, unsupported(arr, to)
}

const (
	millisPerSecond = 1_000
	millisPerDay    = 86_400_000
)

func appendDay(b *array.Date32Builder, millis int64) error {
	days := millis / millisPerDay
	if millis%millisPerDay != 0 || days != int64(int32(days)) {
		return fmt.Errorf("a date of %d ms since 1970 is no whole day that a date holds", millis)
	}
	b.Append(arrow.Date32(days))
	return nil
}

func wholeSeconds(millis int64) (int64, error) {
	if millis%millisPerSecond != 0 {
		return 0, fmt.Errorf("%d ms are no whole seconds", millis)
	}
	return millis / millisPerSecond, nil
}

// toTimestamp changes the zone's name of instants, which changes no value, and the unit between seconds and milliseconds.
func toTimestamp(arr arrow.Array, to *arrow.TimestampType) (arrow.Array, error) {
	from, ok := arr.DataType().(*arrow.TimestampType)
	if !ok || (from.TimeZone == "") != (to.TimeZone == "") {
		return nil, unsupported(arr, to)
	}
	if from.Unit == to.Unit {
		return relabel(arr, to), nil
	}
	a, _ := arr.(*array.Timestamp)
	change, ok := unitChange(from.Unit, to.Unit)
	if a == nil || !ok {
		return nil, unsupported(arr, to)
	}
	return build(arr, to, func(b *array.TimestampBuilder, i int) error {
		v, err := change(int64(a.Value(i)))
		b.Append(arrow.Timestamp(v))
		return err
	})
}

func toTime32(arr arrow.Array, to *arrow.Time32Type) (arrow.Array, error) {
	a, ok := arr.(*array.Time32)
	if !ok {
		return nil, unsupported(arr, to)
	}
	change, ok := unitChange(a.DataType().(*arrow.Time32Type).Unit, to.Unit) //nolint:forcetypeassert // by its type
	if !ok {
		return nil, unsupported(arr, to)
	}
	return build(arr, to, func(b *array.Time32Builder, i int) error {
		v, err := change(int64(a.Value(i)))
		b.Append(arrow.Time32(v))
		return err
	})
}

// unitChange returns the exact conversion between seconds and milliseconds.
func unitChange(from, to arrow.TimeUnit) (func(int64) (int64, error), bool) {
	switch {
	case from == arrow.Millisecond && to == arrow.Second:
		return wholeSeconds, true
	case from == arrow.Second && to == arrow.Millisecond:
		return func(s int64) (int64, error) {
			if ms := s * millisPerSecond; ms/millisPerSecond == s {
				return ms, nil
			}
			return 0, fmt.Errorf("%d s since 1970 do not fit a count of milliseconds", s)
		}, true
	}
	return nil, false
}

// fromExtension returns what a format without extension types stores.
func fromExtension(ext array.ExtensionArray, to arrow.DataType) (arrow.Array, error) {
	t, err := record.TypeOf(ext.DataType())
	if err != nil {
		return Convert(ext.Storage(), to) // not of the vocabulary: what it is stored as
	}
	list, isList := to.(*arrow.ListType)
	switch {
	case t.Kind == record.Array && isList:
		return fromArray(ext, list)
	case t.Kind == record.Interval && to.ID() == arrow.STRING:
		return printed(ext)
	case t.Infinite:
		if err := finite(ext); err != nil {
			return nil, err
		}
	}
	return Convert(ext.Storage(), to)
}

// finite refuses infinities: as plain dates and timestamps they would be finite ones.
func finite(ext array.ExtensionArray) error {
	for i := range ext.Len() {
		if ext.IsNull(i) {
			continue
		}
		infinite := false
		switch a := ext.Storage().(type) {
		case *array.Date32:
			infinite = record.InfiniteDate(int32(a.Value(i))) != 0
		case *array.Timestamp:
			infinite = record.InfiniteTimestamp(int64(a.Value(i))) != 0
		}
		if infinite {
			return fmt.Errorf("row %d: %s has no place here", i, record.AppendText(nil, ext, i))
		}
	}
	return nil
}

// parquetInterval is the width of Parquet's INTERVAL: months, days, milliseconds, each 32 bits without sign, little-endian.
const parquetInterval = 12

func toInterval(arr arrow.Array, to arrow.DataType) (arrow.Array, error) {
	value, err := intervalsOf(arr)
	if err != nil {
		return nil, err
	}
	return build(arr, to, func(b *array.FixedSizeBinaryBuilder, i int) error {
		v, err := value(i)
		b.Append(v.Bytes())
		return err
	})
}

func intervalsOf(arr arrow.Array) (func(i int) (record.IntervalValue, error), error) {
	switch a := arr.(type) {
	case *array.String:
		return func(i int) (record.IntervalValue, error) { return record.ParseInterval(a.Value(i)) }, nil
	case *array.MonthInterval:
		return func(i int) (record.IntervalValue, error) { return record.IntervalValue{Months: int32(a.Value(i))}, nil }, nil
	case *array.DayTimeInterval:
		return func(i int) (record.IntervalValue, error) {
			v := a.Value(i)
			return record.IntervalValue{Days: v.Days, Micros: int64(v.Milliseconds) * 1_000}, nil
		}, nil
	case *array.MonthDayNanoInterval:
		return func(i int) (record.IntervalValue, error) {
			v := a.Value(i)
			if v.Nanoseconds%int64(time.Microsecond) != 0 {
				return record.IntervalValue{}, fmt.Errorf("an interval of %d ns has digits below a microsecond", v.Nanoseconds)
			}
			return record.IntervalValue{Months: v.Months, Days: v.Days, Micros: v.Nanoseconds / int64(time.Microsecond)}, nil
		}, nil
	case *array.FixedSizeBinary:
		if a.DataType().(*arrow.FixedSizeBinaryType).ByteWidth != parquetInterval { //nolint:forcetypeassert // by its type
			break
		}
		return func(i int) (record.IntervalValue, error) { return fromParquetInterval(a.Value(i)) }, nil
	}
	return nil, unsupported(arr, record.IntervalType())
}

func fromParquetInterval(b []byte) (record.IntervalValue, error) {
	part := func(at int) int64 {
		return int64(b[at]) | int64(b[at+1])<<8 | int64(b[at+2])<<16 | int64(b[at+3])<<24
	}
	months, days, millis := part(0), part(4), part(8)
	if months > math.MaxInt32 || days > math.MaxInt32 {
		return record.IntervalValue{}, fmt.Errorf("an interval of %d months and %d days is too long", months, days)
	}
	return record.IntervalValue{Months: int32(months), Days: int32(days), Micros: millis * 1_000}, nil
}

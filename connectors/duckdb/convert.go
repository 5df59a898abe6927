package duckdb

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// DuckDB's -infinity is one above the smallest integer; its infinity is the largest, as in record.
const (
	duckNegDate = math.MinInt32 + 1
	duckNegTime = math.MinInt64 + 1
)

// fromDuck turns a column of a query's result into one of the vocabulary, on the Go heap.
func fromDuck(parts []arrow.Array, target arrow.DataType) (arrow.Array, error) {
	b := array.NewBuilder(memory.DefaultAllocator, target)
	for _, p := range parts {
		b.Reserve(p.Len())
		for i := range p.Len() {
			if err := readValue(b, p, i); err != nil {
				return nil, err
			}
		}
	}
	return b.NewArray(), nil
}

// copied joins columns whose form is the vocabulary's already.
func copied(parts []arrow.Array, target arrow.DataType) (arrow.Array, error) {
	joined, err := array.Concatenate(parts, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	d := joined.Data()
	return array.MakeFromData(array.NewData(target, d.Len(), d.Buffers(), d.Children(), d.NullN(), d.Offset())), nil
}

// plainCopy reports whether the values of a result column have the target's very form.
func plainCopy(from, target arrow.DataType) bool {
	return !arrow.IsNested(target.ID()) && target.ID() != arrow.EXTENSION && from.ID() == target.ID()
}

func readValue(b array.Builder, arr arrow.Array, i int) error {
	if arr.IsNull(i) {
		b.AppendNull()
		return nil
	}
	switch a := arr.(type) {
	case *array.String:
		return readText(b, a.Value(i))
	case *array.Binary:
		if bb, ok := b.(*array.BinaryBuilder); ok {
			bb.Append(a.Value(i))
			return nil
		}
	case *array.Map:
		return readMap(b, a, i)
	case array.ListLike: // lists, and arrays of a fixed length
		lb, ok := b.(*array.ListBuilder)
		if !ok {
			return unexpected(b, arr)
		}
		lb.Append(true)
		from, to := a.ValueOffsets(i)
		return readRange(lb.ValueBuilder(), a.ListValues(), from, to)
	case *array.Struct:
		sb, ok := b.(*array.StructBuilder)
		if !ok {
			return unexpected(b, arr)
		}
		sb.Append(true)
		for f := range a.NumField() {
			if err := readValue(sb.FieldBuilder(f), a.Field(f), i); err != nil {
				return err
			}
		}
		return nil
	}
	return readMoment(b, arr, i)
}

func unexpected(b array.Builder, arr arrow.Array) error {
	return fmt.Errorf("DuckDB sent %s where %s was expected", arr.DataType(), b.Type())
}

func readRange(b array.Builder, values arrow.Array, from, to int64) error {
	for j := from; j < to; j++ {
		if err := readValue(b, values, int(j)); err != nil {
			return err
		}
	}
	return nil
}

func readMap(b array.Builder, a *array.Map, i int) error {
	mb, ok := b.(*array.MapBuilder)
	if !ok {
		return unexpected(b, a)
	}
	mb.Append(true)
	from, to := a.ValueOffsets(i)
	if err := readRange(mb.KeyBuilder(), a.Keys(), from, to); err != nil {
		return err
	}
	return readRange(mb.ItemBuilder(), a.Items(), from, to)
}

// readText reads a value that came as text: the canonical form but for intervals.
func readText(b array.Builder, s string) error {
	if t, ok := b.Type().(*record.ExtType); ok && t.ExtensionName() == record.IntervalType().ExtensionName() {
		v, err := parseInterval(s)
		if err != nil {
			return err
		}
		return record.ParseText(b, string(record.AppendInterval(nil, v)))
	}
	return record.ParseText(b, s)
}

// readMoment covers dates and timestamps, whose infinities differ, and whatever has one text form on both sides.
func readMoment(b array.Builder, arr arrow.Array, i int) error {
	st := b
	if eb, ok := b.(*array.ExtensionBuilder); ok {
		st = eb.StorageBuilder()
	}
	switch a := arr.(type) {
	case *array.Date32:
		if db, ok := st.(*array.Date32Builder); ok {
			v := a.Value(i)
			if v == duckNegDate {
				v = math.MinInt32
			}
			db.Append(v)
			return nil
		}
	case *array.Timestamp:
		if tb, ok := st.(*array.TimestampBuilder); ok {
			v := a.Value(i)
			_, infinite := b.Type().(*record.ExtType)
			switch {
			case !infinite && (v == math.MaxInt64 || v == duckNegTime):
				return fmt.Errorf("an infinite %s can't be carried: cast the column to TIMESTAMP in a query", b.Type())
			case v == duckNegTime:
				v = math.MinInt64
			}
			tb.Append(v)
			return nil
		}
	}
	return record.ParseText(b, string(record.AppendText(nil, arr, i)))
}

// parseInterval reads DuckDB's text form: "1 year 2 months -3 days 04:05:06.7".
func parseInterval(s string) (record.IntervalValue, error) {
	var v record.IntervalValue
	bad := fmt.Errorf("%q is no interval", s)
	words := strings.Fields(s)
	for i := 0; i < len(words); i++ {
		if strings.Contains(words[i], ":") {
			m, err := parseClock(words[i])
			if err != nil {
				return v, bad
			}
			v.Micros = m
			continue
		}
		if i+1 == len(words) {
			return v, bad
		}
		n, err := strconv.ParseInt(words[i], 10, 32)
		if err != nil {
			return v, bad
		}
		i++
		switch strings.TrimSuffix(words[i], "s") {
		case "year":
			v.Months += int32(n) * 12
		case "month":
			v.Months += int32(n)
		case "day":
			v.Days += int32(n)
		default:
			return v, bad
		}
	}
	return v, nil
}

// parseClock reads [-]hours:mm:ss[.ffffff] with any number of hours.
func parseClock(s string) (int64, error) {
	body, neg := strings.CutPrefix(s, "-")
	parts := strings.Split(body, ":")
	if len(parts) != 3 {
		return 0, strconv.ErrSyntax
	}
	sec, frac, _ := strings.Cut(parts[2], ".")
	frac += strings.Repeat("0", max(0, 6-len(frac)))
	total := uint64(0)
	for _, p := range []struct {
		digits string
		micros uint64
	}{{parts[0], 3_600_000_000}, {parts[1], 60_000_000}, {sec, 1_000_000}, {frac[:6], 1}} {
		n, err := strconv.ParseUint(p.digits, 10, 64)
		if err != nil {
			return 0, err
		}
		total += n * p.micros
	}
	if neg {
		return -int64(total), nil
	}
	return int64(total), nil
}

// toDuck turns a column of the vocabulary into what is handed to DuckDB.
func toDuck(arr arrow.Array, transfer arrow.DataType) (arrow.Array, error) {
	if ext, ok := arr.(array.ExtensionArray); ok && plainCopy(ext.Storage().DataType(), transfer) &&
		ext.DataType().ID() == arrow.EXTENSION &&
		transfer.ID() == arrow.STRING {
		return ext.Storage(), nil
	}
	if arrow.TypeEqual(arr.DataType(), transfer) && !arrow.IsNested(transfer.ID()) {
		return arr, nil
	}
	b := array.NewBuilder(memory.DefaultAllocator, transfer)
	b.Reserve(arr.Len())
	if sb, ok := b.(*array.StringBuilder); ok {
		writeTexts(sb, arr)
		return b.NewArray(), nil
	}
	for i := range arr.Len() {
		if err := writeValue(b, arr, i); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

// writeTexts hands a column over as text.
func writeTexts(b *array.StringBuilder, arr arrow.Array) {
	var buf []byte
	for i := range arr.Len() {
		if arr.IsNull(i) {
			b.AppendNull()
			continue
		}
		buf = appendText(buf[:0], arr, i)
		b.BinaryBuilder.Append(buf)
	}
}

func writeValue(b array.Builder, arr arrow.Array, i int) error {
	if arr.IsNull(i) {
		b.AppendNull()
		return nil
	}
	switch b := b.(type) {
	case *array.StringBuilder:
		b.BinaryBuilder.Append(appendText(nil, arr, i))
		return nil
	case *array.BinaryBuilder:
		switch a := arr.(type) {
		case *array.Binary:
			b.Append(a.Value(i))
			return nil
		case *array.FixedSizeBinary:
			b.Append(a.Value(i))
			return nil
		}
	case *array.MapBuilder:
		return writeMap(b, arr, i)
	case *array.ListBuilder:
		return writeList(b, arr, i)
	case *array.StructBuilder:
		a, ok := arr.(*array.Struct)
		if !ok {
			return unexpected(b, arr)
		}
		b.Append(true)
		for f := range a.NumField() {
			if err := writeValue(b.FieldBuilder(f), a.Field(f), i); err != nil {
				return err
			}
		}
		return nil
	case *array.Date32Builder, *array.TimestampBuilder, *array.Time64Builder:
		return writeMoment(b, arr, i)
	}
	return record.ParseText(b, string(record.AppendText(nil, arr, i)))
}

// appendText writes the canonical text of a value, but for intervals, of which DuckDB reads another form.
func appendText(out []byte, arr arrow.Array, i int) []byte {
	ext, ok := arr.(array.ExtensionArray)
	if !ok || ext.ExtensionType().ExtensionName() != record.IntervalType().ExtensionName() {
		return record.AppendText(out, arr, i)
	}
	fixed, ok := ext.Storage().(*array.FixedSizeBinary)
	if !ok {
		return record.AppendText(out, arr, i)
	}
	v := record.IntervalOf(fixed.Value(i))
	return fmt.Appendf(out, "%d months %d days %d microseconds", v.Months, v.Days, v.Micros)
}

func writeMap(b *array.MapBuilder, arr arrow.Array, i int) error {
	a, ok := arr.(*array.Map)
	if !ok {
		return unexpected(b, arr)
	}
	b.Append(true)
	from, to := a.ValueOffsets(i)
	for j := from; j < to; j++ {
		if err := writeValue(b.KeyBuilder(), a.Keys(), int(j)); err != nil {
			return err
		}
		if err := writeValue(b.ItemBuilder(), a.Items(), int(j)); err != nil {
			return err
		}
	}
	return nil
}

func writeList(b *array.ListBuilder, arr arrow.Array, i int) error {
	switch a := arr.(type) {
	case *array.List:
		b.Append(true)
		from, to := a.ValueOffsets(i)
		for j := from; j < to; j++ {
			if err := writeValue(b.ValueBuilder(), a.ListValues(), int(j)); err != nil {
				return err
			}
		}
		return nil
	case array.ExtensionArray:
		v := record.ArrayOf(a, i)
		at := v.From
		return writeDim(b, v, 0, &at)
	}
	return unexpected(b, arr)
}

// writeDim writes one dimension of an array as a list.
func writeDim(b array.Builder, v record.ArrayValue, dim int, at *int) error {
	if dim == len(v.Dims) && dim > 0 {
		*at++
		return writeValue(b, v.Values, *at-1)
	}
	lb, ok := b.(*array.ListBuilder)
	if !ok {
		return fmt.Errorf("an array of %d dimensions where fewer were declared", len(v.Dims))
	}
	lb.Append(true)
	if dim == len(v.Dims) {
		return nil
	}
	for range v.Dims[dim] {
		if err := writeDim(lb.ValueBuilder(), v, dim+1, at); err != nil {
			return err
		}
	}
	return nil
}

// writeMoment hands dates, times and timestamps over in DuckDB's units and infinities.
func writeMoment(b array.Builder, arr arrow.Array, i int) error {
	infinite := false
	if ext, ok := arr.(array.ExtensionArray); ok {
		arr, infinite = ext.Storage(), true
	}
	switch b := b.(type) {
	case *array.Date32Builder:
		a, ok := arr.(*array.Date32)
		if !ok {
			return unexpected(b, arr)
		}
		v := a.Value(i)
		if infinite && v == math.MinInt32 {
			v = duckNegDate
		}
		b.Append(v)
		return nil
	case *array.TimestampBuilder:
		a, ok := arr.(*array.Timestamp)
		if !ok {
			return unexpected(b, arr)
		}
		v, err := rescale(int64(a.Value(i)), unitOf(a.DataType()), unitOf(b.Type()))
		if err != nil {
			return err
		}
		if infinite && v == math.MinInt64 {
			v = duckNegTime
		}
		b.Append(arrow.Timestamp(v))
		return nil
	case *array.Time64Builder:
		switch a := arr.(type) {
		case *array.Time64:
			v, err := rescale(int64(a.Value(i)), unitOf(a.DataType()), arrow.Microsecond)
			b.Append(arrow.Time64(v))
			return err
		case *array.Time32:
			v, err := rescale(int64(a.Value(i)), unitOf(a.DataType()), arrow.Microsecond)
			b.Append(arrow.Time64(v))
			return err
		}
	}
	return unexpected(b, arr)
}

// unitOf returns the unit of a time or timestamp.
func unitOf(dt arrow.DataType) arrow.TimeUnit {
	if t, ok := dt.(arrow.TemporalWithUnit); ok {
		return t.TimeUnit()
	}
	return arrow.Microsecond
}

// rescale changes the unit of a count, exactly or not at all.
func rescale(v int64, from, to arrow.TimeUnit) (int64, error) {
	for ; from < to; from++ {
		if v > math.MaxInt64/1000 || v < math.MinInt64/1000 {
			return 0, fmt.Errorf("%d %s is out of range", v, from)
		}
		v *= 1000
	}
	for ; from > to; from-- {
		if v%1000 != 0 {
			return 0, fmt.Errorf("%d %s has digits that %s can't hold", v, from, to)
		}
		v /= 1000
	}
	return v, nil
}

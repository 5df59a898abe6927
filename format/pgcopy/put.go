package pgcopy

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// putter returns how values of arr, which are of type t, go into wire type w; nil: they don't.
func putter(arr arrow.Array, t record.Type, w Type) putFunc { //nolint:cyclop // a case for each type
	if w.Form == Array {
		return putArray(arr, t, w)
	}
	if w.Form == Raw {
		return putRaw(arr)
	}
	if e, ok := arr.(array.ExtensionArray); ok && !t.Nested() {
		arr = e.Storage()
	}
	switch a := arr.(type) {
	case *array.String:
		return putString(a, w)
	case *array.Boolean:
		return func(dst []byte, i int) ([]byte, error) {
			v := byte(0)
			if a.Value(i) {
				v = 1
			}
			return append(dst, 0, 0, 0, 1, v), nil
		}
	case *array.Float32:
		if w.Form == Float8 {
			return func(dst []byte, i int) ([]byte, error) { return put8(dst, math.Float64bits(float64(a.Value(i)))), nil }
		}
		return func(dst []byte, i int) ([]byte, error) { return put4(dst, math.Float32bits(a.Value(i))), nil }
	case *array.Float64:
		return func(dst []byte, i int) ([]byte, error) { return put8(dst, math.Float64bits(a.Value(i))), nil }
	case *array.Decimal128, *array.Decimal256:
		return putDecimal(arr, int(t.Scale))
	case *array.Date32:
		return func(dst []byte, i int) ([]byte, error) {
			d := int32(a.Value(i))
			if !t.Infinite || record.InfiniteDate(d) == 0 {
				if d < math.MinInt32+epochDays {
					return dst, errTimeRange
				}
				d -= epochDays
			}
			return put4(dst, uint32(d)), nil
		}
	case *array.FixedSizeBinary:
		if t.Kind == record.Interval {
			return func(dst []byte, i int) ([]byte, error) { return putInterval(dst, record.IntervalOf(a.Value(i))), nil }
		}
		return func(dst []byte, i int) ([]byte, error) {
			return append(binary.BigEndian.AppendUint32(dst, uint32(len(a.Value(i)))), a.Value(i)...), nil
		}
	case *array.Time32:
		return putClock(func(i int) int64 { return int64(a.Value(i)) }, t)
	case *array.Time64:
		return putClock(func(i int) int64 { return int64(a.Value(i)) }, t)
	case *array.Duration:
		return putClock(func(i int) int64 { return int64(a.Value(i)) }, t)
	case *array.Timestamp:
		return putTimestamp(a, t)
	}
	if w.Form == Versioned {
		return putJSON(arr)
	}
	return putInteger(arr, w)
}

func put8(dst []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 0, 0, 0, 8), v)
}

func put4(dst []byte, v uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0, 0, 0, 4), v)
}

func putInterval(dst []byte, v record.IntervalValue) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, 0, 0, 0, 16), uint64(v.Micros))
	dst = binary.BigEndian.AppendUint32(dst, uint32(v.Days))
	return binary.BigEndian.AppendUint32(dst, uint32(v.Months))
}

// putRaw writes the bytes of text and binary values, and the canonical text of all others.
func putRaw(arr arrow.Array) putFunc {
	storage := arr
	e, ext := arr.(array.ExtensionArray)
	if ext {
		storage = e.Storage()
	}
	switch a := storage.(type) {
	case *array.String:
		return func(dst []byte, i int) ([]byte, error) {
			v := a.Value(i)
			return append(binary.BigEndian.AppendUint32(dst, uint32(len(v))), v...), nil
		}
	case *array.Binary:
		return func(dst []byte, i int) ([]byte, error) {
			v := a.Value(i)
			return append(binary.BigEndian.AppendUint32(dst, uint32(len(v))), v...), nil
		}
	case *array.FixedSizeBinary:
		if !ext {
			return func(dst []byte, i int) ([]byte, error) {
				v := a.Value(i)
				return append(binary.BigEndian.AppendUint32(dst, uint32(len(v))), v...), nil
			}
		}
	}
	return func(dst []byte, i int) ([]byte, error) {
		return measured(dst, func(dst []byte) []byte { return record.AppendText(dst, arr, i) }), nil
	}
}

// measured puts the length in front of what add appends.
func measured(dst []byte, add func([]byte) []byte) []byte {
	at := len(dst)
	dst = add(append(dst, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// putJSON writes nested values as versioned JSON.
func putJSON(arr arrow.Array) putFunc {
	return func(dst []byte, i int) ([]byte, error) {
		return measured(dst, func(dst []byte) []byte { return record.AppendJSON(append(dst, 1), arr, i) }), nil
	}
}

func putString(a *array.String, w Type) putFunc {
	switch w.Form { //nolint:exhaustive // no other form has text behind it
	case Numeric:
		return func(dst []byte, i int) ([]byte, error) { return appendNumericFromText(dst, a.Value(i)) }
	case Bits:
		return func(dst []byte, i int) ([]byte, error) { return appendBits(dst, a.Value(i)) }
	case Network:
		return func(dst []byte, i int) ([]byte, error) { return appendNetwork(dst, a.Value(i), w.CIDR) }
	case MAC:
		return func(dst []byte, i int) ([]byte, error) { return appendMAC(dst, a.Value(i)) }
	case Versioned:
		return func(dst []byte, i int) ([]byte, error) {
			v := a.Value(i)
			dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(v)+1)), 1)
			return append(dst, v...), nil
		}
	}
	return nil
}

func putDecimal(arr arrow.Array, scale int) putFunc {
	if scale < 0 {
		return func(dst []byte, i int) ([]byte, error) {
			return appendNumericFromText(dst, string(record.AppendText(nil, arr, i)))
		}
	}
	switch a := arr.(type) {
	case *array.Decimal128:
		return func(dst []byte, i int) ([]byte, error) {
			v := a.Value(i)
			sign := uint64(v.HighBits() >> 63)
			return putUnscaled(dst, limbs{v.LowBits(), uint64(v.HighBits()), sign, sign, sign}, scale), nil
		}
	case *array.Decimal256:
		return func(dst []byte, i int) ([]byte, error) {
			v := a.Value(i).Array()
			return putUnscaled(dst, limbs{v[0], v[1], v[2], v[3], uint64(int64(v[3]) >> 63)}, scale), nil
		}
	}
	return nil
}

// putUnscaled writes a number in two's complement.
func putUnscaled(dst []byte, x limbs, scale int) []byte {
	negative := x[4]>>63 == 1
	if negative {
		x.negate()
	}
	return appendNumeric(dst, x, negative, scale)
}

// putInteger writes integers of any width, checked against the target's.
func putInteger(arr arrow.Array, w Type) putFunc {
	value, ok := integers(arr)
	if !ok {
		return nil
	}
	switch w.Form { //nolint:exhaustive // no other form is a whole number
	case Int8:
		return func(dst []byte, i int) ([]byte, error) {
			v, big := value(i)
			if big {
				return dst, errIntegerRange
			}
			return put8(dst, uint64(v)), nil
		}
	case Int4:
		return func(dst []byte, i int) ([]byte, error) {
			v, big := value(i)
			if big || v != int64(int32(v)) {
				return dst, errIntegerRange
			}
			return put4(dst, uint32(v)), nil
		}
	case Int2:
		return func(dst []byte, i int) ([]byte, error) {
			v, big := value(i)
			if big || v != int64(int16(v)) {
				return dst, errIntegerRange
			}
			return binary.BigEndian.AppendUint16(append(dst, 0, 0, 0, 2), uint16(v)), nil
		}
	case Numeric:
		return func(dst []byte, i int) ([]byte, error) {
			v, big := value(i)
			if v < 0 && !big {
				return appendNumeric(dst, limbs{-uint64(v)}, true, 0), nil
			}
			return appendNumeric(dst, limbs{uint64(v)}, false, 0), nil
		}
	}
	return nil
}

// integers reads any integer column; big: the value is the uint64 behind the bits.
func integers(arr arrow.Array) (value func(i int) (v int64, big bool), ok bool) {
	switch a := arr.(type) {
	case *array.Int64:
		return func(i int) (int64, bool) { return a.Value(i), false }, true
	case *array.Int32:
		return func(i int) (int64, bool) { return int64(a.Value(i)), false }, true
	case *array.Int16:
		return func(i int) (int64, bool) { return int64(a.Value(i)), false }, true
	case *array.Int8:
		return func(i int) (int64, bool) { return int64(a.Value(i)), false }, true
	case *array.Uint64:
		return func(i int) (int64, bool) { return int64(a.Value(i)), a.Value(i) > math.MaxInt64 }, true
	case *array.Uint32:
		return func(i int) (int64, bool) { return int64(a.Value(i)), false }, true
	case *array.Uint16:
		return func(i int) (int64, bool) { return int64(a.Value(i)), false }, true
	case *array.Uint8:
		return func(i int) (int64, bool) { return int64(a.Value(i)), false }, true
	}
	return nil, false
}

// micros converts a count of a unit to microseconds, exactly or not at all.
func micros(v int64, u arrow.TimeUnit) (int64, error) {
	switch u { //nolint:exhaustive // the coarse units are below
	case arrow.Microsecond:
		return v, nil
	case arrow.Nanosecond:
		if v%1000 != 0 {
			return 0, errSubMicro
		}
		return v / 1000, nil
	}
	factor := int64(1000)
	if u == arrow.Second {
		factor = 1_000_000
	}
	if m := v * factor; m/factor == v {
		return m, nil
	}
	return 0, errTimeRange
}

// putClock writes times of day, and durations as intervals of microseconds.
func putClock(value func(i int) int64, t record.Type) putFunc {
	return func(dst []byte, i int) ([]byte, error) {
		v, err := micros(value(i), t.Unit)
		if err != nil {
			return dst, err
		}
		if t.Kind == record.Duration {
			return putInterval(dst, record.IntervalValue{Micros: v}), nil
		}
		return put8(dst, uint64(v)), nil
	}
}

// minTimestamp is 4714-11-24 BC in microseconds since 1970, where PostgreSQL's calendar starts.
const minTimestamp = -210_866_803_200_000_000

func putTimestamp(a *array.Timestamp, t record.Type) putFunc {
	return func(dst []byte, i int) ([]byte, error) {
		v := int64(a.Value(i))
		if t.Infinite && record.InfiniteTimestamp(v) != 0 {
			return put8(dst, uint64(v)), nil
		}
		v, err := micros(v, t.Unit)
		if err != nil {
			return dst, err
		}
		if v < minTimestamp {
			return dst, errTimeRange
		}
		return put8(dst, uint64(v-epochMicros)), nil
	}
}

// putArray writes arrays of any shape, and lists as arrays of one dimension.
func putArray(arr arrow.Array, t record.Type, w Type) putFunc {
	if e, ok := arr.(array.ExtensionArray); ok && t.Kind == record.Array {
		if e.Len() == 0 {
			return func(dst []byte, _ int) ([]byte, error) { return dst, nil }
		}
		elem := putter(record.ArrayOf(e, 0).Values, *t.Elem, *w.Elem)
		if elem == nil {
			return nil
		}
		return func(dst []byte, i int) ([]byte, error) { return putShape(dst, record.ArrayOf(e, i), elem, w.ElemOID) }
	}
	list, ok := arr.(*array.List)
	if !ok {
		return nil
	}
	elem := putter(list.ListValues(), *t.Elem, *w.Elem)
	if elem == nil {
		return nil
	}
	return func(dst []byte, i int) ([]byte, error) {
		from, to := list.ValueOffsets(i)
		v := record.ArrayValue{Values: list.ListValues(), From: int(from), To: int(to)}
		if to > from {
			v.Dims, v.Lower = []int32{int32(to - from)}, []int32{1}
		}
		return putShape(dst, v, elem, w.ElemOID)
	}
}

func putShape(dst []byte, v record.ArrayValue, elem putFunc, oid uint32) ([]byte, error) {
	if len(v.Dims) > maxDims || len(v.Lower) != len(v.Dims) {
		return dst, errShape
	}
	count := 0
	for i, d := range v.Dims {
		if i == 0 {
			count = 1
		}
		count *= int(d)
	}
	if count != v.To-v.From {
		return dst, errShape
	}
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(v.Dims)))
	flags := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, oid)
	for i := range v.Dims {
		dst = binary.BigEndian.AppendUint32(dst, uint32(v.Dims[i]))
		dst = binary.BigEndian.AppendUint32(dst, uint32(v.Lower[i]))
	}
	for i := v.From; i < v.To; i++ {
		if v.Values.IsNull(i) {
			dst[flags+3] = 1
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		var err error
		if dst, err = elem(dst, i); err != nil {
			return dst, err
		}
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst, nil
}

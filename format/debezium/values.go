package debezium

import (
	"encoding/base64"
	"regexp"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/record"
)

// unavailable stands for a value that the source did not send.
const unavailable = "__debezium_unavailable_value"

// What the PostgreSQL connector writes for infinite timestamps, in microseconds.
const (
	infinity    = 9223372036825200000
	negInfinity = -9223372036832400000
)

// printer appends value i of an array, which is not null.
type printer func(dst []byte, arr arrow.Array, i int) []byte

func appendValue(dst []byte, arr arrow.Array, i int, put printer) []byte {
	if arr.IsNull(i) {
		return append(dst, "null"...)
	}
	return put(dst, arr, i)
}

// printers chooses how values are printed.
type printers struct {
	schemas bool // messages have schemas, see exactSchema
}

// of returns how the values of a column are printed, and what stands for one that the source did not send; nil: nothing can.
func (p printers) of(f arrow.Field) (printer, []byte) {
	t, err := record.TypeOf(f.Type)
	if err != nil {
		return quoted, quote(unavailable) // no batch has such a type
	}
	put := p.ofType(t, millis(record.NativeOf(f)))
	if p.schemas && isDecimal(t) {
		put = decimals
	}
	kept := quote(unavailable)
	switch t.Kind {
	case record.Binary:
		kept = quote(base64.StdEncoding.EncodeToString([]byte(unavailable)))
	case record.Array, record.List:
		kept = append(append([]byte{'['}, kept...), ']')
	default:
	}
	if p.schemas && !replaceable(exactSchema(f)) {
		kept = nil
	}
	return put, kept
}

func quote(s string) []byte { return record.AppendJSONString(nil, s) }

// declared finds the precision of a time or timestamp in the name of its type, as in timestamp(3) without time zone.
var declared = regexp.MustCompile(`^time(?:stamp)?\([0-3]\)(?: without time zone)?$`)

// millis reports whether the source keeps times of a column in milliseconds at most.
func millis(n record.Native) bool { return declared.MatchString(n.Type) }

func (p printers) ofType(t record.Type, millis bool) printer {
	switch t.Kind {
	case record.Uint64:
		if p.schemas {
			return decimals
		}
		return record.AppendJSON
	case record.Decimal, record.Numeric, record.Interval:
		return quoted
	case record.JSON:
		return document
	case record.Bits:
		return bitsPrinter(t)
	case record.Date:
		return days
	case record.Time:
		return clockPrinter(t.Unit, millis)
	case record.Timestamp:
		if t.Zoned {
			return quoted
		}
		return timestampPrinter(t, millis)
	case record.Duration:
		return durationPrinter(t.Unit)
	case record.Array:
		return arrayPrinter(p.ofType(*t.Elem, false))
	case record.List:
		return listPrinter(p.ofType(*t.Elem, false))
	case record.Struct:
		return p.ofStruct(t)
	case record.Map:
		return p.ofMap(t)
	default:
		return record.AppendJSON
	}
}

// quoted prints the canonical text, which holds nothing that JSON escapes.
func quoted(dst []byte, arr arrow.Array, i int) []byte {
	return append(record.AppendText(append(dst, '"'), arr, i), '"')
}

// decimals prints the digits as a number in two's complement, in base64.
func decimals(dst []byte, arr arrow.Array, i int) []byte {
	var buf [connect.UnscaledBytes]byte
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), connect.Unscaled(buf[:0], arr, i)), '"')
}

// document prints a JSON document as text.
func document(dst []byte, arr arrow.Array, i int) []byte {
	if s, ok := storage(arr).(*array.String); ok {
		return record.AppendJSONString(dst, s.Value(i))
	}
	return record.AppendJSON(dst, arr, i)
}

func storage(arr arrow.Array) arrow.Array {
	if e, ok := arr.(array.ExtensionArray); ok {
		return e.Storage()
	}
	return arr
}

// bitsPrinter prints one bit as a boolean, and others as bytes, the lowest first; varying ones, whose length would be lost, as text.
func bitsPrinter(t record.Type) printer {
	switch {
	case t.Varying || t.Width == 0:
		return quoted
	case t.Width == 1:
		return func(dst []byte, arr arrow.Array, i int) []byte {
			return strconv.AppendBool(dst, string(record.AppendText(nil, arr, i)) == "1")
		}
	}
	return func(dst []byte, arr arrow.Array, i int) []byte {
		digits := record.AppendText(nil, arr, i)
		packed := make([]byte, (len(digits)+7)/8)
		for n, d := range digits {
			if place := len(digits) - 1 - n; d == '1' {
				packed[place/8] |= 1 << (place % 8)
			}
		}
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), packed), '"')
	}
}

func days(dst []byte, arr arrow.Array, i int) []byte {
	return strconv.AppendInt(dst, int64(storage(arr).(*array.Date32).Value(i)), 10) //nolint:forcetypeassert // by TypeOf
}

// count appends v units as a count of smaller ones: zeros is how many digits more.
func count(dst []byte, v int64, zeros string) []byte {
	if v == 0 {
		return append(dst, '0')
	}
	return append(strconv.AppendInt(dst, v, 10), zeros...)
}

// clockPrinter prints a time of day: milliseconds, microseconds or nanoseconds past midnight.
func clockPrinter(u arrow.TimeUnit, millis bool) printer {
	return func(dst []byte, arr arrow.Array, i int) []byte {
		switch a := arr.(type) {
		case *array.Time32:
			if u == arrow.Second {
				return count(dst, int64(a.Value(i)), "000")
			}
			return strconv.AppendInt(dst, int64(a.Value(i)), 10)
		case *array.Time64:
			v := int64(a.Value(i))
			if millis && u == arrow.Microsecond {
				v /= 1000
			}
			return strconv.AppendInt(dst, v, 10)
		}
		return quoted(dst, arr, i)
	}
}

// timestampPrinter prints a timestamp without zone: milliseconds, microseconds or nanoseconds since 1970.
func timestampPrinter(t record.Type, millis bool) printer {
	return func(dst []byte, arr arrow.Array, i int) []byte {
		v := int64(storage(arr).(*array.Timestamp).Value(i)) //nolint:forcetypeassert // by TypeOf
		if t.Infinite {
			switch record.InfiniteTimestamp(v) {
			case 1:
				return strconv.AppendInt(dst, infinity, 10)
			case -1:
				return strconv.AppendInt(dst, negInfinity, 10)
			}
		}
		switch {
		case t.Unit == arrow.Second:
			return count(dst, v, "000")
		case millis && t.Unit == arrow.Microsecond:
			v /= 1000
		}
		return strconv.AppendInt(dst, v, 10)
	}
}

// durationPrinter prints microseconds, or nanoseconds.
func durationPrinter(u arrow.TimeUnit) printer {
	zeros := map[arrow.TimeUnit]string{arrow.Second: "000000", arrow.Millisecond: "000"}[u]
	return func(dst []byte, arr arrow.Array, i int) []byte {
		return count(dst, int64(arr.(*array.Duration).Value(i)), zeros) //nolint:forcetypeassert // by TypeOf
	}
}

func arrayPrinter(elem printer) printer {
	return func(dst []byte, arr arrow.Array, i int) []byte {
		v := record.ArrayOf(arr.(array.ExtensionArray), i) //nolint:forcetypeassert // by TypeOf
		at := v.From
		return dimension(dst, v, 0, &at, elem)
	}
}

// dimension appends nested lists, one level for each dimension.
func dimension(dst []byte, v record.ArrayValue, dim int, at *int, elem printer) []byte {
	if dim == len(v.Dims) {
		if dim == 0 {
			return append(dst, "[]"...)
		}
		dst = appendValue(dst, v.Values, *at, elem)
		*at++
		return dst
	}
	dst = append(dst, '[')
	for j := range v.Dims[dim] {
		if j > 0 {
			dst = append(dst, ',')
		}
		dst = dimension(dst, v, dim+1, at, elem)
	}
	return append(dst, ']')
}

func listPrinter(elem printer) printer {
	return func(dst []byte, arr arrow.Array, i int) []byte {
		l := arr.(*array.List) //nolint:forcetypeassert // by TypeOf
		from, to := l.ValueOffsets(i)
		dst = append(dst, '[')
		for j := from; j < to; j++ {
			if j > from {
				dst = append(dst, ',')
			}
			dst = appendValue(dst, l.ListValues(), int(j), elem)
		}
		return append(dst, ']')
	}
}

func (p printers) ofStruct(t record.Type) printer {
	fields := make([]field, len(t.Fields))
	for i, f := range t.Fields {
		fields[i] = field{name: append(quote(f.Name), ':'), put: p.ofType(f.Type, false)}
	}
	return func(dst []byte, arr arrow.Array, i int) []byte {
		st := arr.(*array.Struct) //nolint:forcetypeassert // by TypeOf
		dst = append(dst, '{')
		for n, f := range fields {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = appendValue(append(dst, f.name...), st.Field(n), i, f.put)
		}
		return append(dst, '}')
	}
}

// ofMap prints an object where the keys are text, else a list of pairs.
func (p printers) ofMap(t record.Type) printer {
	key, item, object := p.ofType(*t.Key, false), p.ofType(*t.Elem, false), t.Key.Kind == record.String
	return func(dst []byte, arr arrow.Array, i int) []byte {
		m := arr.(*array.Map) //nolint:forcetypeassert // by TypeOf
		from, to := m.ValueOffsets(i)
		open, between, end := "[", ",", "]"
		if object {
			open, between, end = "", ":", ""
			dst = append(dst, '{')
		} else {
			dst = append(dst, '[')
		}
		for j := from; j < to; j++ {
			if j > from {
				dst = append(dst, ',')
			}
			dst = append(appendValue(append(dst, open...), m.Keys(), int(j), key), between...)
			dst = append(appendValue(dst, m.Items(), int(j), item), end...)
		}
		if object {
			return append(dst, '}')
		}
		return append(dst, ']')
	}
}

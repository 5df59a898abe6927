package record

import (
	"encoding/base64"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// AppendText appends the canonical text form of value i, which must not be null: what CSV files, text columns and messages hold.
// Numbers are plain digits (floats: the shortest form that reads back to the same bits, with an exponent only outside 1e-7 to
// 1e21); NaN, Infinity and -Infinity; true and false; dates and times as ISO 8601 (infinity, -infinity); binary as \x and hex;
// nested values as JSON. [ParseText] reads it back exactly.
func AppendText(dst []byte, arr arrow.Array, i int) []byte {
	switch a := arr.(type) {
	case *array.String:
		return append(dst, a.Value(i)...)
	case *array.Binary:
		return appendHex(dst, a.Value(i))
	case *array.FixedSizeBinary:
		return appendHex(dst, a.Value(i))
	case array.ExtensionArray:
		return appendExtText(dst, a, i)
	case *array.List, *array.Struct, *array.Map:
		return AppendJSON(dst, arr, i)
	default:
		return appendScalar(dst, arr, i)
	}
}

// appendScalar covers the types whose text form is the same in JSON but for quotes.
func appendScalar(dst []byte, arr arrow.Array, i int) []byte {
	switch a := arr.(type) {
	case *array.Boolean:
		return strconv.AppendBool(dst, a.Value(i))
	case *array.Int8:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10)
	case *array.Int16:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10)
	case *array.Int32:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10)
	case *array.Int64:
		return strconv.AppendInt(dst, a.Value(i), 10)
	case *array.Uint8:
		return strconv.AppendUint(dst, uint64(a.Value(i)), 10)
	case *array.Uint16:
		return strconv.AppendUint(dst, uint64(a.Value(i)), 10)
	case *array.Uint32:
		return strconv.AppendUint(dst, uint64(a.Value(i)), 10)
	case *array.Uint64:
		return strconv.AppendUint(dst, a.Value(i), 10)
	case *array.Float32:
		return AppendFloat(dst, float64(a.Value(i)), 32)
	case *array.Float64:
		return AppendFloat(dst, a.Value(i), 64)
	case *array.Decimal128:
		return appendDecimal128(dst, a.Value(i), a.DataType().(*arrow.Decimal128Type).Scale) //nolint:forcetypeassert // by construction
	case *array.Decimal256:
		scale := a.DataType().(*arrow.Decimal256Type).Scale //nolint:forcetypeassert // by construction
		return appendUnscaled(dst, a.Value(i).BigInt().String(), scale)
	case *array.Date32:
		return AppendDate(dst, int64(a.Value(i)))
	case *array.Time32:
		return appendClock(dst, int64(a.Value(i)), a.DataType().(*arrow.Time32Type).Unit) //nolint:forcetypeassert // by construction
	case *array.Time64:
		return appendClock(dst, int64(a.Value(i)), a.DataType().(*arrow.Time64Type).Unit) //nolint:forcetypeassert // by construction
	case *array.Timestamp:
		t := a.DataType().(*arrow.TimestampType) //nolint:forcetypeassert // by construction
		return AppendTimestamp(dst, int64(a.Value(i)), t.Unit, t.TimeZone != "")
	case *array.Duration:
		return appendDuration(dst, int64(a.Value(i)), a.DataType().(*arrow.DurationType).Unit) //nolint:forcetypeassert // by construction
	}
	return append(dst, arr.ValueStr(i)...)
}

func appendExtText(dst []byte, a array.ExtensionArray, i int) []byte {
	switch s := a.Storage().(type) {
	case *array.String:
		return append(dst, s.Value(i)...)
	case *array.Date32:
		return appendInfinite(dst, InfiniteDate(int32(s.Value(i))), func(d []byte) []byte { return appendScalar(d, s, i) })
	case *array.Timestamp:
		return appendInfinite(dst, InfiniteTimestamp(int64(s.Value(i))), func(d []byte) []byte { return appendScalar(d, s, i) })
	case *array.FixedSizeBinary:
		if _, ours := a.ExtensionType().(*ExtType); ours {
			return AppendInterval(dst, IntervalOf(s.Value(i)))
		}
		return AppendUUID(dst, s.Value(i))
	case *array.Struct:
		return appendJSONArray(dst, ArrayOf(a, i))
	default:
		return append(dst, s.ValueStr(i)...) // not of the vocabulary
	}
}

func appendInfinite(dst []byte, sign int, finite func([]byte) []byte) []byte {
	switch sign {
	case 1:
		return append(dst, infinity...)
	case -1:
		return append(dst, negInfinity...)
	}
	return finite(dst)
}

// AppendUUID appends the 8-4-4-4-12 form of 16 bytes.
func AppendUUID(dst, v []byte) []byte {
	for i, b := range v {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, []byte{b})
	}
	return dst
}

func appendHex(dst, v []byte) []byte { return hex.AppendEncode(append(dst, `\x`...), v) }

// AppendFloat appends the shortest form that reads back to the same value of the given bit size.
func AppendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-7 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, bits)
}

func appendDecimal128(dst []byte, n decimal128.Num, scale int32) []byte {
	lo := int64(n.LowBits())
	if (n.HighBits() == 0 && lo >= 0) || (n.HighBits() == -1 && lo < 0) {
		var buf [20]byte
		return appendUnscaled(dst, string(strconv.AppendInt(buf[:0], lo, 10)), scale)
	}
	return appendUnscaled(dst, n.BigInt().String(), scale)
}

// appendUnscaled puts the point into the digits of an unscaled decimal.
func appendUnscaled(dst []byte, digits string, scale int32) []byte {
	digits, neg := strings.CutPrefix(digits, "-")
	if neg {
		dst = append(dst, '-')
	}
	if scale <= 0 {
		dst = append(dst, digits...)
		if digits == "0" {
			return dst
		}
		for range -scale {
			dst = append(dst, '0')
		}
		return dst
	}
	whole := len(digits) - int(scale)
	if whole > 0 {
		dst = append(dst, digits[:whole]...)
		dst = append(dst, '.')
		return append(dst, digits[whole:]...)
	}
	dst = append(dst, '0', '.')
	for range -whole {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// appendDuration appends an ISO 8601 duration of hours, minutes and seconds, each with the sign: PT-1H-0.5S. It is the form that the
// same amount has as an interval.
func appendDuration(dst []byte, v int64, u arrow.TimeUnit) []byte {
	per, digits := unitsPerSecond(u)
	dst = append(dst, "PT"...)
	if v == 0 {
		return append(dst, "0S"...)
	}
	if h := v / per / 3600; h != 0 {
		dst = append(strconv.AppendInt(dst, h, 10), 'H')
	}
	if m := v / per / 60 % 60; m != 0 {
		dst = append(strconv.AppendInt(dst, m, 10), 'M')
	}
	sec, frac := v/per%60, v%per
	if sec == 0 && frac == 0 {
		return dst
	}
	if v < 0 {
		dst, sec, frac = append(dst, '-'), -sec, -frac
	}
	dst = strconv.AppendInt(dst, sec, 10)
	return append(appendFraction(dst, frac, digits), 'S')
}

// AppendJSON appends value i as JSON; null where it is null. Decimals and 64-bit integers are number literals with all their
// digits; NaN and the infinities are strings; binary is a base64 string; dates, times, uuids and labels are strings; arrays and
// lists are arrays (an array whose lower bounds are not all 1 is {"lower":[…],"values":[…]}; one whose elements are arrays
// themselves, not dimensions, is {"dims":[…],"values":[…]} with flat values); structs are objects; maps are arrays of
// [key, value]. JSON columns are embedded as they are.
func AppendJSON(dst []byte, arr arrow.Array, i int) []byte {
	if arr.IsNull(i) {
		return append(dst, "null"...)
	}
	switch a := arr.(type) {
	case *array.String:
		return AppendJSONString(dst, a.Value(i))
	case *array.Boolean, *array.Int8, *array.Int16, *array.Int32, *array.Int64, *array.Uint8, *array.Uint16, *array.Uint32, *array.Uint64,
		*array.Decimal128, *array.Decimal256:
		return appendScalar(dst, arr, i)
	case *array.Float32:
		return appendJSONFloat(dst, arr, i, float64(a.Value(i)))
	case *array.Float64:
		return appendJSONFloat(dst, arr, i, a.Value(i))
	case *array.Binary:
		return appendBase64(dst, a.Value(i))
	case *array.FixedSizeBinary:
		return appendBase64(dst, a.Value(i))
	case *array.Map:
		return appendJSONMap(dst, a, i)
	case *array.List:
		from, to := a.ValueOffsets(i)
		return appendJSONList(dst, a.ListValues(), from, to)
	case *array.Struct:
		return appendJSONStruct(dst, a, i)
	case array.ExtensionArray:
		return appendExtJSON(dst, a, i)
	default:
		dst = appendScalar(append(dst, '"'), arr, i)
		return append(dst, '"')
	}
}

func appendJSONFloat(dst []byte, arr arrow.Array, i int, f float64) []byte {
	if !math.IsNaN(f) && !math.IsInf(f, 0) {
		return appendScalar(dst, arr, i)
	}
	return append(appendScalar(append(dst, '"'), arr, i), '"')
}

func appendBase64(dst, v []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v), '"')
}

func appendJSONList(dst []byte, values arrow.Array, from, to int64) []byte {
	dst = append(dst, '[')
	for j := from; j < to; j++ {
		if j > from {
			dst = append(dst, ',')
		}
		dst = AppendJSON(dst, values, int(j))
	}
	return append(dst, ']')
}

func appendJSONMap(dst []byte, a *array.Map, i int) []byte {
	dst = append(dst, '[')
	from, to := a.ValueOffsets(i)
	for j := from; j < to; j++ {
		if j > from {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		dst = AppendJSON(dst, a.Keys(), int(j))
		dst = append(dst, ',')
		dst = AppendJSON(dst, a.Items(), int(j))
		dst = append(dst, ']')
	}
	return append(dst, ']')
}

func appendJSONStruct(dst []byte, a *array.Struct, i int) []byte {
	fields := a.DataType().(*arrow.StructType).Fields() //nolint:forcetypeassert // by construction
	dst = append(dst, '{')
	for f := range fields {
		if f > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendJSONString(dst, fields[f].Name), ':')
		dst = AppendJSON(dst, a.Field(f), i)
	}
	return append(dst, '}')
}

func appendExtJSON(dst []byte, a array.ExtensionArray, i int) []byte {
	switch a.ExtensionType().ExtensionName() {
	case extArray:
		return appendJSONArray(dst, ArrayOf(a, i))
	case extJSON:
		return appendExtText(dst, a, i)
	case extNumeric:
		text := appendExtText(nil, a, i)
		if n := len(text); n > 0 && text[n-1] >= '0' && text[n-1] <= '9' {
			return append(dst, text...)
		}
		return AppendJSONString(dst, string(text))
	}
	return AppendJSONString(dst, string(appendExtText(nil, a, i)))
}

// AppendJSONString appends a quoted string: only what JSON demands is escaped. Bytes that are no UTF-8 become U+FFFD, as JSON
// can't hold them; text columns never contain such bytes.
func AppendJSONString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

package engine

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// found is told of each value that does not fit, with the reason; at least once, in order of the rows.
type found func(i int, why string)

// alwaysFits reports whether no value of the type can break the limits, so that nothing has to be looked at.
func alwaysFits(t record.Type, l connector.Limits) bool {
	if t.Kind != record.Decimal || l.Min != 0 || l.Max != 0 {
		return false
	}
	return l.Precision == 0 || (t.Scale <= l.Scale && t.Precision-t.Scale <= l.Precision-l.Scale)
}

// rule is the limits of one type.
type rule struct {
	typ    record.Type
	limits connector.Limits
}

// scan looks at the values [from, to) of a column.
func scan(r rule, a arrow.Array, from, to int, bad found) {
	t, l := r.typ, r.limits
	if e, ok := a.(array.ExtensionArray); ok && t.Kind != record.Array {
		a = e.Storage()
	}
	each := func(why func(i int) string) {
		for i := from; i < to; i++ {
			if a.IsNull(i) {
				continue
			}
			if w := why(i); w != "" {
				bad(i, w)
			}
		}
	}
	switch a := a.(type) {
	case *array.Float64:
		each(func(i int) string { return floatFault(l, a.Value(i)) })
	case *array.Float32:
		each(func(i int) string { return floatFault(l, float64(a.Value(i))) })
	case *array.Decimal128, *array.Decimal256:
		each(func(i int) string { return numericFault(l, string(record.AppendText(nil, a, i))) })
	case *array.String:
		scanStrings(r, a, from, to, each)
	case *array.Date32:
		each(func(i int) string { return dayFault(t, l, int32(a.Value(i))) })
	case *array.Timestamp:
		each(func(i int) string { return instantFault(t, l, int64(a.Value(i))) })
	case *array.Time64:
		each(func(i int) string { return clockFault(t, l, int64(a.Value(i))) })
	case *array.List, *array.Map, *array.Struct, array.ExtensionArray:
		scanNested(t, l, a, each)
	default:
		if l.Min != 0 || l.Max != 0 {
			each(func(i int) string { return integerFault(l, a, i) })
		}
	}
}

// scanNested applies the limits of shape to an array, and those of values to all that it holds.
func scanNested(t record.Type, l connector.Limits, a arrow.Array, each func(func(i int) string)) {
	inside := func(t record.Type, child arrow.Array, from, to int) (fault string) {
		scan(rule{t, l}, child, from, to, func(_ int, why string) {
			if fault == "" {
				fault = why
			}
		})
		return fault
	}
	switch a := a.(type) {
	case *array.Map:
		each(func(i int) string {
			from, to := a.ValueOffsets(i)
			if w := inside(*t.Key, a.Keys(), int(from), int(to)); w != "" {
				return w
			}
			return inside(*t.Elem, a.Items(), int(from), int(to))
		})
	case *array.List:
		each(func(i int) string {
			from, to := a.ValueOffsets(i)
			return inside(*t.Elem, a.ListValues(), int(from), int(to))
		})
	case *array.Struct:
		each(func(i int) string {
			for f, field := range t.Fields {
				if w := inside(field.Type, a.Field(f), i, i+1); w != "" {
					return w
				}
			}
			return ""
		})
	case array.ExtensionArray:
		each(func(i int) string {
			v := record.ArrayOf(a, i)
			if w := shapeFault(l, v); w != "" {
				return w
			}
			return inside(*t.Elem, v.Values, v.From, v.To)
		})
	}
}

func shapeFault(l connector.Limits, v record.ArrayValue) string {
	rank := len(v.Dims)
	switch {
	case l.MaxRank > 0 && rank > l.MaxRank:
		return fmt.Sprintf("an array of %d dimensions, and at most %d fit", rank, l.MaxRank)
	case l.Rank > 0 && rank > 0 && rank != l.Rank:
		return fmt.Sprintf("an array of %d dimensions, and only %d fit", rank, l.Rank)
	case l.LowerBounds && !v.DefaultBounds():
		return "an array that does not start at 1"
	}
	return ""
}

func floatFault(l connector.Limits, f float64) string {
	switch {
	case l.NoNaN && math.IsNaN(f):
		return "NaN can't be held"
	case l.NoInfinity && math.IsInf(f, 0):
		return "infinity can't be held"
	case l.NoMinusZero && f == 0 && math.Signbit(f):
		return "the sign of -0 can't be held"
	}
	return ""
}

func dayFault(t record.Type, l connector.Limits, d int32) string {
	if t.Infinite && record.InfiniteDate(d) != 0 {
		if l.NoInfinity {
			return "infinity can't be held"
		}
		return ""
	}
	return rangeFault(l, int64(d), record.AppendDate)
}

func instantFault(t record.Type, l connector.Limits, v int64) string {
	if t.Infinite && record.InfiniteTimestamp(v) != 0 {
		if l.NoInfinity {
			return "infinity can't be held"
		}
		return ""
	}
	if l.MicrosOnly && t.Unit == arrow.Nanosecond && v%1000 != 0 {
		return "it has digits below a microsecond"
	}
	if l.Min == 0 && l.Max == 0 {
		return ""
	}
	return rangeFault(l, micros(v, t.Unit), func(b []byte, v int64) []byte {
		return record.AppendTimestamp(b, v, arrow.Microsecond, t.Zoned)
	})
}

// micros is an instant in microseconds, rounded down; what overflows is the largest or smallest.
func micros(v int64, u arrow.TimeUnit) int64 {
	factor := int64(1)
	switch u {
	case arrow.Second:
		factor = 1_000_000
	case arrow.Millisecond:
		factor = 1000
	case arrow.Microsecond:
	case arrow.Nanosecond:
		q := v / 1000
		if v%1000 < 0 {
			q--
		}
		return q
	}
	switch {
	case v > math.MaxInt64/factor:
		return math.MaxInt64
	case v < math.MinInt64/factor:
		return math.MinInt64
	}
	return v * factor
}

func clockFault(t record.Type, l connector.Limits, v int64) string {
	if l.MicrosOnly && t.Unit == arrow.Nanosecond && v%1000 != 0 {
		return "it has digits below a microsecond"
	}
	return ""
}

func rangeFault(l connector.Limits, v int64, text func([]byte, int64) []byte) string {
	if (l.Min == 0 && l.Max == 0) || (v >= l.Min && v <= l.Max) {
		return ""
	}
	return fmt.Sprintf("it is outside of %s to %s", text(nil, l.Min), text(nil, l.Max))
}

func integerFault(l connector.Limits, a arrow.Array, i int) string {
	plain := func(b []byte, v int64) []byte { return strconv.AppendInt(b, v, 10) }
	if u, ok := a.(*array.Uint64); ok && u.Value(i) > math.MaxInt64 {
		return rangeFault(connector.Limits{Min: l.Min, Max: min(l.Max, math.MaxInt64-1)}, math.MaxInt64, plain)
	}
	v, err := strconv.ParseInt(string(record.AppendText(nil, a, i)), 10, 64)
	if err != nil {
		return "" // no integer: these limits say nothing
	}
	return rangeFault(l, v, plain)
}

// scanStrings covers text and all that is kept as text. Whole columns are passed over where a look at their bytes is enough.
func scanStrings(r rule, a *array.String, from, to int, each func(func(i int) string)) {
	t, l := r.typ, r.limits
	if t.Kind == record.Numeric {
		each(func(i int) string { return numericFault(l, a.Value(i)) })
		return
	}
	if l.NoNUL && from < to {
		all := a.ValueBytes()
		l.NoNUL = bytes.IndexByte(all, 0) >= 0 || (t.Kind == record.JSON && bytes.Contains(all, []byte(`\u0000`)))
	}
	if !l.NoNUL && l.MaxChars == 0 && l.Labels == nil {
		return
	}
	each(func(i int) string { return textFault(t, l, a.Value(i)) })
}

func textFault(t record.Type, l connector.Limits, s string) string {
	switch {
	case l.NoNUL && strings.IndexByte(s, 0) >= 0:
		return "it has a zero character"
	case l.NoNUL && t.Kind == record.JSON && withoutNUL(s) != s:
		return `it has a zero character (\u0000)`
	case l.MaxChars > 0 && len(s) > l.MaxChars && utf8.RuneCountInString(s) > l.MaxChars:
		return fmt.Sprintf("it has %d characters, and %d fit", utf8.RuneCountInString(s), l.MaxChars)
	case l.Labels != nil && !slices.Contains(l.Labels, s):
		return fmt.Sprintf("it is none of the labels %q", l.Labels)
	}
	return ""
}

// numericFault looks at a number in plain digits. Zeros behind the last digit of the fraction don't count.
func numericFault(l connector.Limits, s string) string {
	switch s {
	case "NaN":
		if l.NoNaN {
			return "NaN can't be held"
		}
		return ""
	case "Infinity", "-Infinity":
		if l.NoInfinity {
			return "infinity can't be held"
		}
		return ""
	}
	if l.Precision > 0 {
		whole, frac, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
		whole, frac = strings.TrimLeft(whole, "0"), strings.TrimRight(frac, "0")
		if len(whole) > int(l.Precision-l.Scale) || len(frac) > int(l.Scale) {
			return fmt.Sprintf("it has %d digits before the point and %d after it, and %d and %d fit",
				len(whole), len(frac), l.Precision-l.Scale, l.Scale)
		}
	}
	if l.Min == 0 && l.Max == 0 {
		return ""
	}
	r, ok := new(big.Rat).SetString(s)
	if ok && (r.Cmp(new(big.Rat).SetInt64(l.Min)) < 0 || r.Cmp(new(big.Rat).SetInt64(l.Max)) > 0) {
		return fmt.Sprintf("it is outside of %d to %d", l.Min, l.Max)
	}
	return ""
}

// stripped leaves out the characters that don't fit.
func stripped(t record.Type, s string) (string, bool) {
	switch {
	case t.Nested():
		return "", false
	case t.Kind == record.JSON:
		return withoutNUL(s), true
	}
	return strings.ReplaceAll(s, "\x00", ""), true
}

// withoutNUL drops the escape \u0000 from a JSON document, but not an escaped backslash in front of the text u0000.
func withoutNUL(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '\\' || i+1 == len(s):
			b.WriteByte(s[i])
		case strings.HasPrefix(s[i:], `\u0000`):
			i += len(`\u0000`) - 1
		default:
			b.WriteString(s[i : i+2])
			i++
		}
	}
	return b.String()
}

// clamped is the nearest value to value i that fits, in text form; false: there is none.
func clamped(r rule, a arrow.Array, i int) (string, bool) {
	t, l := r.typ, r.limits
	s := string(record.AppendText(nil, a, i))
	switch t.Kind {
	case record.String:
		if l.MaxChars > 0 && utf8.RuneCountInString(s) > l.MaxChars {
			return string([]rune(s)[:l.MaxChars]), true
		}
		return "", false
	case record.Float32:
		return clampedFloat(s, math.MaxFloat32, 32)
	case record.Float64:
		return clampedFloat(s, math.MaxFloat64, 64)
	case record.Numeric, record.Decimal:
		return clampedNumber(l, s)
	case record.Date:
		return clampedRange(l, ordinal(t, a, i), func(v int64) string { return string(record.AppendDate(nil, v)) })
	case record.Timestamp:
		v := ordinal(t, a, i)
		text := func(v int64) string { return string(record.AppendTimestamp(nil, v, arrow.Microsecond, t.Zoned)) }
		if l.MicrosOnly && (l.Min == 0 && l.Max == 0 || v >= l.Min && v <= l.Max) {
			return text(v), true
		}
		return clampedRange(l, v, text)
	case record.Int8, record.Int16, record.Int32, record.Int64, record.Uint8, record.Uint16, record.Uint32, record.Uint64:
		return clampedRange(l, ordinal(t, a, i), func(v int64) string { return strconv.FormatInt(v, 10) })
	default:
		return "", false
	}
}

func clampedFloat(s string, most float64, bits int) (string, bool) {
	switch s {
	case "Infinity":
		return string(record.AppendFloat(nil, most, bits)), true
	case "-Infinity":
		return string(record.AppendFloat(nil, -most, bits)), true
	case "-0":
		return "0", true
	}
	return "", false
}

// clampedRange is the end of the range that v lies beyond.
func clampedRange(l connector.Limits, v int64, text func(int64) string) (string, bool) {
	switch {
	case l.Min == 0 && l.Max == 0:
		return "", false
	case v > l.Max:
		return text(l.Max), true
	}
	return text(l.Min), true
}

// ordinal is a value as limits count it: days, microseconds or the integer itself; what is larger than every int64 is the largest.
func ordinal(t record.Type, a arrow.Array, i int) int64 {
	if e, ok := a.(array.ExtensionArray); ok {
		a = e.Storage()
	}
	switch a := a.(type) {
	case *array.Date32:
		return int64(a.Value(i))
	case *array.Timestamp:
		if sign := record.InfiniteTimestamp(int64(a.Value(i))); t.Infinite && sign != 0 {
			return int64(a.Value(i))
		}
		return micros(int64(a.Value(i)), t.Unit)
	}
	v, err := strconv.ParseInt(string(record.AppendText(nil, a, i)), 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return v
}

// clampedNumber rounds to the scale, half away from zero, and cuts at the largest number of the precision.
func clampedNumber(l connector.Limits, s string) (string, bool) {
	if l.Precision == 0 || s == "NaN" {
		return "", false
	}
	most := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(l.Precision)), nil)
	most.Sub(most, big.NewInt(1))
	n := new(big.Int).Set(most)
	switch s {
	case "Infinity":
	case "-Infinity":
		n.Neg(n)
	default:
		r, ok := new(big.Rat).SetString(s)
		if !ok {
			return "", false
		}
		r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(l.Scale)), nil)))
		rounded, ok := new(big.Int).SetString(r.FloatString(0), 10)
		if !ok {
			return "", false
		}
		if rounded.CmpAbs(most) <= 0 {
			n = rounded
		} else if rounded.Sign() < 0 {
			n.Neg(n)
		}
	}
	r := new(big.Rat).SetFrac(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(l.Scale)), nil))
	return r.FloatString(int(l.Scale)), true
}

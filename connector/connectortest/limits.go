package connectortest

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Fitting returns the values of a case that are within limits.
func Fitting(c Case, l connector.Limits) []string {
	b := Batch("fitting", c)
	var out []string
	for i, v := range c.Values {
		if fits(l, b.Rows.Column(1), i) {
			out = append(out, v)
		}
	}
	return out
}

// fits reports whether value i is within the limits that a sink states for its column: only such values are offered to it.
func fits(l connector.Limits, arr arrow.Array, i int) bool {
	if arr.IsNull(i) || l.Zero() {
		return true
	}
	t, err := record.TypeOf(arr.DataType())
	if err != nil {
		return false
	}
	switch t.Kind {
	case record.List, record.Map:
		return fitsList(l, arr, i)
	case record.Struct:
		st := arr.(*array.Struct) //nolint:forcetypeassert // of kind struct
		for f := range st.NumField() {
			if !fits(l, st.Field(f), i) {
				return false
			}
		}
		return true
	case record.Array:
		return fitsArray(l, arr, i)
	default:
		return fitsScalar(l, t, arr, i)
	}
}

func fitsList(l connector.Limits, arr arrow.Array, i int) bool {
	list := arr.(array.ListLike) //nolint:forcetypeassert // maps and lists are
	from, to := list.ValueOffsets(i)
	for j := from; j < to; j++ {
		if !fits(l, list.ListValues(), int(j)) {
			return false
		}
	}
	return true
}

func fitsArray(l connector.Limits, arr arrow.Array, i int) bool {
	v := record.ArrayOf(arr.(array.ExtensionArray), i) //nolint:forcetypeassert // of kind array
	switch {
	case l.MaxRank > 0 && len(v.Dims) > l.MaxRank,
		l.Rank > 0 && len(v.Dims) > 0 && len(v.Dims) != l.Rank,
		l.LowerBounds && !v.DefaultBounds():
		return false
	}
	for j := v.From; j < v.To; j++ {
		if !fits(l, v.Values, j) {
			return false
		}
	}
	return true
}

func fitsScalar(l connector.Limits, t record.Type, arr arrow.Array, i int) bool {
	text := string(record.AppendText(nil, arr, i))
	infinite := strings.HasSuffix(strings.ToLower(text), "infinity")
	switch {
	case t.Kind >= record.Int8 && t.Kind <= record.Uint64:
		n, ok := new(big.Int).SetString(text, 10)
		return ok && within(l, n)
	case t.Kind >= record.Float32 && t.Kind <= record.Numeric:
		if text == "NaN" {
			return !l.NoNaN
		}
		if infinite {
			return !l.NoInfinity
		}
		if l.NoMinusZero && text == "-0" {
			return false
		}
		return l.Precision == 0 || fitsDigits(l, text)
	case t.Kind == record.Date, t.Kind == record.Time, t.Kind == record.Timestamp:
		if t.Infinite && infinite {
			return !l.NoInfinity
		}
		return fitsTemporal(l, t, arr, i)
	case t.Kind == record.String, t.Kind == record.JSON, t.Kind == record.Enum, t.Kind == record.Foreign:
		return fitsText(l, t, text)
	default:
		return true
	}
}

func fitsText(l connector.Limits, t record.Type, text string) bool {
	nul := strings.ContainsRune(text, 0) || (t.Kind == record.JSON && strings.Contains(text, `\u0000`))
	if l.NoNUL && nul {
		return false
	}
	return (l.MaxChars == 0 || utf8.RuneCountInString(text) <= l.MaxChars) && (l.Labels == nil || slices.Contains(l.Labels, text))
}

func within(l connector.Limits, n *big.Int) bool {
	if l.Min == 0 && l.Max == 0 {
		return true
	}
	return n.Cmp(big.NewInt(l.Min)) >= 0 && n.Cmp(big.NewInt(l.Max)) <= 0
}

// fitsDigits counts the digits of a plain number.
func fitsDigits(l connector.Limits, text string) bool {
	if strings.ContainsAny(text, "eE") {
		return false
	}
	whole, frac, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	frac = strings.TrimRight(frac, "0")
	return len(strings.TrimLeft(whole, "0")) <= int(l.Precision-l.Scale) && len(frac) <= int(l.Scale)
}

func fitsTemporal(l connector.Limits, t record.Type, arr arrow.Array, i int) bool {
	if ext, ok := arr.(array.ExtensionArray); ok {
		arr = ext.Storage()
	}
	var n *big.Int
	switch a := arr.(type) {
	case *array.Date32:
		return within(l, big.NewInt(int64(a.Value(i))))
	case *array.Time32:
		n = big.NewInt(int64(a.Value(i)))
	case *array.Time64:
		n = big.NewInt(int64(a.Value(i)))
	case *array.Timestamp:
		n = big.NewInt(int64(a.Value(i)))
	default:
		return true
	}
	perMicro := big.NewInt(int64(math.Pow10(max(0, int(t.Unit)*3-6)))) // 1,000 for nanoseconds
	if l.MicrosOnly && new(big.Int).Mod(n, perMicro).Sign() != 0 {
		return false
	}
	n.Mul(n, big.NewInt(int64(math.Pow10(max(0, 6-int(t.Unit)*3)))))
	return within(l, n.Div(n, perMicro))
}

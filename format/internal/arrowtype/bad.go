package arrowtype

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// Bad returns the rows of an array of the vocabulary whose values no such column may hold, with the reason; nil where all is well.
// Connectors trust what they are handed, so readers of foreign bytes ask this first.
func Bad(arr arrow.Array) map[int]string {
	if arr.NullN() == arr.Len() {
		return nil
	}
	switch a := arr.(type) {
	case *array.String:
		if validStrings(a) {
			return nil
		}
		return each(a, func(i int) string {
			if !utf8.ValidString(a.Value(i)) {
				return "text is not valid UTF-8"
			}
			return ""
		})
	case *array.Time32, *array.Time64:
		return badTimes(arr)
	case *array.Struct:
		var bad map[int]string
		for f := range a.NumField() {
			for i, why := range Bad(a.Field(f)) {
				if a.IsValid(i) {
					bad = put(bad, i, why)
				}
			}
		}
		return bad
	case *array.Map:
		return badElements(a)
	case *array.List:
		return badElements(a)
	case array.ExtensionArray:
		return badExtension(a)
	}
	return nil
}

func put(bad map[int]string, i int, why string) map[int]string {
	if bad == nil {
		bad = map[int]string{}
	}
	bad[i] = why
	return bad
}

// each collects the rows for which why says something.
func each(arr arrow.Array, why func(i int) string) map[int]string {
	var bad map[int]string
	for i := range arr.Len() {
		if arr.IsNull(i) {
			continue
		}
		if w := why(i); w != "" {
			bad = put(bad, i, w)
		}
	}
	return bad
}

// validStrings looks at all bytes at once: they are valid, and no value begins inside a character.
func validStrings(a *array.String) bool {
	offsets := a.ValueOffsets()
	if len(offsets) == 0 {
		return true
	}
	data := a.ValueBytes()
	if !utf8.Valid(data) {
		return false
	}
	base := offsets[0]
	for _, o := range offsets {
		if at := int(o - base); at < len(data) && !utf8.RuneStart(data[at]) {
			return false
		}
	}
	return true
}

func badTimes(arr arrow.Array) map[int]string {
	unit, value := arrow.Second, func(int) int64 { return 0 }
	switch a := arr.(type) {
	case *array.Time32:
		unit = a.DataType().(*arrow.Time32Type).Unit //nolint:forcetypeassert // by its type
		value = func(i int) int64 { return int64(a.Value(i)) }
	case *array.Time64:
		unit = a.DataType().(*arrow.Time64Type).Unit //nolint:forcetypeassert // by its type
		value = func(i int) int64 { return int64(a.Value(i)) }
	}
	day := int64(86_400)
	for range unit {
		day *= 1_000
	}
	return each(arr, func(i int) string {
		if v := value(i); v < 0 || v > day {
			return fmt.Sprintf("%d %s is no time of day", v, unit)
		}
		return ""
	})
}

// badElements finds the rows that bad elements are in.
func badElements(a lists) map[int]string {
	elements := Bad(a.ListValues())
	if elements == nil {
		return nil
	}
	at := make([]int, 0, len(elements))
	for j := range elements {
		at = append(at, j)
	}
	sort.Ints(at)
	return each(a, func(i int) string {
		from, to := a.ValueOffsets(i)
		n := sort.SearchInts(at, int(from))
		if n < len(at) && at[n] < int(to) {
			return "element: " + elements[at[n]]
		}
		return ""
	})
}

func badExtension(a array.ExtensionArray) map[int]string {
	t, err := record.TypeOf(a.DataType())
	if err != nil {
		return each(a, func(int) string { return err.Error() })
	}
	if t.Kind == record.Array {
		return badArrays(a)
	}
	text, ok := a.Storage().(*array.String)
	if !ok {
		return nil
	}
	if bad := Bad(text); bad != nil {
		return bad
	}
	switch t.Kind {
	case record.JSON:
		return each(a, func(i int) string {
			if err := record.CheckJSON([]byte(text.Value(i))); err != nil {
				return err.Error()
			}
			return ""
		})
	case record.Numeric:
		return each(a, func(i int) string {
			if c, err := record.CanonicalNumeric(text.Value(i)); err != nil || c != text.Value(i) {
				return "is no number in canonical form"
			}
			return ""
		})
	case record.Bits:
		return each(a, func(i int) string {
			if strings.Trim(text.Value(i), "01") != "" {
				return "is no bit string"
			}
			return ""
		})
	default:
		return nil
	}
}

func badArrays(a array.ExtensionArray) map[int]string {
	if bad := Bad(a.Storage()); bad != nil {
		return bad
	}
	st := a.Storage().(*array.Struct) //nolint:forcetypeassert // checked by TypeOf
	return each(a, func(i int) string {
		if st.Field(0).IsNull(i) || st.Field(1).IsNull(i) || st.Field(2).IsNull(i) {
			return "the array has no shape"
		}
		v := record.ArrayOf(a, i)
		n := int64(1)
		for _, d := range v.Dims {
			if d < 1 || n > int64(v.To-v.From) {
				return fmt.Sprintf("an array of %d elements has the dimensions %v", v.To-v.From, v.Dims)
			}
			n *= int64(d)
		}
		if len(v.Dims) == 0 {
			n = 0
		}
		if n != int64(v.To-v.From) || len(v.Dims) != len(v.Lower) {
			return fmt.Sprintf("an array of %d elements has the dimensions %v and the lower bounds %v", v.To-v.From, v.Dims, v.Lower)
		}
		return ""
	})
}

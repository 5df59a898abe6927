package sqlite

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/record"
)

// binder binds value i, which is not null, of a column to a parameter.
type binder func(st *sqlite.Stmt, param, i int) error

// newBinder makes the binder of one column of a batch.
func newBinder(arr arrow.Array, how storage) binder {
	switch how {
	case asNumber:
		return bindNumber(arr)
	case asSigned:
		return bindSigned(arr)
	case asBlob:
		return bindBlob(arr)
	case asExactNumber:
		return bindExact(arr)
	default:
		if s, ok := textStorage(arr); ok {
			return func(st *sqlite.Stmt, param, i int) error {
				st.BindText(param, s.Value(i))
				return nil
			}
		}
		var buf []byte
		return func(st *sqlite.Stmt, param, i int) error {
			buf = record.AppendText(buf[:0], arr, i)
			st.BindText(param, string(buf))
			return nil
		}
	}
}

// textStorage returns the texts of the types that are kept as text.
func textStorage(arr arrow.Array) (*array.String, bool) {
	if e, ok := arr.(array.ExtensionArray); ok {
		arr = e.Storage()
	}
	s, ok := arr.(*array.String)
	return s, ok
}

func bindInt[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](values []T) binder {
	return func(st *sqlite.Stmt, param, i int) error {
		st.BindInt64(param, int64(values[i]))
		return nil
	}
}

func bindNumber(arr arrow.Array) binder {
	switch a := arr.(type) {
	case *array.Int8:
		return bindInt(a.Int8Values())
	case *array.Int16:
		return bindInt(a.Int16Values())
	case *array.Int32:
		return bindInt(a.Int32Values())
	case *array.Int64:
		return bindInt(a.Int64Values())
	case *array.Uint8:
		return bindInt(a.Uint8Values())
	case *array.Uint16:
		return bindInt(a.Uint16Values())
	case *array.Uint32:
		return bindInt(a.Uint32Values())
	case *array.Boolean:
		return func(st *sqlite.Stmt, param, i int) error {
			st.BindBool(param, a.Value(i))
			return nil
		}
	case *array.Float32:
		return func(st *sqlite.Stmt, param, i int) error { return bindFloat(st, param, float64(a.Value(i))) }
	case *array.Float64:
		return func(st *sqlite.Stmt, param, i int) error { return bindFloat(st, param, a.Value(i)) }
	}
	return func(*sqlite.Stmt, int, int) error {
		return fmt.Errorf("a value of type %s is no number", arr.DataType())
	}
}

func bindFloat(st *sqlite.Stmt, param int, f float64) error {
	if math.IsNaN(f) {
		return errors.New("SQLite has no NaN")
	}
	st.BindFloat(param, f)
	return nil
}

// bindSigned refuses -0, which a column of real or numeric affinity stores as 0.
func bindSigned(arr arrow.Array) binder {
	inner := bindNumber(arr)
	var at func(i int) float64
	switch a := arr.(type) {
	case *array.Float32:
		at = func(i int) float64 { return float64(a.Value(i)) }
	case *array.Float64:
		at = a.Value
	default:
		return inner
	}
	return func(st *sqlite.Stmt, param, i int) error {
		if f := at(i); f == 0 && math.Signbit(f) {
			return errors.New("SQLite keeps no sign of -0")
		}
		return inner(st, param, i)
	}
}

func bindBlob(arr arrow.Array) binder {
	switch a := arr.(type) {
	case *array.Binary:
		return func(st *sqlite.Stmt, param, i int) error {
			st.BindBytes(param, a.Value(i))
			return nil
		}
	case *array.FixedSizeBinary:
		return func(st *sqlite.Stmt, param, i int) error {
			st.BindBytes(param, a.Value(i))
			return nil
		}
	}
	return func(*sqlite.Stmt, int, int) error {
		return fmt.Errorf("a value of type %s is not binary", arr.DataType())
	}
}

// bindExact stores a number as an integer or a double, whichever is exactly that number when it is read back.
func bindExact(arr arrow.Array) binder {
	if b := bindDecimal(arr); b != nil {
		return b
	}
	var buf []byte
	return func(st *sqlite.Stmt, param, i int) error {
		buf = record.AppendText(buf[:0], arr, i)
		text := string(buf)
		if whole, frac, _ := strings.Cut(text, "."); strings.Trim(frac, "0") == "" {
			if n, err := strconv.ParseInt(whole, 10, 64); err == nil {
				st.BindInt64(param, n)
				return nil
			}
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || !sameNumber(text, f) {
			return fmt.Errorf("%s has more digits than a number of SQLite holds", shorten(text))
		}
		st.BindFloat(param, f)
		return nil
	}
}

// bindDecimal is bindExact for decimals that always fit: the nearest double of 15 digits is their quotient, and reads back as them.
// Nil: they need not fit.
func bindDecimal(arr arrow.Array) binder {
	a, ok := arr.(*array.Decimal128)
	if !ok {
		return nil
	}
	t, ok := a.DataType().(*arrow.Decimal128Type)
	if !ok || t.Precision > realDigits || t.Scale < 0 || t.Scale > realDigits {
		return nil
	}
	per := pow10(t.Scale)
	return func(st *sqlite.Stmt, param, i int) error {
		n := int64(a.Value(i).LowBits())
		if n%per == 0 {
			st.BindInt64(param, n/per)
			return nil
		}
		st.BindFloat(param, float64(n)/float64(per))
		return nil
	}
}

func pow10(n int32) int64 {
	p := int64(1)
	for range n {
		p *= 10
	}
	return p
}

// sameNumber reports whether the shortest form of f is the number that text is.
func sameNumber(text string, f float64) bool {
	if math.IsInf(f, 0) {
		return strings.HasSuffix(text, "Infinity")
	}
	back, err := record.CanonicalNumeric(strconv.FormatFloat(f, 'f', -1, 64))
	return err == nil && trimZeros(back) == trimZeros(text)
}

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

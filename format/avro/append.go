package avro

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/record"
)

// appender appends value i of an array, which is not null.
type appender func(dst []byte, arr arrow.Array, i int) ([]byte, error)

// AppendLong appends a variable-length integer.
func AppendLong(dst []byte, v int64) []byte {
	return binary.AppendUvarint(dst, uint64(v)<<1^uint64(v>>63))
}

// AppendText appends a text.
func AppendText(dst []byte, v string) []byte { return append(AppendLong(dst, int64(len(v))), v...) }

func appendBytes(dst, v []byte) []byte { return append(AppendLong(dst, int64(len(v))), v...) }

var errNull = errors.New("it is null where its schema has no null")

// full appends a value that may be null.
func full(s *connect.Schema, put appender) appender {
	if !s.Optional {
		return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
			if arr.IsNull(i) {
				return dst, errNull
			}
			return put(dst, arr, i)
		}
	}
	return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
		if arr.IsNull(i) {
			return append(dst, 0), nil
		}
		return put(append(dst, 2), arr, i)
	}
}

// appenderOf returns what appends values of a type as a type of Connect.
func appenderOf(s *connect.Schema, t record.Type) (appender, error) {
	switch s.Type {
	case connect.Boolean:
		return appendBool, nil
	case connect.Int8, connect.Int16, connect.Int32, connect.Int64:
		return integers(s, t)
	case connect.Float32, connect.Float64:
		return appendFloat, nil
	case connect.String:
		return texts(t), nil
	case connect.Bytes:
		return binaries(s, t)
	case connect.Array:
		if t.Kind == record.Array {
			return arrays(s, t)
		}
		return listsOf(s, t)
	case connect.Map:
		return maps(s, t)
	case connect.Struct:
		return structs(s, t)
	default:
		return nil, fmt.Errorf("values of type %s have no form in Avro", t)
	}
}

func storage(arr arrow.Array) arrow.Array {
	if e, ok := arr.(array.ExtensionArray); ok {
		return e.Storage()
	}
	return arr
}

func appendBool(dst []byte, arr arrow.Array, i int) ([]byte, error) {
	v := false
	switch a := storage(arr).(type) {
	case *array.Boolean:
		v = a.Value(i)
	case *array.String:
		v = a.Value(i) == "1"
	}
	if v {
		return append(dst, 1), nil
	}
	return append(dst, 0), nil
}

// number returns an integer of any width, or the count of a time.
func number(arr arrow.Array, i int) int64 {
	switch a := storage(arr).(type) {
	case *array.Int64:
		return a.Value(i)
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Int16:
		return int64(a.Value(i))
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Uint32:
		return int64(a.Value(i))
	case *array.Uint16:
		return int64(a.Value(i))
	case *array.Uint8:
		return int64(a.Value(i))
	case *array.Date32:
		return int64(a.Value(i))
	case *array.Time32:
		return int64(a.Value(i))
	case *array.Time64:
		return int64(a.Value(i))
	case *array.Timestamp:
		return int64(a.Value(i))
	case *array.Duration:
		return int64(a.Value(i))
	}
	return 0
}

// integers converts the unit of times.
func integers(s *connect.Schema, t record.Type) (appender, error) {
	unit, timed := connect.UnitOf(s)
	if !timed || (t.Kind != record.Time && t.Kind != record.Timestamp && t.Kind != record.Duration) {
		return func(dst []byte, arr arrow.Array, i int) ([]byte, error) { return AppendLong(dst, number(arr, i)), nil }, nil
	}
	debezium := t.Infinite && s.Name == connect.MicroTimestamp
	return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
		v := number(arr, i)
		if debezium {
			if inf := record.InfiniteTimestamp(v); inf != 0 {
				return AppendLong(dst, connect.Infinite(inf)), nil
			}
		}
		if t.Unit != unit {
			var err error
			if v, err = connect.Convert(v, t.Unit, unit); err != nil {
				return dst, err
			}
		}
		return AppendLong(dst, v), nil
	}, nil
}

func appendFloat(dst []byte, arr arrow.Array, i int) ([]byte, error) {
	switch a := arr.(type) {
	case *array.Float64:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(a.Value(i))), nil
	case *array.Float32:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(a.Value(i))), nil
	}
	return dst, nil
}

// texts writes the text form of a value.
func texts(t record.Type) appender {
	switch t.Kind {
	case record.String, record.JSON, record.Enum, record.Foreign, record.Network, record.Bits, record.Numeric:
		return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
			a, ok := storage(arr).(*array.String)
			if !ok {
				return dst, fmt.Errorf("column of type %s", arr.DataType())
			}
			v := a.Value(i)
			return append(AppendLong(dst, int64(len(v))), v...), nil
		}
	default:
		var scratch []byte
		return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
			scratch = record.AppendText(scratch[:0], arr, i)
			return appendBytes(dst, scratch), nil
		}
	}
}

func binaries(s *connect.Schema, t record.Type) (appender, error) {
	switch {
	case s.Name == connect.Decimal && (t.Kind == record.Uint64 || t.Kind == record.Decimal):
		return appendDecimal, nil
	case s.Name == connect.Bits && t.Kind == record.Bits:
		var packed []byte
		return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
			digits := record.AppendText(nil, arr, i)
			packed = append(packed[:0], make([]byte, (len(digits)+7)/8)...)
			for n, d := range digits {
				if place := len(digits) - 1 - n; d == '1' {
					packed[place/8] |= 1 << (place % 8)
				}
			}
			return appendBytes(dst, packed), nil
		}, nil
	case t.Kind == record.Binary:
		return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
			switch a := arr.(type) {
			case *array.Binary:
				return appendBytes(dst, a.Value(i)), nil
			case *array.FixedSizeBinary:
				return appendBytes(dst, a.Value(i)), nil
			}
			return dst, nil
		}, nil
	}
	return nil, fmt.Errorf("values of type %s have no form as bytes", t)
}

func appendDecimal(dst []byte, arr arrow.Array, i int) ([]byte, error) {
	var buf [connect.UnscaledBytes]byte
	return appendBytes(dst, connect.Unscaled(buf[:0], arr, i)), nil
}

func listsOf(s *connect.Schema, t record.Type) (appender, error) {
	elem, err := element(s.Elem, *t.Elem)
	if err != nil {
		return nil, err
	}
	return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
		l := arr.(*array.List) //nolint:forcetypeassert // by its type
		from, to := l.ValueOffsets(i)
		return run(dst, l.ListValues(), int(from), int(to), elem)
	}, nil
}

func element(s *connect.Schema, t record.Type) (appender, error) {
	put, err := appenderOf(s, t)
	if err != nil {
		return nil, err
	}
	return full(s, put), nil
}

// run appends one block of elements, and the end of the blocks.
func run(dst []byte, arr arrow.Array, from, to int, elem appender) ([]byte, error) {
	if to > from {
		dst = AppendLong(dst, int64(to-from))
	}
	var err error
	for j := from; j < to; j++ {
		if dst, err = elem(dst, arr, j); err != nil {
			return dst, err
		}
	}
	return append(dst, 0), nil
}

// arrays writes lists in lists, as many as the column has dimensions.
func arrays(s *connect.Schema, t record.Type) (appender, error) {
	leaf := s
	for range t.Rank {
		leaf = leaf.Elem
	}
	elem, err := element(leaf, *t.Elem)
	if err != nil {
		return nil, err
	}
	return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
		v := record.ArrayOf(arr.(array.ExtensionArray), i) //nolint:forcetypeassert // by its type
		switch {
		case len(v.Dims) == 0:
			return append(dst, 0), nil
		case len(v.Dims) != t.Rank:
			return dst, fmt.Errorf("an array has %d dimensions, and its column %d", len(v.Dims), t.Rank)
		case !v.DefaultBounds():
			return dst, errors.New("an array has other lower bounds than 1, which lists don't have")
		}
		at := v.From
		return dimension(dst, v, 0, &at, elem)
	}, nil
}

func dimension(dst []byte, v record.ArrayValue, dim int, at *int, elem appender) ([]byte, error) {
	n := int(v.Dims[dim])
	if dim == len(v.Dims)-1 {
		from := *at
		*at += n
		return run(dst, v.Values, from, *at, elem)
	}
	dst = AppendLong(dst, int64(n))
	var err error
	for range n {
		if dst, err = dimension(dst, v, dim+1, at, elem); err != nil {
			return dst, err
		}
	}
	return append(dst, 0), nil
}

func maps(s *connect.Schema, t record.Type) (appender, error) {
	key, err := element(s.Key, *t.Key)
	if err != nil {
		return nil, err
	}
	item, err := element(s.Elem, *t.Elem)
	if err != nil {
		return nil, err
	}
	return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
		m := arr.(*array.Map) //nolint:forcetypeassert // by its type
		from, to := m.ValueOffsets(i)
		if to > from {
			dst = AppendLong(dst, to-from)
		}
		var err error
		for j := int(from); j < int(to); j++ {
			if dst, err = key(dst, m.Keys(), j); err != nil {
				return dst, err
			}
			if dst, err = item(dst, m.Items(), j); err != nil {
				return dst, err
			}
		}
		return append(dst, 0), nil
	}, nil
}

func structs(s *connect.Schema, t record.Type) (appender, error) {
	parts := make([]appender, len(t.Fields))
	for i, f := range t.Fields {
		var err error
		if parts[i], err = element(s.Fields[i].Schema, f.Type); err != nil {
			return nil, fmt.Errorf("field %q: %w", f.Name, err)
		}
	}
	return func(dst []byte, arr arrow.Array, i int) ([]byte, error) {
		st := arr.(*array.Struct) //nolint:forcetypeassert // by its type
		var err error
		for n, put := range parts {
			if dst, err = put(dst, st.Field(n), i); err != nil {
				return dst, err
			}
		}
		return dst, nil
	}, nil
}

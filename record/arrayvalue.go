package record

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// ArrayValue is one value of ArrayType: its shape, and where its elements are. Elements are in row-major order.
type ArrayValue struct {
	Dims   []int32 // elements in each dimension; empty: an empty array
	Lower  []int32 // lower bound of each dimension
	Values arrow.Array
	From   int // first element in Values
	To     int // behind the last one
}

// ArrayOf returns value i, which must not be null, of an array of ArrayType.
func ArrayOf(a array.ExtensionArray, i int) ArrayValue {
	st := a.Storage().(*array.Struct) //nolint:forcetypeassert // checked by TypeOf
	ints := func(f int) []int32 {
		l := st.Field(f).(*array.List) //nolint:forcetypeassert // checked by TypeOf
		from, to := l.ValueOffsets(i)
		return l.ListValues().(*array.Int32).Int32Values()[from:to] //nolint:forcetypeassert // checked by TypeOf
	}
	values := st.Field(2).(*array.List) //nolint:forcetypeassert // checked by TypeOf
	from, to := values.ValueOffsets(i)
	return ArrayValue{Dims: ints(0), Lower: ints(1), Values: values.ListValues(), From: int(from), To: int(to)}
}

// DefaultBounds reports whether every dimension starts at 1, as nearly all arrays do.
func (v ArrayValue) DefaultBounds() bool {
	for _, l := range v.Lower {
		if l != 1 {
			return false
		}
	}
	return true
}

// ArrayBuilder appends values to a builder of ArrayType.
type ArrayBuilder struct {
	st           *array.StructBuilder
	dims, lower  *array.ListBuilder
	values       *array.ListBuilder
	dimB, lowerB *array.Int32Builder
}

// NewArrayBuilder wraps a builder that was made for ArrayType.
func NewArrayBuilder(b array.Builder) (*ArrayBuilder, error) {
	eb, ok := b.(*array.ExtensionBuilder)
	if !ok {
		return nil, fmt.Errorf("%s is no array type", b.Type())
	}
	st, ok := eb.StorageBuilder().(*array.StructBuilder)
	if !ok || st.NumField() != 3 {
		return nil, fmt.Errorf("%s is no array type", b.Type())
	}
	ab := &ArrayBuilder{st: st}
	ab.dims, _ = st.FieldBuilder(0).(*array.ListBuilder)
	ab.lower, _ = st.FieldBuilder(1).(*array.ListBuilder)
	ab.values, _ = st.FieldBuilder(2).(*array.ListBuilder)
	if ab.dims == nil || ab.lower == nil || ab.values == nil {
		return nil, fmt.Errorf("%s is no array type", b.Type())
	}
	ab.dimB, _ = ab.dims.ValueBuilder().(*array.Int32Builder)
	ab.lowerB, _ = ab.lower.ValueBuilder().(*array.Int32Builder)
	return ab, nil
}

// Append starts a value of the given shape; its elements, as many as the dimensions say, are appended to Elements afterwards.
func (b *ArrayBuilder) Append(dims, lower []int32) {
	b.st.Append(true)
	b.dims.Append(true)
	b.dimB.AppendValues(dims, nil)
	b.lower.Append(true)
	b.lowerB.AppendValues(lower, nil)
	b.values.Append(true)
}

// AppendNull appends a null array.
func (b *ArrayBuilder) AppendNull() { b.st.AppendNull() }

// Elements is the builder of the elements.
func (b *ArrayBuilder) Elements() array.Builder { return b.values.ValueBuilder() }

// appendJSONArray appends nested arrays, or where they can't express the value an object: {"lower":[…],"values":…} for lower
// bounds that are not all 1, and {"dims":[…],"lower":[…],"values":[…]} with flat values where an element may itself begin with a
// bracket.
func appendJSONArray(dst []byte, v ArrayValue) []byte {
	at, flat := v.From, v.bracketed()
	if v.DefaultBounds() && !flat {
		return appendDim(dst, v, 0, &at)
	}
	dst = append(dst, '{')
	if flat {
		dst = append(appendInts(append(dst, `"dims":`...), v.Dims), ',')
	}
	if !v.DefaultBounds() {
		dst = append(appendInts(append(dst, `"lower":`...), v.Lower), ',')
	}
	dst = append(dst, `"values":`...)
	if flat {
		dst = appendJSONList(dst, v.Values, int64(v.From), int64(v.To))
	} else {
		dst = appendDim(dst, v, 0, &at)
	}
	return append(dst, '}')
}

// bracketed reports whether the JSON form of an element is an array, so that it would look like one more dimension.
func (v ArrayValue) bracketed() bool {
	switch a := v.Values.(type) {
	case *array.List, *array.Map:
		return v.To > v.From
	case array.ExtensionArray:
		switch a.ExtensionType().ExtensionName() {
		case extArray:
			return v.To > v.From
		case extJSON:
			for i := v.From; i < v.To; i++ {
				if !a.IsNull(i) && bytes.HasPrefix(bytes.TrimSpace(appendExtText(nil, a, i)), []byte("[")) {
					return true
				}
			}
		}
	}
	return false
}

func appendInts(dst []byte, list []int32) []byte {
	dst = append(dst, '[')
	for i, n := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	return append(dst, ']')
}

func appendDim(dst []byte, v ArrayValue, dim int, at *int) []byte {
	if dim == len(v.Dims) {
		if dim == 0 {
			return append(dst, "[]"...)
		}
		dst = AppendJSON(dst, v.Values, *at)
		*at++
		return dst
	}
	dst = append(dst, '[')
	for j := range v.Dims[dim] {
		if j > 0 {
			dst = append(dst, ',')
		}
		dst = appendDim(dst, v, dim+1, at)
	}
	return append(dst, ']')
}

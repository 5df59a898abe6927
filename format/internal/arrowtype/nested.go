package arrowtype

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// validity returns the bitmap of an array from its first row on; nil where nothing is null.
func validity(arr arrow.Array) *memory.Buffer {
	if arr.NullN() == 0 {
		return nil
	}
	d := arr.Data()
	if d.Offset() == 0 {
		return d.Buffers()[0]
	}
	bits := make([]byte, bitutil.BytesForBits(int64(arr.Len())))
	for i := range arr.Len() {
		if arr.IsValid(i) {
			bitutil.SetBit(bits, i)
		}
	}
	return memory.NewBufferBytes(bits)
}

func toStruct(arr arrow.Array, to *arrow.StructType) (arrow.Array, error) {
	a, ok := arr.(*array.Struct)
	if !ok || a.NumField() != to.NumFields() {
		return nil, unsupported(arr, to)
	}
	children := make([]arrow.ArrayData, to.NumFields())
	for i, f := range to.Fields() {
		c, err := Convert(a.Field(i), f.Type)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", f.Name, err)
		}
		children[i] = c.Data()
	}
	return array.MakeFromData(array.NewData(to, a.Len(), []*memory.Buffer{validity(a)}, children, a.NullN(), 0)), nil
}

// lists is what all kinds of lists have in common.
type lists interface {
	arrow.Array
	ListValues() arrow.Array
	ValueOffsets(i int) (from, to int64)
}

// layout returns the offsets of a list from its first row on, and the elements that they point into. Null rows are empty.
func layout(a lists) (offsets []int32, values arrow.Array, err error) {
	offsets = make([]int32, 1, a.Len()+1)
	parts := make([]arrow.Array, 0, 1)
	partFrom, partTo, total := int64(-1), int64(-1), int64(0)
	flush := func() {
		if partTo > partFrom {
			parts = append(parts, array.NewSlice(a.ListValues(), partFrom, partTo))
		}
	}
	for i := range a.Len() {
		if a.IsValid(i) {
			from, to := a.ValueOffsets(i)
			if from < 0 || to < from || to > int64(a.ListValues().Len()) {
				return nil, nil, fmt.Errorf("row %d: elements %d to %d of %d", i, from, to, a.ListValues().Len())
			}
			if from != partTo {
				flush()
				partFrom = from
			}
			partTo = to
			total += to - from
		}
		if total > math.MaxInt32 {
			return nil, nil, errors.New("more than 2,147,483,647 elements in one batch: read fewer rows at a time")
		}
		offsets = append(offsets, int32(total))
	}
	flush()
	switch len(parts) {
	case 0:
		return offsets, array.NewSlice(a.ListValues(), 0, 0), nil
	case 1:
		return offsets, parts[0], nil
	}
	values, err = array.Concatenate(parts, memory.DefaultAllocator)
	if err != nil {
		return nil, nil, fmt.Errorf("joining elements: %w", err)
	}
	return offsets, values, nil
}

func toList(arr arrow.Array, to *arrow.ListType) (arrow.Array, error) {
	a, ok := arr.(lists)
	if !ok {
		return nil, unsupported(arr, to)
	}
	if _, isMap := arr.(*array.Map); isMap {
		return nil, unsupported(arr, to)
	}
	return listOf(a, to, to.Elem())
}

func toMap(arr arrow.Array, to *arrow.MapType) (arrow.Array, error) {
	a, ok := arr.(*array.Map)
	if !ok {
		return nil, unsupported(arr, to)
	}
	return listOf(a, to, to.Elem())
}

func listOf(a lists, to, elem arrow.DataType) (arrow.Array, error) {
	offsets, values, err := layout(a)
	if err != nil {
		return nil, err
	}
	values, err = Convert(values, elem)
	if err != nil {
		return nil, fmt.Errorf("element: %w", err)
	}
	buffers := []*memory.Buffer{validity(a), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))}
	return array.MakeFromData(array.NewData(to, a.Len(), buffers, []arrow.ArrayData{values.Data()}, a.NullN(), 0)), nil
}

// toArray reads lists that are nested as deeply as the type's rank as arrays with lower bounds 1.
func toArray(arr arrow.Array, to arrow.ExtensionType, t record.Type) (arrow.Array, error) {
	levels := make([]lists, t.Rank)
	leaf := arr
	for d := range levels {
		l, ok := leaf.(*array.List)
		if !ok {
			return nil, unsupported(arr, to)
		}
		levels[d], leaf = l, l.ListValues()
	}
	leaf, err := Convert(leaf, t.Elem.Arrow)
	if err != nil {
		return nil, fmt.Errorf("element: %w", err)
	}
	b := newArrays(arr.Len())
	for i := range arr.Len() {
		if err := b.add(levels, i); err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
	}
	st, err := b.storage(arr, to, leaf)
	if err != nil {
		return nil, err
	}
	return array.NewExtensionArrayWithStorage(to, st), nil
}

// arrays collects the shapes of arrays, and where their elements are.
type arrays struct {
	dims, dimEnds, lower []int32
	from, to             []int64 // elements of each row
}

func newArrays(n int) *arrays { return &arrays{dimEnds: make([]int32, 1, n+1)} }

func (b *arrays) add(levels []lists, i int) error {
	from, to := int64(0), int64(0)
	if levels[0].IsValid(i) {
		from, to = levels[0].ValueOffsets(i)
		dims := []int32{int32(to - from)}
		for _, l := range levels[1:] {
			if to == from {
				break
			}
			size, start := int64(-1), int64(0)
			for j := from; j < to; j++ {
				f, e := l.ValueOffsets(int(j))
				if l.IsNull(int(j)) || (size >= 0 && e-f != size) || e == f {
					return errors.New("lists of different lengths, or null or empty ones inside, are no array")
				}
				if size < 0 {
					size, start = e-f, f
				}
			}
			dims = append(dims, int32(size))
			from, to = start, start+size*(to-from)
		}
		if to > from {
			b.dims = append(b.dims, dims...)
			for range dims {
				b.lower = append(b.lower, 1)
			}
		}
	}
	b.from, b.to = append(b.from, from), append(b.to, to)
	b.dimEnds = append(b.dimEnds, int32(len(b.dims)))
	return nil
}

func (b *arrays) storage(arr arrow.Array, to arrow.ExtensionType, leaf arrow.Array) (arrow.Array, error) {
	st := to.StorageType().(*arrow.StructType) //nolint:forcetypeassert // checked by TypeOf
	ends := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(b.dimEnds))
	ints := func(field int, values []int32) arrow.ArrayData {
		v := array.NewInt32Data(array.NewData(arrow.PrimitiveTypes.Int32, len(values),
			[]*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(values))}, nil, 0, 0))
		return array.NewData(st.Field(field).Type, arr.Len(), []*memory.Buffer{nil, ends}, []arrow.ArrayData{v.Data()}, 0, 0)
	}
	offsets, values, err := layout(ranges{Array: arr, values: leaf, from: b.from, to: b.to})
	if err != nil {
		return nil, err
	}
	elemEnds := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))
	elems := array.NewData(st.Field(2).Type, arr.Len(), []*memory.Buffer{nil, elemEnds}, []arrow.ArrayData{values.Data()}, 0, 0)
	children := []arrow.ArrayData{ints(0, b.dims), ints(1, b.lower), elems}
	return array.MakeFromData(array.NewData(st, arr.Len(), []*memory.Buffer{validity(arr)}, children, arr.NullN(), 0)), nil
}

// ranges are lists that are given by their ends.
type ranges struct {
	arrow.Array

	values   arrow.Array
	from, to []int64
}

func (r ranges) ListValues() arrow.Array { return r.values }

func (r ranges) ValueOffsets(i int) (from, to int64) { return r.from[i], r.to[i] }

// fromArray writes arrays as lists that are nested as deeply as to: all must have that many dimensions, or none, and start at 1.
func fromArray(arr array.ExtensionArray, to *arrow.ListType) (arrow.Array, error) {
	types := []*arrow.ListType{to}
	t, err := record.TypeOf(arr.DataType())
	if err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	for len(types) < t.Rank {
		inner, ok := types[len(types)-1].Elem().(*arrow.ListType)
		if !ok {
			return nil, unsupported(arr, to)
		}
		types = append(types, inner)
	}
	offsets := make([][]int32, len(types))
	for d := range offsets {
		offsets[d] = []int32{0}
	}
	st := arr.Storage().(*array.Struct)                                     //nolint:forcetypeassert // checked by TypeOf
	r := ranges{Array: arr, values: st.Field(2).(*array.List).ListValues()} //nolint:forcetypeassert // checked by TypeOf
	for i := range arr.Len() {
		v := record.ArrayValue{}
		if arr.IsValid(i) {
			v = record.ArrayOf(arr, i)
		}
		if len(v.Dims) > 0 && (len(v.Dims) != len(types) || !v.DefaultBounds()) {
			return nil, fmt.Errorf("row %d: an array with the dimensions %v and the lower bounds %v, want %d dimensions from 1 on",
				i, v.Dims, v.Lower, len(types))
		}
		r.from, r.to = append(r.from, int64(v.From)), append(r.to, int64(v.To))
		addShape(offsets, v.Dims)
	}
	_, values, err := layout(r)
	if err != nil {
		return nil, err
	}
	values, err = Convert(values, types[len(types)-1].Elem())
	if err != nil {
		return nil, fmt.Errorf("element: %w", err)
	}
	for d, t := range slices.Backward(types) {
		n := len(offsets[d]) - 1
		buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets[d]))}
		nulls := 0
		if d == 0 {
			buffers[0], nulls = validity(arr), arr.NullN()
		}
		values = array.MakeFromData(array.NewData(t, n, buffers, []arrow.ArrayData{values.Data()}, nulls, 0))
	}
	return values, nil
}

// addShape adds one array's lists to the ends of the lists of each level.
func addShape(offsets [][]int32, dims []int32) {
	lists := int32(1)
	for d := range offsets {
		size := int32(0)
		if d < len(dims) {
			size = dims[d]
		} else if d > 0 {
			return
		}
		last := offsets[d][len(offsets[d])-1]
		for j := range lists {
			offsets[d] = append(offsets[d], last+(j+1)*size)
		}
		lists *= size
	}
}

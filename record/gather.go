package record

import (
	"encoding/binary"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// runs are half-open ranges of rows, in order.
type runs [][2]int64

func (r runs) rows() int {
	n := int64(0)
	for _, x := range r {
		n += x[1] - x[0]
	}
	return int(n)
}

// gather copies runs of an array. Many short runs cost what their values cost; lists, structs and what else has children are joined by
// the library from slices, at some hundred nanoseconds for each run.
func gather(arr arrow.Array, r runs) (arrow.Array, error) {
	data := arr.Data()
	buffers := gatherBuffers(data, r)
	if buffers == nil {
		parts := make([]arrow.Array, len(r))
		for i, x := range r {
			parts[i] = array.NewSlice(arr, x[0], x[1])
		}
		return array.Concatenate(parts, memory.DefaultAllocator) //nolint:wrapcheck // the caller names the column
	}
	n, nulls := r.rows(), 0
	if arr.NullN() > 0 {
		valid := gatherBits(data.Buffers()[0].Bytes(), data.Offset(), r)
		nulls = n - ones(valid)
		buffers[0] = memory.NewBufferBytes(valid)
	}
	return array.MakeFromData(array.NewData(data.DataType(), n, buffers, nil, nulls, 0)), nil
}

// gatherBuffers copies what the values of an array are in, with room for the bitmap in front; nil: its layout is not one of those here.
func gatherBuffers(data arrow.ArrayData, r runs) []*memory.Buffer {
	dt := data.DataType()
	if ext, ok := dt.(arrow.ExtensionType); ok {
		dt = ext.StorageType()
	}
	switch dt := dt.(type) {
	case *arrow.BooleanType:
		return []*memory.Buffer{nil, memory.NewBufferBytes(gatherBits(data.Buffers()[1].Bytes(), data.Offset(), r))}
	case *arrow.StringType, *arrow.BinaryType:
		offsets, values := gatherBinary(data, r)
		return []*memory.Buffer{nil, memory.NewBufferBytes(offsets), memory.NewBufferBytes(values)}
	case *arrow.DictionaryType: // it has a width, and a dictionary besides
		return nil
	case arrow.FixedWidthDataType:
		if len(data.Children()) > 0 || dt.BitWidth()%8 != 0 || dt.BitWidth() == 0 {
			return nil
		}
		return []*memory.Buffer{nil, memory.NewBufferBytes(gatherFixed(data, int64(dt.BitWidth()/8), r))}
	}
	return nil
}

// gatherFixed copies values of a width in bytes.
func gatherFixed(data arrow.ArrayData, width int64, r runs) []byte {
	src := data.Buffers()[1].Bytes()
	dst := memory.DefaultAllocator.Allocate(r.rows() * int(width))
	offset, at := int64(data.Offset()), 0
	for _, x := range r {
		at += copy(dst[at:], src[(offset+x[0])*width:(offset+x[1])*width])
	}
	return dst
}

// gatherBinary copies values with 32 bit offsets.
func gatherBinary(data arrow.ArrayData, r runs) (offsets, values []byte) {
	from := data.Buffers()[1].Bytes()[4*data.Offset():]
	end := func(i int64) uint32 { return binary.NativeEndian.Uint32(from[4*i:]) }
	size := 0
	for _, x := range r {
		size += int(end(x[1]) - end(x[0]))
	}
	n := r.rows()
	offsets, values = memory.DefaultAllocator.Allocate(4*(n+1)), memory.DefaultAllocator.Allocate(size)
	binary.NativeEndian.PutUint32(offsets, 0)
	row, at := 0, uint32(0)
	for _, x := range r {
		first := end(x[0])
		if last := end(x[1]); last > first {
			copy(values[at:], data.Buffers()[2].Bytes()[first:last])
		}
		for i := x[0]; i < x[1]; i++ {
			row++
			binary.NativeEndian.PutUint32(offsets[4*row:], at+end(i+1)-first)
		}
		at += end(x[1]) - first
	}
	return offsets, values
}

// gatherBits copies bits behind an offset.
func gatherBits(src []byte, offset int, r runs) []byte {
	dst := memory.DefaultAllocator.Allocate(int(bitutil.BytesForBits(int64(r.rows()))))
	clear(dst)
	at := 0
	for _, x := range r {
		for i := int(x[0]) + offset; i < int(x[1])+offset; i++ {
			dst[at>>3] |= src[i>>3] >> (i & 7) & 1 << (at & 7)
			at++
		}
	}
	return dst
}

// ones counts bits; those behind the last value are zero.
func ones(b []byte) int {
	n := 0
	for _, x := range b {
		n += bits.OnesCount8(x)
	}
	return n
}

// sameValue reports whether values i of two arrays of one type are equal; a null equals a null.
func sameValue(a, b arrow.Array, i int) bool {
	if a.IsNull(i) || b.IsNull(i) {
		return a.IsNull(i) && b.IsNull(i)
	}
	switch a := a.(type) {
	case *array.Int64:
		if b, ok := b.(*array.Int64); ok {
			return a.Value(i) == b.Value(i)
		}
	case *array.Int32:
		if b, ok := b.(*array.Int32); ok {
			return a.Value(i) == b.Value(i)
		}
	case *array.Int16:
		if b, ok := b.(*array.Int16); ok {
			return a.Value(i) == b.Value(i)
		}
	case *array.String:
		if b, ok := b.(*array.String); ok {
			return a.Value(i) == b.Value(i)
		}
	case array.ExtensionArray:
		if b, ok := b.(array.ExtensionArray); ok {
			return sameValue(a.Storage(), b.Storage(), i)
		}
	case *array.FixedSizeBinary:
		if b, ok := b.(*array.FixedSizeBinary); ok {
			return string(a.Value(i)) == string(b.Value(i))
		}
	}
	return array.SliceEqual(a, int64(i), int64(i)+1, b, int64(i), int64(i)+1)
}

package pgcopy

import (
	"encoding/binary"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

var errShape = errors.New("the array's shape doesn't match its elements")

// arrayColumn collects arrays in the storage of record.ArrayType: the shape of each, and all elements in row-major order.
type arrayColumn struct {
	dims, lower []int32
	dimOff      []int32 // of dims and of lower
	elemOff     []int32
	elem        *column
	delim       byte   // between elements in the text form
	unquoted    []byte // of an element in the text form
}

func (a *arrayColumn) fresh() {
	a.dims = make([]int32, 0, len(a.dims))
	a.lower = make([]int32, 0, len(a.lower))
	a.dimOff = append(make([]int32, 0, len(a.dimOff)+1), 0)
	a.elemOff = append(make([]int32, 0, len(a.elemOff)+1), 0)
	a.elem.fresh()
}

// end closes the value whose shape and elements were appended.
func (a *arrayColumn) end() {
	a.dimOff = append(a.dimOff, int32(len(a.dims)))
	a.elemOff = append(a.elemOff, int32(a.elem.n))
}

func (a *arrayColumn) rewind(n int) {
	a.dimOff = a.dimOff[:n+1]
	a.elemOff = a.elemOff[:n+1]
	a.dims = a.dims[:a.dimOff[n]]
	a.lower = a.lower[:a.dimOff[n]]
	for a.elem.n > int(a.elemOff[n]) {
		a.elem.pop()
	}
}

// append decodes one array: rank, flags, element type; size and lower bound of each dimension; the elements.
func (a *arrayColumn) append(v []byte) error {
	if len(v) < 12 {
		return errMalformed
	}
	rank := int(int32(binary.BigEndian.Uint32(v)))
	v = v[12:]
	if rank < 0 || rank > maxDims || len(v) < 8*rank {
		return errMalformed
	}
	count := 1
	for range rank {
		size := int(int32(binary.BigEndian.Uint32(v)))
		if size < 0 || (count > 0 && size > (1<<31-1)/count) {
			return errMalformed
		}
		count *= size
		a.dims = append(a.dims, int32(size))
		a.lower = append(a.lower, int32(binary.BigEndian.Uint32(v[4:])))
		v = v[8:]
	}
	if rank == 0 {
		count = 0
	}
	if count > len(v)/4 {
		return errShape
	}
	for range count {
		size := binary.BigEndian.Uint32(v)
		v = v[4:]
		if size == nullLength {
			a.elem.appendNull()
		} else {
			if uint64(size) > uint64(len(v)) {
				return errShape
			}
			if err := a.elem.append(v[:size]); err != nil {
				return err
			}
			v = v[size:]
		}
		if len(v) < 4 && a.elem.n < int(a.elemOff[len(a.elemOff)-1])+count {
			return errShape
		}
	}
	if len(v) != 0 {
		return errShape
	}
	a.end()
	return nil
}

// take returns the three lists of the storage struct.
func (a *arrayColumn) take(storage arrow.DataType, n int) []arrow.ArrayData {
	st := storage.(*arrow.StructType) //nolint:forcetypeassert // the storage of record.ArrayType
	list := func(f int, off []int32, values arrow.ArrayData) arrow.ArrayData {
		buffers := []*memory.Buffer{nil, memory.NewBufferBytes(int32Bytes(off))}
		return array.NewData(st.Field(f).Type, n, buffers, []arrow.ArrayData{values}, 0, 0)
	}
	ints := func(v []int32) arrow.ArrayData {
		return array.NewData(arrow.PrimitiveTypes.Int32, len(v), []*memory.Buffer{nil, memory.NewBufferBytes(int32Bytes(v))}, nil, 0, 0)
	}
	return []arrow.ArrayData{
		list(0, a.dimOff, ints(a.dims)),
		list(1, a.dimOff, ints(a.lower)),
		list(2, a.elemOff, a.elem.take()),
	}
}

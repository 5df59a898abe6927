package arrowtype

import (
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Validate checks the structure of an array that was read from outside: that offsets, lengths and bitmaps stay inside of its buffers.
// Text is looked at by [Bad], value by value.
func Validate(arr arrow.Array) error {
	err := array.ValidateFull(array.MakeFromData(plain(arr.Data())))
	if err != nil && strings.Contains(err.Error(), "\n") {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if err != nil {
		return fmt.Errorf("its structure is damaged: %w", err)
	}
	return nil
}

// plain returns the same data with text seen as bytes and extension types as their storage, so that the library looks at the
// structure only.
func plain(d arrow.ArrayData) arrow.ArrayData {
	t := d.DataType()
	if ext, ok := t.(arrow.ExtensionType); ok {
		t = ext.StorageType()
	}
	children := d.Children()
	out := make([]arrow.ArrayData, len(children))
	copy(out, children)
	descend := func() {
		for i, c := range children {
			out[i] = plain(c)
		}
	}
	switch dt := t.(type) {
	case *arrow.StringType:
		t = arrow.BinaryTypes.Binary
	case *arrow.LargeStringType:
		t = arrow.BinaryTypes.LargeBinary
	case *arrow.StringViewType:
		t = arrow.BinaryTypes.BinaryView
	case *arrow.StructType:
		descend()
		t = plainStruct(dt, out)
	case *arrow.MapType, *arrow.ListType:
		if len(out) == 1 {
			descend()
			t = arrow.ListOf(out[0].DataType())
		}
	case *arrow.LargeListType:
		if len(out) == 1 {
			descend()
			t = arrow.LargeListOf(out[0].DataType())
		}
	case *arrow.FixedSizeListType:
		if len(out) == 1 {
			descend()
			t = arrow.FixedSizeListOf(dt.Len(), out[0].DataType())
		}
	}
	if dict, ok := d.(*array.Data); ok && t.ID() == arrow.DICTIONARY {
		return dict
	}
	return array.NewData(t, d.Len(), d.Buffers(), out, d.NullN(), d.Offset())
}

func plainStruct(dt *arrow.StructType, children []arrow.ArrayData) arrow.DataType {
	if len(children) != dt.NumFields() {
		return dt
	}
	fields := dt.Fields()
	for i := range fields {
		fields[i].Type = children[i].DataType()
	}
	return arrow.StructOf(fields...)
}

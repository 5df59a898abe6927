package column

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func newBuilder(dt arrow.DataType) array.Builder {
	return array.NewBuilder(memory.DefaultAllocator, dt)
}

// Copy appends the first value of an array of the column's type. The column's kind is not Other.
func (c *Column) Copy(a arrow.Array) {
	if ext, ok := a.(array.ExtensionArray); ok {
		a = ext.Storage()
	}
	switch a := a.(type) {
	case *array.Int64:
		c.Int64(a.Value(0))
	case *array.Timestamp:
		c.Timestamp(int64(a.Value(0)))
	case *array.Float64:
		c.Float64(a.Value(0))
	case *array.Date32:
		c.Date(int32(a.Value(0)))
	case *array.Boolean:
		c.Bool(a.Value(0))
	case *array.String:
		c.String(a.Value(0))
	}
}

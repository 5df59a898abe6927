package column

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// Kind says which method a hot path appends with.
type Kind uint8

// The kinds. The comment names the method.
const (
	Other     Kind = iota // Text or JSON
	Text                  // Bytes
	Int64                 // Int64
	Float64               // Float64
	Bool                  // Bool
	Date                  // Date
	Timestamp             // Timestamp: microseconds
	Numeric               // Bytes, in canonical form
	Document              // Bytes, a checked JSON document
)

// MaxData is how many bytes of text a column may hold before its batch must end: offsets are 32 bits wide.
const MaxData = math.MaxInt32 / 2

// Column collects values of one type.
type Column struct {
	Kind Kind
	Type record.Type

	n, nulls int
	valid    []byte // bitmap; nil as long as there is no null
	ints     []int64
	floats   []float64
	days     []int32
	bits     []byte
	offsets  []int32
	data     []byte
	other    array.Builder
}

// New returns an empty column for a type of the vocabulary.
func New(dt arrow.DataType) (*Column, error) {
	t, err := record.TypeOf(dt)
	if err != nil {
		return nil, err
	}
	c := &Column{Type: t, Kind: kindOf(t)}
	switch c.Kind {
	case Other:
		c.other = array.NewBuilder(memory.DefaultAllocator, dt)
	case Text, Numeric, Document:
		c.offsets = append(c.offsets, 0)
	default:
	}
	return c, nil
}

func kindOf(t record.Type) Kind {
	switch t.Kind {
	case record.String:
		return Text
	case record.Int64:
		return Int64
	case record.Float64:
		return Float64
	case record.Bool:
		return Bool
	case record.Numeric:
		return Numeric
	case record.JSON:
		return Document
	case record.Date:
		return Date
	case record.Timestamp:
		if t.Unit == arrow.Microsecond {
			return Timestamp
		}
	default:
	}
	return Other
}

// Len returns the number of values.
func (c *Column) Len() int {
	if c.other != nil {
		return c.other.Len()
	}
	return c.n
}

// Data returns how many bytes of text the column holds.
func (c *Column) Data() int { return len(c.data) }

// added marks the value that was just appended as not null.
func (c *Column) added() {
	if c.valid != nil {
		c.mark(1)
	}
	c.n++
}

// mark sets the validity bit of value n.
func (c *Column) mark(bit byte) {
	if c.n>>3 >= len(c.valid) {
		c.valid = append(c.valid, 0)
	}
	c.valid[c.n>>3] |= bit << (c.n & 7)
}

// Null appends a null.
func (c *Column) Null() {
	if c.other != nil {
		c.other.AppendNull()
		return
	}
	if c.valid == nil {
		c.valid = make([]byte, c.n/8+1, cap(c.bits)/8+c.n/8+64)
		for i := range c.n {
			c.valid[i>>3] |= 1 << (i & 7)
		}
	}
	switch c.Kind {
	case Int64, Timestamp:
		c.ints = append(c.ints, 0)
	case Float64:
		c.floats = append(c.floats, 0)
	case Date:
		c.days = append(c.days, 0)
	case Bool:
		c.bit(0)
	default:
		c.offsets = append(c.offsets, int32(len(c.data)))
	}
	c.mark(0)
	c.nulls++
	c.n++
}

func (c *Column) bit(v byte) {
	if c.n>>3 >= len(c.bits) {
		c.bits = append(c.bits, 0)
	}
	c.bits[c.n>>3] |= v << (c.n & 7)
}

// Int64 appends to a column of that kind, and so do the following.
func (c *Column) Int64(v int64) {
	c.ints = append(c.ints, v)
	c.added()
}

// Timestamp appends microseconds.
func (c *Column) Timestamp(v int64) { c.Int64(v) }

// Float64 appends a number.
func (c *Column) Float64(v float64) {
	c.floats = append(c.floats, v)
	c.added()
}

// Date appends a day number.
func (c *Column) Date(v int32) {
	c.days = append(c.days, v)
	c.added()
}

// Bool appends a truth value.
func (c *Column) Bool(v bool) {
	if v {
		c.bit(1)
	} else {
		c.bit(0)
	}
	c.added()
}

// Bytes appends a copy of text that was checked: valid UTF-8, a number's canonical form, or a JSON document.
func (c *Column) Bytes(v []byte) {
	c.data = append(c.data, v...)
	c.offsets = append(c.offsets, int32(len(c.data)))
	c.added()
}

// String appends text that was checked.
func (c *Column) String(v string) {
	c.data = append(c.data, v...)
	c.offsets = append(c.offsets, int32(len(c.data)))
	c.added()
}

// Builder returns Arrow's builder of a column of kind Other.
func (c *Column) Builder() array.Builder { return c.other }

// Finish returns the collected values and starts over, with room for as many.
func (c *Column) Finish() arrow.Array {
	if c.other != nil {
		return c.other.NewArray()
	}
	buffers := []*memory.Buffer{bitmap(c.valid), nil}
	switch c.Kind {
	case Int64, Timestamp:
		buffers[1] = memory.NewBufferBytes(bytesOf(c.ints))
		c.ints = make([]int64, 0, room(len(c.ints)))
	case Float64:
		buffers[1] = memory.NewBufferBytes(bytesOf(c.floats))
		c.floats = make([]float64, 0, room(len(c.floats)))
	case Date:
		buffers[1] = memory.NewBufferBytes(bytesOf(c.days))
		c.days = make([]int32, 0, room(len(c.days)))
	case Bool:
		buffers[1] = memory.NewBufferBytes(c.bits)
		c.bits = make([]byte, 0, room(len(c.bits)))
	default:
		buffers[1] = memory.NewBufferBytes(bytesOf(c.offsets))
		buffers = append(buffers, memory.NewBufferBytes(c.data))
		c.offsets = append(make([]int32, 0, room(len(c.offsets))), 0)
		c.data = make([]byte, 0, room(len(c.data)))
	}
	n, nulls := c.n, c.nulls
	c.n, c.nulls, c.valid = 0, 0, nil
	dt := c.Type.Arrow
	if ext, ok := dt.(arrow.ExtensionType); ok {
		dt = ext.StorageType()
	}
	arr := array.MakeFromData(array.NewData(dt, n, buffers, nil, nulls, 0))
	if ext, ok := c.Type.Arrow.(arrow.ExtensionType); ok {
		return array.NewExtensionArrayWithStorage(ext, arr)
	}
	return arr
}

// maxRoom bounds what is set aside for the next batch: one huge batch must not make the following ones huge.
const maxRoom = 4 << 20

func room(n int) int { return min(n+n/16+8, maxRoom) }

func bitmap(b []byte) *memory.Buffer {
	if b == nil {
		return nil
	}
	return memory.NewBufferBytes(b)
}

// bytesOf views numbers as the bytes that Arrow keeps them as.
func bytesOf[T int64 | int32 | float64](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0]))) //nolint:gosec // Arrow's layout
}

// Finish makes a record batch of columns with equally many values and starts them over.
func Finish(schema *arrow.Schema, cols []*Column, rows int) (arrow.RecordBatch, error) {
	arrays := make([]arrow.Array, len(cols))
	for i, c := range cols {
		a := c.Finish()
		if a.Len() != rows {
			return nil, fmt.Errorf("column %q has %d of %d values", schema.Field(i).Name, a.Len(), rows)
		}
		arrays[i] = a
	}
	return array.NewRecordBatch(schema, arrays, int64(rows)), nil
}

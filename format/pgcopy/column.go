package pgcopy

import (
	"encoding/binary"
	"errors"
	"math"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// op is what decoding one value does.
type op uint8

const (
	opBool op = iota + 1
	opSwap2
	opSwap4
	opSwap8
	opDecimal
	opNumericText
	opRaw
	opVersioned
	opCopy // fixed width, byte for byte
	opDate
	opTime
	opTimestamp
	opTimestampText // of any range: only for rejects
	opInterval
	opIntervalText // infinite ones too: only for rejects
	opBits
	opNetwork
	opMAC
	opArray
)

var (
	errTimestampRange   = errors.New("the timestamp is out of the range of 64-bit microseconds since 1970")
	errInfinite         = errors.New("the column's type has no infinity")
	errInfiniteInterval = errors.New("an infinite interval has no months, days and microseconds")
	errUTF8             = errors.New("the text is not valid UTF-8")
	errColumnFull       = errors.New("the values of one column in one batch are more than 2 GiB")
)

// column collects the values of one column in buffers that Arrow takes over as they are.
type column struct {
	op    op
	dt    arrow.DataType
	width int   // bytes in fix per value; 0: bits, or none
	scale int   // opDecimal
	limit limbs // opDecimal: ten to the power of the precision
	inf   bool
	zoned bool
	float bool // opSwap4, opSwap8
	hex   bool // opRaw: in text, binary is in hex
	utf8  bool // text is checked

	n, nulls int
	last     int    // n of the batch before
	valid    []byte // a bitmap; nil: there was no null
	fix      []byte
	off      []int32
	data     []byte
	arr      *arrayColumn
}

// newColumn says how values of wire type t become values of dt.
func newColumn(t Type, dt arrow.DataType, utf8Checked bool) (*column, error) {
	rt, err := record.TypeOf(dt)
	if err != nil {
		return nil, err
	}
	c := &column{dt: dt, inf: rt.Infinite, scale: int(rt.Scale)}
	c.float = rt.Kind == record.Float32 || rt.Kind == record.Float64
	c.hex = rt.Kind == record.Binary
	c.utf8 = utf8Checked && !c.hex
	c.op, c.width = opFor(t, rt)
	c.zoned = rt.Zoned || (c.op == opTimestampText && rt.Name == lenientInstant)
	switch c.op { //nolint:exhaustive // all others need nothing more
	case 0:
		return nil, unsupported(t, rt)
	case opDecimal:
		c.width = 16
		if _, wide := dt.(*arrow.Decimal256Type); wide {
			c.width = 32
		}
		if c.scale < 0 || rt.Precision < 1 || rt.Precision > 76 {
			return nil, unsupported(t, rt)
		}
		c.limit[0] = 1
		for range rt.Precision {
			c.limit.mulAdd(10, 0)
		}
	case opArray:
		if t.Elem == nil {
			return nil, unsupported(t, rt)
		}
		elem, err := newColumn(*t.Elem, rt.Elem.Arrow, utf8Checked)
		if err != nil {
			return nil, err
		}
		c.arr = &arrayColumn{elem: elem, delim: t.Delim}
		if c.arr.delim == 0 {
			c.arr.delim = ','
		}
	}
	c.fresh()
	return c, nil
}

// opFor returns 0 where there is no exact way.
func opFor(t Type, rt record.Type) (o op, width int) { //nolint:cyclop // a line for each pair
	type pair struct {
		form Form
		kind record.Kind
	}
	switch (pair{t.Form, rt.Kind}) {
	case pair{Bool, record.Bool}:
		return opBool, 0
	case pair{Int2, record.Int16}:
		return opSwap2, 2
	case pair{Int4, record.Int32}, pair{Float4, record.Float32}:
		return opSwap4, 4
	case pair{Int8, record.Int64}, pair{Float8, record.Float64}:
		return opSwap8, 8
	case pair{Numeric, record.Decimal}:
		return opDecimal, 0
	case pair{Numeric, record.Numeric}:
		return opNumericText, 0
	case pair{Raw, record.String}, pair{Raw, record.JSON}, pair{Raw, record.Enum}, pair{Raw, record.Foreign}, pair{Raw, record.Network}:
		return opRaw, 0
	case pair{Raw, record.Binary}:
		if rt.Width == 0 {
			return opRaw, 0
		}
	case pair{Versioned, record.JSON}, pair{Versioned, record.Foreign}, pair{Versioned, record.String}:
		return opVersioned, 0
	case pair{UUID, record.UUID}:
		return opCopy, 16
	case pair{Date, record.Date}:
		return opDate, 4
	case pair{Time, record.Time}:
		if rt.Unit == arrow.Microsecond {
			return opTime, 8
		}
	case pair{Timestamp, record.Timestamp}:
		if rt.Unit == arrow.Microsecond {
			return opTimestamp, 8
		}
	case pair{Timestamp, record.Foreign}:
		return opTimestampText, 0
	case pair{Interval, record.Interval}:
		return opInterval, 16
	case pair{Interval, record.Foreign}:
		return opIntervalText, 0
	case pair{Bits, record.Bits}:
		return opBits, 0
	case pair{Network, record.Network}:
		return opNetwork, 0
	case pair{MAC, record.Network}:
		return opMAC, 0
	case pair{Array, record.Array}:
		return opArray, 0
	}
	return 0, 0
}

func (c *column) variable() bool { return c.width == 0 && c.op != opBool && c.op != opArray }

// fresh starts new buffers, about as large as the last ones got.
func (c *column) fresh() {
	c.fix = make([]byte, 0, len(c.fix)+len(c.fix)/16)
	if c.variable() {
		c.data = make([]byte, 0, len(c.data)+len(c.data)/8)
		c.off = append(make([]int32, 0, len(c.off)+1), 0)
	}
	if c.arr != nil {
		c.arr.fresh()
	}
	c.last, c.n, c.nulls, c.valid = c.n, 0, 0, nil
}

func (c *column) appendNull() {
	if c.valid == nil { // all values so far are valid
		c.valid = make([]byte, bytesOf(c.n), bytesOf(max(c.n+1, c.last)))
		for i := range c.valid {
			c.valid[i] = 0xff
		}
		c.trim(c.valid)
	}
	c.valid = c.bit(c.valid, 0)
	switch {
	case c.variable():
		c.off = append(c.off, int32(len(c.data)))
	case c.arr != nil:
		c.arr.end()
	case c.op == opBool:
		c.fix = c.bit(c.fix, 0)
	default:
		var zero [32]byte
		c.fix = append(c.fix, zero[:c.width]...)
	}
	c.nulls++
	c.n++
}

// bit sets the bit of the next value.
func (c *column) bit(bits []byte, b byte) []byte {
	if c.n&7 == 0 {
		return append(bits, b)
	}
	bits[len(bits)-1] |= b << (c.n & 7)
	return bits
}

// bytesOf is how many bytes n bits take.
func bytesOf(n int) int { return (n + 7) / 8 }

// trim cuts a bitmap to n bits.
func (c *column) trim(bits []byte) []byte {
	bits = bits[:bytesOf(c.n)]
	if c.n&7 != 0 {
		bits[len(bits)-1] &= 1<<(c.n&7) - 1
	}
	return bits
}

// fast appends the value at the beginning of p, with its length in front of it, and returns how much of p that was. False: nothing was
// done, and append, which takes every value, has to: this is for whole values of the frequent types that need no second look.
func (c *column) fast(p []byte) (n int, ok bool) { //nolint:cyclop // a case for each frequent type; the hot path
	if len(p) < 4 {
		return 0, false
	}
	size := binary.BigEndian.Uint32(p)
	p = p[4:]
	if size > 1<<30 || len(p) < int(size) { // a null, too
		return 0, false
	}
	v := p[:size]
	switch c.op {
	case opSwap8:
		if len(v) != 8 {
			return 0, false
		}
		c.fix = binary.LittleEndian.AppendUint64(c.fix, binary.BigEndian.Uint64(v))
	case opSwap4:
		if len(v) != 4 {
			return 0, false
		}
		c.fix = binary.LittleEndian.AppendUint32(c.fix, binary.BigEndian.Uint32(v))
	case opTimestamp:
		if len(v) != 8 {
			return 0, false
		}
		t := int64(binary.BigEndian.Uint64(v))
		if t >= math.MaxInt64-epochMicros || t == math.MinInt64 {
			return 0, false
		}
		c.fix = binary.LittleEndian.AppendUint64(c.fix, uint64(t+epochMicros))
	case opCopy:
		if len(v) != c.width {
			return 0, false
		}
		c.fix = append(c.fix, v...)
	case opRaw, opVersioned:
		if c.op == opVersioned {
			if len(v) < 1 || v[0] != 1 {
				return 0, false
			}
			v = v[1:]
		}
		if c.utf8 || len(c.data) > math.MaxInt32-len(v) {
			return 0, false
		}
		c.data = append(c.data, v...)
		c.off = append(c.off, int32(len(c.data)))
	case opDecimal:
		if !c.smallDecimal(v) {
			return 0, false
		}
	default:
		return 0, false
	}
	if c.valid != nil {
		c.valid = c.bit(c.valid, 1)
	}
	c.n++
	return 4 + int(size), true
}

// smallDecimal appends a number that takes one word; false: nothing was done.
func (c *column) smallDecimal(v []byte) bool {
	p, ok := splitNumeric(v)
	if !ok || p.sign&^numericNegative != 0 || p.weight > 3 || c.width != 16 || (p.weight+1)*numericDigits+c.scale > 18 {
		return false
	}
	x, err := smallDecimal(p.digits, p.weight, c.scale)
	if err != nil || (x >= c.limit[0] && c.limit[1]|c.limit[2]|c.limit[3]|c.limit[4] == 0) {
		return false
	}
	high := uint64(0)
	if p.sign == numericNegative && x != 0 {
		x, high = -x, math.MaxUint64
	}
	c.fix = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(c.fix, x), high)
	return true
}

// append decodes one value. After an error the column is as before.
func (c *column) append(v []byte) error { return c.close(c.value(v)) }

// close ends the value that was put into the buffers, or takes it back.
func (c *column) close(err error) error {
	if c.off != nil && len(c.data) > math.MaxInt32 {
		err = errColumnFull
	}
	if err != nil {
		c.rewind()
		return err
	}
	if c.off != nil {
		c.off = append(c.off, int32(len(c.data)))
	}
	if c.valid != nil {
		c.valid = c.bit(c.valid, 1)
	}
	c.n++
	return nil
}

// pop takes back the last value.
func (c *column) pop() {
	c.n--
	if c.valid != nil && c.valid[c.n>>3]>>(c.n&7)&1 == 0 {
		c.nulls--
	}
	c.rewind()
}

// rewind forgets all that belongs to values from n on.
func (c *column) rewind() {
	if c.valid != nil {
		c.valid = c.trim(c.valid)
	}
	switch {
	case c.variable():
		c.off = c.off[:c.n+1]
		c.data = c.data[:c.off[c.n]]
	case c.arr != nil:
		c.arr.rewind(c.n)
	case c.op == opBool:
		c.fix = c.trim(c.fix)
	default:
		c.fix = c.fix[:c.n*c.width]
	}
}

// value appends one value to the buffers.
func (c *column) value(v []byte) (err error) { //nolint:cyclop // a case for each type; the hot path
	switch c.op {
	case opSwap8:
		if len(v) != 8 {
			return errMalformed
		}
		c.fix = binary.LittleEndian.AppendUint64(c.fix, binary.BigEndian.Uint64(v))
	case opSwap4:
		if len(v) != 4 {
			return errMalformed
		}
		c.fix = binary.LittleEndian.AppendUint32(c.fix, binary.BigEndian.Uint32(v))
	case opSwap2:
		if len(v) != 2 {
			return errMalformed
		}
		c.fix = append(c.fix, v[1], v[0])
	case opRaw:
		return c.raw(v)
	case opVersioned:
		if len(v) < 1 || v[0] != 1 {
			return errMalformed
		}
		return c.raw(v[1:])
	case opDecimal:
		var x limbs
		negative, err := decodeDecimal(&x, v, c.scale)
		if err != nil {
			return err
		}
		return c.decimal(&x, negative)
	case opTimestamp:
		if len(v) != 8 {
			return errMalformed
		}
		return c.timestamp(int64(binary.BigEndian.Uint64(v)))
	case opBool:
		if len(v) != 1 || v[0] > 1 {
			return errMalformed
		}
		c.fix = c.bit(c.fix, v[0])
	case opCopy:
		if len(v) != c.width {
			return errMalformed
		}
		c.fix = append(c.fix, v...)
	case opArray:
		return c.arr.append(v)
	case opNumericText:
		c.data, err = appendNumericText(c.data, v)
	case opBits:
		c.data, err = appendBitsText(c.data, v)
	case opNetwork:
		c.data, err = appendNetworkText(c.data, v)
	case opMAC:
		c.data, err = appendMACText(c.data, v)
	default:
		return c.temporal(v)
	}
	return err
}

func (c *column) raw(v []byte) error {
	if c.utf8 && !utf8.Valid(v) {
		return errUTF8
	}
	c.data = append(c.data, v...)
	return nil
}

// decimal takes an unscaled number and its sign.
func (c *column) decimal(x *limbs, negative bool) error {
	if !x.less(&c.limit) {
		return errDecimalFits
	}
	if negative {
		x.negate()
	}
	c.fix = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(c.fix, x[0]), x[1])
	if c.width > 16 {
		c.fix = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(c.fix, x[2]), x[3])
	}
	return nil
}

// timestamp takes microseconds since 2000, as the server has it.
func (c *column) timestamp(t int64) error {
	switch {
	case t == math.MaxInt64 || t == math.MinInt64:
		if !c.inf {
			return errInfinite
		}
	case t >= math.MaxInt64-epochMicros:
		return errTimestampRange
	default:
		t += epochMicros
	}
	c.fix = binary.LittleEndian.AppendUint64(c.fix, uint64(t))
	return nil
}

// temporal covers the less frequent dates and times.
func (c *column) temporal(v []byte) error {
	width := 8
	switch c.op { //nolint:exhaustive // all others have 8 bytes
	case opDate:
		width = 4
	case opInterval, opIntervalText:
		width = 16
	}
	if len(v) != width {
		return errMalformed
	}
	switch c.op {
	case opDate:
		return c.date(int32(binary.BigEndian.Uint32(v)))
	case opTime:
		return c.time(binary.BigEndian.Uint64(v))
	case opTimestampText:
		c.data = appendTimestampText(c.data, int64(binary.BigEndian.Uint64(v)), c.zoned)
		return nil
	default:
		return c.interval(record.IntervalValue{
			Micros: int64(binary.BigEndian.Uint64(v)),
			Days:   int32(binary.BigEndian.Uint32(v[8:])),
			Months: int32(binary.BigEndian.Uint32(v[12:])),
		})
	}
}

// date takes days since 2000, as the server has it.
func (c *column) date(d int32) error {
	switch {
	case d == math.MaxInt32 || d == math.MinInt32:
		if !c.inf {
			return errInfinite
		}
	case d >= math.MaxInt32-epochDays:
		return errMalformed
	default:
		d += epochDays
	}
	c.fix = binary.LittleEndian.AppendUint32(c.fix, uint32(d))
	return nil
}

// time takes microseconds since midnight.
func (c *column) time(t uint64) error {
	if t > dayMicros {
		return errMalformed
	}
	c.fix = binary.LittleEndian.AppendUint64(c.fix, t)
	return nil
}

// interval takes a value as the server has it: the largest and the smallest one are infinite.
func (c *column) interval(i record.IntervalValue) error {
	infinite := ""
	switch i {
	case record.IntervalValue{Months: math.MaxInt32, Days: math.MaxInt32, Micros: math.MaxInt64}:
		infinite = "infinity"
	case record.IntervalValue{Months: math.MinInt32, Days: math.MinInt32, Micros: math.MinInt64}:
		infinite = "-infinity"
	}
	switch {
	case c.op == opIntervalText && infinite != "":
		c.data = append(c.data, infinite...)
	case c.op == opIntervalText:
		c.data = record.AppendInterval(c.data, i)
	case infinite != "":
		return errInfiniteInterval
	default:
		c.fix = binary.LittleEndian.AppendUint32(c.fix, uint32(i.Months))
		c.fix = binary.LittleEndian.AppendUint32(c.fix, uint32(i.Days))
		c.fix = binary.LittleEndian.AppendUint64(c.fix, uint64(i.Micros))
	}
	return nil
}

// appendTimestampText prints a timestamp in microseconds since 2000, of any range.
func appendTimestampText(dst []byte, t int64, zoned bool) []byte {
	switch t {
	case math.MaxInt64:
		return append(dst, "infinity"...)
	case math.MinInt64:
		return append(dst, "-infinity"...)
	}
	seconds, micros := t/1_000_000, t%1_000_000
	if micros < 0 {
		seconds, micros = seconds-1, micros+1_000_000
	}
	const daySeconds = 86_400
	dst = record.AppendTimestamp(dst, seconds+epochDays*daySeconds, arrow.Second, false)
	if micros > 0 {
		clock := record.AppendTimestamp(nil, micros, arrow.Microsecond, false)
		dst = append(dst, clock[len("1970-01-01T00:00:00"):]...)
	}
	if zoned {
		dst = append(dst, 'Z')
	}
	return dst
}

// take returns the values as Arrow data and starts anew.
func (c *column) take() arrow.ArrayData {
	storage := c.dt
	if e, ok := c.dt.(arrow.ExtensionType); ok {
		storage = e.StorageType()
	}
	var valid *memory.Buffer
	if c.nulls > 0 {
		valid = memory.NewBufferBytes(c.valid)
	}
	var data arrow.ArrayData
	switch {
	case c.arr != nil:
		data = array.NewData(c.dt, c.n, []*memory.Buffer{valid}, c.arr.take(storage, c.n), c.nulls, 0)
	case c.variable():
		buffers := []*memory.Buffer{valid, memory.NewBufferBytes(int32Bytes(c.off)), memory.NewBufferBytes(c.data)}
		data = array.NewData(c.dt, c.n, buffers, nil, c.nulls, 0)
	default:
		data = array.NewData(c.dt, c.n, []*memory.Buffer{valid, memory.NewBufferBytes(c.fix)}, nil, c.nulls, 0)
	}
	c.fresh()
	return data
}

// int32Bytes is the memory of s: Arrow's offsets are in the machine's own byte order.
func int32Bytes(s []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s)) //nolint:gosec // Arrow's own layout
}

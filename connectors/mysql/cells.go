package mysql

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// refusal is why a value can't be carried: its row is set aside, with the value as text.
type refusal struct {
	value string
	why   string
}

func (r *refusal) Error() string { return r.why }

// cell collects the values of one column, as both roads have them: rows of a snapshot and events of the log call the same methods, so that
// one rule holds for both. A method that returns an error, which is a *refusal, has appended nothing; the others can't fail.
type cell struct {
	col *sourceColumn
	cs  *charset // of text, enum and set

	b    array.Builder // all of these are one builder
	i8   *array.Int8Builder
	i16  *array.Int16Builder
	i32  *array.Int32Builder
	i64  *array.Int64Builder
	u8   *array.Uint8Builder
	u16  *array.Uint16Builder
	u32  *array.Uint32Builder
	u64  *array.Uint64Builder
	f32  *array.Float32Builder
	f64  *array.Float64Builder
	d128 *array.Decimal128Builder
	d256 *array.Decimal256Builder
	day  *array.Date32Builder
	ts   *array.TimestampBuilder
	dur  *array.DurationBuilder
	str  *array.StringBuilder // also of extension types over text
	bin  *array.BinaryBuilder
	fix  *array.FixedSizeBinaryBuilder
	yes  *array.BooleanBuilder
	list *array.ListBuilder

	zeros int // dates that became NULL, since zeros was last read
	room  int // how many bytes of text or data the last batch had
	tmp   []byte
}

// newCell makes a cell for a column whose form is decided. cs decodes its text; nil: it is UTF-8 already.
func newCell(col *sourceColumn, cs *charset) *cell {
	c := &cell{col: col, cs: cs, b: array.NewBuilder(memory.DefaultAllocator, col.arrow)}
	inner := c.b
	if ext, ok := c.b.(interface{ StorageBuilder() array.Builder }); ok {
		inner = ext.StorageBuilder()
	}
	switch b := inner.(type) {
	case *array.Int8Builder:
		c.i8 = b
	case *array.Int16Builder:
		c.i16 = b
	case *array.Int32Builder:
		c.i32 = b
	case *array.Int64Builder:
		c.i64 = b
	case *array.Uint8Builder:
		c.u8 = b
	case *array.Uint16Builder:
		c.u16 = b
	case *array.Uint32Builder:
		c.u32 = b
	case *array.Uint64Builder:
		c.u64 = b
	case *array.Float32Builder:
		c.f32 = b
	case *array.Float64Builder:
		c.f64 = b
	case *array.Decimal128Builder:
		c.d128 = b
	case *array.Decimal256Builder:
		c.d256 = b
	case *array.Date32Builder:
		c.day = b
	case *array.TimestampBuilder:
		c.ts = b
	case *array.DurationBuilder:
		c.dur = b
	case *array.StringBuilder:
		c.str = b
	case *array.BinaryBuilder:
		c.bin = b
	case *array.FixedSizeBinaryBuilder:
		c.fix = b
	case *array.BooleanBuilder:
		c.yes = b
	case *array.ListBuilder:
		c.list = b
		c.str, _ = b.ValueBuilder().(*array.StringBuilder)
		c.f32, _ = b.ValueBuilder().(*array.Float32Builder)
	}
	return c
}

// take returns the values so far, and begins anew.
func (c *cell) take() arrow.Array {
	switch {
	case c.list != nil:
	case c.str != nil:
		c.room = c.str.DataLen()
	case c.bin != nil:
		c.room = c.bin.DataLen()
	}
	return c.b.NewArray()
}

// reserve makes room for as many rows as the last batch had, so that it need not grow step by step.
func (c *cell) reserve(rows int) {
	c.b.Reserve(rows)
	switch {
	case c.list != nil:
	case c.str != nil:
		c.str.ReserveData(c.room)
	case c.bin != nil:
		c.bin.ReserveData(c.room)
	}
}

// null appends NULL.
func (c *cell) null() { c.b.AppendNull() }

// integer appends a value of an integer type: the bits of v, as the column's sign has them.
func (c *cell) integer(v uint64) error {
	switch {
	case c.i32 != nil:
		c.i32.Append(int32(v))
	case c.i64 != nil:
		c.i64.Append(int64(v))
	case c.u32 != nil:
		c.u32.Append(uint32(v))
	case c.u64 != nil:
		c.u64.Append(v)
	case c.i8 != nil:
		c.i8.Append(int8(v))
	case c.u8 != nil:
		c.u8.Append(uint8(v))
	case c.i16 != nil:
		c.i16.Append(int16(v))
	case c.u16 != nil:
		c.u16.Append(uint16(v))
	case c.yes != nil:
		return c.boolean(v)
	}
	return nil
}

// boolean appends 0 or 1 of a column that is read as bool.
func (c *cell) boolean(v uint64) error {
	if v > 1 {
		text := strconv.FormatInt(int64(v), 10)
		return &refusal{value: text, why: text + " is neither 0 nor 1; without types=" + c.col.name + ":bool the column is read as it is"}
	}
	c.yes.Append(v == 1)
	return nil
}

// float appends a value of float.
func (c *cell) float(v float32) { c.f32.Append(v) }

// double appends a value of double.
func (c *cell) double(v float64) { c.f64.Append(v) }

// year appends a value of year; 0 is 0000.
func (c *cell) year(v uint16) { c.i16.Append(int16(v)) }

// limbs is a number of 256 bits, the lowest part first.
type limbs [4]uint64

// add makes n of n*by + more.
func (n *limbs) add(by, more uint64) {
	carry := more
	for i := range n {
		hi, lo := bits.Mul64(n[i], by)
		var over uint64
		n[i], over = bits.Add64(lo, carry, 0)
		carry = hi + over
	}
}

// negate makes the two's complement.
func (n *limbs) negate() {
	carry := uint64(1)
	for i := range n {
		n[i], carry = bits.Add64(^n[i], 0, carry)
	}
}

// decimal appends a number from its digits: an optional sign, digits, and perhaps a point with more digits.
func (c *cell) decimal(text []byte) error {
	var n limbs
	digits, negative := text, false
	if len(digits) > 0 && (digits[0] == '-' || digits[0] == '+') {
		negative, digits = digits[0] == '-', digits[1:]
	}
	part, by, scale, point := uint64(0), uint64(1), 0, false // 19 digits at once fit into 64 bits
	for _, d := range digits {
		if d == '.' && !point {
			point = true
			continue
		}
		if d < '0' || d > '9' {
			return &refusal{value: string(text), why: "it is no decimal number"}
		}
		if point {
			scale++
		}
		part, by = part*10+uint64(d-'0'), by*10
		if by == 1e19 {
			n.add(by, part)
			part, by = 0, 1
		}
	}
	for ; scale < c.col.scale; scale++ {
		part, by = part*10, by*10
		if by == 1e19 {
			n.add(by, part)
			part, by = 0, 1
		}
	}
	if scale > c.col.scale || len(digits) > 80 {
		return &refusal{value: string(text), why: fmt.Sprintf("it has more than %d digits behind the point", c.col.scale)}
	}
	n.add(by, part)
	if negative {
		n.negate()
	}
	if c.d128 != nil {
		c.d128.Append(decimal128.New(int64(n[1]), n[0]))
	} else {
		c.d256.Append(decimal256.New(n[3], n[2], n[1], n[0]))
	}
	return nil
}

// bitString appends a value of bit(n), whose bytes are big-endian: as digits, the first bit first.
func (c *cell) bitString(raw []byte) error {
	if c.yes != nil {
		v := uint64(0)
		for _, b := range raw {
			v = v<<8 | uint64(b)
		}
		return c.boolean(v)
	}
	n := c.col.length
	c.tmp = c.tmp[:0]
	for i := n - 1; i >= 0; i-- {
		digit := byte('0')
		if at := len(raw) - 1 - i/8; at >= 0 && raw[at]>>(i%8)&1 == 1 {
			digit = '1'
		}
		c.tmp = append(c.tmp, digit)
	}
	c.str.BinaryBuilder.Append(c.tmp)
	return nil
}

// civil is a moment as a calendar and a clock show it. Its parts may be zero, as the server allows.
type civil struct {
	year, month, day     int
	hour, minute, second int
	micros               int
}

// exists reports whether a calendar has the day.
func (t civil) exists() bool {
	return t.month >= 1 && t.month <= 12 && t.day >= 1 && t.day <= monthDays(t.year, t.month)
}

// monthDays is the length of a month, by the calendar that the server counts with: Gregorian, also before it was introduced.
func monthDays(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// days counts days from 1970-01-01.
func (t civil) days() int64 {
	y, m := int64(t.year), int64(t.month)
	if m <= 2 {
		y--
	}
	era := y / 400
	if y < 0 {
		era = -1
	}
	inEra := y - era*400
	inYear := (153*((m+9)%12)+2)/5 + int64(t.day) - 1
	return era*146097 + inEra*365 + inEra/4 - inEra/100 + inYear - 719468
}

// microseconds counts from 1970-01-01T00:00:00.
func (t civil) microseconds() int64 {
	seconds := t.days()*86400 + int64(t.hour)*3600 + int64(t.minute)*60 + int64(t.second)
	return seconds*1e6 + int64(t.micros)
}

// text is how the server prints it.
func (t civil) text(dst []byte, c *sourceColumn) []byte {
	dst = fmt.Appendf(dst, "%04d-%02d-%02d", t.year, t.month, t.day)
	if c.form == formDate {
		return dst
	}
	dst = fmt.Appendf(dst, " %02d:%02d:%02d", t.hour, t.minute, t.second)
	if c.scale > 0 {
		dst = append(dst, '.')
		dst = append(dst, fmt.Sprintf("%06d", t.micros)[:min(c.scale, 6)]...)
	}
	return dst
}

// moment appends a value of date, datetime or timestamp; that of a timestamp in UTC.
func (c *cell) moment(t civil) error {
	if c.str != nil {
		c.tmp = t.text(c.tmp[:0], c.col)
		c.str.BinaryBuilder.Append(c.tmp)
		return nil
	}
	if !t.exists() {
		return c.noDay(t)
	}
	if c.day != nil {
		c.day.Append(arrow.Date32(t.days()))
	} else {
		c.ts.Append(arrow.Timestamp(t.microseconds()))
	}
	return nil
}

// noDay is a day that no calendar has, such as 0000-00-00, 2023-05-00 or 2023-02-31.
func (c *cell) noDay(t civil) error {
	if c.col.zero == zeroNull {
		c.zeros++
		c.null()
		return nil
	}
	return &refusal{
		value: string(t.text(nil, c.col)),
		why:   "no calendar has this day; zero_dates=null reads it as NULL, types=" + c.col.name + ":text reads the column as text",
	}
}

// instant appends a value of timestamp by its seconds since 1970 and microseconds, as the log has it: 0 is the zero date.
func (c *cell) instant(seconds int64, micros int) error {
	if seconds == 0 && micros == 0 {
		return c.moment(civil{})
	}
	if c.ts != nil {
		c.ts.Append(arrow.Timestamp(seconds*1e6 + int64(micros)))
		return nil
	}
	return c.moment(civilOf(seconds, micros))
}

// civilOf is the moment in UTC, not before 1970.
func civilOf(seconds int64, micros int) civil {
	days, rest := seconds/86400, int(seconds%86400)
	z := days + 719468
	era := z / 146097
	inEra := z - era*146097
	year := (inEra - inEra/1460 + inEra/36524 - inEra/146096) / 365
	inYear := inEra - (365*year + year/4 - year/100)
	m := (5*inYear + 2) / 153
	t := civil{
		year: int(year + era*400), month: int(m + 3), day: int(inYear - (153*m+2)/5 + 1),
		hour: rest / 3600, minute: rest / 60 % 60, second: rest % 60, micros: micros,
	}
	if t.month > 12 {
		t.month -= 12
		t.year++
	}
	return t
}

// duration appends a value of time, in microseconds.
func (c *cell) duration(micros int64) { c.dur.Append(arrow.Duration(micros)) }

// text appends a value in the character set of its column.
func (c *cell) text(raw []byte) error {
	s, err := c.decode(raw)
	if err != nil {
		return err
	}
	c.str.BinaryBuilder.Append(s)
	return nil
}

// decode makes UTF-8 of raw; the result is valid until the next call.
func (c *cell) decode(raw []byte) ([]byte, error) {
	if c.cs == nil {
		if !utf8.Valid(raw) {
			return nil, c.badText(raw)
		}
		return raw, nil
	}
	var ok bool
	if c.tmp, ok = c.cs.decode(c.tmp[:0], raw); !ok {
		return nil, c.badText(raw)
	}
	return c.tmp, nil
}

func (c *cell) badText(raw []byte) error {
	return &refusal{value: `\x` + hex.EncodeToString(raw[:min(len(raw), 100)]), why: "it is no text of the character set " + c.col.charset}
}

// bytes appends bytes as they are; those of binary(n) with the zeros behind them that the log leaves out.
func (c *cell) bytes(raw []byte) {
	if c.col.form == formFixed && len(raw) < c.col.length {
		c.tmp = append(c.tmp[:0], raw...)
		c.tmp = append(c.tmp, make([]byte, c.col.length-len(raw))...)
		raw = c.tmp
	}
	c.bin.Append(raw)
}

// enumNumber appends a label by its number; 0 is the empty text, which the server keeps for values that were none.
func (c *cell) enumNumber(n int) error {
	switch {
	case n == 0:
		c.str.Append("")
	case n > len(c.col.labels):
		return &refusal{value: strconv.Itoa(n), why: fmt.Sprintf("there is no label of number %d in %s", n, c.col.sql)}
	default:
		c.str.Append(c.col.labels[n-1])
	}
	return nil
}

// setMask appends the labels of a set by its bits, the first label's lowest.
func (c *cell) setMask(mask uint64) error {
	if n := bits.Len64(mask); n > len(c.col.labels) {
		return &refusal{value: strconv.FormatUint(mask, 2), why: fmt.Sprintf("there is no label of number %d in %s", n, c.col.sql)}
	}
	c.list.Append(true)
	for ; mask != 0; mask &= mask - 1 {
		c.str.Append(c.col.labels[bits.TrailingZeros64(mask)])
	}
	return nil
}

// setText appends the labels of a set from their text, with commas between, in the character set of the column.
func (c *cell) setText(raw []byte) error {
	s, err := c.decode(raw)
	if err != nil {
		return err
	}
	c.list.Append(true)
	for start, i := 0, 0; len(s) > 0 && i <= len(s); i++ {
		if i == len(s) || s[i] == ',' {
			c.str.BinaryBuilder.Append(s[start:i])
			start = i + 1
		}
	}
	return nil
}

// json appends a document in the server's own text, which is UTF-8. MariaDB checks it when it is written, unless it is told not to.
func (c *cell) json(doc []byte) error {
	if c.col.checked {
		s, err := c.decode(doc)
		if err != nil {
			return err
		}
		if err := record.CheckJSON(s); err != nil {
			return &refusal{value: string(s[:min(len(s), 200)]), why: "it is no JSON: " + err.Error()}
		}
		doc = s
	}
	c.str.BinaryBuilder.Append(doc)
	return nil
}

// foreign appends what the server prints.
func (c *cell) foreign(raw []byte) error {
	if !utf8.Valid(raw) {
		return c.badText(raw)
	}
	c.str.BinaryBuilder.Append(raw)
	return nil
}

// wkbHeader is the byte order and the type of WKB; ewkbSRID marks a type that is followed by the number of a reference system.
const (
	wkbHeader = 5
	ewkbSRID  = 0x20000000
)

// geometry appends a shape: the server's form is the number of its reference system and WKB; what comes out is EWKB, which is plain WKB
// where that number is 0.
func (c *cell) geometry(raw []byte) error {
	if len(raw) < 4+wkbHeader {
		if len(raw) == 0 {
			c.bin.Append(nil)
			return nil
		}
		return &refusal{value: `\x` + hex.EncodeToString(raw), why: "it is no geometry"}
	}
	srid, wkb := binary.LittleEndian.Uint32(raw), raw[4:]
	if srid == 0 {
		c.bin.Append(wkb)
		return nil
	}
	var order binary.ByteOrder = binary.LittleEndian
	if wkb[0] == 0 {
		order = binary.BigEndian
	}
	c.tmp = append(c.tmp[:0], wkb[0], 0, 0, 0, 0, 0, 0, 0, 0)
	order.PutUint32(c.tmp[1:], order.Uint32(wkb[1:])|ewkbSRID)
	order.PutUint32(c.tmp[wkbHeader:], srid)
	c.tmp = append(c.tmp, wkb[wkbHeader:]...)
	c.bin.Append(c.tmp)
	return nil
}

// uuidText appends a UUID from its digits.
func (c *cell) uuidText(text []byte) error {
	var v [16]byte
	at := 0
	for i := 0; i < len(text); i++ {
		if text[i] == '-' {
			continue
		}
		if i+1 >= len(text) || at == len(v) {
			return &refusal{value: string(text), why: "it is no UUID"}
		}
		if _, err := hex.Decode(v[at:at+1], text[i:i+2]); err != nil {
			return &refusal{value: string(text), why: "it is no UUID"}
		}
		i++
		at++
	}
	if at != len(v) {
		return &refusal{value: string(text), why: "it is no UUID"}
	}
	c.fix.Append(v[:])
	return nil
}

// uuid appends a UUID of 16 bytes, in the order of its digits.
func (c *cell) uuid(v []byte) { c.fix.Append(v) }

// address appends an address of inet4 or inet6.
func (c *cell) address(a netip.Addr) {
	c.tmp = a.AppendTo(c.tmp[:0])
	c.str.BinaryBuilder.Append(c.tmp)
}

// addressText appends an address from its text.
func (c *cell) addressText(text []byte) error {
	a, err := netip.ParseAddr(string(text))
	if err != nil {
		return &refusal{value: string(text), why: "it is no address"}
	}
	c.address(a)
	return nil
}

// vector appends floats of 4 bytes each.
func (c *cell) vector(raw []byte) error {
	if len(raw)%4 != 0 {
		return &refusal{value: `\x` + hex.EncodeToString(raw), why: "it is no vector"}
	}
	c.list.Append(true)
	for ; len(raw) > 0; raw = raw[4:] {
		c.f32.Append(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	return nil
}

package pgcopy

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"unsafe"

	"github.com/leatdata/leat/record"
)

// What the server prints for the values that are no numbers.
const (
	textNaN         = "NaN"
	textInfinity    = "Infinity"
	textNegInfinity = "-Infinity"
	textForever     = "infinity" // of dates, times and intervals
	textEver        = "-infinity"
)

// Bits of NaN as the server has it in binary.
const (
	nan64 = 0x7FF8_0000_0000_0000
	nan32 = 0x7FC0_0000
)

// textError is a text that its type's output function does not make, with settings of the session that are known here.
func textError(v []byte, what string) error {
	return fmt.Errorf("%q is not how the server prints %s: %w", shorten(string(v)), what, errMalformed)
}

// appendText is append for the text form.
func (c *column) appendText(v []byte) error { return c.close(c.text(v)) }

// text appends one value to the buffers.
func (c *column) text(v []byte) error { //nolint:cyclop // a case for each type; the hot path
	switch c.op {
	case opRaw:
		if !c.hex {
			return c.raw(v)
		}
		return c.hexText(v)
	case opVersioned, opNetwork, opMAC:
		return c.raw(v)
	case opSwap8, opSwap4, opSwap2:
		if c.float {
			return c.floatText(v)
		}
		return c.intText(v)
	case opDecimal:
		var x limbs
		negative, err := parseDecimal(&x, v, c.scale)
		if err != nil {
			return err
		}
		return c.decimal(&x, negative)
	case opTimestamp, opTimestampText:
		t, ok := parseTimestamp(v, c.zoned)
		switch {
		case !ok:
			return textError(v, "timestamps with DateStyle ISO")
		case c.op == opTimestampText:
			c.data = appendTimestampText(c.data, t, c.zoned)
			return nil
		}
		return c.timestamp(t)
	case opBool:
		if len(v) != 1 || (v[0] != 't' && v[0] != 'f') {
			return textError(v, "booleans")
		}
		truth := byte(0)
		if v[0] == 't' {
			truth = 1
		}
		c.fix = c.bit(c.fix, truth)
	case opCopy:
		return c.uuidText(v)
	case opArray:
		return c.arr.appendText(v)
	case opNumericText:
		if !isNumericText(v) {
			return textError(v, "numbers")
		}
		c.data = append(c.data, v...)
	case opBits:
		for _, d := range v {
			if d != '0' && d != '1' {
				return textError(v, "bit strings")
			}
		}
		c.data = append(c.data, v...)
	default:
		return c.temporalText(v)
	}
	return nil
}

func (c *column) temporalText(v []byte) error {
	switch c.op { //nolint:exhaustive // text has the others
	case opDate:
		d, ok := parseDate(v)
		if !ok {
			return textError(v, "dates with DateStyle ISO")
		}
		return c.date(d)
	case opTime:
		t, rest, ok := parseClock(v)
		if !ok || len(rest) > 0 {
			return textError(v, "times of day")
		}
		return c.time(uint64(t))
	case opInterval, opIntervalText:
		i, ok := parseInterval(v)
		if !ok {
			return textError(v, "intervals with IntervalStyle postgres")
		}
		return c.interval(i)
	}
	return errMalformed
}

func (c *column) intText(v []byte) error {
	x, ok := parseInt(v)
	switch {
	case !ok:
	case c.op == opSwap8:
		c.fix = binary.LittleEndian.AppendUint64(c.fix, uint64(x))
		return nil
	case c.op == opSwap4 && x == int64(int32(x)):
		c.fix = binary.LittleEndian.AppendUint32(c.fix, uint32(x))
		return nil
	case c.op == opSwap2 && x == int64(int16(x)):
		c.fix = binary.LittleEndian.AppendUint16(c.fix, uint16(x))
		return nil
	}
	return textError(v, "whole numbers of the column's size")
}

// parseInt reads a whole number of 64 bits.
func parseInt(v []byte) (int64, bool) {
	digits, negative := v, false
	if len(v) > 0 && v[0] == '-' {
		digits, negative = v[1:], true
	}
	x, ok := parseUint(digits)
	if !ok || x > math.MaxInt64 {
		return math.MinInt64, ok && negative && x == 1<<63
	}
	if negative {
		return -int64(x), true
	}
	return int64(x), true
}

// parseUint reads nothing but digits.
func parseUint(v []byte) (uint64, bool) {
	if len(v) == 0 || len(v) > 19 {
		return 0, false
	}
	var x uint64
	for _, d := range v {
		if d -= '0'; d > 9 {
			return 0, false
		}
		x = 10*x + uint64(d)
	}
	return x, true
}

func (c *column) floatText(v []byte) error {
	size := 64
	if c.op == opSwap4 {
		size = 32
	}
	var f float64
	switch string(v) {
	case textNaN:
		if size == 32 {
			c.fix = binary.LittleEndian.AppendUint32(c.fix, nan32)
		} else {
			c.fix = binary.LittleEndian.AppendUint64(c.fix, nan64)
		}
		return nil
	case textInfinity:
		f = math.Inf(1)
	case textNegInfinity:
		f = math.Inf(-1)
	default:
		for _, d := range v {
			if (d < '0' || d > '9') && d != '-' && d != '+' && d != '.' && d != 'e' {
				return textError(v, "floats")
			}
		}
		var err error
		if f, err = strconv.ParseFloat(unsafe.String(unsafe.SliceData(v), len(v)), size); err != nil { //nolint:gosec // not kept
			return textError(v, "floats")
		}
	}
	if size == 32 {
		c.fix = binary.LittleEndian.AppendUint32(c.fix, math.Float32bits(float32(f)))
	} else {
		c.fix = binary.LittleEndian.AppendUint64(c.fix, math.Float64bits(f))
	}
	return nil
}

// hexText reads bytea_output = hex.
func (c *column) hexText(v []byte) (err error) {
	if len(v) < 2 || v[0] != '\\' || v[1] != 'x' {
		return textError(v, "bytea with bytea_output hex")
	}
	if c.data, err = hex.AppendDecode(c.data, v[2:]); err != nil {
		return textError(v, "bytea with bytea_output hex")
	}
	return nil
}

func (c *column) uuidText(v []byte) (err error) {
	if len(v) != 36 || v[8] != '-' || v[13] != '-' || v[18] != '-' || v[23] != '-' {
		return textError(v, "uuids")
	}
	at := len(c.fix)
	for _, part := range [...][]byte{v[:8], v[9:13], v[14:18], v[19:23], v[24:]} {
		if c.fix, err = hex.AppendDecode(c.fix, part); err != nil {
			c.fix = c.fix[:at]
			return textError(v, "uuids")
		}
	}
	return nil
}

// isNumericText reports whether v is what numeric_out makes: the canonical text of record.NumericType.
func isNumericText(v []byte) bool {
	switch string(v) {
	case textNaN, textInfinity, textNegInfinity:
		return true
	}
	negative := len(v) > 0 && v[0] == '-'
	if negative {
		v = v[1:]
	}
	point, digits := len(v), byte(0)
	for i, d := range v {
		switch {
		case d == '.' && point == len(v):
			point = i
		case d < '0' || d > '9':
			return false
		default:
			digits |= d - '0'
		}
	}
	// No bare point, no leading zeros, no negative zero.
	return point > 0 && point != len(v)-1 && (v[0] != '0' || point == 1) && (!negative || digits != 0)
}

// parseDecimal is decodeDecimal for what numeric_out makes.
func parseDecimal(x *limbs, v []byte, scale int) (negative bool, err error) {
	switch string(v) {
	case textNaN, textInfinity, textNegInfinity:
		return false, errNotFinite
	}
	if !isNumericText(v) {
		return false, textError(v, "numbers")
	}
	negative = v[0] == '-'
	if negative {
		v = v[1:]
	}
	var word, over uint64 // the digits since the last 18
	digits, left := 0, -1 // left: digits that the scale still wants; -1: before the point
	for _, d := range v {
		switch {
		case d == '.':
			left = scale
			continue
		case left == 0 && d != '0':
			return false, errDecimalFits
		case left == 0:
			continue
		case left > 0:
			left--
		}
		word = 10*word + uint64(d-'0')
		if digits++; digits == 18 {
			over |= x.mulAdd(pow10Table[18], word)
			word, digits = 0, 0
		}
	}
	if left < 0 {
		left = scale
	}
	over |= x.mulAdd(pow10Table[digits], word)
	for ; left > 0 && over == 0; left -= min(left, 18) {
		over |= x.mulAdd(pow10Table[min(left, 18)], 0)
	}
	if over != 0 {
		return false, errDecimalFits
	}
	return negative, nil
}

// parseInterval reads what interval_out makes with IntervalStyle = postgres: 1 year 2 mons -3 days +04:05:06.7. Infinite ones are the
// largest and the smallest value, as in binary.
func parseInterval(v []byte) (i record.IntervalValue, ok bool) {
	switch string(v) {
	case textForever:
		return record.IntervalValue{Months: math.MaxInt32, Days: math.MaxInt32, Micros: math.MaxInt64}, true
	case textEver:
		return record.IntervalValue{Months: math.MinInt32, Days: math.MinInt32, Micros: math.MinInt64}, true
	}
	var months, days int64
	for len(v) > 0 {
		word, rest := cutWord(v)
		n, isNumber := parseInt(trimPlus(word))
		if !isNumber {
			i.Micros, ok = parseSpan(word)
			v = rest
			break
		}
		var unit []byte
		if unit, v = cutWord(rest); n != int64(int32(n)) {
			return i, false
		}
		switch string(unit) {
		case "year", "years":
			months += 12 * n
		case "mon", "mons":
			months += n
		case "day", "days":
			days += n
		default:
			return i, false
		}
		ok = true
	}
	if !ok || len(v) > 0 || months != int64(int32(months)) || days != int64(int32(days)) {
		return i, false
	}
	i.Months, i.Days = int32(months), int32(days)
	return i, true
}

package mysql

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"

	"github.com/leatdata/leat/format/mybinlog"
)

// errKind says that a column of the log is of another type than the column of the table.
var errKind = errors.New("the log has a value of another type")

// logged appends a value as the log has it, by the form of the column.
func (c *cell) logged(m *mybinlog.MapColumn, v []byte) error { //nolint:cyclop // a case for each form; the hot path
	switch c.col.form {
	case formInt:
		return c.integer(loggedInt(v, c.col.unsigned))
	case formText:
		if m.Kind == mybinlog.KindBlobCompressed || m.Kind == mybinlog.KindVarcharCompressed {
			return c.inflated(v, c.text)
		}
		return c.text(v)
	case formDecimal:
		return c.loggedDecimal(m, v)
	case formDateTime, formTimestamp, formDate, formTime:
		return c.loggedTime(m, v)
	case formFloat:
		c.float(math.Float32frombits(binary.LittleEndian.Uint32(v)))
	case formDouble:
		c.double(math.Float64frombits(binary.LittleEndian.Uint64(v)))
	case formBytes, formFixed:
		if m.Kind == mybinlog.KindBlobCompressed || m.Kind == mybinlog.KindVarcharCompressed {
			return c.inflated(v, func(b []byte) error { c.bytes(b); return nil })
		}
		c.bytes(v)
	case formEnum:
		return c.enumNumber(int(loggedInt(v, true)))
	case formSet:
		return c.setMask(loggedInt(v, true))
	case formBits:
		return c.bitString(v)
	case formBool:
		if m.Kind == mybinlog.KindBit {
			return c.bitString(v)
		}
		return c.integer(loggedInt(v, c.col.unsigned))
	case formYear:
		year := uint16(v[0])
		if year != 0 {
			year += 1900
		}
		c.year(year)
	case formJSON:
		return c.loggedJSON(m, v)
	case formGeometry:
		return c.geometry(v)
	case formUUID:
		return c.loggedUUID(v)
	case formInet:
		return c.loggedInet(v)
	case formVector:
		return c.vector(v)
	default:
		return fmt.Errorf("%w: nothing is known of values of the type %s in the binary log", errKind, c.col.sql)
	}
	return nil
}

// loggedInt reads a number of up to eight bytes, the lowest first.
func loggedInt(v []byte, unsigned bool) uint64 {
	var n uint64
	switch len(v) {
	case 1:
		n = uint64(v[0])
	case 4:
		n = uint64(binary.LittleEndian.Uint32(v))
	case 8:
		return binary.LittleEndian.Uint64(v)
	default:
		for i, b := range v {
			n |= uint64(b) << (8 * i)
		}
	}
	if unsigned {
		return n
	}
	shift := 64 - 8*len(v)
	return uint64(int64(n<<shift) >> shift)
}

// loggedDecimal reads a packed number.
func (c *cell) loggedDecimal(m *mybinlog.MapColumn, v []byte) error {
	precision, scale := int(m.Meta>>8), int(m.Meta&0xff)
	if scale != c.col.scale || m.Kind != mybinlog.KindNewDecimal {
		return errKind
	}
	w, err := mybinlog.ParseDecimal(v, precision, scale)
	if err != nil {
		return err //nolint:wrapcheck // callers say what was being done
	}
	var n limbs
	for i := range w.N {
		n.add(powerOfTen(w.Digits[i]), uint64(w.Groups[i]))
	}
	if w.Negative {
		n.negate()
	}
	if c.d128 != nil {
		c.d128.Append(decimal128.New(int64(n[1]), n[0]))
		return nil
	}
	c.d256.Append(decimal256.New(n[3], n[2], n[1], n[0]))
	return nil
}

func powerOfTen(digits uint8) uint64 {
	return [...]uint64{1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}[digits]
}

// loggedTime reads a date, a time of day, or both.
func (c *cell) loggedTime(m *mybinlog.MapColumn, v []byte) error {
	switch m.Kind { //nolint:exhaustive // all others are none
	case mybinlog.KindDate:
		n := int(loggedInt(v, true))
		return c.moment(civil{year: n >> 9, month: n >> 5 & 15, day: n & 31})
	case mybinlog.KindDatetime2:
		n := int64(bigInt(v[:5])) - 1<<39
		day, clock := n>>17, n&(1<<17-1)
		month := day >> 5
		return c.moment(civil{
			year: int(month / 13), month: int(month % 13), day: int(day & 31), hour: int(clock >> 12), minute: int(clock >> 6 & 63),
			second: int(clock & 63), micros: fraction(v[5:]),
		})
	case mybinlog.KindTimestamp2:
		return c.instant(int64(bigInt(v[:4])), fraction(v[4:]))
	case mybinlog.KindTime2:
		return c.loggedClock(v)
	case mybinlog.KindTimestamp:
		return c.instant(int64(loggedInt(v, true)), 0)
	case mybinlog.KindDatetime:
		n := int64(loggedInt(v, false))
		day, clock := n/1e6, n%1e6
		return c.moment(civil{
			year: int(day / 10000), month: int(day / 100 % 100), day: int(day % 100),
			hour: int(clock / 10000), minute: int(clock / 100 % 100), second: int(clock % 100),
		})
	case mybinlog.KindTime:
		n := int64(loggedInt(v, false))
		sign := int64(1)
		if n < 0 {
			sign, n = -1, -n
		}
		c.duration(sign * 1e6 * (n/10000*3600 + n/100%100*60 + n%100))
		return nil
	}
	return errKind
}

// loggedClock reads a TIME: a number of three bytes around the middle of its range, and the parts of a second, which belong to it.
func (c *cell) loggedClock(v []byte) error {
	digits := len(v) - 3
	n := int64(bigInt(v)) - 1<<(8*len(v)-1)
	sign := int64(1)
	if n < 0 {
		sign, n = -1, -n
	}
	part := n & (1<<(8*digits) - 1)
	clock := n >> (8 * digits)
	for range 3 - digits {
		part *= 100
	}
	c.duration(sign * ((clock>>12&0x3ff*3600+clock>>6&63*60+clock&63)*1e6 + part))
	return nil
}

// bigInt reads a number, the highest byte first.
func bigInt(v []byte) (n uint64) {
	for _, b := range v {
		n = n<<8 | uint64(b)
	}
	return n
}

// fraction reads the parts of a second, in microseconds: each byte has two digits.
func fraction(v []byte) int {
	n := int(bigInt(v))
	for range 3 - len(v) {
		n *= 100
	}
	return n
}

// loggedJSON makes the server's text of a document. That of MariaDB is text already.
func (c *cell) loggedJSON(m *mybinlog.MapColumn, v []byte) (err error) {
	switch m.Kind { //nolint:exhaustive // all others are text
	case mybinlog.KindJSON:
		if c.tmp, err = mybinlog.AppendJSON(c.tmp[:0], v); err != nil {
			return err //nolint:wrapcheck // callers say what was being done
		}
		c.str.BinaryBuilder.Append(c.tmp)
		return nil
	case mybinlog.KindBlobCompressed, mybinlog.KindVarcharCompressed:
		return c.inflated(v, c.json)
	}
	return c.json(v)
}

// inflated takes a value apart that MariaDB compressed: a byte that says how, the length, and the data.
func (*cell) inflated(v []byte, add func([]byte) error) error {
	if len(v) == 0 || v[0] == 0 {
		return add(v[min(1, len(v)):])
	}
	const method, raw, sizes = 0x80, 0x08, 0x07
	n := int(v[0] & sizes)
	if v[0]&method == 0 || len(v) < 1+n {
		return errKind
	}
	var z io.ReadCloser
	var err error
	if z = flate.NewReader(bytes.NewReader(v[1+n:])); v[0]&raw == 0 {
		if z, err = zlib.NewReader(bytes.NewReader(v[1+n:])); err != nil {
			return fmt.Errorf("reading a compressed value: %w", err)
		}
	}
	size := bigInt(v[1 : 1+n])
	var out bytes.Buffer
	if m, err := io.Copy(&out, io.LimitReader(z, int64(min(size, math.MaxInt32))+1)); err != nil || uint64(m) != size {
		return fmt.Errorf("reading a compressed value of %d bytes: %d bytes came: %w", size, m, errors.Join(err, z.Close()))
	}
	return add(out.Bytes())
}

// loggedUUID reads a UUID of MariaDB. The log leaves out zeros at the end, as it does of CHAR.
func (c *cell) loggedUUID(v []byte) error {
	var u [16]byte
	if len(v) > len(u) {
		return errKind
	}
	copy(u[:], v)
	c.uuid(u[:])
	return nil
}

// loggedInet reads an address of four or sixteen bytes. The log leaves out zeros at the end.
func (c *cell) loggedInet(v []byte) error {
	size := 16
	if c.col.data == "inet4" {
		size = 4
	}
	if len(v) > size {
		return errKind
	}
	var raw [16]byte
	copy(raw[:], v)
	a, ok := netip.AddrFromSlice(raw[:size])
	if !ok {
		return errKind
	}
	c.address(a)
	return nil
}

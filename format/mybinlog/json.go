package mybinlog

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// errJSON says that a document of MySQL's binary JSON is damaged.
var errJSON = errors.New("a JSON document of the binary log is damaged")

// Types of values of binary JSON.
const (
	jsonSmallObject = 0
	jsonLargeObject = 1
	jsonSmallArray  = 2
	jsonLargeArray  = 3
	jsonLiteral     = 4
	jsonInt16       = 5
	jsonUint16      = 6
	jsonInt32       = 7
	jsonUint32      = 8
	jsonInt64       = 9
	jsonUint64      = 10
	jsonDouble      = 11
	jsonString      = 12
	jsonOpaque      = 15
)

// maxJSONDepth is as deep as the server nests documents.
const maxJSONDepth = 100

// AppendJSON appends the text of a document of MySQL's binary JSON, byte for byte as the server prints it.
func AppendJSON(dst, doc []byte) ([]byte, error) {
	if len(doc) == 0 { // an empty value, as an old server writes NULL of a NOT NULL column
		return append(dst, "null"...), nil
	}
	return appendJSONValue(dst, doc[0], doc[1:], 0)
}

func appendJSONValue(dst []byte, kind byte, v []byte, depth int) ([]byte, error) {
	switch kind {
	case jsonSmallObject, jsonLargeObject, jsonSmallArray, jsonLargeArray:
		return appendContainer(dst, kind, v, depth)
	case jsonLiteral, jsonInt16, jsonUint16, jsonInt32, jsonUint32:
		return appendJSONScalar(dst, kind, v)
	case jsonInt64, jsonUint64, jsonDouble:
		if len(v) < 8 {
			return nil, errJSON
		}
		switch n := binary.LittleEndian.Uint64(v); kind {
		case jsonInt64:
			return strconv.AppendInt(dst, int64(n), 10), nil
		case jsonUint64:
			return strconv.AppendUint(dst, n, 10), nil
		}
		f := math.Float64frombits(binary.LittleEndian.Uint64(v))
		if math.IsNaN(f) || math.IsInf(f, 0) { // JSON has none
			return nil, errJSON
		}
		return appendDouble(dst, f, true), nil
	case jsonString:
		text, err := jsonBytes(v)
		if err != nil {
			return nil, err
		}
		return appendQuoted(dst, text), nil
	case jsonOpaque:
		return appendOpaque(dst, v)
	}
	return nil, errJSON
}

// appendJSONScalar prints values of up to four bytes, which may stand in place of an offset.
func appendJSONScalar(dst []byte, kind byte, v []byte) ([]byte, error) {
	wide := kind == jsonInt32 || kind == jsonUint32
	if len(v) < 2 || (wide && len(v) < 4) {
		if kind != jsonLiteral || len(v) < 1 {
			return nil, errJSON
		}
	}
	switch kind {
	case jsonInt16:
		return strconv.AppendInt(dst, int64(int16(binary.LittleEndian.Uint16(v))), 10), nil
	case jsonUint16:
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint16(v)), 10), nil
	case jsonInt32:
		return strconv.AppendInt(dst, int64(int32(binary.LittleEndian.Uint32(v))), 10), nil
	case jsonUint32:
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(v)), 10), nil
	}
	switch v[0] {
	case 0:
		return append(dst, "null"...), nil
	case 1:
		return append(dst, "true"...), nil
	case 2:
		return append(dst, "false"...), nil
	}
	return nil, errJSON
}

// container is an object or an array: the numbers of its elements and of its bytes, entries for keys and for values, and what those
// point to.
type container struct {
	object bool
	width  int // of numbers and offsets
	n      int
	b      []byte
}

func parseContainer(kind byte, v []byte) (c container, err error) {
	c = container{object: kind == jsonSmallObject || kind == jsonLargeObject, width: 2}
	if kind == jsonLargeObject || kind == jsonLargeArray {
		c.width = 4
	}
	if len(v) < 2*c.width {
		return c, errJSON
	}
	c.n = c.number(v)
	size := c.number(v[c.width:])
	entries := c.n * (1 + c.width)
	if c.object {
		entries += c.n * (c.width + 2)
	}
	if size > len(v) || 2*c.width+entries > size || c.n > len(v) {
		return c, errJSON
	}
	c.b = v[:size]
	return c, nil
}

func (c *container) number(b []byte) int {
	if c.width == 4 {
		return int(binary.LittleEndian.Uint32(b))
	}
	return int(binary.LittleEndian.Uint16(b))
}

func (c *container) key(i int) ([]byte, error) {
	at := 2*c.width + i*(c.width+2)
	from, n := c.number(c.b[at:]), int(binary.LittleEndian.Uint16(c.b[at+c.width:]))
	if from+n > len(c.b) {
		return nil, errJSON
	}
	return c.b[from : from+n], nil
}

// value returns the type of an element, and the bytes from its beginning on. Small ones stand in the entry itself.
func (c *container) value(i int) (kind byte, v []byte, err error) {
	at := 2*c.width + i*(1+c.width)
	if c.object {
		at += c.n * (c.width + 2)
	}
	kind = c.b[at]
	inside := kind == jsonLiteral || kind == jsonInt16 || kind == jsonUint16 ||
		(c.width == 4 && (kind == jsonInt32 || kind == jsonUint32))
	if inside {
		return kind, c.b[at+1 : at+1+c.width], nil
	}
	from := c.number(c.b[at+1:])
	if from >= len(c.b) || from < 2*c.width {
		return 0, nil, errJSON
	}
	return kind, c.b[from:], nil
}

func appendContainer(dst []byte, kind byte, v []byte, depth int) ([]byte, error) {
	if depth > maxJSONDepth {
		return nil, errJSON
	}
	c, err := parseContainer(kind, v)
	if err != nil {
		return nil, err
	}
	begin, end := byte('['), byte(']')
	if c.object {
		begin, end = '{', '}'
	}
	dst = append(dst, begin)
	for i := range c.n {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if c.object {
			key, err := c.key(i)
			if err != nil {
				return nil, err
			}
			dst = append(appendQuoted(dst, key), ": "...)
		}
		kind, v, err := c.value(i)
		if err != nil {
			return nil, err
		}
		if dst, err = appendJSONValue(dst, kind, v, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, end), nil
}

// jsonBytes reads bytes behind their length, which has seven bits in each byte, the lowest first.
func jsonBytes(v []byte) ([]byte, error) {
	n := 0
	for i := range 5 {
		if i >= len(v) {
			break
		}
		n |= int(v[i]&0x7f) << (7 * i)
		if v[i]&0x80 == 0 {
			v = v[i+1:]
			if n > len(v) {
				break
			}
			return v[:n], nil
		}
	}
	return nil, errJSON
}

// appendQuoted prints a text as the server does: controls that have no letter as \u00xx, all else as it is.
func appendQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= ' ':
			dst = append(dst, c)
		case c == '\b':
			dst = append(dst, `\b`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\f':
			dst = append(dst, `\f`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		default:
			const digits = "0123456789abcdef"
			dst = append(dst, `\u00`...)
			dst = append(dst, digits[c>>4], digits[c&15])
		}
	}
	return append(dst, '"')
}

// plainDigits is up to how many places before and behind the point the server prints numbers without an exponent.
const plainDigits = 15

// appendDouble prints a number as the server does: the shortest digits that read back as the same number; point: one that has no
// point gets ".0".
func appendDouble(dst []byte, v float64, point bool) []byte {
	if v == 0 {
		if math.Signbit(v) {
			dst = append(dst, '-')
		}
		dst = append(dst, '0')
		if point {
			dst = append(dst, ".0"...)
		}
		return dst
	}
	var buf [32]byte
	e := strconv.AppendFloat(buf[:0], v, 'e', -1, 64) // d.ddde±dd
	digits := make([]byte, 0, 24)
	at := 0
	if e[0] == '-' {
		dst = append(dst, '-')
		at = 1
	}
	for ; e[at] != 'e'; at++ {
		if e[at] != '.' {
			digits = append(digits, e[at])
		}
	}
	exp, _ := strconv.Atoi(string(e[at+1:]))
	before := exp + 1 // digits before the point
	switch {
	case before > plainDigits && len(digits) <= before, before <= -plainDigits:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		return strconv.AppendInt(append(dst, 'e'), int64(exp), 10)
	case before <= 0:
		dst = append(dst, "0."...)
		for range -before {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	case before < len(digits):
		dst = append(dst, digits[:before]...)
		return append(append(dst, '.'), digits[before:]...)
	}
	dst = append(dst, digits...)
	for range before - len(digits) {
		dst = append(dst, '0')
	}
	if point {
		dst = append(dst, ".0"...)
	}
	return dst
}

// bytesOfLine is how many bytes the server puts into a line of base64.
const bytesOfLine = 57

// appendOpaque prints a value that JSON itself has no type for: its kind as a column, then its bytes.
func appendOpaque(dst, v []byte) ([]byte, error) {
	if len(v) < 2 {
		return nil, errJSON
	}
	kind := Kind(v[0])
	data, err := jsonBytes(v[1:])
	if err != nil {
		return nil, err
	}
	switch kind { //nolint:exhaustive // all others print as bytes
	case KindNewDecimal:
		if len(data) < 2 {
			return nil, errJSON
		}
		return AppendDecimal(dst, data[2:], int(data[0]), int(data[1]))
	case KindDate, KindDatetime, KindTimestamp, KindTime:
		if len(data) != 8 {
			return nil, errJSON
		}
		return appendPackedTime(dst, kind, int64(binary.LittleEndian.Uint64(data))), nil
	}
	dst = strconv.AppendUint(append(dst, `"base64:type`...), uint64(kind), 10)
	dst = append(dst, ':')
	for {
		line := data[:min(len(data), bytesOfLine)]
		data = data[len(line):]
		dst = base64.StdEncoding.AppendEncode(dst, line)
		if len(data) == 0 {
			return append(dst, '"'), nil
		}
		dst = append(dst, `\n`...)
	}
}

// appendPackedTime prints a date or a time in the form that the server keeps in memory: for dates (year*13+month)<<46 | day<<41 | …, for
// times hours<<36 | minutes<<30 | …, with microseconds in the lowest 24 bits.
func appendPackedTime(dst []byte, kind Kind, v int64) []byte {
	micros, whole := v&(1<<24-1), v>>24
	dst = append(dst, '"')
	if kind == KindTime {
		if v < 0 {
			dst = append(dst, '-')
			micros, whole = -v&(1<<24-1), -v>>24
		}
		dst = fmt.Appendf(dst, "%02d:%02d:%02d.%06d", whole>>12&0x3ff, whole>>6&63, whole&63, micros)
		return append(dst, '"')
	}
	days, clock := whole>>17, whole&(1<<17-1)
	month, day := days>>5, days&31
	dst = fmt.Appendf(dst, "%04d-%02d-%02d", month/13, month%13, day)
	if kind != KindDate {
		dst = fmt.Appendf(dst, " %02d:%02d:%02d.%06d", clock>>12, clock>>6&63, clock&63, micros)
	}
	return append(dst, '"')
}

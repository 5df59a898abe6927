package mysql

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// style is how the text of a value is written in a statement.
type style uint8

// The styles.
const (
	styleBare   style = iota // digits
	styleQuoted              // plain characters in quotes
	styleText                // any characters
	styleBlob                // any bytes
	styleBits                // digits 0 and 1
)

// putter appends value i, which is not null, without quotes.
type putter func(dst []byte, i int) ([]byte, error)

// outCell writes the values of one column of a batch.
type outCell struct {
	name     string
	arr      arrow.Array
	demanded bool // the target takes no null, or would put another value in its place
	style    style
	put      putter
	whole    func(i int) string // the same, where the value is there already; nil: it is not
	room     []byte
}

// valueError is a value that the target's column can't hold.
type valueError struct {
	row    int
	column string
	value  string
	err    error
}

func (e *valueError) Error() string {
	return fmt.Sprintf("column %q, value %q: %v", e.column, e.value, e.err)
}
func (e *valueError) Unwrap() error { return e.err }

var (
	errNotNull    = errors.New("the target takes no null here")
	errRounded    = errors.New("the target would round it")
	errNoLabel    = errors.New("the target does not have this label")
	errBlank      = errors.New("char(n) does not keep blanks at the end")
	errWidth      = errors.New("the target has another number of bytes")
	errNoYear     = errors.New("the target has the years 0 to 9999")
	errRange      = errors.New("the target has less than 839 hours")
	errNotFinite  = errors.New("the target has no NaN and no infinity")
	errJSONNumber = errors.New("the target would change a number in the document")
	errGeometry   = errors.New("no geometry")
	errSet        = errors.New("a set has each label once, in the order of the column, and no null")
)

// fail names a value of the column that does not fit.
func (c *outCell) fail(i int, err error) error {
	e := &valueError{row: i, column: c.name, err: err}
	if !c.arr.IsNull(i) {
		e.value = shown(string(record.AppendText(nil, c.arr, i)))
	}
	return e
}

// newOutCell prepares writing the values of arr.
func newOutCell(f *fitting, arr arrow.Array) (*outCell, error) {
	c := &outCell{name: f.Column, arr: arr, demanded: f.target.notNull}
	stored := arr
	if ext, ok := arr.(array.ExtensionArray); ok {
		stored = ext.Storage()
	}
	switch f.target.form {
	case formInt, formYear:
		c.put = putInteger(stored)
	case formDecimal:
		c.put = c.putDecimal(f.kind)
	case formFloat, formDouble:
		c.put = c.putFloat(stored, f.target.form == formFloat)
	case formDate, formDateTime, formTimestamp, formTime:
		c.temporal(f, stored)
	case formBits:
		c.style, c.put = styleBits, putBits(stored)
	case formJSON:
		c.document(f, stored)
	case formBytes, formFixed:
		c.bytes(f, stored)
	case formGeometry:
		c.style, c.put = styleBlob, c.putGeometry(stored)
	case formEnum:
		c.label(f, stored)
	case formSet:
		c.style, c.put = styleText, c.putSet(f, stored)
	default:
		c.text(f, stored)
	}
	if c.put == nil && c.whole == nil {
		return nil, fmt.Errorf("column %q: %s can't be written to %s", f.Column, f.kind, f.target.sql)
	}
	return c, nil
}

func putInteger(arr arrow.Array) putter {
	switch a := arr.(type) {
	case *array.Int64:
		return func(dst []byte, i int) ([]byte, error) { return strconv.AppendInt(dst, a.Value(i), 10), nil }
	case *array.Int32:
		return func(dst []byte, i int) ([]byte, error) { return strconv.AppendInt(dst, int64(a.Value(i)), 10), nil }
	case *array.Boolean:
		return func(dst []byte, i int) ([]byte, error) {
			if a.Value(i) {
				return append(dst, '1'), nil
			}
			return append(dst, '0'), nil
		}
	case *array.Int8, *array.Int16, *array.Uint8, *array.Uint16, *array.Uint32, *array.Uint64:
		return func(dst []byte, i int) ([]byte, error) { return record.AppendText(dst, arr, i), nil }
	}
	return nil
}

// putDecimal leaves out what does not count in a number of any precision: zeros at the end of a fraction.
func (c *outCell) putDecimal(t record.Type) putter {
	switch {
	case isInteger(t.Kind) || t.Kind == record.Bool:
		return putInteger(c.arr)
	case t.Kind == record.Decimal:
		return func(dst []byte, i int) ([]byte, error) { return record.AppendText(dst, c.arr, i), nil }
	case t.Kind != record.Numeric:
		return nil
	}
	return func(dst []byte, i int) ([]byte, error) {
		at := len(dst)
		dst = record.AppendText(dst, c.arr, i)
		if last := dst[len(dst)-1]; last < '0' || last > '9' {
			return dst[:at], c.fail(i, errNotFinite)
		}
		return trimZeros(dst, at), nil
	}
}

// trimZeros takes zeros off the end of the fraction that begins somewhere behind at.
func trimZeros(dst []byte, at int) []byte {
	if bytes.IndexByte(dst[at:], '.') < 0 {
		return dst
	}
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	if dst[len(dst)-1] == '.' {
		dst = dst[:len(dst)-1]
	}
	if string(dst[at:]) == "-0" {
		dst = append(dst[:at], '0')
	}
	return dst
}

// minusZero is -0 as putFloat writes it.
const minusZero = "-0e+00"

// putFloat writes with an exponent, so that the server takes it for a float. A float is written as the double that it is.
func (c *outCell) putFloat(arr arrow.Array, narrow bool) putter {
	var value func(i int) float64
	switch a := arr.(type) {
	case *array.Float64:
		value = a.Value
	case *array.Float32:
		value = func(i int) float64 { return float64(a.Value(i)) }
	default:
		return putInteger(arr)
	}
	return func(dst []byte, i int) ([]byte, error) {
		v := value(i)
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
			return dst, c.fail(i, errNotFinite)
		case narrow && float64(float32(v)) != v:
			return dst, c.fail(i, errRounded)
		}
		return strconv.AppendFloat(dst, v, 'e', -1, 64), nil
	}
}

// temporal prepares dates and times.
func (c *outCell) temporal(f *fitting, arr arrow.Array) {
	c.style = styleQuoted
	perMicro, unit := int64(1), int64(1)
	switch f.kind.Unit {
	case arrow.Second:
		unit = 1_000_000
	case arrow.Millisecond:
		unit = 1_000
	case arrow.Microsecond:
	case arrow.Nanosecond:
		perMicro = 1_000
	}
	digits := f.target.scale
	clock := func(dst []byte, i int, v int64, put func([]byte, int64, int) ([]byte, error)) ([]byte, error) {
		switch {
		case v%perMicro != 0:
			return dst, c.fail(i, errRounded)
		case v > math.MaxInt64/unit || v < math.MinInt64/unit:
			return dst, c.fail(i, errNoYear)
		}
		dst, err := put(dst, v/perMicro*unit, digits)
		if err != nil {
			return dst, c.fail(i, err)
		}
		return dst, nil
	}
	switch a := arr.(type) {
	case *array.String: // what the source could not take for a date
		c.style, c.whole = styleText, a.Value
	case *array.Date32:
		c.put = func(dst []byte, i int) ([]byte, error) {
			if v := int64(a.Value(i)); v >= firstDay && v <= maxDate {
				return record.AppendDate(dst, v), nil
			}
			return dst, c.fail(i, errNoYear)
		}
	case *array.Timestamp:
		c.put = func(dst []byte, i int) ([]byte, error) { return clock(dst, i, int64(a.Value(i)), appendDateTime) }
	case *array.Time64:
		c.put = func(dst []byte, i int) ([]byte, error) { return clock(dst, i, int64(a.Value(i)), appendAmount) }
	case *array.Time32:
		c.put = func(dst []byte, i int) ([]byte, error) { return clock(dst, i, int64(a.Value(i)), appendAmount) }
	case *array.Duration:
		c.put = func(dst []byte, i int) ([]byte, error) { return clock(dst, i, int64(a.Value(i)), appendAmount) }
	}
}

const (
	firstDay     = -719_528 // 0000-01-01
	microsPerDay = 86_400_000_000
)

// appendDateTime appends microseconds since 1970 as a date and a time.
func appendDateTime(dst []byte, v int64, digits int) ([]byte, error) {
	day, rest := v/microsPerDay, v%microsPerDay
	if rest < 0 {
		day, rest = day-1, rest+microsPerDay
	}
	if day < firstDay || day > maxDate {
		return dst, errNoYear
	}
	dst = append(record.AppendDate(dst, day), ' ')
	return appendClock(dst, rest, digits)
}

// appendAmount appends microseconds as a time, which may be negative and longer than a day.
func appendAmount(dst []byte, v int64, digits int) ([]byte, error) {
	const hours, most = 3_600_000_000, 839
	if v < 0 {
		dst, v = append(dst, '-'), -v
	}
	if v < 0 || v >= most*hours {
		return dst, errRange
	}
	return appendClock(dst, v, digits)
}

// appendClock appends hours, minutes, seconds and the fraction that is there, which has no more than so many digits.
func appendClock(dst []byte, v int64, digits int) ([]byte, error) {
	const second, sixty, micros = 1_000_000, 60, 6
	two := func(n int64) { dst = append(dst, byte('0'+n/10), byte('0'+n%10)) }
	s := v / second
	h := s / (sixty * sixty)
	if h < 100 {
		two(h)
	} else {
		dst = strconv.AppendInt(dst, h, 10)
	}
	dst = append(dst, ':')
	two(s / sixty % sixty)
	dst = append(dst, ':')
	two(s % sixty)
	frac := v % second
	if frac == 0 {
		return dst, nil
	}
	dst = append(dst, '.')
	for n := range micros {
		if frac == 0 {
			break
		}
		if n == digits {
			return dst, errRounded
		}
		dst = append(dst, byte('0'+frac/100_000))
		frac = frac % 100_000 * 10
	}
	return dst, nil
}

func putBits(arr arrow.Array) putter {
	switch a := arr.(type) {
	case *array.String:
		return func(dst []byte, i int) ([]byte, error) { return append(dst, a.Value(i)...), nil }
	case *array.Boolean:
		return putInteger(arr)
	}
	return nil
}

// document prepares JSON.
func (c *outCell) document(f *fitting, arr arrow.Array) {
	c.style = styleText
	a, isText := arr.(*array.String)
	switch {
	case isText && (f.kind.Kind == record.JSON || f.kind.Kind == record.String) && f.target.checked:
		c.whole = a.Value
	case isText && (f.kind.Kind == record.JSON || f.kind.Kind == record.String):
		c.put = func(dst []byte, i int) ([]byte, error) {
			doc := a.Value(i)
			if !numbersFit(doc) {
				return dst, c.fail(i, errJSONNumber)
			}
			return append(dst, doc...), nil
		}
	default:
		c.put = func(dst []byte, i int) ([]byte, error) {
			at := len(dst)
			dst = record.AppendJSON(dst, c.arr, i)
			if !f.target.checked && !numbersFit(string(dst[at:])) {
				return dst, c.fail(i, errJSONNumber)
			}
			return dst, nil
		}
	}
}

// numbersFit reports whether every number of a document is one that the server's own JSON keeps: an integer of 64 bits, or a double.
func numbersFit(doc string) bool {
	for i := 0; i < len(doc); i++ {
		switch b := doc[i]; {
		case b == '"':
			for i++; i < len(doc) && doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
		case b == '-' || (b >= '0' && b <= '9'):
			from := i
			for i+1 < len(doc) && strings.IndexByte("0123456789+-.eE", doc[i+1]) >= 0 {
				i++
			}
			if !numberFits(doc[from : i+1]) {
				return false
			}
		}
	}
	return true
}

func numberFits(n string) bool {
	const certain = 15 // digits that every double has room for
	if len(n) <= certain {
		return true
	}
	if !strings.ContainsAny(n, ".eE") {
		_, signed := strconv.ParseInt(n, 10, 64)
		_, unsigned := strconv.ParseUint(n, 10, 64)
		return signed == nil || unsigned == nil
	}
	v, err := strconv.ParseFloat(n, 64)
	if err != nil {
		return false
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(n), "e")
	digits := strings.Trim(strings.NewReplacer("-", "", "+", "", ".", "").Replace(mantissa), "0")
	shortest, _, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, 64), "e")
	return digits == strings.Trim(strings.NewReplacer("-", "", ".", "").Replace(shortest), "0")
}

// bytes prepares binary values.
func (c *outCell) bytes(f *fitting, arr arrow.Array) {
	c.style = styleBlob
	width := -1
	if f.target.form == formFixed {
		width = f.target.length
	}
	var value func(i int) []byte
	switch a := arr.(type) {
	case *array.Binary:
		value = a.Value
	case *array.FixedSizeBinary:
		value = a.Value
	default:
		return
	}
	c.put = func(dst []byte, i int) ([]byte, error) {
		v := value(i)
		if width >= 0 && len(v) != width { // it would be filled with zeros
			return dst, c.fail(i, errWidth)
		}
		return append(dst, v...), nil
	}
}

// putGeometry writes the server's own form of a geometry: its reference system and the well-known form. It reads the extended one.
func (c *outCell) putGeometry(arr arrow.Array) putter {
	a, ok := arr.(*array.Binary)
	if !ok {
		return nil
	}
	const header, withSystem, systemBytes = 5, 0x20000000, 4
	return func(dst []byte, i int) ([]byte, error) {
		v := a.Value(i)
		if len(v) < header || v[0] > 1 {
			return dst, c.fail(i, errGeometry)
		}
		var order binary.ByteOrder = binary.BigEndian
		if v[0] == 1 {
			order = binary.LittleEndian
		}
		kind, system, rest := order.Uint32(v[1:]), uint32(0), v[header:]
		if kind&withSystem != 0 {
			if len(rest) < systemBytes {
				return dst, c.fail(i, errGeometry)
			}
			system, rest = order.Uint32(rest), rest[systemBytes:]
		}
		dst = append(binary.LittleEndian.AppendUint32(dst, system), v[0])
		head := make([]byte, systemBytes)
		order.PutUint32(head, kind&^withSystem)
		return append(append(dst, head...), rest...), nil
	}
}

// label prepares labels. A text that is none would be taken for a number.
func (c *outCell) label(f *fitting, arr arrow.Array) {
	a, ok := arr.(*array.String)
	if !ok {
		return
	}
	known := make(map[string]bool, len(f.target.labels))
	for _, l := range f.target.labels {
		known[l] = true
	}
	c.style = styleText
	c.put = func(dst []byte, i int) ([]byte, error) {
		v := a.Value(i)
		if !known[v] {
			return dst, c.fail(i, errNoLabel)
		}
		return append(dst, v...), nil
	}
}

func (c *outCell) putSet(f *fitting, arr arrow.Array) putter {
	list, ok := arr.(*array.List)
	if !ok {
		return nil
	}
	values, ok := list.ListValues().(*array.String)
	if !ok {
		return nil
	}
	return func(dst []byte, i int) ([]byte, error) {
		from, to := list.ValueOffsets(i)
		last := -1
		for j := from; j < to; j++ {
			at := -1
			if values.IsValid(int(j)) {
				at = slices.Index(f.target.labels, values.Value(int(j)))
			}
			if at <= last {
				return dst, c.fail(i, errSet)
			}
			if last >= 0 {
				dst = append(dst, ',')
			}
			dst, last = append(dst, f.target.labels[at]...), at
		}
		return dst, nil
	}
}

// text prepares the canonical text of any kind.
func (c *outCell) text(f *fitting, arr arrow.Array) {
	if asciiOnly(f.kind) {
		c.style = styleQuoted
		c.put = func(dst []byte, i int) ([]byte, error) { return record.AppendText(dst, c.arr, i), nil }
		return
	}
	c.style = styleText
	a, ok := arr.(*array.String)
	if !ok {
		c.put = func(dst []byte, i int) ([]byte, error) { return record.AppendText(dst, c.arr, i), nil }
		return
	}
	if f.target.data != "char" {
		c.whole = a.Value
		return
	}
	c.put = func(dst []byte, i int) ([]byte, error) {
		v := a.Value(i)
		if strings.HasSuffix(v, " ") {
			return dst, c.fail(i, errBlank)
		}
		return append(dst, v...), nil
	}
}

// literal appends value i as a statement has it.
func (c *outCell) literal(dst []byte, i int) ([]byte, error) {
	if c.arr.IsNull(i) {
		if c.demanded {
			return dst, c.fail(i, errNotNull)
		}
		return append(dst, "NULL"...), nil
	}
	switch c.style {
	case styleBare:
		return c.put(dst, i)
	case styleQuoted, styleBits:
		at := len(dst)
		if c.style == styleBits {
			dst = append(dst, 'b')
		}
		dst, err := c.put(append(dst, '\''), i)
		if err != nil {
			return dst[:at], err
		}
		return append(dst, '\''), nil
	case styleBlob:
		dst = append(dst, "_binary"...)
	case styleText:
	}
	v, err := c.value(i)
	if err != nil {
		return dst, err
	}
	return append(escape(append(dst, '\''), v), '\''), nil
}

// value returns value i without quotes, until the next call.
func (c *outCell) value(i int) (string, error) {
	if c.whole != nil {
		return c.whole(i), nil
	}
	var err error
	c.room, err = c.put(c.room[:0], i)
	return unsafe.String(unsafe.SliceData(c.room), len(c.room)), err //nolint:gosec // not kept beyond the next call
}

// escape appends a text for quotes; only what has to be escaped is.
func escape(dst []byte, v string) []byte {
	from := 0
	for i := range len(v) {
		b := v[i]
		if b != '\'' && b != '\\' && b != 0 {
			continue
		}
		dst = append(append(dst, v[from:i]...), '\\')
		if b == 0 {
			b = '0'
		}
		dst = append(dst, b)
		from = i + 1
	}
	return append(dst, v[from:]...)
}

// field appends value i as a line of a file has it: fields end in a tab, lines in a line feed, a backslash escapes.
func (c *outCell) field(dst []byte, i int) ([]byte, error) {
	if c.arr.IsNull(i) {
		if c.demanded {
			return dst, c.fail(i, errNotNull)
		}
		return append(dst, `\N`...), nil
	}
	if c.style == styleBare || c.style == styleQuoted {
		return c.put(dst, i)
	}
	v, err := c.value(i)
	if err != nil {
		return dst, err
	}
	if c.style == styleBits {
		v = packBits(v)
	}
	from := 0
	for at := range len(v) {
		b := v[at]
		switch b {
		case '\t':
			b = 't'
		case '\n':
			b = 'n'
		case 0:
			b = '0'
		case '\\':
		default:
			continue
		}
		dst = append(append(dst, v[from:at]...), '\\', b)
		from = at + 1
	}
	return append(dst, v[from:]...), nil
}

// packBits makes bytes of digits; the last digit is the lowest bit of the last byte.
func packBits(digits string) string {
	const bitsPerByte = 8
	out := make([]byte, (len(digits)+bitsPerByte-1)/bitsPerByte)
	for i := range len(digits) {
		if digits[len(digits)-1-i] == '1' {
			out[len(out)-1-i/bitsPerByte] |= 1 << (i % bitsPerByte)
		}
	}
	return string(out)
}

// rowCells writes rows of several columns.
type rowCells []*outCell

// tuple appends the literals of row i in parentheses.
func (r rowCells) tuple(dst []byte, i int) ([]byte, error) {
	at := len(dst)
	dst = append(dst, '(')
	for n, c := range r {
		if n > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = c.literal(dst, i); err != nil {
			return dst[:at], err
		}
	}
	return append(dst, ')'), nil
}

// line appends row i as a line of a file.
func (r rowCells) line(dst []byte, i int) ([]byte, error) {
	at := len(dst)
	for n, c := range r {
		if n > 0 {
			dst = append(dst, '\t')
		}
		var err error
		if dst, err = c.field(dst, i); err != nil {
			return dst[:at], err
		}
	}
	return append(dst, '\n'), nil
}

// loose appends value i as a statement has it, also a null that the target would not take: of a row that need not be whole.
func (c *outCell) loose(dst []byte, i int) ([]byte, error) {
	if c.arr.IsNull(i) {
		return append(dst, "NULL"...), nil
	}
	return c.literal(dst, i)
}

package value

import (
	"bytes"
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

type kind uint8

const (
	other kind = iota
	text
	number // text that is a number or a JSON document: printed as it stands where it is one
	document
	int64s
	float64s
	bools
	dates
	timestamps
)

// Printer prints the values of one column of a batch.
type Printer struct {
	kind    kind
	arr     arrow.Array
	nulls   bool
	ints    []int64
	floats  []float64
	days    []arrow.Date32
	micros  []arrow.Timestamp
	zoned   bool
	bits    *array.Boolean
	offsets []int32
	data    []byte
}

// Bind returns a printer of an array.
func Bind(arr arrow.Array) Printer {
	p := Printer{arr: arr, nulls: arr.NullN() > 0}
	switch a := arr.(type) {
	case *array.String:
		p.kind = text
		p.bindText(a)
	case *array.Int64:
		p.kind, p.ints = int64s, a.Int64Values()
	case *array.Float64:
		p.kind, p.floats = float64s, a.Float64Values()
	case *array.Date32:
		p.kind, p.days = dates, a.Date32Values()
	case *array.Timestamp:
		if dt, ok := a.DataType().(*arrow.TimestampType); ok && dt.Unit == arrow.Microsecond {
			p.kind, p.micros, p.zoned = timestamps, a.TimestampValues(), dt.TimeZone != ""
		}
	case *array.Boolean:
		p.kind, p.bits = bools, a
	case array.ExtensionArray:
		p.bindExtension(a)
	}
	return p
}

func (p *Printer) bindText(a *array.String) {
	p.offsets, p.data = a.ValueOffsets(), a.Data().Buffers()[2].Bytes()
}

func (p *Printer) bindExtension(a array.ExtensionArray) {
	storage, ok := a.Storage().(*array.String)
	if !ok {
		return
	}
	t, err := record.TypeOf(a.DataType())
	if err != nil {
		return
	}
	switch t.Kind {
	case record.Numeric:
		p.kind = number
	case record.JSON:
		p.kind = document
	default:
		p.kind = text
	}
	p.bindText(storage)
}

// Null reports whether value i is null.
func (p *Printer) Null(i int) bool { return p.nulls && p.arr.IsNull(i) }

// Textual reports whether values may hold any character, so that they need quotes or escapes.
func (p *Printer) Textual() bool { return p.kind == text || p.kind == document || p.kind == other }

// Bytes returns the text of value i without a copy; false: the column is not kept as text.
func (p *Printer) Bytes(i int) ([]byte, bool) {
	if p.offsets == nil {
		return nil, false
	}
	return p.data[p.offsets[i]:p.offsets[i+1]], true
}

// Text appends what record.AppendText appends.
func (p *Printer) Text(dst []byte, i int) []byte {
	switch p.kind {
	case text, number, document:
		return append(dst, p.data[p.offsets[i]:p.offsets[i+1]]...)
	case int64s:
		return strconv.AppendInt(dst, p.ints[i], 10)
	case float64s:
		return Float(dst, p.floats[i])
	case bools:
		return strconv.AppendBool(dst, p.bits.Value(i))
	case dates:
		return Date(dst, int64(p.days[i]))
	case timestamps:
		return Timestamp(dst, int64(p.micros[i]), p.zoned)
	default:
		return record.AppendText(dst, p.arr, i)
	}
}

// JSON appends what record.AppendJSON appends, on one line.
func (p *Printer) JSON(dst []byte, i int) []byte {
	switch p.kind {
	case text:
		return String(dst, p.data[p.offsets[i]:p.offsets[i+1]])
	case number:
		b := p.data[p.offsets[i]:p.offsets[i+1]]
		if c := b[len(b)-1]; c >= '0' && c <= '9' {
			return append(dst, b...)
		}
		return String(dst, b)
	case document:
		return line(append(dst, p.data[p.offsets[i]:p.offsets[i+1]]...), len(dst))
	case int64s:
		return strconv.AppendInt(dst, p.ints[i], 10)
	case float64s:
		f := p.floats[i]
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return append(Float(append(dst, '"'), f), '"')
		}
		return Float(dst, f)
	case bools:
		return strconv.AppendBool(dst, p.bits.Value(i))
	case dates:
		return append(Date(append(dst, '"'), int64(p.days[i])), '"')
	case timestamps:
		return append(Timestamp(append(dst, '"'), int64(p.micros[i]), p.zoned), '"')
	default:
		return line(record.AppendJSON(dst, p.arr, i), len(dst))
	}
}

// line makes one line of the document that begins at from: a line end in a document stands between values, where a blank means the
// same.
func line(dst []byte, from int) []byte {
	if bytes.IndexByte(dst[from:], '\n') < 0 && bytes.IndexByte(dst[from:], '\r') < 0 {
		return dst
	}
	for i := from; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return dst
}

// maxMillionths bounds the numbers that Float prints as whole millionths: up to there they have at most 15 digits.
const maxMillionths = 1e9

const million = 1_000_000

// Float appends what record.AppendFloat appends for 64 bits. Numbers of at most six digits behind the point, which are most, are printed
// as integers: a decimal of up to 15 digits that is nearest to the float is its shortest form.
func Float(dst []byte, f float64) []byte {
	if f == 0 || !(f > -maxMillionths && f < maxMillionths) {
		return record.AppendFloat(dst, f, 64)
	}
	a := math.Abs(f)
	v := uint64(a*million + 0.5)
	if v == 0 || float64(v)/million != a {
		return record.AppendFloat(dst, f, 64)
	}
	if f < 0 {
		dst = append(dst, '-')
	}
	whole := v / million
	dst = strconv.AppendUint(dst, whole, 10)
	rest := uint32(v - whole*million)
	if rest == 0 {
		return dst
	}
	dst = append(append(append(append(dst, '.'), two(rest/10_000)...), two(rest/100%100)...), two(rest%100)...)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// pairs are the numbers from 00 to 99.
const pairs = "00010203040506070809" +
	"10111213141516171819" +
	"20212223242526272829" +
	"30313233343536373839" +
	"40414243444546474849" +
	"50515253545556575859" +
	"60616263646566676869" +
	"70717273747576777879" +
	"80818283848586878889" +
	"90919293949596979899"

// two returns the two digits of a number below 100.
func two(n uint32) string { return pairs[2*n : 2*n+2] }

// Days from 0000-01-01 and 9999-12-31 to 1970-01-01: between them a date has four digits of year.
const (
	firstDay = -719528
	lastDay  = 2932896
)

// Date appends what record.AppendDate appends.
func Date(dst []byte, days int64) []byte {
	if days < firstDay || days > lastDay {
		return record.AppendDate(dst, days)
	}
	// The day is taken apart in years that begin with March and in 400-year eras, the first of which begins with the year -400. See
	// Neri and Schneider, "Euclidean affine functions and their application to calendar algorithms", 2022.
	n := uint32(days+daysToMarch)*4 + 3
	century := n / daysPerEra
	n = n%daysPerEra | 3
	product := uint64(n) * 2939745
	inCentury, dayOfYear := uint32(product>>32), uint32(product)/2939745/4
	n = dayOfYear*2141 + 197913
	year, month, day := century*100+inCentury-400, n>>16, n&0xffff/2141+1
	if month > 12 {
		year, month = year+1, month-12
	}
	high, low := two(year/100), two(year%100)
	m, d := two(month), two(day)
	return append(dst, high[0], high[1], low[0], low[1], '-', m[0], m[1], '-', d[0], d[1])
}

const (
	daysPerEra  = 146_097
	daysToMarch = 719_468 + daysPerEra // from 1 March of the year -400 to 1970-01-01
)

const (
	microsPerSecond = 1_000_000
	microsPerDay    = 86_400 * microsPerSecond
)

// Timestamp appends what record.AppendTimestamp appends for microseconds.
func Timestamp(dst []byte, v int64, zoned bool) []byte {
	days, clock := v/microsPerDay, v%microsPerDay
	if clock < 0 {
		days, clock = days-1, clock+microsPerDay
	}
	if clock%microsPerSecond != 0 || days < firstDay || days > lastDay {
		return record.AppendTimestamp(dst, v, arrow.Microsecond, zoned)
	}
	s := uint32(clock / microsPerSecond)
	h, m, s := s/3600, s/60%60, s%60
	hh, mm, ss := two(h), two(m), two(s)
	dst = append(Date(dst, days), 'T', hh[0], hh[1], ':', mm[0], mm[1], ':', ss[0], ss[1])
	if zoned {
		return append(dst, 'Z')
	}
	return dst
}

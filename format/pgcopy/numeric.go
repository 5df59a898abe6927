package pgcopy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Signs of the numeric format.
const (
	numericPositive = 0x0000
	numericNegative = 0x4000
	numericNaN      = 0xC000
	numericPInf     = 0xD000
	numericNInf     = 0xF000
)

const (
	numericHeader  = 8
	numericBase    = 10_000
	numericDigits  = 4       // decimal digits in a base-10000 digit
	maxNumericHead = 131_072 // digits before the point
	maxNumericTail = 16_383  // digits after the point
	infinityScale  = 0x20    // what the server puts into the scale of infinities
)

var (
	errMalformed   = errors.New("malformed value")
	errNotFinite   = errors.New("NaN and infinities don't fit a decimal column")
	errDecimalFits = errors.New("the number doesn't fit the decimal column exactly")
)

// numericParts is a numeric taken apart.
type numericParts struct {
	digits []byte // big-endian words in base 10000
	weight int    // of the first digit, in powers of 10000
	sign   uint16
	scale  int // digits after the point
}

func splitNumeric(v []byte) (p numericParts, ok bool) {
	if len(v) < numericHeader {
		return p, false
	}
	p.weight = int(int16(binary.BigEndian.Uint16(v[2:])))
	p.sign = binary.BigEndian.Uint16(v[4:])
	p.scale = int(binary.BigEndian.Uint16(v[6:]))
	p.digits = v[numericHeader:]
	return p, len(p.digits) == 2*int(binary.BigEndian.Uint16(v)) && p.scale <= maxNumericTail
}

// decodeDecimal sets x, which is zero, to a numeric as an unscaled number of the given scale, without its sign.
func decodeDecimal(x *limbs, v []byte, scale int) (negative bool, err error) {
	p, ok := splitNumeric(v)
	switch {
	case !ok:
		return false, errMalformed
	case p.sign != numericPositive && p.sign != numericNegative:
		return false, errNotFinite
	case (p.weight+1)*numericDigits+scale <= 19 && p.weight < 5:
		x[0], err = smallDecimal(p.digits, p.weight, scale)
	default:
		err = bigDecimal(x, p.digits, numericDigits*(p.weight-len(p.digits)/2+1)+scale)
	}
	return p.sign == numericNegative, err
}

// smallDecimal is decodeDecimal where the result fits one word.
func smallDecimal(digits []byte, weight, scale int) (uint64, error) {
	var x uint64
	for i := 0; i < len(digits); i += 2 {
		d := uint64(binary.BigEndian.Uint16(digits[i:]))
		p := (weight-i/2)*numericDigits + scale
		switch {
		case d >= numericBase:
			return 0, errMalformed
		case p >= 0:
			x += d * pow10Table[p]
		case d == 0:
		case p > -numericDigits && d%pow10Table[-p] == 0:
			x += d / pow10Table[-p]
		default:
			return 0, errDecimalFits
		}
	}
	return x, nil
}

// bigDecimal sets x, which is zero, to the digits as a number times 10^exponent.
func bigDecimal(x *limbs, digits []byte, exponent int) error {
	var over uint64
	for i := 0; i < len(digits); i += 2 {
		d := uint64(binary.BigEndian.Uint16(digits[i:]))
		if d >= numericBase {
			return errMalformed
		}
		over |= x.mulAdd(numericBase, d)
	}
	if x.zero() {
		return nil
	}
	if exponent > 100 {
		return errDecimalFits
	}
	for ; exponent > 0 && over == 0; exponent -= min(exponent, 18) {
		over = x.mulAdd(pow10Table[min(exponent, 18)], 0)
	}
	for ; exponent < 0; exponent += min(-exponent, numericDigits) {
		if x.div(pow10Table[min(-exponent, numericDigits)]) != 0 {
			return errDecimalFits
		}
	}
	if over != 0 {
		return errDecimalFits
	}
	return nil
}

// appendNumericText appends a numeric as the server prints it.
func appendNumericText(dst, v []byte) ([]byte, error) {
	p, ok := splitNumeric(v)
	if !ok {
		return dst, errMalformed
	}
	switch p.sign {
	case numericNaN:
		return append(dst, "NaN"...), nil
	case numericPInf:
		return append(dst, "Infinity"...), nil
	case numericNInf:
		return append(dst, "-Infinity"...), nil
	case numericNegative:
		dst = append(dst, '-')
	case numericPositive:
	default:
		return dst, errMalformed
	}
	digit := func(i int) uint64 {
		if i < 0 || i >= len(p.digits)/2 {
			return 0
		}
		return uint64(binary.BigEndian.Uint16(p.digits[2*i:]))
	}
	if p.weight < 0 {
		dst = append(dst, '0')
	}
	for i := range p.weight + 1 {
		if i == 0 {
			dst = strconv.AppendUint(dst, digit(0), 10)
			continue
		}
		dst = appendDigits(dst, digit(i), numericDigits)
	}
	if p.scale == 0 {
		return dst, nil
	}
	dst = append(dst, '.')
	for i, left := p.weight+1, p.scale; left > 0; i, left = i+1, left-numericDigits {
		dst = appendDigits(dst, digit(i), min(left, numericDigits))
	}
	return dst, nil
}

// appendDigits appends the first take digits of a base-10000 digit.
func appendDigits(dst []byte, d uint64, take int) []byte {
	quad := [numericDigits]byte{byte('0' + d/1000%10), byte('0' + d/100%10), byte('0' + d/10%10), byte('0' + d%10)}
	return append(dst, quad[:take]...)
}

// appendNumeric appends length and value of a numeric whose unscaled magnitude is x.
func appendNumeric(dst []byte, x limbs, negative bool, scale int) []byte {
	var buf [24]uint16 // least significant digit first; 320 bits are 97 decimal digits at most
	n := 0
	if pad := (numericDigits - scale%numericDigits) % numericDigits; pad > 0 {
		x.mulAdd(pow10Table[pad], 0)
	}
	if x[1]|x[2]|x[3]|x[4] == 0 {
		for w := x[0]; w > 0; w /= numericBase {
			buf[n] = uint16(w % numericBase)
			n++
		}
	} else {
		for ; !x.zero(); n++ {
			buf[n] = uint16(x.div(numericBase))
		}
	}
	low := 0
	for low < n && buf[low] == 0 {
		low++
	}
	weight := n - (scale+numericDigits-1)/numericDigits - 1
	if low == n {
		weight, negative = 0, false
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(numericHeader+2*(n-low)))
	dst = appendNumericHeader(dst, n-low, weight, negative, scale)
	for i := n - 1; i >= low; i-- {
		dst = binary.BigEndian.AppendUint16(dst, buf[i])
	}
	return dst
}

func appendNumericHeader(dst []byte, digits, weight int, negative bool, scale int) []byte {
	sign := uint16(numericPositive)
	if negative {
		sign = numericNegative
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(digits))
	dst = binary.BigEndian.AppendUint16(dst, uint16(weight))
	dst = binary.BigEndian.AppendUint16(dst, sign)
	return binary.BigEndian.AppendUint16(dst, uint16(scale))
}

// appendSpecial appends length and value of a numeric that is no number.
func appendSpecial(dst []byte, sign, scale uint16) []byte {
	dst = append(dst, 0, 0, 0, numericHeader, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(dst, sign), scale)
}

// appendNumericFromText appends length and value of a numeric in its canonical text form: plain digits, or NaN, Infinity, -Infinity.
func appendNumericFromText(dst []byte, s string) ([]byte, error) {
	switch s {
	case "NaN":
		return appendSpecial(dst, numericNaN, 0), nil
	case "Infinity":
		return appendSpecial(dst, numericPInf, infinityScale), nil
	case "-Infinity":
		return appendSpecial(dst, numericNInf, infinityScale), nil
	}
	body, negative := strings.CutPrefix(s, "-")
	whole, frac, _ := strings.Cut(body, ".")
	if whole == "" || strings.Trim(whole, "0123456789") != "" || strings.Trim(frac, "0123456789") != "" {
		return dst, fmt.Errorf("%q is no number", shorten(s))
	}
	whole = strings.TrimLeft(whole, "0")
	if len(whole) > maxNumericHead || len(frac) > maxNumericTail {
		return dst, errors.New("more digits than numeric has")
	}
	scale := len(frac)
	at := len(dst)
	dst = append(dst, make([]byte, 4+numericHeader)...)
	weight := (len(whole)+numericDigits-1)/numericDigits - 1
	first, last := true, len(dst) // last: behind the last nonzero digit
	put := func(group string) {
		d := uint16(0)
		for i := range numericDigits {
			d *= 10
			if i < len(group) {
				d += uint16(group[i] - '0')
			}
		}
		if first && d == 0 {
			weight--
			return
		}
		first = false
		dst = binary.BigEndian.AppendUint16(dst, d)
		if d != 0 {
			last = len(dst)
		}
	}
	if head := len(whole) % numericDigits; head > 0 {
		put("000"[:numericDigits-head] + whole[:head])
		whole = whole[head:]
	}
	for ; whole != ""; whole = whole[numericDigits:] {
		put(whole[:numericDigits])
	}
	for frac != "" {
		take := min(len(frac), numericDigits)
		put(frac[:take])
		frac = frac[take:]
	}
	dst = dst[:last]
	size := last - at - 4
	if size == numericHeader {
		weight, negative = 0, false
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(size))
	appendNumericHeader(dst[:at+4], (size-numericHeader)/2, weight, negative, scale)
	return dst, nil
}

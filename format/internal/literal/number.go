package literal

import (
	"math"
	"strconv"
)

// maxIntDigits is how many digits fit an int64 whatever they are.
const maxIntDigits = 18

// Int reads a whole number in canonical form: an optional minus, no leading zeros, no plus, within 64 bits. -0 is none: an integer
// has no negative zero.
func Int(b []byte) (v int64, ok bool) {
	digits := b
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > maxIntDigits+1 {
		return 0, false
	}
	if digits[0] == '0' {
		return 0, len(b) == 1
	}
	var u uint64
	for _, c := range digits {
		c -= '0'
		if c > 9 {
			return 0, false
		}
		u = u*10 + uint64(c)
	}
	switch {
	case neg && u <= 1<<63:
		return -int64(u), true
	case !neg && u <= math.MaxInt64:
		return int64(u), true
	}
	return 0, false
}

// maxFloatDigits is how many decimal digits survive a float64 whatever they are.
const maxFloatDigits = 15

// maxMantissa is the largest number of so many digits.
const maxMantissa = 1e15 - 1

// minFloat is the smallest magnitude that is printed without an exponent.
const minFloat = 1e-7

// pow10 are the powers of ten that a float64 holds exactly.
var pow10 = [...]float64{ //nolint:gochecknoglobals // a constant table
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// Float reads a plain decimal number whose value a float64 prints back exactly: an optional minus, digits without leading zeros,
// optionally a point and digits; zero or at least 1e-7 in magnitude. No exponent. Up to 15 significant digits always print back, 16
// and 17 where they are the float's own shortest form.
func Float(b []byte) (f float64, ok bool) {
	if f, ok = short(b); ok || len(b) <= maxFloatDigits {
		return f, ok
	}
	if !isPlain(b) {
		return 0, false
	}
	f, ok = JSONFloat(b)
	return f, ok && (f == 0 || (math.Abs(f) >= minFloat && math.Abs(f) < maxPlain))
}

// maxPlain is the magnitude from which on floats are printed with an exponent.
const maxPlain = 1e21

// JSONFloat reads a number as JSON writes them, exponents included, whose value a float64 prints back exactly.
func JSONFloat(b []byte) (f float64, ok bool) {
	if f, ok = short(b); ok {
		return f, true
	}
	var want, got significand
	if !want.read(b) {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return 0, false
	}
	var buf [32]byte
	return f, got.read(strconv.AppendFloat(buf[:0], f, 'e', -1, 64)) && got == want
}

// maxSignificant is how many digits the shortest form of a float64 has at most.
const maxSignificant = 17

// significand is a decimal number taken apart, so that equal values are equal.
type significand struct {
	neg    bool
	digits [maxSignificant]byte // from the first one that is not zero to the last one
	n      int
	exp    int // power of ten of the first digit
}

// read takes a number apart; false: it has more digits than any float prints, or is none.
func (s *significand) read(b []byte) bool {
	i := 0
	if len(b) > 0 && b[0] == '-' {
		s.neg, i = true, 1
	}
	zeros, whole, point := 0, 0, false
	for ; i < len(b) && b[i] != 'e' && b[i] != 'E'; i++ {
		switch c := b[i]; {
		case c == '.':
			point = true
			continue
		case c < '0' || c > '9':
			return false
		case c == '0' && s.n == 0:
			if point {
				whole--
			}
			continue
		case c == '0':
			zeros++
		default:
			if s.n+zeros >= maxSignificant {
				return false
			}
			for ; zeros > 0; zeros-- {
				s.digits[s.n] = '0'
				s.n++
			}
			s.digits[s.n] = c
			s.n++
		}
		if !point {
			whole++
		}
	}
	s.exp = whole
	if s.n == 0 {
		s.exp = 0
		return true
	}
	if i == len(b) {
		return true
	}
	e, err := strconv.Atoi(string(b[i+1:]))
	s.exp += e
	return err == nil
}

// isPlain reports whether b is digits with an optional minus and point, without needless zeros in front.
func isPlain(b []byte) bool {
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	if len(b) == 0 || b[0] == '.' || b[len(b)-1] == '.' || (b[0] == '0' && len(b) > 1 && b[1] != '.') {
		return false
	}
	point := false
	for _, c := range b {
		if c == '.' && !point {
			point = true
			continue
		}
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// short is Float for up to 15 significant digits.
func short(b []byte) (f float64, ok bool) {
	digits := b
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		digits = b[1:]
	}
	if len(digits) == 0 || digits[0] == '.' || (digits[0] == '0' && len(digits) > 1 && digits[1] != '.') {
		return 0, false
	}
	mantissa, n := uint64(0), 0
	for ; n < len(digits) && digits[n] != '.'; n++ {
		c := digits[n] - '0'
		if mantissa = mantissa*10 + uint64(c); c > 9 || mantissa > maxMantissa {
			return 0, false
		}
	}
	scale := max(len(digits)-n-1, 0)
	if scale >= len(pow10) || (scale == 0 && n < len(digits)) {
		return 0, false
	}
	for _, c := range digits[len(digits)-scale:] {
		c -= '0'
		if mantissa = mantissa*10 + uint64(c); c > 9 || mantissa > maxMantissa {
			return 0, false
		}
	}
	f = float64(mantissa) / pow10[scale] // both are exact, so the quotient is the nearest float
	if f != 0 && f < minFloat {
		return 0, false
	}
	if neg {
		f = -f
	}
	return f, true
}

// IsNumeric reports whether b is a number in the canonical form of record.CanonicalNumeric: an optional minus, digits without leading
// zeros, optionally a point and digits; not a negative zero.
func IsNumeric(b []byte) bool {
	if !isPlain(b) {
		return false
	}
	if b[0] != '-' {
		return true
	}
	for _, c := range b[1:] {
		if c != '0' && c != '.' {
			return true
		}
	}
	return false
}

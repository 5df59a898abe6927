package pgcopy

import "math/bits"

// limbs is an unsigned number of 320 bits, least significant word first: enough for 76 digits and the alignment of numeric.
type limbs [5]uint64

// mulAdd sets x to x*m+a and returns what did not fit.
func (x *limbs) mulAdd(m, a uint64) uint64 {
	carry := a
	for i := range x {
		hi, lo := bits.Mul64(x[i], m)
		var c uint64
		x[i], c = bits.Add64(lo, carry, 0)
		carry = hi + c
	}
	return carry
}

// div sets x to x/d and returns the remainder.
func (x *limbs) div(d uint64) uint64 {
	var rem uint64
	for i := len(x) - 1; i >= 0; i-- {
		x[i], rem = bits.Div64(rem, x[i], d)
	}
	return rem
}

// negate sets x to its two's complement.
func (x *limbs) negate() {
	var carry uint64 = 1
	for i := range x {
		x[i], carry = bits.Add64(^x[i], 0, carry)
	}
}

// less reports whether x is below y.
func (x *limbs) less(y *limbs) bool {
	for i := len(x) - 1; i > 0; i-- {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return x[0] < y[0]
}

func (x *limbs) zero() bool { return x[0]|x[1]|x[2]|x[3]|x[4] == 0 }

var pow10Table = [...]uint64{ //nolint:gochecknoglobals // a constant table of the hot path
	1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
}

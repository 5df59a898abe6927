package mybinlog

import (
	"encoding/binary"
	"strconv"
)

// digitBytes is how many bytes a number of decimal digits below nine takes.
const digitsPerWord = 9

func digitBytes(digits int) int { return [...]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}[digits] }

// DecimalSize returns how many bytes a DECIMAL of so many digits takes.
func DecimalSize(precision, scale int) int {
	whole := precision - scale
	return whole/digitsPerWord*4 + digitBytes(whole%digitsPerWord) + scale/digitsPerWord*4 + digitBytes(scale%digitsPerWord)
}

// Words are the digits of a DECIMAL, in groups: every group is a number of at most nine digits. The groups stand in order of their weight.
type Words struct {
	Negative bool
	Groups   [18]uint32 // digits before the point, then those behind it
	Digits   [18]uint8  // of each group
	N        int
}

// ParseDecimal takes a DECIMAL apart; v has DecimalSize bytes.
func ParseDecimal(v []byte, precision, scale int) (w Words, err error) {
	if precision < 1 || scale < 0 || scale > precision || precision > 81 || len(v) < DecimalSize(precision, scale) {
		return w, ErrShort
	}
	var buf [40]byte
	b := buf[:copy(buf[:], v[:DecimalSize(precision, scale)])]
	w.Negative = b[0]&0x80 == 0
	b[0] ^= 0x80
	if w.Negative {
		for i := range b {
			b[i] = ^b[i]
		}
	}
	group := func(digits int) {
		if digits == 0 {
			return
		}
		n := digitBytes(digits)
		var word [4]byte
		copy(word[4-n:], b[:n])
		b = b[n:]
		w.Groups[w.N], w.Digits[w.N] = binary.BigEndian.Uint32(word[:]), uint8(digits)
		w.N++
	}
	whole := precision - scale
	group(whole % digitsPerWord)
	for range whole / digitsPerWord {
		group(digitsPerWord)
	}
	for range scale / digitsPerWord {
		group(digitsPerWord)
	}
	group(scale % digitsPerWord)
	return w, nil
}

// AppendDecimal appends the text of a DECIMAL, as the server prints it.
func AppendDecimal(dst, v []byte, precision, scale int) ([]byte, error) {
	w, err := ParseDecimal(v, precision, scale)
	if err != nil {
		return nil, err
	}
	digits := make([]byte, 0, 96)
	for i := range w.N {
		word := strconv.AppendUint(nil, uint64(w.Groups[i]), 10)
		for range int(w.Digits[i]) - len(word) {
			digits = append(digits, '0')
		}
		digits = append(digits, word...)
	}
	whole := digits[:precision-scale]
	for len(whole) > 1 && whole[0] == '0' {
		whole = whole[1:]
	}
	if w.Negative {
		dst = append(dst, '-')
	}
	if len(whole) == 0 {
		dst = append(dst, '0')
	}
	dst = append(dst, whole...)
	if scale > 0 {
		dst = append(append(dst, '.'), digits[precision-scale:]...)
	}
	return dst, nil
}

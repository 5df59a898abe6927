package value

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/leatdata/leat/record"
)

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
	quotes   = eachByte * '"'
	slashes  = eachByte * '\\'
	blanks   = eachByte * ' '
)

// Plain returns how many bytes at the beginning need no escape in JSON: eight at a time, by the bit that a borrow leaves in a byte that
// was zero or too small.
func Plain(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		q, s := x^quotes, x^slashes
		if ((q-eachByte)&^q|(s-eachByte)&^s|(x-blanks)&^x)&highBits != 0 {
			break
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// ascii reports whether all of b stands in a JSON string as it is and is one byte per character: known to be UTF-8 without another look.
func ascii(b []byte) bool {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		q, s := x^quotes, x^slashes
		if ((q-eachByte)|(s-eachByte)|(x-blanks)|x)&highBits != 0 {
			return false
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// String appends a JSON string, as record.AppendJSONString does.
func String(dst, s []byte) []byte {
	if ascii(s) || (Plain(s) == len(s) && utf8.Valid(s)) {
		dst = append(dst, '"')
		dst = append(dst, s...)
		return append(dst, '"')
	}
	return record.AppendJSONString(dst, string(s))
}

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

// String appends a JSON string, as record.AppendJSONString does.
func String(dst, s []byte) []byte {
	if Plain(s) == len(s) && utf8.Valid(s) {
		dst = append(dst, '"')
		dst = append(dst, s...)
		return append(dst, '"')
	}
	return record.AppendJSONString(dst, string(s))
}

package connect

import (
	"encoding/binary"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// UnscaledBytes is as many bytes as Unscaled needs.
const UnscaledBytes = 33

// Unscaled appends the digits of a decimal, or an unsigned number of 64 bits, as the shortest big-endian two's complement integer: what
// values of the type Decimal are.
func Unscaled(dst []byte, arr arrow.Array, i int) []byte {
	var buf [UnscaledBytes]byte
	switch a := arr.(type) {
	case *array.Uint64:
		binary.BigEndian.PutUint64(buf[1:], a.Value(i))
		return append(dst, shortest(buf[:9])...)
	case *array.Decimal128:
		v := a.Value(i)
		binary.BigEndian.PutUint64(buf[:], uint64(v.HighBits()))
		binary.BigEndian.PutUint64(buf[8:], v.LowBits())
		return append(dst, shortest(buf[:16])...)
	case *array.Decimal256:
		n := a.Value(i).BigInt()
		if n.Sign() < 0 {
			n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), 8*UnscaledBytes)) //nolint:mnd // bits of a byte
		}
		return append(dst, shortest(n.FillBytes(buf[:]))...)
	}
	return dst
}

// shortest leaves out bytes in front that only repeat the sign.
func shortest(b []byte) []byte {
	for len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
		b = b[1:]
	}
	return b
}

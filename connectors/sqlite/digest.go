package sqlite

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"

	"zombiezen.com/go/sqlite"
)

// digestSize is how many bytes of a row's hash are kept: two rows of one boundary never share them by chance.
const digestSize = 16

// maxSeen bounds how many rows of one boundary a position remembers: 64 KiB of digests.
const maxSeen = 4_096

// digests are hashes of whole rows, one behind the other.
type digests []byte

// set returns them for looking up.
func (d *digests) set() map[string]bool {
	m := make(map[string]bool, len(*d)/digestSize)
	for sum := range slices.Chunk(*d, digestSize) {
		m[string(sum)] = true
	}
	return m
}

// add appends one; false: there are too many already.
func (d *digests) add(sum string) bool {
	if len(*d) >= maxSeen*digestSize {
		return false
	}
	*d = append(*d, sum...)
	return true
}

// digestRow hashes the first n columns of the current row: storage classes and values.
func digestRow(c *cells, n int) string {
	h := sha256.New()
	var head [9]byte
	for i := range n {
		class := c.class(i)
		head[0] = byte(class)
		var body []byte
		switch class {
		case sqlite.TypeInteger:
			binary.LittleEndian.PutUint64(head[1:], uint64(c.int(i)))
		case sqlite.TypeFloat:
			binary.LittleEndian.PutUint64(head[1:], math.Float64bits(c.float(i)))
		case sqlite.TypeText:
			body = c.text(i)
			binary.LittleEndian.PutUint64(head[1:], uint64(len(body)))
		case sqlite.TypeBlob:
			body = c.blob(i)
			binary.LittleEndian.PutUint64(head[1:], uint64(len(body)))
		default:
			clear(head[1:])
		}
		_, _ = h.Write(head[:]) // a hash never fails
		_, _ = h.Write(body)
	}
	return string(h.Sum(nil)[:digestSize])
}

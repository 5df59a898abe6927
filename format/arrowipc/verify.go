package arrowipc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The library trusts the metadata of a message, a FlatBuffer: a damaged length in it would allocate any amount of memory. So every
// vector of it is checked here before. The field numbers are those of the Arrow format's Message.fbs, Schema.fbs and File.fbs.

// header is what a message says about itself.
type header struct {
	record bool  // a record batch
	rows   int64 // of a record batch
	body   int64
}

// Kinds of messages.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerRecord     = 3
)

// verifyMessage checks a message's metadata.
func verifyMessage(meta []byte) (header, error) {
	v := &verifier{buf: meta, budget: len(meta)}
	t := v.root()
	out := header{body: v.int64(t, 3)}
	kind := v.byte(t, 1)
	v.pairs(t, 4)
	head := v.child(t, 2)
	switch kind {
	case headerSchema:
		v.schema(head)
	case headerDictionary:
		v.batch(v.child(head, 1))
	case headerRecord:
		out.record, out.rows = true, v.int64(head, 0)
		v.batch(head)
	default:
		return out, fmt.Errorf("a message of kind %d", kind)
	}
	return out, v.err
}

// recordsOfFooter checks a file's footer and returns how many record batches it lists.
func recordsOfFooter(footer []byte) (int, error) {
	v := &verifier{buf: footer, budget: len(footer)}
	_, n := v.vector(v.root(), 3, 24)
	return n, v.err
}

// table is a FlatBuffer table: where it is, where its list of fields is and how long that is. The zero value is a missing one.
type table struct{ at, fields, length int }

// verifier reads tables; the first thing that is wrong stays in err, and everything after it is zero.
type verifier struct {
	buf    []byte
	budget int // tables that may be looked at: damaged offsets can make few bytes look like many tables
	err    error
}

func (v *verifier) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf(format, args...)
	}
}

// in reports whether n bytes at this place are inside.
func (v *verifier) in(at, n int) bool {
	if v.err == nil && (at < 0 || n < 0 || at > len(v.buf)-n) {
		v.fail("%d bytes at %d of %d", n, at, len(v.buf))
	}
	return v.err == nil
}

func (v *verifier) u16(at int) int {
	if !v.in(at, 2) {
		return 0
	}
	return int(binary.LittleEndian.Uint16(v.buf[at:]))
}

func (v *verifier) u32(at int) int {
	if !v.in(at, 4) {
		return 0
	}
	return int(binary.LittleEndian.Uint32(v.buf[at:]))
}

func (v *verifier) root() table { return v.table(v.u32(0)) }

func (v *verifier) table(at int) table {
	if v.budget--; v.budget < 0 {
		v.fail("more tables than bytes")
	}
	if !v.in(at, 4) {
		return table{}
	}
	fields := at - int(int32(binary.LittleEndian.Uint32(v.buf[at:])))
	length := v.u16(fields)
	if length < 4 || length%2 != 0 || !v.in(fields, length) {
		v.fail("a table at %d without fields", at)
		return table{}
	}
	return table{at: at, fields: fields, length: length}
}

// field returns where field i of a table is; 0: it is not set.
func (v *verifier) field(t table, i int) int {
	slot := 4 + 2*i
	if t.length < slot+2 || v.err != nil {
		return 0
	}
	if offset := v.u16(t.fields + slot); offset != 0 {
		return t.at + offset
	}
	return 0
}

func (v *verifier) byte(t table, i int) byte {
	at := v.field(t, i)
	if at == 0 || !v.in(at, 1) {
		return 0
	}
	return v.buf[at]
}

func (v *verifier) int64(t table, i int) int64 {
	at := v.field(t, i)
	if at == 0 || !v.in(at, 8) {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(v.buf[at:]))
}

// child returns the table that field i points to.
func (v *verifier) child(t table, i int) table {
	at := v.field(t, i)
	if at == 0 {
		return table{}
	}
	return v.table(at + v.u32(at))
}

// vector returns where the elements of field i are and how many; each takes size bytes.
func (v *verifier) vector(t table, i, size int) (at, n int) {
	f := v.field(t, i)
	if f == 0 {
		return 0, 0
	}
	at = f + v.u32(f)
	n = v.u32(at)
	if v.err != nil || n > len(v.buf)/size || !v.in(at+4, n*size) {
		v.fail("a vector of %d elements at %d", n, at)
		return 0, 0
	}
	return at + 4, n
}

// tables calls f for each table of a vector.
func (v *verifier) tables(t table, i int, f func(table)) {
	at, n := v.vector(t, i, 4)
	for j := range n {
		if v.err != nil {
			return
		}
		p := at + 4*j
		f(v.table(p + v.u32(p)))
	}
}

// pairs checks a vector of keys and values.
func (v *verifier) pairs(t table, i int) {
	v.tables(t, i, func(kv table) {
		v.vector(kv, 0, 1)
		v.vector(kv, 1, 1)
	})
}

func (v *verifier) batch(t table) {
	if t.length == 0 {
		v.fail("a batch that is missing")
	}
	v.vector(t, 1, 16)
	v.vector(t, 2, 16)
	v.vector(t, 4, 8)
}

func (v *verifier) schema(t table) {
	if t.length == 0 {
		v.fail("a schema that is missing")
	}
	v.tables(t, 1, func(f table) { v.column(f, 1) })
	v.pairs(t, 2)
	v.vector(t, 3, 8)
}

// maxDepth is how deeply types may nest.
const maxDepth = 100

// Types with vectors of their own.
const typeUnion = 14

var errTooDeep = errors.New("types nest too deeply")

func (v *verifier) column(f table, depth int) {
	if depth > maxDepth {
		v.err = errTooDeep
		return
	}
	v.vector(f, 0, 1)
	if kind := v.child(f, 3); v.byte(f, 2) == typeUnion {
		v.vector(kind, 1, 4)
	}
	v.child(f, 4)
	v.tables(f, 5, func(c table) { v.column(c, depth+1) })
	v.pairs(f, 6)
}

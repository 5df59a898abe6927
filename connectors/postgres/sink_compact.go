package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// ownValue marks a column whose value is the one that the target has.
const ownValue = -1

// keyImage is where a key stands in a batch: in a row, or in the image before it.
type keyImage struct {
	row int
	old bool
}

// change is what a run of a batch's rows does to one key in all.
type change struct {
	key    keyImage
	last   int   // the row that decided it
	gone   bool  // there is no row of this key in the end
	values []int // per sent column the row that has the value, or ownValue; nil: all in last
	// base is the key of the target's row that has the values marked ownValue, where it is another one: the row moved here.
	base *keyImage
}

// partial reports whether the target holds some of the values.
func (c *change) partial() bool {
	return slices.Contains(c.values, ownValue)
}

// value returns the row that has the value of a sent column.
func (c *change) value(col int) int {
	if c.values == nil {
		return c.last
	}
	return c.values[col]
}

// compactor folds rows to one change per key.
type compactor struct {
	p       *plan
	b       *record.Batch
	keys    *pgcopy.Rows
	olds    *pgcopy.Rows // nil: no images before
	at      map[string]int
	changes []change
	buf     []byte
}

func newCompactor(p *plan, b *record.Batch) (*compactor, error) {
	c := &compactor{p: p, b: b}
	var err error
	if c.keys, err = p.keyEnc.Bind(p.pickKey(b.Rows)); err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	if b.Old != nil {
		if c.olds, err = p.keyEnc.Bind(p.pickKey(b.Old)); err != nil {
			return nil, fmt.Errorf("reading the old key: %w", err)
		}
	}
	return c, nil
}

// fold returns the changes of rows from to to, in the order in which their keys were first touched. Rows in skip are left out; rows
// whose key can't be read are added to it.
func (c *compactor) fold(from, to int, skip rejects) []change {
	c.at = make(map[string]int, to-from)
	c.changes = make([]change, 0, to-from)
	for i := from; i < to; i++ {
		if skip.has(i) {
			continue
		}
		key, err := c.key(keyImage{row: i})
		if err != nil {
			skip.add(c.b, i, err)
			continue
		}
		before, moved, err := c.before(i, key)
		if err != nil {
			skip.add(c.b, i, err)
			continue
		}
		c.apply(i, key, before, moved)
	}
	return c.changes
}

var errOldKey = errors.New("only a part of the old key is known")

// before returns the key that row i had, where an update moved it.
func (c *compactor) before(i int, key string) (string, bool, error) {
	if c.olds == nil || c.b.Op(i) == record.Insert || c.b.Op(i) == record.Delete {
		return "", false, nil
	}
	nulls := 0
	for _, k := range c.p.schema.Key {
		if c.b.Old.Column(k).IsNull(i) {
			nulls++
		}
	}
	switch nulls {
	case len(c.p.schema.Key):
		return "", false, nil
	case 0:
	default:
		return "", false, errOldKey
	}
	old, err := c.key(keyImage{row: i, old: true})
	return old, old != key, err
}

// nullKeyError is a key with a null in it: such rows can't be told apart.
type nullKeyError struct{ column string }

func (nullKeyError) Error() string { return "a column of the key is null" }

// key returns a key's bytes.
func (c *compactor) key(k keyImage) (string, error) {
	rb, rows := c.b.Rows, c.keys
	if k.old {
		rb, rows = c.b.Old, c.olds
	}
	for _, col := range c.p.schema.Key {
		if rb.Column(col).IsNull(k.row) {
			return "", nullKeyError{column: rb.ColumnName(col)}
		}
	}
	var err error
	if c.buf, err = rows.AppendRow(c.buf[:0], k.row); err != nil {
		return "", err //nolint:wrapcheck // a *pgcopy.ValueError names row and column
	}
	return string(c.buf), nil
}

// apply folds row i in.
func (c *compactor) apply(i int, key, before string, moved bool) {
	image := keyImage{row: i}
	if c.b.Op(i) == record.Delete {
		c.set(key, change{key: image, last: i, gone: true})
		return
	}
	next := change{key: image, last: i}
	if c.b.Unchanged != nil {
		c.inherit(&next, i, key, before, moved)
	}
	if moved {
		c.set(before, change{key: keyImage{row: i, old: true}, last: i, gone: true})
	}
	c.set(key, next)
}

func (c *compactor) set(key string, ch change) {
	if at, ok := c.at[key]; ok {
		c.changes[at] = ch
		return
	}
	c.at[key] = len(c.changes)
	c.changes = append(c.changes, ch)
}

// inherit fills in the values that the source did not send: from an earlier row of the batch, or else from the target.
func (c *compactor) inherit(next *change, i int, key, before string, moved bool) {
	from := key
	if moved {
		from = before
	}
	var prev *change
	if at, ok := c.at[from]; ok && !c.changes[at].gone {
		prev = &c.changes[at]
	}
	values := make([]int, len(c.p.send))
	partial, inherited := false, false
	for n, col := range c.p.send {
		values[n] = i
		if !c.b.IsUnchanged(col, i) {
			continue
		}
		values[n], inherited = ownValue, true
		if prev != nil {
			values[n] = prev.value(n)
		}
		partial = partial || values[n] == ownValue
	}
	if !inherited {
		return
	}
	next.values = values
	if !partial {
		return
	}
	switch {
	case prev != nil && prev.base != nil:
		next.base = prev.base
	case moved:
		next.base = &keyImage{row: i, old: true}
	}
	if next.base != nil && c.same(*next.base, key) {
		next.base = nil // moved away and back
	}
}

// partsOf returns the rows from from on that the change decided by row last was made of: all that touched its key, wherever it
// stood.
func (c *compactor) partsOf(from, last int) []int {
	keys := map[string]bool{}
	var rows []int
	for i := last; i >= from; i-- {
		key, err := c.key(keyImage{row: i})
		if err != nil || i < last && !keys[key] {
			continue
		}
		rows = append(rows, i)
		keys[key] = true
		if before, moved, err := c.before(i, key); err == nil && moved {
			keys[before] = true
		}
	}
	return rows
}

// same reports whether the image is of this key.
func (c *compactor) same(k keyImage, key string) bool {
	other, err := c.key(k)
	return err == nil && other == key
}

// tupleEncoder writes changes as rows of the stage.
type tupleEncoder struct {
	c       *compactor
	rows    *pgcopy.Rows
	scratch map[int][][]byte // rows taken apart into fields
}

// nullField is a null on the wire.
func nullField() []byte { return []byte{0xff, 0xff, 0xff, 0xff} }

// fields takes an encoded row apart; each field keeps its length in front.
func fields(row []byte) [][]byte {
	n := int(binary.BigEndian.Uint16(row))
	out := make([][]byte, n)
	row = row[2:]
	for i := range out {
		size := 4
		if l := int32(binary.BigEndian.Uint32(row)); l > 0 {
			size += int(l)
		}
		out[i], row = row[:size], row[size:]
	}
	return out
}

// Operations of a stage's row; a positive number is a pattern of values that an update leaves alone.
const (
	stageDelete = -1
	stageUpsert = 0
)

// appendChange appends a change; op and fill are the stage's own columns.
func (e *tupleEncoder) appendChange(dst []byte, ch *change, op, fill int) ([]byte, error) {
	p := e.c.p
	start := len(dst)
	count := uint16(len(p.send) + stageExtra + len(p.key))
	switch {
	case !ch.gone && ch.values == nil:
		var err error
		if dst, err = e.rows.AppendRow(dst, ch.last); err != nil {
			return dst[:start], err //nolint:wrapcheck // a *pgcopy.ValueError names row and column
		}
		binary.BigEndian.PutUint16(dst[start:], count)
	default:
		dst = binary.BigEndian.AppendUint16(dst, count)
		cols, err := e.pieces(ch)
		if err != nil {
			return dst[:start], err
		}
		dst = append(dst, bytes.Join(cols, nil)...)
	}
	dst = appendInt4(appendInt4(appendInt4(dst, op), fill), ch.last)
	if ch.base == nil {
		for range p.key {
			dst = append(dst, nullField()...)
		}
		return dst, nil
	}
	key, err := e.c.key(*ch.base)
	return append(dst, key[min(2, len(key)):]...), err
}

func appendInt4(dst []byte, v int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, 4), uint32(int32(v)))
}

// pieces returns the fields of a change that is no plain row: of a delete only the key, or values of several rows.
func (e *tupleEncoder) pieces(ch *change) ([][]byte, error) {
	p := e.c.p
	cols := make([][]byte, len(p.send))
	for i := range cols {
		cols[i] = nullField()
	}
	if ch.gone {
		key, err := e.c.key(ch.key)
		if err != nil {
			return nil, err
		}
		for i, f := range fields([]byte(key)) {
			cols[p.key[i]] = f
		}
		return cols, nil
	}
	for i, row := range ch.values {
		if row == ownValue {
			continue
		}
		parts, ok := e.scratch[row]
		if !ok {
			encoded, err := e.rows.AppendRow(nil, row)
			if err != nil {
				return nil, err //nolint:wrapcheck // a *pgcopy.ValueError names row and column
			}
			parts = fields(encoded)
			e.scratch[row] = parts
		}
		cols[i] = parts[i]
	}
	return cols, nil
}

// rejects are the rows of a batch that were refused so far.
type rejects map[int]connector.RowError

func (r rejects) has(i int) bool {
	_, ok := r[i]
	return ok
}

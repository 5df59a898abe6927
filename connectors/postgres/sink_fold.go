package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// valuePlace says where a value stands: a row of the batch, the image before a row (see oldPlace), or, ownValue, in the target.
type valuePlace int

// ownValue marks a column whose value is the one that the target has.
const ownValue valuePlace = -1

// oldPlace is the image before row i.
func oldPlace(i int) valuePlace { return valuePlace(-2 - i) }

// row returns the row of the batch, and whether the image before it is meant.
func (p valuePlace) row() (i int, old bool) {
	if p < ownValue {
		return int(-2 - p), true
	}
	return int(p), false
}

// keyImage is where a key stands in a batch: in a row, or in the image before it.
type keyImage struct {
	row int
	old bool
}

// change is what a run of a batch's rows does to one row of the target, in all.
type change struct {
	key    keyImage
	last   int          // the row that decided it
	gone   bool         // there is no row of this key in the end
	values []valuePlace // where the value of each sent column stands; nil: all in last
	origin *keyImage    // the key under which the target has the row; nil: the row is new
	from   string       // the same key, to compare
	own    bool         // origin is the row's own key
	moved  bool         // it had another key
	again  bool         // the target's row of this key went away before: this one does not continue it
}

// partial reports whether the target holds some of the values.
func (c *change) partial() bool { return slices.Contains(c.values, ownValue) }

// value returns where the value of a sent column stands.
func (c *change) value(col int) valuePlace {
	if c.values == nil {
		return valuePlace(c.last)
	}
	return c.values[col]
}

// keySlot is what stands under one key. With full images, and under a constraint that the source defers, two rows may have the same key
// for a moment; then the image says which of them is meant.
type keySlot struct {
	key   keyImage
	id    string
	last  int       // the row that touched it last
	taken bool      // the target's row of this key went away, or goes on as one of the live ones
	live  []*change // the batch's rows that have the key now
	lost  int       // rows of this key that the target had to give up in an earlier batch of this transaction

	one [1]*change // room for live, which has seldom more
}

// compactor folds rows to one change per key.
type compactor struct {
	p      *plan
	b      *record.Batch
	keys   *pgcopy.Rows
	olds   *pgcopy.Rows // nil: no images before
	rows   *pgcopy.Rows // all columns
	images *pgcopy.Rows // the same of the images before
	full   bool         // images before a change have all columns
	at     map[string]*keySlot
	slots  []*keySlot
	lost   map[string]int
	buf    []byte
	parts  map[valuePlace][][]byte // rows taken apart into fields

	freeSlots   []keySlot // allocated many at a time
	freeChanges []change
	slab        int // how many
}

// maxSlab is how many slots or changes are allocated at a time, at most.
const maxSlab = 64

func newCompactor(d *dataset, b *record.Batch) (*compactor, error) {
	p := d.plan
	c := &compactor{p: p, b: b, lost: d.displaced}
	var err error
	if c.keys, err = p.keyEnc.Bind(p.pickKey(b.Rows)); err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	if c.rows, err = p.enc.Bind(p.pick(b.Rows)); err != nil {
		return nil, fmt.Errorf("reading the rows: %w", err)
	}
	if b.Old != nil {
		if c.olds, err = p.keyEnc.Bind(p.pickKey(b.Old)); err != nil {
			return nil, fmt.Errorf("reading the old key: %w", err)
		}
		if c.images, err = p.enc.Bind(p.pick(b.Old)); err != nil {
			return nil, fmt.Errorf("reading the images before: %w", err)
		}
	}
	c.full = p.fullImages(b)
	return c, nil
}

// fullImages reports whether images before a change have more than the key.
func (p *plan) fullImages(b *record.Batch) bool {
	if len(p.send) == len(p.key) {
		return true
	}
	var deletes []int
	for i, op := range b.Ops {
		if op == record.Delete {
			deletes = append(deletes, i)
		}
	}
	return slices.ContainsFunc(p.all, func(n int) bool {
		col := p.send[n]
		if slices.Contains(p.key, n) {
			return false
		}
		return b.Old != nil && b.Old.Column(col).NullN() < b.NumRows() || slices.ContainsFunc(deletes, b.Rows.Column(col).IsValid)
	})
}

// fold returns the changes of rows from to to, in the order in which their keys were first touched. Rows in skip are left out; rows
// whose key can't be read are added to it.
func (c *compactor) fold(from, to int, skip rejects) []*change {
	c.at = make(map[string]*keySlot, to-from)
	c.slots, c.slab = c.slots[:0], min(to-from, maxSlab)
	c.parts = map[valuePlace][][]byte{}
	for i := from; i < to; i++ {
		if skip.has(i) {
			continue
		}
		key, err := c.id(keyImage{row: i})
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
	return c.changes()
}

// changes returns what is left to do of each key.
func (c *compactor) changes() []*change {
	out := make([]*change, 0, len(c.slots))
	for _, s := range c.slots {
		if len(s.live) == 0 {
			if s.taken {
				out = append(out, &change{key: s.key, last: s.last, gone: true})
			}
			continue
		}
		ch := s.live[len(s.live)-1]
		if ch.origin == nil && ch.partial() {
			ch.origin, ch.from = &ch.key, s.id // there should be a row
		}
		ch.own = ch.origin != nil && ch.from == s.id
		ch.again = s.taken && !ch.own
		out = append(out, ch)
	}
	return out
}

// arrived returns the keys at which rows of the batch stand although the target's row of the key, if it has one, was not accounted
// for, and those at which the batch alone knows more than one row.
func (c *compactor) arrived() (open []*keySlot, crowded map[string]int) {
	crowded = map[string]int{}
	for _, s := range c.slots {
		n := len(s.live)
		if left := s.lost + max(n-1, 0); left > 0 {
			crowded[s.id] = left
		}
		if n > 0 && !s.taken && s.live[n-1].moved {
			open = append(open, s)
		}
	}
	return open, crowded
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
	old, err := c.id(keyImage{row: i, old: true})
	return old, old != key, err
}

// nullKeyError is a key with a null in it: such rows can't be told apart.
type nullKeyError struct{ column string }

func (nullKeyError) Error() string { return "a column of the key is null" }

// image returns the record batch that a key stands in.
func (c *compactor) image(k keyImage) arrow.RecordBatch {
	if k.old {
		return c.b.Old
	}
	return c.b.Rows
}

// encoded returns a key's bytes, as a COPY has them.
func (c *compactor) encoded(k keyImage) ([]byte, error) {
	rows := c.keys
	if k.old {
		rows = c.olds
	}
	var err error
	c.buf, err = rows.AppendRow(c.buf[:0], k.row)
	return c.buf, err //nolint:wrapcheck // a *pgcopy.ValueError names row and column
}

// id returns a text that is equal for the keys that the server takes for equal.
func (c *compactor) id(k keyImage) (string, error) {
	rb := c.image(k)
	for _, col := range c.p.schema.Key {
		if rb.Column(col).IsNull(k.row) {
			return "", nullKeyError{column: rb.ColumnName(col)}
		}
	}
	bytes, err := c.encoded(k)
	if err != nil || c.p.same == nil {
		return string(bytes), err
	}
	var id strings.Builder
	for n, field := range fields(bytes) {
		if canonical := c.p.same[n]; canonical != nil {
			col := rb.Column(c.p.schema.Key[n])
			field = []byte(canonical(string(record.AppendText(nil, col, k.row))) + "\x00")
		}
		id.Write(field)
	}
	return id.String(), nil
}

// slot returns the slot of a key, and notes that row i touches it.
func (c *compactor) slot(id string, key keyImage, i int) *keySlot {
	s, ok := c.at[id]
	if !ok {
		if len(c.freeSlots) == 0 {
			c.freeSlots = make([]keySlot, c.slab)
		}
		s, c.freeSlots = &c.freeSlots[0], c.freeSlots[1:]
		s.key, s.id, s.lost = key, id, c.lost[id]
		s.live = s.one[:0]
		c.at[id], c.slots = s, append(c.slots, s)
	}
	s.last = i
	return s
}

// apply folds row i in.
func (c *compactor) apply(i int, key, before string, moved bool) {
	image := keyImage{row: i}
	s := c.slot(key, image, i)
	if len(c.freeChanges) == 0 {
		c.freeChanges = make([]change, c.slab)
	}
	ch := &c.freeChanges[0]
	ch.key, ch.last = image, i
	if c.b.Op(i) != record.Delete {
		c.freeChanges = c.freeChanges[1:]
	}
	switch c.b.Op(i) {
	case record.Insert:
	case record.Delete:
		c.leave(s, &image)
		return
	case record.Upsert:
		ch.origin, ch.from = &image, key
		var prev *change
		if n := len(s.live); n > 0 {
			prev = s.live[n-1]
			ch.origin, ch.from = prev.origin, prev.from
		}
		c.inherit(ch, prev)
		s.live, s.taken = s.live[:0], true
	case record.Update:
		was, old := s, &keyImage{row: i, old: true}
		switch {
		case moved:
			was = c.slot(before, *old, i)
		case !c.hasImage(i):
			old = nil
		}
		ch.moved = moved
		prev, lost := c.leave(was, old)
		switch {
		case prev != nil:
			ch.origin, ch.from = prev.origin, prev.from
		case !lost:
			ch.origin, ch.from = &was.key, was.id
		}
		c.inherit(ch, prev)
	}
	if !c.full {
		s.live = s.live[:0]
	}
	s.live = append(s.live, ch)
}

// hasImage reports whether the source sent an image before row i that is more than a key that moved.
func (c *compactor) hasImage(i int) bool {
	if c.b.Old == nil {
		return false
	}
	for _, k := range c.p.schema.Key {
		if c.b.Old.Column(k).IsNull(i) {
			return false
		}
	}
	return true
}

// leave takes the row that the image (nil: unknown) means away from its key: a row of the batch, or, nil, the target's, or, lost, one
// that the target had to give up before.
func (c *compactor) leave(s *keySlot, image *keyImage) (ch *change, lost bool) {
	at := c.find(s, image)
	switch {
	case at >= 0:
		ch = s.live[at]
		s.live = slices.Delete(s.live, at, at+1)
	case s.lost > 0:
		s.lost--
		return nil, true
	default:
		s.taken = true
	}
	return ch, false
}

// find returns which of a slot's rows the image means, or -1: none of the batch. Where the image has no more than the key there is but
// one row, the target's included.
func (c *compactor) find(s *keySlot, image *keyImage) int {
	last := len(s.live) - 1
	if last == 0 && s.taken && s.lost == 0 {
		return last
	}
	if c.full && image != nil {
		for at, ch := range s.live {
			if c.equal(ch, *image) {
				return at
			}
		}
	}
	switch {
	case !c.full || image == nil:
		s.taken = s.taken || s.lost == 0
		return last
	case s.taken && s.lost == 0 && last >= 0:
		return 0
	}
	return -1
}

// equal reports whether a row of the batch is the one of the image, as far as its values are known.
func (c *compactor) equal(ch *change, image keyImage) bool {
	place := valuePlace(image.row)
	if image.old {
		place = oldPlace(image.row)
	}
	want, err := c.fields(place)
	if err != nil {
		return false
	}
	for n := range c.p.send {
		at := ch.value(n)
		if at == ownValue || slices.Contains(c.p.key, n) {
			continue
		}
		have, err := c.fields(at)
		if err != nil || string(have[n]) != string(want[n]) {
			return false
		}
	}
	return true
}

// inherit fills in the values that the source did not send: from the image before, from an earlier row of the batch, or else from the
// target.
func (c *compactor) inherit(ch, prev *change) {
	if c.b.Unchanged == nil {
		return
	}
	i := ch.last
	values, sent := make([]valuePlace, len(c.p.send)), true
	for n, col := range c.p.send {
		values[n] = valuePlace(i)
		if !c.b.IsUnchanged(col, i) {
			continue
		}
		sent = false
		switch {
		case c.b.Old != nil && c.b.Old.Column(col).IsValid(i):
			values[n] = oldPlace(i)
		case prev != nil:
			values[n] = prev.value(n)
		default:
			values[n] = ownValue
		}
	}
	if !sent {
		ch.values = values
	}
}

// partsOf returns the rows from from on that the change decided by row last was made of: all that touched its key, wherever it
// stood.
func (c *compactor) partsOf(from, last int) []int {
	keys := map[string]bool{}
	var rows []int
	for i := last; i >= from; i-- {
		key, err := c.id(keyImage{row: i})
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

// fields returns the fields of a row or of an image before one; each has its length in front.
func (c *compactor) fields(at valuePlace) ([][]byte, error) {
	if parts, ok := c.parts[at]; ok {
		return parts, nil
	}
	i, old := at.row()
	rows := c.rows
	if old {
		rows = c.images
	}
	encoded, err := rows.AppendRow(nil, i)
	if err != nil {
		return nil, err //nolint:wrapcheck // a *pgcopy.ValueError names row and column
	}
	parts := fields(encoded)
	c.parts[at] = parts
	return parts, nil
}

// rejects are the rows of a batch that were refused so far.
type rejects map[int]connector.RowError

func (r rejects) has(i int) bool {
	_, ok := r[i]
	return ok
}

package mysql

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

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

// folded is what a run of a batch's rows does to one row of the target, in all.
type folded struct {
	key    keyImage
	last   int          // the row that decided it
	gone   bool         // there is no row of this key in the end
	values []valuePlace // where the value of each sent column stands; nil: all in last
	origin *keyImage    // the key under which the target has the row; nil: the row is new
	from   string       // the same key, to compare
	id     string       // its key now, to compare
	there  bool         // an update says that the target has the row
	own    bool         // origin is the row's own key
	moved  bool         // it had another key
	again  bool         // the target's row of this key went away before: this one does not continue it
}

// partial reports whether the target holds some of the values.
func (c *folded) partial() bool { return slices.Contains(c.values, ownValue) }

// value returns where the value of a sent column stands.
func (c *folded) value(col int) valuePlace {
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
	live  []*folded // the batch's rows that have the key now
	lost  int       // rows of this key that the target had to give up in an earlier batch of this transaction

	one [1]*folded // room for live, which has seldom more
}

// compactor folds rows to one change per key.
type compactor struct {
	p      *plan
	b      *record.Batch
	rows   rowCells // of all columns
	images rowCells // the same of the images before; nil: there are none
	full   bool     // images before a change have all columns
	lost   map[string]int
	buf    []byte
	parts  map[valuePlace][][]byte // literals of a row
	*foldRoom
}

// foldRoom is what folds work with; the next one takes it over.
type foldRoom struct {
	at      map[string]*keySlot
	slots   []*keySlot
	rooms   arena[keySlot]
	places  arena[folded]
	slab    int    // how many slots or changes are allocated at a time
	ids     []byte // of the rows, one behind the other
	ends    []int  // where they end
	out     []*folded
	sorting []sortedChange
	tuples  []tuple
}

// maxSlab is how many slots or changes are allocated at a time, at most.
const maxSlab = 64

// arena hands out values that stay where they are, and takes all of them back at once.
type arena[T any] struct {
	pages    [][]T
	page, at int
}

// next returns a zero value; slab is how many are allocated where none is left.
func (p *arena[T]) next(slab int) *T {
	if p.page < len(p.pages) && p.at == len(p.pages[p.page]) {
		p.page, p.at = p.page+1, 0
	}
	if p.page == len(p.pages) {
		p.pages = append(p.pages, make([]T, slab))
	}
	v := &p.pages[p.page][p.at]
	p.at++
	*v = *new(T)
	return v
}

func (p *arena[T]) takeBack() { p.page, p.at = 0, 0 }

// begin takes back what the fold before handed out.
func (r *foldRoom) begin(rows int) {
	if r.at == nil {
		r.at = make(map[string]*keySlot, rows)
	}
	clear(r.at)
	r.rooms.takeBack()
	r.places.takeBack()
	r.slots, r.out, r.slab = r.slots[:0], r.out[:0], min(max(rows, 1), maxSlab)
}

// newCompactor prepares the folds of a batch; the results of the fold before are lost where it had the same room.
func newCompactor(d *dataset, b *record.Batch, room *foldRoom) (*compactor, error) {
	p := d.plan
	c := &compactor{p: p, b: b, lost: d.displaced, foldRoom: room}
	var err error
	if c.rows, err = p.bind(b.Rows, false); err != nil {
		return nil, err
	}
	if b.Old != nil {
		if c.images, err = p.bind(b.Old, true); err != nil {
			return nil, err
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
	return slices.ContainsFunc(p.send, func(col int) bool {
		if slices.Contains(p.schema.Key, col) {
			return false
		}
		return b.Old != nil && b.Old.Column(col).NullN() < b.NumRows() || slices.ContainsFunc(deletes, b.Rows.Column(col).IsValid)
	})
}

// fold returns the changes of rows from to to in the order of their keys. Rows in skip are left out; rows whose key can't be read are
// added to it.
func (c *compactor) fold(from, to int, skip rejects) []*folded {
	c.begin(to - from)
	c.parts = map[valuePlace][][]byte{}
	ids, at := c.readIDs(from, to, skip), 0
	for i := from; i < to; i++ {
		key := ids[at:c.ends[i-from]]
		at = c.ends[i-from]
		if skip.has(i) {
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

// readIDs returns the ids of the rows' keys, one behind the other: c.ends has where each of them ends. Rows whose key can't be read are
// added to skip.
func (c *compactor) readIDs(from, to int, skip rejects) string {
	ids, ends := c.ids[:0], c.ends[:0]
	for i := from; i < to; i++ {
		if !skip.has(i) {
			longer, err := c.appendID(ids, keyImage{row: i})
			if err != nil {
				skip.add(c.b, i, err)
			} else {
				ids = longer
			}
		}
		ends = append(ends, len(ids))
	}
	c.ids, c.ends = ids, ends
	return string(ids)
}

// changes returns what is left to do of each key.
func (c *compactor) changes() []*folded {
	out := c.out
	for _, s := range c.slots {
		if len(s.live) == 0 {
			if s.taken {
				ch := c.places.next(c.slab)
				ch.key, ch.id, ch.last, ch.gone = s.key, s.id, s.last, true
				out = append(out, ch)
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
	c.out = out
	c.sort(out)
	return out
}

// sortedChange is a change and the beginning of its key.
type sortedChange struct {
	prefix uint64
	ch     *folded
}

// sort puts changes in the order of the key, as far as its first column is a number: neighbours share the pages of an index, and of the
// table. Texts come in the order of their bytes.
func (c *compactor) sort(changes []*folded) {
	prefix := c.prefixes()
	c.sorting = c.sorting[:0]
	for _, ch := range changes {
		c.sorting = append(c.sorting, sortedChange{prefix(ch), ch})
	}
	slices.SortFunc(c.sorting, func(a, b sortedChange) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		return strings.Compare(a.ch.id, b.ch.id)
	})
	for i, s := range c.sorting {
		changes[i] = s.ch
	}
}

// prefixes returns what makes a number of the beginning of a change's key.
func (c *compactor) prefixes() func(ch *folded) uint64 {
	const sign = 1 << 63
	col := c.p.schema.Key[0]
	rows, old := c.b.Rows.Column(col), c.b.Rows.Column(col)
	if c.b.Old != nil {
		old = c.b.Old.Column(col)
	}
	image := func(ch *folded) arrow.Array {
		if ch.key.old {
			return old
		}
		return rows
	}
	return func(ch *folded) uint64 {
		switch a := image(ch).(type) {
		case *array.Int64:
			return uint64(a.Value(ch.key.row)) ^ sign
		case *array.Int32:
			return uint64(a.Value(ch.key.row)) ^ sign
		case *array.Uint64:
			return a.Value(ch.key.row)
		}
		var head [8]byte
		copy(head[:], ch.id)
		return binary.BigEndian.Uint64(head[:])
	}
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
	if c.images == nil || c.b.Op(i) == record.Insert || c.b.Op(i) == record.Delete {
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
	old, err := c.appendID(c.buf[:0], keyImage{row: i, old: true})
	c.buf = old
	if err != nil || string(old) == key {
		return key, false, err
	}
	return string(old), true, nil
}

// nullKeyError is a key with a null in it: such rows can't be told apart.
type nullKeyError struct{ column string }

func (nullKeyError) Error() string { return "a column of the key is null" }

// appendID appends the literals of a key, which are equal for equal keys.
func (c *compactor) appendID(dst []byte, k keyImage) ([]byte, error) {
	cells := c.rows
	if k.old {
		cells = c.images
	}
	for n, at := range c.p.key {
		if cells[at].arr.IsNull(k.row) {
			return dst, nullKeyError{column: cells[at].name}
		}
		if n > 0 {
			dst = append(dst, ',')
		}
		from := len(dst)
		var err error
		if dst, err = cells[at].literal(dst, k.row); err != nil {
			return dst, err
		}
		if string(dst[from:]) == minusZero {
			dst = append(dst[:from], "0e+00"...)
		}
	}
	return dst, nil
}

// slot returns the slot of a key, and notes that row i touches it.
func (c *compactor) slot(id string, key keyImage, i int) *keySlot {
	s, ok := c.at[id]
	if !ok {
		s = c.rooms.next(c.slab)
		s.key, s.id, s.lost = key, id, c.lost[id]
		s.live = s.one[:0]
		c.at[id], c.slots = s, append(c.slots, s)
	}
	s.last = i
	return s
}

// apply folds row i in.
func (c *compactor) apply(i int, key, before string, moved bool) {
	s := c.slot(key, keyImage{row: i}, i)
	if c.b.Op(i) == record.Delete {
		c.leave(s, &keyImage{row: i})
		return
	}
	ch := c.places.next(c.slab)
	ch.key, ch.id, ch.last = keyImage{row: i}, key, i
	switch c.b.Op(i) {
	case record.Insert, record.Delete:
	case record.Upsert:
		ch.origin, ch.from = &ch.key, key
		var prev *folded
		if n := len(s.live); n > 0 {
			prev = s.live[n-1]
			ch.origin, ch.from, ch.there = prev.origin, prev.from, prev.there
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
			ch.origin, ch.from, ch.there = prev.origin, prev.from, prev.there
		case !lost:
			ch.origin, ch.from, ch.there = &was.key, was.id, true
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
func (c *compactor) leave(s *keySlot, image *keyImage) (ch *folded, lost bool) {
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
func (c *compactor) equal(ch *folded, image keyImage) bool {
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
func (c *compactor) inherit(ch, prev *folded) {
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
		id, err := c.appendID(nil, keyImage{row: i})
		key := string(id)
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

// fields returns the literals of a row or of an image before one.
func (c *compactor) fields(at valuePlace) ([][]byte, error) {
	if parts, ok := c.parts[at]; ok {
		return parts, nil
	}
	i, old := at.row()
	cells := c.rows
	if old {
		cells = c.images
	}
	parts := make([][]byte, len(cells))
	for n, cell := range cells {
		var err error
		if parts[n], err = cell.loose(nil, i); err != nil {
			return nil, err
		}
	}
	c.parts[at] = parts
	return parts, nil
}

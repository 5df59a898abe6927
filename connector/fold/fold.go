package fold

import (
	"errors"
	"maps"
	"slices"

	"github.com/leatdata/leat/record"
)

// Images is how a sink writes the rows of a batch, and the images before them.
type Images interface {
	// AppendID appends bytes that are equal for the keys that the target takes for equal. An error refuses the row; a key with a null
	// in it is a NullKeyError.
	AppendID(dst []byte, k Key) ([]byte, error)
	// Fields returns the sent columns of a row, or of the image before it, to compare and to write. An error refuses the row.
	Fields(at Place) ([][]byte, error)
}

// Columns says which columns of a dataset's schema the target gets.
type Columns struct {
	Send []int // their places in the schema
	Key  []int // the key's places in Send, in key order
}

// Refused is what is known of rows that can't be written.
type Refused interface {
	Has(i int) bool
	Add(i int, err error)
}

// NullKeyError is a key with a null in it: such rows can't be told apart.
type NullKeyError struct{ Column string }

// Error says what is wrong.
func (NullKeyError) Error() string { return "a column of the key is null" }

// MissingError is a row of which a part was not sent, and which the target does not have: it has lost it.
type MissingError struct{ Column string }

// Error says what is wrong.
func (MissingError) Error() string {
	return "the source did not send the value, since it did not change, and the target does not have the row"
}

var errOldKey = errors.New("only a part of the old key is known")

// Fold folds rows of one batch to one change per key. One goroutine at a time.
type Fold struct {
	b      *record.Batch
	cols   Columns
	images Images
	full   bool // images before a change have all columns
	ends   bool // it is the end of what is in the batch, and of the source's transaction
	from   int
	lost   map[string]int
	buf    []byte
	fields map[Place][][]byte // rows taken apart
	*Room
}

// New prepares the folds of a batch; the results of the fold before are lost where it had the same room. displaced are the ids of keys
// whose rows the target had to give up in the same transaction of the source, with their numbers; [Fold.Displace] keeps them up to date.
func New(b *record.Batch, cols Columns, images Images, displaced map[string]int, room *Room) *Fold {
	f := &Fold{b: b, cols: cols, images: images, lost: displaced, Room: room}
	f.full = f.fullImages()
	return f
}

// fullImages reports whether images before a change have more than the key.
func (f *Fold) fullImages() bool {
	if len(f.cols.Send) == len(f.cols.Key) {
		return true
	}
	var deletes []int
	for i, op := range f.b.Ops {
		if op == record.Delete {
			deletes = append(deletes, i)
		}
	}
	for n, col := range f.cols.Send {
		if slices.Contains(f.cols.Key, n) {
			continue
		}
		if f.b.Old != nil && f.b.Old.Column(col).NullN() < f.b.NumRows() || slices.ContainsFunc(deletes, f.b.Rows.Column(col).IsValid) {
			return true
		}
	}
	return false
}

// Rows returns the changes of rows from to to: in the order of prefixes, and then of ids, so that neighbours share the pages of an index;
// prefix nil: in the order in which their keys were first touched. Rows in skip are left out; rows whose key can't be read are added to it.
func (f *Fold) Rows(from, to int, skip Refused, prefix func(*Change) uint64) []*Change {
	f.begin(to - from)
	f.from, f.ends = from, to == f.b.NumRows() && !f.b.Position.Zero()
	f.fields = map[Place][][]byte{}
	ids, at := f.readIDs(from, to, skip), 0
	for i := from; i < to; i++ {
		key := ids[at:f.Room.ends[i-from]]
		at = f.Room.ends[i-from]
		if skip.Has(i) {
			continue
		}
		was, moved, err := f.before(i, key)
		if err != nil {
			skip.Add(i, err)
			continue
		}
		f.apply(i, key, was, moved)
	}
	return f.changes(prefix)
}

// readIDs returns the ids of the rows' keys, one behind the other: Room.ends has where each of them ends. Rows whose key can't be read are
// added to skip.
func (f *Fold) readIDs(from, to int, skip Refused) string {
	ids, ends := f.ids[:0], f.Room.ends[:0]
	for i := from; i < to; i++ {
		if !skip.Has(i) {
			longer, err := f.images.AppendID(ids, Key{Row: i})
			if err != nil {
				skip.Add(i, err)
			} else {
				ids = longer
			}
		}
		ends = append(ends, len(ids))
	}
	f.ids, f.Room.ends = ids, ends
	return string(ids)
}

// changes returns what is left to do of each key.
func (f *Fold) changes(prefix func(*Change) uint64) []*Change {
	out := f.out
	for _, s := range f.slots {
		if len(s.live) == 0 {
			if s.taken {
				ch := f.places.next(f.slab)
				ch.Key, ch.ID, ch.Last, ch.Gone = s.key, s.id, s.last, true
				out = append(out, ch)
			}
			continue
		}
		ch := s.live[len(s.live)-1]
		if ch.Origin == nil && ch.Partial() {
			ch.Origin, ch.From = &ch.Key, s.id // there should be a row
		}
		ch.Own = ch.Origin != nil && ch.From == s.id
		ch.Again = s.taken && !ch.Own
		out = append(out, ch)
	}
	f.out = out
	if prefix != nil {
		f.sort(out, prefix)
	}
	return out
}

// before returns the key that row i had, where an update moved it.
func (f *Fold) before(i int, key string) (string, bool, error) {
	if f.b.Old == nil || f.b.Op(i) == record.Insert || f.b.Op(i) == record.Delete {
		return "", false, nil
	}
	switch f.nullsBefore(i) {
	case len(f.cols.Key):
		return "", false, nil
	case 0:
	default:
		return "", false, errOldKey
	}
	old, err := f.images.AppendID(f.buf[:0], Key{Row: i, Old: true})
	f.buf = old
	if err != nil || string(old) == key {
		return key, false, err
	}
	return string(old), true, nil
}

// nullsBefore is how many columns of the key the image before row i lacks.
func (f *Fold) nullsBefore(i int) (n int) {
	for _, k := range f.cols.Key {
		if f.b.Old.Column(f.cols.Send[k]).IsNull(i) {
			n++
		}
	}
	return n
}

// slot returns the slot of a key, and notes that row i touches it.
func (f *Fold) slot(id string, key Key, i int) *slot {
	s, ok := f.at[id]
	if !ok {
		s = f.rooms.next(f.slab)
		s.key, s.id, s.lost = key, id, f.lost[id]
		s.live = s.one[:0]
		f.at[id], f.slots = s, append(f.slots, s)
	}
	s.last = i
	return s
}

// apply folds row i in.
func (f *Fold) apply(i int, key, oldKey string, moved bool) {
	s := f.slot(key, Key{Row: i}, i)
	if f.b.Op(i) == record.Delete {
		f.leave(s, &Key{Row: i})
		return
	}
	ch := f.places.next(f.slab)
	ch.Key, ch.ID, ch.Last = Key{Row: i}, key, i
	switch f.b.Op(i) {
	case record.Insert, record.Delete:
	case record.Upsert:
		ch.Origin, ch.From = &ch.Key, key
		var prev *Change
		if n := len(s.live); n > 0 {
			prev = s.live[n-1]
			ch.Origin, ch.From, ch.There = prev.Origin, prev.From, prev.There
		}
		f.inherit(ch, prev)
		s.live, s.taken = s.live[:0], true
	case record.Update:
		was, old := s, &Key{Row: i, Old: true}
		switch {
		case moved:
			was = f.slot(oldKey, *old, i)
		case f.b.Old == nil || f.nullsBefore(i) > 0: // no image, or no more than a key that moved
			old = nil
		}
		ch.moved = moved
		prev, lost := f.leave(was, old)
		switch {
		case prev != nil:
			ch.Origin, ch.From, ch.There = prev.Origin, prev.From, prev.There
		case !lost:
			ch.Origin, ch.From, ch.There = &was.key, was.id, true
		}
		f.inherit(ch, prev)
	}
	if !f.full {
		s.live = s.live[:0]
	}
	s.live = append(s.live, ch)
}

// leave takes the row that the image (nil: unknown) means away from its key: a row of the batch, or, nil, the target's, or, lost, one
// that the target had to give up before.
func (f *Fold) leave(s *slot, image *Key) (ch *Change, lost bool) {
	at := f.find(s, image)
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
func (f *Fold) find(s *slot, image *Key) int {
	last := len(s.live) - 1
	if last == 0 && s.taken && s.lost == 0 {
		return last
	}
	if f.full && image != nil {
		for at, ch := range s.live {
			if f.equal(ch, *image) {
				return at
			}
		}
	}
	switch {
	case !f.full || image == nil:
		s.taken = s.taken || s.lost == 0
		return last
	case s.taken && s.lost == 0 && last >= 0:
		return 0
	}
	return -1
}

// equal reports whether a row of the batch is the one of the image, as far as its values are known.
func (f *Fold) equal(ch *Change, image Key) bool {
	place := Place(image.Row)
	if image.Old {
		place = imageBefore(image.Row)
	}
	want, err := f.Fields(place)
	if err != nil {
		return false
	}
	for n := range f.cols.Send {
		at := ch.Value(n)
		if at == OwnValue || slices.Contains(f.cols.Key, n) {
			continue
		}
		have, err := f.Fields(at)
		if err != nil || string(have[n]) != string(want[n]) {
			return false
		}
	}
	return true
}

// inherit fills in the values that the source did not send: from the image before, from an earlier row of the batch, or else from the
// target.
func (f *Fold) inherit(ch, prev *Change) {
	if f.b.Unchanged == nil {
		return
	}
	i := ch.Last
	values, sent := make([]Place, len(f.cols.Send)), true
	for n, col := range f.cols.Send {
		values[n] = Place(i)
		if !f.b.IsUnchanged(col, i) {
			continue
		}
		sent = false
		switch {
		case f.b.Old != nil && f.b.Old.Column(col).IsValid(i):
			values[n] = imageBefore(i)
		case prev != nil:
			values[n] = prev.Value(n)
		default:
			values[n] = OwnValue
		}
	}
	if !sent {
		ch.Values = values
	}
}

// Fields returns the fields of a row or of an image before one, as Images has them.
func (f *Fold) Fields(at Place) ([][]byte, error) {
	if fields, ok := f.fields[at]; ok {
		return fields, nil
	}
	fields, err := f.images.Fields(at)
	if err == nil {
		f.fields[at] = fields
	}
	return fields, err //nolint:wrapcheck // the sink's own
}

// RefuseMissing refuses the rows of the last fold that changes are made of which the target has no part of; missing are the rows that
// decided them.
func (f *Fold) RefuseMissing(missing []int, refused Refused) {
	for _, last := range missing {
		for _, i := range f.partsOf(last) {
			column := ""
			for _, col := range f.cols.Send {
				if f.b.IsUnchanged(col, i) {
					column = f.b.Rows.ColumnName(col)
					break
				}
			}
			refused.Add(i, MissingError{Column: column})
		}
	}
}

// partsOf returns the rows that the change decided by row last was made of: all that touched its key, wherever it stood.
func (f *Fold) partsOf(last int) []int {
	keys := map[string]bool{}
	var rows []int
	for i := last; i >= f.from; i-- {
		id, err := f.images.AppendID(nil, Key{Row: i})
		key := string(id)
		if err != nil || i < last && !keys[key] {
			continue
		}
		rows = append(rows, i)
		keys[key] = true
		if oldKey, moved, err := f.before(i, key); err == nil && moved {
			keys[oldKey] = true
		}
	}
	return rows
}

// Open returns the rows of the batch that came to a key whose row at the target, if there is one, will be told of later in the same
// transaction, and the ids of their keys.
func (f *Fold) Open() map[int]string {
	if !f.full || f.ends {
		return nil
	}
	open := map[int]string{}
	for _, s := range f.slots {
		if n := len(s.live); n > 0 && !s.taken && s.live[n-1].moved {
			open[s.live[n-1].Last] = s.id
		}
	}
	return open
}

// Displace remembers the keys whose rows the target had to give up, for the next batch of the transaction: arrived are rows of the
// batch that took the place of another one.
func (f *Fold) Displace(arrived []int) {
	if !f.full || f.ends {
		return
	}
	crowded := map[string]int{}
	for _, s := range f.slots {
		if left := s.lost + max(len(s.live)-1, 0); left > 0 { // the batch alone knows more than one row
			crowded[s.id] = left
		}
		delete(f.lost, s.id)
	}
	maps.Copy(f.lost, crowded)
	open := f.Open()
	for _, row := range arrived {
		f.lost[open[row]]++
	}
}

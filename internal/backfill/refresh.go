package backfill

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/leatdata/leat/record"
)

// Rows that are read once more go to lanes that get all changes. A row that was read under a snapshot fits between two changes of its key:
// behind the last one that the snapshot includes, and before the next one. So
//
//	chunks are read only after all transactions are visible that the lanes have got changes of
//	rows are delivered only after the stream has brought all that their snapshot includes
//	a row is left out if a change of its key was delivered that the snapshot does not include
//
// A row that is delivered is then exactly what the lanes should have at this place, and nothing has to be remembered of a chunk that was
// delivered, held for one that is being read, or saved but which chunks are done. A row that was left out came with its change, but for
// values that the source did not send: then its key is read once more.

// touch is the last change of a key that lanes have got since a chunk was begun.
type touch struct {
	txn   record.Position
	whole bool // with it and those before it the lanes have all values of the row, or it is gone
}

// observe takes note of changes that the lanes of parts get, and waits until those are visible that chunks yet to be read must include.
func (m *Merge) observe(ctx context.Context, b *record.Batch) error {
	if b.Schema == nil || len(m.parts) == 0 {
		return nil
	}
	var must []record.Position
	unread := false
	for _, j := range append([]*job(nil), m.parts...) {
		if j.dataset != b.Schema.Dataset || !j.gate.Zero() || j.schema == nil {
			continue
		}
		must = append(must, m.meets(j, b.Schema, b.Truncate)...)
		unread = unread || j.unread()
		m.touch(j, b)
	}
	if unread {
		for _, t := range b.Txns {
			must = append(must, t.Position)
		}
	}
	return m.visible(ctx, must)
}

// unread reports whether chunks of a part are yet to be begun.
func (j *job) unread() bool {
	for _, s := range j.all() {
		if s.state == planned {
			return true
		}
	}
	return false
}

// meets takes note of the columns that changes or chunks of the dataset have now. Rows of chunks that were read before must not follow
// others of new columns, nor what emptied the dataset: these chunks are read again. It returns the transactions which they must include.
func (m *Merge) meets(j *job, s *record.Schema, truncate bool) []record.Position {
	last := j.seen
	j.seen = s
	switch {
	case last != s && otherKey(last, s) && j.part.keyed:
		m.breaks(j, errors.New("its key has other columns now"))
		return nil
	case last != s && otherKey(last, s):
		must := j.reread()
		j.segments, j.points, j.bounds = []*segment{{}}, nil, nil
		m.dirty = true
		return must
	case truncate || (last != s && !record.Diff(last, s).Empty()):
		return j.reread()
	}
	return nil
}

// reread gives up what is being read. It returns which transactions a chunk has to include that is read instead.
func (j *job) reread() (must []record.Position) {
	j.epoch++
	j.planning = false
	for _, s := range j.all() {
		if s.state != reading {
			continue
		}
		for _, t := range s.touched {
			must = append(must, t.txn)
		}
		s.state, s.again, s.touched, s.has, s.snapshot = planned, false, nil, nil, record.Position{}
	}
	return must
}

// touch notes the keys of changes for the chunks that are being read.
func (m *Merge) touch(j *job, b *record.Batch) {
	var under []*segment
	for _, s := range j.all() {
		if s.state == reading {
			under = append(under, s)
		}
	}
	if len(under) == 0 || b.NumRows() == 0 {
		return
	}
	i := 0
	for _, t := range b.Txns {
		for range t.Rows {
			key, was := string(m.src.KeyOf(b.Schema, b.Rows, i)), ""
			if b.KeyMoved(i) {
				was = string(m.src.KeyOf(b.Schema, b.Old, i))
			}
			whole := b.Op(i) == record.Delete || !incomplete(b, i)
			for _, s := range under {
				m.note(s, key, was, touch{txn: t.Position, whole: whole})
			}
			i++
		}
	}
}

// note takes note of one change in a chunk that is being read. was is the key before, where it moved. Changes that every snapshot from here
// on includes, that of the chunk among them, don't matter.
func (m *Merge) note(s *segment, key, was string, t touch) {
	if m.settled(s, t.txn) {
		return
	}
	from := key
	if was != "" {
		from = was
	}
	t.whole = t.whole || s.touched[from].whole // values that were not sent came before
	if was != "" && s.among(was) {
		s.touched[was] = touch{txn: t.txn, whole: true}
	}
	if s.among(key) {
		s.touched[key] = t
	}
}

func (m *Merge) settled(s *segment, txn record.Position) bool {
	return !s.snapshot.Zero() && m.src.Includes(s.snapshot, txn) && !m.now.Zero() && m.src.Includes(m.now, txn)
}

// among reports whether the chunk may have the key.
func (s *segment) among(key string) bool {
	if s.keys == nil {
		return true
	}
	if s.set == nil {
		s.set = make(map[string]bool, len(s.keys))
		for _, k := range s.keys {
			s.set[string(k)] = true
		}
	}
	return s.set[key]
}

// Due reports whether rows of a part that were read under the snapshot may be delivered: the stream has brought all that it includes.
func (m *Merge) Due(w *Work, snapshot record.Position) bool {
	if w.Stale() || !m.readable(w.job) {
		return false
	}
	if !w.seg.snapshot.Equal(snapshot) {
		w.seg.snapshot = snapshot
		for k, t := range w.seg.touched {
			if m.settled(w.seg, t.txn) {
				delete(w.seg.touched, k)
			}
		}
	}
	return !m.at.Zero() && m.src.Outlived(snapshot, m.at)
}

// Refresh returns which rows of a part's chunk are delivered; nil: none. They must be due. The work is stale afterwards where the columns
// of the rows are older than what the lanes have got. It waits until transactions are visible that keys were changed by which have to be
// read once more.
func (m *Merge) Refresh(ctx context.Context, w *Work, b *record.Batch) (*record.Batch, error) {
	j, s := w.job, w.seg
	if w.Stale() {
		return nil, nil
	}
	if !m.Due(w, b.Chunk.Snapshot) {
		return nil, errors.New("rows of a part came before the stream was there")
	}
	if b.Schema != j.seen {
		if b.Schema.Version < j.seen.Version && !record.Diff(b.Schema, j.seen).Empty() {
			return nil, m.visible(ctx, j.reread())
		}
		if otherKey(j.seen, b.Schema) {
			return nil, m.visible(ctx, m.meets(j, b.Schema, false))
		}
		j.seen = b.Schema
	}
	keep := make([]bool, b.NumRows())
	kept := 0
	var must []record.Position
	for i := range keep {
		key := m.src.KeyOf(b.Schema, b.Rows, i)
		t, changed := s.touched[string(key)]
		if keep[i] = !changed || m.src.Includes(s.snapshot, t.txn); keep[i] {
			kept++
		} else if !t.whole {
			j.reopen(key)
			must = append(must, t.txn)
		}
		if s.objects != nil {
			s.mark(key)
		}
	}
	j.rows += int64(kept)
	if err := m.visible(ctx, must); err != nil || kept == 0 {
		return nil, err
	}
	return b.Keep(func(i int) bool { return keep[i] }) //nolint:wrapcheck // it names the column
}

func (s *segment) mark(key json.RawMessage) {
	if s.has == nil {
		s.has = map[string]bool{}
	}
	s.has[string(key)] = true
}

// refreshed ends a chunk of a part, all rows of which were delivered. Keys that were asked for and that have no row are deleted.
func (m *Merge) refreshed(w *Work, snapshot record.Position) ([]Delivery, error) {
	j, s := w.job, w.seg
	if !m.Due(w, snapshot) {
		return nil, errors.New("a chunk of a part ended before the stream was there")
	}
	var gone []json.RawMessage
	for i, object := range s.objects {
		t, changed := s.touched[string(s.keys[i])]
		if !s.has[string(s.keys[i])] && (!changed || m.src.Includes(snapshot, t.txn)) {
			gone = append(gone, object)
		}
	}
	s.finish()
	s.touched = nil
	j.tidy()
	m.dirty = true
	if len(gone) == 0 {
		return nil, nil
	}
	rows, err := keyRows(j.seen, gone)
	if err != nil {
		return nil, err
	}
	b := &record.Batch{Schema: j.seen, Rows: rows, Ops: make([]record.Op, len(gone))}
	for i := range b.Ops {
		b.Ops[i] = record.Delete
	}
	return []Delivery{{Lanes: j.lanes, Batch: b}}, nil
}

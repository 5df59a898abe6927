package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Part asks for rows of a dataset once more that lanes have already.
type Part struct {
	ID uint64 // of the order, not 0; several datasets may have the same
	// Where is a condition of the source's language: only rows that meet it are read; empty: all rows.
	Where string
	// Keys are JSON objects of the key columns, as record.Batch.KeyJSON has them: instead only these rows. A key that the source has no
	// row of is deleted in the lanes.
	Keys []json.RawMessage
}

// partial is what a job has besides that reads rows once more.
type partial struct {
	id    uint64
	where string
	keyed bool
	asked []json.RawMessage // keys that were asked for and are not segments yet: the schema is not known
}

// maxRefreshing is how many chunks of parts are under way at the same time: their rows may wait in memory for the stream.
const maxRefreshing = 2

// maxKeys is how many keys one chunk has.
const maxKeys = 1000

// Part opens a part: rows are read once more and written over what the lanes have, by key. The dataset stays complete in the lanes
// meanwhile, and they get all of its changes. A part that is open in a lane, or complete there, is not opened again; see Retain. Where a
// backfill of the whole dataset is open in a lane, the part waits for it; one that is opened later takes the place of the part, but for
// keys of which a refill would not delete what the source does not have.
//
// Its errors say what is wrong with the request; nothing was opened then. Like Request it waits until every transaction is visible
// that the stream has brought.
func (m *Merge) Part(ctx context.Context, s *record.Schema, p Part, lanes ...string) error {
	if err := m.partFits(s, p, lanes); err != nil {
		return err
	}
	if err := m.visible(ctx, m.recent); err != nil {
		return err
	}
	m.recent = nil
	opened := map[string]*job{} // by what keeps lanes from sharing one read
	for _, l := range lanes {
		if m.over(l, p.ID, s.Dataset) {
			m.endings = append(m.endings, Delivery{Lanes: []string{l}, Part: p.ID, Dataset: s.Dataset})
			continue
		}
		if m.hasPart(l, p.ID, s.Dataset) {
			continue
		}
		k := fmt.Sprint(m.ahead[l], m.find(l, s.Dataset) != nil)
		if opened[k] == nil {
			j := &job{dataset: s.Dataset, gate: m.ahead[l], part: &partial{
				id: p.ID, where: p.Where, keyed: len(p.Keys) > 0, asked: slices.Clone(p.Keys),
			}}
			if err := m.describe(j, s); err != nil {
				return err
			}
			opened[k] = j
			m.parts = append(m.parts, j)
		}
		opened[k].lanes = append(opened[k].lanes, l)
		m.dirty = true
	}
	return nil
}

// partFits refuses what can't be read once more.
func (m *Merge) partFits(s *record.Schema, p Part, lanes []string) error {
	switch {
	case p.ID == 0:
		return errors.New("a part has no number")
	case len(s.Key) == 0:
		return fmt.Errorf("%s has no key: its rows can't be written over those that are there", s.Dataset)
	case p.Where != "" && len(p.Keys) > 0:
		return errors.New("rows are read either by a condition or by their keys")
	}
	for _, l := range lanes {
		if j := m.find(l, s.Dataset); j != nil && j.failed || !m.Has(l, s.Dataset) {
			return fmt.Errorf("%s has no complete copy of %s: copy it as a whole", l, s.Dataset)
		}
	}
	_, err := keyRows(s, p.Keys)
	return err
}

// describe tells a part the schema of its dataset.
func (m *Merge) describe(j *job, s *record.Schema) error {
	if j.part.keyed {
		points, err := m.keySegments(s, j.part.asked)
		if err != nil {
			return err
		}
		j.points, j.part.asked = append(points, j.points...), nil
	}
	if len(j.segments) == 0 {
		j.segments = []*segment{{}}
		if j.part.keyed {
			j.segments[0].state = done
		}
	}
	j.schema, j.seen = s, s
	return nil
}

// keySegments makes chunks of keys.
func (m *Merge) keySegments(s *record.Schema, keys []json.RawMessage) ([]*segment, error) {
	rows, err := keyRows(s, keys)
	if err != nil {
		return nil, err
	}
	var out []*segment
	known := map[string]bool{}
	for i, object := range keys {
		key := m.src.KeyOf(s, rows, i)
		if known[string(key)] {
			continue
		}
		known[string(key)] = true
		if n := len(out); n == 0 || len(out[n-1].keys) == maxKeys {
			out = append(out, &segment{ready: true})
		}
		last := out[len(out)-1]
		last.keys, last.objects = append(last.keys, key), append(last.objects, object)
	}
	return out, nil
}

// hasPart reports whether a part is open in a lane.
func (m *Merge) hasPart(lane string, id uint64, dataset string) bool {
	return slices.ContainsFunc(m.parts, func(j *job) bool {
		return j.part.id == id && j.dataset == dataset && slices.Contains(j.lanes, lane)
	})
}

// over reports whether a part is complete in a lane.
func (m *Merge) over(lane string, id uint64, dataset string) bool {
	return slices.Contains(m.finished[lane], ended{id, dataset})
}

// Cancel ends a part for all lanes, and returns these. What was written of it stays.
func (m *Merge) Cancel(id uint64, dataset string) (lanes []string) {
	m.parts = slices.DeleteFunc(m.parts, func(j *job) bool {
		if j.part.id != id || j.dataset != dataset {
			return false
		}
		lanes = append(lanes, j.lanes...)
		j.epoch++
		m.dirty = true
		return true
	})
	return lanes
}

// conclude remembers that a part is over in lanes.
func (m *Merge) conclude(j *job, lanes []string) {
	for _, l := range lanes {
		m.ends(l, j.dataset, []uint64{j.part.id})
	}
}

// ends remembers that orders are over for a dataset in a lane.
func (m *Merge) ends(lane, dataset string, orders []uint64) {
	for _, id := range orders {
		if !m.over(lane, id, dataset) {
			m.finished[lane] = append(m.finished[lane], ended{id, dataset})
			m.dirty = true
		}
	}
}

// leaveParts takes a lane out of the parts of a dataset: the whole of it is copied, or nothing more of it is delivered. Where rows are
// written over what the lane has, keys that were asked for are still to be read: nothing else deletes those that have no row.
func (m *Merge) leaveParts(lane, dataset string, how How) {
	m.parts = slices.DeleteFunc(m.parts, func(j *job) bool {
		i := slices.Index(j.lanes, lane)
		if j.dataset != dataset || i < 0 || (how == Refill && j.part.keyed) {
			return false
		}
		j.lanes = slices.Delete(slices.Clone(j.lanes), i, i+1)
		m.conclude(j, []string{lane})
		m.endings = append(m.endings, Delivery{Lanes: []string{lane}, Part: j.part.id, Dataset: dataset})
		if len(j.lanes) == 0 {
			j.epoch++
		}
		return len(j.lanes) == 0
	})
}

// Retain forgets all parts that are complete but those with these numbers. Until then the ledger tells of them, so that whoever keeps the
// orders knows from a saved ledger which ones are done, see [Finished].
func (m *Merge) Retain(ids ...uint64) {
	for l, list := range m.finished {
		kept := slices.DeleteFunc(list, func(e ended) bool { return !slices.Contains(ids, e.ID) })
		m.dirty = m.dirty || len(kept) != len(list)
		m.finished[l] = kept
	}
}

// turnParts returns which parts are over.
func (m *Merge) turnParts() []Delivery {
	out := m.endings
	m.endings = nil
	m.parts = slices.DeleteFunc(m.parts, func(j *job) bool {
		if j.schema == nil || !j.complete() {
			return false
		}
		m.conclude(j, j.lanes)
		out = append(out, Delivery{Lanes: j.lanes, Part: j.part.id, Dataset: j.dataset})
		return true
	})
	return out
}

// readable reports whether chunks of a part may be read: a backfill of the whole dataset comes first.
func (m *Merge) readable(j *job) bool {
	return j.schema != nil && j.gate.Zero() && !slices.ContainsFunc(j.lanes, func(l string) bool { return m.find(l, j.dataset) != nil })
}

// nextPart is Next for parts.
func (m *Merge) nextPart(ahead int) *Work {
	under := 0
	for _, j := range m.parts {
		for _, s := range j.all() {
			if s.state == reading && !s.again {
				under++
			}
		}
	}
	if under >= maxRefreshing {
		return nil
	}
	for _, j := range m.parts {
		if !m.readable(j) {
			continue
		}
		if w := m.workOf(j, ahead); w != nil {
			w.Part = j.part.id
			return w
		}
	}
	return nil
}

// breaks ends a part that can't be read any more.
func (m *Merge) breaks(j *job, err error) {
	i := slices.Index(m.parts, j)
	m.parts = slices.Delete(m.parts, i, i+1)
	j.epoch++
	m.dirty = true
	m.endings = append(m.endings, Delivery{Lanes: j.lanes, Part: j.part.id, Dataset: j.dataset, Err: &connector.Error{
		Class: connector.ClassPermanent, Code: "backfill.part", Doing: "reading rows once more", Dataset: j.dataset, Err: err,
		Hint: "ask for them again",
	}})
}

package backfill

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/record"
)

// part asks for rows once more, and spoils some of them before in lanes that have the dataset.
func (s *simulation) part() error {
	if s.open != nil {
		return nil
	}
	var lanes []string
	for _, l := range s.lanes {
		if l.skip == 0 && s.m.Has(l.name, "t") && s.Rand.IntN(3) > 0 {
			lanes = append(lanes, l.name)
		}
	}
	if len(lanes) == 0 {
		return nil
	}
	s.parts++
	p := Part{ID: s.parts}
	keys := map[int64]bool{}
	covers := func(k int64) bool { return keys[k] }
	switch n := s.Rand.IntN(10); {
	case n < 4:
		p.Where = fmt.Sprintf("id%%%d=%d", 1+s.Rand.IntN(3), 0)
		covers = func(k int64) bool { return sim.Meets(p.Where, k, sim.Image{}) }
	case n < 6:
		p.Where = fmt.Sprintf("v%%%d=%d", 2+s.Rand.IntN(3), s.Rand.IntN(2))
	case n < 7:
		covers = func(int64) bool { return true }
	default:
		for range 1 + s.Rand.IntN(6) {
			keys[s.Rand.Int64N(40)] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			p.Keys = append(p.Keys, json.RawMessage(fmt.Sprintf(`{"id": %d}`, k)))
		}
	}
	for _, l := range s.lanes {
		if !slices.Contains(lanes, l.name) || s.m.find(l.name, "t") != nil {
			continue
		}
		for k := range int64(40) {
			_, there := l.now.Rows[k]
			_, damaged := l.now.Damaged[k]
			if covers(k) && (there || keys[k]) && !damaged && s.Rand.IntN(3) == 0 {
				l.now.Damage(k, p.ID)
			}
		}
	}
	err := s.m.Part(s.t.Context(), s.schema, p, lanes...)
	if s.wrong == unseeded {
		delete(s.m.seeded[lanes[0]], "t")
	}
	return err
}

// partDone checks that a part has repaired all that it was to repair.
func (s *simulation) partDone(l *simLane, d Delivery) error {
	if d.Err != nil {
		return d.Err
	}
	s.complete++
	if s.m.find(l.name, "t") != nil {
		return nil // the whole dataset is copied
	}
	for k, by := range l.now.Damaged {
		if by == d.Part {
			return fmt.Errorf("%s: part %d is over, and key %d is not repaired", l.name, by, k)
		}
	}
	return nil
}

// next begins something.
func (s *simulation) next() *Work {
	if jobs := s.m.jobs; s.wrong == reordered {
		s.m.jobs = nil
		w := s.m.Next(2)
		if s.m.jobs = jobs; w != nil {
			return w
		}
	}
	return s.m.Next(2)
}

// change hands a batch to the merge, with what may go wrong there.
func (s *simulation) change(b *record.Batch) ([]Delivery, error) {
	parts := s.m.parts
	s.Rash = s.Rash || s.wrong == rash && len(s.m.jobs) == 0 && len(parts) > 0
	if (s.wrong == untruncated && b.Truncate) || s.wrong == unobserved {
		s.m.parts = nil
	}
	out, err := s.m.Change(s.t.Context(), b, s.names)
	s.m.parts = parts
	if s.wrong == rash {
		s.Rash = false
	}
	return out, err
}

// refreshed delivers the rows of a part that was read, as soon as they are due.
func (s *simulation) refreshed(i int) error {
	p := s.works[i]
	if s.Rand.IntN(6) == 0 {
		s.works = slices.Delete(s.works, i, i+1)
		s.m.Abandon(p.w)
		return nil
	}
	s.Forgetful = s.wrong == early
	jobs := s.m.jobs
	if s.wrong == reordered {
		s.m.jobs = nil
	}
	due := s.m.Due(p.w, p.rows.Chunk.Snapshot)
	var err error
	if due {
		s.works = slices.Delete(s.works, i, i+1)
		err = s.handOver(p)
	} else if p.w.Stale() {
		s.works = slices.Delete(s.works, i, i+1)
	}
	s.Forgetful, s.m.jobs = false, jobs
	return err
}

func (s *simulation) handOver(p *pending) error {
	lanes, points := p.w.Lanes(), p.w.job.points
	for _, first := range []bool{true, false} {
		half := p.rows.NumRows() / 2
		b, err := p.rows.Keep(func(i int) bool { return i < half == first })
		if err != nil {
			return err
		}
		s.Eager = s.wrong == stale
		out, err := s.m.Refresh(s.t.Context(), p.w, b)
		s.Eager = false
		if err != nil {
			return err
		}
		if err := s.bring(lanes, out); err != nil {
			return err
		}
	}
	if s.wrong == forgotten {
		p.w.job.points = points
	}
	if s.wrong == unconditional {
		p.w.seg.touched = nil
	}
	ds, err := s.m.Publish(s.t.Context(), p.w, p.rows.Chunk.Snapshot)
	if err != nil {
		return err
	}
	for _, d := range ds {
		if s.wrong == undeleted {
			continue
		}
		if err := s.bring(d.Lanes, d.Batch); err != nil {
			return err
		}
	}
	if s.open == nil {
		s.mark()
	}
	return nil
}

// bring delivers rows that were read once more.
func (s *simulation) bring(lanes []string, b *record.Batch) error {
	if b == nil {
		return nil
	}
	for _, l := range s.lanes {
		if !slices.Contains(lanes, l.name) {
			continue
		}
		if l.skip > 0 {
			return fmt.Errorf("%s: rows came once more where the lane skips", l.name)
		}
		s.refresh += b.NumRows()
		if err := l.now.Refresh(b); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

func withoutParts(led json.RawMessage) json.RawMessage {
	l, err := decodeLedger(led)
	if err != nil {
		panic(err)
	}
	l.Parts = nil
	out, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return out
}

package backfill

import (
	"context"
	"encoding/json"

	"github.com/leatdata/leat/record"
)

// Work is something to read from the source for a backfill.
type Work struct {
	Dataset string
	// Plan asks for the next chunk behind After; else Chunk is to be read.
	Plan  bool
	After json.RawMessage
	Chunk record.Chunk
	// Part is the number of the part that the work belongs to; 0: none. Its rows are delivered as Due and Refresh say.
	Part  uint64
	Where string // the part's condition

	job   *job
	epoch int
	seg   *segment
}

// Lanes returns the lanes that the work is for, now.
func (w *Work) Lanes() []string { return w.job.lanes }

// Stale reports whether the work was overtaken: its outcome must not be used.
func (w *Work) Stale() bool { return w.job.epoch != w.epoch }

// Pass identifies the pass over a dataset that the work is part of: planning goes on from one work of it to the next.
type Pass struct {
	job   *job
	epoch int
}

// Pass returns which pass the work is part of.
func (w *Work) Pass() Pass { return Pass{w.job, w.epoch} }

// Over reports whether nothing more is to be done in the pass.
func (p Pass) Over() bool { return p.job.epoch != p.epoch }

// Next returns something to do, or nil. A chunk's snapshot must be taken after Next returned it. ahead bounds how many chunks are planned
// before they are read. Every Work ends with a call of Planned, Publish or Abandon.
func (m *Merge) Next(ahead int) *Work {
	for _, j := range m.jobs {
		if !j.active() {
			continue
		}
		if w := m.workOf(j, ahead); w != nil {
			return w
		}
	}
	return m.nextPart(ahead)
}

// workOf returns something to do for one job.
func (m *Merge) workOf(j *job, ahead int) *Work {
	where := ""
	if j.part != nil {
		where = j.part.where
	}
	for _, p := range j.points {
		if p.waits() {
			p.begin()
			return m.work(j, p, record.Chunk{Dataset: j.dataset, Keys: p.keys})
		}
	}
	for _, s := range j.segments {
		if s.waits() {
			s.begin()
			return m.work(j, s, record.Chunk{Dataset: j.dataset, From: j.from(s), To: s.to, Where: where})
		}
	}
	last := j.segments[len(j.segments)-1]
	if !j.planning && last.state == planned && !last.ready && j.ahead() < ahead {
		j.planning = true
		return &Work{Dataset: j.dataset, Plan: true, After: j.from(last), Where: where, job: j, epoch: j.epoch, seg: last}
	}
	return nil
}

func (*Merge) work(j *job, s *segment, c record.Chunk) *Work {
	return &Work{Dataset: j.dataset, Chunk: c, job: j, epoch: j.epoch, seg: s}
}

// Planned takes note of the chunk that follows; to nil: it is the last one.
func (*Merge) Planned(w *Work, to json.RawMessage) {
	if w.Stale() {
		return
	}
	w.job.planning = false
	w.job.cut(to)
}

// Abandon gives work back that could not be done: it comes again. Nothing of what was read may be delivered. Changes go on being held
// for a chunk, and are judged by the snapshot of the try that succeeds.
func (*Merge) Abandon(w *Work) {
	switch {
	case w.Stale():
	case w.Plan:
		w.job.planning = false
	default:
		w.seg.again, w.seg.has = true, nil
	}
}

// Took takes note of rows of a chunk that are delivered.
func (m *Merge) Took(w *Work, b *record.Batch) {
	if w.Stale() {
		return
	}
	w.job.rows += int64(b.NumRows())
	if !w.job.refill {
		return
	}
	if w.seg.has == nil {
		w.seg.has = map[string]bool{}
	}
	for i := range b.NumRows() {
		w.seg.has[string(m.src.KeyOf(b.Schema, b.Rows, i))] = true
	}
}

// Publish says that the chunk's rows were delivered, read under the snapshot, and returns which held changes follow them. The rows come
// first; nothing with a position may come between, unless they are of a part.
func (m *Merge) Publish(ctx context.Context, w *Work, snapshot record.Position) ([]Delivery, error) {
	if w.Stale() {
		return nil, nil
	}
	if w.job.part != nil {
		return m.refreshed(w, snapshot)
	}
	s := w.seg
	s.state, s.snapshot = published, snapshot
	m.dirty = true
	waiting := s.held
	s.held = nil
	var out []Delivery
	for _, b := range waiting {
		parts, err := m.judge(ctx, w.job, b, nil)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			out = append(out, Delivery{Lanes: w.job.lanes, Batch: p})
		}
	}
	if !m.at.Zero() && m.src.Outlived(snapshot, m.at) {
		s.finish()
		w.job.tidy()
	}
	return out, nil
}

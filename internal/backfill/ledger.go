package backfill

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// ledger is the persisted form: what each lane has of each dataset. It is part of every lane's progress.
type ledger struct {
	Seeded map[string][]string `json:"seeded,omitempty"` // datasets whose snapshot is complete, by lane, sorted
	Jobs   []entry             `json:"jobs,omitempty"`
}

// entry is one backfill that is not complete.
type entry struct {
	Dataset  string            `json:"dataset"`
	Lanes    []string          `json:"lanes"`
	Truncate bool              `json:"truncate,omitempty"` // the dataset is to be emptied before
	Refill   bool              `json:"refill,omitempty"`
	Failed   bool              `json:"failed,omitempty"`
	Segments []part            `json:"segments,omitempty"` // in key order; none: nothing was read
	Keys     []json.RawMessage `json:"keys,omitempty"`     // to be read once more
	Rows     int64             `json:"rows,omitempty"`     // published
}

// part is one segment, or the keys of a chunk of keys.
type part struct {
	To       json.RawMessage   `json:"to,omitempty"` // upper end; none: open
	Done     bool              `json:"done,omitempty"`
	Snapshot *record.Position  `json:"snapshot,omitempty"` // of a published chunk
	Keys     []json.RawMessage `json:"keys,omitempty"`
}

func decodeLedger(raw json.RawMessage) (ledger, error) {
	var l ledger
	if len(raw) == 0 {
		return l, nil
	}
	if err := json.Unmarshal(raw, &l); err != nil {
		return l, &connector.Error{
			Class: connector.ClassPosition, Code: "backfill.ledger", Doing: "reading the saved state of the snapshots", Err: err,
			Hint: "leat state reset starts over",
		}
	}
	return l, nil
}

// Ledger returns the state as a lane's progress keeps it; the same bytes while nothing has changed.
func (m *Merge) Ledger() json.RawMessage {
	if !m.dirty {
		return m.encoded
	}
	l := ledger{Seeded: map[string][]string{}}
	for lane, set := range m.seeded {
		if len(set) > 0 {
			l.Seeded[lane] = slices.Sorted(maps.Keys(set))
		}
	}
	for _, j := range m.jobs {
		l.Jobs = append(l.Jobs, j.entry())
	}
	doc, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("backfill: encoding the ledger: %v", err)) // strings and valid JSON always marshal
	}
	m.encoded, m.dirty = doc, false
	return doc
}

func (j *job) entry() entry {
	e := entry{Dataset: j.dataset, Lanes: j.lanes, Truncate: j.truncate, Refill: j.refill && !j.failed, Failed: j.failed, Rows: j.rows}
	untouched := true
	for _, s := range j.segments {
		p := part{To: s.to, Done: s.state == done}
		if s.state == published {
			p.Snapshot = &s.snapshot
		}
		untouched = untouched && s.state != done && s.state != published
		e.Segments = append(e.Segments, p)
	}
	if untouched {
		e.Segments = nil
	}
	for _, p := range j.points {
		if p.state == published {
			e.Segments = append(e.Segments, part{Keys: p.keys, Snapshot: &p.snapshot})
			continue
		}
		e.Keys = append(e.Keys, p.keys...)
	}
	return e
}

// restore makes the job of an entry. Chunks that were being read are planned again.
func (e entry) restore() *job {
	j := &job{dataset: e.Dataset, lanes: slices.Clone(e.Lanes), truncate: e.Truncate, refill: e.Refill, rows: e.Rows}
	for _, p := range e.Segments {
		s := &segment{to: p.To, keys: p.Keys, ready: p.To != nil || p.Keys != nil}
		switch {
		case p.Done:
			s.state = done
		case p.Snapshot != nil && !e.Refill: // a refill has to know which rows were read
			s.state, s.snapshot = published, *p.Snapshot
		}
		if p.Keys != nil {
			j.points = append(j.points, s)
			continue
		}
		j.segments = append(j.segments, s)
	}
	if len(j.segments) == 0 {
		j.segments = []*segment{{}}
	}
	for _, k := range e.Keys {
		j.reopen(k)
	}
	return j
}

// Backfill is one backfill as a saved ledger tells of it.
type Backfill struct {
	Dataset string
	Lanes   []string
	Begun   bool // part of it is in the lanes
	Failed  bool
	Rows    int64
}

// Read lists the open backfills of a saved ledger, and the datasets whose snapshot each lane has.
func Read(raw json.RawMessage) (open []Backfill, seeded map[string][]string, err error) {
	l, err := decodeLedger(raw)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range l.Jobs {
		open = append(open, e.backfill())
	}
	return open, l.Seeded, nil
}

// Backfills lists the open backfills of a dataset.
func (m *Merge) Backfills(dataset string) []Backfill {
	var open []Backfill
	for _, j := range m.jobs {
		if j.dataset == dataset {
			open = append(open, j.entry().backfill())
		}
	}
	return open
}

func (e entry) backfill() Backfill {
	return Backfill{Dataset: e.Dataset, Lanes: e.Lanes, Begun: len(e.Segments) > 0 || e.Rows > 0, Failed: e.Failed, Rows: e.Rows}
}

// Without is a ledger in which a lane has nothing of the datasets: they have to be copied again as a whole.
func Without(raw json.RawMessage, lane string, datasets []string) json.RawMessage {
	l, err := decodeLedger(raw)
	if err != nil {
		return raw // it was encoded here
	}
	if l.Seeded[lane] != nil {
		l.Seeded[lane] = slices.DeleteFunc(l.Seeded[lane], func(d string) bool { return slices.Contains(datasets, d) })
	}
	l.Jobs = slices.DeleteFunc(l.Jobs, func(e entry) bool {
		if !slices.Contains(datasets, e.Dataset) || !slices.Contains(e.Lanes, lane) {
			return false
		}
		return len(e.Lanes) == 1
	})
	for i, e := range l.Jobs {
		if slices.Contains(datasets, e.Dataset) {
			l.Jobs[i].Lanes = slices.DeleteFunc(slices.Clone(e.Lanes), func(n string) bool { return n == lane })
		}
	}
	for _, d := range datasets {
		l.Jobs = append(l.Jobs, entry{Dataset: d, Lanes: []string{lane}, Truncate: true, Failed: true})
	}
	doc, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("backfill: encoding the ledger: %v", err)) // strings and valid JSON always marshal
	}
	return doc
}

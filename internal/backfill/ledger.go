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
	Parts  []partEntry         `json:"parts,omitempty"`
	Ended  map[string][]ended  `json:"ended,omitempty"`  // parts that are complete and not forgotten yet, by lane
	Opened uint64              `json:"opened,omitempty"` // counts the backfills that were opened
}

// partEntry is one part that is not complete.
type partEntry struct {
	ID       uint64            `json:"id"`
	Dataset  string            `json:"dataset"`
	Lanes    []string          `json:"lanes"`
	Where    string            `json:"where,omitempty"`
	Keys     []json.RawMessage `json:"keys,omitempty"`  // instead of a condition: those that are not done, as they were asked for
	Keyed    bool              `json:"keyed,omitempty"` // keys were asked for
	Segments []part            `json:"segments,omitempty"`
	Again    []json.RawMessage `json:"again,omitempty"` // keys to be read once more, in the source's form
	Rows     int64             `json:"rows,omitempty"`
}

// ended is one part that is complete.
type ended struct {
	ID      uint64 `json:"id"`
	Dataset string `json:"dataset"`
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
	Orders   []uint64          `json:"orders,omitempty"`   // that asked for it
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
	l := ledger{Seeded: map[string][]string{}, Opened: m.opened}
	for lane, set := range m.seeded {
		if len(set) > 0 {
			l.Seeded[lane] = slices.Sorted(maps.Keys(set))
		}
	}
	for _, j := range m.jobs {
		l.Jobs = append(l.Jobs, j.entry())
	}
	for _, j := range m.parts {
		l.Parts = append(l.Parts, j.partEntry())
	}
	for lane, list := range m.finished {
		if len(list) > 0 {
			if l.Ended == nil {
				l.Ended = map[string][]ended{}
			}
			l.Ended[lane] = list
		}
	}
	doc, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("backfill: encoding the ledger: %v", err)) // strings and valid JSON always marshal
	}
	m.encoded, m.dirty = doc, false
	return doc
}

func (j *job) entry() entry {
	e := entry{
		Dataset: j.dataset, Lanes: j.lanes, Truncate: j.truncate, Refill: j.refill && !j.failed, Failed: j.failed, Rows: j.rows,
		Orders: j.orders,
	}
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

// partEntry is an entry in which a chunk is done or has to be read.
func (j *job) partEntry() partEntry {
	p := j.part
	e := partEntry{ID: p.id, Dataset: j.dataset, Lanes: j.lanes, Where: p.where, Keyed: p.keyed, Keys: slices.Clone(p.asked), Rows: j.rows}
	begun := false
	for _, s := range j.segments {
		begun = begun || s.state == done
		e.Segments = append(e.Segments, part{To: s.to, Done: s.state == done})
	}
	if !begun || p.keyed {
		e.Segments = nil
	}
	for _, s := range j.points {
		if s.objects != nil {
			e.Keys = append(e.Keys, s.objects...)
		} else {
			e.Again = append(e.Again, s.keys...)
		}
	}
	return e
}

// restore makes the job of a part's entry; it is not read before its dataset is described.
func (e partEntry) restore() *job {
	j := &job{dataset: e.Dataset, lanes: slices.Clone(e.Lanes), rows: e.Rows, part: &partial{
		id: e.ID, where: e.Where, keyed: e.Keyed, asked: e.Keys,
	}}
	for _, p := range e.Segments {
		s := &segment{to: p.To, ready: p.To != nil}
		if p.Done {
			s.state = done
		}
		j.segments = append(j.segments, s)
	}
	for _, k := range e.Again {
		j.reopen(k)
	}
	return j
}

// restore makes the job of an entry. Chunks that were being read are planned again.
func (e entry) restore() *job {
	j := &job{dataset: e.Dataset, lanes: slices.Clone(e.Lanes), truncate: e.Truncate, refill: e.Refill, rows: e.Rows, orders: e.Orders}
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
	ID      uint64 // of a part; 0: the dataset is copied as a whole
	Where   string // of a part: its condition
	Keys    int    // of a part: how many keys are yet to be read
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
	for _, e := range l.Parts {
		open = append(open, e.backfill())
	}
	return open, l.Seeded, nil
}

// Finished lists for each lane of a saved ledger the numbers of the parts that are complete there, for each of their datasets: the lane
// has all of them up to the position that the ledger was saved with. Those that are retained only, see [Merge.Retain].
func Finished(raw json.RawMessage) (map[string]map[uint64][]string, error) {
	l, err := decodeLedger(raw)
	if err != nil {
		return nil, err
	}
	out := map[string]map[uint64][]string{}
	for lane, list := range l.Ended {
		out[lane] = map[uint64][]string{}
		for _, e := range list {
			out[lane][e.ID] = append(out[lane][e.ID], e.Dataset)
		}
	}
	return out, nil
}

// Backfills lists the open backfills of a dataset.
func (m *Merge) Backfills(dataset string) []Backfill {
	var open []Backfill
	for _, j := range m.jobs {
		if j.dataset == dataset {
			open = append(open, j.entry().backfill())
		}
	}
	for _, j := range m.parts {
		if j.dataset == dataset {
			open = append(open, j.partEntry().backfill())
		}
	}
	return open
}

func (e partEntry) backfill() Backfill {
	return Backfill{
		Dataset: e.Dataset, Lanes: e.Lanes, Begun: len(e.Segments) > 0 || e.Rows > 0, Rows: e.Rows, ID: e.ID, Where: e.Where,
		Keys: len(e.Keys) + len(e.Again),
	}
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
	for i, e := range l.Parts {
		if slices.Contains(datasets, e.Dataset) {
			l.Parts[i].Lanes = slices.DeleteFunc(slices.Clone(e.Lanes), func(n string) bool { return n == lane })
		}
	}
	l.Parts = slices.DeleteFunc(l.Parts, func(e partEntry) bool { return len(e.Lanes) == 0 })
	for _, d := range datasets {
		l.Jobs = append(l.Jobs, entry{Dataset: d, Lanes: []string{lane}, Truncate: true, Failed: true})
	}
	doc, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("backfill: encoding the ledger: %v", err)) // strings and valid JSON always marshal
	}
	return doc
}

package backfill

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Merge is the state of all backfills of one pipeline.
type Merge struct {
	src     connector.Merger
	order   func(a, b record.Position) (int, bool)
	jobs    []*job
	seeded  map[string]map[string]bool // by lane, then dataset
	ahead   map[string]record.Position // lanes that are ahead of the stream
	at      record.Position            // the stream's
	now     record.Position            // newest snapshot that was asked for
	recent  []record.Position          // transactions that the stream brought and that may not be visible yet
	loose   map[string]bool            // lanes, see Lane.Loose
	opened  uint64                     // counts the backfills that were opened
	kept    uint64                     // of those, how many a kept ledger tells of
	dirty   bool
	encoded json.RawMessage

	parts    []*job             // rows that are read once more; their datasets are seeded
	finished map[string][]ended // parts that are complete, by lane
	endings  []Delivery         // of parts that ended otherwise than by being read
}

// Lane is a lane as it is found when a pipeline starts.
type Lane struct {
	Name   string
	Ledger json.RawMessage // of its progress; empty: it has nothing
	// Loose says that the lane may have got more than its progress tells, and writes by key: what it gets again must not leave
	// behind rows that were deleted meanwhile.
	Loose bool
	// Ahead is the lane's own position where that lies ahead of where the stream starts; zero: it does not.
	Ahead record.Position
}

// Delivery is something for some lanes, in order. Exactly one of Batch, Complete and Part is set.
type Delivery struct {
	Lanes    []string      // nil: all
	Batch    *record.Batch // without a position, unless Lanes is nil and it is the batch that came in
	Complete string        // the dataset whose snapshot is complete
	Part     uint64        // the part that is over
	Dataset  string        // of the part
	Err      error         // why the part ended before all was read; nil: it is complete, or the whole dataset is copied
}

// New returns the state of a pipeline whose lanes stand where they say. compare orders positions of the stream.
func New(src connector.Merger, compare func(a, b record.Position) (int, bool), lanes []Lane) (*Merge, error) {
	m := &Merge{
		src: src, order: compare, seeded: map[string]map[string]bool{}, ahead: map[string]record.Position{}, dirty: true,
		finished: map[string][]ended{}, loose: map[string]bool{},
	}
	type known struct {
		text  string
		gate  string
		loose bool
	}
	same, parts := map[known]*job{}, map[known]*job{}
	for _, l := range lanes {
		led, err := decodeLedger(l.Ledger)
		if err != nil {
			return nil, err
		}
		m.seeded[l.Name] = map[string]bool{}
		m.loose[l.Name] = l.Loose
		m.opened = max(m.opened, led.Opened)
		if !l.Ahead.Zero() {
			m.ahead[l.Name] = l.Ahead
		}
		for _, d := range led.Seeded[l.Name] {
			m.seeded[l.Name][d] = true
		}
		for _, e := range led.Jobs {
			if !slices.Contains(e.Lanes, l.Name) {
				continue
			}
			e.Lanes = nil
			text, err := json.Marshal(e)
			if err != nil {
				return nil, err //nolint:wrapcheck // it was decoded just now
			}
			k := known{string(text), string(l.Ahead.Data), l.Loose}
			if same[k] == nil { // lanes with the same state share one read
				e.Refill = e.Refill || l.Loose
				same[k] = e.restore()
				same[k].gate = l.Ahead
				m.jobs = append(m.jobs, same[k])
			}
			same[k].lanes = append(same[k].lanes, l.Name)
		}
		m.finished[l.Name] = slices.Clone(led.Ended[l.Name])
		for _, e := range led.Parts {
			if !slices.Contains(e.Lanes, l.Name) {
				continue
			}
			e.Lanes = nil
			text, err := json.Marshal(e)
			if err != nil {
				return nil, err //nolint:wrapcheck // it was decoded just now
			}
			k := known{text: string(text), gate: string(l.Ahead.Data)}
			if parts[k] == nil {
				parts[k] = e.restore()
				parts[k].gate = l.Ahead
				m.parts = append(m.parts, parts[k])
			}
			parts[k].lanes = append(parts[k].lanes, l.Name)
		}
	}
	return m, nil
}

// Has reports whether the lane has the snapshot of the dataset, or a backfill of it is open.
func (m *Merge) Has(lane, dataset string) bool {
	return m.seeded[lane][dataset] || m.find(lane, dataset) != nil
}

func (m *Merge) find(lane, dataset string) *job {
	for _, j := range m.jobs {
		if j.dataset == dataset && slices.Contains(j.lanes, lane) {
			return j
		}
	}
	return nil
}

// Known notes a dataset as complete in lanes that take no snapshot of it.
func (m *Merge) Known(dataset string, lanes ...string) {
	for _, l := range lanes {
		m.set(l, dataset)
	}
}

func (m *Merge) set(lane, dataset string) {
	if m.seeded[lane] == nil {
		m.seeded[lane] = map[string]bool{}
	}
	m.seeded[lane][dataset] = true
	m.dirty = true
}

// How says how a backfill treats what the lanes have of the dataset.
type How uint8

// The ways.
const (
	First    How = iota // they have nothing of it
	Truncate            // they empty it before
	Refill              // rows are written over what they have, by key; Truncate where they are being filled or failed
)

// Request opens a backfill. What the lanes had of the dataset, an open backfill included, no longer counts. Lanes that ask for the same
// before anything was read share one read.
//
// It waits until every transaction is visible that the stream has brought: the snapshot has to include them.
func (m *Merge) Request(ctx context.Context, s *record.Schema, how How, lanes ...string) error {
	if err := m.visible(ctx, m.recent); err != nil {
		return err
	}
	m.recent = nil
	m.open(s, how, lanes)
	return nil
}

// Again empties the dataset in the lanes and copies it once more, for an order of this number. Lanes that are being filled with it go on,
// and those that have ended the order already are left alone. The ledger tells that the order is over in a lane, see Finished, until
// Retain forgets it. Like Request it waits for visibility.
func (m *Merge) Again(ctx context.Context, s *record.Schema, id uint64, lanes ...string) error {
	for _, l := range lanes {
		if m.over(l, id, s.Dataset) {
			continue
		}
		if !m.Filling(l, s.Dataset) {
			if err := m.Request(ctx, s, Truncate, l); err != nil {
				return err
			}
		}
		if j := m.find(l, s.Dataset); !slices.Contains(j.orders, id) {
			j.orders = append(j.orders, id)
			m.dirty = true
		}
	}
	return nil
}

func (m *Merge) open(s *record.Schema, how How, lanes []string) {
	asked := how
	for _, l := range lanes {
		how = asked
		var orders []uint64
		if j := m.find(l, s.Dataset); j != nil {
			orders = slices.Clone(j.orders)
		}
		if j := m.find(l, s.Dataset); how == Refill && j != nil && !j.refill {
			how = Truncate // deletes were let go for the sake of chunks that are not read now
		}
		m.leaveParts(l, s.Dataset, how)
		m.leave(l, s.Dataset)
		fits := func(j *job) bool {
			return j.dataset == s.Dataset && j.untouched() && j.truncate == (how == Truncate) && j.refill == (how == Refill) &&
				j.gate.Equal(m.ahead[l])
		}
		if i := slices.IndexFunc(m.jobs, fits); i >= 0 {
			m.opened++
			m.jobs[i].serial = m.opened
			m.jobs[i].lanes = append(m.jobs[i].lanes, l)
			m.jobs[i].orders = append(m.jobs[i].orders, orders...)
			continue
		}
		m.opened++
		m.jobs = append(m.jobs, &job{
			dataset: s.Dataset, schema: s, lanes: []string{l}, truncate: how == Truncate, refill: how == Refill, gate: m.ahead[l],
			orders: orders, serial: m.opened, segments: []*segment{{}},
		})
	}
}

// untouched reports whether nothing of the job was begun.
func (j *job) untouched() bool {
	return !j.failed && len(j.points) == 0 && !slices.ContainsFunc(j.segments, func(s *segment) bool { return s.state != planned })
}

// leave takes a lane out of whatever it has of a dataset.
func (m *Merge) leave(lane, dataset string) {
	m.dirty = true
	delete(m.seeded[lane], dataset)
	m.jobs = slices.DeleteFunc(m.jobs, func(j *job) bool {
		if j.dataset != dataset {
			return false
		}
		j.lanes = slices.DeleteFunc(j.lanes, func(l string) bool { return l == lane })
		if len(j.lanes) == 0 {
			j.epoch++
		}
		return len(j.lanes) == 0
	})
}

// Describe tells the schema of a dataset whose backfill was restored from a ledger.
func (m *Merge) Describe(s *record.Schema) {
	for _, j := range m.jobs {
		if j.dataset == s.Dataset && j.schema == nil {
			j.schema = s
		}
	}
	for _, j := range slices.Clone(m.parts) {
		if j.dataset != s.Dataset || j.schema != nil {
			continue
		}
		if err := m.describe(j, s); err != nil {
			m.breaks(j, err)
		}
	}
}

// Fail ends the dataset for a lane: nothing more of it is delivered, and the ledger says that it has to be copied again as a whole.
func (m *Merge) Fail(s *record.Schema, lane string) {
	m.leaveParts(lane, s.Dataset, Truncate)
	m.leave(lane, s.Dataset)
	m.jobs = append(m.jobs, &job{
		dataset: s.Dataset, schema: s, lanes: []string{lane}, truncate: true, failed: true, segments: []*segment{{}},
	})
}

// Open reports whether a backfill of the whole dataset is open in any lane.
func (m *Merge) Open(dataset string) bool {
	return slices.ContainsFunc(m.jobs, func(j *job) bool { return j.dataset == dataset })
}

// Busy reports whether any backfill is open that is not failed.
func (m *Merge) Busy() bool {
	return len(m.parts)+len(m.endings) > 0 || slices.ContainsFunc(m.jobs, func(j *job) bool { return !j.failed })
}

// Held returns how many bytes of changes wait for chunks.
func (m *Merge) Held() int64 {
	n := int64(0)
	for _, j := range m.jobs {
		for _, s := range j.all() {
			for _, b := range s.held {
				n += b.Bytes()
			}
		}
	}
	return n
}

// Turn takes note of where the stream is, and returns what has to be delivered before anything else: truncations that open a backfill,
// and the marks of those that are complete, and of parts that are over.
func (m *Merge) Turn(at record.Position) []Delivery {
	m.arrive(at)
	var out []Delivery
	for _, j := range m.jobs {
		if j.truncate && !j.failed && j.gate.Zero() && j.schema != nil && m.mayEmpty(j) {
			j.truncate = false
			m.dirty = true
			out = append(out, Delivery{Lanes: j.lanes, Batch: &record.Batch{Schema: j.schema, Truncate: true}})
		}
	}
	m.jobs = slices.DeleteFunc(m.jobs, func(j *job) bool {
		if !j.complete() {
			return false
		}
		for _, l := range j.lanes {
			m.set(l, j.dataset)
			m.ends(l, j.dataset, j.orders)
		}
		out = append(out, Delivery{Lanes: j.lanes, Complete: j.dataset})
		return true
	})
	return append(out, m.turnParts()...)
}

// mayEmpty reports whether a dataset may be emptied: in a loose lane not before a ledger is kept that tells of it, as such a lane may be
// emptied for good by something that its progress knows nothing of.
func (m *Merge) mayEmpty(j *job) bool {
	return j.serial <= m.kept || !slices.ContainsFunc(j.lanes, func(l string) bool { return m.loose[l] })
}

// Told says that everything that follows comes behind a ledger of this moment, also after a crash.
func (m *Merge) Told() { m.kept = m.opened }

// Kept takes note of a ledger that is kept.
func (m *Merge) Kept(raw json.RawMessage) {
	if l, err := decodeLedger(raw); err == nil { // it was encoded here
		m.kept = max(m.kept, l.Opened)
	}
}

// arrive takes note of where the stream is.
func (m *Merge) arrive(at record.Position) {
	if at.Zero() || at.Equal(m.at) {
		return
	}
	m.at = at
	for l, ahead := range m.ahead {
		if order, ok := m.order(at, ahead); ok && order >= 0 {
			delete(m.ahead, l)
		}
	}
	for _, j := range slices.Concat(m.jobs, m.parts) {
		m.reached(j, at)
	}
}

// reached forgets what the stream has passed.
func (m *Merge) reached(j *job, at record.Position) {
	if !j.gate.Zero() {
		if order, ok := m.order(at, j.gate); ok && order >= 0 {
			j.gate = record.Position{}
		}
		return
	}
	changed := false
	for _, s := range j.all() {
		if s.state == published && m.src.Outlived(s.snapshot, at) {
			s.finish()
			changed = true
		}
	}
	if changed {
		j.tidy()
		m.dirty = true
	}
}

// maxRecent is how many transactions are remembered before somebody looks whether they are visible.
const maxRecent = 4096

// Change routes one batch of the stream. What it returns goes to the lanes in order; the batch's own position is on none of it, unless
// the batch goes to all lanes as it is. It waits until every transaction is visible of which a change is let go because a chunk
// that is yet to be read will have it.
func (m *Merge) Change(ctx context.Context, b *record.Batch, lanes []string) ([]Delivery, error) {
	defer m.arrive(b.Position)
	for _, t := range b.Txns {
		m.recent = append(m.recent, t.Position)
	}
	if len(m.recent) > maxRecent {
		if err := m.visible(ctx, m.recent); err != nil {
			return nil, err
		}
		m.recent = m.recent[:0]
	}
	if err := m.observe(ctx, b); err != nil {
		return nil, err
	}
	var jobs []*job
	for _, j := range m.jobs {
		if b.Schema != nil && j.dataset == b.Schema.Dataset && j.gate.Zero() {
			jobs = append(jobs, j)
		}
	}
	if len(jobs) == 0 {
		return []Delivery{{Batch: b}}, nil
	}
	var out []Delivery
	rest := slices.DeleteFunc(slices.Clone(lanes), func(l string) bool {
		return slices.ContainsFunc(jobs, func(j *job) bool { return slices.Contains(j.lanes, l) })
	})
	plain := *b
	plain.Position = record.Position{}
	if len(rest) > 0 {
		out = append(out, Delivery{Lanes: rest, Batch: &plain})
	}
	for _, j := range jobs {
		parts, err := m.route(ctx, j, &plain)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			out = append(out, Delivery{Lanes: slices.Clone(j.lanes), Batch: p})
		}
	}
	return out, nil
}

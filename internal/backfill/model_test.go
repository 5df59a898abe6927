package backfill

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// target is what a lane has. It refuses whatever comes twice, too late, too early or not at all: every change is compared with what the
// log says about it.
type target struct {
	w      *world
	rows   map[int64]row
	refill bool // rows may be written over what is there
	marked bool // the snapshot is complete
}

func (t *target) clone() target {
	c := *t
	c.rows = maps.Clone(t.rows)
	return c
}

// apply takes one batch.
func (t *target) apply(b *record.Batch) error {
	if b.Truncate {
		t.rows = map[int64]row{}
	}
	if b.NumRows() == 0 {
		return nil
	}
	col := func(c, i int) int64 { return b.Rows.Column(c).(*array.Int64).Value(i) }
	if b.Chunk != nil {
		for i := range b.NumRows() {
			if _, there := t.rows[col(0, i)]; there && !t.refill {
				return fmt.Errorf("key %d was there when its chunk came", col(0, i))
			}
			t.rows[col(0, i)] = row{col(1, i), col(2, i)}
		}
		return nil
	}
	i := 0
	for _, run := range b.Txns {
		for range run.Rows {
			if err := t.change(b, i, run.Position); err != nil {
				return fmt.Errorf("transaction %s: %w", run.Position, err)
			}
			i++
		}
	}
	return nil
}

func (t *target) change(b *record.Batch, i int, at record.Position) error {
	key := b.Rows.Column(0).(*array.Int64).Value(i)
	was := key
	if b.KeyMoved(i) {
		was = b.Old.Column(0).(*array.Int64).Value(i)
	}
	// The change that the log has for it: a moved key may come as a delete and an insert.
	c, ok := t.w.find(value(at), b.Op(i), key, was, b.Rows.Column(1).(*array.Int64).Value(i), t.rows)
	if !ok {
		return fmt.Errorf("%s of key %d (%d before) is not what the log says, or the lane has %v", b.Op(i), key, was, t.rows[was])
	}
	before, there := t.rows[was]
	if t.refill && b.Op(i) == record.Delete {
		delete(t.rows, key)
		return nil
	}
	if b.Op(i) != record.Insert && (!there || before != c.before) && !t.refill {
		return fmt.Errorf("%s of key %d: the lane has %v (%v), and the log says %v", b.Op(i), was, before, there, c.before)
	}
	delete(t.rows, was)
	if b.Op(i) == record.Delete {
		return nil
	}
	if _, there := t.rows[key]; there && !t.refill {
		return fmt.Errorf("%s of key %d, which is there", b.Op(i), key)
	}
	now := c.after
	if b.IsUnchanged(2, i) {
		if b.Op(i) == record.Insert || !there {
			return fmt.Errorf("%s of key %d lacks a value, and the lane has none", b.Op(i), key)
		}
		now.big = before.big
	}
	t.rows[key] = now
	return nil
}

// find looks a delivered change up in the log. Of several changes of the transaction it is the one that fits what the lane has.
func (w *world) find(place int, op record.Op, key, was, v int64, rows map[int64]row) (change, bool) {
	var found change
	ok := false
	for _, c := range w.log[place-1].changes {
		fits := c.op == op && c.key == key && c.was == was
		moved := c.op == record.Update && c.was != c.key
		switch {
		case moved && op == record.Delete && c.was == key:
			fits = true
		case moved && op == record.Insert && c.key == key:
			fits, c.before = true, row{}
		}
		if !fits || (op != record.Delete && c.after.v != v) {
			continue
		}
		if have, there := rows[was]; !ok || (there && have == c.before) || (!there && op == record.Insert) {
			found, ok = c, true
		}
	}
	return found, ok
}

// lane is one lane of the simulation: what its sink has committed, and what it has received since.
type simLane struct {
	name      string
	stores    bool // it commits its own progress; else the watermark counts
	committed target
	at        int // the position of what is committed
	ledger    json.RawMessage
	now       target
	boundary  *boundary
	skip      int // items up to this position are passed over
}

type boundary struct {
	at     int
	ledger json.RawMessage
	have   target
}

// simulation drives one Merge through random steps.
type simulation struct {
	*world
	t       *testing.T
	schema  *record.Schema
	m       *Merge
	lanes   []*simLane
	names   []string
	read    int // place of the stream
	open    *txnCursor
	works   []*pending
	lost    bool // mutation: positions are saved without ledgers
	crashes int
	asked   bool
}

// txnCursor is a transaction of which a part was delivered.
type txnCursor struct{ done int }

type pending struct {
	w    *Work
	rows *record.Batch
}

func newSimulation(t *testing.T, seed uint64, lanes int) *simulation {
	r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a simulation
	s := &simulation{world: newWorld(r), t: t, schema: table("t")}
	for i := range lanes {
		l := &simLane{name: fmt.Sprint("lane", i), stores: i%2 == 0}
		l.committed = target{w: s.world, rows: map[int64]row{}}
		s.lanes, s.names = append(s.lanes, l), append(s.names, l.name)
	}
	for range r.IntN(20) {
		s.commit()
	}
	s.read = len(s.log) // the stream begins here; the anchor waits until everything before is visible
	s.settle()
	for _, l := range s.lanes {
		l.at = s.read
	}
	return s
}

// start is what a process does first: everything that was not committed is gone.
func (s *simulation) start() error {
	from := -1
	for _, l := range s.lanes {
		if from < 0 || l.at < from {
			from = l.at
		}
	}
	s.read, s.open, s.works = from, nil, nil
	var lanes []Lane
	for _, l := range s.lanes { // the source sees to that when it starts
		for _, t := range s.log[:l.at] {
			t.visible = true
		}
	}
	for _, l := range s.lanes {
		l.now, l.boundary, l.skip = l.committed.clone(), nil, 0
		in := Lane{Name: l.name, Ledger: l.ledger}
		if l.at > from {
			in.Ahead, l.skip = number(l.at), l.at
		}
		lanes = append(lanes, in)
	}
	var err error
	if s.m, err = New(s.world, compare, lanes); err != nil {
		return err
	}
	s.m.Describe(s.schema)
	for _, l := range s.lanes {
		if !s.m.Has(l.name, "t") {
			if err := s.m.Request(s.t.Context(), s.schema, First, l.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// deliver brings something to lanes.
func (s *simulation) deliver(ds []Delivery) error {
	for _, d := range ds {
		for _, l := range s.lanes {
			if d.Lanes != nil && !slices.Contains(d.Lanes, l.name) {
				continue
			}
			if l.skip > 0 {
				if d.Batch != nil && d.Batch.Chunk != nil {
					return fmt.Errorf("%s: a chunk came where the lane skips", l.name)
				}
				continue
			}
			if d.Complete != "" {
				l.now.marked = true
				continue
			}
			if err := l.now.apply(d.Batch); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return nil
}

// mark publishes the position with the ledger.
func (s *simulation) mark() {
	led := slices.Clone(s.m.Ledger())
	for _, l := range s.lanes {
		if l.skip > 0 {
			if s.read >= l.skip {
				l.skip = 0
			}
			continue
		}
		l.boundary = &boundary{at: s.read, ledger: led, have: l.now.clone()}
	}
}

// stream reads a batch: several transactions, or a part of one.
func (s *simulation) stream() error {
	if s.read >= len(s.log) {
		return nil
	}
	b, end := s.cut()
	if end {
		b.Position = number(s.read)
	}
	out, err := s.m.Change(s.t.Context(), b, s.names)
	if err != nil {
		return err
	}
	if err := s.deliver(out); err != nil {
		return err
	}
	if end {
		s.mark()
	}
	return nil
}

// cut takes the next batch of the stream; end: it completes whole transactions.
func (s *simulation) cut() (b *record.Batch, end bool) {
	next := s.log[s.read]
	done := 0
	if s.open != nil {
		done = s.open.done
	}
	left := next.changes[done:]
	if len(left) > 1 && !left[0].truncate && s.r.IntN(4) == 0 {
		part := &txn{xid: next.xid, changes: left[:1]}
		s.open = &txnCursor{done: done + 1}
		return batch(s.schema, s.read+1, []*txn{part}), false
	}
	txns := []*txn{{xid: next.xid, changes: left}}
	first := s.read + 1
	s.read++
	s.open = nil
	for s.read < len(s.log) && !s.log[s.read].changes[0].truncate && s.r.IntN(2) == 0 && !s.isCut(s.read) {
		txns = append(txns, s.log[s.read])
		s.read++
	}
	return batch(s.schema, first, txns), true
}

func (s *simulation) isCut(at int) bool {
	return slices.ContainsFunc(s.lanes, func(l *simLane) bool { return l.skip == at })
}

// turn does what is due at a boundary.
func (s *simulation) turn() error {
	if s.open != nil {
		return nil
	}
	before := string(s.m.Ledger())
	if err := s.deliver(s.m.Turn(number(s.read))); err != nil {
		return err
	}
	if string(s.m.Ledger()) != before {
		s.mark()
	}
	return nil
}

// work begins something, or goes on with it.
func (s *simulation) work() error {
	if len(s.works) < 3 && s.r.IntN(2) == 0 {
		if w := s.m.Next(2); w != nil {
			s.works = append(s.works, &pending{w: w})
		}
		return nil
	}
	if len(s.works) == 0 {
		return nil
	}
	i := s.r.IntN(len(s.works))
	p := s.works[i]
	switch {
	case p.w.Plan:
		s.works = slices.Delete(s.works, i, i+1)
		s.m.Planned(p.w, s.plan(p.w))
		return nil
	case p.rows == nil: // the snapshot is taken now, and the chunk handed over later
		at := s.snap()
		p.rows = chunkBatch(s.schema, at, s.inside(p.w.Chunk, s.rows(at)))
		return nil
	case s.r.IntN(6) == 0:
		s.works = slices.Delete(s.works, i, i+1)
		s.m.Abandon(p.w)
		return nil
	}
	s.works = slices.Delete(s.works, i, i+1)
	if p.w.Stale() {
		return nil
	}
	if err := s.deliver([]Delivery{{Lanes: p.w.Lanes(), Batch: p.rows}}); err != nil {
		return err
	}
	s.publishing = s.blind
	held, err := s.m.Publish(s.t.Context(), p.w, p.rows.Chunk.Snapshot, int64(p.rows.NumRows()))
	s.publishing = false
	if err != nil {
		return err
	}
	if err := s.deliver(held); err != nil {
		return err
	}
	if s.open == nil {
		s.mark()
	}
	return nil
}

// plan cuts a chunk of a few keys.
func (s *simulation) plan(w *Work) json.RawMessage {
	from := int64(-1)
	if w.After != nil {
		from = bound(w.After)
	}
	to := from + 1 + s.r.Int64N(12)
	if to >= 40 {
		return nil
	}
	return json.RawMessage(fmt.Sprint(to))
}

// inside are the rows of a chunk.
func (*simulation) inside(c record.Chunk, rows map[int64]row) map[int64]row {
	maps.DeleteFunc(rows, func(k int64, _ row) bool {
		if c.Keys != nil {
			return !slices.ContainsFunc(c.Keys, func(j json.RawMessage) bool { return bound(j) == k })
		}
		return (c.From != nil && k <= bound(c.From)) || (c.To != nil && k > bound(c.To))
	})
	return rows
}

// save commits a lane up to its newest boundary.
func (s *simulation) save(l *simLane) {
	if l.boundary == nil {
		return
	}
	l.committed, l.at = l.boundary.have.clone(), l.boundary.at
	if !s.lost || l.ledger == nil {
		l.ledger = l.boundary.ledger
	}
	l.boundary = nil
}

// step does one random thing.
func (s *simulation) step() error {
	switch n := s.r.IntN(100); {
	case n < 18:
		s.commit()
	case n < 19:
		s.world.truncate()
	case n < 34:
		s.show()
	case n < 54:
		return s.stream()
	case n < 80:
		if err := s.turn(); err != nil {
			return err
		}
		return s.work()
	case n < 92:
		s.save(s.lanes[s.r.IntN(len(s.lanes))])
	case n < 94:
		return s.ask()
	case n < 96:
		s.crashes++
		return s.start()
	}
	return nil
}

// ask lets a lane ask for everything once more.
func (s *simulation) ask() error {
	l := s.lanes[s.r.IntN(len(s.lanes))]
	if l.skip > 0 || s.open != nil {
		return nil
	}
	s.asked = true
	return s.m.Request(s.t.Context(), s.schema, Truncate, l.name)
}

// run drives a simulation, then lets it come to rest and compares every lane with the table.
func (s *simulation) run(steps int) error {
	if err := s.start(); err != nil {
		return err
	}
	for range steps {
		if err := s.step(); err != nil {
			return err
		}
	}
	s.settle()
	for range 10_000 {
		if s.read == len(s.log) && !s.m.Busy() {
			break
		}
		if err := s.stream(); err != nil {
			return err
		}
		if err := s.turn(); err != nil {
			return err
		}
		if err := s.work(); err != nil {
			return err
		}
	}
	for _, l := range s.lanes {
		if !maps.Equal(l.now.rows, s.state) {
			return fmt.Errorf("%s ends with %v, and the table is %v", l.name, l.now.rows, s.state)
		}
	}
	if s.m.Busy() {
		return fmt.Errorf("backfills stay open: %s", s.m.Ledger())
	}
	return nil
}

// clause E11, W13, case C059, case C060, case C061
func TestModel(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 50
	}
	if n, err := strconv.ParseUint(os.Getenv("LEAT_TEST_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	crashes, asked := 0, 0
	for seed := range seeds {
		s := newSimulation(t, seed, 1+int(seed%3))
		if err := s.run(300); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		crashes += s.crashes
		if s.asked {
			asked++
		}
	}
	if crashes == 0 || asked == 0 {
		t.Fatalf("%d crashes, %d requests: the test is too tame", crashes, asked)
	}
}

// Each mistake that the merge could make is found.
func TestMutations(t *testing.T) {
	for name, mutate := range map[string]func(*simulation){
		"judged by the place in the log":         func(s *simulation) { s.byLog = true },
		"snapshots are forgotten early":          func(s *simulation) { s.forgetful = true },
		"let go before it is visible":            func(s *simulation) { s.rash = true },
		"the position is saved without a ledger": func(s *simulation) { s.lost = true },
		"what was held is not judged":            func(s *simulation) { s.blind = true },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2000) {
				s := newSimulation(t, seed, 1+int(seed%3))
				mutate(s)
				if err := s.run(300); err != nil {
					return
				}
			}
			t.Error("nothing was found")
		})
	}
}

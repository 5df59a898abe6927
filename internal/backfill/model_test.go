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

	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/record"
)

// lane is one lane of the simulation: what its sink has committed, and what it has received since.
type simLane struct {
	name      string
	stores    bool // it commits its own progress; else the watermark counts
	committed *sim.Target
	at        int // the position of what is committed
	ledger    json.RawMessage
	now       *sim.Target
	boundary  *boundary
	skip      int // items up to this position are passed over
}

type boundary struct {
	at     int
	ledger json.RawMessage
	have   *sim.Target
}

// simulation drives one Merge through random steps.
type simulation struct {
	*sim.Database
	t        *testing.T
	schema   *record.Schema
	m        *Merge
	lanes    []*simLane
	names    []string
	read     int // place of the stream
	open     *cursor
	works    []*pending
	unjudged bool // mutation: what was held is delivered
	lost     bool // mutation: positions are saved without ledgers
	wrong    partMutation
	live     bool // the lanes begin with all of the table, and much of it is read once more
	crashes  int
	asked    bool
	parts    uint64 // that were opened
	complete int    // parts that were
	refresh  int    // rows that were read once more
}

// partMutation is a mistake with rows that are read once more.
type partMutation uint8

const (
	noMutation    partMutation = iota
	early                      // they are delivered before the stream is there
	stale                      // a row is delivered behind a change that its snapshot does not include
	forgotten                  // a row that was left out is not read again
	rash                       // changes that were delivered before a chunk need not be visible
	untruncated                // a truncation is ignored
	unobserved                 // changes while a chunk is read are ignored
	unseeded                   // the dataset does not stay complete
	unsaved                    // the ledger does not have parts
	undeleted                  // keys without a row are not deleted
	unconditional              // keys without a row are deleted whatever has changed
	reordered                  // parts go on while the whole dataset is copied
)

// cursor is a transaction of which a part was delivered.
type cursor struct{ done int }

type pending struct {
	w    *Work
	rows *record.Batch
}

func newSimulation(t *testing.T, seed uint64, lanes int) *simulation {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	s := &simulation{Database: sim.NewDatabase(r), t: t, schema: sim.Table("t")}
	for i := range lanes {
		l := &simLane{name: fmt.Sprint("lane", i), stores: i%2 == 0}
		l.committed = &sim.Target{DB: s.Database, Rows: map[int64]sim.Image{}}
		s.lanes, s.names = append(s.lanes, l), append(s.names, l.name)
	}
	for range r.IntN(20) {
		s.Commit()
	}
	s.read = len(s.Log) // the stream begins here; the anchor waits until everything before is visible
	s.Settle()
	s.live = seed%2 == 1
	for _, l := range s.lanes {
		l.at = s.read
		if s.live {
			l.committed.Rows = maps.Clone(s.State)
			l.ledger = json.RawMessage(fmt.Sprintf(`{"seeded":{%q:["t"]}}`, l.name))
		}
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
		for _, t := range s.Log[:l.at] {
			t.Visible = true
		}
	}
	for _, l := range s.lanes {
		l.now, l.boundary, l.skip = l.committed.Clone(), nil, 0
		in := Lane{Name: l.name, Ledger: l.ledger}
		if l.at > from {
			in.Ahead, l.skip = sim.Place(l.at), l.at
		}
		lanes = append(lanes, in)
	}
	var err error
	if s.m, err = New(s.Database, sim.ComparePlaces, lanes); err != nil {
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
				l.now.Marked = true
				continue
			}
			if d.Part != 0 {
				if err := s.partDone(l, d); err != nil {
					return err
				}
				continue
			}
			if err := l.now.Apply(d.Batch); err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
		}
	}
	return nil
}

// mark publishes the position with the ledger.
func (s *simulation) mark() {
	led := slices.Clone(s.m.Ledger())
	if s.wrong == unsaved {
		led = withoutParts(led)
	}
	for _, l := range s.lanes {
		if l.skip > 0 {
			if s.read >= l.skip {
				l.skip = 0
			}
			continue
		}
		l.boundary = &boundary{at: s.read, ledger: led, have: l.now.Clone()}
	}
}

// stream reads a batch: several transactions, or a part of one.
func (s *simulation) stream() error {
	if s.read >= len(s.Log) {
		return nil
	}
	b, end := s.cut()
	if end {
		b.Position = sim.Place(s.read)
	}
	out, err := s.change(b)
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
	next := s.Log[s.read]
	done := 0
	if s.open != nil {
		done = s.open.done
	}
	left := next.Changes[done:]
	if len(left) > 1 && !left[0].Truncate && s.Rand.IntN(4) == 0 {
		part := &sim.Transaction{XID: next.XID, Changes: left[:1]}
		s.open = &cursor{done: done + 1}
		return sim.ChangeBatch(s.schema, s.read+1, []*sim.Transaction{part}), false
	}
	txns := []*sim.Transaction{{XID: next.XID, Changes: left}}
	first := s.read + 1
	s.read++
	s.open = nil
	for s.read < len(s.Log) && !s.Log[s.read].Changes[0].Truncate && s.Rand.IntN(2) == 0 && !s.isCut(s.read) {
		txns = append(txns, s.Log[s.read])
		s.read++
	}
	return sim.ChangeBatch(s.schema, first, txns), true
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
	if err := s.deliver(s.m.Turn(sim.Place(s.read))); err != nil {
		return err
	}
	if string(s.m.Ledger()) != before {
		s.mark()
	}
	return nil
}

// work begins something, or goes on with it.
func (s *simulation) work() error {
	if len(s.works) < 3 && s.Rand.IntN(2) == 0 {
		if w := s.next(); w != nil {
			s.works = append(s.works, &pending{w: w})
		}
		return nil
	}
	if len(s.works) == 0 {
		return nil
	}
	i := s.Rand.IntN(len(s.works))
	p := s.works[i]
	switch {
	case p.w.Plan:
		s.works = slices.Delete(s.works, i, i+1)
		s.m.Planned(p.w, s.plan(p.w))
		return nil
	case p.rows == nil: // the snapshot is taken now, and the chunk handed over later
		at := s.Snap()
		p.rows = sim.ChunkBatch(s.schema, at, sim.InChunk(p.w.Chunk, s.Rows(at)))
		return nil
	case p.w.Part != 0:
		return s.refreshed(i)
	case s.Rand.IntN(6) == 0:
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
	s.m.Took(p.w, p.rows)
	s.Blind = s.unjudged
	held, err := s.m.Publish(s.t.Context(), p.w, p.rows.Chunk.Snapshot)
	s.Blind = false
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
		from = sim.KeyBound(w.After)
	}
	to := from + 1 + s.Rand.Int64N(12)
	if to >= 40 {
		return nil
	}
	return json.RawMessage(strconv.FormatInt(to, 10))
}

// save commits a lane up to its newest boundary.
func (s *simulation) save(l *simLane) {
	if l.boundary == nil {
		return
	}
	l.committed, l.at = l.boundary.have.Clone(), l.boundary.at
	if !s.lost || l.ledger == nil {
		l.ledger = l.boundary.ledger
	}
	l.boundary = nil
}

// step does one random thing.
func (s *simulation) step() error {
	switch n := s.Rand.IntN(100); {
	case n < 18:
		s.Commit()
	case n < 19:
		s.Truncate()
	case n < 34:
		s.Show()
	case n < 54:
		return s.stream()
	case n < 80:
		if err := s.turn(); err != nil {
			return err
		}
		return s.work()
	case n < 92:
		s.save(s.lanes[s.Rand.IntN(len(s.lanes))])
	case n < 94:
		if s.live && s.Rand.IntN(8) > 0 {
			return s.part()
		}
		return s.ask()
	case n < 96:
		s.crashes++
		return s.start()
	default:
		return s.part()
	}
	return nil
}

// ask lets a lane ask for everything once more.
func (s *simulation) ask() error {
	l := s.lanes[s.Rand.IntN(len(s.lanes))]
	if l.skip > 0 || s.open != nil {
		return nil
	}
	s.asked = true
	how := Truncate
	if s.Rand.IntN(3) == 0 { // from here on rows may come over those that are there
		how = Refill
		for _, l := range s.lanes {
			l.now.Refill, l.committed.Refill = true, true
			if l.boundary != nil {
				l.boundary.have.Refill = true
			}
		}
	}
	return s.m.Request(s.t.Context(), s.schema, how, l.name)
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
	s.Settle()
	for range 10_000 {
		if s.read == len(s.Log) && !s.m.Busy() {
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
		for k, by := range l.now.Damaged {
			if by != 0 {
				return fmt.Errorf("%s: key %d stays damaged though part %d is over", l.name, k, by)
			}
			delete(l.now.Rows, k)
			if row, ok := s.State[k]; ok {
				l.now.Rows[k] = row
			}
		}
		if !maps.Equal(l.now.Rows, s.State) {
			return fmt.Errorf("%s ends with %v, and the table is %v", l.name, l.now.Rows, s.State)
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
	crashes, asked, parts, rows := 0, 0, 0, 0
	for seed := range seeds {
		s := newSimulation(t, seed, 1+int(seed%3))
		if err := s.run(300); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		crashes, parts, rows = crashes+s.crashes, parts+s.complete, rows+s.refresh
		if s.asked {
			asked++
		}
	}
	if crashes == 0 || asked == 0 || parts == 0 || rows == 0 {
		t.Fatalf("%d crashes, %d requests, %d parts of %d rows: the test is too tame", crashes, asked, parts, rows)
	}
}

// Each mistake that the merge could make is found.
func TestMutations(t *testing.T) {
	for name, mutate := range map[string]func(*simulation){
		"judged by the place in the log":         func(s *simulation) { s.ByLog = true },
		"snapshots are forgotten early":          func(s *simulation) { s.Forgetful = true },
		"let go before it is visible":            func(s *simulation) { s.Rash = true },
		"the position is saved without a ledger": func(s *simulation) { s.lost = true },
		"what was held is not judged":            func(s *simulation) { s.unjudged = true },
		"parts: rows before the stream is there": func(s *simulation) { s.wrong = early },
		"parts: a row behind a newer change":     func(s *simulation) { s.wrong = stale },
		"parts: left out, and not read again":    func(s *simulation) { s.wrong = forgotten },
		"parts: changes before are not visible":  func(s *simulation) { s.wrong = rash },
		"parts: a truncation is ignored":         func(s *simulation) { s.wrong = untruncated },
		"parts: changes meanwhile are ignored":   func(s *simulation) { s.wrong = unobserved },
		"parts: the dataset is not complete":     func(s *simulation) { s.wrong = unseeded },
		"parts: the ledger does not have them":   func(s *simulation) { s.wrong = unsaved },
		"parts: keys without a row stay":         func(s *simulation) { s.wrong = undeleted },
		"parts: keys that came back are deleted": func(s *simulation) { s.wrong = unconditional },
		"parts: beside a copy of the whole":      func(s *simulation) { s.wrong = reordered },
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

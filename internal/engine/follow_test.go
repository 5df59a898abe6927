package engine_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/state"
)

// followed is a pipeline that follows a simulated database.
type followed struct {
	*sim.World
	db    *sim.Database
	src   *sim.Stream
	sinks []*sim.TableSink
	store *sim.Store
	lanes *sim.Lanes // nil: lanes are in memory
	plan  engine.Plan
	seed  uint64
	// buffer is what a chunk may be large, in bytes; 0: as usual.
	buffer int64
}

func newFollowed(seed uint64, stores ...bool) *followed {
	w := sim.NewWorld(seed)
	db := sim.NewDatabase(rand.New(rand.NewPCG(seed, 11)))
	f := &followed{World: w, db: db, src: sim.NewStream(w, db), store: &sim.Store{World: w}, seed: seed}
	f.src.Writes = 60
	// A sink that gets changes again has no place where to find the values that a moved row had.
	f.db.Whole = slices.Contains(stores, false)
	f.plan = engine.Plan{
		Name: "sim", Source: engine.SourceSpec{Connector: "sim", Config: f.src}, Drain: 2 * time.Minute, Once: true,
		Retry:  engine.Retry{Attempts: 50, Min: 10 * time.Millisecond, Max: time.Second},
		Commit: engine.Commit{Every: 100 * time.Millisecond},
	}
	for i, s := range stores {
		f.sinks = append(f.sinks, sim.NewTableSink(w, db, fmt.Sprintf("sink%d", i), s))
	}
	f.plan.Sinks = f.all()
	f.src.Durable = f.durable
	return f
}

// all are the specs of all sinks.
func (f *followed) all() []engine.SinkSpec {
	specs := make([]engine.SinkSpec, len(f.sinks))
	for i, k := range f.sinks {
		specs[i] = engine.SinkSpec{Name: k.Name, Connector: "sim", Config: k}
	}
	return specs
}

// change takes a sink out of the pipeline, or brings all of them back.
func (f *followed) change(r *rand.Rand) {
	if r.IntN(3) > 0 || len(f.sinks) < 2 {
		return
	}
	f.plan.Changed = engine.AdoptChanged
	f.bringBack()
	if r.IntN(2) == 0 {
		i := r.IntN(len(f.plan.Sinks))
		f.plan.Sinks = slices.Delete(f.plan.Sinks, i, i+1)
	}
}

// bringBack adds the sinks that were taken out. One that keeps no progress has to be emptied before: nothing tells what it has.
func (f *followed) bringBack() {
	for _, s := range f.sinks {
		_, known := f.store.Record.Identity["sink "+s.Name]
		if !s.Stores && !known {
			s.Durable = &sim.Target{DB: f.db, Rows: map[int64]sim.Image{}, Refill: true}
		}
	}
	f.plan.Sinks = f.all()
}

// durable says why the log may not be released so far: it is not saved, or a sink has not committed it.
func (f *followed) durable(place int) string {
	if place <= f.src.Released {
		return "" // it is said once more, while a sink that joined has nothing yet
	}
	if at := sim.PlaceOf(f.store.Record.Progress.Position); at < place {
		return fmt.Sprintf("the saved position is %d", at)
	}
	if f.lanes != nil {
		if at := sim.PlaceOf(f.lanes.Stored().Position); at < place {
			return fmt.Sprintf("the lanes have %d", at)
		}
		return ""
	}
	for _, s := range f.sinks {
		if !slices.ContainsFunc(f.plan.Sinks, func(p engine.SinkSpec) bool { return p.Name == s.Name }) {
			continue
		}
		at := s.Progress.Position
		if s.TwoPhase { // without rows there is no epoch, and its progress is saved beside the position
			at = f.store.Record.Lanes[s.Name].Progress.Position
		}
		if s.Stores && sim.PlaceOf(at) < place {
			return fmt.Sprintf("%s has committed %d", s.Name, sim.PlaceOf(at))
		}
	}
	return ""
}

func (f *followed) run(ctx context.Context) (engine.Summary, error) {
	return engine.Run(ctx, f.plan, f.deps())
}

func (f *followed) deps() engine.Deps {
	d := engine.Deps{Store: f.store, Rand: rand.New(rand.NewPCG(f.seed, 7))}
	if f.lanes != nil {
		d.DurableLanes = f.lanes.Open
	}
	return d.WithChunkBuffer(f.buffer)
}

// keepLanes makes the lanes durable.
func (f *followed) keepLanes() {
	f.lanes = (&sim.Lanes{}).AddTo(f.World)
	f.plan.Lanes.Kind = engine.DurableLanes
}

// check is the oracle at rest.
func (f *followed) check() error {
	if v := f.Violations(); len(v) > 0 {
		return fmt.Errorf("violations: %q", v)
	}
	for _, s := range f.sinks {
		if !maps.Equal(s.Durable.Rows, f.db.State) {
			return fmt.Errorf("%s has %v, and the table is %v", s.Name, s.Durable.Rows, f.db.State)
		}
	}
	return nil
}

// settle runs without faults until the sinks have all that the database has.
func (f *followed) settle(ctx context.Context) error {
	f.SetFaults(sim.Faults{})
	f.plan.Lanes.Quota = lane.Quota{}
	for n := range 3 {
		if n == 2 {
			f.src.Writes = 0
		}
		limit, end := context.WithTimeout(ctx, 24*time.Hour)
		sum, err := f.run(limit)
		end()
		if err != nil {
			return err
		}
		if !sum.Done {
			return fmt.Errorf("a run that was to end at the end of the stream did not get there; saved: %s", f.store.Record.Progress.Ledger)
		}
	}
	return nil
}

// TestFollow follows databases that change, through random crashes, faults and stalls: every change reaches every lane once and in
// order, and at rest every sink equals the table.
//
// clauses E1, E2, E4, E5, E8, E9, E10, E11, S21, W7, W13, W14, W15, case C041, case C042, case C044, case C048, case C059, case C060, case C063.
func TestFollow(t *testing.T) {
	for seed := range seeds(t) {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { follow(t, uint64(seed)) })
		})
	}
}

func follow(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	stores := make([]bool, 1+r.IntN(3))
	for i := range stores {
		stores[i] = r.IntN(3) > 0
	}
	f := newFollowed(seed, stores...)
	for _, s := range f.sinks {
		s.TwoPhase = s.Stores && r.IntN(3) == 0
	}
	if r.IntN(2) == 0 {
		f.keepLanes()
		if r.IntN(3) == 0 {
			f.plan.Lanes.Quota = lane.Quota{Bytes: int64(500 + r.IntN(5000)), Detach: true}
		}
	}
	if r.IntN(2) == 0 {
		f.buffer = 1 // chunks are passed on while they are read
	}
	f.plan.QueueBytes = int64(2000 + r.IntN(20000))
	f.plan.Commit.Bytes = int64(100 + r.IntN(20000))
	ctx := t.Context()
	for n := range r.IntN(6) {
		f.SetFaults(sim.Faults{
			Transient: r.Float64() * 0.05, Lost: r.Float64() * 0.05, Stall: r.Float64() * 0.03, CrashAt: 1 + r.IntN(250), After: r.IntN(2) == 0,
		})
		if n > 1 && r.IntN(3) == 0 {
			f.plan.Resnapshot = []string{"t"}
		}
		f.change(r)
		round, end := context.WithTimeout(ctx, time.Hour)
		if r.IntN(2) == 0 {
			go f.meddle(round, rand.New(rand.NewPCG(seed, uint64(n))))
		}
		_, _ = f.run(round) // whatever comes of it
		end()
		f.plan.Resnapshot = nil
		f.Restart()
		if v := f.Violations(); len(v) > 0 {
			t.Fatalf("seed %d, %v: violations: %q\n%v", seed, stores, v, tail(f.Events()))
		}
	}
	f.bringBack()
	f.resume()
	err := f.settle(ctx)
	if err == nil {
		err = f.check()
	}
	if o, _, e := f.store.Orders(ctx, "sim"); e != nil || len(o.Backfills) > 0 {
		t.Errorf("seed %d: orders %+v, %v", seed, o, e)
	}
	if err != nil {
		t.Fatalf("seed %d, %v, durable lanes %v: %v\n%v", seed, stores, f.lanes != nil, err, tail(f.Events()))
	}
}

// meddle does what people do while a pipeline runs.
func (f *followed) meddle(ctx context.Context, r *rand.Rand) {
	for {
		select {
		case <-time.After(time.Duration(r.IntN(5000)) * time.Millisecond):
		case <-ctx.Done():
			return
		}
		o, _, err := f.store.Orders(ctx, "sim")
		if err != nil {
			return
		}
		switch r.IntN(4) {
		case 0:
			o.Paused = !o.Paused
		case 1:
			o.Sinks = toggle(o.Sinks, f.sinks[r.IntN(len(f.sinks))].Name)
		case 2:
			o.Datasets = toggle(o.Datasets, "t")
		case 3:
			o.Last++
			o.Backfills = append(o.Backfills, state.Backfill{ID: o.Last})
			if r.IntN(2) == 0 {
				o.Backfills[len(o.Backfills)-1].Sinks = []string{f.sinks[r.IntN(len(f.sinks))].Name}
			}
		}
		f.store.Order(o)
	}
}

func toggle(names []string, name string) []string {
	if i := slices.Index(names, name); i >= 0 {
		return slices.Delete(names, i, i+1)
	}
	names = append(names, name)
	slices.Sort(names)
	return names
}

// resume ends all pauses.
func (f *followed) resume() {
	o, _, _ := f.store.Orders(context.Background(), "sim") // the world works
	o.Paused, o.Sinks, o.Datasets = false, nil, nil
	f.store.Order(o)
}

func tail(events []sim.Event) []sim.Event { return events[max(0, len(events)-60):] }

// Crashes at every step of one pipeline, before and after it took effect.
//
// clauses E8, S3, case C059.
func TestFollowCrashAtEveryStep(t *testing.T) {
	steps := 0
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(3, true, false)
		if _, err := f.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		steps = f.Steps()
	})
	if steps < 50 {
		t.Fatalf("only %d steps", steps)
	}
	for step := 1; step <= steps; step++ {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFollowed(3, true, false)
				f.SetFaults(sim.Faults{CrashAt: step, After: after})
				_, _ = f.run(t.Context())
				f.Restart()
				err := f.settle(t.Context())
				if err == nil {
					err = f.check()
				}
				if err != nil {
					t.Fatalf("crash at %d, after %v: %v\n%v", step, after, err, tail(f.Events()))
				}
			})
		}
	}
}

// With snapshot none only what changes from now on is delivered.
func TestSnapshotNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(5, true)
		f.plan.Snapshot = engine.SnapshotNone
		f.sinks[0].Durable.Refill = true // updates of rows that it never had
		f.src.Writes = 0
		if _, err := f.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(f.sinks[0].Durable.Rows); n != 0 {
			t.Errorf("%d rows were copied", n)
		}
	})
}

// With snapshot only the run ends when everything was copied.
func TestSnapshotOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(6, true, true)
		f.plan.Once, f.plan.Snapshot, f.src.Writes = false, engine.SnapshotOnly, 0
		sum, err := f.run(t.Context())
		if err == nil {
			err = f.check()
		}
		if err != nil || !sum.Done {
			t.Fatalf("done %v, %v", sum.Done, err)
		}
		backfills, err := engine.Backfills(f.store.Record.Progress.Ledger)
		if err != nil || len(backfills) != 1 || backfills[0].Phase != engine.Live {
			t.Errorf("backfills %v, %v", backfills, err)
		}
	})
}

// A source that is asked to follow is not a bounded one: its run is never saved as done, and the next one goes on.
func TestOnceGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(7, true)
		for range 3 {
			f.src.Writes = 10
			if err := f.settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if f.store.Record.Progress.Done || connector.ClassOf(f.check()) == connector.ClassPosition {
			t.Error("the run is saved as done")
		}
		if err := f.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// A sink that joins a pipeline gets a snapshot of its own, while the others go on.
//
// clause W13, clause W15, case C048.
func TestSinkJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(8, true)
		if err := f.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		k := sim.NewTableSink(f.World, f.db, "late", true)
		f.sinks = append(f.sinks, k)
		f.plan.Sinks = append(f.plan.Sinks, engine.SinkSpec{Name: k.Name, Connector: "sim", Config: k})
		if _, err := f.run(t.Context()); connector.ClassOf(err) != connector.ClassConfig {
			t.Fatalf("a pipeline with another sink went on without being asked: %v", err)
		}
		f.plan.Changed = engine.AdoptChanged
		f.src.Writes = 40
		if err := f.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// A dataset that is not there can't be copied once more.
func TestResnapshotUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(8, true)
		f.plan.Resnapshot = []string{"tt"}
		if _, err := f.run(t.Context()); connector.ClassOf(err) != connector.ClassConfig {
			t.Errorf("%v", err)
		}
	})
}

// A dataset is copied once more while it is followed.
//
// clause W13, case C061.
func TestResnapshotWhileRunning(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			f := newFollowed(seed, true, true)
			f.src.Writes = 200
			r := f.start(t)
			for range 3 {
				time.Sleep(200 * time.Millisecond)
				r.ctl.Resnapshot("t", "unknown")
			}
			time.Sleep(time.Minute)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			truncates := 0
			for _, s := range f.sinks {
				truncates += s.Truncates
			}
			if err := f.check(); err != nil || truncates < 2 {
				t.Fatalf("seed %d: %d times emptied, %v", seed, truncates, err)
			}
		})
	}
}

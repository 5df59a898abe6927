package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a pipeline in a simulated world.
type world struct {
	*sim.World
	src     *sim.Source
	sinks   []*sim.Sink
	store   *sim.Store
	rejects *letters
	lanes   *sim.Lanes // nil: they are in memory
	plan    engine.Plan
	seed    uint64
}

// letters is a reject store in memory that tells durable rows from others.
type letters struct {
	mu       sync.Mutex
	buffered []engine.Rejected
	durable  []engine.Rejected
}

func (l *letters) Append(_ context.Context, rows []engine.Rejected) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buffered = append(l.buffered, rows...)
	return nil
}

func (l *letters) Flush(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durable, l.buffered = append(l.durable, l.buffered...), nil
	return nil
}

func (l *letters) Forget(_ context.Context, _, run, sink string, epoch uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := func(r engine.Rejected) bool { return r.Run == run && r.Sink == sink && r.Epoch > epoch }
	l.buffered, l.durable = slices.DeleteFunc(l.buffered, gone), slices.DeleteFunc(l.durable, gone)
	return nil
}

func (l *letters) Close() error { return l.Flush(context.Background()) }

// ids are the distinct rows that were set aside durably.
func (l *letters) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, r := range l.durable {
		id := r.Sink + "/" + r.Dataset + "/" + string(r.Key)
		if r.Line > 0 {
			id = fmt.Sprintf("%s/%s/%d", r.Sink, r.Dataset, r.Line)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func newWorld(seed uint64, units []sim.Unit, kinds ...sim.Kind) *world {
	w := &world{World: sim.NewWorld(seed), rejects: &letters{}, seed: seed}
	w.src = &sim.Source{
		World: w.World, Units: units, Datasets: []string{"a", "b"},
		Has: connector.SourceContract{Replay: connector.Deterministic, Bounded: true},
	}
	w.store = &sim.Store{World: w.World}
	w.plan = engine.Plan{
		Name: "sim", Source: engine.SourceSpec{Connector: "sim", Config: w.src}, Drain: 2 * time.Minute,
		BadRows: engine.BadRows{Action: engine.SetAside},
		Retry:   engine.Retry{Attempts: 50, Min: 10 * time.Millisecond, Max: time.Second},
		Commit:  engine.Commit{Every: 100 * time.Millisecond},
	}
	for i, k := range kinds {
		s := (&sim.Sink{Name: fmt.Sprintf("sink%d", i), Kind: k}).AddTo(w.World)
		w.sinks = append(w.sinks, s)
		w.plan.Sinks = append(w.plan.Sinks, engine.SinkSpec{Name: s.Name, Connector: "sim", Config: s})
	}
	w.src.Durable = w.durable
	return w
}

// durable says why the source may not release n units: something of them is not durable in a sink, or not saved.
func (w *world) durable(n int) string {
	if at := sim.UnitsOf(w.store.Record.Progress.Position); at < n {
		return fmt.Sprintf("the saved position is %d", at)
	}
	before := &sim.Source{Units: w.src.Units[:n], Rejects: w.src.Rejects}
	for _, s := range w.sinks {
		have := map[sim.Row]bool{}
		for _, r := range s.Rows {
			have[r] = true
		}
		for _, r := range before.Rows() {
			if !have[r] && !s.Refuses[r.ID] {
				return fmt.Sprintf("sink %s lacks %v", s.Name, r)
			}
		}
	}
	return ""
}

func (w *world) deps() engine.Deps {
	d := engine.Deps{Store: w.store, Rejects: w.rejects, Rand: rand.New(rand.NewPCG(w.seed, 7))}
	if w.lanes != nil {
		d.DurableLanes = w.lanes.Open
	}
	return d
}

func (w *world) run(ctx context.Context) (engine.Summary, error) {
	return engine.Run(ctx, w.plan, w.deps())
}

// check is the oracle at rest.
func (w *world) check() error {
	for _, s := range w.sinks {
		if err := s.Check(w.src.Rows()); err != nil {
			return err
		}
		for id := range s.Refuses {
			r := slices.IndexFunc(w.src.Rows(), func(r sim.Row) bool { return r.ID == id })
			if r < 0 {
				continue
			}
			want := fmt.Sprintf(`%s/%s/{"id":%d}`, s.Name, w.src.Rows()[r].Dataset, id)
			if !slices.Contains(w.rejects.ids(), want) {
				return fmt.Errorf("row %d was refused by %s and is not set aside: %v", id, s.Name, w.rejects.ids())
			}
		}
	}
	whole := sim.Source{Units: w.src.Units}
	for _, r := range whole.Rows() {
		want := fmt.Sprintf("/%s/%d", r.Dataset, r.ID)
		if _, bad := w.src.Rejects[r.ID]; bad && !slices.Contains(w.rejects.ids(), want) {
			return fmt.Errorf("row %d could not be read and is not set aside", r.ID)
		}
	}
	if v := w.Violations(); len(v) > 0 {
		return fmt.Errorf("violations: %q", v)
	}
	return nil
}

func seeds(t *testing.T) int {
	t.Helper()
	n := 200
	if v := os.Getenv("LEAT_SIM_SEEDS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestSimulation runs random pipelines through random crashes, faults and stalls: at rest every sink equals the source.
//
// clauses E5, E8, E14, S7, S11, W5, W6.
func TestSimulation(t *testing.T) {
	for seed := range seeds(t) {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, uint64(seed)) })
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	kinds := make([]sim.Kind, 1+r.IntN(3))
	for i := range kinds {
		kinds[i] = []sim.Kind{sim.Transactional, sim.KeyedTable, sim.WholeFile, sim.AppendLog}[r.IntN(4)]
	}
	w := newWorld(seed, sim.RandomUnits(r, r.IntN(40), []string{"a", "b"}), kinds...)
	w.src.Origin = r.IntN(2) == 0
	if slices.Contains(kinds, sim.AppendLog) {
		w.plan.Guarantee = connector.AtLeastOnce
	}
	w.plan.QueueBytes = int64(600 + r.IntN(5000))
	w.plan.Commit.Bytes = int64(100 + r.IntN(5000))
	if r.IntN(3) == 0 {
		w.src.Rejects = map[int64]string{3: "no number", 11: "no number"}
		for _, s := range w.sinks {
			s.Refuses = map[int64]bool{5: true, 11: true, 20: true}
		}
	}
	ctx := context.Background()
	for range r.IntN(5) {
		w.SetFaults(sim.Faults{
			Transient: r.Float64() * 0.1, Lost: r.Float64() * 0.1, Stall: r.Float64() * 0.05, CrashAt: 1 + r.IntN(120), After: r.IntN(2) == 0,
		})
		_, _ = w.run(ctx) // whatever comes of it
		w.Restart()
		w.rejects.buffered = nil
		if len(w.Violations()) > 0 {
			break
		}
		if w.store.Record.Progress.Done {
			if err := w.check(); err != nil {
				t.Fatalf("seed %d, %v: the run is saved as done: %v", seed, kinds, err)
			}
			return // the next run would be another copy
		}
	}
	w.SetFaults(sim.Faults{})
	sum, err := w.run(ctx)
	if err == nil {
		err = w.check()
	}
	if err != nil || !sum.Done {
		t.Fatalf("seed %d, %v: %v\n%v", seed, kinds, err, w.Events())
	}
}

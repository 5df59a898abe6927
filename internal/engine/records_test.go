package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
)

// A source and sinks that were written record by record run through random crashes, faults and stalls: nothing is lost; what has
// transactions has each row once; nothing is released before it is durable everywhere; and no position is asked for inside of a unit.
//
// clauses E1, E5, E8, S7, S9, S11, S12.
func TestRecords(t *testing.T) {
	aborted := 0
	for seed := range seeds(t) {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { aborted += singleRecords(t, uint64(seed)) })
		})
	}
	if aborted == 0 {
		t.Error("no transaction was ever aborted")
	}
}

// single is a pipeline whose source and sinks were written record by record.
type single struct {
	*world
	src   *sim.RecordSource
	sinks []*sim.RecordSink
}

func newSingle(seed uint64, r *rand.Rand) *single {
	w := &single{world: newWorld(seed, nil)}
	w.src = &sim.RecordSource{World: w.World, Bounded: r.IntN(2) == 0, Datasets: []string{"a", "b"}, Ends: map[int]bool{}}
	for i := range r.IntN(80) {
		w.src.Rows = append(w.src.Rows, sim.Row{Dataset: w.src.Datasets[r.IntN(2)], ID: int64(i), Value: "v" + strconv.Itoa(i)})
		w.src.Ends[i+1] = r.IntN(3) > 0
	}
	w.src.Durable = func(rows int) string {
		for _, s := range w.sinks {
			for _, row := range w.src.Rows[:rows] {
				if !slices.Contains(s.Rows, row) {
					return fmt.Sprintf("sink %s lacks %v", s.Name, row)
				}
			}
		}
		return ""
	}
	w.plan.Source.Config, w.plan.Once, w.plan.Lanes.Kind = w.src, true, engine.MemoryLanes
	w.plan.Batch = connector.Limit{Rows: 1 + r.IntN(9), Bytes: 1 << 20}
	w.plan.QueueBytes = int64(600 + r.IntN(5000))
	w.plan.Commit.Bytes = int64(100 + r.IntN(3000))
	return w
}

// into adds a sink.
func (w *single) into(transactions bool) {
	s := (&sim.RecordSink{Name: fmt.Sprintf("sink%d", len(w.sinks)), Transactions: transactions}).AddTo(w.World)
	w.sinks = append(w.sinks, s)
	w.plan.Sinks = append(w.plan.Sinks, engine.SinkSpec{Name: s.Name, Connector: "sim", Config: s})
	if !transactions {
		w.plan.Guarantee = connector.AtLeastOnce
	}
}

// settle runs to the end without faults, and checks what the sinks have then.
func (w *single) settle(t *testing.T) {
	t.Helper()
	w.SetFaults(sim.Faults{})
	if !w.store.Record.Progress.Done {
		if sum, err := w.run(context.Background()); err != nil || !sum.Done {
			t.Fatalf("done %v: %v\n%v", sum.Done, err, w.Events())
		}
	}
	if v := w.Violations(); len(v) > 0 {
		t.Fatalf("%q", v)
	}
	for _, s := range w.sinks {
		if err := s.Check(w.src.Rows); err != nil {
			t.Errorf("%v\n%v", err, w.Events())
		}
	}
}

func singleRecords(t *testing.T, seed uint64) (aborted int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 6))
	w := newSingle(seed, r)
	for range 1 + r.IntN(3) {
		w.into(r.IntN(3) > 0)
		w.sinks[len(w.sinks)-1].RowGroup = r.IntN(3) * 5
	}
	for range r.IntN(5) {
		w.SetFaults(sim.Faults{
			Transient: r.Float64() * 0.1, Lost: r.Float64() * 0.1, Stall: r.Float64() * 0.05, CrashAt: 1 + r.IntN(250), After: r.IntN(2) == 0,
		})
		_, _ = w.run(context.Background()) // whatever comes of it
		w.Restart()
		if w.store.Record.Progress.Done || len(w.Violations()) > 0 {
			break
		}
	}
	w.settle(t)
	for _, s := range w.sinks {
		aborted += s.Aborted
	}
	return aborted
}

// The same, killed before and after every single step of a run, and run once more.
//
// clauses E1, E5, E8, S11.
func TestRecordsCrashAtEveryStep(t *testing.T) {
	for _, bounded := range []bool{true, false} {
		for step, left := 1, true; left; step++ {
			for _, after := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w := newSingle(uint64(step), rand.New(rand.NewPCG(2, 6)))
					w.src.Bounded = bounded
					w.src.Rows = w.src.Rows[:min(12, len(w.src.Rows))]
					w.into(true)
					w.into(false)
					w.SetFaults(sim.Faults{CrashAt: step, After: after})
					_, _ = w.run(context.Background()) // whatever comes of it
					left = w.Steps() >= step
					w.Restart()
					w.settle(t)
				})
			}
		}
	}
}

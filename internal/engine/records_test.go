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

func singleRecords(t *testing.T, seed uint64) (aborted int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 6))
	w := newWorld(seed, nil)
	src := &sim.RecordSource{World: w.World, Bounded: r.IntN(2) == 0, Datasets: []string{"a", "b"}, Ends: map[int]bool{}}
	for i := range r.IntN(80) {
		src.Rows = append(src.Rows, sim.Row{Dataset: src.Datasets[r.IntN(2)], ID: int64(i), Value: "v" + strconv.Itoa(i)})
		src.Ends[i+1] = r.IntN(3) > 0
	}
	var sinks []*sim.RecordSink
	for i := range 1 + r.IntN(3) {
		s := (&sim.RecordSink{Name: fmt.Sprintf("sink%d", i), Transactions: r.IntN(3) > 0}).AddTo(w.World)
		sinks = append(sinks, s)
		w.plan.Sinks = append(w.plan.Sinks, engine.SinkSpec{Name: s.Name, Connector: "sim", Config: s})
		if !s.Transactions {
			w.plan.Guarantee = connector.AtLeastOnce
		}
	}
	src.Durable = func(rows int) string {
		for _, s := range sinks {
			for _, row := range src.Rows[:rows] {
				if !slices.Contains(s.Rows, row) {
					return fmt.Sprintf("sink %s lacks %v", s.Name, row)
				}
			}
		}
		return ""
	}
	w.plan.Source.Config, w.plan.Once, w.plan.Lanes.Kind = src, true, engine.MemoryLanes
	w.plan.Batch = connector.Limit{Rows: 1 + r.IntN(9), Bytes: 1 << 20}
	w.plan.QueueBytes = int64(600 + r.IntN(5000))
	w.plan.Commit.Bytes = int64(100 + r.IntN(3000))
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
	w.SetFaults(sim.Faults{})
	if !w.store.Record.Progress.Done {
		if sum, err := w.run(context.Background()); err != nil || !sum.Done {
			t.Fatalf("seed %d: done %v: %v\n%v", seed, sum.Done, err, w.Events())
		}
	}
	if v := w.Violations(); len(v) > 0 {
		t.Fatalf("seed %d: %q", seed, v)
	}
	for _, s := range sinks {
		aborted += s.Aborted
		if err := s.Check(src.Rows); err != nil {
			t.Errorf("seed %d: %v\n%v", seed, err, w.Events())
		}
	}
	return aborted
}

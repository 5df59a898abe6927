package engine_test

import (
	"context"
	"fmt"
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
)

// A source of several parts, whose positions are an offset for each and whose parts come in another order each time, runs through random
// crashes, faults and stalls, into sinks that stand at different places: at rest each of them has every row once, those of a part in
// their order, and nothing was released too early. The same holds where the source has no end, and the run ends where its parts ended; then
// lanes may be durable, and none is ever let go, as nothing could fill its sink again.
//
// clauses E5, E8, S7, S8, S11.
func TestShards(t *testing.T) {
	for seed := range seeds(t) {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { shards(t, uint64(seed)) })
		})
	}
}

func shards(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	w := newWorld(seed, nil, slices.Repeat([]sim.Kind{sim.Transactional}, 1+r.IntN(3))...)
	src := &sim.Shards{World: w.World, Bounded: r.IntN(2) == 0}
	id := int64(0)
	for range 1 + r.IntN(4) {
		var rows []sim.Row
		for range r.IntN(30) {
			id++
			rows = append(rows, sim.Row{Dataset: "t", ID: id, Value: "v" + strconv.FormatInt(id, 10)})
		}
		src.Rows = append(src.Rows, rows)
	}
	src.Durable = func(at []int) string {
		for _, s := range w.sinks {
			for _, row := range src.Before(at) {
				if !slices.Contains(s.Rows, row) {
					return fmt.Sprintf("sink %s lacks %v", s.Name, row)
				}
			}
		}
		return ""
	}
	w.plan.Source.Config, w.plan.Once = src, true
	w.plan.QueueBytes = int64(600 + r.IntN(5000))
	w.plan.Commit.Bytes = int64(100 + r.IntN(3000))
	w.plan.Lanes.Kind = engine.MemoryLanes
	if durable := !src.Bounded && r.IntN(2) == 0; durable {
		w.lanes = (&sim.Lanes{}).AddTo(w.World)
		w.plan.Lanes = engine.Lanes{Kind: engine.DurableLanes, Quota: lane.Quota{Bytes: int64(500 + r.IntN(5000)), Detach: r.IntN(2) == 0}}
		src.Durable = func([]int) string { return "" } // the lanes have it
	}
	for _, s := range w.sinks { // so that they get apart
		wait := time.Duration(r.IntN(400)) * time.Millisecond
		w.plan.Sinks[slices.Index(w.sinks, s)].Config = slow{s, wait}
	}
	for range r.IntN(6) {
		w.SetFaults(sim.Faults{
			Transient: r.Float64() * 0.1, Lost: r.Float64() * 0.1, Stall: r.Float64() * 0.05, CrashAt: 1 + r.IntN(80), After: r.IntN(2) == 0,
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
	if w.lanes != nil && w.lanes.Detached > 0 {
		t.Errorf("seed %d: a lane was let go that nothing can fill", seed)
	}
	for _, s := range w.sinks {
		if err := src.Check(s); err != nil {
			t.Errorf("seed %d: %v\n%v", seed, err, w.Events())
		}
	}
}

// TestShardsDiverge: sinks that stand at places of which neither covers the other can't be brought together, and nothing is written.
//
// clauses S4, E5.
func TestShardsDiverge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3, nil, sim.Transactional, sim.Transactional)
		src := &sim.Shards{World: w.World, Durable: func([]int) string { return "" }, Rows: make([][]sim.Row, 2)}
		for i := range int64(40) {
			src.Rows[i%2] = append(src.Rows[i%2], sim.Row{Dataset: "t", ID: i, Value: "v"})
		}
		w.plan.Source.Config, w.plan.Once, w.plan.Lanes.Kind = src, true, engine.MemoryLanes
		if sum, err := w.run(t.Context()); err != nil || !sum.Done {
			t.Fatal(err)
		}
		w.sinks[0].Progress.Position.Data = []byte(`{"parts":[20,9]}`)
		w.sinks[1].Progress.Position.Data = []byte(`{"parts":[9,20]}`)
		w.store.Record.Progress.Position.Data = []byte(`{"parts":[9,9]}`)
		rows := len(w.sinks[0].Rows)
		_, err := w.run(t.Context())
		if connector.ClassOf(err) != connector.ClassPosition || connector.HintOf(err) == "" {
			t.Errorf("sinks that diverge: %v", err)
		}
		if len(w.sinks[0].Rows) != rows {
			t.Error("rows were written")
		}
	})
}

package engine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/state"
)

// spoil damages rows of a sink that the two parts of order cover, from beside the program.
func (f *followed) spoil(k *sim.TableSink, r *rand.Rand) (keys []json.RawMessage) {
	for key := range int64(40) {
		_, there := k.Durable.Rows[key]
		switch {
		case key%2 == 0 && there && r.IntN(2) == 0:
			k.Durable.Damage(key, 1)
		case key%2 == 1 && r.IntN(3) == 0:
			k.Durable.Damage(key, 2)
			keys = append(keys, json.RawMessage(fmt.Sprintf(`{"id":%d}`, key)))
		}
	}
	return append(keys, json.RawMessage(`{"id":1}`))
}

// whole reports what is left of the damage.
func (f *followed) whole() error {
	for _, k := range f.sinks {
		damaged := maps.Clone(k.Durable.Damaged)
		for key, by := range damaged {
			if by == 0 { // its row moved elsewhere before it was read, without all of its values
				k.Durable.Rows[key] = f.db.State[key]
				delete(damaged, key)
			}
		}
		if len(damaged) > 0 {
			return fmt.Errorf("%s: keys %v stay damaged", k.Name, slices.Sorted(maps.Keys(damaged)))
		}
	}
	return f.check()
}

// People ask for rows once more while a database is followed, through random crashes: what was damaged is whole afterwards, rows that were
// whole come as they are, the sinks go on meanwhile, and the orders are taken off the list once that is durable.
//
// clauses E11, W13, case C061.
func TestParts(t *testing.T) {
	again := 0
	for seed := range seeds(t) {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { again += parts(t, uint64(seed)) })
		})
	}
	if again == 0 {
		t.Error("no row came once more")
	}
}

func parts(t *testing.T, seed uint64) int {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 23))
	stores := make([]bool, 1+r.IntN(2))
	for i := range stores {
		stores[i] = r.IntN(3) > 0
	}
	f := newFollowed(seed, stores...)
	if r.IntN(2) == 0 {
		f.buffer = 1 // chunks are handed over while they are read
	}
	if err := f.settle(t.Context()); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	k := f.sinks[r.IntN(len(f.sinks))]
	keys := f.spoil(k, r)
	f.store.Order(state.Orders{Last: 2, Backfills: []state.Backfill{
		{ID: 1, Datasets: []string{"t"}, Where: "id%2=0"}, {ID: 2, Sinks: []string{k.Name}, Datasets: []string{"t"}, Keys: keys},
	}})
	f.src.Writes = 100
	for range r.IntN(4) {
		f.SetFaults(sim.Faults{
			Transient: r.Float64() * 0.05, Lost: r.Float64() * 0.05, Stall: r.Float64() * 0.03, CrashAt: 1 + r.IntN(150), After: r.IntN(2) == 0,
		})
		_, _ = f.run(t.Context()) // whatever comes of it
		f.Restart()
	}
	err := f.settle(t.Context())
	if err == nil {
		err = f.whole()
	}
	o, _, failed := f.store.Orders(t.Context(), "sim")
	if err != nil || failed != nil || len(o.Backfills) > 0 || len(o.Failed) > 0 {
		t.Fatalf("seed %d, %v: orders %+v, %v, %v\n%v", seed, stores, o, failed, err, tail(f.Events()))
	}
	if open, err := engine.Parts(f.store.Record.Progress.Ledger); err != nil || len(open) > 0 {
		t.Errorf("seed %d: open %v, %v", seed, open, err)
	}
	return k.Durable.Again
}

// What can't be read once more is taken off the list with the reason, and the run goes on.
func TestPartsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(3, true)
		f.store.Order(state.Orders{Last: 2, Backfills: []state.Backfill{
			{ID: 1, Datasets: []string{"tt"}, Where: "id%2=0"},
			{ID: 2, Datasets: []string{"t"}, Keys: []json.RawMessage{[]byte(`{"no":1}`)}},
		}})
		if err := f.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		o, _, err := f.store.Orders(t.Context(), "sim")
		if err != nil || len(o.Backfills) > 0 || len(o.Failed) != 2 {
			t.Errorf("orders %+v, %v", o, err)
		}
		if err := f.check(); err != nil {
			t.Error(err)
		}
	})
}

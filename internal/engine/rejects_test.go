package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/transform"
)

// A limit for each dataset stops the run at the dataset that passes it, once the good rows are durable, and the next run goes on behind.
//
// clause E13.
func TestSetAsideLimitPerDataset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(40), sim.Transactional)
		w.plan.BadRows.PerDataset = 2
		w.plan.Commit.Bytes = 1
		dataset := map[int64]string{}
		for _, r := range w.src.Rows() {
			dataset[r.ID] = r.Dataset
		}
		w.sinks[0].Refuses = map[int64]bool{}
		refuse := func(name string, n int) {
			for id := int64(1); n > 0; id++ {
				if dataset[id] == name && !w.sinks[0].Refuses[id] {
					w.sinks[0].Refuses[id] = true
					n--
				}
			}
		}
		refuse("a", 2)
		refuse("b", 3)
		_, err := w.run(t.Context())
		if code(err) != "engine.too_many_bad_rows" || !strings.Contains(err.Error(), "more than 2 rows of b") {
			t.Fatalf("got %v, want the dataset that passed its limit", err)
		}
		if !strings.Contains(connector.HintOf(err), "leat dlq show sim") {
			t.Errorf("hint %q does not say where the rows are", connector.HintOf(err))
		}
		if len(w.rejects.durable) != 5 || len(w.sinks[0].Rows) == 0 {
			t.Errorf("%d letters and %d rows are durable", len(w.rejects.durable), len(w.sinks[0].Rows))
		}
		if sum, err := w.run(t.Context()); err != nil || !sum.Resumed { // each run has its own count
			t.Fatalf("the next run: %v", err)
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// Rows that come again because the sink failed before its commit are bad once: they pass no limit, and are one letter each.
//
// clause E13.
func TestLimitCountsRowsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(30), sim.Transactional)
		w.plan.BadRows.Limit, w.plan.BadRows.PerDataset = 4, 4
		w.plan.Commit.Bytes = 1
		w.sinks[0].Refuses = map[int64]bool{3: true, 9: true, 15: true, 21: true}
		fails := 0
		w.sinks[0].OnCommit = func() error {
			if fails++; fails%3 == 0 {
				return connectionLost()
			}
			return nil
		}
		if _, err := w.run(t.Context()); err != nil || fails < 4 {
			t.Fatalf("%v, after %d commits", err, fails)
		}
		if len(w.rejects.durable) != 4 {
			t.Errorf("%d letters, want one for each row", len(w.rejects.durable))
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

func connectionLost() error {
	return &connector.Error{Class: connector.ClassTransient, Err: errors.New("the connection was lost")}
}

// A letter has the row as the sink was to be given it, with its types, who owned the run, and which transform could not take it.
//
// clause E13.
func TestLettersCanBeReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(9), sim.Transactional)
		w.sinks[0].Refuses = map[int64]bool{4: true}
		first := pass{}
		odd, err := transform.Filter("id != 6 or id % (id - 6) == 0") // can't be worked out for one row
		if err != nil {
			t.Fatal(err)
		}
		w.plan.Sinks[0].Transforms = []transform.Step{first, odd}
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(w.rejects.durable) != 2 {
			t.Fatalf("%d letters, want 2: %+v", len(w.rejects.durable), w.rejects.durable)
		}
		for _, l := range w.rejects.durable {
			if l.Schema == nil || l.Schema.Dataset != l.Dataset || l.Attempt == 0 || l.Sink != "sink0" || !strings.HasPrefix(string(l.Raw), "{") {
				t.Errorf("a letter without its types: %+v", l)
			}
			want := map[bool]int{true: 0, false: 2}[l.Class == "refused_by_sink"]
			if l.Step != want {
				t.Errorf("%s: transform %d, want %d", l.Class, l.Step, want)
			}
			if l.Class == "refused_by_sink" && l.Epoch == 0 {
				t.Errorf("no epoch of a sink that counts its commits: %+v", l)
			}
		}
	})
}

// pass is a transform that does nothing.
type pass struct{}

func (pass) Schema(s *record.Schema) (*record.Schema, error) { return s, nil }
func (pass) Apply(b *record.Batch) (*record.Batch, error)    { return b, nil }

// A store that fails stops the run, with the position in front of the row.
//
// clause E13.
func TestRejectStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(9), sim.Transactional)
		w.plan.Commit.Bytes = 1
		w.sinks[0].Refuses = map[int64]bool{5: true}
		deps := w.deps()
		deps.Rejects = broken{w.rejects}
		_, err := engine.Run(t.Context(), w.plan, deps)
		if err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Fatalf("got %v", err)
		}
		if at := sim.UnitsOf(w.store.Record.Progress.Position); at >= 5 {
			t.Errorf("saved %d: past a row that is nowhere", at)
		}
	})
}

// broken is a store that can't make anything durable once it has a row.
type broken struct{ *letters }

func (b broken) Flush(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.buffered) > 0 {
		return errors.New("the disk is full")
	}
	return nil
}

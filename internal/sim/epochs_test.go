package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/record"
)

// owner drives one value of a simulated sink.
type owner struct {
	t   *testing.T
	snk connector.Sink
	two connector.TwoPhase
}

func own(t *testing.T, cfg connector.SinkConfig, fence uint64) owner {
	t.Helper()
	snk, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	two, ok := connector.As[connector.TwoPhase](snk)
	if !ok {
		t.Fatal("not TwoPhase")
	}
	_ = snk.Start(context.Background(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: fence}) // as the world wants it
	return owner{t, snk, two}
}

func (o owner) write(id int) error {
	return o.snk.Write(context.Background(), connectortest.BatchOf(sim.Schema("a"), []string{strconv.Itoa(id), `"x"`}))
}

func at(n int) record.Progress {
	return record.Progress{Run: "r", Epoch: uint64(n), Position: record.Position{Data: json.RawMessage(fmt.Sprintf(`{"units":%d}`, n))}}
}

func (o owner) prepare(n int) json.RawMessage {
	o.t.Helper()
	staged, err := o.two.Prepare(context.Background(), at(n))
	if err != nil {
		o.t.Fatal(err)
	}
	return staged
}

func (o owner) publish(n int, staged json.RawMessage) error {
	return o.two.Publish(context.Background(), at(n), staged)
}

func (o owner) abort() error { return o.two.Abort(context.Background()) }

// clause E4: an engine that keeps the order sees what a sink of epochs promises, through crashes of the world; any other is a violation.
func TestEpochs(t *testing.T) {
	for what, c := range map[string]struct {
		do    func(t *testing.T, w *sim.World, s *sim.Sink)
		says  string
		shows []int64
	}{
		"in order": {func(t *testing.T, _ *sim.World, s *sim.Sink) {
			t.Helper()
			o := own(t, s, 1)
			err := errors.Join(o.abort(), o.write(1))
			staged := o.prepare(1)
			err = errors.Join(err, o.publish(1, staged), o.publish(1, staged), o.abort(), o.write(2), o.abort(), o.write(3))
			if err != nil {
				t.Error(err)
			}
			o.prepare(2)
			if err := o.abort(); err != nil {
				t.Error(err)
			}
		}, "", []int64{1}},
		"a crash": {func(t *testing.T, w *sim.World, s *sim.Sink) {
			t.Helper()
			o := own(t, s, 1)
			if err := o.write(1); err != nil {
				t.Error(err)
			}
			staged := o.prepare(1)
			w.SetFaults(sim.Faults{CrashAt: 1})
			if err := o.publish(1, staged); err == nil {
				t.Error("published in a crash")
			}
			w.Restart()
			w.SetFaults(sim.Faults{})
			o = own(t, s, 2)
			if _, has, err := o.two.Committed(context.Background()); err != nil || has || len(s.Staged()) != 1 {
				t.Errorf("%v, %v, staged are %v", has, err, s.Staged())
			}
			if err := errors.Join(o.publish(1, staged), o.abort()); err != nil {
				t.Error(err)
			}
		}, "", []int64{1}},
		"what was written is lost in a crash": {func(t *testing.T, w *sim.World, s *sim.Sink) {
			t.Helper()
			o := own(t, s, 1)
			if err := o.write(1); err != nil {
				t.Error(err)
			}
			w.Restart()
			o = own(t, s, 2)
			o.prepare(1)
			if len(s.Staged()) > 0 {
				t.Errorf("staged are %v", s.Staged())
			}
		}, "", nil},
		"an old owner": {func(t *testing.T, _ *sim.World, s *sim.Sink) {
			t.Helper()
			first, idle := own(t, s, 1), own(t, s, 1)
			staged := first.prepare(1)
			own(t, s, 2)
			for _, err := range []error{first.publish(1, staged), idle.abort()} {
				if connector.ClassOf(err) != connector.ClassFenced {
					t.Error(err)
				}
			}
		}, "while another one was open", nil},
		"published without a Prepare": {func(t *testing.T, _ *sim.World, s *sim.Sink) {
			t.Helper()
			_ = own(t, s, 1).publish(1, json.RawMessage(`{"number":1}`))
		}, "was not prepared", nil},
		"another epoch": {func(t *testing.T, _ *sim.World, s *sim.Sink) {
			t.Helper()
			o := own(t, s, 1)
			_ = o.publish(2, o.prepare(1))
		}, "was not prepared", nil},
		"a write behind Prepare": {func(t *testing.T, _ *sim.World, s *sim.Sink) {
			t.Helper()
			o := own(t, s, 1)
			o.prepare(1)
			_ = o.write(1)
		}, "a write while an epoch is staged", nil},
		"a write of another value": {func(t *testing.T, w *sim.World, s *sim.Sink) {
			t.Helper()
			own(t, s, 1).prepare(1)
			w.Restart()
			_ = own(t, s, 2).write(1)
		}, "a write while an epoch is staged", nil},
		"prepared twice": {func(t *testing.T, _ *sim.World, s *sim.Sink) {
			t.Helper()
			o := own(t, s, 1)
			o.prepare(1)
			o.prepare(2)
		}, "another one is staged", nil},
		"an epoch again": {func(t *testing.T, _ *sim.World, s *sim.Sink) {
			t.Helper()
			o := own(t, s, 1)
			_ = o.publish(1, o.prepare(1))
			o.prepare(1)
		}, "epoch 1 is published", nil},
		"published behind Abort": {func(t *testing.T, _ *sim.World, s *sim.Sink) {
			t.Helper()
			o := own(t, s, 1)
			_ = o.write(1)
			staged := o.prepare(1)
			_ = errors.Join(o.abort(), o.publish(1, staged))
		}, "was aborted", nil},
		"aborted behind the decision": {func(t *testing.T, w *sim.World, s *sim.Sink) {
			t.Helper()
			o := own(t, s, 1)
			staged := o.prepare(1)
			w.SetFaults(sim.Faults{Transient: 1})
			_ = o.publish(1, staged)
			w.SetFaults(sim.Faults{})
			w.Restart()
			_ = own(t, s, 2).abort()
		}, "was decided", nil},
		"flushed": {func(t *testing.T, _ *sim.World, s *sim.Sink) {
			t.Helper()
			_ = own(t, s, 1).snk.Flush(context.Background())
		}, "was flushed", nil},
	} {
		t.Run(what, func(t *testing.T) {
			w := sim.NewWorld(1)
			s := (&sim.Sink{Name: "s", Kind: sim.TwoPhase}).AddTo(w)
			c.do(t, w, s)
			check(t, w, c.says)
			var shows []int64
			for _, r := range s.Rows {
				shows = append(shows, r.ID)
			}
			if !slices.Equal(shows, c.shows) {
				t.Errorf("rows %v, want %v", shows, c.shows)
			}
		})
	}
}

// check: the world has seen the violation, or none.
func check(t *testing.T, w *sim.World, says string) {
	t.Helper()
	got := w.Violations()
	if says == "" && len(got) > 0 || says != "" && (len(got) == 0 || !strings.Contains(got[0], says)) {
		t.Errorf("violations %q, want %q", got, says)
	}
}

// The same for a sink that applies changes: an epoch that is not published, or is aborted, shows nowhere.
func TestTableEpochs(t *testing.T) {
	w := sim.NewWorld(1)
	db := sim.NewDatabase(rand.New(rand.NewPCG(1, 1)))
	s := sim.NewTableSink(w, db, "s", true)
	s.TwoPhase = true
	c, err := s.Contract()
	if err != nil || c.Atomicity != connector.TwoPhaseCommit {
		t.Fatal(c, err)
	}
	fill := func(o owner, key int64) {
		t.Helper()
		b := sim.ChunkBatch(sim.Table("a"), sim.Place(1), map[int64]sim.Image{key: {V: key, Big: 1}})
		b.Chunk = &record.Chunk{Dataset: "a"}
		if err := o.snk.Write(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(when string, keys ...int64) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(s.Durable.Rows)); !slices.Equal(got, keys) {
			t.Errorf("%s: keys %v, want %v", when, got, keys)
		}
	}
	p := record.Progress{Run: "r", Epoch: 1, Position: sim.Place(1)}
	o := own(t, s, 1)
	fill(o, 1)
	staged, err := o.two.Prepare(t.Context(), p)
	if err != nil || s.Staged() != 1 {
		t.Fatal(s.Staged(), err)
	}
	holds("prepared")
	w.Restart()
	o = own(t, s, 2)
	for range 2 {
		if err := o.two.Publish(t.Context(), p, staged); err != nil {
			t.Fatal(err)
		}
		holds("published by another value", 1)
	}
	fill(o, 2)
	p.Epoch, p.Position = 2, sim.Place(2)
	if _, err := o.two.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := o.abort(); err != nil || s.Staged() != 0 {
		t.Fatal(s.Staged(), err)
	}
	holds("aborted", 1)
	fill(o, 3)
	if staged, err = o.two.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := o.two.Publish(t.Context(), p, staged); err != nil {
		t.Fatal(err)
	}
	holds("going on behind Abort", 1, 3)
	if at, has, err := o.two.Committed(t.Context()); err != nil || !has || at.Epoch != 2 {
		t.Errorf("%+v, %v, %v", at, has, err)
	}
	check(t, w, "")
	_ = o.snk.Flush(t.Context())
	check(t, w, "was flushed")
}

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// steady is a source of n units with one row each, alternately of both datasets.
func steady(n int) []sim.Unit {
	units := make([]sim.Unit, n)
	for i := range units {
		units[i] = sim.Unit{{{Dataset: []string{"a", "b"}[i%2], ID: int64(i + 1), Value: "v" + strconv.Itoa(i+1)}}}
	}
	return units
}

func index(events []sim.Event, from int, want string) int {
	for i := from; i < len(events); i++ {
		if events[i].String() == want {
			return i
		}
	}
	return -1
}

// The one order: write, make durable, save the position, acknowledge; for each position that was acknowledged.
//
// clauses E1, S11.
func TestOrderOfSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(30), sim.Transactional, sim.KeyedTable)
		w.plan.Commit.Bytes = 1
		w.src.OnRead = func(int) error { time.Sleep(150 * time.Millisecond); return nil }
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		events, acks := w.Events(), 0
		for i, e := range events {
			if e.What != "acknowledge" {
				continue
			}
			acks++
			save := index(events, 0, "state save "+e.At)
			commit := index(events, 0, "sink0 commit "+e.At)
			write := slices.IndexFunc(events, func(e2 sim.Event) bool { return e2.Who == "sink1" && e2.What == "write" && e2.At == e.At })
			flush := index(events, write, "sink1 flush")
			if save < 0 || save > i || commit < 0 || commit > save || write < 0 || flush < 0 || flush > save {
				t.Fatalf("acknowledged %s at %d: commit %d, write %d, flush %d, save %d\n%v", e.At, i, commit, write, flush, save, events)
			}
			reads := 0
			for _, between := range events[save:i] {
				if between.What == "read" {
					reads++
				}
			}
			if reads > 2 { // one may be under way during the save, and one before the reader hears of it
				t.Fatalf("%d reads between save and acknowledgement", reads)
			}
		}
		if acks < 10 {
			t.Fatalf("only %d acknowledgements", acks)
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// A failed save never reaches the source, and ends the run; what the sink has is not written again.
//
// clauses E1, S11.
func TestFailedSave(t *testing.T) {
	for fail := range 6 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, steady(30), sim.Transactional)
			w.plan.Commit.Bytes = 1
			saves := 0
			w.src.OnRead = func(unit int) error {
				time.Sleep(150 * time.Millisecond)
				if saves++; unit == 3*fail {
					w.FailSaves(1000)
				}
				return nil
			}
			_, err := w.run(t.Context())
			if err == nil {
				t.Fatal("a run that can't save its position ended well")
			}
			at := sim.UnitsOf(w.store.Record.Progress.Position)
			if w.src.Released > at {
				t.Fatalf("released %d, saved %d", w.src.Released, at)
			}
			w.FailSaves(0)
			w.src.OnRead = nil
			if _, err = w.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.check(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Nothing is confirmed upstream while one lane lacks it, however far the others are; and once all have it, everything is.
//
// clauses E2, E3, S8.
func TestSlowSinkHoldsTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		units := append(steady(20), sim.Unit{}, sim.Unit{}) // empty positioned batches at the end
		w := newWorld(1, units, sim.Transactional, sim.Transactional)
		w.src.Has.Bounded = false
		w.src.Origin = true
		broken := true
		w.sinks[1].OnWrite = func(b *record.Batch) error {
			if broken && sim.UnitsOf(b.Position) > 7 {
				return &connector.Error{Class: connector.ClassTransient, Err: errors.New("down")}
			}
			return nil
		}
		ctl := engine.NewControl()
		deps := w.deps()
		deps.Control = ctl
		w.plan.Retry.Attempts = 1000
		var end error
		done := make(chan struct{})
		go func() { defer close(done); _, end = engine.Run(t.Context(), w.plan, deps) }()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		w.Look(func() {
			if w.src.Released > 7 || sim.UnitsOf(w.sinks[0].Progress.Position) != 22 {
				t.Errorf("released %d, the healthy sink has %s", w.src.Released, w.sinks[0].Progress.Position)
			}
			broken = false
		})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		w.Look(func() {
			if w.src.Released != 22 {
				t.Errorf("at rest %d of 22 units are released", w.src.Released)
			}
		})
		ctl.Stop()
		<-done
		if end != nil {
			t.Fatal(end)
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// The process dies before or after each single step, for every kind of sink; the next run ends as if nothing had happened.
//
// clauses E8, E5, S7, S3.
func TestCrashAtEveryStep(t *testing.T) {
	kinds := [][]sim.Kind{
		{sim.Transactional}, {sim.KeyedTable}, {sim.WholeFile}, {sim.AppendLog}, {sim.Transactional, sim.WholeFile, sim.KeyedTable},
	}
	for _, k := range kinds {
		t.Run(fmt.Sprintf("%v", k), func(t *testing.T) {
			for step, left := 1, true; left; step++ {
				for _, after := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) { left = crashAt(t, k, step, after) })
				}
			}
		})
	}
}

// crashAt reports whether the run was long enough to come to the step.
func crashAt(t *testing.T, kinds []sim.Kind, step int, after bool) bool {
	t.Helper()
	units := sim.RandomUnits(rand.New(rand.NewPCG(4, 4)), 12, []string{"a", "b"})
	w := newWorld(uint64(step), units, kinds...)
	w.src.Origin = true
	w.plan.Commit.Bytes = 300
	w.src.OnRead = func(int) error { time.Sleep(120 * time.Millisecond); return nil }
	if kinds[0] == sim.AppendLog {
		w.plan.Guarantee = connector.AtLeastOnce
	}
	w.SetFaults(sim.Faults{CrashAt: step, After: after})
	_, first := w.run(context.Background())
	reached := w.Steps() >= step
	w.Restart()
	w.SetFaults(sim.Faults{})
	if !w.store.Record.Progress.Done {
		sum, err := w.run(context.Background())
		if err != nil || !sum.Done {
			t.Fatalf("step %d, after %v: first %v, then %v\n%v", step, after, first, err, w.Events())
		}
	}
	if err := w.check(); err != nil {
		t.Fatalf("step %d, after %v: %v\n%v", step, after, err, w.Events())
	}
	if w.src.Resolved > 2 {
		t.Fatalf("the origin was resolved %d times", w.src.Resolved)
	}
	return reached
}

// port fails the i-th call that goes through it, without effect.
type port struct {
	fail  int64
	calls atomic.Int64
	err   error
}

func (p *port) hit() error {
	if p.calls.Add(1) == p.fail {
		return p.err
	}
	return nil
}

type faultyStore struct {
	*sim.Store
	port *port
}

func (s faultyStore) Load(ctx context.Context, name string) (state.Record, state.Version, error) {
	if err := s.port.hit(); err != nil {
		return state.Record{}, 0, err
	}
	return s.Store.Load(ctx, name)
}

func (s faultyStore) Save(ctx context.Context, r state.Record, v state.Version) (state.Version, error) {
	if err := s.port.hit(); err != nil {
		return 0, err
	}
	return s.Store.Save(ctx, r, v)
}

type faultyLanes struct {
	lane.Stream
	port *port
}

func (l faultyLanes) Publish(ctx context.Context, it lane.Item, to ...string) error {
	if err := l.port.hit(); err != nil {
		return err
	}
	return l.Stream.Publish(ctx, it, to...)
}

func (l faultyLanes) Lane(sink string) (lane.Consumer[lane.Item], error) {
	if err := l.port.hit(); err != nil {
		return nil, err
	}
	c, err := l.Stream.Lane(sink)
	return faultyConsumer{c, l.port}, err
}

type faultyConsumer struct {
	lane.Consumer[lane.Item]
	port *port
}

func (c faultyConsumer) Receive(ctx context.Context) (lane.Delivery[lane.Item], error) {
	if err := c.port.hit(); err != nil {
		return nil, err
	}
	d, err := c.Consumer.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return faultyDelivery{d, c.port}, nil
}

type faultyDelivery struct {
	lane.Delivery[lane.Item]
	port *port
}

func (d faultyDelivery) Ack() error {
	if err := d.port.hit(); err != nil {
		return err
	}
	return d.Delivery.Ack()
}

// Every call to the state store and to the lanes fails once, for good or for now: the run goes on or fails, and the next one
// completes it.
//
// clauses E1, E5, S11.
func TestPortFaults(t *testing.T) {
	for _, of := range []string{"state", "lanes"} {
		for _, class := range []connector.Class{connector.ClassTransient, connector.ClassPermanent} {
			t.Run(of+" "+class.String(), func(t *testing.T) {
				for i, left := 1, true; left; i++ {
					synctest.Test(t, func(t *testing.T) { left = portFault(t, of, class, i) })
				}
			})
		}
	}
}

func portFault(t *testing.T, of string, class connector.Class, i int) bool {
	t.Helper()
	w := newWorld(uint64(i), steady(9), sim.Transactional)
	w.plan.Commit.Bytes = 300
	w.src.OnRead = func(int) error { time.Sleep(120 * time.Millisecond); return nil }
	p := &port{fail: int64(i), err: &connector.Error{Class: class, Err: errors.New("injected")}}
	deps := w.deps()
	if of == "state" {
		deps.Store = faultyStore{w.store, p}
	} else {
		deps = deps.WithLanes(func(names []string, o lane.Options) (lane.Stream, error) {
			m, err := lane.NewMemory(names, o)
			return faultyLanes{m, p}, err
		})
	}
	_, first := engine.Run(t.Context(), w.plan, deps)
	if !w.store.Record.Progress.Done {
		if _, err := w.run(t.Context()); err != nil {
			t.Fatalf("call %d: first %v, then %v\n%v", i, first, err, w.Events())
		}
	}
	if err := w.check(); err != nil {
		t.Fatalf("call %d: %v", i, err)
	}
	return p.calls.Load() >= p.fail
}

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/state"
)

// running is a pipeline with durable lanes that goes on until it is stopped.
type running struct {
	*followed
	t     *testing.T
	ctl   *engine.Control
	ended chan error
}

func (f *followed) start(t *testing.T) *running {
	t.Helper()
	r := &running{followed: f, t: t, ctl: engine.NewControl(), ended: make(chan error, 1)}
	f.plan.Once = false
	d := f.deps()
	d.Control = r.ctl
	go func() {
		_, err := engine.Run(context.WithoutCancel(t.Context()), f.plan, d)
		r.ended <- err
	}()
	return r
}

func (r *running) stop() error {
	r.ctl.Stop()
	return <-r.ended
}

// sinkStatus returns what there is to see of a sink.
func (r *running) sinkStatus(name string) engine.SinkStatus {
	for _, s := range r.ctl.Status().Sinks {
		if s.Name == name {
			return s
		}
	}
	r.t.Fatalf("no sink %s", name)
	return engine.SinkStatus{}
}

// equal reports whether a sink has what the table has.
func (f *followed) equal(s *sim.TableSink) (equal bool) {
	f.Look(func() { equal = maps.Equal(s.Durable.Rows, f.db.State) })
	return equal
}

// write lets the database change for a while.
func (f *followed) write(n int, d time.Duration) {
	f.Look(func() { f.src.Writes += n })
	time.Sleep(d)
}

// A sink that fails for good holds up neither the others nor the source's log, which is released; once it works it has everything.
//
// clauses W14, W15, E14, E2, case C064.
func TestSinkDown(t *testing.T) {
	for name, broken := range map[string]error{
		"permission": &connector.Error{Class: connector.ClassPermanent, Code: "sim.denied", Err: errors.New("permission denied")},
		"network":    &connector.Error{Class: connector.ClassTransient, Code: "sim.away", Err: errors.New("connection refused")},
	} {
		for _, kind := range []string{"stores", "flushes", "two-phase"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFollowed(41, true, kind != "flushes")
					f.sinks[1].TwoPhase = kind == "two-phase"
					f.keepLanes()
					f.src.Writes = 20
					r := f.start(t)
					time.Sleep(time.Minute)
					f.Look(func() { f.sinks[1].Broken = broken })
					f.write(200, 10*time.Minute)
					released := 0
					f.Look(func() { released = f.src.Released })
					if s := r.sinkStatus("sink1"); s.State != state.LaneDown || s.Err == nil || s.Held.Items == 0 {
						t.Errorf("the sink is shown as %q, %v, holding %d items", s.State, s.Err, s.Held.Items)
					}
					if !f.equal(f.sinks[0]) || f.equal(f.sinks[1]) {
						t.Error("the other sink lacks something, or the broken one has everything")
					}
					if released < 150 {
						t.Errorf("the source's log was released up to %d only", released)
					}
					f.Look(func() { f.sinks[1].Broken = nil })
					time.Sleep(3 * time.Minute)
					if s := r.sinkStatus("sink1"); s.State != state.LaneLive || s.Err != nil || !f.equal(f.sinks[1]) {
						t.Errorf("the sink works again, and is shown as %q, %v", s.State, s.Err)
					}
					if err := r.stop(); err != nil {
						t.Error(err)
					}
					if err := f.check(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// A pipeline starts although one of its sinks is not there, if that has worked before; else it says so at once.
//
// clauses W14, W15.
func TestStartWithoutASink(t *testing.T) {
	away := &connector.Error{Class: connector.ClassTransient, Code: "sim.away", Err: errors.New("connection refused")}
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(42, true, true)
		f.keepLanes()
		f.sinks[1].Broken = away
		if _, err := f.run(t.Context()); connector.ClassOf(err) != connector.ClassTransient {
			t.Fatalf("a sink that never worked was waited for: %v", err)
		}
		f.sinks[1].Broken = nil
		if err := f.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.sinks[1].Broken = away
		f.src.Writes = 0
		r := f.start(t)
		f.write(100, 5*time.Minute)
		if !f.equal(f.sinks[0]) || f.equal(f.sinks[1]) {
			t.Error("the other sink lacks something, or the broken one has everything")
		}
		if err := r.stop(); err == nil {
			t.Error("a run that ends with a sink down is no success")
		}
		f.sinks[1].Broken = nil
		f.plan.Once = true
		if err := f.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.check(); err != nil {
			t.Error(err)
		}
	})
}

// A lane that would hold too much is let go, and its sink is filled anew once it works; the others never notice.
//
// clauses W13, W14, W15, case C061.
func TestLaneIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(43, true, true)
		f.keepLanes()
		f.plan.Lanes.Quota = lane.Quota{Bytes: 40_000, Detach: true}
		f.src.Writes = 10
		r := f.start(t)
		time.Sleep(time.Minute)
		truncates := f.sinks[1].Truncates
		f.Look(func() { f.sinks[1].Broken = errors.New("out of order") })
		f.write(1000, 10*time.Minute)
		if n := r.sinkStatus("sink1").Held; n.Bytes > 60_000 || !n.Detached {
			t.Errorf("the lane holds %d bytes, detached %v", n.Bytes, n.Detached)
		}
		if !f.equal(f.sinks[0]) || f.lanes.Detached != 1 {
			t.Errorf("the other sink lacks something, or lanes were let go %d times", f.lanes.Detached)
		}
		f.Look(func() { f.sinks[1].Broken = nil })
		f.write(20, 5*time.Minute)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if f.sinks[1].Truncates <= truncates {
			t.Error("the sink was not emptied before it was filled anew")
		}
		if err := f.check(); err != nil {
			t.Error(err)
		}
	})
}

// A dataset that is paused is not filled into a sink that comes back: it is once it is resumed.
//
// clause E10.
func TestPausedDatasetIsNotFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(43, true, true)
		f.keepLanes()
		f.plan.Lanes.Quota = lane.Quota{Bytes: 40_000, Detach: true}
		f.src.Writes = 10
		r := f.start(t)
		time.Sleep(time.Minute)
		f.Look(func() { f.sinks[1].Broken = errors.New("out of order") })
		f.write(1000, 10*time.Minute)
		f.store.Order(state.Orders{Datasets: []string{"t"}})
		time.Sleep(10 * time.Second)
		before := maps.Clone(f.sinks[1].Durable.Rows)
		f.Look(func() { f.sinks[1].Broken = nil })
		f.write(20, 5*time.Minute)
		if s := r.sinkStatus("sink1"); s.Held.Detached || s.State != state.LaneLive || !maps.Equal(before, f.sinks[1].Durable.Rows) {
			t.Errorf("the lane is shown as %q, detached %v, or the sink got rows of a dataset that is paused", s.State, s.Held.Detached)
		}
		f.store.Order(state.Orders{})
		time.Sleep(5 * time.Minute)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if err := f.check(); err != nil {
			t.Error(err)
		}
	})
}

// Lanes that were lost, or put back from a backup, are never taken for empty ones: the source has released what was in them.
//
// clauses S4, W14.
func TestLanesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(44, true, true)
		f.keepLanes()
		if err := f.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		kept := f.lanes
		f.lanes = (&sim.Lanes{}).AddTo(f.World)
		_, err := f.run(t.Context())
		if known, ok := errors.AsType[*connector.Error](err); !ok || known.Code != "engine.lanes_lost" || known.Hint == "" {
			t.Fatalf("lanes that are gone: %v", err)
		}
		f.plan.Lanes.Kind = engine.MemoryLanes
		if _, err := f.run(t.Context()); connector.ClassOf(err) != connector.ClassConfig {
			t.Fatalf("lanes in memory while others wait on disk: %v", err)
		}
		f.plan.Lanes.Kind, f.lanes = engine.AutoLanes, kept
		f.src.Writes = 10
		if err := f.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.check(); err != nil {
			t.Error(err)
		}
	})
}

// A paused lane gets nothing, also over a restart, and holds up nobody.
//
// clauses E10, W15.
func TestPausedLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(45, true, true)
		f.keepLanes()
		f.src.Writes = 10
		r := f.start(t)
		time.Sleep(time.Minute)
		f.store.Order(state.Orders{Sinks: []string{"sink1"}})
		time.Sleep(3 * time.Second)
		for round := range 2 {
			before := maps.Clone(f.sinks[1].Durable.Rows)
			f.write(100, time.Minute)
			if s := r.sinkStatus("sink1"); s.State != state.LanePaused {
				t.Errorf("round %d: the lane is shown as %q", round, s.State)
			}
			if !f.equal(f.sinks[0]) || !maps.Equal(before, f.sinks[1].Durable.Rows) {
				t.Errorf("round %d: the other sink lacks something, or the paused one got something", round)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			r = f.start(t)
			time.Sleep(time.Second)
		}
		f.store.Order(state.Orders{})
		time.Sleep(time.Minute)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if err := f.check(); err != nil {
			t.Error(err)
		}
	})
}

// One sink and a source that ends need nothing on disk, several sinks of one that is followed do, and what is chosen is told with the
// reason.
//
// clause W14.
func TestLanesAreChosen(t *testing.T) {
	for _, c := range []struct {
		sinks int
		asked engine.LaneChoice
		want  engine.LaneChoice
	}{
		{1, engine.AutoLanes, engine.MemoryLanes},
		{2, engine.AutoLanes, engine.DurableLanes},
		{2, engine.MemoryLanes, engine.MemoryLanes},
		{1, engine.DurableLanes, engine.DurableLanes},
	} {
		t.Run(fmt.Sprint(c.sinks, c.asked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores := make([]bool, c.sinks)
				for i := range stores {
					stores[i] = true
				}
				f := newFollowed(46, stores...)
				f.keepLanes()
				f.plan.Lanes.Kind = c.asked
				ctl := engine.NewControl()
				d := f.deps()
				d.Control = ctl
				report, err := engine.Check(t.Context(), f.plan, d)
				if err != nil {
					t.Fatal(err)
				}
				d.Rand = rand.New(rand.NewPCG(1, 1))
				if _, err := engine.Run(t.Context(), f.plan, d); err != nil {
					t.Fatal(err)
				}
				s := ctl.Status()
				if s.Lanes != c.want || s.WhyLanes == "" || report.Lanes != c.want || report.WhyLanes != s.WhyLanes {
					t.Errorf("the run says %s (%s), the check %s (%s)", s.Lanes, s.WhyLanes, report.Lanes, report.WhyLanes)
				}
			})
		})
	}
}

// The lanes of a run stay what they were when it began: what sinks have from the time before says nothing of durable lanes.
//
// clause W14.
func TestLanesStayWhatTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowed(47, true, true)
		f.plan.Lanes.Kind = engine.MemoryLanes
		if err := f.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.keepLanes()
		if _, err := f.run(t.Context()); connector.ClassOf(err) != connector.ClassConfig {
			t.Fatalf("durable lanes in the middle of a run: %v", err)
		}
		f.plan.Lanes.Kind = engine.AutoLanes
		report, err := engine.Check(t.Context(), f.plan, f.deps())
		if err != nil || report.Lanes != engine.MemoryLanes {
			t.Errorf("%s (%s), %v", report.Lanes, report.WhyLanes, err)
		}
		f.src.Writes = 20
		if err := f.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.check(); err != nil {
			t.Error(err)
		}
		f.Look(func() { f.store.Record = f.store.Record.Reset() })
		ctl := engine.NewControl()
		d := f.deps()
		d.Control = ctl
		if _, err := engine.Run(t.Context(), f.plan, d); err != nil || ctl.Status().Lanes != engine.DurableLanes {
			t.Errorf("a run that begins anew has lanes %s, %v", ctl.Status().Lanes, err)
		}
	})
}

// Lanes that are lost before anything was saved are missed, too: a sink can have its rows from nowhere else.
//
// clause W14.
func TestLanesAreLostEarly(t *testing.T) {
	met := 0
	for step := 1; step < 150; step++ {
		synctest.Test(t, func(t *testing.T) {
			f := newFollowed(48, true, true)
			f.keepLanes()
			f.SetFaults(sim.Faults{CrashAt: step, After: true})
			_, _ = f.run(t.Context()) // whatever comes of it
			f.Restart()
			f.SetFaults(sim.Faults{})
			if !f.sinks[0].Has || !f.store.Record.Progress.Position.Zero() {
				return
			}
			met++
			f.lanes = (&sim.Lanes{}).AddTo(f.World)
			_, err := f.run(t.Context())
			if known, ok := errors.AsType[*connector.Error](err); !ok || known.Code != "engine.lanes_lost" {
				t.Fatalf("crash at %d: %v", step, err)
			}
		})
	}
	if met == 0 {
		t.Error("no crash came between a commit and the first save")
	}
}

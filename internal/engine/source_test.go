package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/record"
)

// scripted is a source whose calls a test decides about, on top of a simulated one.
type scripted struct {
	*sim.Source
	open  func(env connector.Env)
	start func(ctx context.Context) error
	read  func(ctx context.Context, want connector.Limit, next func() (*record.Batch, error)) (*record.Batch, error)
	close func(ctx context.Context) error
	ready chan struct{}

	opened, closed int
}

func (s *scripted) Open(env connector.Env) (connector.Source, error) {
	s.opened++
	if s.open != nil {
		s.open(env)
	}
	inner, err := s.Source.Open(env)
	return &scriptedValue{cfg: s, Source: inner}, err
}

type scriptedValue struct {
	connector.Source
	cfg *scripted
}

func (v *scriptedValue) Unwrap() any { return v.Source }

func (v *scriptedValue) Start(ctx context.Context, s connector.SourceStart) error {
	if v.cfg.start != nil {
		if err := v.cfg.start(ctx); err != nil {
			return err
		}
	}
	return v.Source.Start(ctx, s)
}

func (v *scriptedValue) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	next := func() (*record.Batch, error) { return v.Source.Read(ctx, want) }
	if v.cfg.read != nil {
		return v.cfg.read(ctx, want, next)
	}
	return next()
}

func (v *scriptedValue) Close(ctx context.Context) error {
	v.cfg.closed++
	if v.cfg.close != nil {
		if err := v.cfg.close(ctx); err != nil {
			return err
		}
	}
	return v.Source.Close(ctx)
}

func (v *scriptedValue) Ready() <-chan struct{} { return v.cfg.ready }

func script(w *world) *scripted {
	s := &scripted{Source: w.src}
	w.plan.Source.Config = s
	return s
}

func code(err error) string {
	if e, ok := errors.AsType[*connector.Error](err); ok {
		return e.Code
	}
	return ""
}

// background runs the world's plan until the returned function, which waits for the end, was called.
func background(t *testing.T, w *world) (*engine.Control, func() (engine.Summary, error)) {
	t.Helper()
	ctl := engine.NewControl()
	deps := w.deps()
	deps.Control = ctl
	var sum engine.Summary
	var err error
	done := make(chan struct{})
	go func() { defer close(done); sum, err = engine.Run(context.Background(), w.plan, deps) }()
	return ctl, func() (engine.Summary, error) { <-done; return sum, err }
}

// A start is validated and names the attempt that saved its position; attempts only grow.
//
// clauses S1, S2.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(40), sim.Transactional)
		w.plan.Commit.Bytes = 1
		w.src.OnRead = func(int) error { time.Sleep(10 * time.Millisecond); return nil }
		last := uint64(0)
		for i := range 4 {
			w.SetFaults(sim.Faults{CrashAt: 25})
			_, _ = w.run(t.Context())
			w.Restart()
			if a := w.store.Record.Attempt; a <= last {
				t.Fatalf("life %d: attempt %d after %d", i, a, last)
			}
			last = w.store.Record.Attempt
		}
		for i, s := range w.src.Starts {
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			if f := s.From; i > 0 && (f.Origin != connector.Resume || f.Attempt == 0) {
				t.Fatalf("start %d: %+v", i, f)
			}
		}
		if len(w.src.Starts) < 4 {
			t.Fatalf("%d starts", len(w.src.Starts))
		}
	})
}

// The default start is resolved once and saved before the first read; a crash after that does not resolve it again.
//
// clause S3.
func TestOriginIsResolvedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(5), sim.Transactional)
		w.src.Origin = true
		w.src.OnRead = func(int) error {
			if w.store.Record.Origin.Zero() {
				t.Error("read before the origin was saved")
			}
			return &connector.Error{Class: connector.ClassPermanent, Err: errors.New("no")}
		}
		if _, err := w.run(t.Context()); err == nil {
			t.Fatal("no error")
		}
		w.src.OnRead = nil
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range w.src.Starts {
			if s.From.Origin != connector.Initialised {
				t.Fatalf("started at %+v", s.From)
			}
		}
		if w.src.Resolved != 1 {
			t.Fatalf("resolved %d times", w.src.Resolved)
		}
	})
}

// A position that can't be resumed from stops the run with a way out, is not tried again, and moves nothing.
//
// clauses S4, S12.
func TestLostPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(5), sim.Transactional)
		s := script(w)
		s.start = func(context.Context) error {
			return &connector.Error{Class: connector.ClassPosition, Code: "x.gone", Err: errors.New("the slot is gone"), Hint: "snapshot again"}
		}
		_, err := w.run(t.Context())
		if code(err) != "x.gone" || connector.HintOf(err) != "snapshot again" || s.opened != 1 || s.closed != 1 {
			t.Fatalf("%v, opened %d, closed %d", err, s.opened, s.closed)
		}
		if len(w.sinks[0].Rows) > 0 {
			t.Fatal("something was written")
		}
	})
}

// Nothing-now is not the end, only real failures are errors, and an end of a bounded source is one.
//
// clauses S5, S13.
func TestNothingNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(5), sim.Transactional)
		s := script(w)
		s.ready = make(chan struct{}, 100)
		reads := 0
		s.read = func(_ context.Context, _ connector.Limit, next func() (*record.Batch, error)) (*record.Batch, error) {
			if reads++; reads%3 != 0 {
				return nil, nil
			}
			if reads > 9 { // a spurious wake-up now and then; most are lost
				s.ready <- struct{}{}
			}
			return next()
		}
		sum, err := w.run(t.Context())
		if err != nil || !sum.Done {
			t.Fatal(err)
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// An io.EOF inside of another error is a connection that was cut, not the end of the source: nothing is called done.
//
// clause S5.
func TestCutConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(9), sim.WholeFile)
		cut := true
		w.src.OnRead = func(unit int) error {
			if unit == 5 && cut {
				cut = false
				return &connector.Error{Class: connector.ClassTransient, Doing: "reading", Err: fmt.Errorf("read tcp: %w", io.EOF)}
			}
			return nil
		}
		sum, err := w.run(t.Context())
		if err != nil || !sum.Done || len(w.src.Starts) != 2 {
			t.Fatalf("%v, %d starts", err, len(w.src.Starts))
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// A wake-up is taken at once, long before the poll would come.
//
// clause S13.
func TestWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, nil, sim.Transactional)
		w.src.Has.Bounded = false
		s := script(w)
		s.ready = make(chan struct{})
		var at []time.Time
		s.read = func(_ context.Context, _ connector.Limit, next func() (*record.Batch, error)) (*record.Batch, error) {
			at = append(at, time.Now())
			return next()
		}
		ctl, wait := background(t, w)
		time.Sleep(10*time.Second + 100*time.Millisecond) // the poll is at its slowest by now
		synctest.Wait()
		before := len(at)
		s.ready <- struct{}{}
		synctest.Wait()
		if len(at) != before+1 {
			t.Errorf("%d reads after the wake-up", len(at)-before)
		}
		ctl.Stop()
		if _, err := wait(); err != nil {
			t.Fatal(err)
		}
	})
}

// A batch beyond the contract's hard limit fails the run before it goes anywhere; a wanted size of 0 is passed on as it is.
//
// clause S6.
func TestOversize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var unit sim.Unit
		for i := range 4 {
			unit = append(unit, []sim.Row{{Dataset: "a", ID: int64(2*i + 1), Value: "x"}, {Dataset: "a", ID: int64(2*i + 2), Value: "x"}})
		}
		for _, c := range []struct {
			rows int
			hard int64
			ok   bool
		}{{1, 0, false}, {1, 2, true}, {2, 0, true}, {0, 0, true}} {
			w := newWorld(1, []sim.Unit{unit}, sim.Transactional)
			w.plan.Batch = connector.Limit{Rows: c.rows, Bytes: 1 << 20}
			w.src.Has.MaxUnitRows = c.hard
			s := script(w)
			s.read = func(_ context.Context, want connector.Limit, next func() (*record.Batch, error)) (*record.Batch, error) {
				if want.Rows != c.rows {
					t.Errorf("wanted %d rows, not %d", want.Rows, c.rows)
				}
				return next()
			}
			_, err := w.run(t.Context())
			if (err == nil) != c.ok || (!c.ok && (code(err) != "engine.bad_batch" || len(w.sinks[0].Rows) > 0)) {
				t.Fatalf("%+v: %v", c, err)
			}
		}
	})
}

// What a source must not return is refused: a broken position, a schema that does not fit its rows.
//
// clause S7.
func TestBadBatches(t *testing.T) {
	good := sim.Schema("a")
	for name, b := range map[string]*record.Batch{
		"position":   {Position: record.Position{Shape: 1, Data: json.RawMessage("{")}},
		"no schema":  {Rejects: []record.Reject{{Message: "x"}}},
		"operations": {Schema: good, Ops: []record.Op{record.Insert}},
		"key":        {Schema: &record.Schema{Dataset: "a", Columns: good.Columns, Key: []int{9}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, steady(3), sim.Transactional)
			script(w).read = func(context.Context, connector.Limit, func() (*record.Batch, error)) (*record.Batch, error) {
				return b, nil
			}
			if _, err := w.run(t.Context()); code(err) != "engine.bad_batch" {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A read that hangs is cancelled only where the contract allows it; else it may end by itself within the drain, and the value is
// retired after a cancelled call. Nothing is used after that, and everything is closed.
//
// clauses S9, S12.
func TestStopDuringRead(t *testing.T) {
	for _, safe := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, steady(6), sim.Transactional)
			w.src.Has.CancelSafe = safe
			w.plan.Drain = 10 * time.Second
			s := script(w)
			reads := 0
			s.read = func(ctx context.Context, _ connector.Limit, next func() (*record.Batch, error)) (*record.Batch, error) {
				if reads++; reads < 6 {
					return next()
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			ctl, wait := background(t, w)
			time.Sleep(time.Second)
			began := time.Now()
			ctl.Stop()
			sum, err := wait()
			took := time.Since(began)
			if err != nil || sum.Done || s.closed != s.opened {
				t.Fatalf("%v, done %v, closed %d of %d", err, sum.Done, s.closed, s.opened)
			}
			if quick := took < time.Second; quick != safe {
				t.Fatalf("cancel-safe %v: it took %s", safe, took)
			}
			s.read = nil
			if sum, err = w.run(t.Context()); err != nil || !sum.Done {
				t.Fatal(err)
			}
			if err := w.check(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A replacement starts only after all goroutines of its predecessor have ended; after the close no new one starts.
//
// clause S10.
func TestReplacementWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(6), sim.Transactional)
		s := script(w)
		alive := 0
		var envs []connector.Env
		s.open = func(env connector.Env) {
			if alive > 0 {
				t.Error("a value was opened while a goroutine of the last one lived")
			}
			envs = append(envs, env)
			alive++
			if err := env.Go(func(ctx context.Context) {
				<-ctx.Done()
				time.Sleep(20 * time.Second)
				alive--
			}); err != nil {
				t.Error(err)
			}
		}
		failed := false
		w.src.OnRead = func(unit int) error {
			if unit == 3 && !failed {
				failed = true
				return &connector.Error{Class: connector.ClassTransient, Err: errors.New("reset by peer")}
			}
			return nil
		}
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(envs) != 2 || alive != 0 {
			t.Fatalf("%d values, %d goroutines", len(envs), alive)
		}
		if envs[0].Go(func(context.Context) {}) == nil {
			t.Fatal("a closed value started a goroutine")
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// A call that never returns makes the run stuck, in bounded time: it says which call, and nothing replaces the value.
//
// clauses S10, E10.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, call := range []string{"read", "close", "goroutine"} {
			w := newWorld(1, steady(6), sim.Transactional)
			w.plan.Drain = 5 * time.Second
			s := script(w)
			release := make(chan struct{})
			switch call {
			case "read":
				s.read = func(context.Context, connector.Limit, func() (*record.Batch, error)) (*record.Batch, error) {
					<-release
					return nil, io.EOF
				}
			case "close":
				s.close = func(context.Context) error { <-release; return nil }
			case "goroutine":
				s.open = func(env connector.Env) { _ = env.Go(func(context.Context) { <-release }) }
			}
			ctl, wait := background(t, w)
			time.Sleep(time.Second)
			ctl.Stop()
			_, err := wait()
			if code(err) != "engine.stuck" || ctl.Status().State != engine.Stuck || s.opened != 1 {
				t.Fatalf("%s: %v, state %s, opened %d", call, err, ctl.Status().State, s.opened)
			}
			if call == "read" && !strings.Contains(err.Error(), "source in read") {
				t.Fatalf("it does not say where: %v", err)
			}
			close(release)
			synctest.Wait()
		}
	})
}

// A failed start is closed, a failed source is closed once and never used again, and the sinks are closed as well.
//
// clauses S1, S12.
func TestCloseAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(6), sim.Transactional)
		s := script(w)
		s.start = func(context.Context) error {
			return &connector.Error{Class: connector.ClassPermanent, Code: "x", Err: errors.New("no")}
		}
		if _, err := w.run(t.Context()); code(err) != "x" || s.closed != 1 {
			t.Fatalf("%v, closed %d", err, s.closed)
		}
		s.start = nil
		w.src.OnRead = func(unit int) error {
			if unit == 2 {
				return errors.New("unclassified")
			}
			return nil
		}
		if _, err := w.run(t.Context()); err == nil || s.closed != 2 || s.opened != 2 {
			t.Fatalf("%v, closed %d of %d", err, s.closed, s.opened)
		}
		if v := w.Violations(); len(v) > 0 {
			t.Fatal(v)
		}
	})
}

// An older shape of a position is migrated by the source, a newer one is refused before anything is read.
//
// clause S14.
func TestNewerShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(9), sim.Transactional)
		w.plan.Commit.Bytes = 1
		w.SetFaults(sim.Faults{CrashAt: 25})
		_, _ = w.run(t.Context())
		w.Restart()
		w.SetFaults(sim.Faults{})
		w.store.Record.Progress.Position.Shape = 2
		if w.store.Record.Progress.Position.Zero() {
			w.store.Record.Progress.Position = record.Position{Shape: 2, Data: json.RawMessage(`{"units":1}`)}
		}
		starts, saved := len(w.src.Starts), w.store.Version
		_, err := w.run(t.Context())
		if connector.ClassOf(err) != connector.ClassPosition || len(w.src.Starts) != starts || w.store.Version != saved {
			t.Fatalf("%v, %d starts, version %d", err, len(w.src.Starts)-starts, w.store.Version-saved)
		}
	})
}

// What is not admitted is refused before any I/O, with every problem.
//
// clauses S15, E6.
func TestRefusedBeforeIO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(9), sim.AppendLog, sim.AppendLog)
		w.plan.Guarantee = connector.ExactlyOnce
		s := script(w)
		_, err := w.run(t.Context())
		var refused *engine.PlanError
		if !errors.As(err, &refused) || len(refused.Problems) != 2 || w.Steps() != 0 || s.opened != 0 {
			t.Fatalf("%v, %d steps", err, w.Steps())
		}
		report, err := engine.Check(t.Context(), w.plan, w.deps())
		if err != nil || report.OK() || len(report.Problems) != 2 || w.Steps() != 0 {
			t.Fatalf("%v, %+v", err, report)
		}
	})
}

// A dataset without a key is refused at plan time where rows are written by key, and nothing is read.
//
// clause E6.
func TestKeylessDataset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(9), sim.KeyedTable)
		keyless := sim.Schema("b")
		keyless.Key = nil
		w.src.Schemas = map[string]*record.Schema{"b": keyless}
		_, err := w.run(t.Context())
		var refused *engine.PlanError
		if !errors.As(err, &refused) || refused.Problems[0].Code != "plan.no_key" || refused.Problems[0].Dataset != "b" || len(w.src.Starts) > 0 {
			t.Fatal(err)
		}
		w.plan.Sinks[0].Keys = map[string][]string{"b": {"id"}}
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.plan.Sinks[0].Keys["b"] = []string{"nope"}
		if _, err := w.run(t.Context()); err == nil || !strings.Contains(err.Error(), "nope") {
			t.Fatal(err)
		}
	})
}

// The durable identity: a changed option refuses to resume and says what changed; adopting goes on, resetting starts over.
//
// clause S16.
func TestChangedPipeline(t *testing.T) {
	for _, c := range []struct {
		policy engine.ChangedIdentity
		ok     bool
		resume bool
	}{{engine.RefuseChanged, false, false}, {engine.AdoptChanged, true, true}, {engine.ResetChanged, true, false}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, steady(9), sim.Transactional)
			w.plan.Commit.Bytes = 1
			w.src.Options = map[string]string{"query": "old"}
			w.src.OnRead = func(unit int) error {
				if time.Sleep(time.Second); unit == 5 {
					return errors.New("no")
				}
				return nil
			}
			if _, err := w.run(t.Context()); err == nil {
				t.Fatal("no error")
			}
			w.src.OnRead = nil
			w.src.Options = map[string]string{"query": "new"}
			w.plan.Changed = c.policy
			before := len(w.src.Starts)
			w.src.Released = 0
			_, err := w.run(t.Context())
			if (err == nil) != c.ok {
				t.Fatal(err)
			}
			if !c.ok {
				if !strings.Contains(err.Error(), `"old"`) || !strings.Contains(err.Error(), `"new"`) || len(w.src.Starts) != before {
					t.Fatal(err)
				}
				return
			}
			if got := w.src.Starts[before].From.Origin == connector.Resume; got != c.resume {
				t.Fatalf("started at %+v", w.src.Starts[before].From)
			}
		})
	}
}

// The cause of a failed discovery reaches the user.
//
// clause S17.
func TestDiscoveryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(9), sim.Transactional)
		w.SetFaults(sim.Faults{Transient: 1})
		_, err := w.run(t.Context())
		if code(err) != "sim.transient" || !strings.Contains(err.Error(), "try again") {
			t.Fatal(err)
		}
	})
}

// Inside of a replay unit there is no legal cut: nothing is saved, and a pause goes on to the end of the unit first.
//
// clauses S18, E10.
func TestPauseInsideUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var big sim.Unit
		for i := range 10 {
			big = append(big, []sim.Row{{Dataset: "a", ID: int64(i + 1), Value: "x"}})
		}
		w := newWorld(1, []sim.Unit{big, {{{Dataset: "a", ID: 100, Value: "x"}}}}, sim.Transactional)
		w.src.OnRead = func(int) error { time.Sleep(time.Second); return nil }
		ctl, wait := background(t, w)
		time.Sleep(3500 * time.Millisecond)
		ctl.Pause()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.Look(func() {
			if s := ctl.Status(); s.State != engine.Running || !w.store.Record.Progress.Position.Zero() {
				t.Errorf("inside of a unit: %s, saved %s", s.State, w.store.Record.Progress.Position)
			}
		})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		w.Look(func() {
			if s := ctl.Status(); s.State != engine.Paused || len(w.sinks[0].Rows) != 10 || w.src.Released != 1 {
				t.Errorf("%s, %d rows, released %d: a pause delivers and acknowledges", s.State, len(w.sinks[0].Rows), w.src.Released)
			}
		})
		ctl.Resume()
		sum, err := wait()
		if err != nil || !sum.Done || ctl.Status().State != engine.Stopped {
			t.Fatal(err)
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// While its control plane is not reconciled a source is neither read nor checkpointed.
//
// clause S19.
func TestUnreconciled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(9), sim.Transactional)
		w.plan.Commit.Every = 10 * time.Second
		var ok atomic.Bool
		var calls atomic.Int64
		ok.Store(true)
		w.src.Control = func() (bool, error) { calls.Add(1); return ok.Load(), nil }
		held := true
		w.src.OnRead = func(unit int) error {
			if time.Sleep(time.Second); unit == 4 && held {
				held = false
				ok.Store(false)
			}
			return nil
		}
		_, wait := background(t, w)
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
		events, driven := len(w.Events()), calls.Load()
		time.Sleep(40 * time.Second)
		synctest.Wait()
		w.Look(func() {
			if len(w.sinks[0].Rows) == 0 {
				t.Error("what was read is not delivered")
			}
		})
		for _, e := range w.Events()[events:] {
			if e.What == "read" || e.What == "save" {
				t.Errorf("%s while not reconciled", e)
			}
		}
		if calls.Load() <= driven {
			t.Error("the control plane stood still")
		}
		ok.Store(true)
		if sum, err := wait(); err != nil || !sum.Done {
			t.Fatal(err)
		}
		w.src.Control = func() (bool, error) { return false, errors.New("expelled") }
		w.src.Released = 0
		if _, err := w.run(t.Context()); err == nil || !strings.Contains(err.Error(), "expelled") {
			t.Fatal(err)
		}
	})
}

// A panic of a connector fails the run with its name; the process lives, and nothing is left running.
func TestPanics(t *testing.T) {
	for _, in := range []string{"read", "goroutine", "write"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, steady(9), sim.Transactional)
			s := script(w)
			switch in {
			case "read":
				s.read = func(context.Context, connector.Limit, func() (*record.Batch, error)) (*record.Batch, error) {
					panic("index")
				}
			case "goroutine":
				s.open = func(env connector.Env) { _ = env.Go(func(context.Context) { time.Sleep(time.Second); panic("index") }) }
				w.src.OnRead = func(int) error { time.Sleep(time.Second); return nil }
			case "write":
				w.plan.Sinks[0].Config = panicking{w.sinks[0]}
			}
			_, err := w.run(t.Context())
			if code(err) != "engine.panic" {
				t.Fatalf("%s: %v", in, err)
			}
		})
	}
}

type panicking struct{ *sim.Sink }

func (p panicking) Open(env connector.Env) (connector.Sink, error) {
	s, err := p.Sink.Open(env)
	return panickingValue{s}, err
}

type panickingValue struct{ connector.Sink }

func (panickingValue) Write(context.Context, *record.Batch) error { panic(fmt.Sprint("index ", 9)) }

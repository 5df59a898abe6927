package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sim"
	"github.com/leatdata/leat/record"
)

func transient(text string) error {
	return &connector.Error{Class: connector.ClassTransient, Err: errors.New(text)}
}

// Retries are bounded, grow, and reset on progress; the system's own wish for a pause is honoured.
//
// clause E14.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(6), sim.Transactional)
		w.plan.Commit.Bytes = 1
		w.plan.Retry = engine.Retry{Attempts: 3, Min: time.Second, Max: time.Minute}
		var at []time.Time
		w.sinks[0].OnWrite = func(*record.Batch) error { at = append(at, time.Now()); return transient("down") }
		_, err := w.run(t.Context())
		if err == nil || len(at) != 4 || !strings.Contains(err.Error(), "after 4 tries") {
			t.Fatalf("%v, %d tries", err, len(at))
		}
		for i := 1; i < len(at); i++ {
			if gap, least := at[i].Sub(at[i-1]), time.Second/2<<(i-1); gap < least || gap > 2*least+time.Second {
				t.Fatalf("wait %d was %s", i, gap)
			}
		}

		failures := 0
		w.sinks[0].OnWrite = func(b *record.Batch) error { // twice for each unit: never three times without progress
			if !b.Position.Zero() {
				if failures++; failures%3 != 0 {
					return transient("down")
				}
			}
			return nil
		}
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(6), sim.Transactional)
		var at []time.Time
		w.sinks[0].OnWrite = func(*record.Batch) error {
			if at = append(at, time.Now()); len(at) == 1 {
				return &connector.Error{Class: connector.ClassTransient, Err: later{time.Hour}}
			}
			return nil
		}
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if gap := at[1].Sub(at[0]); gap < time.Hour {
			t.Fatalf("came back after %s", gap)
		}
	})
}

type later struct{ d time.Duration }

func (later) Error() string               { return "slow down" }
func (l later) RetryAfter() time.Duration { return l.d }

// A plain append is tried again only when no row can double: not with rows on the way, unless that was asked for.
//
// clause E14.
func TestPlainAppend(t *testing.T) {
	for _, c := range []struct {
		asked connector.Guarantee
		what  string
		ok    bool
	}{
		{connector.BestGuarantee, "start", true},
		{connector.BestGuarantee, "write", false},
		{connector.AtLeastOnce, "write", true},
		{connector.BestGuarantee, "flush", false},
		{connector.AtLeastOnce, "flush", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, steady(6), sim.AppendLog)
			w.plan.Guarantee = c.asked
			w.plan.Commit.Bytes = 1
			failed := false
			fail := func() error {
				if failed {
					return nil
				}
				failed = true
				return transient("down")
			}
			switch c.what {
			case "write":
				w.sinks[0].OnWrite = func(b *record.Batch) error {
					if sim.UnitsOf(b.Position) == 4 {
						return fail()
					}
					return nil
				}
			case "flush":
				w.sinks[0].OnCommit = fail
			case "start":
				failed = true // a later generation's start is the same code as for other sinks; nothing is on the way
			}
			_, err := w.run(t.Context())
			if (err == nil) != c.ok || (!c.ok && code(err) != "engine.would_repeat") {
				t.Fatalf("%s with %s: %v", c.what, c.asked, err)
			}
		})
	}
}

// An unknown outcome of a commit is read back, never guessed: whether it took effect or not, every row is there once.
//
// clauses E5, E14.
func TestUnknownOutcome(t *testing.T) {
	for _, effect := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, steady(12), sim.Transactional)
			w.plan.Commit.Bytes = 1
			n := 0
			w.plan.Sinks[0].Config = &unsure{Sink: w.sinks[0], hide: func() (bool, bool) { n++; return n%2 == 0, effect }}
			if _, err := w.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.check(); err != nil || n < 12 {
				t.Fatalf("%v, %d commits", err, n)
			}
		})
	}
}

// unsure hides the outcome of some commits, with or without effect.
type unsure struct {
	*sim.Sink
	hide func() (hide, effect bool)
}

func (u *unsure) Open(env connector.Env) (connector.Sink, error) {
	s, err := u.Sink.Open(env)
	p, _ := connector.As[connector.PositionStore](s)
	return &unsureValue{s, p, u}, err
}

type unsureValue struct {
	connector.Sink
	connector.PositionStore
	cfg *unsure
}

func (v *unsureValue) Commit(ctx context.Context, p record.Progress) error {
	hide, effect := v.cfg.hide()
	if !hide || effect {
		if err := v.PositionStore.Commit(ctx, p); err != nil || !hide {
			return err
		}
	}
	return &connector.Error{Class: connector.ClassOutcome, Err: errors.New("the connection was lost")}
}

// Another process that takes the pipeline over ends this one at once: it writes and acknowledges nothing more.
//
// clauses S2, E10.
func TestTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(60), sim.Transactional)
		w.plan.Commit.Bytes = 1
		w.src.OnRead = func(int) error { time.Sleep(time.Second); return nil }
		ctl, wait := background(t, w)
		time.Sleep(10 * time.Second)
		released, attempt := 0, uint64(0)
		w.Look(func() {
			w.store.Record.Attempt++
			w.store.Version++
			released, attempt = w.src.Released, w.store.Record.Attempt
		})
		_, err := wait()
		if connector.ClassOf(err) != connector.ClassFenced || ctl.Status().State != engine.Failed || w.store.Record.Attempt != attempt {
			t.Fatalf("%v, %s", err, ctl.Status().State)
		}
		if w.src.Released > released+1 {
			t.Fatalf("released %d units after the take-over", w.src.Released-released)
		}
	})
}

// Rows that a source can't read and rows that a sink refuses: by default the first one stops the run in front of it, with what came
// before durable.
//
// clause E13.
func TestBadRowStops(t *testing.T) {
	for _, where := range []string{"source", "sink"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, steady(9), sim.Transactional)
			w.plan.BadRows = engine.BadRows{}
			w.plan.Commit.Bytes = 1
			if where == "source" {
				w.src.Rejects = map[int64]string{6: "not a number"}
			} else {
				w.sinks[0].Refuses = map[int64]bool{6: true}
			}
			_, err := w.run(t.Context())
			if code(err) != "engine.bad_row" || connector.HintOf(err) == "" || !strings.Contains(err.Error(), "b") {
				t.Fatal(err)
			}
			if len(w.sinks[0].Rows) != 5 || sim.UnitsOf(w.store.Record.Progress.Position) != 5 {
				t.Fatalf("%s: %d rows, saved %s", where, len(w.sinks[0].Rows), w.store.Record.Progress.Position)
			}
			w.plan.BadRows.Action = engine.SetAside
			sum, err := w.run(t.Context())
			if err != nil || sum.SetAside != 1 || !sum.Resumed {
				t.Fatalf("%v, %+v", err, sum)
			}
			if err := w.check(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A row that was set aside keeps all that a person needs, and is durable before the position moves past it. A limit stops the run
// once the good rows are durable, and the next run goes on behind.
//
// clause E13.
func TestSetAsideLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(20), sim.Transactional)
		w.plan.BadRows.Limit = 1
		w.src.Rejects = map[int64]string{3: "not a number", 10: "not a number"}
		w.plan.Commit.Bytes = 1
		w.sinks[0].OnCommit = func() error {
			last := int64(0)
			for _, r := range w.sinks[0].Rows {
				last = max(last, r.ID)
			}
			if last > 3 && len(w.rejects.durable) == 0 {
				t.Error("committed past a row that is not durable in the reject store")
			}
			return nil
		}
		_, err := w.run(t.Context())
		if code(err) != "engine.too_many_bad_rows" {
			t.Fatal(err)
		}
		if n := len(w.sinks[0].Rows); n != 8 || sim.UnitsOf(w.store.Record.Progress.Position) != 10 {
			t.Fatalf("%d rows, saved %s", n, w.store.Record.Progress.Position)
		}
		l := w.rejects.durable[0]
		if l.Dataset != "a" || l.Line != 3 || l.Column != "value" || l.Value != "v3" || l.Class == "" || l.Message == "" ||
			string(l.Raw) != "v3" || l.Pipeline != "sim" || l.Run == "" || sim.UnitsOf(l.Position) != 3 || l.Time.IsZero() {
			t.Fatalf("%+v", l)
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

// The limit holds for rows that a sink refuses as well.
//
// clause E13.
func TestSinkLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(20), sim.KeyedTable)
		w.plan.Sinks[0].BadRows = &engine.BadRows{Action: engine.SetAside, Limit: 1}
		w.sinks[0].Refuses = map[int64]bool{4: true, 9: true}
		_, err := w.run(t.Context())
		if code(err) != "engine.too_many_bad_rows" || len(w.sinks[0].Rows) != 7 || len(w.rejects.durable) != 2 {
			t.Fatalf("%v, %d rows, %d letters", err, len(w.sinks[0].Rows), len(w.rejects.durable))
		}
		if l := w.rejects.durable[0]; l.Sink != "sink0" || string(l.Key) != `{"id":4}` || string(l.Raw) != `{"id":4,"value":"v4"}` {
			t.Fatalf("%+v", l)
		}
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// One dataset that a sink refuses for good fails alone; the others arrive, the run ends with an error that names it, and the next
// run copies only that one.
//
// case C064.
func TestOneDatasetFails(t *testing.T) {
	for _, where := range []string{"map", "write"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, steady(20), sim.Transactional, sim.Transactional)
			broken := true
			conflict := &connector.Error{Class: connector.ClassPermanent, Code: "x.type", Dataset: "b", Err: errors.New("column value is an integer")}
			w.sinks[1].OnMap = func(s *record.Schema) ([]connector.Mapping, error) {
				if broken && where == "map" && s.Dataset == "b" {
					return nil, conflict
				}
				return nil, nil
			}
			w.sinks[1].OnWrite = func(b *record.Batch) error {
				if broken && where == "write" && b.Schema.Dataset == "b" {
					return conflict
				}
				return nil
			}
			ctl, wait := background(t, w)
			sum, err := wait()
			if code(err) != "engine.datasets_failed" || !strings.Contains(err.Error(), "b into sink1") || !strings.Contains(err.Error(), "integer") || sum.Failed != 1 {
				t.Fatalf("%s: %v, %+v", where, err, sum)
			}
			if f := ctl.Status().Sinks[1].Failed; f["b"] == "" || len(f) != 1 {
				t.Fatalf("status %v", f)
			}
			if err := w.sinks[0].Check(w.src.Rows()); err != nil {
				t.Fatal(err)
			}
			onlyA := slices.DeleteFunc(w.src.Rows(), func(r sim.Row) bool { return r.Dataset == "b" })
			if err := w.sinks[1].Check(onlyA); err != nil {
				t.Fatal(err)
			}

			broken = false
			w.src.Released, w.src.Durable = 0, nil // this source can be read again
			if sum, err = w.run(t.Context()); err != nil || !sum.Done {
				t.Fatal(err)
			}
			if last := w.src.Starts[len(w.src.Starts)-1]; !slices.Equal(last.Datasets, []string{"b"}) {
				t.Fatalf("read again: %v", last.Datasets)
			}
			if err := w.sinks[0].Check(w.src.Rows()); err != nil {
				t.Fatalf("the healthy sink: %v", err)
			}
			onlyB := slices.DeleteFunc(w.src.Rows(), func(r sim.Row) bool { return r.Dataset == "a" })
			if err := w.sinks[1].Check(append(onlyA, onlyB...)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A dataset that fails when some of it is already durable in an appending sink does not fail alone: copying it again would double
// its rows. The run fails and goes on from where it was.
//
// case C064.
func TestDatasetFailsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(20), sim.Transactional)
		w.plan.Commit.Bytes = 1
		broken := true
		w.sinks[0].OnWrite = func(b *record.Batch) error {
			if broken && sim.UnitsOf(b.Position) == 14 {
				return &connector.Error{Class: connector.ClassPermanent, Err: errors.New("no")}
			}
			return nil
		}
		if _, err := w.run(t.Context()); err == nil || code(err) == "engine.datasets_failed" {
			t.Fatal(err)
		}
		broken = false
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// A second run of an incremental source goes on behind the first; a sink that lost the first is noticed.
//
// clauses E5, S4.
func TestIncremental(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(10), sim.Transactional)
		w.src.Has.Incremental = true
		for i := range 3 {
			sum, err := w.run(t.Context())
			if err != nil || !sum.Done || sum.Resumed {
				t.Fatalf("run %d: %v", i, err)
			}
			if err := w.check(); err != nil {
				t.Fatal(err)
			}
			w.src.Units = steady(10 + 5*(i+1))
		}
		from := w.src.Starts[2].From
		if from.Origin != connector.Resume || from.Attempt == 0 || sim.UnitsOf(from.Position) != 15 {
			t.Fatalf("%+v", from)
		}
		w.sinks[0].Rows, w.sinks[0].Has = nil, false
		_, err := w.run(t.Context())
		if code(err) != "engine.sink_behind" || len(w.sinks[0].Rows) > 0 {
			t.Fatal(err)
		}
	})
}

// A full copy that is done is another copy the next time: an earlier run's progress is not taken for a resume.
//
// clause E5.
func TestSecondFullCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(10), sim.WholeFile, sim.Transactional)
		for range 2 {
			w.src.Released = 0
			if _, err := w.run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.sinks[0].Check(w.src.Rows()); err != nil || w.sinks[0].Finished != 2 || len(w.sinks[1].Rows) != 20 {
			t.Fatalf("%v, finished %d, %d rows", err, w.sinks[0].Finished, len(w.sinks[1].Rows))
		}
	})
}

// A whole file is never finished by a run that failed or was stopped.
func TestNothingHalfFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(10), sim.WholeFile)
		w.src.OnRead = func(unit int) error {
			if unit == 5 {
				return errors.New("no")
			}
			return nil
		}
		if _, err := w.run(t.Context()); err == nil || w.sinks[0].Finished != 0 {
			t.Fatal(err)
		}
		w.src.OnRead = func(int) error { time.Sleep(time.Second); return nil }
		ctl, wait := background(t, w)
		time.Sleep(4 * time.Second)
		ctl.Stop()
		sum, err := wait()
		if err != nil || sum.Done || w.sinks[0].Finished != 0 || w.store.Record.Progress.Done {
			t.Fatalf("%v %+v", err, sum)
		}
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
	})
}

// A row limit counts by dataset, and an interrupted run counts from the beginning again.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(40), sim.Transactional)
		w.plan.Limit, w.plan.Commit.Bytes = 5, 1
		w.src.Durable = nil
		w.src.OnRead = func(unit int) error {
			if time.Sleep(time.Second); unit == 6 {
				return errors.New("no")
			}
			return nil
		}
		if _, err := w.run(t.Context()); err == nil {
			t.Fatal("no error")
		}
		w.src.OnRead = nil
		sum, err := w.run(t.Context())
		if err != nil || !sum.Done {
			t.Fatal(err)
		}
		if err := w.sinks[0].Check(w.src.Rows()[:10]); err != nil {
			t.Fatal(err)
		}
	})
}

// The states that a person sees: starting, running, paused, running, draining, stopped.
//
// clause E10.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(1000), sim.Transactional)
		w.plan.Commit.Every = time.Second
		w.src.OnRead = func(int) error { time.Sleep(time.Second); return nil }
		ctl, wait := background(t, w)
		time.Sleep(5500 * time.Millisecond)
		if s := ctl.Status(); s.State != engine.Running || s.Datasets[0].Rows == 0 || s.Sinks[0].Rows == 0 || s.Reached != connector.ExactlyOnce {
			t.Errorf("%+v", s)
		}
		changed := ctl.Changed()
		ctl.Pause()
		<-changed
		time.Sleep(5 * time.Second)
		s := ctl.Status()
		time.Sleep(time.Hour)
		if p := ctl.Status(); p.State != engine.Paused || p.Datasets[0].Rows != s.Datasets[0].Rows || w.src.Released == 0 {
			t.Errorf("paused: %+v", p)
		}
		ctl.Resume()
		time.Sleep(3 * time.Second)
		if ctl.Status().State != engine.Running {
			t.Errorf("resumed: %s", ctl.Status().State)
		}
		ctl.Stop()
		synctest.Wait()
		sum, err := wait()
		if err != nil || sum.Done || ctl.Status().State != engine.Stopped {
			t.Fatalf("%v, %s", err, ctl.Status().State)
		}
		if got := sim.UnitsOf(sum.Position); got != len(w.sinks[0].Rows) || w.src.Released != got {
			t.Fatalf("stopped at %d with %d rows, released %d", got, len(w.sinks[0].Rows), w.src.Released)
		}
	})
}

// Columns that come to be during a run are brought into the sink before the first row that needs them.
func TestSchemaChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(6), sim.Transactional)
		wider := sim.Schema("a")
		wider.Columns = arrow.NewSchema(append(slices.Clone(wider.Columns.Fields()), arrow.Field{Name: "more", Type: arrow.PrimitiveTypes.Int32, Nullable: true}), nil)
		s := script(w)
		n := 0
		s.read = func(_ context.Context, _ connector.Limit, next func() (*record.Batch, error)) (*record.Batch, error) {
			b, err := next()
			if n++; err == nil && b.Schema != nil && b.Schema.Dataset == "a" && n > 4 {
				c := *b
				c.Schema, c.Rows = wider, nil
				return &c, nil
			}
			return b, err
		}
		var evolved []string
		w.sinks[0].OnEvolve = func(from, to *record.Schema) error {
			evolved = append(evolved, fmt.Sprintf("%d to %d", from.Columns.NumFields(), to.Columns.NumFields()))
			return nil
		}
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(evolved, []string{"2 to 3"}) {
			t.Fatal(evolved)
		}
	})
}

// Columns that can't be stored exactly are refused at plan time, all at once, with the policies that would help; a declared policy
// admits them, and Check shows what will be stored.
func TestInexactColumns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, steady(6), sim.Transactional)
		w.sinks[0].OnMap = func(s *record.Schema) ([]connector.Mapping, error) {
			m := connector.Mapping{
				Column: "value", Native: "int", Fidelity: connector.Inexact, Why: "texts are no numbers", Policies: []connector.Policy{connector.PolicyNull},
			}
			return []connector.Mapping{{Column: "id", Native: "bigint"}, m}, nil
		}
		_, err := w.run(t.Context())
		var refused *engine.PlanError
		if !errors.As(err, &refused) || len(refused.Problems) != 2 || w.sinks[0].Fence != 0 {
			t.Fatal(err)
		}
		if p := refused.Problems[0]; p.Column != "value" || p.Dataset != "a" || p.Sink != "sink0" || !strings.Contains(p.Hint, "value=null") {
			t.Fatalf("%+v", p)
		}
		report, err := engine.Check(t.Context(), w.plan, w.deps())
		if err != nil || report.OK() || len(report.Problems) != 2 {
			t.Fatalf("%v %+v", err, report)
		}
		w.plan.Sinks[0].Policies = map[string]connector.Policy{"value": connector.PolicyNull, "valeu": connector.PolicyText}
		if _, err := w.run(t.Context()); err == nil || !strings.Contains(err.Error(), `did you mean`) {
			t.Fatal(err)
		}
		delete(w.plan.Sinks[0].Policies, "valeu")
		report, err = engine.Check(t.Context(), w.plan, w.deps())
		if err != nil || !report.OK() || report.Sinks[0].Datasets[0].Columns[1].Policy != connector.PolicyNull || w.store.Version != 0 || w.sinks[0].Fence != 0 {
			t.Fatalf("%v %+v", err, report)
		}
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A transaction that is larger than a lane may hold passes with bounded memory; a failure in the middle of it starts over, and
// nothing doubles.
//
// clause E14.
func TestHugeUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var huge sim.Unit
		for i := range 200 {
			huge = append(huge, []sim.Row{{Dataset: "a", ID: int64(i + 1), Value: strings.Repeat("x", 100)}})
		}
		w := newWorld(1, []sim.Unit{{{{Dataset: "a", ID: 1000, Value: "x"}}}, huge}, sim.Transactional, sim.KeyedTable)
		w.plan.QueueBytes = 2000
		failed := 0
		w.sinks[0].OnWrite = func(b *record.Batch) error {
			if failed++; failed == 150 {
				return transient("down")
			}
			return nil
		}
		if _, err := w.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.check(); err != nil || len(w.src.Starts) != 2 {
			t.Fatalf("%v, %d starts", err, len(w.src.Starts))
		}
	})
}

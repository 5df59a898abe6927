package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

func rowErrors(err error) []connector.RowError {
	var re *connector.RowErrors
	if !errors.As(err, &re) {
		return nil
	}
	return re.Rows
}

// appends: runs add up.
func (s *sinkSuite) appends(t testing.TB) {
	if !s.supports(connector.Append) || s.contract.Atomicity == connector.Whole {
		return
	}
	target := s.New(t)
	a, b, c := Numbered("one", 0, 10), Numbered("one", 10, 0), Numbered("one", 10, 7)
	b.Schema, c.Schema = a.Schema, a.Schema
	s.load(t, target, request(connector.Append), a, b)
	again := request(connector.Append)
	again.Run = "r2"
	s.load(t, target, again, c)
	holds(t, target, "two runs", a.Schema, a, c)
}

// keyed returns a batch of upserts (or what ops say) of ids and texts.
func keyed(ops []record.Op, rows ...[]string) *record.Batch {
	b := BatchOf(Schema("keyed", Case{Name: "v", Type: arrow.BinaryTypes.String}), rows...)
	b.Ops = ops
	return b
}

// upserts: insert, update and delete by key, also within one batch, also applied again; and keys that move.
func (s *sinkSuite) upserts(t testing.TB) {
	if !s.supports(connector.Upsert) {
		return
	}
	target := s.New(t)
	u, d := record.Upsert, record.Delete
	first := keyed(nil, []string{"1", `"a"`}, []string{"2", `"b"`}, []string{"3", `"c"`})
	second := keyed([]record.Op{u, d, u, u, u, d, d, u}, []string{"1", `"A"`}, []string{"2", "null"}, []string{"4", `"d"`},
		[]string{"4", `"D"`},
		[]string{"5", `"e"`}, []string{"5", "null"}, []string{"99", "null"}, []string{"6", "null"})
	third := keyed([]record.Op{d, u}, []string{"6", "null"}, []string{"6", `"f"`})
	want := keyed(nil, []string{"1", `"A"`}, []string{"3", `"c"`}, []string{"4", `"D"`}, []string{"6", `"f"`})
	second.Schema, third.Schema = first.Schema, first.Schema
	s.load(t, target, request(connector.Upsert), first)
	for _, r := range []string{"r2", "r3"} {
		req := request(connector.Upsert)
		req.Run = r
		s.load(t, target, req, Sliced(first), second, third)
		holds(t, target, "upserts and deletes, run "+r, first.Schema, want)
	}
	if s.contract.Input == connector.Changelog {
		s.movedKeys(t)
	}
}

// movedKeys: an update whose key differs from the old one is a delete and an insert.
func (s *sinkSuite) movedKeys(t testing.TB) {
	t.Helper()
	target := s.New(t)
	first := keyed(nil, []string{"1", `"a"`}, []string{"2", `"b"`}, []string{"3", `"c"`})
	moved := keyed([]record.Op{record.Update, record.Update}, []string{"10", `"a"`}, []string{"3", `"C"`})
	moved.Schema = first.Schema
	moved.Old = keyed(nil, []string{"1", "null"}, []string{"3", "null"}).Rows
	s.load(t, target, request(connector.Upsert), first)
	req := request(connector.Upsert)
	req.Run = "r2"
	s.load(t, target, req, moved)
	holds(t, target, "a key that moved", first.Schema, keyed(nil, []string{"2", `"b"`}, []string{"3", `"C"`}, []string{"10", `"a"`}))
}

// replaces: the old rows show until the run is finished, then only the new ones; what another run began is discarded.
func (s *sinkSuite) replaces(t testing.TB) {
	if !s.supports(connector.Replace) {
		return
	}
	target := s.New(t)
	req := func(run string) connector.SinkStart {
		r := request(connector.Replace)
		r.Run = run
		return r
	}
	old, abandoned, next := Numbered("one", 0, 10), Numbered("one", 100, 5), Numbered("one", 200, 3)
	abandoned.Schema, next.Schema = old.Schema, old.Schema
	s.load(t, target, req("r1"), old)
	holds(t, target, "the first run", old.Schema, old)

	x := s.start(t, target, req("r2"))
	x.write(t, abandoned)
	if err := x.settle(deadline(t), progress("r2", 1)); err != nil {
		t.Errorf("making a part of a replacement durable: %v", err)
	}
	if !s.OneOwner {
		holds(t, target, "while it is being replaced", old.Schema, old)
	}
	x.end(t)
	holds(t, target, "a replacement that was not finished", old.Schema, old)

	s.load(t, target, req("r3"), next)
	holds(t, target, "a replacement after one that was given up", old.Schema, next)
	s.resumedReplacement(t, req("r4"))
}

// resumedReplacement: with a position store, a second generation of the same run goes on where the first one committed.
func (s *sinkSuite) resumedReplacement(t testing.TB, req connector.SinkStart) {
	t.Helper()
	if s.contract.Atomicity != connector.PositionInTransaction {
		return
	}
	target := s.New(t)
	a, lost, b := Numbered("one", 0, 5), Numbered("one", 50, 5), Numbered("one", 5, 5)
	lost.Schema, b.Schema = a.Schema, a.Schema
	x := s.start(t, target, req)
	x.write(t, a)
	if err := x.settle(deadline(t), progress(req.Run, 1)); err != nil {
		t.Errorf("Commit: %v", err)
	}
	x.write(t, lost)
	x.end(t)
	req.Fence++
	s.load(t, target, req, b)
	holds(t, target, "a replacement that was resumed", a.Schema, a, b)
}

// uncommitted: Close without Commit or Finish leaves nothing.
func (s *sinkSuite) uncommitted(t testing.TB, mode connector.WriteMode) {
	if s.contract.Atomicity < connector.PositionInTransaction {
		return
	}
	target := s.New(t)
	x := s.start(t, target, request(mode))
	b, more := Numbered("one", 0, 2_000), Numbered("one", 2_000, 2_000)
	more.Schema = b.Schema
	x.write(t, b, more)
	x.end(t)
	lacks(t, target, "closed without a commit", b.Schema)

	x = s.start(t, target, request(mode))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	secrets(s.Secrets).err(t, x.snk.Write(ctx, b))
	x.end(t)
	lacks(t, target, "closed after a cancelled Write", b.Schema)
}

// finish: calling it again, by the same value and by another generation of the same run, changes nothing.
func (s *sinkSuite) finish(t testing.TB, mode connector.WriteMode) {
	target := s.New(t)
	x := s.start(t, target, request(mode))
	f, ok := connector.As[connector.Finisher](x.snk)
	if !ok {
		x.end(t)
		return
	}
	b := Numbered("one", 0, 10)
	x.write(t, b)
	p := progress("r1", 1)
	p.Done = true
	if err := x.complete(deadline(t), p); err != nil {
		t.Errorf("Finish: %v", err)
	}
	if err := f.Finish(deadline(t), p); err != nil {
		t.Errorf("Finish, the second call: %v", err)
	}
	x.end(t)
	holds(t, target, "finished twice", b.Schema, b)

	x = s.start(t, target, request(mode))
	if f, ok = connector.As[connector.Finisher](x.snk); ok {
		if err := f.Finish(deadline(t), p); err != nil {
			t.Errorf("Finish by another generation: %v", err)
		}
	}
	x.end(t)
	holds(t, target, "finished again by another generation", b.Schema, b)
}

// keepsProgress: the sink has its own progress, with its rows.
func (s *sinkSuite) keepsProgress() bool {
	return s.contract.Atomicity == connector.PositionInTransaction || s.contract.Atomicity == connector.TwoPhaseCommit
}

// commits proves clause E5: rows and progress are one.
func (s *sinkSuite) commits(t testing.TB) {
	if !s.keepsProgress() {
		return
	}
	target := s.New(t)
	req := request(s.contract.Modes[0])
	x := s.start(t, target, req)
	committed(t, x, "before anything was committed", nil)
	a, b, lost := Numbered("one", 0, 10), Numbered("one", 10, 10), Numbered("one", 20, 10)
	b.Schema, lost.Schema = a.Schema, a.Schema
	one, two := epochAt(1), epochAt(2)
	whole := s.contract.Modes[0] == connector.Replace
	x.write(t, a)
	mustCommit(t, x, one)
	x.write(t, b)
	mustCommit(t, x, two)
	committed(t, x, "after the second commit", &two)
	x.write(t, lost)
	x.end(t)
	if !whole {
		holds(t, target, "killed after the second commit", a.Schema, a, b)
	}
	x = s.start(t, target, req)
	committed(t, x, "read by another generation", &two)
	x.end(t)
	s.strangersProgress(t, target, req, two)

	x = s.start(t, target, req)
	three := record.Progress{Run: "r1", Position: record.Position{Shape: 4, Data: json.RawMessage(`"text"`)}, Epoch: 3}
	mustCommit(t, x, three) // progress without rows
	x.end(t)
	x = s.start(t, target, req)
	committed(t, x, "after a commit without rows", &three)
	x.end(t)
}

// strangersProgress: another lane's and another pipeline's progress is not seen; another run's is, as it was saved.
func (s *sinkSuite) strangersProgress(t testing.TB, target Target, req connector.SinkStart, saved record.Progress) {
	t.Helper()
	other := req
	other.Lane = "other"
	x := s.start(t, target, other)
	committed(t, x, "asked by another lane", nil)
	x.end(t)
	other = req
	other.Pipeline = "other"
	x = s.start(t, target, other)
	committed(t, x, "asked by another pipeline", nil)
	x.end(t)
	other = req
	other.Run = "r2"
	x = s.start(t, target, other)
	committed(t, x, "asked by another run", &saved)
	x.end(t)
}

func mustCommit(t testing.TB, x *session, p record.Progress) {
	t.Helper()
	if err := x.settle(deadline(t), p); err != nil {
		x.end(t)
		t.Fatalf("Commit: %v", err)
	}
}

// fences: an owner that another one has followed writes nothing more.
func (s *sinkSuite) fences(t testing.TB) {
	if !s.keepsProgress() {
		return
	}
	target := s.New(t)
	mode := s.contract.Modes[0]
	req := func(fence uint64) connector.SinkStart {
		r := request(mode)
		r.Fence = fence
		return r
	}
	a, late := Numbered("one", 0, 5), Numbered("one", 50, 5)
	late.Schema = a.Schema
	var stale *session
	if !s.OneOwner {
		stale = s.start(t, target, req(5))
	}
	x := s.start(t, target, req(6))
	x.write(t, a)
	x.mustComplete(t, progress("r1", 1))
	if stale != nil {
		fenced(t, "an owner that was open before", stale, nil, late)
	}
	old := s.openConfig(t, target.Config())
	fenced(t, "an owner that starts late", old, old.snk.Start(deadline(t), req(5)), late)
	holds(t, target, "after late owners", a.Schema, a)
	x = s.start(t, target, req(6)) // the same owner goes on
	x.end(t)
}

// fenced: Start, Write or the commit says so, at the latest.
func fenced(t testing.TB, who string, x *session, err error, late *record.Batch) {
	t.Helper()
	if err == nil {
		err = x.offer(t, late)
	}
	if err == nil {
		err = x.complete(deadline(t), progress("r1", 9))
	}
	x.end(t)
	if connector.ClassOf(err) != connector.ClassFenced {
		t.Errorf("%s got %v: want an error of class fenced", who, err)
	}
}

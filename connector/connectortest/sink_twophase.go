package connectortest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// twoPhase proves clauses E4, E5 and E16 of a sink that publishes epochs: what was prepared is invisible and survives, what is published
// is there once, and what is aborted leaves nothing; each through any number of values, and only under the newest fence.
func (s *sinkSuite) twoPhase(t testing.TB) {
	x := s.openConfig(t, s.New(t).Config())
	_, ok := connector.As[connector.TwoPhase](x.snk)
	x.end(t)
	if !ok {
		return
	}
	run(t, "Prepared", s.prepared)
	run(t, "Published", s.published)
	run(t, "Another", s.anotherPublishes)
	run(t, "Aborted", s.aborted)
	run(t, "Fence", s.fencedEpochs)
	run(t, "Progress", s.epochProgress)
	run(t, "Empty", s.emptyEpochs)
	run(t, "Datasets", s.manyDatasets)
}

// epochAt is the progress of an epoch, with everything set.
func epochAt(n int) record.Progress {
	p := progress("r1", n)
	p.Epoch, p.Item = uint64(n), uint64(100*n)
	return p
}

// phases of the session's sink.
func (x *session) phases(t testing.TB) connector.TwoPhase {
	t.Helper()
	two, ok := connector.As[connector.TwoPhase](x.snk)
	if !ok {
		x.end(t)
		t.Fatalf("the sink is not TwoPhase")
	}
	return two
}

// prepare must work, and its answer must be JSON. It is handed on as a state store may keep it: with other spaces.
func (x *session) prepare(t testing.TB, p record.Progress) json.RawMessage {
	t.Helper()
	staged, err := x.phases(t).Prepare(deadline(t), p)
	secrets(x.suite.Secrets).err(t, err)
	var kept bytes.Buffer
	if err == nil {
		err = json.Indent(&kept, staged, "", " ")
	}
	if err != nil {
		x.end(t)
		t.Fatalf("Prepare of epoch %d: %v (%.200q)", p.Epoch, err, staged)
	}
	secrets(x.suite.Secrets).check(t, "what Prepare returned", string(staged))
	return kept.Bytes()
}

func (x *session) publish(t testing.TB, p record.Progress, staged json.RawMessage) {
	t.Helper()
	if err := x.phases(t).Publish(deadline(t), p, staged); err != nil {
		secrets(x.suite.Secrets).err(t, err)
		x.end(t)
		t.Fatalf("Publish of epoch %d: %v", p.Epoch, err)
	}
}

func (x *session) abort(t testing.TB, when string) {
	t.Helper()
	if err := x.phases(t).Abort(deadline(t)); err != nil {
		secrets(x.suite.Secrets).err(t, err)
		x.end(t)
		t.Fatalf("Abort %s: %v", when, err)
	}
}

// epoch prepares and publishes, as the engine does.
func (x *session) epoch(ctx context.Context, p record.Progress) error {
	two, ok := connector.As[connector.TwoPhase](x.snk)
	if !ok {
		return errors.New("the sink is not TwoPhase")
	}
	if p.Epoch == 0 { // the next one
		last, found, err := two.Committed(ctx)
		if err != nil {
			return err //nolint:wrapcheck // the sink's own words are under test
		}
		if p.Epoch = 1; found && last.Run == p.Run {
			p.Epoch = last.Epoch + 1
		}
	}
	staged, err := two.Prepare(ctx, p)
	if err != nil {
		return err //nolint:wrapcheck // the sink's own words are under test
	}
	return two.Publish(ctx, p, staged) //nolint:wrapcheck // the sink's own words are under test
}

// looks runs a check of the target while a sink is open, where that is possible.
func (s *sinkSuite) looks(check func()) {
	if !s.OneOwner {
		check()
	}
}

// clean: nothing is left that was staged.
func clean(t testing.TB, target Target, when string) {
	t.Helper()
	if target.Leftovers == nil {
		return
	}
	if left := target.Leftovers(t); len(left) > 0 {
		t.Errorf("%s there are leftovers: %q", when, left)
	}
}

// batches returns batches of one dataset that follow on each other.
func batches(n, rows int) []*record.Batch {
	out := make([]*record.Batch, n)
	for i := range out {
		out[i] = Numbered("one", i*rows, rows)
		out[i].Schema = out[0].Schema
	}
	return out
}

// prepared: it shows nowhere, and outlives a value that is closed without a decision, and one that only looks.
func (s *sinkSuite) prepared(t testing.TB) {
	target := s.New(t)
	req := request(s.contract.Modes[0])
	b := batches(2, 1_000)
	x := s.start(t, target, req)
	x.write(t, b...)
	staged := x.prepare(t, epochAt(1))
	s.looks(func() { lacks(t, target, "prepared", b[0].Schema) })
	committed(t, x, "after Prepare", nil)
	x.end(t)
	lacks(t, target, "prepared, and closed without a decision", b[0].Schema)

	req.Fence++
	x = s.start(t, target, req)
	committed(t, x, "read by another value while an epoch is prepared", nil)
	x.end(t)
	req.Fence++
	x = s.start(t, target, req)
	x.publish(t, epochAt(1), staged)
	x.end(t)
	holds(t, target, "an epoch that two values did not decide about", b[0].Schema, b...)
	clean(t, target, "after it was published")
}

// published: once, however often it is said, also when others came after it.
func (s *sinkSuite) published(t testing.TB) {
	target := s.New(t)
	req := request(s.contract.Modes[0])
	b := batches(3, 10)
	schema := b[0].Schema
	x := s.start(t, target, req)
	x.write(t, b[0])
	first := x.prepare(t, epochAt(1))
	x.publish(t, epochAt(1), first)
	s.looks(func() { holds(t, target, "published", schema, b[0]) })
	x.publish(t, epochAt(1), first)
	s.looks(func() { holds(t, target, "published twice", schema, b[0]) })
	x.write(t, b[1])
	second := x.prepare(t, epochAt(2))
	x.publish(t, epochAt(2), second)
	x.publish(t, epochAt(1), first)
	two := epochAt(2)
	committed(t, x, "after an older epoch was published again", &two)
	x.end(t)
	holds(t, target, "two epochs", schema, b[:2]...)
	for range 2 {
		req.Fence++
		x = s.start(t, target, req)
		x.publish(t, epochAt(2), second)
		committed(t, x, "after another value published it again", &two)
		x.end(t)
		holds(t, target, "published again by another value", schema, b[:2]...)
	}
	clean(t, target, "after epochs were published again")
	x = s.start(t, target, req)
	x.write(t, b[2])
	if err := x.epoch(deadline(t), epochAt(3)); err != nil {
		t.Errorf("the epoch behind: %v", err)
	}
	x.end(t)
	holds(t, target, "three epochs", schema, b...)
}

// anotherPublishes: all that a value in another process needs is what Prepare returned.
func (s *sinkSuite) anotherPublishes(t testing.TB) {
	target := s.New(t)
	req := request(s.contract.Modes[0])
	b := batches(3, 100)
	x := s.start(t, target, req)
	x.write(t, b[0])
	if err := x.epoch(deadline(t), epochAt(1)); err != nil {
		t.Errorf("the first epoch: %v", err)
	}
	x.write(t, b[1])
	staged := x.prepare(t, epochAt(2))
	x.end(t)
	holds(t, target, "one epoch is published and one prepared", b[0].Schema, b[0])

	req.Fence += 7
	x = s.start(t, target, req)
	one, two := epochAt(1), epochAt(2)
	committed(t, x, "before it publishes", &one)
	x.publish(t, two, staged)
	committed(t, x, "after it published", &two)
	s.looks(func() { holds(t, target, "published by another value", b[0].Schema, b[:2]...) })
	x.write(t, b[2]) // it goes on itself
	if err := x.epoch(deadline(t), epochAt(3)); err != nil {
		t.Errorf("an epoch behind one that another value had prepared: %v", err)
	}
	x.end(t)
	holds(t, target, "three epochs of two values", b[0].Schema, b...)
	clean(t, target, "after another value published")
}

// aborted: nothing of it is left, what is published stays, and the next epoch is as if it had not been.
func (s *sinkSuite) aborted(t testing.TB) {
	target := s.New(t)
	req := request(s.contract.Modes[0])
	b := batches(4, 100)
	schema := b[0].Schema
	x := s.start(t, target, req)
	for range 2 {
		x.abort(t, "right after the first Start")
	}
	x.write(t, b[0])
	if err := x.epoch(deadline(t), epochAt(1)); err != nil {
		t.Errorf("an epoch after Abort: %v", err)
	}
	x.abort(t, "behind an epoch that is published")
	x.write(t, b[1])
	for range 2 {
		x.abort(t, "of what was only written")
	}
	clean(t, target, "after an Abort of what was only written")
	x.write(t, b[2])
	x.prepare(t, epochAt(2))
	for range 2 {
		x.abort(t, "of what was prepared")
	}
	clean(t, target, "after an Abort of what was prepared")
	one := epochAt(1)
	committed(t, x, "after Abort", &one)
	x.write(t, b[3])
	if err := x.epoch(deadline(t), epochAt(3)); err != nil {
		t.Errorf("an epoch behind one that was aborted: %v", err)
	}
	x.end(t)
	holds(t, target, "two epochs around two that were aborted", schema, b[0], b[3])
	s.abortedByAnother(t, target, req, b)
}

// abortedByAnother: a value that was closed leaves an epoch, prepared or only written, and the next one aborts right after Start.
func (s *sinkSuite) abortedByAnother(t testing.TB, target Target, req connector.SinkStart, b []*record.Batch) {
	t.Helper()
	for _, when := range []string{"written", "prepared"} {
		x := s.start(t, target, req)
		x.write(t, b[1])
		if when == "prepared" {
			x.prepare(t, epochAt(4))
		}
		x.end(t)
		req.Fence++
		x = s.start(t, target, req)
		for range 2 {
			x.abort(t, "of what another value had "+when)
		}
		three := epochAt(3)
		committed(t, x, "after Abort by another value", &three)
		x.end(t)
		holds(t, target, "after an Abort of what another value had "+when, b[0].Schema, b[0], b[3])
		clean(t, target, "after an Abort of what another value had "+when)
	}
	x := s.start(t, target, req)
	x.write(t, b[2])
	if err := x.epoch(deadline(t), epochAt(4)); err != nil {
		t.Errorf("going on after Abort by another value: %v", err)
	}
	x.end(t)
	holds(t, target, "going on after aborts", b[0].Schema, b[0], b[3], b[2])
}

// fencedEpochs: an owner that another one has followed publishes nothing and aborts nothing.
func (s *sinkSuite) fencedEpochs(t testing.TB) {
	if s.OneOwner {
		return // no two are open; that a late Start is refused is proven for all
	}
	target := s.New(t)
	b := batches(3, 10)
	old, late := request(s.contract.Modes[0]), request(s.contract.Modes[0])
	late.Fence = old.Fence + 1
	first := s.start(t, target, old)
	first.write(t, b[0])
	staged := first.prepare(t, epochAt(1))
	idle := s.start(t, target, old)
	second := s.start(t, target, late)
	if err := first.phases(t).Publish(deadline(t), epochAt(1), staged); connector.ClassOf(err) != connector.ClassFenced {
		t.Errorf("an owner that was followed publishes: %v: want an error of class fenced", err)
	}
	lacks(t, target, "an owner that was followed published", b[0].Schema)
	for _, x := range []*session{first, idle} {
		if err := x.phases(t).Abort(deadline(t)); connector.ClassOf(err) != connector.ClassFenced {
			t.Errorf("an owner that was followed aborts: %v: want an error of class fenced", err)
		}
	}
	second.publish(t, epochAt(1), staged)
	holds(t, target, "prepared by the owner before, and published by the next one", b[0].Schema, b[0])
	second.write(t, b[1])
	next := second.prepare(t, epochAt(2))
	first.end(t)
	idle.end(t)
	second.publish(t, epochAt(2), next)
	second.end(t)
	holds(t, target, "behind owners that were followed", b[0].Schema, b[:2]...)
	clean(t, target, "behind owners that were followed")
}

// epochProgress: it comes back byte for byte, each part of it, also where that is empty.
func (s *sinkSuite) epochProgress(t testing.TB) {
	target := s.New(t)
	req := request(s.contract.Modes[0])
	bare := record.Progress{Run: "r1", Position: record.Position{Data: json.RawMessage(`"text"`)}, Epoch: 2}
	done := epochAt(3)
	done.Done, done.Ledger = true, nil
	spaced := epochAt(4)
	spaced.Position.Data = json.RawMessage(`{ "b":1.10,  "a": "<&>" , "big":9007199254740993}`)
	other := record.Progress{Run: "r2", Position: record.Position{Shape: 1, Data: json.RawMessage("1")}, Epoch: 1, Item: 1<<63 + 1}
	for _, p := range []record.Progress{epochAt(1), bare, done, spaced, other} {
		req.Run = p.Run
		x := s.start(t, target, req)
		x.write(t, Numbered("one", int(p.Epoch), 1))
		staged := x.prepare(t, p)
		x.publish(t, p, staged)
		committed(t, x, fmt.Sprintf("by the value that published epoch %d", p.Epoch), &p)
		x.end(t)
		req.Fence++
		x = s.start(t, target, req)
		committed(t, x, fmt.Sprintf("by another value, behind epoch %d", p.Epoch), &p)
		x.end(t)
	}
}

// emptyEpochs: progress moves without rows, as often as there is need to, and leaves nothing.
func (s *sinkSuite) emptyEpochs(t testing.TB) {
	target := s.New(t)
	req := request(s.contract.Modes[0])
	b := batches(2, 10)
	x := s.start(t, target, req)
	const many = 20
	for n := 1; n <= many; n++ {
		if err := x.epoch(deadline(t), epochAt(n)); err != nil {
			t.Errorf("an epoch without rows: %v", err)
		}
	}
	clean(t, target, "after epochs without rows")
	x.write(t, b[0])
	if err := x.epoch(deadline(t), epochAt(many+1)); err != nil {
		t.Errorf("an epoch behind empty ones: %v", err)
	}
	last := epochAt(many + 2)
	staged := x.prepare(t, last)
	x.end(t)
	req.Fence++
	x = s.start(t, target, req)
	before := epochAt(many + 1)
	committed(t, x, "while an epoch without rows is prepared", &before)
	x.publish(t, last, staged)
	x.publish(t, last, staged)
	committed(t, x, "after an epoch without rows", &last)
	x.write(t, b[1])
	if err := x.epoch(deadline(t), epochAt(many+3)); err != nil {
		t.Errorf("an epoch behind an empty one: %v", err)
	}
	x.end(t)
	holds(t, target, "epochs with and without rows", b[0].Schema, b...)
	clean(t, target, "after epochs with and without rows")
}

// manyDatasets: an epoch is one over all of its datasets.
func (s *sinkSuite) manyDatasets(t testing.TB) {
	if s.OneDataset {
		return
	}
	target := s.New(t)
	req := request(s.contract.Modes[0])
	x := s.start(t, target, req)
	all := make([]*record.Batch, 5)
	for i := range all {
		all[i] = Numbered(fmt.Sprintf("d%d", i), 0, i+1)
	}
	x.write(t, all...)
	staged := x.prepare(t, epochAt(1))
	for _, b := range all {
		s.looks(func() { lacks(t, target, "prepared", b.Schema) })
	}
	x.publish(t, epochAt(1), staged)
	x.write(t, all[:3]...)
	x.abort(t, "of datasets that have published rows")
	x.end(t)
	for _, b := range all {
		holds(t, target, "published with others", b.Schema, b)
	}
	clean(t, target, "after an epoch of many datasets")
}

// reader is what reads back progress: a position store, or a sink that publishes epochs.
type reader interface {
	Committed(ctx context.Context) (record.Progress, bool, error)
}

func committed(t testing.TB, x *session, when string, want *record.Progress) {
	t.Helper()
	r, ok := connector.As[reader](x.snk)
	if !ok {
		t.Fatalf("the sink reads back no progress")
	}
	got, found, err := r.Committed(deadline(t))
	switch {
	case err != nil:
		t.Errorf("Committed, %s: %v", when, err)
	case found != (want != nil):
		t.Errorf("Committed, %s: found is %v, with %+v", when, found, got)
	case want != nil && !cmp.Equal(*want, got):
		t.Errorf("Committed, %s (-want +got):\n%s", when, cmp.Diff(*want, got))
	}
}

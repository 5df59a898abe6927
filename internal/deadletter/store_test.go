package deadletter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/deadletter"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
)

func open(t *testing.T, path string) *deadletter.Store {
	t.Helper()
	s := deadletter.New(path)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func letters(t *testing.T, s *deadletter.Store, f deadletter.Filter) []deadletter.Letter {
	t.Helper()
	var out []deadletter.Letter
	err := s.Each(t.Context(), f, func(l deadletter.Letter) error {
		out = append(out, l)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func keep(t *testing.T, s *deadletter.Store, rows ...engine.Rejected) {
	t.Helper()
	if err := errors.Join(s.Append(t.Context(), rows), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// bad is letter n of a sink.
func bad(n int, epoch uint64) engine.Rejected {
	return engine.Rejected{
		Pipeline: "p", Run: "r", Sink: "s", Epoch: epoch, Time: time.UnixMicro(int64(n)).UTC(),
		Reject: record.Reject{
			Dataset: "d", Key: json.RawMessage(fmt.Sprintf(`{"id":%d}`, n)), Class: "bad_value", Message: "no", Raw: fmt.Appendf(nil, "row %d", n),
		},
	}
}

// clause E13: a letter carries all that was said of the row, over a restart.
func TestLetterKeepsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "dead.db")
	s := open(t, path)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a file was made for nothing: %v", err)
	}
	want := engine.Rejected{
		Pipeline: "p", Run: "r", Sink: "s", Attempt: 9, Epoch: 7, Position: record.Position{Shape: 3, Data: json.RawMessage(`{"at": 1.50}`)},
		Time: time.UnixMicro(1_700_000_000_123_456).UTC(),
		Reject: record.Reject{
			Dataset: `a."b c"`, Line: 12, Offset: 345, Key: json.RawMessage(`{"id":1}`), Column: "c\x00d", Value: "ü", Class: "refused_by_sink",
			Code: "23514", Message: "new\nline", Raw: []byte{0xff, 0, '\n'}, Op: record.Update, Before: json.RawMessage(`{"id":0}`), Step: 2,
		},
	}
	keep(t, s, want)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: rows are nobody else's business", info.Mode(), err)
	}
	got := letters(t, open(t, path), deadletter.Filter{})
	if len(got) != 1 {
		t.Fatalf("%d letters", len(got))
	}
	if diff := cmp.Diff(want, got[0].Rejected); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if l := got[0]; l.Times != 1 || !l.First.Equal(want.Time) || len(l.ID) != 32 {
		t.Errorf("times %d, first %v, id %q", l.Times, l.First, l.ID)
	}
}

// clause E13: the row of a letter comes back exactly, whatever its types.
func TestRowsOfAllTypesComeBack(t *testing.T) {
	var fields []arrow.Field
	s := open(t, filepath.Join(t.TempDir(), "dead.db"))
	for _, c := range connectortest.Cases() {
		b := connectortest.Batch("all", c)
		fields = append(fields, b.Schema.Columns.Fields()...)
		for i := range b.NumRows() {
			r := b.Reject(i)
			r.Line, r.Class = int64(i+1), "bad_value"
			keep(t, s, engine.Rejected{Pipeline: c.Name, Reject: r})
		}
		got := letters(t, s, deadletter.Filter{Pipeline: c.Name})
		if len(got) != b.NumRows() {
			t.Fatalf("%s: %d letters of %d rows", c.Name, len(got), b.NumRows())
		}
		want := connectortest.Rows(b)
		for i, l := range got {
			back, err := l.Batch()
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			if !back.Schema.Columns.Equal(b.Schema.Columns) || !cmp.Equal(back.Schema.Key, b.Schema.Key) {
				t.Errorf("%s: schema %v became %v", c.Name, b.Schema, back.Schema)
			}
			if rows := connectortest.Rows(back); rows[0] != want[i] {
				t.Errorf("%s: %s became %s", c.Name, want[i], rows[0])
			}
		}
	}
	if len(fields) < 20 {
		t.Errorf("only %d types were tried", len(fields))
	}
}

func count(t *testing.T, s *deadletter.Store, f deadletter.Filter) (n, times int) {
	t.Helper()
	for _, l := range letters(t, s, f) {
		n, times = n+1, times+int(l.Times)
	}
	return n, times
}

// clause E13: what comes again is counted, not doubled, where the sink counts no commits.
func TestSameLetterIsCounted(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "dead.db"))
	keep(t, s, bad(1, 0), bad(2, 0))
	keep(t, s, bad(2, 0), bad(3, 0))
	if n, times := count(t, s, deadletter.Filter{}); n != 3 || times != 4 {
		t.Errorf("%d letters that came %d times, want 3 and 4", n, times)
	}
	for _, other := range []func(r *engine.Rejected){
		func(r *engine.Rejected) { r.Run = "r2" },
		func(r *engine.Rejected) { r.Sink = "s2" },
		func(r *engine.Rejected) { r.Dataset = "d2" },
		func(r *engine.Rejected) { r.Line = 5 },
		func(r *engine.Rejected) { r.Class = "other" },
		func(r *engine.Rejected) { r.Column = "other" },
		func(r *engine.Rejected) { r.Raw = []byte("other") },
		func(r *engine.Rejected) { r.Op = record.Delete },
	} {
		r := bad(1, 0)
		other(&r)
		keep(t, s, r)
	}
	if n, _ := count(t, s, deadletter.Filter{}); n != 3+8 {
		t.Errorf("%d letters, want 11: each differs in one thing", n)
	}
	// Rows that nothing tells apart are the same row, unless they stand elsewhere.
	r := bad(1, 0)
	r.Key = nil
	keep(t, s, r, r)
	r.Position = record.Position{Shape: 1, Data: json.RawMessage("9")}
	keep(t, s, r)
	if n, _ := count(t, s, deadletter.Filter{}); n != 13 {
		t.Errorf("%d letters, want 13", n)
	}
}

// clause E13: where the sink counts its commits, each bad row is exactly one letter: those of epochs that were not committed go, as
// their rows come again, and rows that are alike are different letters.
func TestForget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead.db")
	s := open(t, path)
	keep(t, s, bad(1, 1), bad(1, 1), bad(2, 2))
	other := bad(3, 9)
	other.Sink = "other"
	keep(t, s, other)
	if err := s.Append(t.Context(), []engine.Rejected{bad(4, 3)}); err != nil { // not flushed
		t.Fatal(err)
	}
	ids := letters(t, s, deadletter.Filter{})
	if err := s.Forget(t.Context(), "p", "r", "s", 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, times := count(t, s, deadletter.Filter{}); n != 3 || times != 3 {
		t.Errorf("%d letters that came %d times, want two of epoch 1 and one of the other sink", n, times)
	}
	keep(t, s, bad(2, 2), bad(4, 3))
	again := letters(t, s, deadletter.Filter{})
	if len(again) != 5 || again[3].ID != ids[2].ID {
		t.Errorf("%d letters; the row that came again has id %s, was %s", len(again), again[3].ID, ids[2].ID)
	}
	if err := s.Forget(t.Context(), "p", "other run", "s", 0); err != nil {
		t.Fatal(err)
	}
	if n, _ := count(t, s, deadletter.Filter{}); n != 5 {
		t.Errorf("%d letters: those of this run were forgotten with another", n)
	}
}

func TestListAndDrop(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "dead.db"))
	if groups, err := s.List(t.Context(), deadletter.Filter{}); err != nil || groups != nil {
		t.Errorf("without a file: %v, %v", groups, err)
	}
	unread := bad(1, 0)
	unread.Sink, unread.Class = "", "bad_syntax"
	keep(t, s, bad(1, 0), bad(2, 0), bad(2, 0), unread)
	got, err := s.List(t.Context(), deadletter.Filter{Pipeline: "p"})
	if err != nil {
		t.Fatal(err)
	}
	want := []deadletter.Group{
		{Pipeline: "p", Dataset: "d", Class: "bad_syntax", Letters: 1, First: time.UnixMicro(1).UTC(), Last: time.UnixMicro(1).UTC()},
		{Pipeline: "p", Sink: "s", Dataset: "d", Class: "bad_value", Letters: 2, First: time.UnixMicro(1).UTC(), Last: time.UnixMicro(2).UTC()},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	id := letters(t, s, deadletter.Filter{Class: "bad_syntax"})[0].ID
	if n, err := s.Drop(t.Context(), deadletter.Filter{IDs: []string{id[:deadletter.ShortID]}}); err != nil || n != 1 {
		t.Errorf("dropped %d, %v", n, err)
	}
	if _, err := s.Drop(t.Context(), deadletter.Filter{IDs: []string{"x' or 1"}}); err == nil {
		t.Error("what is no id was taken")
	}
	reader, sink := "", "s"
	if n, _ := count(t, s, deadletter.Filter{Sink: &reader}); n != 0 {
		t.Errorf("%d letters of the reader are left", n)
	}
	if n, _ := count(t, s, deadletter.Filter{Sink: &sink, Limit: 1}); n != 1 {
		t.Errorf("%d letters, want the limit", n)
	}
}

// Many letters do not need much memory, and several processes may use the file.
func TestManyAndConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead.db")
	a, b := open(t, path), open(t, path)
	const each = 5000
	write := func(s *deadletter.Store, run string) error {
		for i := range each {
			r := bad(i, 0)
			r.Run = run
			if err := s.Append(context.WithoutCancel(t.Context()), []engine.Rejected{r}); err != nil {
				return err
			}
		}
		return s.Flush(context.WithoutCancel(t.Context()))
	}
	done := make(chan error, 2)
	go func() { done <- write(a, "a") }()
	go func() { done <- write(b, "b") }()
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	if n, _ := count(t, a, deadletter.Filter{}); n != 2*each {
		t.Errorf("%d letters, want %d", n, 2*each)
	}
}

func TestStrangeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead.db")
	if err := os.WriteFile(path, []byte("this is no database, however long it may be"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path).Append(t.Context(), []engine.Rejected{bad(1, 0)}); err == nil {
		t.Error("letters went into a strange file")
	}
}

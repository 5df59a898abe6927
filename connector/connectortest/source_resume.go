package connectortest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// maxResumes bounds how many positions of one read are tried: beyond it they are picked evenly.
const maxResumes = 60

// resume proves clauses S7, S8: a resume from every position that was delivered, those of empty batches included, delivers exactly what
// follows.
func (s *sourceSuite) resume(t testing.TB) {
	if s.contract.Replay == connector.NoReplay {
		return
	}
	for _, n := range []int{1, 2, 1_000} {
		h := s.all(t, n)
		step := max(1, len(h.marks)/maxResumes)
		for i := 0; i < len(h.marks); i += step {
			s.resumeAt(t, h, h.marks[i], []int{1_000, 3, 1}[i%3])
		}
		if len(h.marks) > 0 {
			s.resumeAt(t, h, h.marks[len(h.marks)-1], 5)
		}
	}
}

func (s *sourceSuite) resumeAt(t testing.TB, h *history, m mark, size int) {
	t.Helper()
	ctx := deadline(t)
	g := s.start(t, ctx, m.position)
	defer g.end(t)
	follow := h.rows[m.rows:]
	got := g.drain(t, ctx, rowLimit(size), len(follow))
	if s.follows(got.rows, follow) {
		return
	}
	t.Errorf("a resume from %s, which covers %d of %d rows, did not deliver what follows (-want +got):\n%s",
		m.position, m.rows, len(h.rows), cmp.Diff(follow, got.rows))
}

// follows: exactly what follows, or, where the contract promises less, all of it at the end.
func (s *sourceSuite) follows(got, want []string) bool {
	if s.contract.Replay == connector.Deterministic {
		return s.sameOrder(want, got)
	}
	return len(got) >= len(want) && cmp.Equal(append([]string{}, want...), append([]string{}, got[len(got)-len(want):]...))
}

// randomResume reads in pieces of random size, each by a generation of its own that is closed in the middle, and joins what the
// positions cover: the whole, with nothing twice.
func (s *sourceSuite) randomResume(t testing.TB) {
	if s.contract.Replay != connector.Deterministic {
		return
	}
	want := s.all(t, 1_000).rows
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's choices
		var rows []string
		at, done := record.Position{}, false
		for tries := 0; !done && tries < 10*len(want)+10; tries++ {
			var covered []string
			covered, at, done = s.piece(t, r, at, len(want)-len(rows))
			rows = append(rows, covered...)
		}
		if !s.sameOrder(want, rows) {
			t.Errorf("seed %d: what random generations covered differs from one read (-want +got):\n%s", seed,
				cmp.Diff(s.sortedRows(want), s.sortedRows(rows)))
		}
	}
}

// piece lets one generation read a few batches and returns the rows that its last position covers.
func (s *sourceSuite) piece(t testing.TB, r *rand.Rand, at record.Position, left int) (rows []string, next record.Position, done bool) {
	t.Helper()
	ctx := deadline(t)
	g := s.start(t, ctx, at)
	defer g.end(t)
	h := new(history)
	for range 1 + r.IntN(6) {
		b, err := g.read(t, ctx, connector.Limit{Rows: 1 + r.IntN(1+left), Bytes: 1 << (4 + r.IntN(20))})
		if errors.Is(err, io.EOF) {
			done = true
			break
		}
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		if b == nil {
			g.idle(t, ctx)
			continue
		}
		h.add(b)
	}
	if len(h.marks) == 0 {
		return nil, at, done
	}
	last := h.marks[len(h.marks)-1]
	done = done || (!s.contract.Bounded && last.rows >= left)
	return h.rows[:last.rows], last.position, done
}

// cuts: a batch ends exactly at each cut that lies ahead, whatever size is wanted.
func (s *sourceSuite) cuts(t testing.TB) {
	if s.contract.Replay != connector.Deterministic {
		return
	}
	fine := s.all(t, 1)
	for _, n := range []int{1_000, 4, 0} {
		if n == 0 && !s.contract.Bounded {
			continue
		}
		for _, at := range [][]int{{1}, {0, 2}, {len(fine.marks) / 2, len(fine.marks) - 2}} {
			var cuts []record.Position
			ends := map[int]bool{}
			for _, i := range at {
				if i >= 0 && i < len(fine.marks) {
					cuts = append(cuts, fine.marks[i].position)
					ends[fine.marks[i].rows] = true
				}
			}
			ctx := deadline(t)
			g := s.start(t, ctx, record.Position{}, cuts...)
			h := g.drain(t, ctx, rowLimit(n), s.total())
			g.end(t)
			s.sameRows(t, "with cuts", h)
			for _, m := range h.marks {
				if ends[m.rows] && !s.sameOrder(fine.rows[:m.rows], h.rows[:m.rows]) {
					t.Errorf("%d rows wanted at a time: at a cut behind %d rows others had come (-want +got):\n%s", n, m.rows,
						cmp.Diff(fine.rows[:m.rows], h.rows[:m.rows]))
				}
				delete(ends, m.rows)
			}
			for rows := range ends {
				t.Errorf("a cut behind %d rows, %d rows wanted at a time: no batch ended there", rows, n)
			}
		}
	}
}

// positions proves clause S14, and that the order is the order of delivery.
func (s *sourceSuite) positions(t testing.TB) {
	g := s.open(t)
	defer g.end(t)
	pos, ok := connector.As[connector.Positions](g.src)
	if !ok || s.contract.Replay == connector.NoReplay {
		return
	}
	marks := s.all(t, 1).marks
	step := max(1, len(marks)/maxResumes)
	for i := 0; i < len(marks); i += step {
		p := marks[i].position
		if q, err := pos.Migrate(p); err != nil || !q.Equal(p) {
			t.Errorf("Migrate of the delivered position %s returned %s, %v", p, q, err)
		}
		for j := 0; j < len(marks); j += step {
			got, ok := pos.Compare(p, marks[j].position)
			want := 0
			switch {
			case p.Equal(marks[j].position):
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			if !ok || got != want {
				t.Errorf("Compare(%s, %s) = %d, %v: the order of delivery says %d", p, marks[j].position, got, ok, want)
			}
		}
	}
	if len(marks) == 0 {
		return
	}
	for what, p := range strangers(marks[0].position) {
		if _, err := pos.Migrate(p); connector.ClassOf(err) != connector.ClassPosition {
			t.Errorf("Migrate of %s returned %v: want an error of class position", what, err)
		}
	}
	if n := g.env.roundtrips(); n > 0 {
		t.Errorf("Compare and Migrate made %d round trips: they are pure", n)
	}
}

// strangers are positions that no source may resume from.
func strangers(p record.Position) map[string]record.Position {
	return map[string]record.Position{
		"a newer shape":              {Shape: p.Shape + 1_000, Data: p.Data},
		"another source's position":  {Shape: p.Shape, Data: []byte(`{"connectortest":"another source","at":1}`)},
		"a position that is a text":  {Shape: p.Shape, Data: []byte(`"connectortest"`)},
		"a position that is nothing": {Shape: p.Shape, Data: []byte(`{}`)},
	}
}

// refuse proves clauses S1, S14: a position that can't be resumed from is refused by Start, and the failed Start leaves nothing.
func (s *sourceSuite) refuse(t testing.TB) {
	if s.contract.Replay == connector.NoReplay {
		return
	}
	marks := s.all(t, 1_000).marks
	if len(marks) == 0 {
		return
	}
	for what, p := range strangers(marks[0].position) {
		cfg := s.New(t) // what it starts is no leak of the source
		before := s.activity(t)
		check := leaks(t)
		g := s.openConfig(t, cfg)
		err := g.src.Start(deadline(t), s.request(p))
		secrets(s.Secrets).err(t, err)
		if connector.ClassOf(err) != connector.ClassPosition {
			t.Errorf("Start at %s returned %v: want an error of class position", what, err)
		}
		g.end(t)
		check()
		if after := s.activity(t); after > before {
			t.Errorf("after a failed Start %d things are open outside, before it were %d", after, before)
		}
	}
}

func (s *sourceSuite) activity(t testing.TB) int {
	if s.Activity == nil {
		return 0
	}
	return s.Activity(t)
}

// cancel proves clause S9: a read that was cancelled, before it began or in its middle, loses nothing.
func (s *sourceSuite) cancel(t testing.TB) {
	if s.contract.Replay != connector.Deterministic && !s.contract.CancelSafe {
		return
	}
	whole := s.all(t, 1_000)
	for _, checks := range []int{0, 1, 2, 3, 5, 8, 13} {
		h := new(history)
		ctx := deadline(t)
		g := s.start(t, ctx, record.Position{})
		if first, err := g.read(t, ctx, connector.Limit{Rows: 2}); err == nil && first != nil {
			h.add(first)
		}
		before := len(h.marks)
		b, err := g.read(t, newCountdown(ctx, checks), connector.Limit{Rows: 3})
		if b != nil {
			h.add(b)
		}
		if err == nil || s.contract.CancelSafe {
			rest := g.drain(t, ctx, rowLimit(1_000), len(whole.rows)-len(h.rows))
			h.rows = append(h.rows, rest.rows...)
			g.end(t)
			if !s.sameOrder(whole.rows, h.rows) {
				t.Errorf("after a cancelled Read the value went on, and rows differ (-want +got):\n%s", cmp.Diff(whole.rows, h.rows))
			}
			continue
		}
		g.end(t)
		if !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) {
			t.Errorf("a cancelled Read returned %v: want the context's error, wrapped", err)
		}
		if before > 0 {
			s.resumeAt(t, whole, h.marks[before-1], 1_000)
		}
	}
}

// countdown is a context that is cancelled when it is asked for the n-th time: a cancellation in the middle of a call, without
// clocks.
type countdown struct {
	context.Context //nolint:containedctx // it is a context

	mu   sync.Mutex
	left int
	stop context.CancelFunc
}

func newCountdown(ctx context.Context, checks int) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	c := &countdown{Context: ctx, left: checks, stop: cancel}
	if checks == 0 {
		cancel()
	}
	return c
}

func (c *countdown) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left <= 0 {
		c.stop()
	}
}

func (c *countdown) Done() <-chan struct{} {
	c.tick()
	return c.Context.Done()
}

func (c *countdown) Err() error {
	c.tick()
	return c.Context.Err() //nolint:wrapcheck // a context's own error
}

// close proves clause S12: at every stage, twice, and nothing runs on.
func (s *sourceSuite) close(t testing.TB) {
	stages := []struct {
		name string
		do   func(ctx context.Context, g *generation)
	}{
		{"Open", func(context.Context, *generation) {}},
		{"Start", func(ctx context.Context, g *generation) { s.mustStart(t, ctx, g) }},
		{"a first Read", func(ctx context.Context, g *generation) {
			s.mustStart(t, ctx, g)
			if _, err := g.read(t, ctx, connector.Limit{Rows: 1}); err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("Read: %v", err)
			}
		}},
		{"a Start that was cancelled", func(ctx context.Context, g *generation) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			secrets(s.Secrets).err(t, g.src.Start(ctx, s.request(record.Position{})))
		}},
	}
	for _, stage := range stages {
		cfg := s.New(t)
		before := s.activity(t)
		check := leaks(t)
		g := s.openConfig(t, cfg)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		stage.do(ctx, g)
		g.end(t)
		cancel()
		check()
		if after := s.activity(t); after > before {
			t.Errorf("closed after %s, %d things are open outside, before it were %d", stage.name, after, before)
		}
		if b, err := g.src.Read(deadline(t), connector.Limit{Rows: 1}); b != nil || err == nil {
			t.Errorf("Read after Close (after %s) returned %v, %v: want an error", stage.name, b, err)
		}
	}
}

func (s *sourceSuite) mustStart(t testing.TB, ctx context.Context, g *generation) {
	t.Helper()
	if err := g.src.Start(ctx, s.request(record.Position{})); err != nil {
		t.Errorf("Start: %v", err)
	}
}

// unreachable: the error has a class and a code, comes in time and tells no secret.
func (s *sourceSuite) unreachable(t testing.TB) {
	cfg := s.Unreachable(t)
	check := leaks(t)
	g := s.openConfig(t, cfg)
	err := g.src.Start(deadline(t), s.request(record.Position{}))
	if err == nil { // a source may look only when it reads
		_, err = g.src.Read(deadline(t), connector.Limit{Rows: 1})
	}
	g.end(t)
	check()
	checkFailure(t, s.Secrets, err)
}

// checkFailure: what a person will read when a system can't be reached.
func checkFailure(t testing.TB, hidden secrets, err error) {
	t.Helper()
	hidden.err(t, err)
	var e *connector.Error
	switch {
	case err == nil || errors.Is(err, io.EOF):
		t.Errorf("a system that can't be reached gives no error: %v", err)
	case !errors.As(err, &e):
		t.Errorf("the error is no *connector.Error: %v", err)
	case connector.ClassOf(err) == connector.ClassUnknown:
		t.Errorf("the error has no class: %v", err)
	case e.Code == "" || connector.HintOf(err) == "":
		t.Errorf("the error has code %q and hint %q: want both: %v", e.Code, connector.HintOf(err), err)
	case strings.Contains(err.Error(), "\n"):
		t.Errorf("the message is more than one line: %q", err.Error())
	}
}

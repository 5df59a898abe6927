package chunked_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/chunked"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// fake is a Snapshotter over numbers: dataset d has the keys 1 to rows[d]. A chunk has target rows and comes in batches of three.
type fake struct {
	rows  map[string]int
	delay func(key int) time.Duration
	fail  map[int]error // by the first key of a chunk

	mu           sync.Mutex
	open, widest int
}

func (f *fake) PlanChunks(ctx context.Context, dataset string, after []byte, target int64) connector.ChunkSeq {
	return f.PlanChunksTo(ctx, dataset, after, nil, target)
}

func (f *fake) PlanChunksTo(_ context.Context, dataset string, after, to []byte, target int64) connector.ChunkSeq {
	return func(yield func(record.Chunk, error) bool) {
		from, end := number(after, 0), number(to, f.rows[dataset])
		for {
			next := from + int(target)
			c := record.Chunk{Dataset: dataset, From: after, To: to}
			if next < end {
				c.To = json.RawMessage(strconv.Itoa(next))
			}
			if !yield(c, nil) || next >= end {
				return
			}
			from, after = next, c.To
		}
	}
}

func number(key []byte, none int) int {
	if key == nil {
		return none
	}
	n, err := strconv.Atoi(string(key))
	if err != nil {
		panic(err)
	}
	return n
}

func (f *fake) ReadChunk(ctx context.Context, c record.Chunk, emit func(*record.Batch) error) error {
	f.count(1)
	defer f.count(-1)
	from, to := number(c.From, 0), number(c.To, f.rows[c.Dataset])
	if err := f.fail[from]; err != nil {
		return err
	}
	for from < to {
		if f.delay != nil {
			select {
			case <-time.After(f.delay(from)):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		n := min(3, to-from)
		if err := emit(connectortest.Numbered(c.Dataset, from+1, n)); err != nil {
			return err
		}
		from += n
	}
	return nil
}

func (f *fake) count(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open += n
	f.widest = max(f.widest, f.open)
}

func (f *fake) datasets() []chunked.Dataset {
	var out []chunked.Dataset
	for name := range f.rows {
		out = append(out, chunked.Dataset{Name: name, Schema: connectortest.Numbered(name, 0, 0).Schema})
	}
	return out
}

// environment runs goroutines untracked: Close waits for them itself.
func environment(t testing.TB) connector.Env {
	t.Helper()
	env := connectortest.Env(t)
	env.Go = func(f func(context.Context)) error {
		go f(context.WithoutCancel(t.Context()))
		return nil
	}
	return env
}

// sighting is a position and how many rows came up to it.
type sighting struct {
	position record.Position
	rows     int
}

func read(t testing.TB, s *chunked.Source, want func() connector.Limit) (rows []string, marks []sighting) {
	t.Helper()
	for {
		b, err := s.Read(context.Background(), want())
		if errors.Is(err, io.EOF) {
			return rows, marks
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range connectortest.Rows(b) {
			rows = append(rows, b.Schema.Dataset+r)
		}
		if !b.Position.Zero() {
			marks = append(marks, sighting{b.Position, len(rows)})
		}
	}
}

func limit(rows int) func() connector.Limit {
	return func() connector.Limit { return connector.Limit{Rows: rows, Bytes: 1 << 20} }
}

// Rows come in key order whatever the readers do; every position resumes exactly; cuts are honoured, also by attempts that plan
// other chunks; positions are ordered over attempts.
// clauses S5, S6, S7, S8, S14.
func TestModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		f := &fake{rows: map[string]int{}}
		var want []string
		for _, d := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(r, "datasets")] {
			f.rows[d] = rapid.IntRange(0, 40).Draw(r, "rows "+d)
			for _, row := range connectortest.Rows(connectortest.Numbered(d, 1, f.rows[d])) {
				want = append(want, d+row)
			}
		}
		options := func(name string) chunked.Options {
			return chunked.Options{
				ChunkBytes: rapid.Int64Range(1, 12).Draw(r, "chunk "+name), Readers: rapid.IntRange(1, 5).Draw(r, "readers "+name),
				Buffer: rapid.Int64Range(1, 10_000).Draw(r, "buffer "+name),
			}
		}
		first, second := options("1"), options("2")
		seed := rapid.Int64().Draw(r, "seed")
		size := rapid.IntRange(0, 7).Draw(r, "size")
		fresh := rapid.Bool().Draw(r, "fresh")
		pick := rapid.SliceOfN(rapid.IntRange(0, 1000), 3, 3).Draw(r, "picks")
		var problems []string // a bubble is a goroutine of its own
		fail := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
		synctest.Test(t, func(t *testing.T) {
			f.delay = func(key int) time.Duration { return time.Duration((int64(key)*seed)&0xffff) * time.Microsecond }
			rows, marks := attempt(t, f, first, connector.SourceStart{}, limit(1))
			check(fail, "the whole", want, rows)
			ordered(fail, marks)
			sort := slices.Sorted(slices.Values(pick))
			from, cuts := marks[sort[0]%len(marks)], []sighting{marks[sort[1]%len(marks)], marks[sort[2]%len(marks)]}
			start := connector.SourceStart{From: connector.From{Origin: connector.Resume, Attempt: 1, Position: from.position}}
			if fresh {
				from, start = sighting{}, connector.SourceStart{}
			}
			for _, c := range cuts {
				start.Cuts = append(start.Cuts, c.position)
			}
			rows, again := attempt(t, f, second, start, limit(size))
			check(fail, "the resume", want[from.rows:], rows)
			for _, c := range cuts {
				met := slices.ContainsFunc(again, func(m sighting) bool {
					return m.position.Equal(c.position) && m.rows+from.rows == c.rows
				})
				if c.rows > from.rows && !met {
					fail("no batch ends at the cut %s behind %d rows: %v", c.position, c.rows, again)
				}
			}
			for _, m := range again {
				for _, c := range cuts {
					order, ok := chunked.Compare(m.position, c.position)
					if now := m.rows + from.rows; !ok || (now < c.rows && order > 0) || (now > c.rows && order < 0) {
						fail("%s behind %d rows against the cut %s behind %d: %d", m.position, now, c.position, c.rows, order)
					}
				}
			}
		})
		if len(problems) > 0 {
			r.Fatal(problems)
		}
	})
}

func attempt(t *testing.T, f *fake, o chunked.Options, start connector.SourceStart, want func() connector.Limit) ([]string, []sighting) {
	t.Helper()
	s := chunked.New(f, f.datasets(), environment(t), o)
	if err := s.Start(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	rows, marks := read(t, s, want)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rows, marks
}

func check(fail func(string, ...any), what string, want, got []string) {
	if !slices.Equal(want, got) {
		fail("%s differs (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

func ordered(fail func(string, ...any), marks []sighting) {
	for i := 1; i < len(marks); i++ {
		if order, ok := chunked.Compare(marks[i-1].position, marks[i].position); !ok || order >= 0 {
			fail("%s and %s are not in order", marks[i-1].position, marks[i].position)
		}
	}
}

// Chunks are read at the same time, and what is read ahead is bounded while the consumer does nothing.
// case C070.
func TestReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{rows: map[string]int{"d": 3000}, delay: func(int) time.Duration { return time.Second }}
		size := connectortest.Numbered("d", 1, 3).Bytes()
		s := chunked.New(f, f.datasets(), environment(t), chunked.Options{ChunkBytes: 30, Readers: 4, Buffer: 40 * size})
		if err := s.Start(t.Context(), connector.SourceStart{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		f.mu.Lock()
		if f.widest != 4 {
			t.Errorf("%d chunks were read at the same time, want 4", f.widest)
		}
		f.mu.Unlock()
		start := time.Now()
		rows, _ := read(t, s, limit(100))
		if len(rows) != 3000 {
			t.Errorf("%d rows, want 3000", len(rows))
		}
		// 1000 batches of a second each, 40 of them ready: four readers need a quarter of the time of one.
		if took := time.Since(start); took > 300*time.Second {
			t.Errorf("reading took %s", took)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Chunks that are larger than all that may be read ahead are read at the same time, too, as far as there is room.
func TestReadAheadOfLargeChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{rows: map[string]int{"d": 3000}, delay: func(int) time.Duration { return time.Second }}
		size := connectortest.Numbered("d", 1, 3).Bytes()
		s := chunked.New(f, f.datasets(), environment(t), chunked.Options{ChunkBytes: 150, Readers: 3, Buffer: 40 * size})
		if err := s.Start(t.Context(), connector.SourceStart{}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		rows, _ := read(t, s, limit(100))
		if len(rows) != 3000 {
			t.Errorf("%d rows, want 3000", len(rows))
		}
		// 1000 batches of a second each: one reader needs 1000 seconds.
		if took := time.Since(start); took > 700*time.Second {
			t.Errorf("reading took %s", took)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// With buffers that hold less than two chunks, the next one is begun as soon as the one in front is read, emitted or not; and none
// behind that where it fills them.
func TestNextChunkIsReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{rows: map[string]int{"d": 3000}}
		size := connectortest.Numbered("d", 1, 3).Bytes()
		pushed := 0
		counting := &counter{fake: f, emitted: func() { pushed++ }}
		s := chunked.New(counting, f.datasets(), environment(t), chunked.Options{ChunkBytes: 12 * size, Readers: 3, Buffer: 16*size + size/2})
		if err := s.Start(t.Context(), connector.SourceStart{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		counting.mu.Lock()
		if pushed != 16 || f.open != 1 {
			t.Errorf("%d batches are held and %d chunks are being read, want 16 and 1", pushed, f.open)
		}
		counting.mu.Unlock()
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// An idle consumer holds no more than the budget.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{rows: map[string]int{"d": 3000}}
		size := connectortest.Numbered("d", 1, 3).Bytes()
		pushed := 0
		counting := &counter{fake: f, emitted: func() { pushed++ }}
		s := chunked.New(counting, f.datasets(), environment(t), chunked.Options{ChunkBytes: 30, Readers: 8, Buffer: 20 * size})
		if err := s.Start(t.Context(), connector.SourceStart{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		counting.mu.Lock()
		if pushed > 21 {
			t.Errorf("%d batches are held, the budget is 20", pushed)
		}
		counting.mu.Unlock()
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

type counter struct {
	*fake
	emitted func()
}

func (c *counter) ReadChunk(ctx context.Context, chunk record.Chunk, emit func(*record.Batch) error) error {
	return c.fake.ReadChunk(ctx, chunk, func(b *record.Batch) error {
		err := emit(b)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.emitted()
		}
		return err
	})
}

// The error of a reader reaches Read behind all that comes before its chunk, with its class, and nothing behind it is delivered.
func TestReaderFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &connector.Error{Class: connector.ClassTransient, Err: errors.New("the network is gone")}
		f := &fake{rows: map[string]int{"d": 100}, fail: map[int]error{40: broken}}
		s := chunked.New(f, f.datasets(), environment(t), chunked.Options{ChunkBytes: 10, Readers: 3})
		if err := s.Start(t.Context(), connector.SourceStart{}); err != nil {
			t.Fatal(err)
		}
		rows := 0
		for {
			b, err := s.Read(t.Context(), connector.Limit{Rows: 7})
			if err != nil {
				if connector.ClassOf(err) != connector.ClassTransient {
					t.Errorf("error %v", err)
				}
				break
			}
			rows += b.NumRows()
		}
		if rows != 40 {
			t.Errorf("%d rows came before the error, want 40", rows)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A dataset whose chunks can't be resumed behind has one position, at its end, and is begun again in full.
func TestWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{rows: map[string]int{"d": 50}}
		whole := func() *chunked.Source {
			ds := f.datasets()
			ds[0].Whole = true
			return chunked.New(f, ds, environment(t), chunked.Options{ChunkBytes: 7})
		}
		s := whole()
		if err := s.Start(t.Context(), connector.SourceStart{}); err != nil {
			t.Fatal(err)
		}
		rows, marks := read(t, s, limit(4))
		if len(rows) != 50 || len(marks) != 1 || marks[0].rows != 50 {
			t.Errorf("%d rows, positions %v", len(rows), marks)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Close ends readers that wait, and a Read that waits.
// clause S12.
func TestCloseWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{rows: map[string]int{"d": 50}, delay: func(int) time.Duration { return time.Hour }}
		s := chunked.New(f, f.datasets(), environment(t), chunked.Options{ChunkBytes: 7})
		if err := s.Start(t.Context(), connector.SourceStart{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if b, err := s.Read(ctx, connector.Limit{Rows: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Read returned %v, %v", b, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b, err := s.Read(t.Context(), connector.Limit{Rows: 1}); err == nil {
			t.Errorf("Read after Close returned %v", b)
		}
	})
}

// clause S14.
func TestStrangersAreRefused(t *testing.T) {
	for _, doc := range []string{`{}`, `"x"`, `{"dataset":"d"}`, `{"dataset":"d","after":1,"done":true}`, `{"dataset":"d","done":true,"more":1}`, `[`} {
		if _, err := chunked.Migrate(record.Position{Shape: 1, Data: []byte(doc)}); connector.ClassOf(err) != connector.ClassPosition {
			t.Errorf("%s: %v", doc, err)
		}
	}
	p := record.Position{Shape: 1, Data: []byte(`{"dataset":"d","after":5,"at":1}`)}
	if _, err := chunked.Migrate(p); err != nil {
		t.Errorf("%s: %v", p, err)
	}
	p.Shape = 2
	if _, err := chunked.Migrate(p); connector.ClassOf(err) != connector.ClassPosition {
		t.Errorf("a newer shape: %v", err)
	}
	if _, ok := chunked.Compare(p, p); ok {
		t.Error("positions of a newer shape were compared")
	}
}

func ExampleSplit() {
	b := connectortest.Numbered("d", 1, 5)
	head, rest := chunked.Split(b, connector.Limit{Rows: 2})
	fmt.Println(head.NumRows(), rest.NumRows())
	// Output: 2 3
}

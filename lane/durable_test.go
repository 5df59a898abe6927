package lane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/lanetest"
	"github.com/leatdata/leat/record"
)

// world is what outlives a crash besides the disk: the source's changes, numbered from 1, and what each sink has.
type world struct {
	changes int
	unit    int // changes of a replay unit; its last item carries the position
	rows    int // changes of an item

	mu    sync.Mutex
	sinks map[string]*exactSink
	saved int // the newest position that the source may have released
}

// exactSink commits rows and progress together, as a position store does.
type exactSink struct {
	rows     []int
	item     uint64
	position int
}

func newWorld(sinks ...string) *world {
	w := &world{changes: 60, unit: 7, rows: 3, sinks: map[string]*exactSink{}}
	for _, s := range sinks {
		w.sinks[s] = &exactSink{}
	}
	return w
}

// publish sends the changes behind this one.
func (w *world) publish(ctx context.Context, d lane.Durable, after int) error {
	for from := after; from < w.changes; {
		end := min((from/w.unit+1)*w.unit, w.changes)
		n := min(w.rows, end-from)
		b := batchOf(n, 0)
		ids := make([]int, n)
		for i := range ids {
			ids[i] = from + 1 + i
		}
		key, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		b.Chunk = &record.Chunk{Dataset: "d", From: key} // the changes themselves
		b.Changes = n
		from += n
		if from == end {
			b.Position = position(from)
		}
		if err := d.Publish(ctx, lane.Batch{Batch: b}); err != nil {
			return err
		}
	}
	return d.Close()
}

// deliver takes a lane to its end: what a unit brought is committed with its position, and then acknowledged.
func (w *world) deliver(ctx context.Context, d lane.Durable, sink string) error {
	s := w.sinks[sink]
	if ok, err := d.Covered(sink, s.item); err != nil || !ok {
		return fmt.Errorf("covered up to %d: %v, %w", s.item, ok, err)
	}
	c, err := d.Lane(sink)
	if err != nil {
		return err
	}
	var staged []int
	var held []lane.Delivery[lane.Item]
	for {
		x, err := c.Receive(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		b := batchIn(x)
		var ids []int
		if err := json.Unmarshal(b.Chunk.From, &ids); err != nil {
			return err
		}
		staged, held = append(staged, ids...), append(held, x)
		if b.Position.Zero() {
			continue
		}
		at, err := strconv.Atoi(b.Position.String())
		if err != nil {
			return err
		}
		if at <= s.position {
			return fmt.Errorf("sink %s has position %d and gets %d", sink, s.position, at)
		}
		w.mu.Lock()
		s.rows, s.item, s.position = append(s.rows, staged...), x.Number(), at
		w.mu.Unlock()
		staged = nil
		for _, x := range held {
			if err := x.Ack(); err != nil {
				return err
			}
		}
		held = nil
	}
}

// run opens the lanes and works until everything is delivered, or something fails.
func (w *world) run(ctx context.Context, h lane.Storage, spec lane.Spec) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d, err := lane.Open(ctx, h, spec, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	after := 0
	if m, ok := d.Stored(); ok {
		if after, err = strconv.Atoi(m.Position.String()); err != nil {
			return err
		}
	}
	if after < w.saved {
		return errors.Join(fmt.Errorf("lost: the source released everything up to %d, and the lanes have %d", w.saved, after), d.Release())
	}
	errs := make([]error, len(spec.Sinks)+1)
	var work sync.WaitGroup
	work.Go(func() { errs[0] = w.publish(ctx, d, after); w.save(d) })
	for i, s := range spec.Sinks {
		work.Go(func() { errs[i+1] = w.deliver(ctx, d, s) })
	}
	work.Go(func() { // the checkpointer
		for {
			select {
			case <-d.Moved():
				w.save(d)
			case <-ctx.Done():
				return
			}
		}
	})
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	for i := 0; ; i++ {
		synctest.Wait()
		failed := slices.ContainsFunc(errs, func(err error) bool { return err != nil })
		finished := d.Idle() && w.complete()
		if failed || finished || i > 2000 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	<-done
	return errors.Join(errors.Join(errs...), d.Release())
}

// save notes what the source may release from now on.
func (w *world) save(d lane.Durable) {
	w.mu.Lock() // before it is asked: two may do so
	defer w.mu.Unlock()
	if m, ok := d.Stored(); ok {
		n, err := strconv.Atoi(m.Position.String())
		if err != nil || n < w.saved {
			panic(fmt.Sprintf("stored %s after %d", m.Position, w.saved))
		}
		w.saved = n
	}
}

func (w *world) complete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sinks {
		if len(s.rows) < w.changes {
			return false
		}
	}
	return true
}

func (w *world) check(t *testing.T) {
	t.Helper()
	for name, s := range w.sinks {
		for i := range w.changes {
			if i >= len(s.rows) || s.rows[i] != i+1 {
				t.Fatalf("sink %s has %v", name, s.rows)
			}
		}
		if len(s.rows) != w.changes {
			t.Fatalf("sink %s has %d changes more", name, len(s.rows)-w.changes)
		}
	}
}

var twoSinks = lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a", "b"}, Options: lane.Options{Items: 2}}

// clause W14: a crash in front of, and right behind, each thing that is done to the storage, and then another one at the same place of
// the next run: every sink has every change exactly once, in order, and what the source released is never missing.
func TestCrashAtEveryStep(t *testing.T) {
	for _, fault := range []lanetest.Fault{lanetest.Before, lanetest.After} {
		steps := 0
		for at := 0; ; at++ {
			synctest.Test(t, func(t *testing.T) {
				w, disk := newWorld("a", "b"), lanetest.NewDisk()
				disk.Size = 700 // some items take several entries
				n := 0
				var h *lanetest.Handle
				disk.Fault = func(string) lanetest.Fault {
					if n++; n != at+1 {
						return lanetest.None
					}
					h.Kill()
					return fault
				}
				for try := range 2 {
					n, h = 0, disk.Open()
					if err := w.run(t.Context(), h, twoSinks); err != nil && strings.Contains(err.Error(), "lost") {
						t.Fatalf("crash at step %d: %v", at, err)
					}
					if try == 0 {
						steps = n
					}
				}
				disk.Fault = nil
				if err := w.run(t.Context(), disk.Open(), twoSinks); err != nil {
					t.Fatalf("after a crash at step %d: %v", at, err)
				}
				w.check(t)
			})
			if at >= steps || t.Failed() { // it was over before
				break
			}
		}
		if steps < 30 {
			t.Errorf("only %d steps", steps)
		}
	}
}

// clause W14: crashes at random places, many in a row, in worlds of all shapes.
func TestCrashesAtRandom(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			w, disk := newWorld("a", "b"), lanetest.NewDisk()
			w.changes, w.unit, w.rows, disk.Size = 40+r.IntN(200), 1+r.IntN(30), 1+r.IntN(9), 500+r.IntN(3000)
			spec := twoSinks
			spec.Items = 1 + r.IntN(5)
			for range 1 + r.IntN(8) {
				h, left := disk.Open(), r.IntN(80)
				disk.Fault = func(string) lanetest.Fault {
					if left--; left > 0 {
						return lanetest.None
					}
					h.Kill()
					return lanetest.Fault(1 + r.IntN(2))
				}
				if err := w.run(t.Context(), h, spec); err != nil && strings.Contains(err.Error(), "lost") {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			disk.Fault = nil
			if err := w.run(t.Context(), disk.Open(), spec); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			w.check(t)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A storage that fails for a while, at every step, before and after it took effect: the lanes go on by themselves, or are opened once
// more, and everything is delivered exactly once, in order.
func TestFaultAtEveryStep(t *testing.T) {
	for _, fault := range []lanetest.Fault{lanetest.Before, lanetest.After} {
		for _, length := range []int{1, 3, 9} {
			steps := 0
			for at := 0; at <= steps+1; at += length/2 + 1 {
				synctest.Test(t, func(t *testing.T) {
					w, disk := newWorld("a", "b"), lanetest.NewDisk()
					disk.Size = 700
					n := 0
					disk.Fault = func(string) lanetest.Fault {
						if n++; n > at && n <= at+length {
							return fault
						}
						return lanetest.None
					}
					for try := 0; ; try++ {
						err := w.run(t.Context(), disk.Open(), twoSinks)
						if err == nil {
							break
						}
						if try > length || strings.Contains(err.Error(), "lost") {
							t.Fatalf("%d faults at step %d: %v", length, at, err)
						}
					}
					steps = n
					w.check(t)
				})
				if t.Failed() {
					return
				}
			}
		}
	}
}

func mustOwn(t testing.TB, disk *lanetest.Disk, spec lane.Spec) *owner {
	t.Helper()
	o := own(t, disk, spec)
	t.Cleanup(func() { _ = o.Release() })
	return o
}

func mustAttach(t testing.TB, s lane.Stream, sink string) lane.Consumer[lane.Item] {
	t.Helper()
	c, err := s.Lane(sink)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func publish(t testing.TB, s lane.Stream, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		if err := s.Publish(t.Context(), positioned(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// batchIn returns the batch of a delivery, an empty one where there is none.
func batchIn(x lane.Delivery[lane.Item]) lane.Batch {
	b, ok := x.Item().(lane.Batch)
	if !ok {
		return lane.Batch{Batch: &record.Batch{}}
	}
	return b
}

func receive(t testing.TB, c lane.Consumer[lane.Item]) lane.Delivery[lane.Item] {
	t.Helper()
	d, err := c.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// clause K7 (lanes): an owner that was followed by another one, and wakes up, changes nothing: it can't publish, what it holds can't be
// acknowledged, and everything says why.
func TestFencedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := lanetest.NewDisk()
		spec := lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a"}}
		first := mustOwn(t, disk, spec)
		c := mustAttach(t, first, "a")
		publish(t, first, 1, 3)
		held := receive(t, c)
		synctest.Wait()
		second := mustOwn(t, disk, spec)
		publish(t, first, 4, 4) // it does not know yet
		synctest.Wait()
		if err := first.Publish(t.Context(), positioned(6)); !errors.Is(err, lane.ErrFenced) || connector.ClassOf(err) != connector.ClassFenced {
			t.Errorf("publishing: %v", err)
		}
		if err := held.Ack(); !errors.Is(err, lane.ErrFenced) {
			t.Errorf("acknowledging: %v", err)
		}
		if _, err := c.Receive(t.Context()); !errors.Is(err, lane.ErrFenced) {
			t.Errorf("receiving: %v", err)
		}
		if m, _ := second.Stored(); m.Position.String() != "3" {
			t.Errorf("stored %s", m.Position)
		}
		publish(t, second, 4, 4)
		c = mustAttach(t, second, "a")
		for i := 1; i <= 4; i++ {
			d := receive(t, c)
			if p := batchIn(d).Position.String(); p != strconv.Itoa(i) {
				t.Errorf("received %s, want %d", p, i)
			}
			if err := d.Ack(); err != nil {
				t.Error(err)
			}
		}
	})
}

// An owner that only acknowledges finds out, too: what it says it has saved is not saved.
func TestFencedAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := lanetest.NewDisk()
		spec := lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a"}}
		first := mustOwn(t, disk, spec)
		c := mustAttach(t, first, "a")
		publish(t, first, 1, 3)
		synctest.Wait()
		second := mustOwn(t, disk, spec)
		if err := receive(t, c).Ack(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := c.Receive(t.Context()); !errors.Is(err, lane.ErrFenced) {
			t.Errorf("receiving: %v", err)
		}
		if h, err := second.Holds("a"); err != nil || h.Items != 3 {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

// clause E16 (lanes): nothing is handed out, and nothing may be released by the source, before it is stored; many small publications go
// into few entries meanwhile.
func TestNothingBeforeItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := lanetest.NewDisk()
		gate, holding := make(chan struct{}), false
		disk.Wait = func(op string) {
			if holding && op == "append" {
				<-gate
			}
		}
		d := mustOwn(t, disk, lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a"}})
		holding = true
		c := mustAttach(t, d, "a")
		publish(t, d, 1, 500)
		synctest.Wait()
		if _, ok := d.Stored(); ok || d.Idle() || c.CaughtUp() {
			t.Errorf("stored %v, idle %v", ok, d.Idle())
		}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if x, err := c.Receive(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("received %v, %v", x, err)
		}
		close(gate)
		synctest.Wait()
		if m, _ := d.Stored(); m.Position.String() != "500" {
			t.Errorf("stored %s", m.Position)
		}
		if n := disk.Entries(); n > 6 {
			t.Errorf("500 items took %d entries", n)
		}
		for i := range 500 {
			x := receive(t, c)
			if x.Number() != uint64(i+1) || x.Ack() != nil {
				t.Fatalf("number %d", x.Number())
			}
		}
	})
}

// clause W9: what waits to be stored is bounded; a publication that is given up leaves nothing.
func TestPublishWaitsForTheStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := lanetest.NewDisk()
		gate, holding := make(chan struct{}), false
		disk.Wait = func(op string) {
			if holding && op == "append" {
				<-gate
			}
		}
		d := mustOwn(t, disk, lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a"}, Options: lane.Options{Bytes: 5000}})
		holding = true
		n := 0
		for ; ; n++ {
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			err := d.Publish(short, lane.Batch{Batch: batchOf(100, n)})
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			if err != nil || n > 100 {
				t.Fatalf("%d items, %v", n, err)
			}
		}
		if s, err := d.Stats("a"); err != nil || s.Published.Items != int64(n) || n < 2 || n > 5 {
			t.Errorf("%d items, %+v, %v", n, s, err)
		}
		close(gate)
		if err := d.Publish(t.Context(), lane.Batch{Batch: batchOf(100, n)}); err != nil {
			t.Error(err)
		}
	})
}

// clause W12: a lane that keeps up has the very batch that was published; one that is behind has an equal one, and holds no more in
// memory than it may.
func TestHybrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := lanetest.NewDisk()
		reads := 0
		disk.Fault = func(op string) lanetest.Fault {
			if op == "read" {
				reads++
			}
			return lanetest.None
		}
		d := mustOwn(t, disk, lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"fast", "slow"}, Options: lane.Options{Items: 4}})
		fast, reads0 := mustAttach(t, d, "fast"), reads
		var sent []lane.Batch
		for i := range 50 {
			b := lane.Batch{Batch: batchOf(10, i)}
			b.Position = position(i + 1)
			sent = append(sent, b)
			if err := d.Publish(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			x := receive(t, fast)
			if got := batchIn(x); got.Batch != b.Batch {
				t.Errorf("item %d is a copy", i)
			}
			if err := x.Ack(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if reads != reads0 {
			t.Errorf("%d readings, though nobody waits for what is behind", reads-reads0)
		}
		slow := mustAttach(t, d, "slow")
		synctest.Wait()
		if n := reads - reads0; n > 6 {
			t.Errorf("%d readings for four places", n)
		}
		for i, want := range sent {
			x := receive(t, slow)
			got := batchIn(x)
			if string(got.RowJSON(9)) != string(want.RowJSON(9)) || !got.Position.Equal(want.Position) || (got.Batch == want.Batch) != (i < 4) {
				t.Errorf("item %d is %v", i, got.Batch)
			}
			if err := x.Ack(); err != nil {
				t.Fatal(err)
			}
		}
		// Now it keeps up again.
		publish(t, d, 51, 51)
		if b := batchIn(receive(t, slow)); b.Position.String() != "51" {
			t.Error(b.Position)
		}
		time.Sleep(time.Second)
		if n := disk.Entries(); n > 3 {
			t.Errorf("%d entries are left, though everything is acknowledged", n)
		}
	})
}

// clause W12: rows in a source's own encoding are the same rows from memory and from the log: nobody there knows how to decode them.
func TestEncodedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := mustOwn(t, lanetest.NewDisk(), lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a"}, Options: lane.Options{Items: 1}})
		rows := batchOf(3, 7)
		b := &record.Batch{Schema: &record.Schema{Dataset: "d", Columns: rows.Rows.Schema()}, Encoded: &record.Encoded{
			Format: "f", Data: []byte("abc"), Decode: func([]byte) (*record.Batch, error) { return rows, nil },
		}}
		for range 2 {
			if err := d.Publish(t.Context(), lane.Batch{Batch: b}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		c := mustAttach(t, d, "a")
		for i := range 2 {
			got := batchIn(receive(t, c))
			if got.NumRows() != 3 || got.Encoded != nil || string(got.RowJSON(2)) != string(rows.RowJSON(2)) {
				t.Errorf("item %d: %v", i, got)
			}
		}
		b.Encoded.Decode = func([]byte) (*record.Batch, error) { return nil, io.ErrUnexpectedEOF }
		if err := d.Publish(t.Context(), lane.Batch{Batch: b}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	})
}

// What is missing, damaged or from another version is an error that says so, of class ClassPosition, and nothing is delivered in its place.
func TestUnusable(t *testing.T) {
	spec := lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a"}, Options: lane.Options{Items: 1}}
	for name, harm := range map[string]struct {
		do   func(disk, backup *lanetest.Disk)
		want string
	}{
		"log emptied":    {func(d, _ *lanetest.Disk) { d.Remove(1, 100) }, "empty"},
		"note lost":      {func(d, _ *lanetest.Disk) { d.Forget() }, "note"},
		"begin removed":  {func(d, _ *lanetest.Disk) { d.Remove(1, 3) }, "no such entry: 2"},
		"middle removed": {func(d, _ *lanetest.Disk) { d.Remove(4, 4) }, "entry 4"},
		"older backup":   {func(d, b *lanetest.Disk) { d.Restore(b) }, "ends with"},
		"damage":         {func(d, _ *lanetest.Disk) { d.Damage(3, 200) }, "checksum"},
		"other format":   {func(d, _ *lanetest.Disk) { d.Damage(3, 4) }, "format"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := lanetest.NewDisk()
				d := own(t, disk, spec)
				c := mustAttach(t, d, "a")
				var backup *lanetest.Disk
				for i := 1; i <= 9; i++ {
					publish(t, d, i, i)
					synctest.Wait() // an entry each
					if i == 3 {
						backup = disk.Clone()
					}
				}
				if err := receive(t, c).Ack(); err != nil {
					t.Fatal(err)
				}
				for name == "older backup" && !c.CaughtUp() {
					if err := receive(t, c).Ack(); err != nil {
						t.Fatal(err)
					}
				}
				if err := d.Release(); err != nil {
					t.Fatal(err)
				}
				harm.do(disk, backup)
				err := drain(t.Context(), disk, spec)
				if connector.ClassOf(err) != connector.ClassPosition || !strings.Contains(err.Error(), harm.want) || connector.HintOf(err) == "" {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// drain opens lanes and receives what there is.
func drain(ctx context.Context, disk *lanetest.Disk, spec lane.Spec) error {
	d, err := lane.Open(ctx, disk.Open(), spec, nil)
	if err != nil {
		return err
	}
	defer d.Release() //nolint:errcheck // the error is the other one
	c, err := d.Lane("a")
	if err != nil {
		return err
	}
	for err = d.Close(); err == nil; {
		var x lane.Delivery[lane.Item]
		if x, err = c.Receive(ctx); err == nil {
			err = x.Ack()
		}
	}
	return err
}

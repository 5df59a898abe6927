package lane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func position(n int) record.Position {
	return record.Position{Shape: 1, Data: json.RawMessage(strconv.Itoa(n))}
}

func positioned(n int) lane.Batch {
	return lane.Batch{Batch: &record.Batch{Position: position(n), Changes: 1}}
}

func mustStream(t testing.TB, o lane.Options, sinks ...string) *lane.Memory {
	t.Helper()
	m, err := lane.NewMemory(sinks, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustLane(t testing.TB, m *lane.Memory, sink string) lane.Consumer[lane.Item] {
	t.Helper()
	c, err := m.Lane(sink)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// clause W11: what can't be a set of lanes, or an item, is refused.
func TestRefused(t *testing.T) {
	for name, f := range map[string]func() error{
		"empty name": func() error { _, err := lane.NewMemory([]string{"a", ""}, lane.Options{}); return err },
		"same name":  func() error { _, err := lane.NewMemory([]string{"a", "a"}, lane.Options{}); return err },
		"untracked": func() error {
			_, err := lane.NewMemory([]string{"a"}, lane.Options{Untracked: []string{"b"}})
			return err
		},
		"no item":      func() error { return mustStream(t, lane.Options{}, "a").Publish(t.Context(), nil) },
		"no batch":     func() error { return mustStream(t, lane.Options{}, "a").Publish(t.Context(), lane.Batch{}) },
		"unknown sink": func() error { return mustStream(t, lane.Options{}, "a").Publish(t.Context(), positioned(1), "b") },
		"stats": func() error {
			_, err := mustStream(t, lane.Options{}, "a").Stats("b")
			return err
		},
	} {
		if f() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := mustStream(t, lane.Options{}, "a")
	if err := m.Publish(ctx, positioned(1)); !errors.Is(err, context.Canceled) || !m.Idle() {
		t.Errorf("publication under an ended context: %v, idle %v", err, m.Idle())
	}
}

// clause W9: with nobody attached, publications up to the bound don't wait; one more does, until a consumer comes.
func TestPublishNeedsNoConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustStream(t, lane.Options{Items: 3}, "a")
		for i := range 3 {
			if err := m.Publish(t.Context(), positioned(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		late := start(func(ctx context.Context) (struct{}, error) { return struct{}{}, m.Publish(ctx, positioned(4)) })
		synctest.Wait()
		if late.returned() {
			t.Fatalf("the fourth item entered a lane of three: %v", late.err)
		}
		if _, err := mustLane(t, m, "a").Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !late.returned() || late.err != nil {
			t.Fatalf("there is room, but: %v", late.err)
		}
	})
}

// clause W12: lanes share a batch, so each further lane costs next to nothing whatever the size of the batch.
func TestFanOutCopiesNothing(t *testing.T) {
	small, large := batchOf(1, 1), batchOf(100_000, 2)
	perPublish := func(b *record.Batch, lanes int) float64 {
		var sinks []string
		for i := range lanes {
			sinks = append(sinks, strconv.Itoa(i))
		}
		m := mustStream(t, lane.Options{Items: 1, Bytes: 1 << 30}, sinks...)
		var cs []lane.Consumer[lane.Item]
		for _, s := range sinks {
			cs = append(cs, mustLane(t, m, s))
		}
		return testing.AllocsPerRun(20, func() {
			if err := m.Publish(t.Context(), lane.Batch{Batch: b}); err != nil {
				t.Fatal(err)
			}
			for _, c := range cs {
				d, err := c.Receive(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got, ok := d.Item().(lane.Batch); !ok || got.Batch != b {
					t.Fatal("not the batch that was published")
				}
				if err := d.Ack(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if s, l := perPublish(small, 8), perPublish(large, 8); s != l {
		t.Errorf("%v allocations for a small batch, %v for a large one", s, l)
	}
	if one, eight := perPublish(large, 1), perPublish(large, 8); (eight-one)/7 > 6 {
		t.Errorf("%v allocations for one lane, %v for eight", one, eight)
	}
}

// clauses W1, W6, W9, W10, W16: many goroutines at a time; every lane still gets everything, in order, and it adds up.
func TestConcurrent(t *testing.T) {
	const items = 500
	sinks := []string{"a", "b", "c"}
	m := mustStream(t, lane.Options{Items: 3}, sinks...)
	var consumers, publishers sync.WaitGroup
	for _, s := range sinks {
		consumers.Go(func() {
			if err := consume(t.Context(), m, s, items); err != nil {
				t.Errorf("%s: %v", s, err)
			}
		})
	}
	publishers.Go(func() { // chunks for one lane, beside the live items
		for range items {
			if err := m.Publish(t.Context(), lane.Batch{Batch: &record.Batch{}}, "b"); err != nil {
				t.Errorf("publishing a chunk: %v", err)
			}
		}
	})
	publishers.Go(func() {
		for i := range items {
			if err := m.Publish(t.Context(), positioned(i+1)); err != nil {
				t.Errorf("publishing: %v", err)
			}
		}
	})
	publishers.Wait()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	consumers.Wait()
	if p, _ := m.Watermark(); p.Position.String() != strconv.Itoa(items) || !m.Idle() {
		t.Errorf("watermark %s, idle %v", p.Position, m.Idle())
	}
	for _, s := range sinks {
		st, err := m.Stats(s)
		if err != nil || st.Published != st.Acked || st.Acked.Changes != items {
			t.Errorf("%s: %+v, %v", s, st, err)
		}
	}
}

// consume takes a lane to its end, gives back every seventh item once, and is replaced at every 50th receive.
func consume(ctx context.Context, m *lane.Memory, sink string, items int) error {
	c, err := m.Lane(sink)
	if err != nil {
		return err
	}
	last, given := 0, map[int]bool{}
	for n := 1; ; n++ {
		d, err := c.Receive(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if n%50 == 0 { // the replacement gets this item again
			if c, err = m.Lane(sink); err != nil {
				return err
			}
			if err := d.Ack(); !errors.Is(err, lane.ErrFenced) {
				return fmt.Errorf("acknowledged after a takeover: %w", err)
			}
			continue
		}
		if b, _ := d.Item().(lane.Batch); !b.Position.Zero() {
			number, err := strconv.Atoi(b.Position.String())
			if err != nil || number != last+1 {
				return fmt.Errorf("position %s follows %d", b.Position, last)
			}
			if number%7 == 0 && !given[number] {
				given[number] = true
				_ = d.Nack()
				continue
			}
			last = number
		}
		if err := d.Ack(); err != nil {
			return err
		}
	}
	if last != items {
		return fmt.Errorf("ended at %d of %d", last, items)
	}
	return nil
}

// clause W11: a closed stream ends every consumer, waiting or not, and refuses publications.
func TestCloseEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustStream(t, lane.Options{}, "a", "b")
		a, b := start(mustLane(t, m, "a").Receive), mustLane(t, m, "b")
		requests, err := m.Requests()
		if err != nil {
			t.Fatal(err)
		}
		r := start(requests.Receive)
		synctest.Wait()
		for range 2 {
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		_, errB := b.Receive(t.Context())
		for i, err := range []error{a.err, errB, r.err} {
			if !errors.Is(err, io.EOF) {
				t.Errorf("consumer %d: %v", i, err)
			}
		}
		if err := errors.Join(m.Ask(lane.Request{Sink: "a"}), m.Publish(t.Context(), positioned(1))); !errors.Is(err, lane.ErrClosed) {
			t.Errorf("after close: %v", err)
		}
		if err := m.Ask(lane.Request{Sink: "a"}); !errors.Is(err, lane.ErrClosed) {
			t.Errorf("asking after close: %v", err)
		}
	})
}

func BenchmarkHandOff(b *testing.B) {
	m := mustStream(b, lane.Options{}, "a")
	c := mustLane(b, m, "a")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			d, err := c.Receive(b.Context())
			if err != nil {
				return
			}
			_ = d.Ack()
		}
	}()
	it := positioned(1)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Publish(b.Context(), it); err != nil {
			b.Fatal(err)
		}
	}
	_ = m.Close()
	<-done
}

package lanetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

func position(n int) record.Position {
	return record.Position{Shape: 1, Data: json.RawMessage(strconv.Itoa(n))}
}

func positioned(n int) lane.Batch {
	return lane.Batch{Batch: &record.Batch{Position: position(n), Changes: 1}}
}

func attached(t TB, s lane.Stream, sink string) lane.Consumer[lane.Item] {
	t.Helper()
	c, err := s.Lane(sink)
	if err != nil {
		t.Fatalf("attaching to %s: %v", sink, err)
	}
	return c
}

// Concurrent lets many goroutines work at a time: every lane still gets everything, in order, and it adds up.
//
// It proves clauses W1, W6, W9, W10, W16.
func Concurrent(t *testing.T, k Kit) {
	t.Helper()
	const items = 500
	sinks := []string{"a", "b", "c"}
	m, finish := k.Open(t, lane.Spec{Pipeline: "p", Run: "r", Sinks: sinks, Options: lane.Options{Items: 3}})
	defer finish()
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
func consume(ctx context.Context, m lane.Stream, sink string, items int) error {
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

// CloseEndsAll checks that a closed stream ends every consumer, waiting or not, and refuses publications.
//
// It proves clause W11.
func CloseEndsAll(t *testing.T, k Kit) {
	t.Helper()
	k.bubble(t, func(t *testing.T) {
		t.Helper()
		m, finish := k.Open(t, lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a", "b"}})
		defer finish()
		a, b := start(attached(t, m, "a").Receive), attached(t, m, "b")
		requests, err := m.Requests()
		if err != nil {
			t.Fatal(err)
		}
		r := start(requests.Receive)
		k.rest()
		for range 2 {
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
		k.rest()
		_, errB := b.Receive(t.Context())
		k.eventually(a.returned)
		k.eventually(r.returned)
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

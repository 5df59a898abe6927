package lane_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

var numbers = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

func batchOf(rows, id int) *record.Batch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	for i := range rows {
		b.Append(int64(id*1000 + i))
	}
	return &record.Batch{Rows: array.NewRecordBatch(numbers, []arrow.Array{b.NewArray()}, int64(rows))}
}

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
		late := make(chan error, 1)
		go func() { late <- m.Publish(t.Context(), positioned(4)) }()
		synctest.Wait()
		select {
		case err := <-late:
			t.Fatalf("the fourth item entered a lane of three: %v", err)
		default:
		}
		if _, err := mustLane(t, m, "a").Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-late; err != nil {
			t.Fatalf("there is room, but: %v", err)
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

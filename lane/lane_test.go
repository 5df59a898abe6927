package lane_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

func position(n int) record.Position {
	return record.Position{Shape: 1, Data: json.RawMessage(fmt.Sprint(n))}
}

func positioned(n int) lane.Batch {
	return lane.Batch{Batch: &record.Batch{Position: position(n), Changes: 1}}
}

func mustStream(t *testing.T, sinks []string, o lane.Options) *lane.Memory {
	t.Helper()
	m, err := lane.NewMemory(sinks, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustLane(t *testing.T, m *lane.Memory, sink string) lane.Consumer[lane.Item] {
	t.Helper()
	c, err := m.Lane(sink)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustReceive[T any](t *testing.T, c lane.Consumer[T]) lane.Delivery[T] {
	t.Helper()
	d, err := c.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// clauses W5, W6: acknowledging the second item first moves nothing.
func TestFrontierIsContiguous(t *testing.T) {
	m := mustStream(t, []string{"a"}, lane.Options{})
	c := mustLane(t, m, "a")
	for i := range 3 {
		if err := m.Publish(t.Context(), positioned(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	d1, d2, d3 := mustReceive(t, c), mustReceive(t, c), mustReceive(t, c)
	for _, step := range []struct {
		d    lane.Delivery[lane.Item]
		want string
	}{{d2, "none"}, {d1, "2"}, {d3, "3"}} {
		if err := step.d.Ack(); err != nil {
			t.Fatal(err)
		}
		if p, _ := m.Watermark(); p.String() != step.want {
			t.Errorf("watermark %s, want %s", p, step.want)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("error %v, want io.EOF", err)
	}
}

package lane_test

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/leatdata/leat/internal/benchtest"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/lane/lanetest"
)

const handOffs = 4096

// handOff publishes items and drains all lanes.
func handOff(b *testing.B, s lane.Stream, lanes []string, item lane.Batch) {
	b.Helper()
	var work sync.WaitGroup
	for _, l := range lanes {
		c, err := s.Lane(l)
		if err != nil {
			b.Fatal(err)
		}
		work.Go(func() {
			for {
				d, err := c.Receive(b.Context())
				if errors.Is(err, io.EOF) {
					return
				}
				if err == nil {
					err = d.Ack()
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	for range handOffs {
		if err := s.Publish(b.Context(), item); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	work.Wait()
}

// BenchmarkLanes hands items over: single records, and batches.
func BenchmarkLanes(b *testing.B) {
	s := benchtest.Orders()
	for _, tc := range []struct {
		name  string
		rows  int
		lanes []string
	}{
		{"single", 1, []string{"a"}},
		{"single/lanes=4", 1, []string{"a", "b", "c", "d"}},
		{"batches", 1000, []string{"a"}},
		{"batches/lanes=4", 1000, []string{"a", "b", "c", "d"}},
	} {
		item := lane.Batch{Batch: benchtest.Changes(s, 0, tc.rows)}
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				handOff(b, mustStream(b, lane.Options{}, tc.lanes...), tc.lanes, item)
			}
			benchtest.PerRow(b, handOffs*tc.rows)
		})
	}
}

// BenchmarkDurableLanes is the same through lanes that outlive the process, on a disk in memory: what encoding and order cost.
func BenchmarkDurableLanes(b *testing.B) {
	s := benchtest.Orders()
	for _, rows := range []int{1, 64} {
		item := lane.Batch{Batch: benchtest.Changes(s, 0, rows)}
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d, err := lane.Open(b.Context(), lanetest.NewDisk().Open(), lane.Spec{Pipeline: "p", Run: "r", Sinks: []string{"a"}}, nil)
				if err != nil {
					b.Fatal(err)
				}
				handOff(b, d, []string{"a"}, item)
				if err := d.Release(); err != nil {
					b.Fatal(err)
				}
			}
			benchtest.PerRow(b, handOffs*rows)
		})
	}
}

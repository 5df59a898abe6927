package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/lane"
)

// BenchmarkDurable publishes and delivers: batches as snapshots have them, and single changes. Behind means that consumers come when all is
// published, and everything is read from the disk.
func BenchmarkDurable(b *testing.B) {
	for _, rows := range []int{8192, 1} {
		for _, lanes := range []int{1, 4} {
			for _, behind := range []bool{false, true} {
				b.Run(fmt.Sprintf("rows=%d/lanes=%d/behind=%v", rows, lanes, behind), func(b *testing.B) { throughput(b, rows, lanes, behind) })
			}
		}
	}
}

func throughput(b *testing.B, rows, lanes int, behind bool) {
	b.Helper()
	spec := lane.Spec{Pipeline: "bench", Run: "r"}
	for i := range lanes {
		spec.Sinks = append(spec.Sinks, fmt.Sprint("sink", i))
	}
	d := openInside(b, b.TempDir(), spec)
	batch := connectortest.Numbered("t", 1, rows)
	batch.Changes = rows
	batch.Position = position(1)
	var work sync.WaitGroup
	consume := func(s string) {
		work.Go(func() {
			if err := drain(b.Context(), d, s); err != nil {
				b.Error(err)
			}
		})
	}
	if !behind {
		for _, s := range spec.Sinks {
			consume(s)
		}
	}
	publish := func(n int) {
		for range n {
			if err := d.Publish(b.Context(), lane.Batch{Batch: batch}); err != nil {
				b.Fatal(err)
			}
		}
	}
	if behind {
		publish(b.N)
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for _, s := range spec.Sinks {
			consume(s)
		}
	} else {
		b.ResetTimer()
		publish(b.N)
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
	work.Wait()
	b.StopTimer()
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(rows*b.N)/seconds, "rows/s")
	b.ReportMetric(float64(batch.Bytes())*float64(b.N)/1e6/seconds, "MB/s")
	b.ReportMetric(0, "ns/op")
}

func drain(ctx context.Context, d lane.Durable, sink string) error {
	c, err := d.Lane(sink)
	if err != nil {
		return err
	}
	for {
		x, err := c.Receive(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := x.Ack(); err != nil {
			return err
		}
	}
}

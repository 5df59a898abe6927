package kafka_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/benchtest"
	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/record"
)

// A stream of changes that is behind: batches of a thousand, committed every 50.
func BenchmarkSink(b *testing.B) {
	const rows, each = 1_000, 50
	for _, format := range []string{"json", "debezium"} {
		b.Run(format, func(b *testing.B) {
			mode := connector.Upsert
			if format == "debezium" {
				mode = connector.Append
			}
			w := startSink(b, sinkConfig(b, kafkatest.Prefix(b), "format", format), sinkStart(1, mode))
			s := benchtest.Orders()
			batch := benchtest.Changes(s, 0, rows)
			batch.Unchanged = nil // a message of a row needs all of it
			w.write(batch)
			w.commit(1)
			b.ReportAllocs()
			n := 1
			for b.Loop() {
				for range each {
					w.write(batch)
				}
				n++
				w.commit(n)
			}
			b.ReportMetric(rows*each, "rows/op")
			b.ReportMetric(float64(rows*each*(n-1))/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// A topic that is read from its beginning to its end.
func BenchmarkSource(b *testing.B) {
	const rows = 200_000
	topic := kafkatest.Topic(b, 4)
	p := producer(b, kgo.ProducerBatchMaxBytes(1<<20))
	for from := 0; from < rows; from += 10_000 {
		records := make([]*kgo.Record, 10_000)
		for i := range records {
			n := from + i
			records[i] = &kgo.Record{
				Topic: topic, Partition: int32(n % 4), Key: fmt.Appendf(nil, `{"id":%d}`, n),
				Value: fmt.Appendf(nil, `{"id":%d,"customer":%d,"note":"a note of some length","total":%d.25}`, n, n%977, n%1000),
			}
		}
		kafkatest.Produce(b, p, records...)
	}
	for name, options := range map[string][]string{
		"raw":      {"format", "raw"},
		"json":     {"format", "json"},
		"metadata": {"format", "json", "metadata", "partition,offset,timestamp,key"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := start(b, sourceConfig(b, topic, options...), record.Position{})
				n := 0
				for n < rows {
					batch, err := r.next(10_000)
					if err != nil {
						b.Fatal(err)
					}
					n += batch.NumRows()
				}
			}
			b.ReportMetric(rows, "rows/op")
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/kafka"
	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/record"
)

// producer is another client than leat's; records name their partition.
func producer(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return kafkatest.Client(t, kafkatest.Broker(t), append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come about in time")
		}
	}
}

// began is the time of the first record: brokers delete what is older than a week.
var began = time.Now().Truncate(time.Millisecond)

// numbered returns n records with values from, from+1, …, round robin over partitions.
func numbered(topic string, partitions, from, n int) []*kgo.Record {
	out := make([]*kgo.Record, n)
	for i := range out {
		out[i] = &kgo.Record{
			Topic: topic, Partition: int32((from + i) % partitions), Key: fmt.Appendf(nil, "k%d", from+i),
			Value: fmt.Appendf(nil, `{"n":%d}`, from+i), Timestamp: began.Add(time.Duration(from+i) * time.Millisecond),
		}
	}
	return out
}

// sourceConfig returns the configuration of a source of topics.
func sourceConfig(t testing.TB, topics string, options ...string) *kafka.SourceConfig {
	t.Helper()
	cfg, ok := kafka.NewSource().(*kafka.SourceConfig)
	if !ok {
		t.Fatal("NewSource returns another type")
	}
	if err := cfg.SetURL("kafka://" + kafkatest.Broker(t) + "/" + topics); err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(options, 2) {
		if err := connector.SetOption(cfg, pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// reading is a source that was started.
type reading struct {
	t   testing.TB
	src connector.Source
}

// start opens and starts a source at a position; the zero one: the beginning.
func start(t testing.TB, cfg connector.SourceConfig, at record.Position, cuts ...record.Position) *reading {
	t.Helper()
	r := &reading{t, open(t, cfg)}
	if err := r.src.Start(t.Context(), request(at, cuts...)); err != nil {
		t.Fatal(err)
	}
	return r
}

// open opens a source that is closed when the test ends.
func open(t testing.TB, cfg connector.SourceConfig) connector.Source {
	t.Helper()
	src, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return src
}

func request(at record.Position, cuts ...record.Position) connector.SourceStart {
	req := connector.SourceStart{Cuts: cuts}
	if !at.Zero() {
		req.From = connector.From{Origin: connector.Resume, Attempt: 1, Position: at}
	}
	return req
}

// next returns the next batch, or the error; it waits for one.
func (r *reading) next(limit int) (*record.Batch, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	for {
		b, err := r.src.Read(ctx, connector.Limit{Rows: limit, Bytes: 1 << 20})
		if b != nil || err != nil {
			return b, err
		}
		ready, _ := connector.As[connector.Notifier](r.src)
		select {
		case <-ready.Ready():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// all reads to the end, or until n rows have come.
func (r *reading) all(n int) (rows []string, last record.Position) {
	r.t.Helper()
	for n < 0 || len(rows) < n {
		b, err := r.next(1_000)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.t.Fatal(err)
		}
		for _, row := range connectortest.Rows(b) {
			rows = append(rows, b.Schema.Dataset+"\t"+row)
		}
		last = b.Position
	}
	return rows, last
}

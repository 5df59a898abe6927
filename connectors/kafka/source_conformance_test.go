package kafka_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/record"
)

// partitionOf is the partition of a row of the raw format.
func partitionOf(_, row string) string {
	var r struct {
		Partition int `json:"partition"`
	}
	if err := json.Unmarshal([]byte(row), &r); err != nil {
		panic(fmt.Sprintf("%s: %v", row, err)) // a mistake in the test
	}
	return strconv.Itoa(r.Partition)
}

// clauses S1, S5, S6, S7, S8, S9, S12, S14, S15, S23, S24, S25: topics with gaps in their offsets, of transactions that were committed
// and rolled back.
func TestSourceConformance(t *testing.T) {
	broker, prefix := kafkatest.Broker(t), kafkatest.Prefix(t)
	a, b, empty := prefix+"a", prefix+"b", prefix+"empty"
	kafkatest.MakeTopic(t, broker, a, 3)
	kafkatest.MakeTopic(t, broker, b, 1)
	kafkatest.MakeTopic(t, broker, empty, 2)
	tx := producer(t, kgo.TransactionalID(prefix+"txn"))
	for round := range 4 {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		kafkatest.Produce(t, tx, append(numbered(a, 3, 5*round, 5), numbered(b, 1, 3*round, 3)...)...)
		if err := tx.EndTransaction(t.Context(), kgo.TransactionEndTry(round%2 == 0)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]string{empty: {}}
	whole, _ := start(t, sourceConfig(t, prefix+"*", "format", "raw"), record.Position{}).all(-1)
	for _, row := range whole {
		dataset, row, _ := strings.Cut(row, "\t")
		want[dataset] = append(want[dataset], row)
	}
	if len(want[a]) != 10 || len(want[b]) != 6 {
		t.Fatalf("%d and %d rows: want the 10 and 6 that were committed", len(want[a]), len(want[b]))
	}
	for name, options := range map[string][]string{
		"to the end": nil,
		"followed":   {"follow", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			connectortest.Source(t, connectortest.SourceCase{
				New: func(t testing.TB) connector.SourceConfig {
					t.Helper()
					return sourceConfig(t, prefix+"*", append([]string{"format", "raw"}, options...)...)
				},
				Part: partitionOf,
				Want: want,
				Unreachable: func(t testing.TB) connector.SourceConfig {
					t.Helper()
					cfg := sourceConfig(t, a, append([]string{"format", "raw", "timeout", "2s"}, options...)...)
					cfg.Brokers = []string{"127.0.0.1:1"}
					return cfg
				},
			})
		})
	}
}

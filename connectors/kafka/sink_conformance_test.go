package kafka_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/kafka"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/record"
)

// sinkConfig returns the configuration of a sink whose topics begin with a prefix.
func sinkConfig(t testing.TB, prefix string, options ...string) *kafka.SinkConfig {
	t.Helper()
	cfg, ok := kafka.NewSink().(*kafka.SinkConfig)
	if !ok {
		t.Fatal("NewSink returns another type")
	}
	if err := cfg.SetURL("kafka://" + kafkatest.Broker(t) + "/" + prefix + "{dataset}"); err != nil {
		t.Fatal(err)
	}
	cfg.PositionTopic, cfg.TransactionPrefix, cfg.Partitions = prefix+"positions", prefix+"tx", 3
	for pair := range slices.Chunk(options, 2) {
		if err := connector.SetOption(cfg, pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// topicOf finds the topic of a dataset by the URI that the sink gives it.
func topicOf(t testing.TB, cfg *kafka.SinkConfig, dataset string) string {
	t.Helper()
	snk, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	named, _ := connector.As[connector.Named](snk)
	return named.URI(dataset)[len("kafka://"+cfg.Brokers[0]+"/"):]
}

// decoded are the rows of messages, with the types of the schema.
func decoded(t testing.TB, format string, topic message.Topic, s *record.Schema, records []*kgo.Record) []*record.Batch {
	t.Helper()
	f, err := formats.New(format, formats.Options{})
	if err != nil {
		t.Fatal(err)
	}
	topic.Types = map[string]string{}
	for _, field := range s.Columns.Fields() {
		topic.Types[field.Name] = record.FormatType(field.Type)
	}
	messages := make([]message.Message, len(records))
	for i, r := range records {
		messages[i] = message.Message{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
	}
	learned, err := f.Learn(t.Context(), topic, messages)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(topic, learned)
	if err != nil {
		t.Fatal(err)
	}
	var out []*record.Batch
	flush := func() {
		b, err := d.Batch()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			return
		}
		for _, r := range b.Rejects {
			t.Error(r.Error())
		}
		out = append(out, b)
	}
	for i := range messages {
		ok, err := d.Append(t.Context(), &messages[i])
		if err == nil && !ok {
			flush()
			_, err = d.Append(t.Context(), &messages[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	flush()
	return out
}

// table is what a topic holds: its messages, or, where it is compacted, the last one of each key.
func table(t testing.TB, topic string, s *record.Schema) (rows []string, exists bool) {
	t.Helper()
	broker := kafkatest.Broker(t)
	admin := kadm.NewClient(kafkatest.Client(t, broker))
	m, err := admin.Metadata(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if m.Topics[topic].Err != nil {
		return nil, false
	}
	compacted := setting(t, admin, topic, "cleanup.policy") == "compact"
	records := kafkatest.Read(t, broker, topic)
	if len(records) == 0 {
		return nil, true
	}
	last := map[string]string{}
	for _, b := range decoded(t, "json", message.Topic{Name: topic, Dataset: s.Dataset, Keyed: compacted}, s, records) {
		for i := range b.NumRows() {
			row := string(b.RowJSON(i))
			switch {
			case !compacted:
				rows = append(rows, row)
			case b.Op(i) == record.Delete:
				delete(last, string(b.KeyJSON(i)))
			default:
				last[string(b.KeyJSON(i))] = row
			}
		}
	}
	return slices.AppendSeq(rows, maps.Values(last)), true
}

func setting(t testing.TB, admin *kadm.Client, topic, name string) string {
	t.Helper()
	all, err := admin.DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all[0].Configs {
		if c.Key == name {
			return *c.Value
		}
	}
	t.Fatalf("topic %s has no setting %s", topic, name)
	return ""
}

// newTarget is a target whose topics no other one has.
func newTarget(t testing.TB) connectortest.Target {
	t.Helper()
	prefix := kafkatest.Prefix(t)
	return connectortest.Target{
		Config: func() connector.SinkConfig { return sinkConfig(t, prefix) },
		Read: func(t testing.TB, s *record.Schema) ([]string, bool) {
			t.Helper()
			return table(t, topicOf(t, sinkConfig(t, prefix), s.Dataset), s)
		},
	}
}

// clauses E5, E12, E15: changes as JSON, in compacted topics.
func TestMessageLogConformance(t *testing.T) {
	connectortest.MessageLog(t, connectortest.SinkCase{New: newTarget})
}

// clauses E5, W10: a sink of rows as JSON, exactly once.
func TestSinkConformance(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{
		New: newTarget,
		Refused: func(t testing.TB, _ connectortest.Target) (*record.Batch, []int) {
			t.Helper()
			large := `"` + string(slices.Repeat([]byte("x"), 2<<20)) + `"`
			s := connectortest.Numbered("one", 0, 1).Schema
			return connectortest.BatchOf(s, []string{"1", `"a"`}, []string{"2", large}, []string{"3", `"c"`}, []string{"4", large}), []int{1, 3}
		},
		Unreachable: func(t testing.TB) connector.SinkConfig {
			t.Helper()
			cfg := sinkConfig(t, "x", "timeout", "2s")
			cfg.Brokers = []string{"127.0.0.1:1"}
			return cfg
		},
	})
}

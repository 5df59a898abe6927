package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/internal/kafkatest"
)

// Topics become what they were: with their settings, partitions and committed records, and nothing that came later.
func TestTopicsArePutBack(t *testing.T) {
	t.Parallel()
	broker, prefix, file := kafkatest.Broker(t), kafkatest.Prefix(t), filepath.Join(t.TempDir(), "topics.json")
	rows, empty, later := prefix+"rows", prefix+"empty", prefix+"later"
	kafkatest.MakeTopic(t, broker, rows, 3, "cleanup.policy=compact", "min.compaction.lag.ms=86400000")
	kafkatest.MakeTopic(t, broker, empty, 1)
	record := func(key, value string, headers ...kgo.RecordHeader) *kgo.Record {
		return &kgo.Record{Topic: rows, Key: []byte(key), Value: []byte(value), Headers: headers}
	}
	kafkatest.Transact(t, broker, kgo.TryCommit, record("a", "1"), record("a", "2", kgo.RecordHeader{Key: "h", Value: []byte("v")}),
		record("b", "3"), record("c", "4"), &kgo.Record{Topic: rows, Key: []byte("d")})
	kafkatest.Transact(t, broker, kgo.TryAbort, record("a", "never"))
	said := func() (all []string) {
		for _, r := range kafkatest.Read(t, broker, rows, empty) {
			all = append(all, fmt.Sprint(r.Topic, r.Partition, r.Timestamp, string(r.Key), r.Value == nil, string(r.Value), r.Headers))
		}
		settings, err := kadm.NewClient(kafkatest.Client(t, broker)).DescribeTopicConfigs(t.Context(), rows)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range settings[0].Configs {
			if c.Key == "cleanup.policy" || c.Key == "min.compaction.lag.ms" {
				all = append(all, c.Key+"="+c.MaybeValue())
			}
		}
		return all
	}
	before := said()
	if err := keepTopics(t.Context(), broker, prefix, file); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		kafkatest.Transact(t, broker, kgo.TryCommit, record("a", "later"), &kgo.Record{Topic: empty, Value: []byte("later")})
		kafkatest.MakeTopic(t, broker, later, 1)
		if slices.Equal(before, said()) {
			t.Fatal("nothing changed: the test shows nothing")
		}
		args := []string{"topics", "-brokers", broker, "-prefix", prefix, "-kept", file}
		if err := start(t.Context(), args); err != nil {
			t.Fatal(err)
		}
		if after := said(); !slices.Equal(before, after) {
			t.Errorf("topics were\n%s\nand are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
		if names := kafkatest.Topics(t, broker, prefix); !slices.Equal(slices.Sorted(slices.Values(names)), []string{empty, rows}) {
			t.Errorf("topics are %v", names)
		}
	}
	if err := dropTopics(t.Context(), broker, prefix); err != nil {
		t.Fatal(err)
	}
	if err := keepTopics(t.Context(), broker, prefix, file); err == nil {
		t.Error("no topics are kept: a follower that made none would pass")
	}
}

// A message that is missing, doubled, altered, out of order or in the wrong place is found.
func TestSameMessages(t *testing.T) {
	t.Parallel()
	message := func(part, seq, key, id int, name, amount string) string {
		return fmt.Sprintf(`{"part":%d,"seq":%d,"key":{"id":%d},"message":{"id":%d,"qty":1,"price":0.1,"amt":%q,"name":%q,`+
			`"ts":"2026-01-01T00:00:00.000001Z"}}`, part, seq, key, id, amount, name)
	}
	first, second, other := message(0, 0, 1, 1, "a", "0.10"), message(0, 1, 1, 1, "b", "0.20"), message(1, 0, 2, 2, "c", "0.30")
	const want = "(select id::bigint id, 1::integer qty, 0.1::double price, amt::decimal(12,2) amt, name, " +
		"timestamptz '2026-01-01 00:00:00.000001Z' ts from (values (1, 0.20, 'b'), (2, 0.30, 'c')) v(id, amt, name))"
	for _, c := range []struct {
		name  string
		lines []string
		says  string
	}{
		{"the same", []string{other, first, second}, ""},
		{"one is missing", []string{first, other}, "2 messages"},
		{"one came twice", []string{first, second, message(0, 2, 1, 1, "b", "0.20"), other}, "4 messages"},
		{"one came instead of another", []string{message(0, 0, 1, 1, "b", "0.20"), second, other}, "2 different ones"},
		{"a value", []string{first, message(0, 1, 1, 1, "b", "0.21"), other}, "values differ"},
		{"the order", []string{message(0, 2, 1, 1, "a", "0.10"), second, other}, "values differ"},
		{"the key", []string{first, second, message(1, 0, 3, 2, "c", "0.30")}, "1 with another key"},
		{"a key in two partitions", []string{first, message(1, 1, 1, 1, "b", "0.20"), other}, "3 places for 2 keys"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			read := filepath.Join(t.TempDir(), "read.jsonl")
			if err := os.WriteFile(read, []byte(strings.Join(c.lines, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			err := sameMessages(t.Context(), want, read, 3)
			if (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, not %q", err, c.says)
			}
		})
	}
}

package kafkatest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// cleanUpTimeout bounds what a test does after its end.
	cleanUpTimeout = 30 * time.Second
	// readTimeout bounds how long a reader waits for the next record of those that are there.
	readTimeout = 30 * time.Second
)

// Broker returns host and port of the test broker. Without one the test is skipped, in CI it fails.
func Broker(t testing.TB) string {
	t.Helper()
	return variable(t, "LEAT_TEST_KAFKA")
}

// Secure returns host and port where the broker asks for encryption and a login, as user leat with this password.
func Secure(t testing.TB) (addr, password string) {
	t.Helper()
	return variable(t, "LEAT_TEST_KAFKA_SECURE"), variable(t, "LEAT_TEST_KAFKA_PASSWORD")
}

// CA returns the path of the certificate authority to verify the broker with, under the name localhost.
func CA(t testing.TB) string {
	t.Helper()
	return variable(t, "LEAT_TEST_KAFKA_CA")
}

// Registry returns the URL of the schema registry.
func Registry(t testing.TB) string {
	t.Helper()
	return variable(t, "LEAT_TEST_REGISTRY")
}

func variable(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	switch {
	case value != "":
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is not set, and in CI it must be: run the tests with `make test`", name)
	default:
		t.Skipf(`%s is not set: dev/services start && eval "$(dev/services env)"`, name)
	}
	return value
}

// Client connects another client than leat's to a broker. It is closed when the test ends.
func Client(t testing.TB, broker string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(broker), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatalf("connecting to the test broker: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// Prefix returns the beginning of names that no other test has. Topics and transactional ids with such names may be made in any number:
// the topics are deleted when the test ends.
func Prefix(t testing.TB) string {
	t.Helper()
	broker := Broker(t)
	prefix := "leat-test-" + strings.ToLower(rand.Text()[:12]) + "-"
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanUpTimeout)
		defer cancel()
		c, err := kgo.NewClient(kgo.SeedBrokers(broker))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		admin := kadm.NewClient(c)
		names, err := topicNames(ctx, admin, prefix)
		if err == nil && len(names) > 0 {
			_, err = admin.DeleteTopics(ctx, names...)
		}
		if err != nil {
			t.Errorf("deleting the topics of a test: %v", err)
		}
	})
	return prefix
}

// Topic makes a topic of its own, with settings such as "cleanup.policy=compact". It is deleted when the test ends.
func Topic(t testing.TB, partitions int32, settings ...string) string {
	t.Helper()
	name := Prefix(t) + "topic"
	MakeTopic(t, Broker(t), name, partitions, settings...)
	return name
}

// MakeTopic makes a topic, and waits until the broker knows it.
func MakeTopic(t testing.TB, broker, name string, partitions int32, settings ...string) {
	t.Helper()
	admin := kadm.NewClient(Client(t, broker))
	configs := map[string]*string{}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		configs[key] = &value
	}
	if _, err := admin.CreateTopic(t.Context(), partitions, 1, configs, name); err != nil {
		t.Fatalf("making topic %s: %v", name, err)
	}
	for deadline := time.Now().Add(readTimeout); ; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // another program's work
		topics, err := admin.ListTopics(t.Context(), name)
		if err == nil && topics[name].Err == nil && len(topics[name].Partitions) == int(partitions) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("topic %s does not come about: %v", name, err)
		}
	}
}

// Produce sends records, and returns when they are stored.
func Produce(t testing.TB, c *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatalf("producing: %v", err)
	}
}

// Transact sends records in one transaction, and commits or aborts it.
func Transact(t testing.TB, broker string, end kgo.TransactionEndTry, records ...*kgo.Record) {
	t.Helper()
	c := Client(t, broker, kgo.TransactionalID("leat-test-"+rand.Text()))
	err := c.BeginTransaction()
	if err == nil {
		err = c.ProduceSync(t.Context(), records...).FirstErr()
	}
	if err == nil {
		err = c.EndTransaction(t.Context(), end)
	}
	if err != nil {
		t.Fatalf("a transaction: %v", err)
	}
}

// Read returns the records that are in the topics now, of committed transactions only: those of one partition in their order, and
// partitions one after the other. It waits for the end of transactions that are open, as one is for a moment after its commit.
func Read(t testing.TB, broker string, topics ...string) []*kgo.Record {
	t.Helper()
	ends := settled(t, broker, topics)
	left := map[string]map[int32]int64{} // where each partition's reading ends
	from := map[string]map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if left[o.Topic] == nil {
			left[o.Topic], from[o.Topic] = map[int32]int64{}, map[int32]kgo.Offset{}
		}
		if o.Offset > 0 {
			left[o.Topic][o.Partition], from[o.Topic][o.Partition] = o.Offset, kgo.NewOffset().AtStart()
		}
	})
	// Markers of transactions are read too: at the end of a partition there may be nothing else.
	c := Client(t, broker, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond))
	defer c.Close() // it would go on asking for more
	var read []*kgo.Record
	for !done(left) {
		ctx, cancel := context.WithTimeout(t.Context(), readTimeout)
		fetches := c.PollFetches(ctx)
		cancel()
		if err := fetches.Err0(); err != nil {
			t.Fatalf("reading topics %s: %v; missing up to %v", strings.Join(topics, ", "), err, left)
		}
		for r := range fetches.RecordsAll() {
			end, reading := left[r.Topic][r.Partition]
			if !reading {
				continue
			}
			if !r.Attrs.IsControl() {
				read = append(read, r)
			}
			if r.Offset+1 >= end {
				delete(left[r.Topic], r.Partition)
			}
		}
	}
	slices.SortStableFunc(read, func(a, b *kgo.Record) int {
		if n := strings.Compare(a.Topic, b.Topic); n != 0 {
			return n
		}
		return int(a.Partition - b.Partition)
	})
	return read
}

// settled returns where the topics end, once no transaction is open.
func settled(t testing.TB, broker string, topics []string) kadm.ListedOffsets {
	t.Helper()
	admin := kadm.NewClient(Client(t, broker))
	for deadline := time.Now().Add(readTimeout); ; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // another program's work
		committed, err := admin.ListCommittedOffsets(t.Context(), topics...)
		var ends kadm.ListedOffsets
		if err == nil {
			ends, err = admin.ListEndOffsets(t.Context(), topics...)
		}
		if err = cmp.Or(err, committed.Error(), ends.Error()); err == nil && maps.EqualFunc(committed, ends, maps.Equal) {
			return ends
		}
		if time.Now().After(deadline) {
			t.Fatalf("a transaction in %s does not end: committed %v, all %v, error %v", strings.Join(topics, ", "), committed, ends, err)
		}
	}
}

func done(left map[string]map[int32]int64) bool {
	for partitions := range maps.Values(left) {
		if len(partitions) > 0 {
			return false
		}
	}
	return true
}

// Topics returns the names of the topics that begin so.
func Topics(t testing.TB, broker, prefix string) []string {
	t.Helper()
	names, err := topicNames(t.Context(), kadm.NewClient(Client(t, broker)), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func topicNames(ctx context.Context, admin *kadm.Client, prefix string) ([]string, error) {
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what was being done
	}
	return slices.DeleteFunc(topics.Names(), func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}

// String shows a record in a test's message.
func String(r *kgo.Record) string {
	return fmt.Sprintf("%s/%d@%d %s=%s", r.Topic, r.Partition, r.Offset, r.Key, r.Value)
}

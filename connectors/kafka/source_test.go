package kafka_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/record"
)

// values are the n of the rows of raw messages.
func values(rows []string) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = r[strings.Index(r, `"key":`):]
	}
	return slices.Sorted(slices.Values(out))
}

// expectedRows are the rows of numbered messages, as values has them.
func expectedRows(t testing.TB, records []*kgo.Record) []string {
	t.Helper()
	out := make([]string, len(records))
	for i, r := range records {
		key := record.AppendJSONString(nil, base64.StdEncoding.EncodeToString(r.Key))
		out[i] = fmt.Sprintf(`"key":%s,"value":%q,"headers":null}`, key, base64.StdEncoding.EncodeToString(r.Value))
	}
	return slices.Sorted(slices.Values(out))
}

// clauses S4, S25: topics that a pattern means and partitions that come later join from their first record on, without loss, also across
// a restart in between and before cuts that do not know them.
func TestJoin(t *testing.T) {
	broker, prefix := kafkatest.Broker(t), kafkatest.Prefix(t)
	admin := kadm.NewClient(kafkatest.Client(t, broker))
	a, b := prefix+"a", prefix+"b"
	kafkatest.MakeTopic(t, broker, a, 1)
	p := producer(t)
	first := numbered(a, 1, 0, 5)
	kafkatest.Produce(t, p, first...)
	cfg := sourceConfig(t, prefix+"*", "format", "raw", "follow", "true", "refresh", "100ms")
	r := start(t, cfg, record.Position{})
	rows, before := r.all(5)
	if _, err := admin.CreatePartitions(t.Context(), 2, a); err != nil {
		t.Fatal(err)
	}
	kafkatest.MakeTopic(t, broker, b, 2)
	more := slices.Concat(numbered(a, 3, 5, 9), numbered(b, 2, 20, 4))
	waitFor(t, func() bool {
		m, err := admin.Metadata(t.Context(), a)
		return err == nil && len(m.Topics[a].Partitions) == 3
	})
	kafkatest.Produce(t, producer(t), more...)
	joined, behind := r.all(13)
	if got, want := values(append(rows, joined...)), expectedRows(t, slices.Concat(first, more)); !slices.Equal(got, want) {
		t.Errorf("the rows are %v, want %v", got, want)
	}

	again, _ := start(t, cfg, before, behind).all(13)
	if got, want := values(again), expectedRows(t, more); !slices.Equal(got, want) {
		t.Errorf("behind a restart the rows are %v, want %v", got, want)
	}
}

// A cut that does not know a partition that came later is met before anything of that one is delivered.
func TestCutBeforeJoin(t *testing.T) {
	broker, topic := kafkatest.Broker(t), kafkatest.Topic(t, 1)
	admin := kadm.NewClient(kafkatest.Client(t, broker))
	kafkatest.Produce(t, producer(t), numbered(topic, 1, 0, 6)...)
	cfg := sourceConfig(t, topic, "format", "raw", "follow", "true", "refresh", "100ms")
	var marks []record.Position
	r := start(t, cfg, record.Position{})
	for len(marks) < 4 {
		b, err := r.next(1)
		if err != nil {
			t.Fatal(err)
		}
		if b.NumRows() > 0 {
			marks = append(marks, b.Position)
		}
	}
	if _, err := admin.CreatePartitions(t.Context(), 1, topic); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		m, err := admin.Metadata(t.Context(), topic)
		return err == nil && len(m.Topics[topic].Partitions) == 2
	})
	kafkatest.Produce(t, producer(t), numbered(topic, 2, 6, 4)...)
	r = start(t, cfg, marks[0], marks[3])
	positions, _ := connector.As[connector.Positions](r.src)
	met, n := false, 0
	for n < 9 {
		b, err := r.next(100)
		if err != nil {
			t.Fatal(err)
		}
		n += b.NumRows()
		order, ok := positions.Compare(b.Position, marks[3])
		if !ok || (!met && order > 0) {
			t.Fatalf("behind %d rows the source is at %s: it went on without meeting the cut %s", n, b.Position, marks[3])
		}
		met = met || order == 0
	}
	if !met {
		t.Error("the cut was never met")
	}
}

// refusedAt starts a source at a position that it has to refuse.
func refusedAt(t *testing.T, cfg connector.SourceConfig, at record.Position, code string) {
	t.Helper()
	err := open(t, cfg).Start(t.Context(), request(at))
	checkRefusal(t, err, code)
}

func checkRefusal(t *testing.T, err error, code string) {
	t.Helper()
	var e *connector.Error
	if !errors.As(err, &e) || connector.ClassOf(err) != connector.ClassPosition || e.Code != code || connector.HintOf(err) == "" {
		t.Errorf("the error is %v (hint %q): want one of class position with code %s and a hint", err, connector.HintOf(err), code)
	}
}

// clause S4: records that were deleted before they were read, a topic that was made anew, one that is gone, and another cluster.
func TestPositionErrors(t *testing.T) {
	broker, prefix := kafkatest.Broker(t), kafkatest.Prefix(t)
	topic := prefix + "t"
	admin := kadm.NewClient(kafkatest.Client(t, broker))
	kafkatest.MakeTopic(t, broker, topic, 1)
	kafkatest.Produce(t, producer(t), numbered(topic, 1, 0, 10)...)
	cfg := sourceConfig(t, prefix+"*", "format", "raw")
	b, err := start(t, cfg, record.Position{}).next(3)
	if err != nil {
		t.Fatal(err)
	}
	at := b.Position

	live := sourceConfig(t, prefix+"*", "format", "raw", "follow", "true", "refresh", "100ms")
	running := start(t, live, record.Position{})
	running.all(10)

	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 7, -1)
	if _, err := admin.DeleteRecords(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
	refusedAt(t, cfg, at, "kafka.expired")
	other := at
	other.Data = []byte(strings.Replace(string(at.Data), `"cluster":"`, `"cluster":"x`, 1))
	refusedAt(t, cfg, other, "kafka.cluster")
	beyond := at
	beyond.Data = []byte(strings.Replace(string(at.Data), `"next":[3],"epochs":[0]`, `"next":[12],"epochs":[0]`, 1))
	refusedAt(t, cfg, beyond, "kafka.truncated")

	if _, err := admin.DeleteTopics(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); err == nil && time.Now().Before(deadline); {
		_, err = running.src.Read(t.Context(), connector.Limit{Rows: 10})
	}
	checkRefusal(t, err, "kafka.topic_deleted")
	kafkatest.MakeTopic(t, broker, prefix+"other", 1)
	refusedAt(t, cfg, at, "kafka.topic_deleted")
	waitFor(t, func() bool {
		r, err := admin.CreateTopic(t.Context(), 1, 1, nil, topic)
		return err == nil && r.Err == nil
	})
	refusedAt(t, cfg, at, "kafka.topic_recreated")
}

// A run that ends reads to where the topic ended when it began, also where nothing but what was rolled back stands there and a
// transaction is open; the next run of an incremental source goes on behind it.
func TestRunsThatEnd(t *testing.T) {
	broker, topic := kafkatest.Broker(t), kafkatest.Topic(t, 2)
	kafkatest.Produce(t, producer(t), numbered(topic, 2, 0, 4)...)
	rolled := producer(t, kgo.TransactionalID(topic+"rolled"))
	opened := producer(t, kgo.TransactionalID(topic+"open"))
	for _, tx := range []*kgo.Client{rolled, opened} {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	kafkatest.Produce(t, rolled, numbered(topic, 2, 4, 4)...)
	kafkatest.Produce(t, opened, numbered(topic, 2, 8, 2)...)
	if err := rolled.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	cfg := sourceConfig(t, topic, "format", "raw", "incremental", "true")
	rows, at := start(t, cfg, record.Position{}).all(-1)
	if got, want := values(rows), expectedRows(t, numbered(topic, 2, 0, 4)); !slices.Equal(got, want) {
		t.Errorf("the first run read %v, want %v", got, want)
	}
	if err := opened.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	kafkatest.Transact(t, broker, kgo.TryCommit, numbered(topic, 2, 20, 3)...)
	want := expectedRows(t, slices.Concat(numbered(topic, 2, 8, 2), numbered(topic, 2, 20, 3)))
	waitFor(t, func() bool { // markers of a transaction come a moment later
		rows, _ := start(t, cfg, at).all(-1)
		return slices.Equal(values(rows), want)
	})
}

// The option from: the newest end, a time, and where a consumer group is, which is told how far the run got.
func TestFrom(t *testing.T) {
	topic := kafkatest.Topic(t, 1)
	kafkatest.Produce(t, producer(t), numbered(topic, 1, 0, 10)...)
	count := func(options ...string) int {
		rows, _ := start(t, sourceConfig(t, topic, append([]string{"format", "raw"}, options...)...), record.Position{}).all(-1)
		return len(rows)
	}
	if n := count("from", "latest"); n != 0 {
		t.Errorf("from the latest %d rows came", n)
	}
	if n := count("from", began.Add(6*time.Millisecond).UTC().Format(time.RFC3339Nano)); n != 4 {
		t.Errorf("from the time of the 7th record %d rows came, want 4", n)
	}
	group := topic + "group"
	admin := kadm.NewClient(kafkatest.Client(t, kafkatest.Broker(t)))
	waitFor(t, func() bool { // a broker that nobody has asked for a group makes its topic first
		_, err := admin.FetchOffsets(t.Context(), group)
		return err == nil
	})
	cfg := sourceConfig(t, topic, "format", "raw", "from", "group", "group", group)
	r := start(t, cfg, record.Position{})
	b, err := r.next(3)
	if err != nil {
		t.Fatal(err)
	}
	ack, ok := connector.As[connector.Acknowledger](r.src)
	if !ok {
		t.Fatal("a source with a group has no way to acknowledge")
	}
	if err := ack.Acknowledge(t.Context(), b.Position); err != nil {
		t.Fatal(err)
	}
	if n := count("from", "group", "group", group); n != 7 {
		t.Errorf("from the group %d rows came, want 7", n)
	}
}

// Lag counts what was not handed out, and is zero at the end.
func TestLag(t *testing.T) {
	topic := kafkatest.Topic(t, 2)
	kafkatest.Produce(t, producer(t), numbered(topic, 2, 0, 10)...)
	r := start(t, sourceConfig(t, topic, "format", "raw", "follow", "true"), record.Position{})
	lag, _ := connector.As[connector.LagReporter](r.src)
	if l, err := lag.Lag(t.Context()); err != nil || l.Events != 10 {
		t.Errorf("before the first row the lag is %+v (%v)", l, err)
	}
	r.all(10)
	if l, err := lag.Lag(t.Context()); err != nil || l.Events != 0 || l.Age != 0 {
		t.Errorf("behind the last row the lag is %+v (%v)", l, err)
	}
}

// case C098: in a source whose messages are the rows of their keys, a message without a value deletes, also what never was; skipped, it
// says nothing.
func TestTombstones(t *testing.T) {
	topic := kafkatest.Topic(t, 1)
	kafkatest.Produce(t, producer(t),
		&kgo.Record{Topic: topic, Key: []byte(`{"id":1}`), Value: []byte(`{"id":1,"v":"a"}`)},
		&kgo.Record{Topic: topic, Key: []byte(`{"id":1}`)},
		&kgo.Record{Topic: topic, Key: []byte(`{"id":2}`)},
		&kgo.Record{Topic: topic, Key: []byte(`{"id":3}`), Value: []byte(`{"id":3,"v":"c"}`)})
	read := func(options ...string) []string {
		rows, _ := start(t, sourceConfig(t, topic, options...), record.Position{}).all(-1)
		for i := range rows {
			_, rows[i], _ = strings.Cut(rows[i], "\t")
		}
		return rows
	}
	upserts := []string{`upsert {"id":1,"v":"a"}`, `delete {"id":1,"v":null}`, `delete {"id":2,"v":null}`, `upsert {"id":3,"v":"c"}`}
	if got := read("keyed", "true"); !slices.Equal(got, upserts) {
		t.Errorf("keyed rows are %q, want %q", got, upserts)
	}
	if got, want := read("keyed", "true", "tombstones", "skip"), []string{upserts[0], upserts[3]}; !slices.Equal(got, want) {
		t.Errorf("with tombstones skipped the rows are %q, want %q", got, want)
	}
	if got, want := read("tombstones", "skip"), []string{`{"id":1,"v":"a"}`, `{"id":3,"v":"c"}`}; !slices.Equal(got, want) {
		t.Errorf("appended rows are %q, want %q", got, want)
	}
}

package kafka_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/kafka"
	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/record"
)

// writing is a sink that was started.
type writing struct {
	t     testing.TB
	snk   connector.Sink
	store connector.PositionStore
}

func sinkStart(fence uint64, mode connector.WriteMode) connector.SinkStart {
	return connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: fence, Mode: mode}
}

// startSink opens and starts a sink that is closed when the test ends.
func startSink(t testing.TB, cfg connector.SinkConfig, req connector.SinkStart) *writing {
	t.Helper()
	snk, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := snk.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := snk.Start(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	store, _ := connector.As[connector.PositionStore](snk)
	return &writing{t, snk, store}
}

func (w *writing) write(batches ...*record.Batch) {
	w.t.Helper()
	for _, b := range batches {
		if err := w.snk.Write(w.t.Context(), b); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *writing) commit(n int) {
	w.t.Helper()
	if err := w.store.Commit(w.t.Context(), progressAt(n)); err != nil {
		w.t.Fatal(err)
	}
}

func progressAt(n int) record.Progress {
	return record.Progress{Run: "r", Position: record.Position{Shape: 1, Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}, Epoch: uint64(n)}
}

// lines shows messages: partition, key and value; - is none.
func lines(records []*kgo.Record, partitions bool) []string {
	text := func(b []byte) string {
		if b == nil {
			return "-"
		}
		return string(b)
	}
	out := make([]string, len(records))
	for i, r := range records {
		out[i] = text(r.Key) + " " + text(r.Value)
		if partitions {
			out[i] = fmt.Sprintf("%d: %s", r.Partition, out[i])
		}
	}
	return out
}

func keyedSchema(dataset string) *record.Schema {
	return &record.Schema{Dataset: dataset, Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "v", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)}
}

// cases C066, C098: in mode upsert a message is the row of its key, a deletion one without a value; a key that changes is deleted where it
// was, in its own partition, and is there once.
func TestMovedKeysAndTombstones(t *testing.T) {
	prefix := kafkatest.Prefix(t)
	cfg := sinkConfig(t, prefix, "partitions", "7")
	w := startSink(t, cfg, sinkStart(1, connector.Upsert))
	s := keyedSchema("moved")
	first := connectortest.Change{Op: record.Insert, Row: []string{"1", `"a"`}}
	w.write(connectortest.Changes(s, first,
		connectortest.Change{Op: record.Update, Row: []string{"2", `"b"`}, Old: []string{"1", "null"}},
		connectortest.Change{Op: record.Delete, Row: []string{"3", "null"}},
		connectortest.Change{Op: record.Update, Row: []string{"2", `"c"`}, Old: []string{"2", "null"}}))
	w.commit(1)
	records := kafkatest.Read(t, kafkatest.Broker(t), topicOf(t, cfg, "moved"))
	got := slices.Sorted(slices.Values(lines(records, false)))
	want := []string{
		`{"id":1} -`, `{"id":1} {"id":1,"v":"a"}`, `{"id":2} {"id":2,"v":"b"}`, `{"id":2} {"id":2,"v":"c"}`, `{"id":3} -`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("messages are %q, want %q", got, want)
	}
	partition := map[string]int32{}
	for _, r := range records {
		if at, known := partition[string(r.Key)]; known && at != r.Partition {
			t.Errorf("key %s is in partitions %d and %d", r.Key, at, r.Partition)
		}
		partition[string(r.Key)] = r.Partition
	}
	if partition[`{"id":1}`] == partition[`{"id":2}`] {
		t.Error("both keys are in one partition: the test shows nothing")
	}
	rows, _ := table(t, topicOf(t, cfg, "moved"), s)
	if want := []string{`{"id":2,"v":"c"}`}; !slices.Equal(rows, want) {
		t.Errorf("what is left is %q, want %q", rows, want)
	}
}

// Partitions are those of the Java client: the hashes are from the tests of its murmur2.
func TestPartitionsAsJava(t *testing.T) {
	broker, topic := kafkatest.Broker(t), kafkatest.Topic(t, 11)
	java := kafkatest.Client(t, broker, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	hashes := map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	}
	for key := range hashes {
		kafkatest.Produce(t, java, &kgo.Record{Topic: topic, Key: []byte(key)})
	}
	text := arrow.BinaryTypes.String
	s := &record.Schema{Dataset: topic, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "key", Type: text, Nullable: true}, {Name: "value", Type: text, Nullable: true},
	}, nil)}
	cfg := sinkConfig(t, "", "format", "raw", "topic", "{dataset}")
	cfg.PositionTopic = kafkatest.Prefix(t) + "positions"
	w := startSink(t, cfg, sinkStart(1, connector.Append))
	for key := range hashes {
		w.write(connectortest.BatchOf(s, []string{`"` + key + `"`, `"leat"`}))
	}
	w.commit(1)
	records := kafkatest.Read(t, broker, topic)
	if len(records) != 2*len(hashes) {
		t.Fatalf("%d messages, want %d", len(records), 2*len(hashes))
	}
	for _, r := range records {
		if want := (hashes[string(r.Key)] & 0x7fffffff) % 11; r.Partition != want {
			t.Errorf("key %q with value %q is in partition %d, want %d", r.Key, r.Value, r.Partition, want)
		}
	}
}

// Events of Debezium: all changes in the order of their key, a key that moves as two events, tombstones, and a truncation where there is
// one partition.
func TestDebeziumEvents(t *testing.T) {
	prefix := kafkatest.Prefix(t)
	cfg := sinkConfig(t, prefix, "format", "debezium", "partitions", "1")
	w := startSink(t, cfg, sinkStart(1, connector.Append))
	s := keyedSchema("shop.events")
	b := connectortest.Changes(s,
		connectortest.Change{Op: record.Insert, Row: []string{"1", `"a"`}},
		connectortest.Change{Op: record.Update, Row: []string{"2", `"a"`}, Old: []string{"1", "null"}},
		connectortest.Change{Op: record.Update, Row: []string{"2", connectortest.Unsent}},
		connectortest.Change{Op: record.Delete, Row: []string{"2", "null"}})
	b.Txns = []record.Txn{{Rows: 4, Position: record.Position{Shape: 1, Data: json.RawMessage(`{"lsn":"0/10"}`)}, Time: began}}
	empty := &record.Batch{Schema: s, Truncate: true}
	w.write(b, empty)
	w.commit(1)
	var got []string
	for _, r := range kafkatest.Read(t, kafkatest.Broker(t), prefix+"shop.events") {
		var e struct {
			Before map[string]any `json:"before"`
			After  map[string]any `json:"after"`
			Op     string         `json:"op"`
		}
		if r.Value != nil {
			if err := json.Unmarshal(r.Value, &e); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, fmt.Sprintf("%s %s %v %v", r.Key, e.Op, e.Before, e.After))
	}
	want := []string{
		`{"id":1} c map[] map[id:1 v:a]`, `{"id":1} d map[id:1] map[]`, `{"id":1}  map[] map[]`, `{"id":2} c map[] map[id:2 v:a]`,
		`{"id":2} u map[] map[id:2 v:__debezium_unavailable_value]`, `{"id":2} d map[id:2] map[]`, `{"id":2}  map[] map[]`, ` t map[] map[]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	more := startSink(t, sinkConfig(t, kafkatest.Prefix(t), "format", "debezium"), sinkStart(1, connector.Append))
	err := more.snk.Write(t.Context(), empty)
	if connector.ClassOf(err) != connector.ClassPermanent || !strings.Contains(connector.HintOf(err), "partitions=1") {
		t.Errorf("a truncation of a topic with several partitions returned %v (hint %q)", err, connector.HintOf(err))
	}
}

// clause E5: an owner that was killed with a transaction open leaves nothing that a reader of committed records sees; the next owner has
// the position that belongs to what is there, and the old one is fenced whatever it tries.
func TestOwnersFollow(t *testing.T) {
	broker, prefix := kafkatest.Broker(t), kafkatest.Prefix(t)
	cfg := sinkConfig(t, prefix)
	one := startSink(t, cfg, sinkStart(1, connector.Append))
	one.write(connectortest.Numbered("owned", 0, 3))
	one.commit(1)
	one.write(connectortest.Numbered("owned", 3, 500)) // and it stays open

	two := startSink(t, cfg, sinkStart(2, connector.Append))
	p, found, err := two.store.Committed(t.Context())
	if err != nil || !found || !p.Position.Equal(progressAt(1).Position) {
		t.Fatalf("the next owner reads back %+v, %v, %v", p, found, err)
	}
	two.write(connectortest.Numbered("owned", 3, 2))
	two.commit(2)
	err = one.store.Commit(t.Context(), progressAt(9))
	if connector.ClassOf(err) != connector.ClassFenced {
		t.Errorf("the old owner got %v: want an error of class fenced", err)
	}
	if got := len(kafkatest.Read(t, broker, prefix+"owned")); got != 5 {
		t.Errorf("%d messages are committed, want 5", got)
	}
	late, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Start(t.Context(), sinkStart(1, connector.Append)); connector.ClassOf(err) != connector.ClassFenced {
		t.Errorf("a late owner got %v: want an error of class fenced", err)
	}
	if err := late.Close(t.Context()); err != nil {
		t.Error(err)
	}
	two.commit(3) // reading the fence took nothing away from it
}

// clauses E5, E8: commits whose answer is lost at random places are read back, never guessed: every row is there once.
func TestLostAnswers(t *testing.T) {
	broker, prefix := kafkatest.Broker(t), kafkatest.Prefix(t)
	n := &network{}
	cfg := sinkConfig(t, prefix, "timeout", "3s", "transaction_timeout", "10s")
	cfg.SetDial(n.dial)
	next, fence := 0, uint64(1)
	deadline := time.Now().Add(12 * time.Second)
	for round := 0; next < 20 && time.Now().Before(deadline); round++ {
		snk, err := cfg.Open(connectortest.Env(t))
		if err != nil {
			t.Fatal(err)
		}
		store, _ := connector.As[connector.PositionStore](snk)
		err = snk.Start(t.Context(), sinkStart(fence, connector.Append))
		if err == nil {
			var p record.Progress
			var found bool
			if p, found, err = store.Committed(t.Context()); err == nil && found {
				next = int(p.Epoch)
			}
		}
		for err == nil && next < 20 {
			if err = snk.Write(t.Context(), connectortest.Numbered("lost", next*10, 10)); err != nil {
				break
			}
			if next%3 == round%3 {
				time.AfterFunc(time.Duration(round%7)*time.Millisecond, n.cut)
			}
			if err = store.Commit(t.Context(), progressAt(next+1)); err == nil {
				next++
			}
		}
		if err != nil && !slices.Contains([]connector.Class{connector.ClassTransient, connector.ClassOutcome}, connector.ClassOf(err)) {
			t.Errorf("a cut connection gave %v of class %s", err, connector.ClassOf(err))
		}
		if err := snk.Close(t.Context()); err != nil {
			t.Error(err)
		}
		fence++
	}
	if n.cuts == 0 {
		t.Error("nothing was cut")
	}
	want := next * 10
	got := map[string]int{}
	for _, r := range kafkatest.Read(t, broker, prefix+"lost") {
		got[string(r.Value)]++
	}
	for v, n := range got {
		if n != 1 {
			t.Errorf("%s is there %d times", v, n)
		}
	}
	if len(got) != want || want == 0 {
		t.Errorf("%d rows are there, the position says %d", len(got), want)
	}
}

// network has connections that can be cut: answers are lost, and maybe requests.
type network struct {
	mu    sync.Mutex
	conns []net.Conn
	cuts  int // connections that were
}

func (n *network) dial(ctx context.Context, network, host string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, host)
	if err != nil {
		return nil, err //nolint:wrapcheck // as the library expects it
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, c)
	return c, nil
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.cuts += len(n.conns)
	n.conns = nil
}

// Rows that are larger than the topic takes are refused one by one.
func TestLargeRows(t *testing.T) {
	prefix := kafkatest.Prefix(t)
	cfg := sinkConfig(t, prefix, "topic_config", "max.message.bytes:5000")
	w := startSink(t, cfg, sinkStart(1, connector.Append))
	s := connectortest.Numbered("large", 0, 1).Schema
	text := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	err := w.snk.Write(t.Context(), connectortest.BatchOf(s, []string{"1", text(10)}, []string{"2", text(6000)}, []string{"3", text(4000)}))
	rows, ok := errors.AsType[*connector.RowErrors](err)
	if !ok || len(rows.Rows) != 1 || rows.Rows[0].Index != 1 || !strings.Contains(rows.Rows[0].Reject.Message, "max.message.bytes") {
		t.Fatalf("the error is %v", err)
	}
	w.commit(1)
	if n := len(kafkatest.Read(t, kafkatest.Broker(t), prefix+"large")); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

// New topics have what the options say; positions may not be kept where they are forgotten.
func TestTopicsAreMade(t *testing.T) {
	broker, prefix := kafkatest.Broker(t), kafkatest.Prefix(t)
	cfg := sinkConfig(t, prefix, "partitions", "5", "replication", "1", "cleanup", "compact,delete", "topic_config", "retention.ms:7200000")
	w := startSink(t, cfg, sinkStart(1, connector.Append))
	w.write(connectortest.Numbered("made", 0, 1))
	w.commit(1)
	admin := kadm.NewClient(kafkatest.Client(t, broker))
	m, err := admin.Metadata(t.Context(), prefix+"made")
	if err != nil || len(m.Topics[prefix+"made"].Partitions) != 5 {
		t.Errorf("the topic is %+v (%v)", m.Topics, err)
	}
	for name, want := range map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "7200000"} {
		if got := setting(t, admin, prefix+"made", name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	kafkatest.MakeTopic(t, broker, prefix+"forgets", 1, "cleanup.policy=delete")
	snk, err := sinkConfig(t, prefix, "position_topic", prefix+"forgets").Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := snk.Start(t.Context(), sinkStart(1, connector.Append)); connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("a position topic that forgets gave %v", err)
	}
	if err := snk.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Encryption and logins of the real broker: what works, and what a person reads otherwise.
func TestLogins(t *testing.T) {
	addr, password := kafkatest.Secure(t)
	topic := kafkatest.Topic(t, 1)
	kafkatest.Produce(t, producer(t), numbered(topic, 1, 0, 3)...)
	config := func(options ...string) *kafka.SourceConfig {
		cfg := sourceConfig(t, topic, append([]string{"format", "raw", "timeout", "5s"}, options...)...)
		cfg.Brokers = []string{addr}
		return cfg
	}
	good := []string{"tls", "true", "tls_ca", kafkatest.CA(t), "user", "leat", "password", password}
	for _, mechanism := range []string{"", "plain", "scram-sha-512"} {
		if rows, _ := start(t, config(append(good, "sasl", mechanism)...), record.Position{}).all(-1); len(rows) != 3 {
			t.Errorf("sasl=%s read %d rows, want 3", mechanism, len(rows))
		}
	}
	for code, options := range map[string][]string{
		"kafka.auth":      append(slices.Clone(good), "password", "wrong"),
		"kafka.tls":       {"tls", "true", "user", "leat", "password", password},
		"kafka.handshake": {"user", "leat", "password", password},
	} {
		err := open(t, config(options...)).Start(t.Context(), request(record.Position{}))
		e, ok := errors.AsType[*connector.Error](err)
		if !ok || e.Code != code || e.Hint == "" || strings.Contains(err.Error()+e.Hint, password) {
			t.Errorf("the error is %v: want one with code %s", err, code)
		}
	}
	err := open(t, config(append(slices.Clone(good), "sasl", "scram-sha-256")...)).Start(t.Context(), request(record.Position{}))
	if e, ok := errors.AsType[*connector.Error](err); !ok || e.Code != "kafka.auth" || connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("a mechanism that the broker does not take gave %v", err)
	}
}

// A transaction that is much larger than the memory for it passes, and is there as a whole.
func TestLargeTransaction(t *testing.T) {
	prefix := kafkatest.Prefix(t)
	env := connectortest.Env(t)
	env.Memory = 2 << 20
	snk, err := sinkConfig(t, prefix, "compression", "zstd").Open(env)
	if err != nil {
		t.Fatal(err)
	}
	w := &writing{t, snk, nil}
	w.store, _ = connector.As[connector.PositionStore](snk)
	if err := snk.Start(t.Context(), sinkStart(1, connector.Append)); err != nil {
		t.Fatal(err)
	}
	s := connectortest.Numbered("large", 0, 1).Schema
	const batches, rows = 20, 50
	for i := range batches {
		docs := make([][]string, rows)
		for j := range docs {
			docs[j] = []string{strconv.Itoa(i*rows + j), `"` + strings.Repeat("x", 10_000+j*3_000) + `"`}
		}
		w.write(connectortest.BatchOf(s, docs...))
	}
	w.commit(1)
	if n := len(kafkatest.Read(t, kafkatest.Broker(t), prefix+"large")); n != batches*rows {
		t.Errorf("%d messages, want %d", n, batches*rows)
	}
	if err := snk.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

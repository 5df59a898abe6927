package kafkatest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/internal/mysqltest"
)

// What is committed is read, by two clients, and nothing else is.
func TestTransactions(t *testing.T) {
	broker, topic := kafkatest.Broker(t), kafkatest.Topic(t, 2)
	for i := range 6 {
		end := kgo.TryCommit
		if i%2 == 1 {
			end = kgo.TryAbort
		}
		kafkatest.Transact(t, broker, end, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)})
	}
	kafkatest.Produce(t, kafkatest.Client(t, broker), &kgo.Record{Topic: topic, Key: []byte("k0")})
	want := map[string]bool{"k0=v0": true, "k2=v2": true, "k4=v4": true, "k0=": true}
	records := kafkatest.Read(t, broker, topic)
	for _, r := range records {
		if line := string(r.Key) + "=" + string(r.Value); !want[line] {
			t.Errorf("read %s", kafkatest.String(r))
		}
	}
	messages := kafkatest.Console(t, broker, topic, len(want))
	for i, m := range messages {
		if m.Null {
			m.Value = ""
		}
		if !want[m.Key+"="+m.Value] {
			t.Errorf("the console consumer read message %d %+v", i, m)
		}
	}
	if len(records) != len(want) || len(messages) != len(want) {
		t.Errorf("%d records read, %d printed, want %d", len(records), len(messages), len(want))
	}
}

func TestServer(t *testing.T) {
	s := kafkatest.NewServer(t, "num.partitions=3")
	kafkatest.MakeTopic(t, s.Addr, "t", 1)
	kafkatest.Transact(t, s.Addr, kgo.TryCommit, &kgo.Record{Topic: "t", Value: []byte("v")})
	kafkatest.Read(t, s.Addr, "t") // its end is written, too
	s.Kill()
	s.Start()
	if n := len(kafkatest.Read(t, s.Addr, "t")); n != 1 {
		t.Errorf("%d records after a restart", n)
	}
}

func TestRegistry(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, kafkatest.Registry(t)+"/subjects", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("status %s, error %v", resp.Status, err)
	}
}

// The topics of a test are gone after it.
func TestPrefix(t *testing.T) {
	var prefix string
	t.Run("a test", func(t *testing.T) {
		prefix = kafkatest.Prefix(t)
		kafkatest.MakeTopic(t, kafkatest.Broker(t), prefix+"a", 1)
		if topics := kafkatest.Topics(t, kafkatest.Broker(t), prefix); len(topics) != 1 {
			t.Errorf("topics %v", topics)
		}
	})
	if topics := kafkatest.Topics(t, kafkatest.Broker(t), prefix); len(topics) != 0 {
		t.Errorf("topics %v are left", topics)
	}
}

// Debezium reads a table of MySQL into a topic, in a worker of a test's own.
func TestConnect(t *testing.T) {
	source := mysqltest.Database(t, mysqltest.MySQL)
	mysqltest.Exec(t, source, `CREATE TABLE t (id INT PRIMARY KEY, v TEXT)`, `INSERT INTO t VALUES (1, 'one')`)
	broker, prefix := kafkatest.Broker(t), kafkatest.Prefix(t)
	w := kafkatest.Connect(t, broker, kafkatest.DebeziumMySQL(t, prefix+"d", source, nil))
	topic := prefix + "d." + strings.TrimPrefix(mustParse(t, source).Path, "/") + ".t"
	w.Until("the topic", func() bool { return slices.Contains(kafkatest.Topics(t, broker, prefix), topic) })
	mysqltest.Exec(t, source, `INSERT INTO t VALUES (2, 'two')`)
	w.Until("both rows", func() bool { return len(kafkatest.Read(t, broker, topic)) == 2 })
}

func mustParse(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

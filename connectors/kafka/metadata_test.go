package kafka_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/record"
)

// everyPart is the option metadata with all that there is.
var everyPart = strings.Join(message.MetadataParts(), ",")

// metadataOf is what the columns of metadata have to say of a record, as JSON.
func metadataOf(r *kgo.Record) string {
	text := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return `"` + base64.StdEncoding.EncodeToString(b) + `"`
	}
	headers := "null"
	if len(r.Headers) > 0 {
		var each []string
		for _, h := range r.Headers {
			each = append(each, fmt.Sprintf(`{"name":%q,"value":%s}`, h.Key, text(h.Value)))
		}
		headers = "[" + strings.Join(each, ",") + "]"
	}
	kind := []string{"CreateTime", "LogAppendTime"}[r.Attrs.TimestampType()]
	at := r.Timestamp.UTC().Format("2006-01-02T15:04:05.999Z")
	return fmt.Sprintf(`"_kafka_topic":%q,"_kafka_partition":%d,"_kafka_offset":%d,"_kafka_timestamp":%q,"_kafka_timestamp_type":%q,`+
		`"_kafka_key":%s,"_kafka_headers":%s}`, r.Topic, r.Partition, r.Offset, at, kind, text(r.Key), headers)
}

// records reads a topic with another client, by partition and offset.
func records(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	out := kafkatest.Read(t, kafkatest.Broker(t), topic)
	slices.SortFunc(out, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return out
}

// clauses S6, S9: each row has the metadata of its own message, typed, however batches are cut: with partitions that take turns, messages
// that are no JSON, values that their column does not take, and headers that are no text in between, and columns that come late.
func TestMetadata(t *testing.T) {
	for _, clock := range []string{"CreateTime", "LogAppendTime"} {
		topic := kafkatest.Topic(t, 3, "message.timestamp.type="+clock)
		in := numbered(topic, 3, 0, 1_200) // more than the sample
		bad := map[string]bool{}
		for i, r := range in {
			switch i % 7 {
			case 1:
				r.Headers = []kgo.RecordHeader{{Key: "a", Value: []byte{0xff}}, {Key: "a"}, {Key: "", Value: []byte{}}}
			case 2:
				r.Value = []byte(`{"n":`)
			case 3:
				r.Value = []byte(`{"n":"text"}`)
			case 4:
				r.Key = nil
			case 5:
				r.Headers = []kgo.RecordHeader{{Key: "\xff", Value: []byte("v")}}
			}
			if i == 1_183 {
				r.Value = []byte(`{"n":1183,"late":"x"}`)
			}
			if i%7 == 2 || i%7 == 3 || i%7 == 5 {
				bad[fmt.Sprintf("%d/%d", r.Partition, i/3)] = true
			}
		}
		kafkatest.Produce(t, producer(t), in...)
		want := []string{}
		for _, r := range records(t, topic) {
			if !bad[fmt.Sprintf("%d/%d", r.Partition, r.Offset)] {
				want = append(want, strings.Trim(string(r.Value), "{}")+","+metadataOf(r))
			}
		}
		for _, limit := range []int{1, 7, 1_000} {
			cfg := sourceConfig(t, topic, "metadata", everyPart, "types", "n:int64", "key", "none")
			rows, rejects := metadataRows(start(t, cfg, record.Position{}), limit)
			slices.Sort(rows)
			if diff := cmp.Diff(slices.Sorted(slices.Values(want)), rows); diff != "" {
				t.Errorf("%s, batches of %d: the rows differ (-want +got)\n%s", clock, limit, diff)
			}
			if rejects != len(bad) || len(rows)+rejects != len(in) {
				t.Errorf("%s, batches of %d: %d rejects, want %d", clock, limit, rejects, len(bad))
			}
		}
	}
}

// metadataRows reads to the end; a column "late" is left out where it is null.
func metadataRows(r *reading, limit int) (rows []string, rejects int) {
	r.t.Helper()
	for {
		b, err := r.next(limit)
		if errors.Is(err, io.EOF) {
			return rows, rejects
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if b.Schema == nil {
			continue
		}
		if err := b.Schema.Validate(); err != nil {
			r.t.Fatal(err)
		}
		for _, k := range b.Schema.KeyNames() {
			if strings.HasPrefix(k, "_kafka_") {
				r.t.Errorf("%s is part of the key", k)
			}
		}
		for name, want := range map[string]string{
			"topic": "text", "partition": "int32", "offset": "int64", "timestamp": "timestamptz[ms]", "timestamp_type": "text", "key": "binary",
			"headers": `list<struct<"name":text,"value":binary>>`,
		} {
			i := b.Schema.Column("_kafka_" + name)
			if got := record.FormatType(b.Schema.Columns.Field(i).Type); got != want {
				r.t.Fatalf("column %s is %s, want %s", name, got, want)
			}
		}
		for _, row := range connectortest.Rows(b) {
			row = strings.TrimPrefix(row, "{")
			rows = append(rows, strings.Replace(row, `,"late":null`, "", 1))
		}
		rejects += len(b.Rejects)
	}
}

// case C098: a deletion has the metadata of the message that deletes; a tombstone that says nothing takes none.
func TestMetadataOfDeletions(t *testing.T) {
	value := func(op, before, after string) []byte {
		return fmt.Appendf(nil, `{"before":%s,"after":%s,"op":%q}`, before, after, op)
	}
	key := []byte(`{"id":1}`)
	for name, c := range map[string]struct {
		options []string
		in      []*kgo.Record
		want    []string // of each message; empty: it is no row
	}{
		"upserts": {
			options: []string{"keyed", "true"},
			in:      []*kgo.Record{{Key: key, Value: []byte(`{"id":1,"v":"a"}`)}, {Key: key}, {Value: []byte(`{"id":2}`)}, {Key: []byte(`{"id":3}`)}},
			want:    []string{`upsert {"id":1,"v":"a",`, `delete {"id":1,"v":null,`, ``, `delete {"id":3,"v":null,`},
		},
		"envelopes": {
			options: []string{"format", "debezium"},
			in: []*kgo.Record{
				{Key: key, Value: value("c", "null", `{"id":1,"v":"a"}`)},
				{Key: key, Value: value("u", `{"id":1,"v":"a"}`, `{"id":1,"v":"b"}`)},
				{Key: key, Value: []byte(`{}`)},
				{Key: key, Value: value("d", `{"id":1,"v":"b"}`, "null")},
				{Key: key},
				{Value: value("t", "null", "null")},
				{Key: key, Value: value("r", "null", `{"id":1,"v":"c"}`)},
			},
			want: []string{`{"id":1,"v":"a",`, `update {"id":1,"v":"b",`, ``, `delete {"id":1,"v":"b",`, ``, ``, `upsert {"id":1,"v":"c",`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			topic := kafkatest.Topic(t, 1)
			for i, r := range c.in {
				r.Topic, r.Timestamp = topic, began.Add(time.Duration(i)*time.Millisecond)
			}
			kafkatest.Produce(t, producer(t), c.in...)
			var want []string
			for i, r := range records(t, topic) {
				if c.want[i] != "" {
					want = append(want, c.want[i]+metadataOf(r))
				}
			}
			r := start(t, sourceConfig(t, topic, append(c.options, "metadata", everyPart)...), record.Position{})
			var got []string
			for {
				b, err := r.next(1_000)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, connectortest.Rows(b)...)
				for i := range b.NumRows() {
					if b.Old == nil || b.Op(i) != record.Update {
						continue
					}
					before := string((&record.Batch{Rows: b.Old}).RowJSON(i))
					if !strings.HasPrefix(before, `{"id":1,"v":"a","_kafka_topic":null,`) || !strings.HasSuffix(before, `"_kafka_headers":null}`) {
						t.Errorf("the row before is %s", before)
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// A column of the data with the name of one of the metadata ends the plan, or the run where it comes late.
func TestMetadataClash(t *testing.T) {
	topic := kafkatest.Topic(t, 1)
	clash := &kgo.Record{Topic: topic, Value: []byte(`{"n":1,"_kafka_offset":7}`)}
	check := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), `"_kafka_offset"`) || !strings.Contains(err.Error(), "leave offset out of metadata") {
			t.Errorf("the error is %v", err)
		}
	}
	discover := func(options ...string) error {
		src, _ := connector.As[connector.Discoverer](open(t, sourceConfig(t, topic, options...)))
		_, err := src.Discover(t.Context())
		return err
	}
	kafkatest.Produce(t, producer(t), numbered(topic, 1, 0, 1_200)...)
	kafkatest.Produce(t, producer(t), clash)
	if err := discover("metadata", "offset"); err != nil {
		t.Fatal(err)
	}
	r := start(t, sourceConfig(t, topic, "metadata", "offset"), record.Position{})
	var err error
	for n := 0; err == nil; {
		var b *record.Batch
		if b, err = r.next(500); err == nil {
			if n += b.NumRows(); n > 1_200 {
				t.Fatal("the clash was read")
			}
		}
	}
	check(err)

	topic = kafkatest.Topic(t, 1)
	clash.Topic = topic
	kafkatest.Produce(t, producer(t), clash)
	check(discover("metadata", "partition,offset"))
	if err := discover("metadata", "partition"); err != nil {
		t.Error(err)
	}
}

// clauses S15, S16: the option is checked without a cluster, and is part of what the source is.
func TestMetadataOption(t *testing.T) {
	for _, options := range [][]string{
		{"metadata", "ofset"}, {"metadata", "offset,offset"}, {"metadata", "offset", "format", "raw"},
	} {
		_, err := sourceConfig(t, "t", options...).Contract()
		if connector.ClassOf(err) != connector.ClassConfig || connector.HintOf(err) == "" {
			t.Errorf("%q: the error is %v (hint %q)", options, err, connector.HintOf(err))
		}
	}
	seen := map[string]bool{}
	for _, m := range []string{"", "offset", "partition,offset"} {
		id, err := json.Marshal(sourceConfig(t, "t", "metadata", m).Identity())
		if err != nil || seen[string(id)] {
			t.Errorf("metadata=%s: the identity is %s (%v)", m, id, err)
		}
		seen[string(id)] = true
	}
}

// clauses S1, S5, S6, S7, S8, S9, S12, S14, S15, S23, S24, S25, of a source with columns of metadata.
func TestMetadataConformance(t *testing.T) {
	prefix := kafkatest.Prefix(t)
	topic, empty := prefix+"a", prefix+"empty"
	kafkatest.MakeTopic(t, kafkatest.Broker(t), topic, 3)
	kafkatest.MakeTopic(t, kafkatest.Broker(t), empty, 1)
	kafkatest.Produce(t, producer(t), numbered(topic, 3, 0, 9)...)
	want := map[string][]string{topic: {}, empty: {}}
	for _, r := range records(t, topic) {
		want[topic] = append(want[topic], strings.TrimSuffix(string(r.Value), "}")+","+metadataOf(r))
	}
	connectortest.Source(t, connectortest.SourceCase{
		New: func(t testing.TB) connector.SourceConfig {
			t.Helper()
			return sourceConfig(t, prefix+"*", "metadata", everyPart, "key", "none")
		},
		Part: func(_, row string) string {
			_, part, _ := strings.Cut(row, `"_kafka_partition":`)
			return part[:1]
		},
		Want: want,
	})
}

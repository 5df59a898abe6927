package formats_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/record"
)

// msg is a message; "-" is none.
func msg(key, value string) message.Message {
	m := message.Message{Topic: "t", Partition: 1}
	if key != "-" {
		m.Key = []byte(key)
	}
	if value != "-" {
		m.Value = []byte(value)
	}
	return m
}

// decode learns from all messages, and returns what every batch holds, as text.
func decode(t *testing.T, format string, topic message.Topic, learn int, in ...message.Message) []string {
	t.Helper()
	f, err := formats.New(format, formats.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Learn(t.Context(), topic, in[:learn])
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(topic, s)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	flush := func() {
		b, err := d.Batch()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, show(b)...)
	}
	for i := range in {
		in[i].Offset = int64(i)
		ok, err := d.Append(t.Context(), &in[i])
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			flush()
			if ok, err = d.Append(t.Context(), &in[i]); err != nil || !ok {
				t.Fatal("not taken by an empty batch", err)
			}
		}
	}
	flush()
	return out
}

// show prints a batch: its columns, rows and rejects.
func show(b *record.Batch) []string {
	if b == nil {
		return nil
	}
	var cols []string
	for i, f := range b.Schema.Columns.Fields() {
		name, err := record.TypeOf(f.Type)
		if err != nil {
			return []string{err.Error()}
		}
		key := ""
		for _, k := range b.Schema.Key {
			if k == i {
				key = "*"
			}
		}
		cols = append(cols, f.Name+key+" "+name.String())
	}
	out := []string{strings.Join(cols, ", ")}
	if b.Truncate {
		out = append(out, "truncate")
	}
	for i := range b.NumRows() {
		line := []string{b.Op(i).String(), string(b.RowJSON(i))}
		if b.Old != nil {
			line = append(line, "was", string((&record.Batch{Rows: b.Old}).RowJSON(i)))
		}
		for c := range b.Schema.Columns.NumFields() {
			if b.IsUnchanged(c, i) {
				line = append(line, "unchanged", b.Rows.ColumnName(c))
			}
		}
		out = append(out, strings.Join(line, " "))
	}
	for _, r := range b.Rejects {
		out = append(out, r.Error())
	}
	return out
}

// case C098: a key with a value, without one, one that never was, and neither key nor value.
func TestTombstones(t *testing.T) {
	in := []message.Message{msg(`{"id":1}`, `{"id":1,"v":"a"}`), msg(`{"id":1}`, "-"), msg(`{"id":2}`, "-"), msg("-", "-"), msg("-", `{"id":3}`), msg(`{}`, "-"), msg(`{"id":4}`, `{"id":5}`)}
	got := decode(t, "json", message.Topic{Name: "t", Keyed: true}, len(in), in...)
	want := []string{
		"id* int64, v string", `upsert {"id":1,"v":"a"}`, `delete {"id":1,"v":null}`, `delete {"id":2,"v":null}`,
		"t: topic t, partition 1, offset 3: it has no key, and rows of the topic are kept by key: say mode=append to take each message as a row of its own",
		"t: topic t, partition 1, offset 4: it has no key, and rows of the topic are kept by key: say mode=append to take each message as a row of its own",
		`t, key {}: topic t, partition 1, offset 5: its key has no "id"`,
		`t, key {"id":4}: topic t, partition 1, offset 6: column "id" is 5 in the value, and 4 in the key`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = decode(t, "json", message.Topic{Name: "t", SkipTombstones: true}, 2, msg("k", `{"v":1}`), msg("k", "-"))
	if diff := cmp.Diff([]string{"key string, v int64", `insert {"key":"k","v":1}`}, got); diff != "" {
		t.Error(diff)
	}
	got = decode(t, "json", message.Topic{Name: "t"}, 2, msg("1", `{"v":1}`), msg("1", "-"))
	if len(got) != 3 || !strings.Contains(got[2], "tombstones=skip") {
		t.Error(got)
	}
}

// A key that was not in the sample adds a column, a value of another kind sets its row aside, and what is no JSON does too.
func TestJSONChanges(t *testing.T) {
	got := decode(t, "json", message.Topic{Name: "t"}, 1, msg("-", `{"a":1,"n":12345678901234567890.10}`), msg("-", `{"a":"x"}`), msg("-", `{"a":2,"b\u0062":[1]}`), msg("-", `{"a":3}`), msg("-", `{"a":`), msg("-", `null`), msg("-", `"text"`),
		msg("-", "\xff"))
	want := []string{
		"a int64, n numeric", `insert {"a":1,"n":12345678901234567890.10}`,
		`t, column "a", value "\"x\"": topic t, partition 1, offset 1: expected int64: JSON value "x": want a JSON value of type int64; to keep all values of the column say types=a:json`,
		"a int64, n numeric, bb json", `insert {"a":2,"n":null,"bb":[1]}`, `insert {"a":3,"n":null,"bb":null}`,
		"t: topic t, partition 1, offset 4: it is no JSON: byte 5: the line ends where a value should be", "t: topic t, partition 1, offset 5: it is null",
		"a int64, n numeric, bb json, value string", `insert {"a":null,"n":null,"bb":null,"value":"text"}`, "t: topic t, partition 1, offset 7: it is no JSON: the text is not valid UTF-8",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What Connect's JSON converter writes with schemas has the types of its schemas.
func TestJSONWithSchemas(t *testing.T) {
	schema := func(fields string) string {
		return `{"schema":{"type":"struct","optional":false,"fields":[` + fields + `]},"payload":`
	}
	one := schema(`{"type":"int32","optional":false,"field":"id"},{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"9"},"optional":true,"field":"price"}`)
	two := schema(`{"type":"int64","field":"id"},{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp","field":"at"}`)
	got := decode(t, "json", message.Topic{Name: "t"}, 1, msg("-", one+`{"id":1,"price":"AQA="}}`), msg("-", two+`{"id":9007199254740993,"at":1500}}`), msg("-", one+`{"id":3,"price":"/w=="}}`), msg("-", one+`{"id":"x"}}`))
	want := []string{
		"id int32, price decimal(9,2)", `insert {"id":1,"price":2.56}`, "id int64, price decimal(9,2), at timestamp[ms, UTC]",
		`insert {"id":9007199254740993,"price":null,"at":"1970-01-01T00:00:01.5Z"}`, `insert {"id":3,"price":-0.01,"at":null}`,
		`t, column "id", value "\"x\"": topic t, partition 1, offset 3: expected int64: found "x", want an integer; to keep all values of the column say types=id:json`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// case C081: every type of the vocabulary, written and read with the same schema, is the same batch.
func TestJSONRoundTrip(t *testing.T) { roundTrip(t, "json", connectortest.Cases()) }

func roundTrip(t *testing.T, format string, cases []connectortest.Case) {
	t.Helper()
	f, err := formats.New(format, formats.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := connectortest.Batch("d", cases...)
	topic := message.Topic{Name: "topic", Dataset: "d", Key: "none"}
	e, err := f.NewEncoder(topic)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(topic, b.Schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []*record.Batch{b, connectortest.Sliced(b)} {
		refused, err := e.Encode(t.Context(), in, func(_ int, m *message.Message) error {
			ok, err := d.Append(t.Context(), m)
			if !ok {
				t.Errorf("not taken: %s", m.Value)
			}
			return err
		})
		if err != nil || len(refused) > 0 {
			t.Fatal(err, refused)
		}
		out, err := d.Batch()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Rejects {
			t.Error(r.Error())
		}
		if diff := cmp.Diff(connectortest.Rows(in), connectortest.Rows(out)); diff != "" {
			t.Error(diff)
		}
	}
}

package formats_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/format/registry"
)

// take decodes one message with a format, learned from it or from others: whatever its bytes are, it becomes rows or a reject, and the
// same ones in a batch of its own as behind another message.
func take(t *testing.T, f message.Format, topic message.Topic, learn, in []message.Message) {
	t.Helper()
	s, err := f.Learn(t.Context(), topic, learn)
	if err != nil {
		return
	}
	if s.Validate() != nil {
		return // a column twice, by a name that another one has: refused when the pipeline is planned
	}
	d, err := f.NewDecoder(topic, s)
	if err != nil {
		return
	}
	for i := range in {
		ok, err := d.Append(t.Context(), &in[i])
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			continue
		}
		if b, err := d.Batch(); b == nil || err != nil {
			t.Fatal("a batch had to end that has nothing in it", err)
		}
		if ok, err := d.Append(t.Context(), &in[i]); !ok || err != nil {
			t.Fatal("an empty batch does not take the message", err)
		}
	}
	n := d.Rows()
	b, err := d.Batch()
	if err != nil {
		t.Fatal(err)
	}
	if b == nil {
		if n != 0 {
			t.Fatalf("%d rows, and no batch", n)
		}
		return
	}
	got := b.NumRows() + len(b.Rejects)
	if b.Truncate {
		got++
	}
	if got != n || n > len(in)+1 {
		t.Fatalf("%d rows and rejects, want %d", got, n)
	}
	for i := range b.NumRows() {
		_ = b.RowJSON(i)
	}
}

func pair(key, value []byte) []message.Message {
	return []message.Message{{Topic: "t", Key: key, Value: value}, {Topic: "t", Offset: 1, Key: key}, {Topic: "t", Offset: 2, Key: key, Value: value}}
}

// FuzzJSON takes any key and value as plain JSON and as an envelope, by key and not.
func FuzzJSON(f *testing.F) {
	samples, err := filepath.Glob("testdata/*.messages")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range samples {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		key, value, _ := strings.Cut(string(text), "\t")
		value, _, _ = strings.Cut(value, "\n")
		f.Add([]byte(key), []byte(value))
	}
	f.Add([]byte(`{"id":1}`), []byte(`{"op":"u","before":{"id":1},"after":{"id":1,"v":"__debezium_unavailable_value"}}`))
	f.Add([]byte(`1`), []byte(`{"a":{"b":[1,{}]},"key":2}`))
	f.Add([]byte("x"), []byte(`{"schema":{"type":"struct","fields":[{"type":"array","items":{"type":"int8"},"field":"a"}]},"payload":{"a":[1]}}`))
	f.Add([]byte("x"), []byte(`{"schema":{"type":"struct","fields":[{"type":"struct","fields":[{"type":"int8","field":"x"}],"field":"a"}]},`+
		`"payload":{"a":{"other":1,"x":2}}}`)) // a member that the schema lacks, and one behind it
	f.Fuzz(func(t *testing.T, key, value []byte) {
		for _, name := range []string{"json", "debezium", "raw"} {
			format, err := formats.New(name, formats.Options{})
			if err != nil {
				t.Fatal(err)
			}
			in := pair(key, value)
			for _, keyed := range []bool{false, true} {
				take(t, format, message.Topic{Name: "t", Keyed: keyed}, in, in)
				take(t, format, message.Topic{Name: "t", Keyed: keyed}, pair([]byte(`{"id":1}`), []byte(`{"id":1,"a":"x"}`))[:1], in)
			}
		}
	})
}

// FuzzRegistered takes any bytes as a value of a schema: Avro with every type of the vocabulary, JSON Schema, Protobuf.
func FuzzRegistered(f *testing.F) {
	reg := srfake.New()
	f.Cleanup(reg.Close)
	c, err := registry.New(registry.Options{URL: reg.URL()})
	if err != nil {
		f.Fatal(err)
	}
	proto, _, err := reg.RegisterSchema("t-value", sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; message Row { int32 a = 1; repeated Row2 b = 2; map<string, bytes> c = 3; }
		message Row2 { string s = 1; optional double d = 2; }`})
	if err != nil {
		f.Fatal(err)
	}
	all := map[string]message.Format{}
	for _, name := range formats.Names() {
		if all[name], err = formats.New(name, formats.Options{Registry: c}); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(append(registry.AppendID(nil, proto), 0, 8, 1))
	for _, name := range []string{"avro", "json-schema", "debezium-avro"} {
		b := connectortest.Batch("d", fitting(all[name], connectortest.Cases())...)
		e, err := all[name].NewEncoder(message.Topic{Name: "t-" + name, Key: "none"})
		if err != nil {
			f.Fatal(err)
		}
		if _, err := e.Encode(f.Context(), b, func(row int, m *message.Message) error {
			if row < 3 {
				f.Add(append([]byte{}, m.Value...))
			}
			return nil
		}); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		for _, name := range []string{"avro", "json-schema", "protobuf", "debezium-avro"} {
			in := []message.Message{{Topic: "x", Value: value}, {Topic: "x", Value: value}}
			take(t, all[name], message.Topic{Name: "x"}, in[:1], in)
		}
	})
}

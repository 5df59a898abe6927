package formats_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/record"
)

// fake is a registry in this process.
func fake(t *testing.T) (*registry.Client, *srfake.Registry) {
	t.Helper()
	r := srfake.New()
	t.Cleanup(r.Close)
	c, err := registry.New(registry.Options{URL: r.URL()})
	if err != nil {
		t.Fatal(err)
	}
	return c, r
}

// realRegistry is the registry of the tests.
func realRegistry(t *testing.T) *registry.Client {
	t.Helper()
	url := os.Getenv("LEAT_TEST_REGISTRY")
	if url == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("LEAT_TEST_REGISTRY is not set: dev/services start registry")
		}
		t.Skip("LEAT_TEST_REGISTRY is not set: dev/services start registry")
	}
	c, err := registry.New(registry.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// written encodes a batch and returns its messages.
func written(t *testing.T, f message.Format, topic message.Topic, b *record.Batch) []message.Message {
	t.Helper()
	e, err := f.NewEncoder(topic)
	if err != nil {
		t.Fatal(err)
	}
	var out []message.Message
	refused, err := e.Encode(t.Context(), b, func(_ int, m *message.Message) error {
		c := message.Message{Topic: topic.Name, Offset: int64(len(out))}
		if m.Key != nil {
			c.Key = append([]byte{}, m.Key...)
		}
		if m.Value != nil {
			c.Value = append([]byte{}, m.Value...)
		}
		out = append(out, c)
		return nil
	})
	if err != nil || len(refused) > 0 {
		t.Fatal(err, refused)
	}
	return out
}

// readBack decodes messages with the schema that the format learns from them.
func readBack(t *testing.T, f message.Format, topic message.Topic, in []message.Message) *record.Batch {
	t.Helper()
	s, err := f.Learn(t.Context(), topic, in)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(topic, s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range in {
		if ok, err := d.Append(t.Context(), &in[i]); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	b, err := d.Batch()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range b.Rejects {
		t.Error(r.Error())
	}
	return b
}

// sameBatch compares types and rows.
func sameBatch(t *testing.T, want, got *record.Batch) {
	t.Helper()
	var x, y []string
	for _, f := range want.Schema.Columns.Fields() {
		x = append(x, f.Name+" "+record.FormatType(f.Type))
	}
	for _, f := range got.Schema.Columns.Fields() {
		y = append(y, f.Name+" "+record.FormatType(f.Type))
	}
	if diff := cmp.Diff(x, y); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(connectortest.Rows(want), connectortest.Rows(got)); diff != "" {
		t.Error(diff)
	}
}

// case C081: every type of the vocabulary, written in Avro with a registered schema, is read as the same batch of the same types; the
// schema is one that another implementation reads, and by which it finds as many bytes as there are.
func TestAvroRoundTrip(t *testing.T) {
	c, reg := fake(t)
	f, err := formats.New("avro", formats.Options{Registry: c})
	if err != nil {
		t.Fatal(err)
	}
	b := connectortest.Batch("public.d", fitting(f, connectortest.Cases())...)
	topic := message.Topic{Name: "topic", Dataset: "public.d", Keyed: true}
	for _, b := range []*record.Batch{b, connectortest.Sliced(b)} {
		in := written(t, f, topic, b)
		got := readBack(t, f, topic, in)
		for i := range got.Ops {
			if got.Op(i) != record.Upsert {
				t.Error("operation", got.Op(i))
			}
		}
		got.Ops = nil
		sameBatch(t, b, got)
		schema, ok := reg.GetSchema("topic-value", 1)
		if !ok {
			t.Fatal("no schema is registered")
		}
		other, err := avro.Parse(schema.Schema.Schema)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range in {
			var row any
			rest, err := other.Decode(m.Value[5:], &row)
			if err != nil || len(rest) > 0 {
				t.Fatalf("another reader: %v, %d bytes are left", err, len(rest))
			}
		}
	}
}

// Against a real registry: schemas are registered, found again by another client, and evolve.
func TestAvroOfARealRegistry(t *testing.T) {
	c := realRegistry(t)
	f, err := formats.New("avro", formats.Options{Registry: c})
	if err != nil {
		t.Fatal(err)
	}
	topic := message.Topic{Name: "leat-test-" + strings.ToLower(t.Name()) + "-" + randomName(t), Dataset: "public.d"}
	cases := fitting(f, connectortest.Cases())
	b := connectortest.Batch("public.d", cases...)
	in := written(t, f, topic, b)
	allow(t, topic.Name+"-value")
	f, err = formats.New("avro", formats.Options{Registry: realRegistry(t)})
	if err != nil {
		t.Fatal(err)
	}
	sameBatch(t, b, readBack(t, f, topic, in))
	wider := connectortest.Batch("public.d", append(cases, connectortest.Case{Name: "added", Type: cases[0].Type, Values: []string{"true"}})...)
	both := append(in, written(t, f, topic, wider)...)
	got := readBack(t, f, topic, both)
	if n := got.Schema.Column("added"); n < 0 || got.NumRows() != b.NumRows()+wider.NumRows() || !got.Rows.Column(n).IsNull(0) || got.Rows.Column(n).NullN() != b.NumRows() {
		t.Error("messages of two schemas were not read with their own")
	}
	text := connectortest.Pick("text")[0]
	text.Name = cases[0].Name
	e, err := f.NewEncoder(topic)
	if err != nil {
		t.Fatal(err)
	}
	err = e.Bind(t.Context(), connectortest.Schema("public.d", text))
	if err == nil || !strings.Contains(err.Error(), "not compatible") || !strings.Contains(err.Error(), "/config/"+topic.Name+"-value") {
		t.Error("a schema that changes a type was registered, or nothing says how to allow it:", err)
	}
}

// allow makes a registry accept only schemas that read what was written before, which not all do by themselves.
func allow(t *testing.T, subject string) {
	t.Helper()
	cl, err := sr.NewClient(sr.URLs(os.Getenv("LEAT_TEST_REGISTRY")))
	if err != nil {
		t.Fatal(err)
	}
	if r := cl.SetCompatibility(t.Context(), sr.SetCompatibility{Level: sr.CompatBackward}, subject)[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
}

func randomName(t *testing.T) string {
	t.Helper()
	return strings.ReplaceAll(strings.TrimPrefix(t.TempDir(), os.TempDir()), "/", "")
}

// register registers a schema and returns the bytes of a value in it.
func register(t *testing.T, reg *srfake.Registry, subject, schema string) (avroValue func(doc string) []byte) {
	t.Helper()
	id, _, err := reg.RegisterSchema(subject, sr.Schema{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	s, err := avro.Parse(schema)
	if err != nil {
		t.Fatal(err)
	}
	return func(doc string) []byte {
		var v any
		if err := s.DecodeJSON([]byte(doc), &v); err != nil {
			t.Fatal(err)
		}
		out, err := s.AppendEncode(registry.AppendID(nil, id), v)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// Avro of others: logical types, unions, enums, fixed, nested records, and schemas that change from message to message.
func TestAvroOfOthers(t *testing.T) {
	c, reg := fake(t)
	f, err := formats.New("avro", formats.Options{Registry: c})
	if err != nil {
		t.Fatal(err)
	}
	one := register(t, reg, "t-value", `{"type":"record","name":"r","namespace":"n","fields":[
		{"name":"id","type":"int"},{"name":"e","type":{"type":"enum","name":"mood","symbols":["sad","ok"]}},{"name":"e2","type":["null","mood"]},
		{"name":"f","type":{"type":"fixed","name":"four","size":4}},{"name":"u","type":["null","string","long"]},{"name":"in","type":{"type":"record","name":"inner","fields":[{"name":"a","type":{"type":"array","items":"long"}}]}},
		{"name":"m","type":{"type":"map","values":"float"}},{"name":"d","type":{"type":"int","logicalType":"date"}},{"name":"p","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
		{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"local","type":["null",{"type":"long","logicalType":"local-timestamp-micros"}]}]}`)
	two := register(t, reg, "t-value", `{"type":"record","name":"r","namespace":"n","fields":[{"name":"id","type":"long"},{"name":"added","type":["null",{"type":"string","logicalType":"uuid"}]}]}`)
	value := func(b []byte) message.Message { return message.Message{Topic: "t", Value: b} }
	in := []message.Message{
		value(one(`{"id":1,"e":"ok","e2":{"n.mood":"sad"},"f":"\u0000\u0001\u0002\u00ff","u":{"long":9007199254740993},"in":{"a":[1,-1]},"m":{"k":0.5},"d":-1,"p":"\u0001\u0000","at":-1,"local":{"long":1}}`)),
		value(two(`{"id":9007199254740993,"added":{"string":"7e9b6a3e-28b1-4e26-a9c3-0a1d8e6f9d10"}}`)),
		value([]byte{0, 0, 0, 0, 99, 1}), value([]byte("{}")), value(one(`{"id":1,"e":"ok","e2":null,"f":"\u0000\u0001\u0002\u00ff","u":null,"in":{"a":[]},"m":{},"d":0,"p":"","at":0,"local":null}`)[:9]),
	}
	in = append(in, value(append(append([]byte{}, in[1].Value...), 7)))
	for i := range in {
		in[i].Offset = int64(i)
	}
	s, err := f.Learn(t.Context(), message.Topic{Name: "t"}, in[:1])
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(message.Topic{Name: "t"}, s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range in {
		if ok, err := d.Append(t.Context(), &in[i]); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	b, err := d.Batch()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"id int64, added uuid, e enum(mood), e2 enum(mood), f binary, u struct<string: string, long: int64>, in struct<a: list<int64>>, m map<string, float32>, d date, p decimal(9,2), at timestamp[ms, UTC], local timestamp[us]",
		`insert {"id":1,"added":null,"e":"ok","e2":"sad","f":"AAEC/w==","u":{"string":null,"long":9007199254740993},"in":{"a":[1,-1]},"m":[["k",0.5]],"d":"1969-12-31","p":2.56,"at":"1969-12-31T23:59:59.999Z","local":"1970-01-01T00:00:00.000001"}`,
		`insert {"id":9007199254740993,"added":"7e9b6a3e-28b1-4e26-a9c3-0a1d8e6f9d10","e":null,"e2":null,"f":null,"u":null,"in":null,"m":null,"d":null,"p":null,"at":null,"local":null}`,
	}
	got := show(b)
	if diff := cmp.Diff(want, got[:min(len(got), 3)]); diff != "" {
		t.Error(diff)
	}
	for i, part := range []string{"offset 2: schema registry", "offset 3: it does not begin with the id of a schema", "offset 4: it is not what schema 1 says", "offset 5: it is not what schema 2 says: 1 bytes are left"} {
		if len(got) != 7 || !strings.Contains(got[3+i], part) {
			t.Fatalf("want %q: %q", part, got[3:])
		}
	}
}

// A registry that can't be asked is no reason to set rows aside: the message was not taken, and is when it comes again.
func TestRegistryDown(t *testing.T) {
	c, reg := fake(t)
	f, err := formats.New("avro", formats.Options{Registry: c})
	if err != nil {
		t.Fatal(err)
	}
	b := connectortest.Numbered("d", 0, 1)
	in := written(t, f, message.Topic{Name: "t"}, b)
	c, err = registry.New(registry.Options{URL: reg.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if f, err = formats.New("avro", formats.Options{Registry: c}); err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(message.Topic{Name: "t"}, b.Schema)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, err := d.Append(ctx, &in[0]); ok || err == nil || d.Rows() != 0 {
		t.Fatal("taken although the registry could not be asked", err)
	}
	if ok, err := d.Append(t.Context(), &in[0]); !ok || err != nil {
		t.Fatal(ok, err)
	}
	got, err := d.Batch()
	if err != nil {
		t.Fatal(err)
	}
	sameBatch(t, b, got)
}

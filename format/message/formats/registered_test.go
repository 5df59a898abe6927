package formats_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/record"
)

// case C081: every type of the vocabulary, written as JSON with a registered schema, is read as the same batch of the same types, and
// each message is valid by that schema.
func TestJSONSchemaRoundTrip(t *testing.T) {
	c, reg := fake(t)
	f, err := formats.New("json-schema", formats.Options{Registry: c})
	if err != nil {
		t.Fatal(err)
	}
	b := connectortest.Batch("public.d", connectortest.Cases()...)
	topic := message.Topic{Name: "topic", Dataset: "public.d"}
	in := written(t, f, topic, b)
	sameBatch(t, b, readBack(t, f, topic, in))
	text, ok := reg.GetSchema("topic-value", 1)
	if !ok || text.Schema.Type != sr.TypeJSON {
		t.Fatal("no JSON Schema is registered")
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text.Schema.Schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("s.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("s.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range in {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(m.Value[5:])))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Error(err)
		}
	}
}

// JSON Schemas of others: what Connect's converter writes, references, types that may be null, and what has no one type.
func TestJSONSchemaOfOthers(t *testing.T) {
	c, reg := fake(t)
	id, _, err := reg.RegisterSchema("t-value", sr.Schema{Type: sr.TypeJSON, Schema: `{"type":"object","properties":{
		"z":{"type":"integer"},"a":{"oneOf":[{"type":"null"},{"type":"integer","connect.type":"int16"}]},"n":{"type":["number","null"]},
		"p":{"type":"number","title":"org.apache.kafka.connect.data.Decimal","connect.type":"bytes","connect.parameters":{"scale":"2","connect.decimal.precision":"9"}},
		"d":{"type":"integer","title":"org.apache.kafka.connect.data.Date","connect.type":"int32"},"any":{},"in":{"$ref":"#/definitions/inner"},"m":{"type":"object","additionalProperties":{"type":"string"}}},
		"definitions":{"inner":{"type":"object","properties":{"x":{"type":"boolean"},"self":{"$ref":"#/definitions/inner"}}}}}`})
	if err != nil {
		t.Fatal(err)
	}
	f, err := formats.New("json-schema", formats.Options{Registry: c})
	if err != nil {
		t.Fatal(err)
	}
	value := func(doc string) message.Message {
		return message.Message{Topic: "t", Value: append(registry.AppendID(nil, id), doc...)}
	}
	got := show(readBack(t, f, message.Topic{Name: "t"}, []message.Message{
		value(`{"z":9007199254740993,"a":-1,"n":12345678901234567890.10,"p":2.56,"d":-1,"any":[1],"in":{"x":true,"self":{"x":false}},"m":{"k":"v"}}`), value(`{"z":1,"p":"AQA="}`),
	}))
	want := []string{
		"z int64, a int16, n numeric, p decimal(9,2), d date, any json, in struct<x: bool, self: json>, m map<string, string>",
		`insert {"z":9007199254740993,"a":-1,"n":12345678901234567890.10,"p":2.56,"d":"1969-12-31","any":[1],"in":{"x":true,"self":{"x":false}},"m":[["k","v"]]}`,
		`insert {"z":1,"a":null,"n":null,"p":2.56,"d":null,"any":null,"in":null,"m":null}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Protobuf: presence, enums, messages in messages, maps, well-known types, and which message of a file is meant.
func TestProtobuf(t *testing.T) {
	c, reg := fake(t)
	id, _, err := reg.RegisterSchema("t-value", sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; package p;
		import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto";
		message Other { string s = 1; }
		message Row { message In { repeated sint64 a = 1; } uint64 id = 1; optional int32 o = 2; Mood mood = 3; In in = 4; map<string, fixed32> m = 5;
			google.protobuf.Timestamp at = 6; google.protobuf.StringValue w = 7; google.protobuf.Struct doc = 8; oneof x { string xs = 9; bytes xb = 10; } }
		enum Mood { SAD = 0; OK = 1; }`})
	if err != nil {
		t.Fatal(err)
	}
	f, err := formats.New("protobuf", formats.Options{Registry: c})
	if err != nil {
		t.Fatal(err)
	}
	wrap := func(b []byte) message.Message {
		return message.Message{Topic: "t", Value: append(append(registry.AppendID(nil, id), 2, 2), b...)} // one index: 1
	}
	field := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	number := func(b []byte, n protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
	}
	full := number(number(number(nil, 1, 1<<64-1), 2, 0), 3, 1)
	full = field(full, 4, field(nil, 1, protowire.AppendVarint(nil, protowire.EncodeZigZag(-5))))
	full = field(full, 5, protowire.AppendFixed32(protowire.AppendTag(field(nil, 1, []byte("k")), 2, protowire.Fixed32Type), 7))
	full = field(full, 6, number(number(nil, 1, 1700000000), 2, 5))
	full = field(field(full, 7, field(nil, 1, []byte("w"))), 10, []byte{0xff})
	topic := message.Topic{Name: "t"}
	in := []message.Message{wrap(full), wrap(nil)}
	s, err := f.Learn(t.Context(), topic, in)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(topic, s)
	if err != nil {
		t.Fatal(err)
	}
	bad := []message.Message{wrap(number(nil, 3, 9)), wrap([]byte{0xff}), {Topic: "t", Value: append(registry.AppendID(nil, id), 2, 20)}}
	for _, m := range append(in, bad...) {
		if ok, err := d.Append(t.Context(), &m); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	b, err := d.Batch()
	if err != nil {
		t.Fatal(err)
	}
	got := show(b)
	if len(got) < 3 || len(b.Rejects) != len(bad) {
		t.Fatalf("%q", got)
	}
	for _, part := range []string{`"id":18446744073709551615`, `"o":0`, `"mood":"OK"`, `"in":{"a":[-5]}`, `"m":[["k",7]]`, `"at":"2023-11-14T22:13:20.000000005Z"`, `"w":"w"`, `"doc":null`, `"xs":null`, `"xb":"/w=="`} {
		if !strings.Contains(got[1], part) {
			t.Errorf("%s is not in %s", part, got[1])
		}
	}
	for _, part := range []string{`"id":0`, `"o":null`, `"mood":"SAD"`, `"in":null`, `"m":[]`, `"at":null`, `"w":null`} {
		if !strings.Contains(got[2], part) {
			t.Errorf("%s is not in %s", part, got[2])
		}
	}
}

// case C081: envelopes in Avro: every type and operation, read back with nothing declared; another implementation reads them too.
func TestDebeziumAvro(t *testing.T) {
	c, reg := fake(t)
	f, err := formats.New("debezium-avro", formats.Options{Registry: c})
	if err != nil {
		t.Fatal(err)
	}
	b := connectortest.Batch("public.d", fitting(f, connectortest.Cases())...)
	b.Ops = make([]record.Op, b.NumRows())
	topic := message.Topic{Name: "topic", Dataset: "public.d"}
	in := written(t, f, topic, b)
	b.Ops = nil
	text, ok := reg.GetSchema("topic-value", 1)
	if !ok {
		t.Fatal("no schema is registered")
	}
	other, err := avro.Parse(text.Schema.Schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range in {
		var v any
		if rest, err := other.Decode(m.Value[5:], &v); err != nil || len(rest) > 0 {
			t.Fatalf("another reader: %v, %d bytes are left", err, len(rest))
		}
	}
	got := readBack(t, f, topic, in)
	got.Ops = nil
	sameBatch(t, b, got)
	changes := connectortest.BatchOf(connectortest.Schema("public.d", connectortest.Pick("text", "binary")...),
		[]string{"1", `"a"`, `"AA=="`}, []string{"1", "null", "null"}, []string{"2", `"b"`, "null"}, []string{"2", "null", "null"})
	changes.Ops = []record.Op{record.Insert, record.Update, record.Update, record.Delete}
	none := []string{"null", "null", "null"}
	changes.Old = connectortest.BatchOf(changes.Schema, none, none, []string{"1", `"a"`, "null"}, none).Rows
	changes.Unchanged = map[int][]uint64{1: {1 << 1}, 2: {1 << 1}}
	in = written(t, f, message.Topic{Name: "changes", Dataset: "public.d"}, changes)
	lines := show(readBack(t, f, message.Topic{Name: "changes", Dataset: "public.d"}, in))
	null := `{"id":null,"text":null,"binary":null}`
	want := []string{
		lines[0], `insert {"id":1,"text":"a","binary":"AA=="} was ` + null, `update {"id":1,"text":null,"binary":null} was ` + null + ` unchanged text unchanged binary`,
		`delete {"id":1,"text":"a","binary":null} was ` + null, `insert {"id":2,"text":"b","binary":null} was ` + null, `delete {"id":2,"text":null,"binary":null} was ` + null,
	}
	if !strings.Contains(strings.Join(lines, "\n"), " was ") {
		for i := range want {
			want[i] = strings.ReplaceAll(want[i], " was "+null, "")
		}
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	var tombstones int
	for _, m := range in {
		if m.Value == nil && m.Key != nil {
			tombstones++
		}
	}
	if tombstones != 2 {
		t.Errorf("%d tombstones", tombstones)
	}
	if !json.Valid([]byte(text.Schema.Schema)) {
		t.Error("the schema is no JSON")
	}
}

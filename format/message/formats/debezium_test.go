package formats_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/record"
)

// cases C029, C033, C036, C098: every operation of envelopes without schemas comes back as the change that it was; a tombstone that
// follows its deletion says nothing more, and one that compaction left alone is the deletion.
func TestEnvelopesWithoutSchemas(t *testing.T) {
	got := decode(t, "debezium", message.Topic{Name: "shop.public.t", Dataset: "public.t"}, 3,
		msg(`{"id":1}`, `{"before":null,"after":{"id":1,"note":"a","photo":"/w=="},"source":{"ts_ms":1},"op":"r"}`),
		msg(`{"id":2}`, `{"before":null,"after":{"id":2,"note":"b","photo":null},"source":{"ts_ms":1},"op":"c"}`),
		msg(`{"id":2}`, `{"before":{"id":2,"note":"b","photo":null},"after":{"id":2,"note":"c","photo":"AA=="},"op":"u","ts_ms":3}`),
		msg(`{"id":1}`, `{"before":null,"after":{"id":1,"note":"__debezium_unavailable_value","photo":"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="},"op":"u"}`),
		msg(`{"id":1}`, `{"before":{"id":1},"after":null,"op":"d"}`), msg(`{"id":1}`, "-"), msg(`{"id":9}`, "-"),
		msg("-", `{"before":null,"after":null,"op":"t"}`), msg(`{"id":3}`, `{"before":null,"after":{"id":3,"note":"d","photo":null,"late":1.5},"op":"c"}`),
		msg(`{"id":3}`, `{"id":3}`), msg(`{"id":3}`, `{"op":"x"}`), msg("-", "-"), msg(`{"id":4}`, `{"op":"c","after":{"id":4,"note":"__debezium_unavailable_value"}}`),
		msg(`{"id":4}`, `{"op":"u","after":null}`), msg(`{"id":5}`, `{"op":"d","before":null}`),
	)
	want := []string{
		"id* int64, note string, photo string",
		`upsert {"id":1,"note":"a","photo":"/w=="} was {"id":null,"note":null,"photo":null}`,
		`insert {"id":2,"note":"b","photo":null} was {"id":null,"note":null,"photo":null}`,
		`update {"id":2,"note":"c","photo":"AA=="} was {"id":2,"note":"b","photo":null}`,
		`update {"id":1,"note":null,"photo":null} was {"id":null,"note":null,"photo":null} unchanged note unchanged photo`,
		`delete {"id":1,"note":null,"photo":null} was {"id":null,"note":null,"photo":null}`,
		`delete {"id":9,"note":null,"photo":null} was {"id":null,"note":null,"photo":null}`,
		"id* int64, note string, photo string", "truncate",
		"id* int64, note string, photo string, late numeric", `insert {"id":3,"note":"d","photo":null,"late":1.5}`,
		`delete {"id":5,"note":null,"photo":null,"late":null}`,
		`public.t, key {"id":3}: topic t, partition 1, offset 9: it is no envelope of Debezium, as it has no op: say format=json or format=avro for plain rows`,
		`public.t, key {"id":3}: topic t, partition 1, offset 10: unknown operation "x": want c, r, u, d or t`,
		`public.t: topic t, partition 1, offset 11: it is a deletion without a row and without a key: nothing says which row is meant`,
		`public.t, key {"id":4}: topic t, partition 1, offset 12: the source did not send the value of column "note" of a new row: make it send whole rows (Postgres: alter table … replica identity full)`,
		`public.t, key {"id":4}: topic t, partition 1, offset 13: it has no row after the change`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// case C081: every type of the vocabulary, written in envelopes and read with declared types, is the same batch.
func TestDebeziumRoundTrip(t *testing.T) {
	f, err := formats.New("debezium", formats.Options{})
	if err != nil {
		t.Fatal(err)
	}
	envelopes(t, f, fitting(f, connectortest.Cases()), true)
}

// fitting leaves out the values that a format says it can't keep, and columns that it leaves out.
func fitting(f message.Format, cases []connectortest.Case) []connectortest.Case {
	var out []connectortest.Case
	for _, c := range cases {
		m := f.Map(message.Topic{}, connectortest.Schema("d", c))[1]
		if m.Fidelity == connector.Inexact || m.Native == "" {
			continue
		}
		left := c
		if m.Fidelity != connector.Exact {
			left.Values = connectortest.Fitting(c, m.Limits)
		}
		out = append(out, left)
	}
	return out
}

// envelopes writes rows as inserts and reads them back.
func envelopes(t *testing.T, f message.Format, cases []connectortest.Case, declare bool) {
	t.Helper()
	b := connectortest.Batch("d", cases...)
	b.Ops = make([]record.Op, b.NumRows())
	topic := message.Topic{Name: "topic", Dataset: "d", Types: map[string]string{}}
	e, err := f.NewEncoder(topic)
	if err != nil {
		t.Fatal(err)
	}
	var in []message.Message
	refused, err := e.Encode(t.Context(), b, func(_ int, m *message.Message) error {
		in = append(in, message.Message{Topic: "topic", Key: append([]byte(nil), m.Key...), Value: append([]byte(nil), m.Value...)})
		in[len(in)-1].Key = nil
		return nil
	})
	if err != nil || len(refused) > 0 {
		t.Fatal(err, refused)
	}
	if declare {
		for _, c := range cases {
			topic.Types[c.Name] = record.FormatType(c.Type)
		}
	}
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
	out, err := d.Batch()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range out.Rejects {
		t.Error(r.Error())
	}
	if diff := cmp.Diff(connectortest.Rows(b), connectortest.Rows(out)); diff != "" {
		t.Error(diff)
	}
	for i, f := range out.Schema.Columns.Fields() {
		if want := b.Schema.Columns.Field(i).Type; record.FormatType(f.Type) != record.FormatType(want) {
			t.Errorf("column %s is %s, and was %s", f.Name, f.Type, want)
		}
	}
}

// What Debezium's own connectors write: samples in testdata, a message on each line, keys and values divided by a tab.
func TestSamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*.messages")
	if err != nil || len(files) == 0 {
		t.Fatal("no samples", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var in []message.Message
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
				in = append(in, msg(key, value))
			}
			got := strings.Join(decode(t, "debezium", message.Topic{Name: "t"}, len(in), in...), "\n") + "\n"
			golden(t, strings.TrimSuffix(file, ".messages")+".txt", got)
		})
	}
}

package debezium_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/record"
)

var update = flag.Bool("update", false, "rewrite testdata")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// column is a column of a Postgres table, with the values of its rows.
func column(name, native string, dt arrow.DataType) arrow.Field {
	return record.WithNative(arrow.Field{Name: name, Type: dt, Nullable: true}, record.Native{System: "postgres", Type: native})
}

func customers() *record.Schema {
	return &record.Schema{Dataset: "inventory.customers", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		column("id", "integer", arrow.PrimitiveTypes.Int32), column("first_name", "text", arrow.BinaryTypes.String),
		column("photo", "bytea", arrow.BinaryTypes.Binary), column("tags", "text[]", record.ArrayType(arrow.BinaryTypes.String, 1)),
	}, nil)}
}

func position(lsn string, xid int) record.Position {
	return record.Position{Shape: 2, Data: json.RawMessage(fmt.Sprintf(`{"lsn":%q,"xid":%d,"system":"7","slot":"leat"}`, lsn, xid))}
}

func now() time.Time { return time.Unix(1559033904, 961_654_789) }

// messages prints keys and values, one below the other.
func messages(e *debezium.Encoder, batches ...*record.Batch) string {
	var out []byte
	for _, b := range batches {
		for ev := range e.Events(b) {
			out = append(e.AppendKey(out, ev), '\n')
			out = append(e.AppendValue(append(out, '\t'), ev), '\n')
			if ev.Tombstone() {
				out = append(append(e.AppendKey(out, ev), "\n\tnull"...), '\n')
			}
		}
	}
	return string(out)
}

// cases C029, C033, C036, C098: the envelope of each operation, the placeholder for what was not sent, a key that moves, tombstones.
func TestEnvelopes(t *testing.T) {
	s := customers()
	i, u, m, d := record.Insert, record.Update, record.Upsert, record.Delete
	none := []string{"null", "null", "null", "null"}
	read := connectortest.BatchOf(s, []string{"1", `"Anne"`, `"/w=="`, `["a",null]`})
	read.Chunk = &record.Chunk{Dataset: s.Dataset, Snapshot: record.Position{Shape: 2, Data: json.RawMessage(`{"lsn":"0/16E9210","xid":9,"snapshot":"1:2:"}`)}}
	b := connectortest.BatchOf(s,
		[]string{"2", `"Bob"`, "null", "[]"}, []string{"1", `"Anne Marie"`, "null", "null"}, []string{"3", `"Bob"`, "null", "null"},
		[]string{"3", `"Rob"`, `"AA=="`, "[]"}, []string{"1", "null", "null", "null"}, []string{"3", `"Rob"`, "null", "null"}, []string{"4", `"Eve"`, "null", "null"})
	b.Ops = []record.Op{i, u, u, u, d, d, m}
	b.Unchanged = map[int][]uint64{1: {1 << 2}, 2: {1<<1 | 1<<2}, 3: {1 << 1}}
	b.Old = connectortest.BatchOf(s, none, none, []string{"2", "null", "null", "null"}, []string{"3", `"Bob"`, `"AA=="`, "[]"}, none, none, none).Rows
	b.Txns = []record.Txn{
		{Rows: 1, Position: position("0/16E9218", 555), Time: time.UnixMicro(1559033904863123)},
		{Position: position("0/16E9219", 556)},
		{Rows: 6, Position: position("16/B374D848", 4294967853), Time: time.UnixMicro(1559033905000000)},
	}
	truncated := &record.Batch{Schema: s, Truncate: true, Txns: []record.Txn{{Position: position("0/FF", 558), Time: time.UnixMicro(1559033906000000)}}}
	golden(t, "envelopes.txt", messages(debezium.New(debezium.Options{Name: "shop", Database: "postgres", Now: now}), read, b, truncated))
}

// Another source: no log position is known, or one that is a number; three parts of a name; no key; no clock.
func TestOtherSources(t *testing.T) {
	s := &record.Schema{Dataset: `shop.main."a.b"`, Columns: arrow.NewSchema([]arrow.Field{
		record.WithNative(arrow.Field{Name: "v\n", Type: arrow.PrimitiveTypes.Int64}, record.Native{System: "mysql"}),
	}, nil)}
	b := connectortest.BatchOf(s, []string{"1"}, []string{"2"}, []string{"3"})
	b.Ops = make([]record.Op, 3)
	b.Txns = []record.Txn{{Rows: 1, Position: record.Position{Data: json.RawMessage(`"gtid"`)}}, {Rows: 1, Position: record.Position{Data: json.RawMessage(`{"lsn":24023128,"xid":"7"}`)}}, {Rows: 1}}
	golden(t, "other.txt", messages(debezium.New(debezium.Options{Version: "9.9"}), b)+messages(debezium.New(debezium.Options{Connector: "mariadb"}), connectortest.Numbered("t", 0, 1)))
}

// cases C010, C012, C016, C021, C024, C026: how every type is printed, and that each line is strict JSON.
func TestValues(t *testing.T) {
	cases := connectortest.Cases()
	b := connectortest.Batch("d", cases...)
	mapping := map[string]connector.Mapping{}
	for _, m := range debezium.Mapping(b.Schema) {
		mapping[m.Column] = m
		if m.Fidelity == connector.Inexact || m.Native == "" || (m.Fidelity == connector.Checked) == m.Limits.Zero() || (m.Fidelity == connector.Checked) != (m.Why != "") {
			t.Errorf("mapping %+v", m)
		}
	}
	for _, b := range []*record.Batch{b, connectortest.Sliced(b)} {
		seen := map[string][]string{}
		e := debezium.New(debezium.Options{})
		for ev := range e.Events(b) {
			var doc struct {
				After map[string]json.RawMessage `json:"after"`
			}
			value := e.AppendValue(nil, ev)
			if err := json.Unmarshal(value, &doc); err != nil || bytes.ContainsAny(value, "\n\r") {
				t.Fatalf("%v: %s", err, value)
			}
			for name, v := range doc.After {
				seen[name] = append(seen[name], string(v))
			}
		}
		var out strings.Builder
		for _, c := range cases {
			fmt.Fprintf(&out, "%s: %s\n", c.Name, mapping[c.Name].Native)
			for i, v := range c.Values {
				if len(v) < 300 {
					fmt.Fprintf(&out, "\t%s -> %s\n", strings.NewReplacer("\n", " ", "\r", " ").Replace(v), seen[c.Name][i])
				}
			}
		}
		golden(t, "values.txt", out.String())
	}
}

// Declared precision decides between milliseconds and microseconds, and one bit is a boolean.
func TestDeclared(t *testing.T) {
	local := &arrow.TimestampType{Unit: arrow.Microsecond}
	s := &record.Schema{Dataset: "d", Columns: arrow.NewSchema([]arrow.Field{
		column("a", "timestamp without time zone", local), column("b", "timestamp(3) without time zone", local), column("c", "timestamp(4) without time zone", local),
		column("d", "time(0) without time zone", arrow.FixedWidthTypes.Time64us), column("e", "time without time zone", arrow.FixedWidthTypes.Time64us),
		column("f", "bit(1)", record.BitsType(1, false)), column("g", "bit(9)", record.BitsType(9, false)),
	}, nil)}
	e := debezium.New(debezium.Options{})
	for ev := range e.Events(connectortest.BatchOf(s, []string{`"1969-12-31T23:59:59.999"`, `"1969-12-31T23:59:59.999"`, `"1970-01-01T00:00:01"`, `"00:00:01"`, `"00:00:01"`, `"1"`, `"100000011"`})) {
		want := `{"before":null,"after":{"a":-1000,"b":-1,"c":1000000,"d":1000,"e":1000000,"f":true,"g":"AwE="}`
		if got := string(e.AppendValue(nil, ev)); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	var natives []string
	for _, m := range debezium.Mapping(s) {
		natives = append(natives, m.Native)
	}
	ns := "io.debezium.time."
	want := []string{ns + "MicroTimestamp", ns + "Timestamp", ns + "MicroTimestamp", ns + "Time", ns + "MicroTime", "boolean", "io.debezium.data.Bits"}
	if diff := cmp.Diff(want, natives); diff != "" {
		t.Error(diff)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWriter(t *testing.T) {
	b := connectortest.Numbered("d", 0, 2_000)
	var out bytes.Buffer
	w := debezium.NewWriter(&out, debezium.Options{})
	if err := errors.Join(w.Write(b, 1), w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 2_000 {
		t.Errorf("%d lines", n)
	}
	w = debezium.NewWriter(full{}, debezium.Options{})
	if err := w.Write(b, 1); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
	if err := errors.Join(w.Write(b, 1), w.Close()); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
	b.Txns = []record.Txn{{Rows: 1}}
	if err := debezium.NewWriter(&out, debezium.Options{}).Write(b, 1); err == nil {
		t.Error("transactions that do not add up were taken")
	}
}

func BenchmarkWriter(b *testing.B) {
	batch := connectortest.Numbered("public.orders", 0, 8192)
	batch.Ops = make([]record.Op, 8192)
	for i := range 512 {
		batch.Txns = append(batch.Txns, record.Txn{Rows: 16, Position: position("0/FF", i), Time: now()})
	}
	w := debezium.NewWriter(io.Discard, debezium.Options{Name: "shop", Now: now})
	var n int64
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(batch, 1); err != nil {
			b.Fatal(err)
		}
		n += 8192
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}

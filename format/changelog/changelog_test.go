package changelog_test

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
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/format/parquet"
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

func txn(rows, n int) record.Txn {
	return record.Txn{
		Rows: rows, Position: record.Position{Shape: 2, Data: json.RawMessage(fmt.Sprintf(`{"lsn":"0/%X","xid":%d}`, 0x1000+n, 700+n))},
		Time: time.Date(2026, 1, 31, 12, 0, n, 500_000_000, time.FixedZone("CET", 3600)),
	}
}

func bitmap(rows ...int) []uint64 {
	out := make([]uint64, 1)
	for _, i := range rows {
		out[0] |= 1 << i
	}
	return out
}

// orders is a schema with a key, a large text and a number; keyless has no key.
func orders() (keyed, keyless *record.Schema) {
	keyed = connectortest.Schema("public.orders", connectortest.Case{Name: "doc", Type: arrow.BinaryTypes.String}, connectortest.Case{Name: "n", Type: arrow.PrimitiveTypes.Int32})
	k := *keyed
	k.Dataset, k.Key = `public."odd ""name"`, nil
	return keyed, &k
}

// scenario is one batch of every kind: rows of a chunk and of a plain read, each operation with and without an image before, a key that
// moves, values that were not sent, a truncation before rows and one alone, a dataset without key.
func scenario() []*record.Batch {
	keyed, keyless := orders()
	chunk := connectortest.BatchOf(keyed, []string{"1", `"one"`, "1"}, []string{"2", "null", "2"})
	chunk.Chunk = &record.Chunk{Dataset: keyed.Dataset}
	plain := connectortest.BatchOf(keyed, []string{"9", `"nine\nlines"`, "9"})

	i, u, m, d := record.Insert, record.Update, record.Upsert, record.Delete
	changes := connectortest.BatchOf(keyed,
		[]string{"3", `"three"`, "3"}, []string{"1", "null", "10"}, []string{"1", "null", "null"}, []string{"20", "null", "2"},
		[]string{"3", `"after"`, "3"}, []string{"4", `"four"`, "4"}, []string{"3", "null", "null"}, []string{"4", `"four"`, "4"})
	changes.Ops = []record.Op{i, u, u, u, u, m, d, d}
	changes.Unchanged = map[int][]uint64{1: bitmap(1, 3)}
	none := []string{"null", "null", "null"}
	changes.Old = connectortest.BatchOf(keyed, none, none, none, []string{"2", "null", "null"}, []string{"3", `"three"`, "3"}, none, none, none).Rows
	changes.Txns = []record.Txn{txn(0, 1), txn(3, 2), txn(0, 3), txn(5, 4)}

	truncated := connectortest.BatchOf(keyed, []string{"5", `"five"`, "5"})
	truncated.Truncate, truncated.Ops, truncated.Txns = true, []record.Op{i}, []record.Txn{txn(1, 5)}
	alone := &record.Batch{Schema: keyed, Truncate: true, Txns: []record.Txn{{Position: record.Position{Shape: 2, Data: json.RawMessage("{\n\"at\": 1 }")}}}}
	empty := &record.Batch{Schema: keyed, Txns: []record.Txn{txn(0, 6)}}

	full := connectortest.BatchOf(keyed, []string{"6", "null", "6"}, []string{"7", "null", "7"}, []string{"8", "null", "8"}, []string{"9", `"sent"`, "9"})
	full.Ops, full.Txns, full.Unchanged = []record.Op{u, u, u, u}, []record.Txn{txn(4, 8)}, map[int][]uint64{1: bitmap(0, 1, 2)}
	full.Old = connectortest.BatchOf(keyed, []string{"6", `"kept"`, "0"}, none, []string{"8", `"kept too"`, "0"}, []string{"9", `"old"`, "9"}).Rows

	loose := connectortest.BatchOf(keyless, []string{"1", `"a"`, "null"}, []string{"1", "null", "null"})
	loose.Ops, loose.Txns = []record.Op{u, d}, []record.Txn{txn(2, 7)}
	loose.Old = connectortest.BatchOf(keyless, []string{"1", "null", "1"}, none).Rows
	return []*record.Batch{chunk, plain, changes, truncated, alone, empty, full, loose}
}

// cases C029, C033, C036; clause E12: one line for each change, in order; what was not sent is named, and never null.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	w := changelog.NewJSON(&out)
	seq := int64(1)
	for _, b := range scenario() {
		if err := w.Write(b, seq); err != nil {
			t.Fatal(err)
		}
		seq += int64(changelog.Count(b))
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != int(seq-1) {
		t.Errorf("%d lines, and %d changes were counted", lines, seq-1)
	}
	golden(t, "changes.jsonl", out.String())
}

// Every value is in the JSON form of package record, each line is strict JSON.
func TestJSONValues(t *testing.T) {
	b := connectortest.Sliced(connectortest.Batch("d", connectortest.Cases()...))
	var out bytes.Buffer
	w := changelog.NewJSON(&out)
	if err := errors.Join(w.Write(b, 1), w.Close()); err != nil {
		t.Fatal(err)
	}
	want := connectortest.Rows(b)
	for i, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		var doc struct {
			After json.RawMessage `json:"after"`
		}
		if err := json.Unmarshal([]byte(line), &doc); err != nil || string(doc.After) != strings.NewReplacer("\n", " ", "\r", " ").Replace(want[i]) {
			t.Errorf("row %d: %v\n%s\n%s", i, err, doc.After, want[i])
		}
	}
}

// failing is a disk that is full.
type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestErrors(t *testing.T) {
	b := scenario()[2]
	for i := range 2 {
		w := changelog.NewJSON(&failing{left: i})
		if err := errors.Join(w.Write(b, 1), w.Flush()); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("a full disk: %v", err)
		}
		if err := w.Write(b, 1); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("after an error: %v", err)
		}
	}
	bad := *b
	bad.Txns = bad.Txns[:2]
	p, err := changelog.NewParquet(io.Discard, b.Schema, "_", parquet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []changelog.Writer{changelog.NewJSON(io.Discard), p} {
		if err := w.Write(&bad, 1); err == nil || !strings.Contains(err.Error(), "public.orders has 8 rows") {
			t.Errorf("transactions that do not add up: %v", err)
		}
	}
}

// rowsOf reads a Parquet file back.
func rowsOf(t *testing.T, file []byte) (*record.Schema, []string) {
	t.Helper()
	r, err := parquet.NewReader(bytes.NewReader(file), int64(len(file)), "d")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // only read
	var rows []string
	for {
		b, err := r.Next(format.Want{})
		if errors.Is(err, io.EOF) {
			return r.Schema(), rows
		}
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, connectortest.Rows(b)...)
	}
}

// cases C029, C036: the same changes as rows of Parquet files, one for each dataset.
func TestParquet(t *testing.T) {
	keyed, keyless := orders()
	files := map[string]*bytes.Buffer{keyed.Dataset: {}, keyless.Dataset: {}}
	writers := map[string]*changelog.Parquet{}
	seq := int64(1)
	for _, b := range scenario() {
		w := writers[b.Schema.Dataset]
		if w == nil {
			var err error
			if w, err = changelog.NewParquet(files[b.Schema.Dataset], b.Schema, "_", parquet.Options{}); err != nil {
				t.Fatal(err)
			}
			writers[b.Schema.Dataset] = w
		}
		if err := w.Write(b, seq); err != nil {
			t.Fatal(err)
		}
		seq += int64(changelog.Count(b))
	}
	var all []string
	for _, s := range []*record.Schema{keyed, keyless} {
		if err := errors.Join(writers[s.Dataset].Close(), writers[s.Dataset].Close()); err != nil {
			t.Fatal(err)
		}
		schema, rows := rowsOf(t, files[s.Dataset].Bytes())
		all = append(append(all, fmt.Sprint(schema.Columns.Fields())), rows...)
	}
	golden(t, "changes.parquet.txt", strings.Join(all, "\n")+"\n")
}

// Every type that Parquet has keeps its values and its exact type, null in rows without them too.
func TestParquetValues(t *testing.T) {
	b := connectortest.Batch("d", connectortest.Pick("int64", "decimal_38_10", "text", "binary", "uuid", "json", "enum", "date", "instant_us", "interval", "list_nested", "struct", "map")...)
	b.Truncate, b.Txns = true, []record.Txn{txn(b.NumRows(), 1)}
	var out bytes.Buffer
	w, err := changelog.NewParquet(&out, b.Schema, "meta_", parquet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(b, 1), w.Close()); err != nil {
		t.Fatal(err)
	}
	schema, got := rowsOf(t, out.Bytes())
	want := connectortest.Rows(b)
	if len(got) != len(want)+1 || !strings.HasPrefix(got[0], `{"meta_op":"t","meta_commit_time":"2026-01-31T11:00:01.5Z"`) || !strings.Contains(got[0], `"id":null,"int64":null`) {
		t.Fatalf("%d rows: %s", len(got), got[0])
	}
	for i := range want {
		if _, row, _ := strings.Cut(got[i+1], `"meta_before":null,`); "{"+row != want[i] {
			t.Errorf("row %d: %s, want %s", i, got[i+1], want[i])
		}
	}
	for i, f := range b.Schema.Columns.Fields() {
		if g := schema.Columns.Field(i + 6); g.Name != f.Name || !g.Nullable || !arrow.TypeEqual(g.Type, f.Type) {
			t.Errorf("column %v, want %v", g, f)
		}
	}
}

// case C039: a clash of names is refused before anything is written, and the hint names a prefix that works.
func TestCheckNames(t *testing.T) {
	for column, prefix := range map[string]string{"_OP": "_", "seq": "", "m_before": "m_"} {
		s := connectortest.Schema("public.log", connectortest.Case{Name: column, Type: arrow.BinaryTypes.String}, connectortest.Case{Name: "_leat_op", Type: arrow.BinaryTypes.String})
		err := changelog.CheckNames(s, prefix)
		var e *connector.Error
		if !errors.As(err, &e) || e.Class != connector.ClassConfig || e.Column != column || e.Hint != "choose another beginning for those: meta_prefix=_leat__" {
			t.Errorf("%s with %q: %v, hint %q", column, prefix, err, connector.HintOf(err))
		}
		if err := changelog.CheckNames(s, "_leat__"); err != nil {
			t.Error(err)
		}
		if _, err := changelog.NewParquet(io.Discard, s, prefix, parquet.Options{}); err == nil {
			t.Errorf("%s with %q was taken", column, prefix)
		}
	}
}

func BenchmarkJSON(b *testing.B) {
	batch := connectortest.Numbered("public.orders", 0, 8192)
	batch.Ops = make([]record.Op, 8192)
	for range 512 {
		batch.Txns = append(batch.Txns, txn(16, 1))
	}
	w := changelog.NewJSON(io.Discard)
	var n int64
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(batch, 1); err != nil {
			b.Fatal(err)
		}
		n += 8192
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "changes/s")
}

package file_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/file"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/internal/vfs"
	"github.com/leatdata/leat/record"
)

var update = flag.Bool("update", false, "rewrite testdata")

// newLog is the configuration of a log.
func newLog(dir, kind string) *file.SinkConfig {
	c := file.NewSink(dir)
	c.Log, c.Format = true, kind
	return c
}

func logStart(fence uint64) connector.SinkStart {
	return connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r1", Fence: fence, Mode: connector.Append}
}

// logReader reads a log as its readers do: the files of a folder that have their names, in order.
type logReader struct {
	fs   vfs.FS
	root string
}

// lines returns the changes of each folder: lines of JSON, or rows of Parquet printed as JSON.
func (r logReader) lines(t testing.TB) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	folders, err := r.fs.ReadDir(r.root)
	if err != nil {
		return out
	}
	for _, folder := range folders {
		if folder == "_leat" {
			continue
		}
		for _, name := range r.files(folder) {
			data, err := r.fs.ReadFile(filepath.Join(r.root, folder, name))
			if err != nil {
				t.Fatal(err)
			}
			out[folder] = append(out[folder], contentOf(t, name, data)...)
		}
	}
	return out
}

// files lists the files of a folder that have their names.
func (r logReader) files(folder string) []string {
	names, _ := r.fs.ReadDir(filepath.Join(r.root, folder)) // none
	names = slices.DeleteFunc(names, func(n string) bool { return n[0] == '.' })
	slices.Sort(names)
	return names
}

// leftovers are the files anywhere in the log that are not committed: staged ones, and notes of what is staged.
func (r logReader) leftovers() []string {
	var out []string
	var walk func(dir string)
	walk = func(dir string) {
		names, _ := r.fs.ReadDir(dir) // a file
		for _, n := range names {
			if n[0] == '.' {
				out = append(out, filepath.Join(dir, n))
			}
			walk(filepath.Join(dir, n))
		}
	}
	walk(r.root)
	return out
}

func contentOf(t testing.TB, name string, data []byte) []string {
	t.Helper()
	switch {
	case strings.HasSuffix(name, ".parquet"):
		return parquetRows(t, data)
	case strings.HasSuffix(name, ".gz"):
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(z)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if len(data) == 0 {
		return nil
	}
	if data[len(data)-1] != '\n' {
		t.Fatalf("%s breaks off", name)
	}
	return strings.Split(string(data[:len(data)-1]), "\n")
}

func parquetRows(t testing.TB, data []byte) []string {
	t.Helper()
	r, err := parquet.NewReader(bytes.NewReader(data), int64(len(data)), "d")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // only read
	var rows []string
	for {
		b, err := r.Next(format.Want{})
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, connectortest.Rows(b)...)
	}
}

// printed is what a log should hold of a batch whose first change has the given number.
func printed(t testing.TB, kind string, b *record.Batch, seq int64) []string {
	t.Helper()
	var out bytes.Buffer
	w := changelog.Writer(changelog.NewJSON(&out))
	name := "x.jsonl"
	switch kind {
	case "parquet":
		name = "x.parquet"
		p, err := changelog.NewParquet(&out, b.Schema, "_", parquet.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w = p
	case "debezium":
		w = debezium.NewWriter(&out, debezium.Options{Name: "p", Now: noon})
	}
	if err := errors.Join(w.Write(b, seq), w.Close()); err != nil {
		t.Fatal(err)
	}
	return contentOf(t, name, out.Bytes())
}

func txn(rows, n int) record.Txn {
	return record.Txn{
		Rows: rows, Position: record.Position{Shape: 2, Data: json.RawMessage(fmt.Sprintf(`{"lsn":"0/%X","xid":%d}`, 0x1000+n, 700+n))},
		Time: time.UnixMicro(1769860800_000000 + int64(n)).UTC(),
	}
}

// progressAt is the progress of a lane, with bytes that an encoder of JSON would write otherwise.
func progressAt(n int) record.Progress {
	return record.Progress{
		Run: "r1", Position: record.Position{Shape: 2, Data: json.RawMessage(fmt.Sprintf(`{ "at": %d, "<&>": 1.10 }`, n))},
		Ledger: json.RawMessage(fmt.Sprintf("[{\"chunk\" : %d}]", n)), Epoch: uint64(n), Item: uint64(10 * n),
	}
}

func noon() time.Time { return time.Unix(1769860800, 0) }

// logEnv is an environment whose clock stands still.
func logEnv(t testing.TB) connector.Env {
	t.Helper()
	env := connectortest.Env(t)
	env.Now = noon
	return env
}

func openLog(t testing.TB, cfg *file.SinkConfig) connector.Sink {
	t.Helper()
	snk, err := cfg.Open(logEnv(t))
	if err != nil {
		t.Fatal(err)
	}
	return snk
}

func startLog(t testing.TB, cfg *file.SinkConfig, fence uint64) connector.Sink {
	t.Helper()
	snk := openLog(t, cfg)
	if err := snk.Start(context.Background(), logStart(fence)); err != nil {
		t.Fatal(err)
	}
	return snk
}

func write(t testing.TB, snk connector.Sink, batches ...*record.Batch) {
	t.Helper()
	for _, b := range batches {
		if err := snk.Write(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
}

// commitLog prepares and publishes, as the engine does.
func commitLog(snk connector.Sink, p record.Progress) error {
	staged, err := prepareLog(snk, p)
	if err != nil {
		return err
	}
	return publishLog(snk, p, staged)
}

func prepareLog(snk connector.Sink, p record.Progress) (json.RawMessage, error) {
	two, ok := connector.As[connector.TwoPhase](snk)
	if !ok {
		return nil, errors.New("not TwoPhase")
	}
	return two.Prepare(context.Background(), p)
}

func publishLog(snk connector.Sink, p record.Progress, staged json.RawMessage) error {
	two, ok := connector.As[connector.TwoPhase](snk)
	if !ok {
		return errors.New("not TwoPhase")
	}
	return two.Publish(context.Background(), p, staged)
}

func abortLog(snk connector.Sink) error {
	two, ok := connector.As[connector.TwoPhase](snk)
	if !ok {
		return errors.New("not TwoPhase")
	}
	return two.Abort(context.Background())
}

func committedLog(t testing.TB, snk connector.Sink) (record.Progress, bool) {
	t.Helper()
	two, ok := connector.As[connector.TwoPhase](snk)
	if !ok {
		t.Fatal("not TwoPhase")
	}
	p, found, err := two.Committed(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return p, found
}

// logTarget reads back the rows after each change of a log, as the kit compares them.
func logTarget(t testing.TB, root string, sinkOf func() *file.SinkConfig) connectortest.Target {
	t.Helper()
	return connectortest.Target{
		Config: func() connector.SinkConfig { return sinkOf() },
		Read: func(t testing.TB, s *record.Schema) ([]string, bool) {
			t.Helper()
			snk := openLog(t, sinkOf())
			named, ok := connector.As[connector.Named](snk)
			if !ok {
				t.Fatal("no name")
			}
			r := logReader{fs: file.OS(), root: root}
			folder := folderOf(t, r, s.Dataset)
			if _, err := os.Stat(filepath.Join(root, folder)); err != nil || folder == "" {
				return nil, false
			}
			if uri := named.URI(s.Dataset); !strings.HasPrefix(uri, "file://") {
				t.Errorf("URI %q", uri)
			}
			var rows []string
			for _, line := range r.lines(t)[folder] {
				rows = append(rows, afterOf(t, s, line))
			}
			return rows, true
		},
		Leftovers: func(testing.TB) []string { return logReader{fs: file.OS(), root: root}.leftovers() },
	}
}

// manifestOf reads the manifests of a log.
func manifestOf(t testing.TB, r logReader) map[string]any {
	t.Helper()
	names, _ := r.fs.ReadDir(filepath.Join(r.root, "_leat"))
	for _, n := range names {
		if strings.HasSuffix(n, ".json") {
			data, err := r.fs.ReadFile(filepath.Join(r.root, "_leat", n))
			var m map[string]any
			if err = errors.Join(err, json.Unmarshal(data, &m)); err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	return nil
}

func folderOf(t testing.TB, r logReader, dataset string) string {
	t.Helper()
	sets, _ := manifestOf(t, r)["datasets"].([]any)
	for _, d := range sets {
		if d, ok := d.(map[string]any); ok && d["name"] == dataset {
			return fmt.Sprint(d["folder"])
		}
	}
	return ""
}

// afterOf is the row of a line, with the columns of a schema.
func afterOf(t testing.TB, s *record.Schema, line string) string {
	t.Helper()
	var doc map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &doc); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if after, ok := doc["after"]; ok {
		doc = nil
		if err := json.Unmarshal(after, &doc); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
	}
	out := []byte{'{'}
	for i, n := range s.Names() {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(record.AppendJSONString(out, n), ':')
		if v, ok := doc[n]; ok {
			out = append(out, v...)
		} else {
			out = append(out, "null"...)
		}
	}
	return string(append(out, '}'))
}

// clauses E5, E8, S12, S15; cases C063, C091, C099, C100.
func TestLogSink(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		set   func(*file.SinkConfig)
		cases []connectortest.Case
	}{
		"jsonl":    {"", nil, nil},
		"jsonl.gz": {"jsonl", func(c *file.SinkConfig) { c.Compression, c.FileBytes = "gzip", 1 }, nil},
		"parquet":  {"parquet", func(c *file.SinkConfig) { c.MetaPrefix = "_leat_" }, nil},
		"debezium": {"debezium", nil, connectortest.Pick("int32", "bool", "text", "binary", "uuid", "instant_us", "list_int", "struct")},
	} {
		t.Run(name, func(t *testing.T) {
			connectortest.Sink(t, connectortest.SinkCase{
				Cases: c.cases,
				New: func(t testing.TB) connectortest.Target {
					t.Helper()
					root := filepath.Join(t.TempDir(), "a", "log")
					return logTarget(t, root, func() *file.SinkConfig {
						cfg := newLog(root+"/", c.kind)
						if c.set != nil {
							c.set(cfg)
						}
						return cfg
					})
				},
				Unreachable: func(t testing.TB) connector.SinkConfig {
					t.Helper()
					return newLog(filepath.Join(put(t, t.TempDir(), "file", ""), "log"), c.kind)
				},
			})
		})
	}
}

// shapes are schemas of two datasets: the second one changes its columns, its types and its key.
func shapes() (orders *record.Schema, items []*record.Schema) {
	text := connectortest.Case{Name: "doc", Type: arrow.BinaryTypes.String}
	orders = connectortest.Schema("public.orders", text)
	one, two := connectortest.Schema("items", text), connectortest.Schema("items", text, connectortest.Case{Name: "n", Type: arrow.PrimitiveTypes.Int32})
	three := *two
	three.Key = nil
	return orders, []*record.Schema{one, two, &three}
}

// The manifest is a persisted format: docs/formats/change-log.md. Names, numbers, sums and positions are exactly these.
func TestManifest(t *testing.T) {
	root := filepath.Join(t.TempDir(), "log")
	orders, items := shapes()
	snk := startLog(t, newLog(root, ""), 7)
	read := connectortest.BatchOf(items[0], []string{"1", `"a"`})
	read.Chunk = &record.Chunk{Dataset: "items"}
	changes := connectortest.BatchOf(orders, []string{"1", `"x"`}, []string{"2", `"y"`}, []string{"3", "null"})
	changes.Ops, changes.Txns = []record.Op{0, 0, 0}, []record.Txn{txn(0, 0), txn(2, 1), txn(1, 2), txn(0, 3)}
	write(t, snk, read, changes)
	if err := commitLog(snk, progressAt(1)); err != nil {
		t.Fatal(err)
	}
	more := connectortest.BatchOf(items[1], []string{"1", `"<b>"`, "5"})
	more.Truncate, more.Ops, more.Txns = true, []record.Op{record.Update}, []record.Txn{txn(1, 4)}
	write(t, snk, more, connectortest.BatchOf(items[2], []string{"9", "null", "null"}))
	p := progressAt(2)
	p.Ledger, p.Done = nil, true
	if err := errors.Join(commitLog(snk, p), snk.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "_leat", "p~l.json"))
	if err != nil {
		t.Fatal(err)
	}
	got := string(data)
	for _, name := range (logReader{file.OS(), root}).temporaries(data) {
		got = strings.ReplaceAll(got, name, "TEMPORARY")
	}
	path := filepath.Join("testdata", "manifest.json")
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
		t.Errorf("(-want +got):\n%s", diff)
	}
	snk = startLog(t, newLog(root, ""), 7)
	defer snk.Close(t.Context()) //nolint:errcheck // only read
	if got, found := committedLog(t, snk); !found || !cmp.Equal(p, got) {
		t.Errorf("progress %+v, want %+v", got, p)
	}
}

// temporaries are the random names in a manifest.
func (logReader) temporaries(manifest []byte) []string {
	var m struct {
		Files []struct {
			Staged string `json:"staged"`
		} `json:"files"`
	}
	if json.Unmarshal(manifest, &m) != nil {
		return nil
	}
	var out []string
	for _, f := range m.Files {
		if f.Staged != "" {
			out = append(out, f.Staged)
		}
	}
	return out
}

package file_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	pqfile "github.com/apache/arrow-go/v18/parquet/file"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/file"
	"github.com/leatdata/leat/record"
)

// names lists a folder.
func names(t testing.TB, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, f := range found {
		out = append(out, f.Name())
	}
	return out
}

func begin(t testing.TB, cfg *file.SinkConfig, start connector.SinkStart, batches ...*record.Batch) connector.Sink {
	t.Helper()
	snk, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := snk.Start(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := snk.Write(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
	return snk
}

func finish(t testing.TB, snk connector.Sink) {
	t.Helper()
	f, ok := connector.As[connector.Finisher](snk)
	if !ok {
		t.Fatal("no Finisher")
	}
	if err := errors.Join(f.Finish(context.Background(), record.Progress{Done: true}), snk.Close(context.Background())); err != nil {
		t.Fatal(err)
	}
}

// clauses E8, E16: nothing is visible before the end; what a killed run left goes at the next start of the same lane, and of
// no other.
func TestAppears(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "one.csv")
	start := connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r1", Mode: connector.Replace}
	begin(t, file.NewSink(path), start, connectortest.Numbered("one", 0, 10)) // it is never closed, as after a kill
	other := start
	other.Lane = "other"
	begin(t, file.NewSink(path), other, connectortest.Numbered("one", 0, 10))
	if left := names(t, dir); len(left) != 2 || slices.ContainsFunc(left, func(n string) bool { return !strings.HasPrefix(n, ".one.csv.leat-") || !strings.HasSuffix(n, ".tmp") }) {
		t.Fatalf("in the folder: %q", left)
	}
	snk := begin(t, file.NewSink(path), start, connectortest.Numbered("one", 0, 3))
	if left := names(t, dir); len(left) != 2 {
		t.Errorf("after the next start: %q", left)
	}
	finish(t, snk)
	if left := names(t, dir); len(left) != 2 || left[1] != "one.csv" {
		t.Errorf("at the end: %q", left)
	}
	if got := all(t, file.NewSource(path)); len(got) != 3 {
		t.Errorf("%q", got)
	}
}

// A process with little memory writes smaller row groups, but no tiny ones.
//
// case C069.
func TestRowGroupsFitMemory(t *testing.T) {
	rows := make([][]string, 300)
	for i := range rows {
		rows[i] = []string{strconv.Itoa(i), `"` + strings.Repeat("x", 100_000) + `"`}
	}
	b := connectortest.BatchOf(connectortest.Schema("one", connectortest.Case{Name: "v", Type: arrow.BinaryTypes.String}), rows...)
	for memory, want := range map[int64]int{0: 1, 64 << 20: 1, 16 << 20: 2, 1 << 20: 3} {
		path := filepath.Join(t.TempDir(), "one.parquet")
		env := connectortest.Env(t)
		env.Memory = memory
		snk, err := file.NewSink(path).Open(env)
		if err != nil {
			t.Fatal(err)
		}
		if err := snk.Start(context.Background(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r1", Mode: connector.Replace}); err != nil {
			t.Fatal(err)
		}
		if err := snk.Write(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		finish(t, snk)
		r, err := pqfile.OpenParquetFile(path, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.NumRowGroups(); got != want {
			t.Errorf("%d row groups with a memory of %d, want %d", got, memory, want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A file that was there keeps its rights, a link stays one, and a folder gets its parts appended and replaced.
func TestReplaces(t *testing.T) {
	dir := t.TempDir()
	old := put(t, dir, "real.csv", "old")
	if err := os.Chmod(old, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.csv")
	if err := os.Symlink(old, link); err != nil {
		t.Fatal(err)
	}
	store(t, file.NewSink(link), connector.Replace, connectortest.Numbered("one", 0, 2))
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link: %v, %v", info, err)
	}
	if info, err = os.Stat(old); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if got := all(t, file.NewSource(old)); len(got) != 2 {
		t.Errorf("%q", got)
	}
	folder := file.NewSink(filepath.Join(dir, "out") + "/")
	folder.Format = "csv"
	for _, run := range []string{"r1", "r2", "r2"} {
		finish(t, begin(t, folder, connector.SinkStart{Pipeline: "p", Run: run, Mode: connector.Append}, connectortest.Numbered("one", 0, 2), connectortest.Numbered("two", 0, 1)))
	}
	if diff := cmp.Diff([]string{"one~r1.csv", "one~r2.csv", "two~r1.csv", "two~r2.csv"}, names(t, folder.Path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	finish(t, begin(t, folder, connector.SinkStart{Pipeline: "p", Run: "r3", Mode: connector.Replace}, connectortest.Numbered("one", 0, 5)))
	if diff := cmp.Diff([]string{"one.csv", "two~r1.csv", "two~r2.csv"}, names(t, folder.Path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// cases C099, C100: names of files are kept apart, also where upper and lower case are the same, and lead back to the datasets.
func TestFileNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out") + "/"
	long := strings.Repeat("n", 300)
	datasets := []string{"plain", "public.orders", "Order", "order", "Alone", `"a.b"`, "a/b", `a\b`, `".."`, `".hidden"`, "con", "x:y", "ünï", "e\u0301", "é", long + "1", long + "2", "a b", "a_b", "a%b", "a~b", "~", "💧"}
	cfg := file.NewSink(dir)
	cfg.Format = "csv"
	snk, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	m, ok := connector.As[connector.Mapper](snk)
	if !ok {
		t.Fatal("no Mapper")
	}
	for _, d := range datasets {
		if _, err := m.Map(ctx, connectortest.Numbered(d, 0, 0).Schema); err != nil {
			t.Fatal(err)
		}
	}
	if err := snk.Start(ctx, connector.SinkStart{Pipeline: "p", Mode: connector.Replace}); err != nil {
		t.Fatal(err)
	}
	for i, d := range datasets {
		if err := snk.Write(ctx, connectortest.Numbered(d, i, 1)); err != nil {
			t.Fatal(err)
		}
	}
	finish(t, snk)
	folded := map[string]bool{}
	for _, n := range names(t, dir) {
		f := strings.ToLower(n)
		if folded[f] || len(n) > 200 || strings.HasPrefix(n, ".") || strings.ContainsAny(n, `/\:`) {
			t.Errorf("file name %q", n)
		}
		folded[f] = true
	}
	if len(folded) != len(datasets) || !folded["alone.csv"] || !folded["public.orders.csv"] {
		t.Errorf("%d files: %q", len(folded), names(t, dir))
	}
	src := file.NewSource(dir)
	src.Datasets = "per_file"
	s, err := src.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.(connector.Discoverer).Discover(ctx) //nolint:forcetypeassert // a test
	if err != nil {
		t.Fatal(err)
	}
	back := map[string]bool{}
	for _, d := range found {
		back[d.Name] = true
	}
	for _, d := range datasets {
		if !back[d] && len(d) < 100 {
			t.Errorf("dataset %q is not found again among %v", d, back)
		}
	}
}

// Full disks, missing folders, changes and second datasets: one clear message each, and nothing half written is left.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	if _, err := os.Stat("/dev/full"); err == nil {
		cfg := file.NewSink("/dev/full")
		cfg.Format = "csv"
		// the device stands for a full disk
		cfg = fileAsCSV(t, cfg)
		snk := begin(t, cfg, connector.SinkStart{Mode: connector.Replace}, connectortest.Numbered("one", 0, 10))
		f, _ := connector.As[connector.Finisher](snk)
		if err := f.Finish(ctx, record.Progress{}); code(t, err) != "file.disk_full" {
			t.Error(err)
		}
		if err := snk.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	path := filepath.Join(dir, "one.csv")
	snk := begin(t, file.NewSink(path), connector.SinkStart{Mode: connector.Replace}, connectortest.Numbered("one", 0, 1))
	if err := snk.Write(ctx, connectortest.Numbered("two", 0, 1)); code(t, err) != "file.one_dataset" {
		t.Error(err)
	}
	f, _ := connector.As[connector.Finisher](snk)
	if err := errors.Join(f.Finish(ctx, record.Progress{}), snk.Close(ctx)); err == nil {
		t.Error("a sink that failed was finished")
	}
	snk = begin(t, file.NewSink(path), connector.SinkStart{Mode: connector.Replace})
	b := connectortest.Numbered("one", 0, 1)
	b.Ops = []record.Op{record.Delete}
	if err := snk.Write(ctx, b); code(t, err) != "file.changes" {
		t.Error(err)
	}
	if err := snk.Close(ctx); err != nil {
		t.Error(err)
	}
	snk = begin(t, file.NewSink(path), connector.SinkStart{Mode: connector.Replace}, connectortest.Numbered("one", 0, 1))
	if err := snk.Write(ctx, connectortest.Batch("one", connectortest.Pick("text")...)); code(t, err) != "file.schema_changed" {
		t.Error(err)
	}
	if err := snk.Close(ctx); err != nil {
		t.Error(err)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("left in the folder: %q", left)
	}
	for path, want := range map[string]string{dir + "/none/x.csv": "file.missing", dir + "/x.txt": "file.config"} {
		snk, err := file.NewSink(path).Open(connectortest.Env(t))
		if err == nil {
			err = snk.Start(ctx, connector.SinkStart{})
		}
		if code(t, err) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "is.csv"), 0o755); err != nil {
		t.Fatal(err)
	}
	snk, err := file.NewSink(filepath.Join(dir, "is.csv")).Open(connectortest.Env(t))
	if err == nil {
		err = snk.Start(ctx, connector.SinkStart{})
	}
	if code(t, err) != "file.config" {
		t.Error(err)
	}
}

func fileAsCSV(t testing.TB, cfg *file.SinkConfig) *file.SinkConfig {
	t.Helper()
	out := file.NewSink("")
	if err := out.SetURL("csv:" + cfg.Path); err != nil {
		t.Fatal(err)
	}
	return out
}

// case C083: the file as another program sees it.
func TestCSVFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.csv")
	c := connectortest.Case{Name: "v", Type: connectortest.Pick("text")[0].Type}
	store(t, file.NewSink(path), connector.Replace, connectortest.BatchOf(connectortest.Schema("one", c), []string{"1", "null"}, []string{"2", `""`}, []string{"3", `"NULL"`}))
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "id,v\n1,\n2,\"\"\n3,NULL\n" {
		t.Errorf("%q, %v", got, err)
	}
}

package file_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/file"
	"github.com/leatdata/leat/internal/vfs"
	"github.com/leatdata/leat/record"
)

// ids are the ids of all changes of a dataset, in order.
func ids(t testing.TB, root, dataset string) []string {
	t.Helper()
	var out []string
	for _, line := range (logReader{file.OS(), root}).lines(t)[dataset] {
		var doc struct {
			Key struct {
				ID json.Number `json:"id"`
			} `json:"key"`
			Seq json.Number `json:"seq"`
		}
		if err := json.Unmarshal([]byte(line), &doc); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if doc.Key.ID != doc.Seq {
			t.Errorf("change %s has number %s", doc.Key.ID, doc.Seq)
		}
		out = append(out, doc.Key.ID.String())
	}
	return out
}

// counted: the log holds the changes 1 to n, each once and in order.
func counted(t testing.TB, root string, n int) {
	t.Helper()
	got := ids(t, root, "d")
	for i := range max(n, len(got)) {
		if i >= len(got) || got[i] != strconv.Itoa(i+1) {
			t.Fatalf("change %d of %d: the log has %s …", i+1, n, strings.Join(got[max(0, min(i, len(got))-3):min(len(got), i+3)], " "))
		}
	}
	if left := (logReader{file.OS(), root}).leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// numbered is the progress behind n changes.
func numbered(n int) record.Progress {
	return record.Progress{Run: "r1", Position: record.Position{Data: json.RawMessage(strconv.Itoa(n))}, Epoch: uint64(n)}
}

// next commits one more change than the sink has, and returns its number.
func next(snk connector.Sink) (int, error) {
	ctx := context.Background()
	two, ok := connector.As[connector.TwoPhase](snk)
	if !ok {
		return 0, errors.New("not TwoPhase")
	}
	p, _, err := two.Committed(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	if len(p.Position.Data) > 0 {
		if err := json.Unmarshal(p.Position.Data, &n); err != nil {
			return 0, err
		}
	}
	n++
	if err := snk.Write(ctx, connectortest.Numbered("d", n, 1)); err != nil {
		return 0, err
	}
	return n, commitLog(snk, numbered(n))
}

// clauses E8, W10: an owner that another one has followed commits nothing, and does not touch what the other one is writing.
func TestLogFence(t *testing.T) {
	root := filepath.Join(t.TempDir(), "log")
	first := startLog(t, newLog(root, ""), 5)
	if _, err := next(first); err != nil {
		t.Fatal(err)
	}
	write(t, first, connectortest.Numbered("d", 100, 1))
	second := startLog(t, newLog(root, ""), 6)
	write(t, second, connectortest.Numbered("d", 2, 1))
	if err := commitLog(first, progressAt(9)); connector.ClassOf(err) != connector.ClassFenced || connector.HintOf(err) == "" {
		t.Errorf("the first owner commits: %v", err)
	}
	if err := commitLog(first, progressAt(9)); connector.ClassOf(err) != connector.ClassFenced {
		t.Errorf("the first owner commits again: %v", err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	late := openLog(t, newLog(root, ""))
	if err := late.Start(t.Context(), logStart(5)); connector.ClassOf(err) != connector.ClassFenced {
		t.Errorf("the first owner starts again: %v", err)
	}
	if err := errors.Join(commitLog(second, numbered(2)), second.Close(t.Context()), late.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	counted(t, root, 2)
}

// Owners that follow each other at once never mix: each starts behind what the one before has committed.
func TestLogOwnersRace(t *testing.T) {
	root := filepath.Join(t.TempDir(), "log")
	var fence atomic.Uint64
	var last atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 12 {
				snk, err := newLog(root, "").Open(connectortest.Env(t))
				if err != nil {
					t.Error(err)
					return
				}
				if err = snk.Start(context.Background(), logStart(fence.Add(1))); err == nil {
					err = abortLog(snk) // the one before may have been stopped with an epoch prepared
				}
				for i := 0; err == nil && i < 5; i++ {
					var n int
					if n, err = next(snk); err == nil {
						for l := last.Load(); int64(n) > l && !last.CompareAndSwap(l, int64(n)); l = last.Load() {
						}
					}
				}
				if err != nil && connector.ClassOf(err) != connector.ClassFenced {
					t.Error(err)
				}
				if err := snk.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	snk := startLog(t, newLog(root, ""), fence.Add(1)) // the last one may have been closed while another wrote
	if err := errors.Join(abortLog(snk), snk.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	counted(t, root, int(last.Load()))
}

// TestLogWorker is the process that TestLogKilled kills: it commits one change after the other and says so.
func TestLogWorker(t *testing.T) {
	root, fence := os.Getenv("LEAT_LOG_ROOT"), os.Getenv("LEAT_LOG_FENCE")
	if root == "" {
		t.Skip("it is started by TestLogKilled")
	}
	n, err := strconv.ParseUint(fence, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	cfg := newLog(root, "")
	cfg.FileBytes = 1
	snk := startLog(t, cfg, n)
	if err := abortLog(snk); err != nil { // nobody decided
		t.Fatal(err)
	}
	for {
		n, err := next(snk)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(os.Stdout, "committed", n); err != nil {
			t.Fatal(err)
		}
	}
}

// clause E8, case C063: kill -9 in the middle of commits, again and again: nothing is lost, nothing comes twice.
func TestLogKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	root := filepath.Join(t.TempDir(), "log")
	last := 0
	for fence := range 8 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLogWorker$")
		cmd.Env = append(os.Environ(), "LEAT_LOG_ROOT="+root, "LEAT_LOG_FENCE="+strconv.Itoa(fence+1))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for i := 0; i < 20+fence && lines.Scan(); i++ {
			if _, err := fmt.Sscan(strings.TrimPrefix(lines.Text(), "committed "), &last); err != nil {
				t.Fatalf("the worker says %q", lines.Text())
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it said before it died
			if _, err := fmt.Sscan(strings.TrimPrefix(lines.Text(), "committed "), &last); err != nil {
				break // it died inside of a line
			}
		}
		_ = cmd.Wait() // it was killed
	}
	snk := startLog(t, newLog(root, ""), 100)
	p, _ := committedLog(t, snk)
	if err := errors.Join(abortLog(snk), snk.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(p.Position.Data))
	if err != nil || n < last || n > last+1 {
		t.Errorf("%s changes are committed, and the worker said %d (%v)", p.Position.Data, last, err)
	}
	counted(t, root, n)
}

// However long a log grows, its manifest stays small: older files are in lists, and together they are all files, once and in order.
func TestLogManyFiles(t *testing.T) {
	mem := vfs.NewMem()
	const commits = 3*file.MaxListed + 10
	cfg := file.On(newLog(logRoot, ""), mem)
	snk := startLog(t, cfg, 1)
	largest := 0
	for i := range commits {
		if i == commits/2 {
			if err := snk.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			snk = startLog(t, cfg, 2)
		}
		if _, err := next(snk); err != nil {
			t.Fatal(err)
		}
		data, err := mem.ReadFile(logRoot + "/_leat/p~l.json")
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, len(data))
	}
	if err := snk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if largest > 100<<10 {
		t.Errorf("the manifest has up to %d bytes", largest)
	}
	r := logReader{mem, logRoot}
	var listed []string
	add := func(doc []byte) {
		var f struct {
			File   string `json:"file"`
			SHA256 string `json:"sha256"`
		}
		if err := json.Unmarshal(doc, &f); err != nil || f.SHA256 == "" {
			t.Fatalf("%v: %s", err, doc)
		}
		listed = append(listed, f.File)
	}
	lists, err := mem.ReadDir(logRoot + "/_leat/p~l")
	if err != nil || len(lists) != 3 {
		t.Errorf("lists %v, %v", lists, err)
	}
	for _, l := range lists {
		data, err := mem.ReadFile(logRoot + "/_leat/p~l/" + l)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
			add([]byte(line))
		}
	}
	files, _ := manifestOf(t, r)["files"].([]any)
	for _, f := range files {
		doc, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		add(doc)
	}
	var want []string
	for _, name := range r.files("d") {
		want = append(want, "d/"+name)
	}
	if len(want) != commits || !slices.Equal(want, listed) {
		t.Errorf("%d files, %d are listed, and there were %d commits", len(want), len(listed), commits)
	}
}

// Many datasets at once keep few files open, and a large commit has many files: no row is lost.
func TestLogManyDatasets(t *testing.T) {
	for compression, limit := range map[string]int{"auto": file.MaxLogOpen, "gzip": file.MaxPacked} {
		mem := vfs.NewMem()
		open, most := 0, 0
		cfg := file.On(newLog(logRoot, ""), vfs.Hook(mem, func(o vfs.Op) error {
			switch o.Kind {
			case "create":
				open++
				most = max(most, open)
			case "close":
				open--
			}
			return nil
		}))
		cfg.Compression = compression
		snk := startLog(t, cfg, 1)
		for round := range 2 {
			for d := range limit + 40 {
				write(t, snk, connectortest.Numbered(fmt.Sprintf("d%03d", d), round, 1))
			}
		}
		for i := range 5 {
			write(t, snk, connectortest.Numbered("large", i*10_000, 10_000))
		}
		if err := errors.Join(commitLog(snk, progressAt(1)), snk.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		if open != 0 || most > limit+1 {
			t.Errorf("%d files open at the end, %d at most", open, most)
		}
		got := logReader{mem, logRoot}.lines(t)
		for d := range limit + 40 {
			if n := len(got[fmt.Sprintf("d%03d", d)]); n != 2 {
				t.Errorf("dataset %d has %d changes", d, n)
			}
		}
		if len(got["large"]) != 50_000 || len(got) != limit+41 {
			t.Errorf("%d datasets, and %d changes of the large one", len(got), len(got["large"]))
		}
	}
}

// A file ends at file_bytes, also within a transaction, and nothing of it shows before the commit.
func TestLogFileBytes(t *testing.T) {
	root := filepath.Join(t.TempDir(), "log")
	cfg := newLog(root, "")
	cfg.FileBytes = 200_000
	snk := startLog(t, cfg, 1)
	for i := range 10 {
		write(t, snk, connectortest.Numbered("d", 1+i*1000, 1000))
	}
	r := logReader{file.OS(), root}
	if files := r.files("d"); len(files) > 0 {
		t.Errorf("before the commit there are %v", files)
	}
	if err := errors.Join(commitLog(snk, progressAt(1)), snk.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if n := len(r.files("d")); n < 4 || n > 6 {
		t.Errorf("%d files", n)
	}
	counted(t, root, 10_000)
}

// A reader may take files away as soon as they have their names; what has none yet must stay.
func TestLogRemoved(t *testing.T) {
	mem := vfs.NewMem()
	cfg := file.On(newLog(logRoot, ""), mem)
	snk := startLog(t, cfg, 1)
	if _, err := next(snk); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(snk.Close(t.Context()), mem.Remove(logRoot+"/d/000000000001.jsonl")); err != nil {
		t.Fatal(err)
	}
	snk = startLog(t, cfg, 2)
	if p, found := committedLog(t, snk); !found || string(p.Position.Data) != "1" {
		t.Errorf("progress %+v", p)
	}
	cfg.FileBytes = 1
	write(t, snk, connectortest.Numbered("d", 2, 1))
	staged, err := mem.ReadDir(logRoot + "/d")
	if err != nil || len(staged) != 1 {
		t.Fatal(staged, err)
	}
	if err := mem.Remove(logRoot + "/d/" + staged[0]); err != nil {
		t.Fatal(err)
	}
	if err := commitLog(snk, progressAt(2)); code(t, err) != "file.log_removed" {
		t.Errorf("what was to be committed is gone: %v", err)
	}
	if err := snk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	snk = startLog(t, cfg, 2)
	if n, err := next(snk); n != 2 || err != nil {
		t.Errorf("going on at %d, %v", n, err)
	}
	if got := fmt.Sprint((logReader{mem, logRoot}).files("d")); got != "[000000000002.jsonl]" {
		t.Errorf("files %s", got)
	}
}

// rewrite changes a file of a log in memory.
func rewrite(t *testing.T, mem *vfs.Mem, name string, change func(string) string) {
	t.Helper()
	data, err := mem.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := mem.Create(name + ".new")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(change(string(data)))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), mem.Rename(name+".new", name)); err != nil {
		t.Fatal(err)
	}
}

// cases C039, C104, C105; clause S14: what can't be gone on with is refused, says why, and what to do; nothing is overwritten.
func TestLogRefusals(t *testing.T) {
	const manifest = logRoot + "/_leat/p~l.json"
	one := connectortest.Numbered("d", 1, 1)
	begun := func(t *testing.T, mem *vfs.Mem, start connector.SinkStart, kind string) error {
		t.Helper()
		snk := openLog(t, file.On(newLog(logRoot, kind), mem))
		err := snk.Start(t.Context(), start)
		if err == nil {
			err = snk.Write(t.Context(), one)
		}
		if err == nil {
			err = commitLog(snk, progressAt(1))
		}
		return errors.Join(err, snk.Close(t.Context()))
	}
	replace := func(from, to string) func(*testing.T, *vfs.Mem) {
		return func(t *testing.T, mem *vfs.Mem) {
			t.Helper()
			rewrite(t, mem, manifest, func(s string) string { return strings.Replace(s, from, to, 1) })
		}
	}
	other := logStart(1)
	other.Lane = "other"
	for name, c := range map[string]struct {
		spoil func(*testing.T, *vfs.Mem)
		start connector.SinkStart
		kind  string
		class connector.Class
		code  string
		says  string
	}{
		"damaged":             {replace(`"seq":1,`, `"seq":`), logStart(2), "", connector.ClassPosition, "file.log_manifest", "damaged"},
		"an unknown field":    {replace(`"seq"`, `"more":1,"seq"`), logStart(2), "", connector.ClassPosition, "file.log_manifest", "more"},
		"something behind":    {replace("]}\n", "]}\n{}"), logStart(2), "", connector.ClassPosition, "file.log_manifest", "damaged"},
		"a newer format":      {replace(`"format":2`, `"format":3`), logStart(2), "", connector.ClassPosition, "file.log_manifest", "format is 3"},
		"another's":           {replace(`"p"`, `"q"`), logStart(2), "", connector.ClassPosition, "file.log_manifest", `"q"`},
		"another format":      {nil, logStart(2), "parquet", connector.ClassConfig, "file.config", "jsonl"},
		"another lane":        {nil, other, "", connector.ClassConfig, "file.log_taken", `pipeline "p", lane "l"`},
		"a damaged neighbour": {replace(`{`, `[`), other, "", connector.ClassPosition, "file.log_manifest", "damaged"},
		"a manifest that is gone": {func(t *testing.T, mem *vfs.Mem) {
			t.Helper()
			if err := mem.Remove(manifest); err != nil {
				t.Fatal(err)
			}
		}, logStart(2), "", connector.ClassPosition, "file.log_foreign", "does not know it"},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			if err := begun(t, mem, logStart(1), ""); err != nil {
				t.Fatal(err)
			}
			if c.spoil != nil {
				c.spoil(t, mem)
			}
			before := fmt.Sprint(logReader{mem, logRoot}.lines(t))
			err := begun(t, mem, c.start, c.kind)
			if got := code(t, err); got != c.code || connector.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.says) {
				t.Errorf("class %v, code %s: %v", connector.ClassOf(err), got, err)
			}
			if after := fmt.Sprint(logReader{mem, logRoot}.lines(t)); after != before {
				t.Errorf("the log was changed: %s", after)
			}
		})
	}
}

func TestLogMisuse(t *testing.T) {
	mem := vfs.NewMem()
	cfg := file.On(newLog(logRoot, "parquet"), mem)
	clash := connectortest.BatchOf(connectortest.Schema("d", connectortest.Case{Name: "_Seq", Type: arrow.PrimitiveTypes.Int64}), []string{"1", "2"})
	snk := openLog(t, cfg)
	if err := snk.Write(t.Context(), clash); err == nil {
		t.Error("written before the start")
	}
	m, ok := connector.As[connector.Mapper](snk)
	if !ok {
		t.Fatal("no Mapper")
	}
	if _, err := m.Map(t.Context(), clash.Schema); code(t, err) != "changelog.column" {
		t.Error(err)
	}
	if err := snk.Start(t.Context(), logStart(1)); err != nil {
		t.Fatal(err)
	}
	if err := snk.Start(t.Context(), logStart(1)); err == nil {
		t.Error("started twice")
	}
	err := snk.Write(t.Context(), clash)
	if code(t, err) != "changelog.column" {
		t.Error(err)
	}
	if again := commitLog(snk, progressAt(1)); !errors.Is(again, err) {
		t.Errorf("a sink that failed commits: %v", again)
	}
	if err := snk.Close(t.Context()); err != nil {
		t.Error(err)
	}
	snk = startLog(t, file.On(newLog(logRoot, "parquet"), mem), 1)
	bad := progressAt(1)
	bad.Ledger = json.RawMessage("{")
	if err := commitLog(snk, bad); err == nil {
		t.Error("a ledger that is no JSON was saved")
	}
	snk = startLog(t, file.On(newLog(logRoot, "parquet"), mem), 1)
	rewrite(t, mem, logRoot+"/_leat/p~l.json", func(s string) string { return s + " " })
	if err := commitLog(snk, progressAt(1)); code(t, err) != "file.log_manifest" {
		t.Error(err)
	}
	if left := (logReader{mem, logRoot}).leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// clause S23: what check says of a log, and what it leaves alone.
func TestLogCheck(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "log")
	probes := func(path string) string {
		c, ok := connector.As[connector.Checker](openLog(t, newLog(path, "")))
		if !ok {
			t.Fatal("no Checker")
		}
		found, err := c.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range found {
			if (p.Status == connector.Pass) != (p.Fix == "") {
				t.Errorf("probe %+v", p)
			}
			out = append(out, p.Status.String()+" "+p.Name+" "+p.Detail)
		}
		return strings.Join(out, "\n")
	}
	if got := probes(root); got != "pass folder "+dir+" can be written\npass log it is new" {
		t.Error(got)
	}
	if _, err := os.Stat(root); err == nil {
		t.Error("a check made the folder")
	}
	snk := startLog(t, newLog(root, ""), 1)
	if _, err := next(snk); err != nil {
		t.Fatal(err)
	}
	if err := snk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := probes(root); !strings.HasSuffix(got, `pass log pipeline "p", lane "l": 1 changes of 1 datasets as jsonl`) {
		t.Error(got)
	}
	put(t, root, "_leat/p~l.json", "{")
	if got := probes(root); !strings.Contains(got, "fail log reading "+root) {
		t.Error(got)
	}
	if got := probes(put(t, dir, "file", "")); !strings.HasPrefix(got, "fail folder") {
		t.Error(got)
	}
}

package file_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/file"
	"github.com/leatdata/leat/internal/vfs"
)

// prepareOne starts a log in memory that has one epoch, and prepares a second one; it is left to the next value.
func prepareOne(t *testing.T, mem *vfs.Mem) json.RawMessage {
	t.Helper()
	snk := startLog(t, file.On(newLog(logRoot, ""), mem), 1)
	write(t, snk, connectortest.Numbered("d", 1, 1))
	if err := commitLog(snk, numbered(1)); err != nil {
		t.Fatal(err)
	}
	write(t, snk, connectortest.Numbered("d", 2, 1), connectortest.Numbered("e", 1, 2))
	staged, err := prepareLog(snk, numbered(2))
	if err := errors.Join(err, snk.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return staged
}

// stagedFile is the file of a prepared epoch in a folder.
func stagedFile(t *testing.T, mem *vfs.Mem, folder string) string {
	t.Helper()
	names, err := mem.ReadDir(logRoot + "/" + folder)
	at := slices.IndexFunc(names, func(n string) bool { return n[0] == '.' })
	if err != nil || at < 0 {
		t.Fatalf("%v, %v", names, err)
	}
	return logRoot + "/" + folder + "/" + names[at]
}

// tree is all that a log holds, by name.
func tree(t *testing.T, mem *vfs.Mem, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, _ := mem.ReadDir(dir) // a file
	for _, n := range names {
		maps.Copy(out, tree(t, mem, dir+"/"+n))
		if data, err := mem.ReadFile(dir + "/" + n); err == nil {
			out[dir+"/"+n] = string(data)
		}
	}
	return out
}

// clause E4: what was decided is never dropped silently: a staged file that is gone or damaged is named, and nothing changes; put back, it is
// published.
func TestLogPublishDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, mem *vfs.Mem, name string)
		says  string
	}{
		"gone": {func(t *testing.T, mem *vfs.Mem, name string) {
			t.Helper()
			if err := mem.Remove(name); err != nil {
				t.Fatal(err)
			}
		}, "removed"},
		"short": {func(t *testing.T, mem *vfs.Mem, name string) {
			t.Helper()
			rewrite(t, mem, name, func(s string) string { return s[1:] })
		}, "bytes"},
		"changed": {func(t *testing.T, mem *vfs.Mem, name string) {
			t.Helper()
			rewrite(t, mem, name, func(s string) string { return strings.Replace(s, "1", "2", 1) })
		}, "digest"},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			staged := prepareOne(t, mem)
			bad := stagedFile(t, mem, "e") // the second file of the epoch
			was, err := mem.ReadFile(bad)
			if err != nil {
				t.Fatal(err)
			}
			c.spoil(t, mem, bad)
			snk := startLog(t, file.On(newLog(logRoot, ""), mem), 2)
			before := tree(t, mem, logRoot)
			err = publishLog(snk, numbered(2), staged)
			if code(t, err) != "file.log_staged" || connector.ClassOf(err) != connector.ClassPosition || !strings.Contains(err.Error(), bad) ||
				!strings.Contains(err.Error(), c.says) || connector.HintOf(err) == "" {
				t.Errorf("class %v: %v", connector.ClassOf(err), err)
			}
			if err := snk.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(before, tree(t, mem, logRoot)); diff != "" {
				t.Errorf("the log was changed (-before +after):\n%s", diff)
			}
			if name == "gone" {
				putMem(t, mem, bad, was)
			} else {
				rewrite(t, mem, bad, func(string) string { return string(was) })
			}
			snk = startLog(t, file.On(newLog(logRoot, ""), mem), 2)
			if err := errors.Join(publishLog(snk, numbered(2), staged), snk.Close(t.Context())); err != nil {
				t.Fatal(err)
			}
			if got := (logReader{mem, logRoot}).lines(t); len(got["d"]) != 2 || len(got["e"]) != 2 {
				t.Errorf("the log holds %v", got)
			}
		})
	}
}

func putMem(t *testing.T, mem *vfs.Mem, name string, data []byte) {
	t.Helper()
	f, err := mem.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// clause E4: what does not follow on the log is not published, and says why.
func TestLogPublishRefused(t *testing.T) {
	replaced := func(from, to string) func(string) string {
		return func(s string) string {
			if !strings.Contains(s, from) {
				t.Fatalf("%s lacks %s", s, from)
			}
			return strings.Replace(s, from, to, 1)
		}
	}
	same := func(s string) string { return s }
	for name, c := range map[string]struct {
		change func(string) string
		epoch  int
		code   string
		says   string
	}{
		"no JSON":            {func(string) string { return "{" }, 2, "file.log_epoch", "damaged"},
		"nothing":            {func(string) string { return "" }, 2, "file.log_epoch", "damaged"},
		"a later format":     {replaced(`"format":2`, `"format":3`), 2, "file.log_epoch", "format is 3"},
		"an unknown field":   {replaced(`"format":2`, `"format":2,"more":1`), 2, "file.log_epoch", "more"},
		"another lane":       {replaced(`"lane":"l"`, `"lane":"m"`), 2, "file.log_epoch", `lane "m"`},
		"another format":     {replaced(`"kind":"jsonl"`, `"kind":"parquet"`), 2, "file.log_epoch", "parquet"},
		"another epoch":      {same, 3, "file.log_epoch", "epoch 2 of run"},
		"one that is later":  {replaced(`"commit":2`, `"commit":3`), 2, "file.log_epoch", "commit 3"},
		"behind others":      {replaced(`"after":1`, `"after":2`), 2, "file.log_epoch", "behind change 2"},
		"in place of others": {replaced(`"commit":2`, `"commit":1`), 2, "file.log_epoch", "another epoch"},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			staged := prepareOne(t, mem)
			snk := startLog(t, file.On(newLog(logRoot, ""), mem), 2)
			before := tree(t, mem, logRoot)
			err := publishLog(snk, numbered(c.epoch), json.RawMessage(c.change(string(staged))))
			if code(t, err) != c.code || connector.ClassOf(err) != connector.ClassPosition || !strings.Contains(err.Error(), c.says) {
				t.Errorf("class %v: %v", connector.ClassOf(err), err)
			}
			if diff := cmp.Diff(before, tree(t, mem, logRoot)); diff != "" {
				t.Errorf("the log was changed (-before +after):\n%s", diff)
			}
			if err := snk.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	mem := vfs.NewMem()
	staged := prepareOne(t, mem)
	putMem(t, mem, logRoot+"/e/000000000001.jsonl", []byte("somebody's\n"))
	snk := startLog(t, file.On(newLog(logRoot, ""), mem), 2)
	if err := publishLog(snk, numbered(2), staged); code(t, err) != "file.log_foreign" {
		t.Errorf("a file is there already: %v", err)
	}
	if got := (logReader{mem, logRoot}).lines(t)["e"]; !slices.Equal(got, []string{"somebody's"}) {
		t.Errorf("it was overwritten: %v", got)
	}
}

// While an epoch is prepared nothing else is written; and epochs grow.
func TestLogEpochMisuse(t *testing.T) {
	for what, f := range map[string]func(connector.Sink) error{
		"write":   func(s connector.Sink) error { return s.Write(t.Context(), connectortest.Numbered("d", 9, 1)) },
		"flush":   func(s connector.Sink) error { return s.Flush(t.Context()) },
		"prepare": func(s connector.Sink) error { _, err := prepareLog(s, numbered(3)); return err },
	} {
		mem := vfs.NewMem()
		prepareOne(t, mem)
		if err := f(startLog(t, file.On(newLog(logRoot, ""), mem), 2)); err == nil || !strings.Contains(err.Error(), "an epoch is prepared") {
			t.Errorf("%s behind a prepared epoch: %v", what, err)
		}
	}
	mem := vfs.NewMem()
	prepareOne(t, mem)
	for _, epoch := range []int{0, 1} {
		snk := startLog(t, file.On(newLog(logRoot, ""), mem), 2)
		if err := abortLog(snk); err != nil {
			t.Fatal(err)
		}
		if _, err := prepareLog(snk, numbered(epoch)); err == nil || !strings.Contains(err.Error(), "does not follow") {
			t.Errorf("epoch %d again: %v", epoch, err)
		}
	}
}

// A note of what was prepared that can't be read costs nothing: who decided knows what is in it.
func TestLogNoteDamaged(t *testing.T) {
	for _, decided := range []bool{true, false} {
		mem := vfs.NewMem()
		staged := prepareOne(t, mem)
		rewrite(t, mem, logRoot+"/_leat/.p~l.epoch.json", func(s string) string { return s[:len(s)/2] })
		snk := startLog(t, file.On(newLog(logRoot, ""), mem), 2)
		want := 1
		if decided {
			want = 2
			if err := publishLog(snk, numbered(2), staged); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(abortLog(snk), snk.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		r := logReader{mem, logRoot}
		if left := r.leftovers(); len(left) > 0 || len(r.lines(t)["d"]) != want {
			t.Errorf("decided is %v: left %v, %v", decided, left, r.lines(t))
		}
	}
}

// A note that outlived its epoch, as after loss of power, means nothing, and goes at the next Start.
func TestLogNoteOutlived(t *testing.T) {
	const note = logRoot + "/_leat/.p~l.epoch.json"
	mem := vfs.NewMem()
	staged := prepareOne(t, mem)
	was, err := mem.ReadFile(note)
	if err != nil || string(was) != string(staged)+"\n" {
		t.Fatalf("%v, the note is %s, and Prepare said %s", err, was, staged)
	}
	snk := startLog(t, file.On(newLog(logRoot, ""), mem), 2)
	if err := publishLog(snk, numbered(2), staged); err != nil {
		t.Fatal(err)
	}
	write(t, snk, connectortest.Numbered("d", 3, 1)) // the one who publishes goes on with the numbers of the one who prepared
	if err := errors.Join(commitLog(snk, numbered(3)), snk.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if d := (logReader{mem, logRoot}).lines(t)["d"]; len(d) != 3 || !strings.Contains(d[2], `"seq":5`) {
		t.Errorf("changes %v", d)
	}
	putMem(t, mem, note, was)
	snk = startLog(t, file.On(newLog(logRoot, ""), mem), 3)
	if left := (logReader{mem, logRoot}).leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	write(t, snk, connectortest.Numbered("d", 4, 1))
	if err := errors.Join(commitLog(snk, numbered(4)), snk.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// Two lanes never write one dataset, also while what the first one wrote is only prepared.
func TestLogPreparedFolderIsTaken(t *testing.T) {
	mem := vfs.NewMem()
	prepareOne(t, mem)
	start := logStart(1)
	start.Lane = "other"
	snk := openLog(t, file.On(newLog(logRoot, ""), mem))
	if err := snk.Start(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	write(t, snk, connectortest.Numbered("e", 1, 1))
	_, err := prepareLog(snk, numbered(1))
	if code(t, err) != "file.log_taken" || !strings.Contains(err.Error(), `pipeline "p", lane "l"`) {
		t.Error(err)
	}
	if err := snk.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// clause E4: after Prepare or Publish has failed, whichever operation it was, the same value aborts: nothing is left, and what was published
// after all stays, as a whole and also when power is lost.
func TestLogAbortAfterFailure(t *testing.T) {
	for _, publish := range []bool{false, true} {
		seen := map[int]bool{}
		for i := 0; ; i++ {
			mem := vfs.NewMem()
			armed, hit := -1, ""
			hooked := vfs.Hook(mem, func(o vfs.Op) error {
				if armed--; armed != 0 {
					return nil
				}
				hit = o.String()
				return errBroken
			})
			snk := startLog(t, file.On(newLog(logRoot, ""), hooked), 1)
			write(t, snk, connectortest.Numbered("d", 1, 1))
			if err := commitLog(snk, numbered(1)); err != nil {
				t.Fatal(err)
			}
			err := failsAt(t, snk, publish, func() { armed = i + 1 })
			armed = -1
			if (err == nil) != (hit == "") {
				t.Fatalf("fault at %s: %v", hit, err)
			}
			if err := errors.Join(abortLog(snk), snk.Close(t.Context())); err != nil {
				t.Fatalf("fault at %s: Abort: %v", hit, err)
			}
			for _, left := range []*vfs.Mem{mem, mem.CrashClone(nil)} {
				r := logReader{left, logRoot}
				snk := startLog(t, file.On(newLog(logRoot, ""), left), 2)
				epoch, listed := r.committed(t)
				seen[epoch] = true
				if diff := cmp.Diff(listed, filled(r.lines(t))); diff != "" || len(listed["d"]) != 1 || len(listed["e"]) != epoch-1 {
					t.Fatalf("fault at %s: epoch %d (-manifest +folders):\n%s", hit, epoch, diff)
				}
				if left := r.leftovers(); len(left) > 0 {
					t.Fatalf("fault at %s: left %v", hit, left)
				}
				if err := snk.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if hit == "" {
				if i < 10 || seen[2] != publish || !seen[1] {
					t.Errorf("%d operations, seen are epochs %v", i, seen)
				}
				break
			}
		}
	}
}

// clause E16: what was aborted does not come back with loss of power: the next Start leaves nothing, and goes on without a decision.
func TestLogAbortedForGood(t *testing.T) {
	mem := vfs.NewMem()
	prepareOne(t, mem)
	snk := startLog(t, file.On(newLog(logRoot, ""), mem), 2)
	if err := abortLog(snk); err != nil {
		t.Fatal(err)
	}
	mem = mem.CrashClone(nil)
	snk = startLog(t, file.On(newLog(logRoot, ""), mem), 3)
	if left := (logReader{mem, logRoot}).leftovers(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	write(t, snk, connectortest.Numbered("d", 2, 1))
	if err := errors.Join(commitLog(snk, numbered(2)), snk.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// Files that ended before the epoch was prepared are aborted as well, and their numbers are given again.
func TestLogAbortWritten(t *testing.T) {
	mem := vfs.NewMem()
	cfg := file.On(newLog(logRoot, ""), mem)
	cfg.FileBytes = 1
	snk := startLog(t, cfg, 1)
	r := logReader{mem, logRoot}
	for n := range 3 {
		write(t, snk, connectortest.Numbered("d", 100, 1000), connectortest.Numbered("d", 100, 1), connectortest.Numbered("e", 1, 1))
		if left := r.leftovers(); len(left) != 3 {
			t.Errorf("staged are %v", left)
		}
		if err := abortLog(snk); err != nil {
			t.Fatal(err)
		}
		if left := r.leftovers(); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		write(t, snk, connectortest.Numbered("d", n+1, 1))
		if err := commitLog(snk, numbered(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := snk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.files("d"), r.files("e")); got != "[000000000001.jsonl 000000000002.jsonl 000000000003.jsonl] []" {
		t.Errorf("files %s", got)
	}
	if d := r.lines(t)["d"]; !strings.Contains(d[2], `"seq":3`) {
		t.Errorf("changes %v", d)
	}
}

// failsAt writes an epoch and prepares it, or also publishes it, of which the last step is to fail.
func failsAt(t *testing.T, snk connector.Sink, publish bool, arm func()) error {
	t.Helper()
	if !publish {
		arm()
	}
	if err := snk.Write(t.Context(), connectortest.Numbered("e", 1, 1)); err != nil {
		return err
	}
	staged, err := prepareLog(snk, numbered(2))
	if err != nil || !publish {
		return err
	}
	arm()
	return publishLog(snk, numbered(2), staged)
}

// An epoch without rows costs one manifest: no other file is made, and nothing is synced twice. A read failure is never "nothing".
func TestLogEmptyEpochs(t *testing.T) {
	mem := vfs.NewMem()
	var ops []string
	broken := false
	hooked := vfs.Hook(mem, func(o vfs.Op) error {
		ops = append(ops, o.Kind)
		if broken && o.Kind == "read" {
			return errBroken
		}
		return nil
	})
	snk := startLog(t, file.On(newLog(logRoot, ""), hooked), 1)
	for n := 1; n <= 3; n++ {
		ops = nil
		if err := commitLog(snk, progressAt(n)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(ops, " "); got != "lock read lock read create write sync close rename syncdir" {
			t.Errorf("epoch %d: %s", n, got)
		}
	}
	broken = true
	two, _ := connector.As[connector.TwoPhase](snk)
	if p, found, err := two.Committed(t.Context()); !errors.Is(err, errBroken) || found {
		t.Errorf("a manifest that can't be read: %+v, %v, %v", p, found, err)
	}
}

// Flush, without an engine: changes without progress.
func TestLogFlush(t *testing.T) {
	mem := vfs.NewMem()
	cfg := file.On(newLog(logRoot, ""), mem)
	for n := range 3 {
		snk := startLog(t, cfg, 1)
		if n == 1 {
			if err := commitLog(snk, numbered(1)); err != nil {
				t.Fatal(err)
			}
		}
		write(t, snk, connectortest.Numbered("d", 1+n, 1))
		if err := snk.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, found := committedLog(t, snk); found != (n > 0) || found && !cmp.Equal(p, numbered(1)) {
			t.Errorf("after flush %d: %+v, %v", n, p, found)
		}
		if err := snk.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := logReader{mem.CrashClone(nil), logRoot}
		if got := r.lines(t)["d"]; len(got) != n+1 || len(r.leftovers()) > 0 {
			t.Errorf("after flush %d: %v, left %v", n, got, r.leftovers())
		}
	}
}

// Manifests of format 1 are read, and gone on with as the newest format.
func TestManifestFormat1(t *testing.T) {
	data, err := os.ReadFile("testdata/manifest.1.json")
	if err != nil {
		t.Fatal(err)
	}
	mem := vfs.NewMem()
	if err := mem.MkdirAll(logRoot + "/_leat"); err != nil {
		t.Fatal(err)
	}
	putMem(t, mem, logRoot+"/_leat/p~l.json", data)
	snk := startLog(t, file.On(newLog(logRoot, ""), mem), 8)
	want := progressAt(2)
	want.Ledger, want.Done, want.Epoch, want.Item = nil, true, 0, 0
	if p, found := committedLog(t, snk); !found || !cmp.Equal(p, want) {
		t.Errorf("progress %+v", p)
	}
	write(t, snk, connectortest.Numbered("items", 8, 1))
	if err := errors.Join(commitLog(snk, progressAt(3)), snk.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	m := manifestOf(t, logReader{mem, logRoot})
	if got := fmt.Sprint(m["format"], m["commit"], m["seq"], m["fence"]); got != "2 1 8 8" {
		t.Error(got)
	}
	if got := (logReader{mem, logRoot}).files("items"); !slices.Equal(got, []string{"000000000004.jsonl"}) {
		t.Errorf("files %v", got)
	}
}

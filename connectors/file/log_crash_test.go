package file_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/file"
	"github.com/leatdata/leat/internal/vfs"
	"github.com/leatdata/leat/record"
)

// story is what a source sends: batches, and how many of them are there at each commit.
type story struct {
	kind    string
	batches []*record.Batch
	commits []int
	want    []map[string][]string // what the log holds behind each commit, by folder
}

// tell works out what a log holds behind each commit.
func tell(t testing.TB, kind string, batches []*record.Batch, commits []int) *story {
	t.Helper()
	st := &story{kind: kind, batches: batches, commits: commits, want: []map[string][]string{{}}}
	seq, from, now := int64(1), 0, map[string][]string{}
	for _, to := range commits {
		for _, b := range batches[from:to] {
			folder := b.Schema.Dataset
			lines := printed(t, kind, b, seq)
			seq += int64(b.NumRows())
			if b.Truncate {
				seq++
			}
			now[folder] = append(now[folder], lines...)
		}
		from = to
		st.want = append(st.want, maps.Clone(now))
	}
	return st
}

// randomStory draws changes of two datasets: every operation, truncations, unsent values, other columns, empty batches.
func randomStory(t testing.TB, kind string, rng *rand.Rand, batches int) *story {
	t.Helper()
	orders, items := shapes()
	schemas := []*record.Schema{orders, orders, items[0]}
	var all []*record.Batch
	var commits []int
	for n := range batches {
		s := schemas[rng.IntN(len(schemas))]
		if rng.IntN(6) == 0 {
			schemas[2] = items[rng.IntN(len(items))]
		}
		all = append(all, randomBatch(rng, s, n))
		if rng.IntN(3) == 0 {
			commits = append(commits, len(all))
		}
	}
	return tell(t, kind, all, append(commits, len(all)))
}

func randomBatch(rng *rand.Rand, s *record.Schema, n int) *record.Batch {
	rows := make([][]string, rng.IntN(4))
	for i := range rows {
		rows[i] = []string{strconv.Itoa(rng.IntN(9)), fmt.Sprintf(`"%s"`, strings.Repeat("x", rng.IntN(30))), "7"}[:s.Columns.NumFields()]
	}
	b := connectortest.BatchOf(s, rows...)
	switch rng.IntN(8) {
	case 0: // a chunk
		b.Chunk = &record.Chunk{Dataset: s.Dataset}
		return b
	case 1:
		b.Truncate = true
	}
	b.Ops, b.Old = make([]record.Op, len(rows)), connectortest.BatchOf(s, rows...).Rows
	for i := range rows {
		b.Ops[i] = record.Op(rng.IntN(4))
	}
	b.Txns = []record.Txn{txn(0, n), txn(len(rows), n+1)}
	if rng.IntN(2) == 0 {
		b.Old, b.Unchanged = nil, map[int][]uint64{1: {uint64(rng.IntN(16))}}
	}
	return b
}

// saved is what an engine has saved of a lane.
type saved struct {
	at        int             // so many epochs are decided
	staged    json.RawMessage // of the newest of them, until the intent of the next one is saved
	published int             // so many are published for sure
}

// recover ends what a crash left, as the engine does behind every Start: what was decided is published, and all else goes.
func (w saved) recover(snk connector.Sink) error {
	two, ok := connector.As[connector.TwoPhase](snk)
	if !ok {
		return errors.New("not TwoPhase")
	}
	if w.staged != nil {
		if err := two.Publish(context.Background(), progressAt(w.at), w.staged); err != nil {
			return err
		}
	}
	return two.Abort(context.Background())
}

// log writes a story into a log from what is saved on, and says what is saved then. Some epochs are prepared and then not wanted: they come
// again.
func (st *story) log(cfg *file.SinkConfig, fence uint64, was saved, note func(saved)) (err error) {
	snk, err := cfg.Open(logEnv(quiet{}))
	if err != nil {
		return err
	}
	ctx := context.Background()
	defer func() { err = errors.Join(err, snk.Close(ctx)) }()
	if err := snk.Start(ctx, logStart(fence)); err != nil {
		return err
	}
	if err := was.recover(snk); err != nil {
		return err
	}
	for was.published = was.at; was.at < len(st.commits); was.published = was.at {
		was.staged = nil
		note(was)
		if was.at%3 == 1 {
			if _, err := st.prepare(snk, was.at); err != nil {
				return err
			}
			if err := was.recover(snk); err != nil {
				return err
			}
		}
		staged, err := st.prepare(snk, was.at)
		if err != nil {
			return err
		}
		was.at, was.staged = was.at+1, staged
		note(was)
		if err := publishLog(snk, progressAt(was.at), staged); err != nil {
			return err
		}
	}
	note(was)
	return nil
}

// prepare writes the epoch behind n others, and prepares it.
func (st *story) prepare(snk connector.Sink, n int) (json.RawMessage, error) {
	from := 0
	if n > 0 {
		from = st.commits[n-1]
	}
	for _, b := range st.batches[from:st.commits[n]] {
		if err := snk.Write(context.Background(), b); err != nil {
			return nil, err
		}
	}
	return prepareLog(snk, progressAt(n+1))
}

// quiet is a testing.TB for the environment of a sink whose test ends otherwise.
type quiet struct{ testing.TB }

func (quiet) Helper()        {}
func (quiet) Cleanup(func()) {}

// visible: whatever happened, a reader who lists the folders sees nothing that was not decided, all that is published for sure, and
// nothing twice. A reader of the manifest sees whole epochs, over all datasets.
func (st *story) visible(t *testing.T, after string, fsys vfs.FS, was saved) {
	t.Helper()
	r := logReader{fsys, logRoot}
	got := r.lines(t)
	for _, folder := range slices.Sorted(maps.Keys(st.want[len(st.want)-1])) {
		got, want, least := got[folder], st.want[was.at][folder], len(st.want[was.published][folder])
		if len(got) < least || len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("%s: before recovery %s shows\n%s\nwhich is no beginning of\n%s\nwith at least %d lines", after, folder,
				strings.Join(got, "\n"), strings.Join(want, "\n"), least)
		}
	}
	n, listed := r.committed(t)
	if n != was.published && n != was.at {
		t.Fatalf("%s: before recovery the manifest is of epoch %d: want %d or %d", after, n, was.published, was.at)
	}
	if diff := cmp.Diff(filled(st.want[n]), filled(listed)); diff != "" {
		t.Fatalf("%s: before recovery the manifest lists for epoch %d (-want +got):\n%s", after, n, diff)
	}
}

// committed reads a log as a reader of its manifest does: which epoch it is of, and the changes of each folder. There are no closed lists.
func (r logReader) committed(t *testing.T) (epoch int, lines map[string][]string) {
	t.Helper()
	lines = map[string][]string{}
	data, err := r.fs.ReadFile(r.root + "/_leat/p~l.json")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, lines
	}
	var m struct {
		Progress *record.Progress `json:"progress"`
		Files    []struct {
			File   string `json:"file"`
			Staged string `json:"staged"`
		} `json:"files"`
	}
	if err = errors.Join(err, json.Unmarshal(data, &m)); err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files {
		name := filepath.Join(r.root, f.File)
		data, err := r.fs.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) && f.Staged != "" {
			data, err = r.fs.ReadFile(filepath.Join(filepath.Dir(name), f.Staged))
		}
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Dir(f.File)
		lines[folder] = append(lines[folder], contentOf(t, name, data)...)
	}
	if m.Progress != nil {
		epoch = int(m.Progress.Epoch)
	}
	return epoch, lines
}

// filled are the folders that have changes.
func filled(m map[string][]string) map[string][]string {
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(_ string, lines []string) bool { return len(lines) == 0 })
	return m
}

// recover starts a sink on what is left, as the engine does: the log holds exactly what was decided.
func (st *story) recover(t *testing.T, after string, fsys vfs.FS, fence uint64, was saved) {
	t.Helper()
	snk := openLog(t, st.config(fsys))
	if err := snk.Start(context.Background(), logStart(fence)); err != nil {
		t.Fatalf("%s: starting again: %v", after, err)
	}
	if err := was.recover(snk); err != nil {
		t.Fatalf("%s: recovering: %v", after, err)
	}
	p, found := committedLog(t, snk)
	if found != (was.at > 0) || found && !cmp.Equal(p, progressAt(was.at)) {
		t.Fatalf("%s: it stands at %+v: want epoch %d", after, p, was.at)
	}
	st.holds(t, after, fsys, was.at)
	if err := snk.Close(context.Background()); err != nil {
		t.Fatalf("%s: %v", after, err)
	}
}

// holds: every committed change is there once, in order, and nothing else.
func (st *story) holds(t *testing.T, after string, fsys vfs.FS, at int) {
	t.Helper()
	r := logReader{fsys, logRoot}
	if diff := cmp.Diff(filled(st.want[at]), filled(r.lines(t))); diff != "" {
		t.Fatalf("%s: behind commit %d (-want +got):\n%s", after, at, diff)
	}
	if left := r.leftovers(); len(left) > 0 {
		t.Fatalf("%s: left behind: %v", after, left)
	}
}

const logRoot = "/srv/log"

func (st *story) config(fsys vfs.FS) *file.SinkConfig {
	c := newLog(logRoot, st.kind)
	c.FileBytes = 200
	return file.On(c, fsys)
}

// goesOn writes the rest, and compares all of it, also behind one more loss of power.
func (st *story) goesOn(t *testing.T, after string, mem *vfs.Mem, fence uint64, was saved) {
	t.Helper()
	if err := st.log(st.config(mem), fence, was, func(saved) {}); err != nil {
		t.Fatalf("%s: going on: %v", after, err)
	}
	st.recover(t, after+", then to the end", mem.CrashClone(nil), fence+1, saved{at: len(st.commits)})
}

func all100(n int) int { return n }

// stories are the same in every run: small ones, whose every step is tried. An epoch is empty.
func stories(t *testing.T) map[string]*story {
	t.Helper()
	out := map[string]*story{}
	for kind, commits := range map[string][]int{"jsonl": {3, 5, 5, 6, 8, 10}, "parquet": {3, 5}} {
		st := randomStory(t, kind, rand.New(rand.NewPCG(3, 5)), 10)
		out[kind] = tell(t, kind, st.batches, commits)
	}
	return out
}

// moment is what is left by a loss of power.
type moment struct {
	after string
	mem   *vfs.Mem
	was   saved
}

// moments lets power be lost before each operation on a file system; each way to keep what was not synced is a moment of its own.
type moments struct {
	keeps []func(int) int
	all   []moment
	was   saved
}

func (m *moments) hook(mem *vfs.Mem, during string) vfs.FS {
	return vfs.Hook(mem, func(o vfs.Op) error {
		for i, keep := range m.keeps {
			m.all = append(m.all, moment{fmt.Sprintf("loss of power %sat %s, survivors %d", during, o, i), mem.CrashClone(keep), m.was})
		}
		return nil
	})
}

func (m *moments) note(was saved) { m.was = was }

// clauses E4, E16, case C042: power is lost before each operation of Start, Write, Prepare, Publish and Abort, and of what was not synced
// nothing, a part or all survives. Then the engine publishes what it has decided, and aborts all else: the log holds exactly what was decided,
// and nothing is left. Power is lost in the middle of that, too.
func TestLogPowerLoss(t *testing.T) {
	for kind, st := range stories(t) {
		t.Run(kind, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			some := func(n int) int { return rng.IntN(n + 1) }
			m, each := &moments{keeps: []func(int) int{nil, all100, some, some}}, 41
			if kind == "parquet" {
				m.keeps, each = m.keeps[2:], 97 // the steps are the same, and these files take long
			}
			mem := vfs.NewMem()
			half := len(st.commits) / 2
			whole := *st
			whole.commits = st.commits[:half]
			if err := whole.log(st.config(m.hook(mem, "")), 1, saved{}, m.note); err != nil {
				t.Fatal(err)
			}
			if err := st.log(st.config(m.hook(mem, "")), 2, m.was, m.note); err != nil { // with a restart in the middle
				t.Fatal(err)
			}
			again := 0
			for i, at := range m.all {
				st.visible(t, at.after, at.mem, at.was)
				if i%each == 0 {
					again += st.losesPowerAgain(t, at, some)
				}
				st.recover(t, at.after, at.mem, 3, at.was)
				st.recover(t, at.after+", and once more behind recovery", at.mem.CrashClone(nil), 4, saved{at: at.was.at})
				st.goesOn(t, at.after, at.mem, 5, at.was)
			}
			t.Logf("%d moments, %d in recovery, %d commits", len(m.all), again, len(st.commits))
		})
	}
}

// losesPowerAgain loses power before each operation of the recovery from a loss of power.
func (st *story) losesPowerAgain(t *testing.T, at moment, some func(int) int) int {
	t.Helper()
	m := &moments{keeps: []func(int) int{nil, some}, was: at.was}
	mem := at.mem.CrashClone(all100)
	st.recover(t, at.after, m.hook(mem, "in recovery "), 3, at.was)
	for _, again := range m.all {
		after := at.after + ", then " + again.after
		st.visible(t, after, again.mem, again.was)
		st.recover(t, after, again.mem, 4, again.was)
	}
	return len(m.all)
}

var errBroken = errors.New("input/output error")

// clauses E4, E16: whichever operation fails, the sink says so, and the next one goes on behind what is decided; also with power lost.
func TestLogFaults(t *testing.T) {
	for kind, st := range stories(t) {
		t.Run(kind, func(t *testing.T) {
			for i := 0; ; i++ {
				var hit vfs.Op
				mem := vfs.NewMem()
				hooked := vfs.Hook(mem, func(o vfs.Op) error {
					if o.Index != i {
						return nil
					}
					hit = o
					return errBroken
				})
				var was saved
				err := st.log(st.config(hooked), 1, saved{}, func(w saved) { was = w })
				if hit.Kind == "" {
					if err != nil || i < 50 {
						t.Fatalf("%d operations, %v", i, err)
					}
					return
				}
				after := "fault at " + hit.String()
				if err != nil && (!errors.Is(err, errBroken) || connector.ClassOf(err) == connector.ClassUnknown) {
					t.Errorf("%s: class %v: %v", after, connector.ClassOf(err), err)
				}
				if err == nil && was.published != len(st.commits) {
					t.Errorf("%s: no error, and %d of %d commits", after, was.published, len(st.commits))
				}
				lost := mem.CrashClone(nil)
				for _, left := range []*vfs.Mem{mem, lost} {
					st.visible(t, after, left, was)
					st.recover(t, after, left, 1, was) // the same owner
					// What was read is relied on: the decision is not kept any longer.
					st.recover(t, after+", read, and then loss of power", left.CrashClone(nil), 1, saved{at: was.at})
					st.goesOn(t, after, left, 2, was)
				}
			}
		})
	}
}

// clauses E4, E8, E12; cases C029, C036, C063: random changes with random commits; the process dies at a random operation, over and over,
// also while it recovers. Read back, the log is the sequence of changes.
func TestLogModel(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 11))
		kind := []string{"jsonl", "parquet", "debezium"}[seed%3]
		st := randomStory(t, kind, rng, 40)
		mem := vfs.NewMem()
		var was saved
		fence := uint64(0)
		for was.at < len(st.commits) {
			fence++
			left := rng.IntN(400)
			dies := vfs.Hook(mem, func(vfs.Op) error {
				if left--; left < 0 {
					return errBroken
				}
				return nil
			})
			_ = st.log(st.config(dies), fence, was, func(w saved) { was = w })
			after := fmt.Sprintf("seed %d, owner %d", seed, fence)
			if rng.IntN(2) == 0 {
				mem = mem.CrashClone(func(n int) int { return rng.IntN(n + 1) })
			}
			st.visible(t, after, mem, was)
			if rng.IntN(2) == 0 { // else the next one may die in recovery
				fence++
				st.recover(t, after, mem, fence, was)
			}
		}
		fence++
		st.recover(t, fmt.Sprintf("seed %d", seed), mem, fence, was)
	}
}

package file_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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

// log writes a story into a log from behind commit number from, and says what is confirmed, and what is being committed.
func (st *story) log(cfg *file.SinkConfig, fence uint64, from int, note func(confirmed, saving int)) (err error) {
	snk, err := cfg.Open(logEnv(quiet{}))
	if err != nil {
		return err
	}
	ctx := context.Background()
	defer func() { err = errors.Join(err, snk.Close(ctx)) }()
	if err := snk.Start(ctx, logStart(fence)); err != nil {
		return err
	}
	at := 0
	if from > 0 {
		at = st.commits[from-1]
	}
	for c := from; c < len(st.commits); c++ {
		for ; at < st.commits[c]; at++ {
			if err := snk.Write(ctx, st.batches[at]); err != nil {
				return err
			}
		}
		note(c, c+1)
		if err := commitLog(snk, progressAt(c+1)); err != nil {
			return err
		}
		note(c+1, c+1)
	}
	return nil
}

// quiet is a testing.TB for the environment of a sink whose test ends otherwise.
type quiet struct{ testing.TB }

func (quiet) Helper()        {}
func (quiet) Cleanup(func()) {}

// visible: whatever happened, a reader who lists the folders sees nothing that is not committed, and nothing twice.
func (st *story) visible(t *testing.T, after string, fsys vfs.FS, saving int) {
	t.Helper()
	for folder, got := range (logReader{fsys, logRoot}).lines(t) {
		if want := st.want[saving][folder]; len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("%s: before recovery %s shows\n%s\nwhich is no beginning of\n%s", after, folder, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// recover starts a sink on what is left, and returns the commit that it stands behind: the log holds exactly that.
func (st *story) recover(t *testing.T, after string, fsys vfs.FS, fence uint64, confirmed, saving int) int {
	t.Helper()
	snk := openLog(t, st.config(fsys))
	if err := snk.Start(context.Background(), logStart(fence)); err != nil {
		t.Fatalf("%s: starting again: %v", after, err)
	}
	p, found := committedLog(t, snk)
	at := 0
	for n := range st.want {
		if n > 0 && found && cmp.Equal(p, progressAt(n)) {
			at = n
		}
	}
	if (at == 0) == found || (at != confirmed && at != saving) {
		t.Fatalf("%s: it stands at %+v: want %d or %d", after, p, confirmed, saving)
	}
	st.holds(t, after, fsys, at)
	if err := snk.Close(context.Background()); err != nil {
		t.Fatalf("%s: %v", after, err)
	}
	return at
}

// holds: every committed change is there once, in order, and nothing else.
func (st *story) holds(t *testing.T, after string, fsys vfs.FS, at int) {
	t.Helper()
	r := logReader{fsys, logRoot}
	got := r.lines(t)
	maps.DeleteFunc(got, func(_ string, lines []string) bool { return len(lines) == 0 })
	want := maps.Clone(st.want[at])
	maps.DeleteFunc(want, func(_ string, lines []string) bool { return len(lines) == 0 })
	if diff := cmp.Diff(want, got); diff != "" {
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
func (st *story) goesOn(t *testing.T, after string, mem *vfs.Mem, fence uint64, at int) {
	t.Helper()
	if err := st.log(st.config(mem), fence, at, func(int, int) {}); err != nil {
		t.Fatalf("%s: going on: %v", after, err)
	}
	st.holds(t, after+", then to the end", mem.CrashClone(nil), len(st.commits))
}

func all100(n int) int { return n }

// stories are the same in every run: small ones, whose every step is tried.
func stories(t *testing.T) map[string]*story {
	t.Helper()
	out := map[string]*story{}
	for kind, commits := range map[string][]int{"jsonl": {3, 5, 5, 6, 8, 10}, "parquet": {3, 5}} {
		st := randomStory(t, kind, rand.New(rand.NewPCG(3, 5)), 10)
		out[kind] = tell(t, kind, st.batches, commits)
	}
	return out
}

// clause E16, case C042: power is lost before each operation, and of what was not synced nothing, a part or all survives. What was
// confirmed is there, all of it once; what was being committed is there as a whole or not at all.
func TestLogPowerLoss(t *testing.T) {
	for kind, st := range stories(t) {
		t.Run(kind, func(t *testing.T) {
			type moment struct {
				after             string
				mem               *vfs.Mem
				confirmed, saving int
			}
			var moments []moment
			rng := rand.New(rand.NewPCG(1, 2))
			some := func(n int) int { return rng.IntN(n + 1) }
			keeps := []func(int) int{nil, all100, some, some}
			if kind == "parquet" {
				keeps = keeps[2:] // the steps are the same, and these files take long
			}
			mem := vfs.NewMem()
			var confirmed, saving int
			hooked := vfs.Hook(mem, func(o vfs.Op) error {
				for i, keep := range keeps {
					moments = append(moments, moment{fmt.Sprintf("loss of power at %s, survivors %d", o, i), mem.CrashClone(keep), confirmed, saving})
				}
				return nil
			})
			note := func(c, s int) { confirmed, saving = c, s }
			half := len(st.commits) / 2
			whole := *st
			whole.commits = st.commits[:half]
			if err := whole.log(st.config(hooked), 1, 0, note); err != nil {
				t.Fatal(err)
			}
			if err := st.log(st.config(hooked), 2, half, note); err != nil { // with a restart in the middle
				t.Fatal(err)
			}
			for _, m := range moments {
				st.visible(t, m.after, m.mem, m.saving)
				at := st.recover(t, m.after, m.mem, 3, m.confirmed, m.saving)
				again := m.mem.CrashClone(nil) // what was read is relied on
				st.recover(t, m.after+", and once more behind recovery", again, 4, at, at)
				st.goesOn(t, m.after, m.mem, 5, at)
			}
			t.Logf("%d moments, %d commits", len(moments), len(st.commits))
		})
	}
}

var errBroken = errors.New("input/output error")

// clause E16: whichever operation fails, the sink says so, and the next one goes on behind what is there; also with power lost.
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
				var confirmed, saving int
				err := st.log(st.config(hooked), 1, 0, func(c, s int) { confirmed, saving = c, s })
				if hit.Kind == "" {
					if err != nil || i < 50 {
						t.Fatalf("%d operations, %v", i, err)
					}
					return
				}
				after := "fault at " + hit.String()
				if err != nil && !errors.Is(err, errBroken) {
					t.Errorf("%s: %v", after, err)
				}
				if err == nil && confirmed != len(st.commits) {
					t.Errorf("%s: no error, and %d of %d commits", after, confirmed, len(st.commits))
				}
				if saving != confirmed && err != nil && connector.ClassOf(err) == connector.ClassUnknown {
					t.Errorf("%s: an error without a class: %v", after, err)
				}
				lost := mem.CrashClone(nil)
				for _, left := range []*vfs.Mem{mem, lost} {
					st.visible(t, after, left, saving)
					at := st.recover(t, after, left, 1, confirmed, saving) // the same owner
					again := left.CrashClone(nil)                          // what was read is relied on
					st.recover(t, after+", read, and then loss of power", again, 1, at, at)
					st.goesOn(t, after, left, 2, at)
				}
			}
		})
	}
}

// clauses E8, E12; cases C029, C036, C063: random changes with random commits; the process dies at a random operation, over and over.
// Read back, the log is the sequence of changes.
func TestLogModel(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 11))
		kind := []string{"jsonl", "parquet", "debezium"}[seed%3]
		st := randomStory(t, kind, rng, 40)
		mem := vfs.NewMem()
		at, fence := 0, uint64(0)
		for at < len(st.commits) {
			fence++
			left := rng.IntN(400)
			var confirmed, saving int
			dies := vfs.Hook(mem, func(vfs.Op) error {
				if left--; left < 0 {
					return errBroken
				}
				return nil
			})
			confirmed, saving = at, at
			_ = st.log(st.config(dies), fence, at, func(c, s int) { confirmed, saving = c, s })
			after := fmt.Sprintf("seed %d, owner %d", seed, fence)
			if rng.IntN(2) == 0 {
				mem = mem.CrashClone(func(n int) int { return rng.IntN(n + 1) })
			}
			st.visible(t, after, mem, saving)
			fence++
			at = st.recover(t, after, mem, fence, confirmed, saving)
		}
		st.holds(t, fmt.Sprintf("seed %d", seed), mem, len(st.commits))
	}
}

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	parquet "github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connectors/file"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/state/sqlite"
)

const (
	twoPhaseRows  = 800
	twoPhaseBatch = 200 // rows of an epoch
	killVariable  = "LEAT_E2E_KILL"
)

// killer ends the process at one step of a two-phase commit: before it, after it, or somewhere inside of it.
type killer struct {
	at    int // 0: never
	where string
	delay time.Duration
	step  int
}

func (k *killer) around(what string, f func() error) error {
	k.step++
	if k.step != k.at {
		return f()
	}
	fmt.Println("killed at", what, k.where)
	switch k.where {
	case "before":
		die()
	case "inside":
		go func() {
			time.Sleep(k.delay)
			die()
		}()
	}
	_ = f() // nobody hears of it any more
	die()
	return nil
}

func die() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

// killedStore is a state store whose saves are steps.
type killedStore struct {
	state.Store
	k *killer
}

func (s killedStore) Save(ctx context.Context, r state.Record, prev state.Version) (v state.Version, err error) {
	err = s.k.around("save", func() (err error) {
		v, err = s.Store.Save(ctx, r, prev)
		return err
	})
	return v, err
}

// killedSink is a two-phase sink whose calls are steps.
type killedSink struct {
	connector.SinkConfig
	k *killer
}

func (s killedSink) Open(env connector.Env) (connector.Sink, error) {
	inner, err := s.SinkConfig.Open(env)
	if err != nil {
		return nil, err
	}
	two, ok := connector.As[connector.TwoPhase](inner)
	if !ok {
		return nil, errors.New("the sink is not two-phase")
	}
	return &killedValue{Sink: inner, TwoPhase: two, k: s.k}, nil
}

type killedValue struct {
	connector.Sink
	connector.TwoPhase
	k *killer
}

// Unwrap hands out the other capabilities.
func (v *killedValue) Unwrap() any { return v.Sink }

func (v *killedValue) Start(ctx context.Context, s connector.SinkStart) error {
	return v.k.around("start", func() error { return v.Sink.Start(ctx, s) })
}

func (v *killedValue) Write(ctx context.Context, b *record.Batch) error {
	return v.k.around("write", func() error { return v.Sink.Write(ctx, b) })
}

func (v *killedValue) Prepare(ctx context.Context, p record.Progress) (staged json.RawMessage, err error) {
	err = v.k.around("prepare", func() (err error) {
		staged, err = v.TwoPhase.Prepare(ctx, p)
		return err
	})
	return staged, err
}

func (v *killedValue) Publish(ctx context.Context, p record.Progress, staged json.RawMessage) error {
	return v.k.around("publish", func() error { return v.TwoPhase.Publish(ctx, p, staged) })
}

func (v *killedValue) Abort(ctx context.Context) error {
	return v.k.around("abort", func() error { return v.TwoPhase.Abort(ctx) })
}

// TestTwoPhaseChild is the process that is killed; it does nothing unless TestTwoPhaseKillNine has started it.
func TestTwoPhaseChild(t *testing.T) {
	spec := os.Getenv(killVariable)
	if spec == "" {
		t.Skip("only for TestTwoPhaseKillNine")
	}
	var k killer
	var dir, format string
	var delay int
	if _, err := fmt.Sscan(spec, &k.at, &k.where, &delay, &format, &dir); err != nil {
		t.Fatal(err)
	}
	k.delay = time.Duration(delay) * time.Microsecond
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	sink := file.NewSink(filepath.Join(dir, "log"))
	sink.Log, sink.Format, sink.Every = true, format, time.Nanosecond
	sum, err := engine.Run(t.Context(), engine.Plan{
		Name: "twophase", Guarantee: connector.ExactlyOnce,
		Source: engine.SourceSpec{Connector: "file", Config: file.NewSource(filepath.Join(dir, "rows.csv"))},
		Sinks:  []engine.SinkSpec{{Name: "log", Connector: "file", Config: killedSink{sink, &k}}},
		Batch:  connector.Limit{Rows: twoPhaseBatch, Bytes: 1 << 20}, Commit: engine.Commit{Bytes: 1},
	}, engine.Deps{Store: killedStore{store, &k}})
	if err != nil || !sum.Done {
		t.Fatalf("done %v, %v", sum.Done, err)
	}
	fmt.Println("steps", k.step)
}

// The process is killed before, after and inside every step of two-phase commits, and started again: no row is missing, none is doubled,
// nothing that was staged is left.
//
// clauses E4, E8, case C063.
func TestTwoPhaseKillNine(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	for _, format := range []string{"jsonl", "parquet"} {
		dir := newTwoPhase(t)
		out, err := runTwoPhase(t, exe, fmt.Sprintf("0 never 0 %s %s", format, dir))
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		checkTwoPhase(t, dir, format)
		steps := stepsOf(t, out)
		if steps < 20 {
			t.Fatalf("only %d steps", steps)
		}
		n := 0
		for at := 1; at <= steps; at++ {
			for _, where := range []string{"before", "after", "inside", "inside", "inside"} {
				n++
				dir := newTwoPhase(t)
				first, err := runTwoPhase(t, exe, fmt.Sprintf("%d %s %d %s %s", at, where, 50+n*37%2000, format, dir))
				if err == nil {
					t.Fatalf("step %d, %s: nothing was killed:\n%s", at, where, first)
				}
				if !savedAsDone(t, dir) {
					if out, err := runTwoPhase(t, exe, fmt.Sprintf("0 never 0 %s %s", format, dir)); err != nil {
						t.Fatalf("step %d, %s: the next run: %v\n%s\n%s", at, where, err, first, out)
					}
				}
				if checkTwoPhase(t, dir, format); t.Failed() {
					t.Fatalf("step %d, %s:\n%s", at, where, first)
				}
				done++
			}
		}
	}
	if done < 200 {
		t.Errorf("killed %d times only", done)
	}
	t.Logf("killed %d times", done)
}

// savedAsDone reports whether the run was saved as done before it was killed: another one would copy everything once more.
func savedAsDone(t *testing.T, dir string) bool {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	r, _, err := store.Load(t.Context(), "twophase")
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		t.Fatal(err)
	}
	return r.Progress.Done
}

func newTwoPhase(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var rows bytes.Buffer
	rows.WriteString("id,name\n")
	for i := range twoPhaseRows {
		fmt.Fprintf(&rows, "%d,name %d\n", i, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "rows.csv"), rows.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func runTwoPhase(t *testing.T, exe, spec string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestTwoPhaseChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), killVariable+"="+spec)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func stepsOf(t *testing.T, out string) int {
	t.Helper()
	for line := range strings.Lines(out) {
		if s, ok := strings.CutPrefix(strings.TrimSpace(line), "steps "); ok {
			n, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no steps in:\n%s", out)
	return 0
}

// checkTwoPhase compares the log with the rows, and looks for what should not be there.
func checkTwoPhase(t *testing.T, dir, format string) {
	t.Helper()
	var names []string
	err := filepath.WalkDir(filepath.Join(dir, "log"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		base := filepath.Base(path)
		switch {
		case strings.HasPrefix(base, "."):
			t.Errorf("left over: %s", path)
		case strings.HasSuffix(base, "."+format):
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var ids []int64
	for _, name := range names {
		ids = append(ids, idsOf(t, name, format)...)
	}
	slices.Sort(ids)
	if len(ids) != twoPhaseRows {
		t.Errorf("%d rows in %d files, want %d", len(ids), len(names), twoPhaseRows)
	}
	for i, id := range ids {
		if id != int64(i) {
			t.Errorf("row %d is missing or doubled: %v", i, ids[max(0, i-2):min(len(ids), i+3)])
			break
		}
	}
}

// idsOf reads the ids of one file of the log.
func idsOf(t *testing.T, name, format string) []int64 {
	t.Helper()
	if format == "parquet" {
		return parquetIDs(t, name)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	var ids []int64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var change struct {
			After struct {
				ID int64 `json:"id"`
			} `json:"after"`
		}
		if err := json.Unmarshal(lines.Bytes(), &change); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, change.After.ID)
	}
	return ids
}

func parquetIDs(t *testing.T, name string) []int64 {
	t.Helper()
	f, err := parquet.OpenParquetFile(name, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	r, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	table, err := r.ReadTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := table.Schema().FieldIndices("id")
	if len(at) != 1 {
		t.Fatalf("%s has columns %v", name, table.Schema())
	}
	var ids []int64
	for _, chunk := range table.Column(at[0]).Data().Chunks() {
		column, ok := chunk.(*array.Int64)
		if !ok {
			t.Fatalf("id is %s", chunk.DataType())
		}
		ids = append(ids, column.Int64Values()...)
	}
	return ids
}

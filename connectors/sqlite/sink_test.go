package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/sqlite"
	"github.com/leatdata/leat/record"
)

func testEnv(t testing.TB) connector.Env {
	t.Helper()
	return connectortest.Env(t)
}

func openSink(t *testing.T, cfg connector.SinkConfig, start connector.SinkStart) connector.Sink {
	t.Helper()
	snk, err := cfg.Open(testEnv(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = snk.Close(context.Background()) })
	if err := snk.Start(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	return snk
}

func finish(t *testing.T, snk connector.Sink, run string) {
	t.Helper()
	p := record.Progress{Run: run, Position: record.Position{Shape: 1, Data: []byte(`{"at":1}`)}, Done: true}
	f, ok := connector.As[connector.Finisher](snk)
	if !ok {
		t.Fatal("the sink is no Finisher")
	}
	if err := f.Finish(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := snk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func commit(t testing.TB, snk connector.Sink, p record.Progress) {
	t.Helper()
	if err := store(t, snk).Commit(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func store(t testing.TB, snk connector.Sink) connector.PositionStore {
	t.Helper()
	s, ok := connector.As[connector.PositionStore](snk)
	if !ok {
		t.Fatal("the sink is no PositionStore")
	}
	return s
}

func mapping(t *testing.T, snk connector.Sink, s *record.Schema) ([]connector.Mapping, error) {
	t.Helper()
	m, ok := connector.As[connector.Mapper](snk)
	if !ok {
		t.Fatal("the sink is no Mapper")
	}
	return m.Map(t.Context(), s)
}

// write writes batches in one run.
func write(t *testing.T, target connectortest.Target, mode connector.WriteMode, batches ...*record.Batch) {
	t.Helper()
	snk := openSink(t, target.Config(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 1, Mode: mode})
	for _, b := range batches {
		if err := snk.Write(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	finish(t, snk, "r")
}

func sinkOf(path string) *sqlite.SinkConfig {
	cfg := sqlite.NewSink()
	cfg.Path = path
	return cfg
}

func pairSchema() *record.Schema {
	return connectortest.Schema("t", connectortest.Case{Name: "v", Type: arrow.BinaryTypes.String}, connectortest.Case{Name: "w", Type: arrow.BinaryTypes.String})
}

func changes(s *record.Schema, ops []record.Op, rows, old [][]string) *record.Batch {
	b := connectortest.BatchOf(s, rows...)
	b.Ops = ops
	if old != nil {
		nullable := arrow.NewSchema([]arrow.Field{
			{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, s.Columns.Field(1), s.Columns.Field(2),
		}, nil)
		b.Old = connectortest.BatchOf(&record.Schema{Dataset: "t", Columns: nullable}, old...).Rows
	}
	return b
}

// clause E12.
func TestKeysMoveAndSwap(t *testing.T) {
	s := pairSchema()
	seed := connectortest.BatchOf(s, []string{"1", `"a"`, `"A"`}, []string{"2", `"b"`, `"B"`}, []string{"3", `"c"`, `"C"`})
	move := func(from, to, v string) (record.Op, []string, []string) {
		return record.Update, []string{to, v, `"?"`}, []string{from, "null", "null"}
	}
	build := func(moves ...[3]string) *record.Batch {
		var ops []record.Op
		var rows, old [][]string
		for _, m := range moves {
			op, r, o := move(m[0], m[1], m[2])
			ops, rows, old = append(ops, op), append(rows, r), append(old, o)
		}
		return changes(s, ops, rows, old)
	}
	for name, tt := range map[string]struct {
		batch *record.Batch
		want  []string
	}{
		"swap":  {build([3]string{"1", "2", `"a"`}, [3]string{"2", "1", `"b"`}), []string{`1 a`, `2 b`, `3 c`}},
		"ring":  {build([3]string{"1", "2", `"a"`}, [3]string{"2", "3", `"b"`}, [3]string{"3", "1", `"c"`}), nil},
		"chain": {build([3]string{"1", "7", `"a"`}, [3]string{"7", "8", `"a2"`}), nil},
		"shift": {build([3]string{"3", "4", `"c"`}, [3]string{"2", "3", `"b"`}, [3]string{"1", "2", `"a"`}), nil},
		"onto":  {build([3]string{"1", "2", `"a"`}), nil},
	} {
		want := map[string][]string{
			"swap": {"1 b B", "2 a A", "3 c C"}, "ring": {"1 c C", "2 a A", "3 b B"}, "chain": {"2 b B", "3 c C", "8 a2 A"},
			"shift": {"2 a A", "3 b B", "4 c C"}, "onto": {"2 a A", "3 c C"},
		}[name]
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.db")
			target := connectortest.Target{Config: func() connector.SinkConfig { return sinkOf(path) }}
			tt.batch.Unchanged = map[int][]uint64{2: {1<<uint(tt.batch.NumRows()) - 1}} // w was not sent
			write(t, target, connector.Upsert, seed, tt.batch)
			if diff := cmp.Diff(want, query(t, path, `SELECT id||' '||v||' '||w FROM t ORDER BY id`)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// clause E12: A swap may span batches; the transaction's end decides.
func TestSwapAcrossBatches(t *testing.T) {
	s := pairSchema()
	path := filepath.Join(t.TempDir(), "t.db")
	target := connectortest.Target{Config: func() connector.SinkConfig { return sinkOf(path) }}
	up := []record.Op{record.Update}
	write(t, target, connector.Upsert,
		connectortest.BatchOf(s, []string{"1", `"a"`, `"A"`}, []string{"2", `"b"`, `"B"`}),
		changes(s, up, [][]string{{"2", `"a"`, `"A"`}}, [][]string{{"1", "null", "null"}}),
		changes(s, up, [][]string{{"1", `"b"`, `"B"`}}, [][]string{{"2", "null", "null"}}))
	if got := query(t, path, `SELECT id||v||w FROM t ORDER BY id`); !cmp.Equal(got, []string{"1bB", "2aA"}) {
		t.Errorf("got %q", got)
	}
}

// clause E12: A value that the source did not send is never made NULL.
func TestUnchangedWithoutRow(t *testing.T) {
	s := pairSchema()
	snk := openSink(t, sinkOf(filepath.Join(t.TempDir(), "t.db")), connector.SinkStart{Mode: connector.Upsert, Run: "r"})
	b := changes(s, []record.Op{record.Update, record.Update}, [][]string{{"1", `"x"`, "null"}, {"2", `"y"`, `"Y"`}}, nil)
	b.Unchanged = map[int][]uint64{2: {1}}
	var refused *connector.RowErrors
	if err := snk.Write(t.Context(), b); !errors.As(err, &refused) || len(refused.Rows) != 1 || refused.Rows[0].Index != 0 || refused.Rows[0].Reject.Column != "w" {
		t.Fatalf("Write returned %v", err)
	}
}

// Rows that a constraint refuses are named; the others are written.
func TestRefusedRows(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT CHECK (v <> 'bad'), w TEXT UNIQUE)`)
	s := pairSchema()
	snk := openSink(t, sinkOf(path), connector.SinkStart{Mode: connector.Append, Run: "r"})
	err := snk.Write(t.Context(), connectortest.BatchOf(s, []string{"1", `"a"`, `"A"`}, []string{"2", `"bad"`, `"B"`}, []string{"1", `"c"`, `"C"`},
		[]string{"4", `"d"`, `"A"`}, []string{"5", `"e"`, `"E"`}))
	var refused *connector.RowErrors
	if !errors.As(err, &refused) {
		t.Fatalf("Write returned %v", err)
	}
	var got []int
	for _, r := range refused.Rows {
		got = append(got, r.Index)
		if !strings.Contains(r.Reject.Message, "constraint failed") || len(r.Reject.Key) == 0 || len(r.Reject.Raw) == 0 {
			t.Errorf("reject %+v", r.Reject)
		}
	}
	if !cmp.Equal(got, []int{1, 2, 3}) {
		t.Errorf("refused %v", got)
	}
	finish(t, snk, "r")
	if got := query(t, path, `SELECT id FROM t ORDER BY id`); !cmp.Equal(got, []string{"1", "5"}) {
		t.Errorf("written %q", got)
	}
}

// Columns of an existing table that would change a value are refused, by plan or row by row.
func TestExistingColumnsChangeNothing(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, v INT, w NUMERIC)`)
	s := connectortest.Schema("t", connectortest.Case{Name: "v", Type: arrow.BinaryTypes.String}, connectortest.Case{Name: "w", Type: record.NumericType()})
	snk, err := sinkOf(path).Open(testEnv(t))
	if err != nil {
		t.Fatal(err)
	}
	defer snk.Close(t.Context()) //nolint:errcheck // a test
	m, err := mapping(t, snk, s)
	if err != nil {
		t.Fatal(err)
	}
	if m[1].Fidelity != connector.Inexact || m[2].Fidelity != connector.Checked || m[2].Native != "NUMERIC" {
		t.Errorf("mapping %+v", m)
	}
	if err := snk.Start(t.Context(), connector.SinkStart{Run: "r"}); err != nil {
		t.Fatal(err)
	}
	only, err := connectortest.Schema("t", connectortest.Case{Name: "w", Type: record.NumericType()}).WithKey("id")
	if err != nil {
		t.Fatal(err)
	}
	err = snk.Write(t.Context(), connectortest.BatchOf(only, []string{"1", "1.10"}, []string{"2", "0.1234567890123456789"}, []string{"3", "9223372036854775807"},
		[]string{"4", "9223372036854775808"}, []string{"5", `"NaN"`}, []string{"6", `"Infinity"`}))
	var refused *connector.RowErrors
	if !errors.As(err, &refused) || len(refused.Rows) != 3 || refused.Rows[0].Index != 1 || refused.Rows[1].Index != 3 || refused.Rows[2].Index != 4 {
		t.Errorf("Write returned %v", err)
	}
	finish(t, snk, "r")
	want := []string{"1.1", "9223372036854775807", "Inf"}
	if got := query(t, path, `SELECT w FROM t ORDER BY id`); !cmp.Equal(got, want) {
		t.Errorf("stored %q", got)
	}
}

func TestMissingColumns(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, must INT NOT NULL)`)
	snk := openSink(t, sinkOf(path), connector.SinkStart{Run: "r"})
	err := snk.Write(t.Context(), connectortest.BatchOf(pairSchema(), []string{"1", `"a"`, `"b"`}))
	if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(err.Error(), `"v", "w"`) || connector.HintOf(err) == "" {
		t.Errorf("Write returned %v", err)
	}
}

// A replacement keeps indexes, triggers and views, and an interrupted one leaves the old rows.
func TestReplaceKeepsTheSchemaAround(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, w TEXT); INSERT INTO t VALUES (9, 'old', 'x');
		CREATE INDEX t_v ON t (v); CREATE VIEW seen AS SELECT id, v FROM t; CREATE TABLE log (n INT);
		CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.id); END`)
	target := connectortest.Target{Config: func() connector.SinkConfig { return sinkOf(path) }}
	b := connectortest.BatchOf(pairSchema(), []string{"1", `"a"`, `"A"`})
	half := openSink(t, target.Config(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "one", Mode: connector.Replace})
	if err := half.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	commit(t, half, record.Progress{Run: "one"})
	if err := half.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, path, `SELECT v FROM seen`); !cmp.Equal(got, []string{"old"}) {
		t.Errorf("before the end: %q", got)
	}
	write(t, target, connector.Replace, b)
	if got := query(t, path, `SELECT v FROM seen`); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("after the end: %q", got)
	}
	want := []string{"log", "seen", "t", "t_v", "tr"}
	if got := query(t, path, `SELECT name FROM sqlite_schema WHERE name NOT LIKE '\_leat%' ESCAPE '\' AND name NOT LIKE 'sqlite%' ORDER BY 1`); !cmp.Equal(got, want) {
		t.Errorf("the file holds %q", got)
	}
	if got := query(t, path, `SELECT count(*) FROM sqlite_schema WHERE name LIKE '\_leat\_new%' ESCAPE '\'`); got[0] != "0" {
		t.Errorf("%s stages are left", got[0])
	}
	if got := query(t, path, `SELECT count(*) FROM log`); got[0] != "0" {
		t.Errorf("the trigger ran %s times for rows of the stage", got[0])
	}
}

// cases C099, C100: names that differ only in case are one table to SQLite: refused, not mixed.
func TestNamesThatCollide(t *testing.T) {
	snk := openSink(t, sinkOf(filepath.Join(t.TempDir(), "t.db")), connector.SinkStart{Run: "r"})
	long := strings.Repeat("n", 70)
	for _, name := range []string{"Order", "select", "public.users", long + "1", long + "2"} {
		if err := snk.Write(t.Context(), connectortest.Numbered(name, 1, 1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"order", "audit.users", "_leat_progress", "sqlite_x"} {
		if _, err := mapping(t, snk, connectortest.Numbered(name, 1, 1).Schema); connector.ClassOf(err) != connector.ClassConfig || connector.HintOf(err) == "" {
			t.Errorf("Map of %s returned %v", name, err)
		}
	}
}

// case C063.
// clause E5: rows and progress are one: whatever step a run dies at, what is there is exactly what the progress says.
func TestKilledBetweenSteps(t *testing.T) {
	for _, die := range []string{"write", "commit", "second write", "second commit"} {
		t.Run(die, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.db")
			copyOf := filepath.Join(t.TempDir(), "t.db")
			crash := func(at string) {
				if at != die {
					return
				}
				for _, end := range []string{"", "-wal"} { // what the disk holds when the process is gone
					data, err := os.ReadFile(path + end)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(copyOf+end, data, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			snk := openSink(t, sinkOf(path), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 1})
			for n, at := range []string{"", "second "} {
				if err := snk.Write(t.Context(), connectortest.Numbered("t", 1000*n, 1000)); err != nil {
					t.Fatal(err)
				}
				crash(at + "write")
				p := record.Progress{Run: "r", Position: record.Position{Shape: 1, Data: []byte([]string{"1000", "2000"}[n])}}
				commit(t, snk, p)
				crash(at + "commit")
			}
			again := openSink(t, sinkOf(copyOf), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 2})
			p, found, err := store(t, again).Committed(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := "0"
			if found {
				got = query(t, copyOf, `SELECT count(DISTINCT id) FROM t`)[0]
			}
			if want := map[string]string{"write": "none", "commit": "1000", "second write": "1000", "second commit": "2000"}[die]; p.Position.String() != want ||
				(found && got != want) || (!found && len(query(t, copyOf, `SELECT 1 FROM sqlite_schema WHERE name = 't'`)) > 0) {
				t.Errorf("progress says %s, the table has %s rows, want %s", p.Position, got, want)
			}
		})
	}
}

func TestClearErrors(t *testing.T) {
	dir := t.TempDir()
	noDB := filepath.Join(dir, "text.db")
	if err := os.WriteFile(noDB, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(dir, "locked.db")
	run(t, locked, `CREATE TABLE t (id INT)`)
	holder := open(t, locked)
	defer holder.Close() //nolint:errcheck // a test's own connection
	begin(t, holder)
	for _, tt := range []struct {
		path  string
		code  string
		class connector.Class
	}{
		{noDB, "sqlite.notadb", connector.ClassConfig},
		{filepath.Join(dir, "no", "folder.db"), "sqlite.open", connector.ClassConfig},
		{dir, "sqlite.open", connector.ClassConfig},
		{locked, "sqlite.busy", connector.ClassTransient},
	} {
		cfg := sinkOf(tt.path)
		cfg.BusyTimeout = 1
		snk, err := cfg.Open(testEnv(t))
		if err != nil {
			t.Fatal(err)
		}
		err = snk.Start(t.Context(), connector.SinkStart{Run: "r"})
		var e *connector.Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Class != tt.class || e.Hint == "" {
			t.Errorf("%s: %v (%+v)", tt.path, err, e)
		}
		if err := snk.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := readAll(t, sourceOf(noDB, nil)); connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("reading no database: %v", err)
	}
	if _, err := readAll(t, sourceOf(locked, map[string]string{"busy_timeout": "1ms"})); connector.ClassOf(err) != connector.ClassTransient {
		t.Errorf("reading a locked file: %v", err)
	}
	free := database(t, `CREATE TABLE t (id INT)`)
	_, err := readAll(t, sourceOf(free, map[string]string{"table": "tt"}))
	if err == nil || !strings.Contains(err.Error(), `did you mean "t"?`) {
		t.Errorf("reading an unknown table: %v", err)
	}
}

// clause E12.
func TestTruncateIsApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	target := connectortest.Target{Config: func() connector.SinkConfig { return sinkOf(path) }}
	after := connectortest.Numbered("t", 7, 1)
	after.Schema = connectortest.Numbered("t", 0, 1).Schema
	after.Truncate = true
	write(t, target, connector.Append, connectortest.Numbered("t", 0, 5), after)
	if got := query(t, path, `SELECT id FROM t`); !cmp.Equal(got, []string{"7"}) {
		t.Errorf("got %q", got)
	}
}

package sqlite_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// runs is an incremental pipeline: each next reads on where the last run ended.
type runs struct {
	path    string
	options map[string]string
	at      record.Position
}

func (r *runs) next(t *testing.T) []string {
	t.Helper()
	batches, at, err := readFrom(t, sourceOf(r.path, r.options), r.at)
	if err != nil {
		t.Fatal(err)
	}
	r.at = at
	return rows(batches)
}

func (r *runs) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), r.next(t)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// case C071: A row that comes after a run with the very cursor value that the run ended at is read by the next one; no row comes
// twice, but for one that changed without its cursor.
func TestRowsAtTheBoundary(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT, v INT);
		INSERT INTO t VALUES (5, '2024-01-01', 0), (9, '2024-01-02', 0), (3, '2024-01-02', 0)`)
	r := &runs{path: path, options: map[string]string{"table": "t", "cursor": "u"}}
	r.expect(t, "first", `{"id":5,"u":"2024-01-01","v":0}`, `{"id":3,"u":"2024-01-02","v":0}`, `{"id":9,"u":"2024-01-02","v":0}`)
	r.expect(t, "nothing happened")
	run(t, path, `INSERT INTO t VALUES (1, '2024-01-02', 1)`)
	r.expect(t, "same date, lower key", `{"id":1,"u":"2024-01-02","v":1}`)
	run(t, path, `UPDATE t SET v = 7 WHERE id = 9; INSERT INTO t VALUES (2, '2024-01-03', 1)`)
	r.expect(t, "changed at the boundary, and a later one", `{"id":9,"u":"2024-01-02","v":7}`, `{"id":2,"u":"2024-01-03","v":1}`)
	r.expect(t, "nothing happened again")
}

// case C072: rows that move behind the reader while it reads are neither missed nor doubled: the run reads one snapshot.
func TestRowsThatMoveWhileReading(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, u INT);
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 35) INSERT INTO t SELECT i, i FROM n`)
	query(t, path, `PRAGMA journal_mode = wal`)
	cfg := sourceOf(path, map[string]string{"table": "t", "cursor": "u"})
	src, err := cfg.Open(testEnv(t))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close(t.Context()) //nolint:errcheck // reading only
	if err := src.Start(t.Context(), connector.SourceStart{}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	var at record.Position
	for page := 0; ; page++ {
		b, err := src.Read(t.Context(), connector.Limit{Rows: 10})
		if err != nil {
			break
		}
		for i := range b.NumRows() {
			seen[string(record.AppendText(nil, b.Rows.Column(0), i))]++
		}
		at = b.Position
		run(t, path, fmt.Sprintf(`UPDATE t SET u = 1000 + %d WHERE id = %d`, page, 1+10*page))
	}
	if len(seen) != 35 {
		t.Errorf("saw %d of 35 rows: %v", len(seen), seen)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("row %s came %d times", id, n)
		}
	}
	if err := src.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &runs{path: path, options: map[string]string{"table": "t", "cursor": "u"}, at: at}
	r.expect(t, "what moved", `{"id":1,"u":1000}`, `{"id":11,"u":1001}`, `{"id":21,"u":1002}`, `{"id":31,"u":1003}`)
}

// case C073: the saved cursor is the stored value itself: no digit of it is rounded.
func TestCursorPrecision(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, u DATETIME); INSERT INTO t VALUES (1, '2024-01-01 10:00:00.123456')`)
	r := &runs{path: path, options: map[string]string{"table": "t", "cursor": "u"}}
	r.expect(t, "first", `{"id":1,"u":"2024-01-01T10:00:00.123456"}`)
	run(t, path, `INSERT INTO t VALUES (2, '2024-01-01 10:00:00.1234561')`)
	r.expect(t, "a ten-millionth later", `{"id":2,"u":"2024-01-01 10:00:00.1234561"}`)
	if p := r.at.String(); !strings.Contains(p, "10:00:00.1234561") {
		t.Errorf("position %s", p)
	}
}

// case C074.
func TestRowsWithoutCursor(t *testing.T) {
	const script = `CREATE TABLE t (id INTEGER PRIMARY KEY, u INT); INSERT INTO t VALUES (1, 10), (2, NULL), (3, 20)`
	path := database(t, script)
	r := &runs{path: path, options: map[string]string{"table": "t", "cursor": "u"}}
	r.expect(t, "first", `{"id":2,"u":null}`, `{"id":1,"u":10}`, `{"id":3,"u":20}`)
	r.expect(t, "again")
	run(t, path, `UPDATE t SET u = 30 WHERE id = 2; INSERT INTO t VALUES (4, NULL)`)
	r.expect(t, "set later, and a new one without", `{"id":4,"u":null}`, `{"id":2,"u":30}`)

	skip := &runs{path: database(t, script), options: map[string]string{"table": "t", "cursor": "u", "nulls": "skip"}}
	skip.expect(t, "nulls=skip", `{"id":1,"u":10}`, `{"id":3,"u":20}`)

	_, err := readAll(t, sourceOf(database(t, script), map[string]string{"table": "t", "cursor": "u", "nulls": "fail"}))
	if err == nil || !strings.Contains(err.Error(), "1 rows have no cursor value") || connector.HintOf(err) == "" {
		t.Errorf("nulls=fail: %v", err)
	}
}

// case C071: the mark does not go back where the row with the highest cursor is gone or lost it.
func TestCursorTakenBack(t *testing.T) {
	for name, change := range map[string]string{"deleted": `DELETE FROM t WHERE id = 3`, "lowered": `UPDATE t SET u = 20 WHERE id = 3`} {
		t.Run(name, func(t *testing.T) {
			path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, u INT); INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)`)
			r := &runs{path: path, options: map[string]string{"table": "t", "cursor": "u"}}
			r.expect(t, "first", `{"id":1,"u":10}`, `{"id":2,"u":20}`, `{"id":3,"u":30}`)
			run(t, path, change)
			r.expect(t, "taken back")
			r.expect(t, "once more")
			run(t, path, `INSERT INTO t VALUES (4, 30), (5, 31)`)
			r.expect(t, "new ones", `{"id":4,"u":30}`, `{"id":5,"u":31}`)
			r.expect(t, "again")
		})
	}
}

// case C075: cursor values are parameters, whatever they are.
func TestCursorOfAnyType(t *testing.T) {
	for name, values := range map[string][3]string{
		"text with quotes": {`'a''b'`, `'a''c'`, `'b'';--'`},
		"blob":             {`x'00'`, `x'00ff'`, `x'01'`},
		"real":             {`0.1`, `0.1000000000000001`, `1e300`},
		"integer":          {`-9223372036854775808`, `0`, `9223372036854775807`},
		"mixed":            {`5`, `'x'`, `x'00'`},
		"no utf-8":         {`CAST(x'01' AS TEXT)`, `CAST(x'fe' AS TEXT)`, `CAST(x'ff' AS TEXT)`},
	} {
		t.Run(name, func(t *testing.T) {
			path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, u); INSERT INTO t VALUES (1, `+values[0]+`)`)
			r := &runs{path: path, options: map[string]string{"table": "t", "cursor": "u", "columns": "id", "key": "id"}}
			r.expect(t, "first", `{"id":1}`)
			run(t, path, `INSERT INTO t VALUES (2, `+values[1]+`), (3, `+values[2]+`)`)
			got := r.next(t)
			if len(got) != 2 {
				t.Errorf("second run read %q", got)
			}
			r.expect(t, "third")
		})
	}
}

// cases C071, C072, C074: random inserts, updates and resumed runs, against the obvious model: with a cursor that grows, the
// upserted rows are the table.
func TestIncrementalConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path := database(t, `CREATE TABLE a (id INTEGER PRIMARY KEY, u INT, v INT); CREATE TABLE b (k TEXT PRIMARY KEY, u INT, v INT) WITHOUT ROWID`)
		options := map[string]string{"tables": "a,b", "cursor": "u"}
		var at record.Position
		model := map[string]string{}
		clock, total, delivered := 0, 0, 0
		for range rapid.IntRange(1, 5).Draw(rt, "runs") {
			var script strings.Builder
			for range rapid.IntRange(0, 8).Draw(rt, "changes") {
				clock += rapid.IntRange(0, 1).Draw(rt, "tick")
				u := strconv.Itoa(clock)
				if rapid.IntRange(0, 9).Draw(rt, "null") == 0 {
					u = "NULL"
				}
				table := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "table")
				total++
				id := rapid.IntRange(1, 9).Draw(rt, "id")
				fmt.Fprintf(&script, `INSERT OR REPLACE INTO %s VALUES (%d, %s, %d);`, table, id, u, total)
			}
			run(t, path, script.String())
			batches, next, err := readFrom(t, sourceOf(path, options), at)
			if err != nil {
				rt.Fatal(err)
			}
			if cut := rapid.IntRange(0, len(batches)).Draw(rt, "crash after"); cut < len(batches) {
				batches = batches[:cut]
				for _, b := range batches {
					at = b.Position
				}
			} else {
				at = next
			}
			delivered += apply(model, batches)
		}
		for range 2 { // the first ends a run that crashed, the second reads what came since
			batches, next, err := readFrom(t, sourceOf(path, options), at)
			if err != nil {
				rt.Fatal(err)
			}
			at = next
			delivered += apply(model, batches)
		}
		want := map[string]string{}
		for _, table := range []string{"a", "b"} {
			whole, err := readAll(t, sourceOf(path, map[string]string{"table": table}))
			if err != nil {
				rt.Fatal(err)
			}
			apply(want, whole)
		}
		if diff := cmp.Diff(want, model); diff != "" {
			rt.Fatalf("after all runs (-table +delivered):\n%s", diff)
		}
		if delivered > total {
			rt.Fatalf("%d rows were delivered for %d changes", delivered, total)
		}
	})
}

func apply(model map[string]string, batches []*record.Batch) int {
	n := 0
	for _, b := range batches {
		for i := range b.NumRows() {
			model[b.Schema.Dataset+string(record.AppendText(nil, b.Rows.Column(0), i))] = string(b.RowJSON(i))
			n++
		}
	}
	return n
}

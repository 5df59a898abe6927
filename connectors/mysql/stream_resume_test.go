package mysql_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// A stream that is resumed at any position goes on with exactly what follows; a position is only behind whole transactions, however small
// batches are.
// clauses S7, S8; cases C055.
func TestResumeAnywhere(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		w := newFollower(t, mysqltest.Database(t, f), nil, `CREATE TABLE a (id int PRIMARY KEY, n int)`, `CREATE TABLE b (id int PRIMARY KEY)`)
		values := make([]string, 100)
		for i := range values {
			values[i] = fmt.Sprintf("(%d, 0)", i)
		}
		w.do(t, `INSERT INTO a VALUES `+strings.Join(values, ", "), `INSERT INTO b VALUES (1)`, `BEGIN`, `UPDATE a SET n = 1 WHERE id < 50`,
			`INSERT INTO b VALUES (2), (3)`, `DELETE FROM a WHERE id >= 90`, `COMMIT`, `INSERT INTO b VALUES (4)`)
		const all = 100 + 1 + 50 + 2 + 10 + 1
		g := w.start(t, record.Position{}, nil)
		g.want = connector.Limit{Rows: 7, Bytes: 1 << 20}
		want := slices.Clone(g.until(t, all))
		if len(g.marks) < 3 {
			t.Fatalf("only %d positions came", len(g.marks))
		}
		for _, m := range g.marks {
			again := w.start(t, m.position, nil)
			if n := all - m.lines; n > 0 {
				sameRows(t, fmt.Sprintf("behind %d changes", m.lines), sorted(want[m.lines:]), sorted(again.until(t, n)))
			}
			closeSource(t, again.src)
		}
		compare := capability[connector.Positions](t, g.src).Compare
		for i := range g.marks[1:] {
			if order, ok := compare(g.marks[i].position, g.marks[i+1].position); !ok || order > 0 || (order == 0 && g.marks[i].lines < g.marks[i+1].lines) {
				t.Errorf("position %d against the next one: %d, %v", i, order, ok)
			}
		}
		var cuts []record.Position
		for _, m := range g.marks[:len(g.marks)-1] {
			cuts = append(cuts, m.position)
		}
		one := w.start(t, record.Position{}, nil, cuts...)
		one.until(t, all)
		for _, m := range g.marks {
			if !slices.ContainsFunc(one.marks, func(n streamMark) bool {
				order, ok := compare(m.position, n.position)
				return ok && order == 0 && m.lines == n.lines
			}) {
				t.Errorf("no batch ends at the cut behind %d changes", m.lines)
			}
		}
	})
}

// Transactions with tags (MySQL) and in several domains (MariaDB), in turn: a stream that is resumed behind any of them, on a server that
// orders them anew, goes on with exactly what follows.
// clauses S4, S7; case C055.
func TestResumeAmongSources(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		w := newFollower(t, mysqltest.Server(t, f).Database(), nil, `CREATE TABLE a (id int PRIMARY KEY)`)
		form := map[mysqltest.Flavor]string{mysqltest.MySQL: `SET gtid_next = 'AUTOMATIC%s'`, mysqltest.MariaDB: `SET gtid_domain_id = %s`}[f]
		sources := map[mysqltest.Flavor][]string{mysqltest.MySQL: {"", ":one", ":two", ":one"}, mysqltest.MariaDB: {"0", "1", "4294967295", "1"}}[f]
		const rounds = 3
		all := 0
		for range rounds {
			for _, source := range sources {
				w.do(t, fmt.Sprintf(form, source), fmt.Sprintf(`INSERT INTO a VALUES (%d)`, all), fmt.Sprintf(`INSERT INTO a VALUES (%d)`, all+1))
				all += 2
			}
		}
		g := w.start(t, record.Position{}, nil)
		g.want = connector.Limit{Rows: 1, Bytes: 1 << 20}
		want := slices.Clone(g.until(t, all))
		if len(g.marks) < all {
			t.Fatalf("%d positions came, want one behind each of %d transactions", len(g.marks), all)
		}
		for _, m := range g.marks {
			again := w.start(t, m.position, nil)
			if n := all - m.lines; n > 0 {
				sameRows(t, fmt.Sprintf("behind %d changes", m.lines), want[m.lines:], again.until(t, n))
			}
			closeSource(t, again.src)
		}
		w.do(t, fmt.Sprintf(form, sources[1]), `INSERT INTO a VALUES (1000)`)
		again := w.start(t, g.marks[len(g.marks)-1].position, nil)
		if got := again.until(t, 1); len(got) != 1 || !strings.Contains(got[0], "1000") {
			t.Errorf("behind everything comes %q", got)
		}
	})
}

func sorted(lines []string) []string { return slices.Sorted(slices.Values(lines)) }

// A large transaction whose connection is cut again and again comes once, wholly.
// cases C054, C055, C056.
func TestKilledReader(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		w := newFollower(t, mysqltest.Database(t, f), nil, `CREATE TABLE a (id int PRIMARY KEY, v varchar(200))`)
		const large, small, kills = 20000, 40, 6
		w.do(t, `SET SESSION `+map[mysqltest.Flavor]string{mysqltest.MySQL: "cte_max_recursion_depth = 100000", mysqltest.MariaDB: "max_recursive_iterations = 100000"}[f],
			fmt.Sprintf(`INSERT INTO a WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < %d) SELECT i, REPEAT('x', 150) FROM s`, large-1))
		for i := range small {
			w.do(t, fmt.Sprintf(`INSERT INTO a VALUES (%d, 'y')`, large+i))
		}
		at, count := record.Position{}, 0 // of whole transactions that were delivered
		seen := map[string]int{}
		for try := 0; count < large+small; try++ {
			g := w.start(t, at, nil)
			g.want = connector.Limit{Rows: 500, Bytes: 1 << 20}
			var err error
			for err == nil && count+len(g.lines) < large+small {
				if try < kills && len(g.lines) >= 1500*(try+1) {
					w.killReaders(t)
				}
				var b *record.Batch
				if b, err = g.next(t, 2*time.Second); b == nil && err == nil {
					break
				}
			}
			if err != nil && connector.ClassOf(err) != connector.ClassTransient {
				t.Fatalf("the error has class %v: %v", connector.ClassOf(err), err)
			}
			whole := 0
			if len(g.marks) > 0 {
				whole, at = g.marks[len(g.marks)-1].lines, g.last()
			}
			for _, line := range g.lines[:whole] {
				seen[line]++
			}
			count += whole
			closeSource(t, g.src)
			if try > 3*kills {
				t.Fatal("it does not end")
			}
		}
		if len(seen) != large+small {
			t.Errorf("%d changes came, want %d", len(seen), large+small)
		}
		for line, n := range seen {
			if n != 1 {
				t.Errorf("%d times: %s", n, line)
			}
		}
	})
}

// killReaders ends the sessions that read the log.
func (w *follower) killReaders(t testing.TB) {
	t.Helper()
	rows, err := w.db.QueryContext(t.Context(), "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%' AND DB = ?", w.name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	for _, id := range ids {
		_, _ = w.db.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id)) // it may be gone
	}
}

// A log that was purged is a position error, before anything is read.
// clause S4; case C053.
func TestPurged(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		for _, gtid := range []bool{true, false} {
			if !gtid && f == mysqltest.MariaDB {
				continue // it always has them
			}
			t.Run(fmt.Sprintf("gtid %v", gtid), func(t *testing.T) {
				var settings []string
				if !gtid {
					settings = []string{"gtid_mode=OFF", "enforce_gtid_consistency=OFF"}
				}
				s := mysqltest.Server(t, f, settings...)
				w := newFollower(t, s.Database(), nil, `CREATE TABLE a (id int PRIMARY KEY)`)
				w.do(t, `INSERT INTO a VALUES (1)`)
				g := w.start(t, record.Position{}, nil)
				g.follows(t, "a insert id=1")
				at := g.last()
				closeSource(t, g.src)
				w.do(t, `INSERT INTO a VALUES (2)`, `FLUSH BINARY LOGS`, `INSERT INTO a VALUES (3)`, `FLUSH BINARY LOGS`)
				g = w.start(t, at, nil)
				g.follows(t, "a insert id=2", "a insert id=3")
				closeSource(t, g.src)
				logs := w.logs(t)
				file := logs[len(logs)-1]
				for end := time.Now().Add(streamPatience); ; { // a reader that is gone is noticed a moment later, and keeps its log until then
					w.do(t, `PURGE BINARY LOGS TO '`+file+`'`)
					if w.logs(t)[0] == file {
						break
					}
					if time.Now().After(end) {
						t.Fatal("the log is not purged")
					}
				}
				for _, p := range []record.Position{at, w.anchor} {
					_, err := w.tryStart(t, p, nil)
					if connector.ClassOf(err) != connector.ClassPosition || !strings.Contains(connector.HintOf(err), "--restart") {
						t.Errorf("the error has class %v: %v (%s)", connector.ClassOf(err), err, connector.HintOf(err))
					}
				}
			})
		}
	})
}

// logs are the files of the log.
func (w *follower) logs(t testing.TB) (out []string) {
	t.Helper()
	rows, err := w.db.QueryContext(t.Context(), "SHOW BINARY LOGS")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var file string
		at := make([]any, len(names))
		at[0] = &file
		for i := range at[1:] {
			at[i+1] = new(any)
		}
		if err := rows.Scan(at...); err != nil {
			t.Fatal(err)
		}
		out = append(out, file)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return out
}

// Another primary is resumed from by GTIDs; a place in the log of a server is of no use on another one.
// case C056.
func TestFailover(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		first := mysqltest.Server(t, f)
		second := first.Replica()
		db := first.Database()
		w := newFollower(t, db, nil, `CREATE TABLE a (id int PRIMARY KEY)`)
		g := w.start(t, record.Position{}, nil)
		w.do(t, `INSERT INTO a VALUES (1), (2)`, `INSERT INTO a VALUES (3)`)
		g.follows(t, "a insert id=1", "a insert id=2", "a insert id=3")
		at := g.last()
		closeSource(t, g.src)
		w.do(t, `INSERT INTO a VALUES (4)`)
		second.CatchUp(first)
		second.Promote()
		first.Kill()
		t.Cleanup(first.Start) // its database is dropped
		other := strings.Replace(db, first.Address(), second.Address(), 1)
		v := &follower{url: other, db: mysqltest.DB(t, other), name: w.name, options: w.options, anchor: w.anchor}
		v.do(t, `INSERT INTO a VALUES (5)`)
		g = v.start(t, at, nil)
		g.follows(t, "a insert id=4", "a insert id=5")
		g.quiet(t)
		closeSource(t, g.src)
		again := v.start(t, g.marks[0].position, nil)
		if n := len(g.lines) - g.marks[0].lines; n > 0 {
			again.until(t, n)
		}
		again.quiet(t)
	})
}

// A position without GTIDs is refused by another server.
// cases C053, C056.
func TestPlaceOfAnotherServer(t *testing.T) {
	s := mysqltest.Server(t, mysqltest.MySQL, "gtid_mode=OFF", "enforce_gtid_consistency=OFF")
	w := newFollower(t, s.Database(), nil, `CREATE TABLE a (id int PRIMARY KEY)`)
	g := w.start(t, record.Position{}, nil)
	w.do(t, `INSERT INTO a VALUES (1)`)
	g.follows(t, "a insert id=1")
	p := record.Position{Shape: g.last().Shape, Data: []byte(strings.Replace(string(g.last().Data), `"server":"`, `"server":"0`, 1))}
	closeSource(t, g.src)
	if _, err := w.tryStart(t, p, nil); connector.ClassOf(err) != connector.ClassPosition {
		t.Errorf("the error has class %v: %v", connector.ClassOf(err), err)
	}
	g = w.start(t, g.last(), nil)
	w.do(t, `INSERT INTO a VALUES (2)`)
	g.follows(t, "a insert id=2")
}

// Positions advance in a database that is quiet while others write.
// clause E3.
func TestQuiet(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		w := newFollower(t, mysqltest.Database(t, f), nil, `CREATE TABLE a (id int PRIMARY KEY)`)
		other := mysqltest.Database(t, f)
		g := w.start(t, record.Position{}, nil)
		mysqltest.Exec(t, other, `CREATE TABLE x (id int PRIMARY KEY)`, `INSERT INTO x VALUES (1)`)
		compare := capability[connector.Positions](t, g.src).Compare
		tip, err := capability[connector.Tip](t, g.src).Tip(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(streamPatience); ; {
			if _, err := g.next(t, time.Second); err != nil || time.Now().After(end) {
				t.Fatalf("the stream did not come to the end of the log: %v", err)
			}
			if len(g.marks) > 0 {
				if order, ok := compare(g.last(), tip); ok && order >= 0 {
					break
				}
			}
		}
		lag, err := capability[connector.LagReporter](t, g.src).Lag(t.Context())
		if err != nil || lag.Age != 0 || lag.Bytes > 100000 {
			t.Errorf("lag %+v, %v", lag, err)
		}
		if diff := cmp.Diff(0, len(g.lines)); diff != "" {
			t.Error(diff)
		}
	})
}

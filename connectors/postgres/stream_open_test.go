package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// earlyBlocks makes the server send transactions that are open as soon as it can.
const earlyBlocks = `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET logical_decoding_work_mem = ''64kB''', current_database()); END $$`

// many inserts enough rows that an open transaction is sent.
func many(from int) string {
	return fmt.Sprintf("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(%d, %d) i", from, from+699)
}

// What was rolled back never comes, also of transactions that the server sent while they were open: whole ones, savepoints, and savepoints
// within others that were released first. Transactions come in the order of their commits, and each as a whole.
// clause S7.
func TestStreamOpenTransactions(t *testing.T) {
	for name, options := range map[string]map[string]string{
		"in memory": nil, "in files": {"spill_bytes": "0"}, "whole": {"streaming": "off"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			with := map[string]string{"spill_dir": dir}
			maps.Copy(with, options)
			w := newFollower(t, with, earlyBlocks, `CREATE TABLE t (id int PRIMARY KEY, v text)`, `CREATE TABLE u (id int PRIMARY KEY)`)
			other := pgtest.Conn(t, w.db)
			g := w.start(t, record.Position{}, nil)
			must(t, other, `BEGIN`, many(100_000))
			must(t, w.conn, `BEGIN`, many(1), `SAVEPOINT a`, many(3001), `SAVEPOINT b`, many(6001), `RELEASE b`, `ROLLBACK TO a`,
				`SAVEPOINT c`, many(9001), `SAVEPOINT d`, many(12_001), `ROLLBACK TO d`, many(15_001), `RELEASE c`)
			must(t, other, many(110_000), `INSERT INTO u VALUES (1)`)
			must(t, w.conn, many(18_001), `COMMIT`, `INSERT INTO u VALUES (2)`, `BEGIN`, many(200_000), `ROLLBACK`)
			must(t, other, `COMMIT`)
			var want []string
			ids := func(from int) {
				want = append(want, numbered("public.t insert id=%d v="+strings.Repeat("x", 100), from, from+699)...)
			}
			for _, from := range []int{1, 9001, 15_001, 18_001} {
				ids(from)
			}
			want = append(want, "public.u insert id=2")
			ids(100_000)
			ids(110_000)
			want = append(want, "public.u insert id=1")
			g.until(t, len(want))
			if diff := cmp.Diff(byDataset(want), byDataset(g.lines)); diff != "" {
				t.Errorf("changes differ (-want +got):\n%s", diff)
			}
			checkUnits(t, g)
			g.quiet(t)
			if got := w.count(t, `SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = $1`, w.slot); name != "whole" && got == 0 {
				t.Error("no transaction was sent while it was open: nothing was tested")
			}
			closeSource(t, g.src)
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("files are left behind: %v, %v", left, err)
			}
		})
	}
}

// checkUnits: no batch is larger than wanted, and a transaction is never split by a position.
func checkUnits(t testing.TB, g *generation) {
	t.Helper()
	open := map[string]bool{}
	for _, b := range g.batches {
		if g.want.Rows > 0 && b.NumRows() > g.want.Rows {
			t.Errorf("a batch of %d rows, %d were wanted", b.NumRows(), g.want.Rows)
		}
		rows := 0
		for _, txn := range b.Txns {
			xid := xidOf(t, txn.Position)
			if open[xid] {
				t.Errorf("transaction %s goes on behind a position", xid)
			}
			rows += txn.Rows
		}
		if rows != b.NumRows() {
			t.Errorf("transactions have %d rows of %d", rows, b.NumRows())
		}
		if b.Position.Zero() {
			continue
		}
		for _, earlier := range g.batches {
			for _, txn := range earlier.Txns {
				open[xidOf(t, txn.Position)] = true
			}
			if earlier == b {
				break
			}
		}
	}
}

// A transaction far larger than the memory for it comes in batches of the wanted size; only the last one has a position.
// case C067.
func TestStreamLargeTransaction(t *testing.T) {
	const rows = 300_000
	dir := t.TempDir()
	w := newFollower(t, map[string]string{"spill_bytes": "1048576", "spill_dir": dir}, earlyBlocks,
		`CREATE TABLE t (id int PRIMARY KEY, v text)`, `CREATE TABLE other (id int PRIMARY KEY, v text)`)
	g := w.start(t, record.Position{}, map[string]string{"tables": "t"})
	must(t, w.conn, fmt.Sprintf(`INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, %d) i`, rows))
	var peak, stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	base := stats.HeapAlloc
	n, files := 0, 0
	g.want = connector.Limit{Rows: 10_000, Bytes: 4 << 20}
	for n < rows {
		b, err := g.next(t, streamPatience)
		if err != nil || b == nil {
			t.Fatalf("after %d rows: %v, %v", n, b, err)
		}
		g.batches, g.lines = nil, nil
		if b.Schema == nil {
			continue
		}
		if n += b.NumRows(); n < rows != b.Position.Zero() {
			t.Fatalf("after %d rows the position is %s", n, b.Position)
		}
		if files == 0 {
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			files = len(left)
		}
		runtime.GC()
		runtime.ReadMemStats(&stats)
		peak.HeapAlloc = max(peak.HeapAlloc, stats.HeapAlloc)
	}
	if files == 0 {
		t.Error("nothing was kept in a file")
	}
	if used := int64(peak.HeapAlloc) - int64(base); used > 40<<20 {
		t.Errorf("%d MB were in use", used>>20)
	}
}

// Files of a process that was killed are removed by the next one, and those of other streams stay.
func TestStreamSweepsFiles(t *testing.T) {
	dir := t.TempDir()
	w := newFollower(t, map[string]string{"spill_dir": dir, "spill_bytes": "0"}, earlyBlocks, `CREATE TABLE t (id int PRIMARY KEY, v text)`)
	first := w.start(t, record.Position{}, nil)
	must(t, w.conn, `BEGIN`, `INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 50000) i`)
	for {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			break
		}
		if _, err := first.next(t, streamPatience); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Fatalf("%v, %v", left, err)
	}
	killed := dir + "/" + left[0].Name() + "0"
	for _, d := range []string{killed, dir + "/leat-open-0123456789ab-1"} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	closeSource(t, first.src)
	w.start(t, record.Position{}, nil)
	left, err = os.ReadDir(dir)
	if err != nil || len(left) != 1 || !strings.HasPrefix(left[0].Name(), "leat-open-0123456789ab-") {
		t.Errorf("what is left: %v, %v", left, err)
	}
	must(t, w.conn, `ROLLBACK`)
}

// A transaction that was prepared comes when it is committed, and not at all when it is rolled back.
func TestStreamPrepared(t *testing.T) {
	for name, streaming := range map[string]string{"whole": "off", "in blocks": "on"} {
		t.Run(name, func(t *testing.T) {
			w := newFollower(t, map[string]string{"streaming": streaming}, earlyBlocks, `CREATE TABLE t (id int PRIMARY KEY, v text)`)
			g := w.start(t, record.Position{}, nil)
			must(t, w.conn, `BEGIN`, many(1), `PREPARE TRANSACTION 'kept `+w.slot+`'`,
				`BEGIN`, many(3001), `PREPARE TRANSACTION 'lost `+w.slot+`'`, `INSERT INTO t VALUES (0, '')`)
			g.follows(t, "public.t insert id=0 v=")
			g.quiet(t)
			must(t, w.conn, `ROLLBACK PREPARED 'lost `+w.slot+`'`, `COMMIT PREPARED 'kept `+w.slot+`'`)
			g.follows(t, slices.Concat([]string{"public.t insert id=0 v="},
				numbered("public.t insert id=%d v="+strings.Repeat("x", 100), 1, 700))...)
			g.quiet(t)
		})
	}
}

// Changes that the server got from elsewhere are left out where the options say so, whoever leaves them out.
func TestStreamOrigin(t *testing.T) {
	for _, publish := range []string{"any", "none"} {
		t.Run(publish, func(t *testing.T) {
			w := newFollower(t, map[string]string{"publish_origin": publish}, earlyBlocks, `CREATE TABLE t (id int PRIMARY KEY, v text)`)
			must(t, w.conn, `SELECT pg_replication_origin_create('`+w.slot+`')`)
			t.Cleanup(func() { dropOrigin(t, w) })
			g := w.start(t, record.Position{}, nil)
			must(t, w.conn, `INSERT INTO t VALUES (1, 'own')`, `SELECT pg_replication_origin_session_setup('`+w.slot+`')`,
				`INSERT INTO t VALUES (2, 'foreign')`, many(1000), `SELECT pg_replication_origin_session_reset()`, `INSERT INTO t VALUES (3, 'own')`)
			want := []string{"public.t insert id=1 v=own", "public.t insert id=3 v=own"}
			if publish == "any" {
				want = slices.Insert(numbered("public.t insert id=%d v="+strings.Repeat("x", 100), 1000, 1699), 0, want[0],
					"public.t insert id=2 v=foreign")
				want = append(want, "public.t insert id=3 v=own")
			}
			g.follows(t, want...)
			g.quiet(t)
		})
	}
}

func dropOrigin(t testing.TB, w *follower) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, w.db)
	if err == nil {
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, `SELECT pg_replication_origin_drop($1)`, w.slot)
	}
	if err != nil {
		t.Errorf("dropping the origin: %v", err)
	}
}

// Columns that change within an open transaction, and changes of columns that are taken back with a savepoint.
// case C038.
func TestStreamColumnsOfOpenTransactions(t *testing.T) {
	w := newFollower(t, map[string]string{"spill_bytes": "0"}, earlyBlocks, `CREATE TABLE t (id int PRIMARY KEY, v text)`)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `BEGIN`, many(1), `SAVEPOINT a`, `ALTER TABLE t ADD c int DEFAULT 1`, many(3001), `ROLLBACK TO a`, many(6001), `COMMIT`,
		`BEGIN`, many(9001), `ALTER TABLE t ADD d int DEFAULT 5`, many(12_001), `COMMIT`, `INSERT INTO t VALUES (0, '', 6)`)
	line := "public.t insert id=%d v=" + strings.Repeat("x", 100)
	g.follows(t, slices.Concat(numbered(line, 1, 700), numbered(line, 6001, 6700), numbered(line, 9001, 9700),
		numbered(line+" d=5", 12_001, 12_700), []string{"public.t insert id=0 v= d=6"})...)
	g.quiet(t)
	if found := g.schemas("public.t"); len(found) != 2 {
		t.Errorf("%d schemas came", len(found))
	}
}

// Servers up to 18 lose track of a table whose columns change in a savepoint that is rolled back, and then again, in a transaction that
// they send while it is open. The error says the way around it, and that is one.
func TestStreamServerLosesTrack(t *testing.T) {
	w := newFollower(t, nil, earlyBlocks, `CREATE TABLE t (id int PRIMARY KEY, v text)`)
	must(t, w.conn, `BEGIN`, many(1), `SAVEPOINT a`, `ALTER TABLE t ADD c int`, many(3001), `ROLLBACK TO a`, many(6001),
		`ALTER TABLE t ADD d int`, many(9001), `COMMIT`)
	g := w.start(t, record.Position{}, nil)
	for len(g.lines) < 2100 {
		b, err := g.next(t, streamPatience)
		if err == nil && b != nil {
			continue
		}
		if connector.ClassOf(err) != connector.ClassTransient || !strings.Contains(connector.HintOf(err), "streaming=off") {
			t.Fatalf("after %d changes: %v (%s)", len(g.lines), err, connector.HintOf(err))
		}
		closeSource(t, g.src)
		g = w.start(t, record.Position{}, map[string]string{"streaming": "off"})
		break
	}
	line := "public.t insert id=%d v=" + strings.Repeat("x", 100)
	g.follows(t, slices.Concat(numbered(line, 1, 700), numbered(line, 6001, 6700), numbered(line+" d=null", 9001, 9700))...)
}

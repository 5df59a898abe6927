package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// load makes transactions of one to many changes over two tables, some with truncates and savepoints that are rolled back.
func load(t testing.TB, w *follower, n int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		sql := []string{"BEGIN"}
		for j := range 1 + r.IntN(4) {
			id := 10*i + j
			switch r.IntN(8) {
			case 0:
				sql = append(sql, "UPDATE t SET v = v || 'u' WHERE id % 7 = 1")
			case 1:
				sql = append(sql, "DELETE FROM u WHERE id % 3 = 0")
			case 2:
				sql = append(sql, "SAVEPOINT s", fmt.Sprintf("INSERT INTO u VALUES (%d)", id), "ROLLBACK TO s")
			case 3:
				sql = append(sql, "TRUNCATE u")
			case 4:
				sql = append(sql, fmt.Sprintf("INSERT INTO t SELECT %d + i, 'many' FROM generate_series(1, 40) i", 10_000*(i+1)+1000*j))
			default:
				sql = append(sql, fmt.Sprintf("INSERT INTO t VALUES (%d, 'one')", id), fmt.Sprintf("INSERT INTO u VALUES (%d)", id))
			}
		}
		must(t, w.conn, append(sql, "COMMIT")...)
	}
	must(t, w.conn, "INSERT INTO t VALUES (-1, 'end')")
}

// all reads everything up to the end that load made.
func (g *generation) all(t testing.TB) {
	t.Helper()
	for n := 0; n == 0 || !slices.Contains(g.lines, "public.t insert id=-1 v=end"); {
		g.until(t, n)
		n++
	}
	g.until(t, len(g.lines))
}

// A resume from every position that was delivered gives exactly what follows it, whatever size is wanted. A batch ends at each cut.
// clauses S7, S8.
func TestStreamResume(t *testing.T) {
	w := newFollower(t, map[string]string{"spill_bytes": "0"}, earlyBlocks, `CREATE TABLE t (id int PRIMARY KEY, v text)`,
		`CREATE TABLE u (id int PRIMARY KEY)`)
	load(t, w, 25)
	fine := w.start(t, record.Position{}, nil)
	fine.want.Rows = 1
	fine.all(t)
	checkUnits(t, fine)
	closeSource(t, fine.src)
	for i, m := range fine.marks {
		g := w.start(t, m.position, nil)
		g.want.Rows = []int{1, 3, 1000, 0}[i%4]
		if follow := fine.lines[m.lines:]; len(follow) > 0 {
			g.until(t, len(follow))
			if diff := cmp.Diff(byDataset(follow), byDataset(g.lines)); diff != "" {
				t.Errorf("a resume at %s differs (-want +got):\n%s", m.position, diff)
			}
		}
		closeSource(t, g.src)
	}
	var cuts []record.Position
	ends := map[string]bool{}
	for i := 0; i < len(fine.marks); i += 4 {
		cuts = append(cuts, fine.marks[i].position)
		ends[fine.marks[i].position.String()] = true
	}
	g := w.start(t, record.Position{}, nil, cuts...)
	g.all(t)
	for _, m := range g.marks {
		delete(ends, m.position.String())
	}
	if len(ends) > 0 {
		t.Errorf("no batch ends at the cuts %v", ends)
	}
	if diff := cmp.Diff(byDataset(fine.lines), byDataset(g.lines)); diff != "" {
		t.Errorf("with cuts the changes differ (-want +got):\n%s", diff)
	}
}

// A Read that is cancelled loses nothing.
// clause S9.
func TestStreamCancelled(t *testing.T) {
	w := newFollower(t, nil, `CREATE TABLE t (id int PRIMARY KEY, v text)`, `CREATE TABLE u (id int PRIMARY KEY)`)
	load(t, w, 10)
	want := w.start(t, record.Position{}, nil)
	want.all(t)
	closeSource(t, want.src)
	g := w.start(t, record.Position{}, nil)
	g.want.Rows = 2
	for i := 0; !slices.Contains(g.lines, "public.t insert id=-1 v=end"); i++ {
		ctx, cancel := context.WithTimeout(t.Context(), []time.Duration{0, time.Millisecond, 4 * time.Millisecond, time.Second}[i%4])
		b, err := g.src.Read(ctx, g.want)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		g.take(b)
	}
	if diff := cmp.Diff(byDataset(want.lines), byDataset(g.lines)); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
}

// Where the server's process dies the error is transient, and the next generation goes on exactly where the last position was.
func TestStreamReconnects(t *testing.T) {
	w := newFollower(t, nil, `CREATE TABLE t (id int PRIMARY KEY, v text)`)
	g := w.start(t, record.Position{}, nil)
	must(t, w.conn, `INSERT INTO t VALUES (1, 'a')`, `INSERT INTO t VALUES (2, 'b')`)
	g.until(t, 2)
	must(t, w.conn, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '`+w.slot+`'`,
		`INSERT INTO t VALUES (3, 'c')`)
	if err := g.fails(t); connector.ClassOf(err) != connector.ClassTransient {
		t.Fatalf("the error is %v", err)
	}
	closeSource(t, g.src)
	g = w.start(t, g.marks[len(g.marks)-1].position, nil)
	g.follows(t, "public.t insert id=3 v=c")
}

// A server that has nothing to say for the tables moves the position on, at most once in a second, and forgets its log once that is
// acknowledged. Only positions that were delivered can be acknowledged.
// cases C040, C041, C042.
func TestStreamIdle(t *testing.T) {
	t.Parallel()
	w := newFollower(t, map[string]string{"tables": "quiet"}, `CREATE TABLE quiet (id int PRIMARY KEY)`, `CREATE TABLE busy (id int, v text)`)
	g := w.start(t, record.Position{}, nil)
	confirmed := func() (at string) {
		if err := w.conn.QueryRow(t.Context(), `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`,
			w.slot).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	before, began := confirmed(), time.Now()
	must(t, w.conn, `INSERT INTO busy SELECT i, repeat('x', 1000) FROM generate_series(1, 5000) i`)
	var end string
	if err := w.conn.QueryRow(t.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&end); err != nil {
		t.Fatal(err)
	}
	for {
		if b, err := g.next(t, streamPatience); err != nil || b == nil {
			t.Fatalf("the position does not move on: %v", err)
		}
		if w.count(t, `SELECT ($1::pg_lsn >= $2::pg_lsn)::int`, g.newest(), end) == 1 {
			break
		}
	}
	if len(g.lines) > 0 {
		t.Errorf("changes came: %q", g.lines)
	}
	if most := int(time.Since(began).Seconds()) + 2; len(g.marks) > most {
		t.Errorf("%d positions in %s", len(g.marks), time.Since(began))
	}
	if now := confirmed(); now != before {
		t.Errorf("the server forgot its log up to %s, which nobody acknowledged", now)
	}
	ahead := record.Position{Shape: g.marks[0].position.Shape, Data: []byte(strings.Replace(string(g.marks[0].position.Data), `"lsn":"`, `"lsn":"7F`, 1))}
	if err := g.acknowledged(t, ahead); err == nil {
		t.Error("a position that was never delivered was acknowledged")
	}
	g.acknowledge(t)
	for _, m := range g.marks { // older ones and the same once more do nothing
		if err := g.acknowledged(t, m.position); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(streamPatience); ; {
		kept := w.count(t, `SELECT pg_wal_lsn_diff($2::pg_lsn, confirmed_flush_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1`,
			w.slot, g.newest())
		if kept <= 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes are kept", kept)
		}
	}
	must(t, w.conn, `INSERT INTO quiet VALUES (1)`)
	g.follows(t, "public.quiet insert id=1")
}

// newest is the place of the newest position.
func (g *generation) newest() string {
	_, rest, _ := strings.Cut(string(g.marks[len(g.marks)-1].position.Data), `"lsn":"`)
	at, _, _ := strings.Cut(rest, `"`)
	return at
}

// The server is told that all is well, on a timer of its own, also while nobody reads: neither a slow sink nor a large transaction
// makes it give up. What it may forget stays where it was.
// case C047.
func TestStreamBackPressure(t *testing.T) {
	t.Parallel()
	w := newFollower(t, nil, `CREATE TABLE t (id int PRIMARY KEY, v text)`,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET wal_sender_timeout = ''1500ms''', current_database()); END $$`)
	g := w.start(t, record.Position{}, nil)
	pid := w.count(t, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, w.slot)
	must(t, w.conn, `INSERT INTO t VALUES (0, 'first')`)
	g.until(t, 1)
	if age := g.age(t); age != 0 {
		t.Errorf("nothing is waiting, and it is behind by %s", age)
	}
	const rows = 60_000
	must(t, w.conn, fmt.Sprintf(`INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, %d) i`, rows))
	idle := time.NewTimer(4 * time.Second) // nobody reads
	<-idle.C
	var confirmed, began string
	if err := w.conn.QueryRow(t.Context(), `SELECT confirmed_flush_lsn::text, r.state FROM pg_replication_slots
		JOIN pg_stat_replication r ON r.pid = active_pid WHERE slot_name = $1`, w.slot).Scan(&confirmed, &began); err != nil {
		t.Fatalf("the connection is gone: %v", err)
	}
	if age := g.age(t); age < 3*time.Second || age > time.Minute {
		t.Errorf("it is behind by %s", age)
	}
	g.until(t, rows+1)
	if now := w.count(t, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, w.slot); now != pid {
		t.Errorf("process %d took the place of %d", now, pid)
	}
}

func (g *generation) age(t testing.TB) time.Duration {
	t.Helper()
	lag, err := capability[connector.LagReporter](t, g.src).Lag(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lag.Age
}

// A slot is for one reader: another one says who has it, at once where that one is alive. A dead session of our own is waited for.
// case C046.
func TestStreamSlotInUse(t *testing.T) {
	t.Parallel()
	w := newFollower(t, nil, `CREATE TABLE t (id int PRIMARY KEY)`)
	g := w.start(t, record.Position{}, map[string]string{"application_name": "the first"})
	start := func(more map[string]string) error {
		src := w.open(t, more)
		return src.Start(t.Context(), connector.SourceStart{From: connector.From{
			Origin: connector.Resume, Attempt: 1, Position: g.marks[0].position,
		}})
	}
	must(t, w.conn, `INSERT INTO t VALUES (1)`)
	g.until(t, 1)
	for _, name := range []string{"another", "the first"} {
		err := start(map[string]string{"application_name": name})
		var e *connector.Error
		if !errors.As(err, &e) || e.Code != "postgres.slot.active" || !strings.Contains(err.Error(), "the first") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	waiting := make(chan error, 1)
	go func() { waiting <- start(map[string]string{"application_name": "the first"}) }()
	released := time.NewTimer(200 * time.Millisecond)
	<-released.C
	closeSource(t, g.src)
	if err := <-waiting; err != nil {
		t.Errorf("a slot that became free: %v", err)
	}
}

// Writers commit at random moments with pauses between, generations end at random moments, also by force: every change comes exactly
// once, whatever was acknowledged meanwhile.
// cases C041, C042.
func TestStreamNothingMissing(t *testing.T) {
	t.Parallel()
	w := newFollower(t, nil, `CREATE TABLE t (id bigserial PRIMARY KEY, v text)`, `CREATE TABLE noise (id int PRIMARY KEY)`)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var writers sync.WaitGroup
	for i := range 3 {
		conn := pgtest.Conn(t, w.db)
		r := rand.New(rand.NewPCG(7, uint64(i)))
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				sql := fmt.Sprintf(`INSERT INTO t (v) SELECT 'x' FROM generate_series(1, %d)`, 1+r.IntN(5))
				if r.IntN(3) == 0 {
					sql = fmt.Sprintf(`INSERT INTO noise VALUES (%d)`, 1_000_000*i+n)
				}
				_, err := conn.Exec(t.Context(), fmt.Sprintf("BEGIN; %s; SELECT pg_sleep(%f); COMMIT", sql, r.Float64()/50))
				if err == nil && r.IntN(4) == 0 {
					_, err = conn.Exec(t.Context(), fmt.Sprintf("SELECT pg_sleep(%f)", r.Float64()/5))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(7, 8))
	at := w.anchor
	seen := map[string]int{}
	for done := false; !done; {
		done = ctx.Err() != nil
		if done {
			writers.Wait()
		}
		g := w.start(t, at, map[string]string{"tables": "t"})
		g.want.Rows = 1 + r.IntN(10)
		life := time.Now().Add(time.Duration(50+r.IntN(250)) * time.Millisecond)
		for time.Now().Before(life) || done {
			b, err := g.next(t, 300*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				break
			}
			if len(g.marks) > 0 && r.IntN(3) == 0 {
				g.acknowledge(t)
			}
		}
		if len(g.marks) > 0 {
			at = g.marks[len(g.marks)-1].position
			for _, l := range g.lines[:g.marks[len(g.marks)-1].lines] {
				seen[l]++
			}
		}
		if r.IntN(2) == 0 {
			must(t, w.conn, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND slot_name = '`+w.slot+`'`)
		}
		closeSource(t, g.src)
	}
	if rows := w.count(t, `SELECT count(*) FROM t`); int64(len(seen)) != rows {
		t.Errorf("%d of %d rows came", len(seen), rows)
	}
	for l, n := range seen {
		if n > 1 {
			t.Errorf("%q came %d times", l, n)
		}
	}
}

// An idle server is made to log something, so that others that wait for its log see it move.
func TestStreamHeartbeat(t *testing.T) {
	w := newFollower(t, map[string]string{"heartbeat": "50ms"}, `CREATE TABLE t (id int PRIMARY KEY)`)
	must(t, w.conn, `SELECT pg_create_logical_replication_slot('`+w.slot+`_2', 'pgoutput')`)
	t.Cleanup(func() {
		other := *w
		other.slot += "_2"
		other.drop(t)
	})
	w.start(t, record.Position{}, nil)
	for end := time.Now().Add(streamPatience); ; {
		n := w.count(t, `SELECT count(*) FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2,
			'messages', 'true') WHERE position('leat.heartbeat'::bytea IN data) > 0`, w.slot+"_2", w.slot)
		if n >= 2 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d messages are in the log", n)
		}
	}
}

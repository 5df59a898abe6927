package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// followSource is a source of a publication that the test has made.
func followSource(t testing.TB, db string, options map[string]string) *Source {
	t.Helper()
	return openSource(t, db, connectortest.Env(t), options)
}

func openSource(t testing.TB, db string, env connector.Env, options map[string]string) *Source {
	t.Helper()
	cfg, ok := NewSource().(*SourceConfig)
	if !ok {
		t.Fatal("NewSource returns another type")
	}
	must(t, cfg.SetURL(db))
	must(t, connector.SetOptions(cfg, map[string]string{"follow": "true", "publication": "pub"}))
	must(t, connector.SetOptions(cfg, options))
	s, err := cfg.Open(env)
	must(t, err)
	src, ok := s.(*Source)
	if !ok {
		t.Fatal("Open returns another type")
	}
	t.Cleanup(func() {
		if err := src.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return src
}

// chunkRead is a chunk as it was read.
type chunkRead struct {
	snapshot record.Position
	schema   *record.Schema
	batches  []*record.Batch
	rows     []string
}

func readChunk(t testing.TB, s *Source, c record.Chunk) chunkRead {
	t.Helper()
	r, err := tryChunk(t.Context(), s, c)
	if err != nil {
		t.Fatalf("reading a chunk: %v (%s)", err, connector.HintOf(err))
	}
	return r
}

var errChunk = errors.New("the batches of a chunk don't agree")

func tryChunk(ctx context.Context, s *Source, c record.Chunk) (chunkRead, error) {
	var r chunkRead
	err := s.ReadChunk(ctx, c, func(b *record.Batch) error {
		if b.Chunk == nil || b.Ops != nil || !b.Position.Zero() || (len(r.batches) > 0 && !r.snapshot.Equal(b.Chunk.Snapshot)) {
			return errChunk
		}
		r.snapshot, r.schema = b.Chunk.Snapshot, b.Schema
		r.batches = append(r.batches, b)
		if b.Rows != nil {
			r.rows = append(r.rows, connectortest.Rows(b)...)
		}
		return nil
	})
	if err == nil && len(r.batches) == 0 {
		return r, fmt.Errorf("%w: there is none", errChunk)
	}
	return r, err
}

// end is the position of a transaction's end; of an invented log.
func end(xid uint64, at lsn) record.Position {
	return streamPosition{LSN: at, XID: xid, origin: origin{System: "1", Slot: "s"}}.encode()
}

// xidOf is the transaction that conn has open.
func xidOf(t testing.TB, conn interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) uint64 {
	t.Helper()
	var text string
	must(t, conn.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text").Scan(&text))
	x, err := strconv.ParseUint(text, 10, 64)
	must(t, err)
	return x
}

// What a snapshot includes, by the server's own text; both ends of the range, epochs, and what is not a snapshot at all.
func TestSnapshotIncludes(t *testing.T) {
	var s Source
	at := record.Position{Shape: 2, Data: []byte(`{"snapshot":"8589934700:8589934710:8589934700,8589934703","lsn":"1/20"}`)}
	for xid, want := range map[uint64]bool{
		3: true, 8589934699: true, 8589934700: false, 8589934701: true, 8589934703: false, 8589934709: true, 8589934710: false, 1 << 40: false, 0: false,
	} {
		for range 2 { // the second time from what is remembered
			if got := s.Includes(at, end(xid, 5)); got != want {
				t.Errorf("transaction %d is included: %t", xid, got)
			}
		}
	}
	for l, want := range map[lsn]bool{1<<32 + 0x1f: false, 1<<32 + 0x20: true, 1 << 40: true, 0: false} {
		if got := s.Outlived(at, end(7, l)); got != want {
			t.Errorf("outlived at %s: %t", l, got)
		}
	}
	for _, bad := range []record.Position{
		{},
		{Shape: 1, Data: []byte(`"1:2:"`)},
		{Shape: 2, Data: []byte(`{"snapshot":"1:2","lsn":"0/0"}`)},
		{Shape: 2, Data: []byte(`{"snapshot":"1:x:","lsn":"0/0"}`)},
		{Shape: 3, Data: []byte(`{"snapshot":"1:2:x","lsn":"0/0"}`)},
	} {
		if s.Includes(bad, end(1, 5)) || s.Outlived(bad, end(1, 5)) {
			t.Errorf("%s is taken for a snapshot", bad)
		}
	}
	if s.Includes(at, record.Position{Shape: 1, Data: []byte(`{}`)}) {
		t.Error("a position of another kind is included")
	}
	seen, err := decodeSnapshot(at)
	if err != nil || !seen.encode().Equal(at) {
		t.Errorf("%s comes back as %s, %v", at, seen.encode(), err)
	}
}

// One snapshot covers another one exactly if it includes all that the other one does: every pair of a small world.
func TestSnapshotCovers(t *testing.T) {
	const ids = 5
	var all []snapshot
	for low := uint64(1); low <= ids; low++ {
		for high := low; high <= ids; high++ {
			for bits := range 1 << (high - low) {
				s := snapshot{xmin: low, xmax: high}
				for x := low; x < high; x++ {
					if bits>>(x-low)&1 == 1 {
						s.open = append(s.open, x)
					}
				}
				all = append(all, s)
			}
		}
	}
	for _, s := range all {
		for _, o := range all {
			want := true
			for x := range uint64(ids + 2) {
				want = want && (!o.includes(x) || s.includes(x))
			}
			if got := s.covers(o); got != want {
				t.Fatalf("%s covers %s: %t", s, o, got)
			}
		}
	}
}

// The place where the next record begins is given as the end of the last one, which a stream can reach.
func TestRecordEnd(t *testing.T) {
	const block, segment = 8192, 16 << 20
	for in, want := range map[lsn]lsn{
		segment + 40: segment, segment + 24: segment + 24, segment + block + 24: segment + block, segment + block + 40: segment + block + 40,
		segment + 4096: segment + 4096, segment + block: segment + block,
	} {
		if got := recordEnd(in, block, segment); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}

// A transaction is included in a chunk's snapshot by what the chunk's own transaction sees, whatever the order of numbers, commits and
// log positions.
// case C060.
func TestIncludesWhatAChunkSees(t *testing.T) {
	db := pgtest.Database(t)
	conn, other := pgtest.Conn(t, db), pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE t`)
	s := followSource(t, db, map[string]string{"table": "t"})

	early, err := conn.Begin(t.Context())
	must(t, err)
	earlyXID := xidOf(t, early) // the lowest number, the last commit
	_, err = early.Exec(t.Context(), `SAVEPOINT a; INSERT INTO t VALUES (1); RELEASE a`)
	must(t, err)
	late, err := other.Begin(t.Context())
	must(t, err)
	lateXID := xidOf(t, late)
	_, err = late.Exec(t.Context(), `INSERT INTO t VALUES (2)`)
	must(t, err)
	must(t, late.Commit(t.Context()))

	c := readChunk(t, s, record.Chunk{Dataset: "public.t"})
	if want := []string{`{"id":2}`}; !slices.Equal(c.rows, want) {
		t.Fatalf("rows %q, want %q", c.rows, want)
	}
	now, err := s.Now(t.Context())
	must(t, err)
	must(t, early.Commit(t.Context()))
	var at string
	must(t, conn.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&at))
	behind, err := parseLSN(at)
	must(t, err)
	after, err := s.Now(t.Context())
	must(t, err)
	for _, c := range []struct {
		what     string
		snapshot record.Position
		xid      uint64
		want     bool
	}{
		{"early in the chunk", c.snapshot, earlyXID, false},
		{"late in the chunk", c.snapshot, lateXID, true},
		{"the future in the chunk", c.snapshot, lateXID + 1000, false},
		{"early before its commit", now, earlyXID, false},
		{"late before early's commit", now, lateXID, true},
		{"early after its commit", after, earlyXID, true},
	} {
		if got := s.Includes(c.snapshot, end(c.xid, behind)); got != c.want {
			t.Errorf("%s: %t (%s, transaction %d)", c.what, got, c.snapshot, c.xid)
		}
	}
	if s.Outlived(c.snapshot, end(0, 1)) || !s.Outlived(c.snapshot, end(0, behind)) {
		t.Errorf("the snapshot %s is outlived at the beginning, or not at %s", c.snapshot, behind)
	}
}

// A transaction whose commit is in the log, and which is not visible yet because it waits for a standby: the log's position says nothing.
// case C060.
func TestCommittedAndNotVisible(t *testing.T) {
	server := pgtest.Server(t, "wal_level=logical", "synchronous_commit=local", "synchronous_standby_names=nobody")
	conn, writer := pgtest.Conn(t, server.URL()), pgtest.Conn(t, server.URL())
	sqlExec(t, writer, `SET synchronous_commit = on`)
	sqlExec(t, conn, `CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE PUBLICATION pub FOR TABLE t`)
	s := followSource(t, server.URL(), map[string]string{"table": "t"})
	tx, err := writer.Begin(t.Context())
	must(t, err)
	xid := xidOf(t, tx)
	_, err = tx.Exec(t.Context(), `INSERT INTO t VALUES (2)`)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- tx.Commit(t.Context()) }()
	for waiting := false; !waiting; {
		must(t, conn.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&waiting))
	}
	var at string
	must(t, conn.QueryRow(t.Context(), `SELECT pg_current_wal_flush_lsn()::text`).Scan(&at))
	flushed, err := parseLSN(at) // behind the commit
	must(t, err)

	c := readChunk(t, s, record.Chunk{Dataset: "public.t"})
	now, err := s.Now(t.Context())
	must(t, err)
	if len(c.rows) != 1 || s.Includes(c.snapshot, end(xid, flushed)) || s.Includes(now, end(xid, flushed)) {
		t.Errorf("rows %q; %s or %s includes transaction %d", c.rows, c.snapshot, now, xid)
	}
	seen, err := decodeSnapshot(c.snapshot)
	if err != nil || seen.lsn < flushed {
		t.Errorf("the snapshot's position is %s, the log was at %s before (%v)", seen.lsn, flushed, err)
	}
	sqlExec(t, conn, `ALTER SYSTEM SET synchronous_standby_names = ''`)
	sqlExec(t, conn, `SELECT pg_reload_conf()`)
	must(t, <-done)
	c = readChunk(t, s, record.Chunk{Dataset: "public.t"})
	if len(c.rows) != 2 || !s.Includes(c.snapshot, end(xid, flushed)) {
		t.Errorf("rows %q; %s includes transaction %d: %t", c.rows, c.snapshot, xid, s.Includes(c.snapshot, end(xid, flushed)))
	}
}

// While many write, every chunk has exactly the rows of the transactions that its snapshot includes: on a primary, and on a standby,
// whose own snapshots don't list the transactions that are open.
// case C060.
func TestSnapshotsUnderLoad(t *testing.T) {
	primary := pgtest.Server(t, "wal_level=logical", "max_wal_senders=4")
	standby := primary.Standby()
	conn := pgtest.Conn(t, primary.URL())
	sqlExec(t, conn, `CREATE TABLE t (id bigserial PRIMARY KEY, x text NOT NULL DEFAULT pg_current_xact_id()::text);
		CREATE PUBLICATION pub FOR TABLE t`)
	standby.CatchUp(primary)
	sources := []*Source{followSource(t, primary.URL(), nil), followSource(t, standby.URL(), nil)}

	stop, writers := make(chan struct{}), sync.WaitGroup{}
	halt := sync.OnceFunc(func() { close(stop); writers.Wait() })
	defer halt()
	for w := range 4 {
		c := pgtest.Conn(t, primary.URL())
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				sql := `BEGIN; INSERT INTO t DEFAULT VALUES; COMMIT; SELECT pg_sleep(0.0005)`
				switch {
				case w == 0:
					sql = `BEGIN; INSERT INTO t DEFAULT VALUES; SAVEPOINT a; INSERT INTO t DEFAULT VALUES; RELEASE a; SELECT pg_sleep(0.03); COMMIT`
				case i%5 == 0:
					sql = `BEGIN; INSERT INTO t DEFAULT VALUES; ROLLBACK`
				}
				if _, err := c.Exec(t.Context(), sql); err != nil {
					t.Errorf("writing: %v", err)
					return
				}
			}
		})
	}
	type read struct {
		who string
		c   chunkRead
		now record.Position
	}
	var reads []read
	for until := time.Now().Add(time.Second); time.Now().Before(until); {
		for i, s := range sources {
			now, err := s.Now(t.Context())
			must(t, err)
			reads = append(reads, read{[]string{"primary", "standby"}[i], readChunk(t, s, record.Chunk{Dataset: "public.t"}), now})
		}
	}
	halt()

	rows, err := conn.Query(t.Context(), `SELECT format('{"id":%s,"x":"%s"}', id, x), x::bigint FROM t`)
	must(t, err)
	committed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Row string
		XID uint64
	}])
	must(t, err)
	odd := map[string]int{}
	for _, r := range reads {
		have := make(map[string]bool, len(r.c.rows))
		for _, row := range r.c.rows {
			have[row] = true
		}
		seen, err := decodeSnapshot(r.c.snapshot)
		must(t, err)
		told, err := decodeSnapshot(r.now)
		must(t, err)
		odd[r.who] += len(seen.open)
		for _, row := range committed {
			if have[row.Row] != seen.includes(row.XID) {
				t.Fatalf("%s: row %s is in the chunk: %t, snapshot %s", r.who, row.Row, have[row.Row], seen)
			}
			if !have[row.Row] && told.includes(row.XID) {
				t.Fatalf("%s: row %s was said to be visible, and a chunk that was read later lacks it", r.who, row.Row)
			}
		}
	}
	t.Logf("%d chunks, %d rows, open transactions in snapshots %v", len(reads), len(committed), odd)
	if odd["primary"] == 0 || odd["standby"] == 0 {
		t.Error("no snapshot had an open transaction: nothing was proven")
	}
}

// slowClock goes on by a second each time it is asked.
func slowClock() func() time.Time {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Second)
		return at
	}
}

// lockedText is a log.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A chunk waits for transactions that were running at the barrier, and for no others; it holds no transaction while it waits, says whom
// it waits for, and ends when it is told to.
// cases C059, C065.
func TestBarrier(t *testing.T) {
	db := pgtest.Database(t)
	conn, holder, other := pgtest.Conn(t, db), pgtest.Conn(t, db), pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)`)
	env, log := connectortest.Env(t), &lockedText{}
	env.Now, env.Log = slowClock(), slog.New(slog.NewTextHandler(log, nil))
	s := openSource(t, db, env, nil)

	sqlExec(t, holder, `BEGIN; INSERT INTO t VALUES (1)`) // before t is published
	sqlExec(t, conn, `CREATE PUBLICATION pub FOR TABLE t, u`)
	elsewhere := pgtest.Conn(t, pgtest.URL(t))
	sqlExec(t, elsewhere, `BEGIN; SELECT pg_current_xact_id()`) // of another database: nobody waits for it
	must(t, s.markBarrier(t.Context(), "public.t"))
	sqlExec(t, other, `BEGIN; INSERT INTO t VALUES (2)`) // after it

	if c := readChunk(t, s, record.Chunk{Dataset: "public.u"}); len(c.rows) != 0 {
		t.Errorf("rows %q of an empty table", c.rows)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() {
		_, err := tryChunk(cancelled, s, record.Chunk{Dataset: "public.t"})
		gaveUp <- err
	}()
	type result struct {
		c   chunkRead
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := tryChunk(t.Context(), s, record.Chunk{Dataset: "public.t"})
		done <- result{c, err}
	}()
	for idle := 0; !strings.Contains(log.String(), "waits for older transactions"); { // none of ours is idle in a transaction for long
		var n int
		must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'leat'
			AND state = 'idle in transaction' AND state_change < clock_timestamp() - interval '200 ms'`).Scan(&n))
		if idle += n; idle > 0 {
			t.Fatal("a transaction is kept open while a chunk waits")
		}
	}
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) && connector.ClassOf(err) != connector.ClassTransient {
		t.Errorf("a wait that was cancelled ends with %v", err)
	}
	var pid int
	must(t, holder.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	if want := fmt.Sprintf("process %d", pid); !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "public.t") {
		t.Errorf("the log does not name %s: %s", want, log)
	}
	select {
	case r := <-done:
		t.Fatalf("the chunk did not wait: %q, %v", r.c.rows, r.err)
	default:
	}
	sqlExec(t, holder, `COMMIT`)
	r := <-done
	if r.err != nil || !slices.Equal(r.c.rows, []string{`{"id":1}`}) {
		t.Errorf("rows %q, %v: want what the transaction wrote before the table was published", r.c.rows, r.err)
	}
	sqlExec(t, other, `COMMIT`)
}

// hasLogged waits until the log has the text.
func (l *lockedText) hasLogged(t testing.TB, want string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(l.String(), want); {
		if time.Now().After(deadline) {
			t.Fatalf("the log lacks %q:\n%s", want, l)
		}
		time.Sleep(time.Millisecond)
	}
}

// A prepared transaction is waited for, and named.
// case C059.
func TestBarrierPrepared(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE t`)
	env, log := connectortest.Env(t), &lockedText{}
	env.Now, env.Log = slowClock(), slog.New(slog.NewTextHandler(log, nil))
	s := openSource(t, db, env, nil)
	gid := strings.ToLower(rand.Text())
	sqlExec(t, conn, `BEGIN; INSERT INTO t VALUES (3); PREPARE TRANSACTION '`+gid+`'`)
	t.Cleanup(func() { _, _ = conn.Exec(context.WithoutCancel(t.Context()), `ROLLBACK PREPARED '`+gid+`'`) })
	must(t, s.markBarrier(t.Context(), "public.t"))
	done := make(chan chunkRead, 1)
	go func() {
		c, err := tryChunk(t.Context(), s, record.Chunk{Dataset: "public.t"})
		if err != nil {
			t.Error(err)
		}
		done <- c
	}()
	log.hasLogged(t, "prepared transaction "+gid)
	sqlExec(t, conn, `COMMIT PREPARED '`+gid+`'`)
	if c := <-done; len(c.rows) != 1 {
		t.Errorf("rows %q", c.rows)
	}
}

// What two looks at a standby say is taken for exact only if the transactions that were open in between are known for certain, and always
// where nothing ended between them: random histories of transactions, and looks that take their time.
func TestExactSight(t *testing.T) {
	const seed = 20261129
	random := mathrand.New(mathrand.NewPCG(seed, seed))
	exact, quiet := 0, 0
	for range 20_000 {
		// The history: transactions begin in the order of their numbers, and end in any order.
		var open []uint64
		next, ended := uint64(1), uint64(0)
		type moment struct {
			open        []uint64
			next, ended uint64
		}
		history := []moment{{next: 1}}
		for range 4 + random.IntN(12) {
			if len(open) == 0 || random.IntN(2) == 0 {
				open = append(slices.Clone(open), next)
				next++
			} else {
				at := random.IntN(len(open))
				ended = max(ended, open[at])
				open = slices.Delete(slices.Clone(open), at, at+1)
			}
			history = append(history, moment{open, next, ended})
		}
		at := make([]int, 4) // first snapshot, first list, second snapshot, second list
		for i := range at {
			at[i] = random.IntN(len(history))
		}
		slices.Sort(at)
		look := func(seen, listed moment) sight {
			s := sight{snapshot: snapshot{xmin: seen.ended + 1, xmax: seen.ended + 1}, standby: true, listed: true}
			if len(seen.open) > 0 {
				s.xmin = min(s.xmin, slices.Min(seen.open))
			}
			for _, x := range listed.open {
				if x >= s.xmin && x < s.xmax {
					s.open = append(s.open, x)
				}
			}
			return s
		}
		first, last := look(history[at[0]], history[at[1]]), look(history[at[2]], history[at[3]])
		truth := look(history[at[2]], history[at[2]])
		got := last.exact(first)
		same := slices.Equal(last.open, truth.open)
		if got && !same {
			t.Fatalf("%s is taken for exact after %s, and it is %s", last, first, truth)
		}
		if at[0] == at[3] {
			quiet++
			if !got {
				t.Fatalf("%s is not taken for exact after %s, and nothing happened in between", last, first)
			}
		}
		if got {
			exact++
		}
	}
	if exact < 100 || quiet < 10 {
		t.Errorf("%d exact, %d quiet: nothing was proven", exact, quiet)
	}
}

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/internal/pgtest"
)

// gate is a way to a server that can be closed: connections are cut then, and new ones refused.
type gate struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

// newGate lets connections through to the host and port of a URL, and returns the URL by way of it.
func newGate(t *testing.T, url string) (*gate, string) {
	t.Helper()
	u, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: l, to: u.Host, open: map[net.Conn]bool{}}
	var accepting sync.WaitGroup
	accepting.Go(g.serve)
	t.Cleanup(func() {
		l.Close() //nolint:errcheck // that ends serve
		g.set(true)
		accepting.Wait()
	})
	u.Host = l.Addr().String()
	return g, u.String()
}

func (g *gate) serve() {
	var passing sync.WaitGroup
	defer passing.Wait()
	for {
		in, err := g.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", g.to)
		if err != nil || !g.admit(in, out) {
			in.Close() //nolint:errcheck // it is refused
			continue
		}
		pass := func(to, from net.Conn) {
			_, _ = io.Copy(to, from) // however it ends
			in.Close()               //nolint:errcheck // both ends go
			out.Close()              //nolint:errcheck // both ends go
		}
		passing.Go(func() { pass(in, out) })
		passing.Go(func() { pass(out, in) })
	}
}

func (g *gate) admit(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		if g.closed {
			c.Close() //nolint:errcheck // it is refused
		}
		g.open[c] = true
	}
	return !g.closed
}

// set closes the gate, or opens it.
func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	if closed {
		for c := range g.open {
			c.Close() //nolint:errcheck // it is cut
		}
		clear(g.open)
	}
}

// load makes changes at a steady rate: of ten, six are new rows, three change rows, and one deletes one.
type load struct {
	conn *pgx.Conn
	rate int // changes a second
	next int64
	made int64
	took time.Duration
}

const loadTick = 50 * time.Millisecond

// run goes on for so long; it catches up where the server was slow.
func (l *load) run(ctx context.Context, d time.Duration) error {
	began, tick := time.Now(), time.NewTicker(loadTick)
	defer tick.Stop()
	defer func() { l.took = time.Since(began) }()
	for ctx.Err() == nil && time.Since(began) < d {
		<-tick.C
		due := int64(time.Since(began).Seconds()*float64(l.rate)) - l.made
		if due < 10 {
			continue
		}
		due = min(due/10, 2000)
		inserts, updates, from := 6*due, 3*due, l.next+1
		l.next += inserts
		old := max(1, from-40_000)
		sql := fmt.Sprintf(`insert into items select i, 0, clock_timestamp(), 'item ' || md5(i::text) from generate_series(%d, %d) i;
			update items set n = n + 1, at = clock_timestamp() where id in (select id from items where id > %d order by id limit %d);
			delete from items where id in (select id from items where id > %[3]d order by id desc offset %d limit %d)`,
			from, l.next, old, updates, 100+from%500, due)
		tags, err := l.conn.PgConn().Exec(ctx, sql).ReadAll()
		if err != nil {
			return err
		}
		for _, tag := range tags {
			l.made += tag.CommandTag.RowsAffected()
		}
	}
	return nil
}

// fanout is one pipeline file run by the real program.
type fanout struct {
	bin, file, state string
}

func (f *fanout) command(extra ...string) *exec.Cmd {
	return exec.Command(f.bin, append([]string{"run", f.file, "--state", f.state, "--progress-every", "1s"}, extra...)...)
}

func (f *fanout) start(t *testing.T, extra ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: f.command(extra...), done: make(chan error, 1)}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := r.done
	go func() { done <- r.cmd.Wait() }()
	t.Cleanup(r.kill)
	return r
}

// fanoutFile writes the pipeline; more are lines of further sinks.
func fanoutFile(t *testing.T, dir, source, target string, more ...string) string {
	t.Helper()
	lines := append([]string{
		"name: fanout",
		"source: {postgres: {url: '" + source + "', tables: [public.items], follow: true, chunk_bytes: 1000000}}",
		"lanes: {kind: durable}",
		"sinks:",
		"  replica: {postgres: {url: '" + target + "'}, mode: upsert}",
		"  lake: {duckdb: {path: '" + filepath.Join(dir, "lake.duckdb") + "'}, mode: upsert}",
		"  columns: {file: {path: '" + filepath.Join(dir, "columns") + "/', format: parquet, log: true, every: 1s}}",
		"  lines: {file: {path: '" + filepath.Join(dir, "lines") + "/', format: jsonl, log: true, every: 500ms}}",
	}, more...)
	name := filepath.Join(dir, fmt.Sprintf("fanout%d.yaml", len(more)))
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// watcher looks, again and again, at what the source's server keeps for the slot, and at how far behind a target is.
type watcher struct {
	from, to *pgx.Conn

	mu       sync.Mutex
	since    int64           // by the source's clock: what is older does not count
	retained int64           // most bytes of log since the last reset
	delays   []time.Duration // of the replica, by the source's clock
}

const (
	loggedSQL    = `select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8`
	confirmedSQL = `select pg_wal_lsn_diff(confirmed_flush_lsn, '0/0')::int8 from pg_replication_slots where database = current_database()`
	newestSQL    = `select coalesce(extract(epoch from max(at)) * 1e6, 0)::int8 from items`
	clockSQL     = `select (extract(epoch from clock_timestamp()) * 1e6)::int8`
)

func (w *watcher) run(ctx context.Context, t *testing.T) {
	t.Helper()
	for n := 0; ctx.Err() == nil; n++ {
		if n%10 == 0 { // it logs what lets the slot move on, which the server does by itself every 15 s
			_, _ = w.from.Exec(ctx, "checkpoint")
		}
		kept, now, newest := number(t, w.from, retainedSQL), number(t, w.from, clockSQL), number(t, w.to, newestSQL)
		w.mu.Lock()
		w.retained = max(w.retained, kept)
		if newest > w.since && now > newest {
			w.delays = append(w.delays, time.Duration(now-newest)*time.Microsecond)
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// take returns what was seen since the last call.
func (w *watcher) take() (retained int64, delays []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	retained, delays = w.retained, w.delays
	w.retained, w.delays = 0, nil
	slices.Sort(delays)
	return retained, delays
}

// TestFanOut: one source of changes into Postgres, DuckDB and two change logs, all at once. While a writer makes LEAT_FANOUT_RATE changes a
// second for LEAT_FANOUT_SECONDS, the Postgres target goes away and comes back, the process is killed twice, once while it is away, and
// then a fifth sink joins. The source's server is told all the while that it may let go of its log. At rest all five equal the
// source row for row, and no change is missing or doubled in the logs.
//
// clauses W14, W15, E2, E3, E5, E8, E9, case C040, case C042, case C048.
func TestFanOut(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	rate, seconds := amount(t, "LEAT_FANOUT_RATE", 2000), amount(t, "LEAT_FANOUT_SECONDS", 12)
	source, target := pgtest.Database(t), pgtest.Database(t)
	from := pgtest.Conn(t, source)
	execute(t, from, `create table items (id bigint primary key, n int not null, at timestamptz not null, doc text)`)
	execute(t, from, `insert into items select i, 0, clock_timestamp(), 'first ' || i from generate_series(1, 20000) i`)
	dropSlots(t, source)
	door, through := newGate(t, target)
	dir := t.TempDir()
	f := &fanout{bin: buildWhole(t), file: fanoutFile(t, dir, source, through), state: filepath.Join(dir, "state")}

	r := f.start(t)
	to := pgtest.Conn(t, target)
	r.until(60*time.Second, "the first rows", func() bool { return number(t, to, "select count(*) from items") == 20000 })
	w := &watcher{from: pgtest.Conn(t, source), to: pgtest.Conn(t, target)}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var background sync.WaitGroup
	background.Go(func() { w.run(ctx, t) })
	l := &load{conn: pgtest.Conn(t, source), rate: rate, next: 20000}
	length := time.Duration(seconds) * time.Second
	failed := make(chan error, 1)
	began, now := time.Now(), number(t, from, clockSQL)
	w.mu.Lock()
	w.since = now
	w.mu.Unlock()
	background.Go(func() { failed <- l.run(ctx, length) })
	at := func(part float64) {
		r.until(2*length, "time", func() bool { return time.Since(began).Seconds() >= part*length.Seconds() })
	}

	at(0.2)
	kept, delays := w.take()
	t.Logf("all are well: %d MiB retained at most, the replica %s behind, 19 of 20 times less than %s", kept>>20, median(delays), late(delays))
	door.set(true)
	cut, written := number(t, from, loggedSQL), files(t, dir)
	at(0.4)
	r.kill()
	r = f.start(t) // and one of its sinks is not there
	at(0.6)
	confirmed, logged := number(t, from, confirmedSQL), number(t, from, loggedSQL)
	kept, _ = w.take()
	t.Logf("one sink is away, for %.1f s: %.1f MiB were logged meanwhile, %.1f of these confirmed; %d MiB retained at most",
		0.4*length.Seconds(), float64(logged-cut)/(1<<20), float64(confirmed-cut)/(1<<20), kept>>20)
	if confirmed < cut+(logged-cut)/2 {
		t.Errorf("the source was told to keep its log for a sink that is away: of %d bytes since then %d are confirmed", logged-cut, confirmed-cut)
	}
	if most := int64(64<<20) + (logged-cut)/2; kept > most {
		t.Errorf("%d bytes of log were retained, of %d that came meanwhile", kept, logged-cut)
	}
	if n := files(t, dir); n <= written {
		t.Errorf("the other sinks stood still: %d files of the log, and %d before", n, written)
	}
	door.set(false)
	at(0.8)
	r.kill()
	f.file = fanoutFile(t, dir, source, through, "  fifth: {sqlite: {path: '"+filepath.Join(dir, "fifth.db")+"'}, mode: upsert}")
	r = f.start(t, "--adopt") // the file is another one, and the saved position is gone on from
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	rest := time.Now()
	t.Logf("%d changes in %.1f s, %.0f a second", l.made, l.took.Seconds(), float64(l.made)/l.took.Seconds())
	if made := float64(l.made) / l.took.Seconds(); made < 0.7*float64(rate) {
		t.Logf("the writer did not reach the rate of %d", rate)
	}
	want := number(t, from, newestSQL)
	r.until(4*length+time.Minute, "the last change in the replica", func() bool { return number(t, to, newestSQL) == want })
	t.Logf("the replica has everything %s after the writer rests", time.Since(rest).Round(10*time.Millisecond))
	stop()
	background.Wait()
	kept, _ = w.take()
	r.kill() // what was not delivered yet is
	if out, err := f.command("--once").CombinedOutput(); err != nil {
		t.Fatalf("to the end: %v\n%s", err, lastLines(string(out), 30))
	}
	t.Logf("everything is everywhere %s after the writer rests; %d MiB retained at most since the sink is back",
		time.Since(rest).Round(10*time.Millisecond), kept>>20)
	f.compare(t, dir, source, target)
}

// files counts what the log of lines has.
func files(t *testing.T, dir string) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "lines", "public.items", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// compare compares every target with the source at rest.
func (f *fanout) compare(t *testing.T, dir, source, target string) {
	t.Helper()
	tables := []followedTable{{name: "items"}}
	equalTables(t, "Postgres", tables, source, target)
	sameCopies(t, f.bin, tables, "duckdb:"+filepath.Join(dir, "lake.duckdb"), source, "duckdb:"+filepath.Join(dir, "fresh.duckdb"))
	sameCopies(t, f.bin, tables, "sqlite:"+filepath.Join(dir, "fifth.db"), source, "sqlite:"+filepath.Join(dir, "fresh.db"))
	from := pgtest.Conn(t, source)
	replay(t, from, "items", filepath.Join(dir, "lines", "public.items"), jsonLines)
	replay(t, from, "items", filepath.Join(dir, "columns", "public.items"), parquetLines(f.bin))
	want := map[string]string{}
	for _, row := range texts(t, from, "select id || ' ' || n || ' ' || doc from items") {
		id, values, _ := strings.Cut(row, " ")
		want[id] = values
	}
	lines := map[string]string{}
	jsonLines(t, filepath.Join(dir, "lines", "public.items"), func(l logged) {
		row := struct {
			ID  json.Number `json:"id"`
			N   int         `json:"n"`
			Doc string      `json:"doc"`
		}{}
		if err := json.Unmarshal(l.Key, &row); err != nil {
			t.Fatal(err)
		}
		if l.Op == "d" {
			delete(lines, row.ID.String())
			return
		}
		if err := json.Unmarshal(l.After, &row); err != nil {
			t.Fatal(err)
		}
		lines[row.ID.String()] = strconv.Itoa(row.N) + " " + row.Doc
	})
	equalMaps(t, "the log of lines", want, lines)
	equalMaps(t, "the log of columns", want, f.columns(t, filepath.Join(dir, "columns", "public.items")))
}

// columns is what the Parquet log ends with.
func (f *fanout) columns(t *testing.T, dir string) map[string]string {
	t.Helper()
	rows := map[string]string{}
	out := run(t, f.bin, "copy", "parquet:"+filepath.Join(dir, "*.parquet"), "jsonl:-", "--state", t.TempDir())
	dec := json.NewDecoder(bytes.NewReader([]byte(out)))
	for {
		var l struct {
			Op  string      `json:"_op"`
			ID  json.Number `json:"id"`
			N   int         `json:"n"`
			Doc string      `json:"doc"`
		}
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return rows
		} else if err != nil {
			t.Fatal(err)
		}
		if l.Op == "d" {
			delete(rows, l.ID.String())
			continue
		}
		rows[l.ID.String()] = strconv.Itoa(l.N) + " " + l.Doc
	}
}

func equalMaps(t *testing.T, what string, want, got map[string]string) {
	t.Helper()
	if maps.Equal(want, got) {
		return
	}
	for id, row := range want {
		if got[id] != row {
			t.Errorf("%s: row %s is %q, and in the source %q", what, id, got[id], row)
			break
		}
	}
	t.Errorf("%s ends with %d rows, and the source has %d", what, len(got), len(want))
}

func median(sorted []time.Duration) time.Duration { return quantile(sorted, 0.5) }
func late(sorted []time.Duration) time.Duration   { return quantile(sorted, 0.95) }

func quantile(sorted []time.Duration, part float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(part*float64(len(sorted)-1))].Round(time.Millisecond)
}

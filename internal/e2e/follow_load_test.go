package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/internal/pgtest"
)

// amount is a size of a test, which an environment variable makes larger.
func amount(t *testing.T, variable string, usual int) int {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// running is leat sync as a process that is expected to go on.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan error
}

func (f *follower) start(t *testing.T) *running {
	t.Helper()
	r := &running{t: t, cmd: f.command(), done: make(chan error, 1)}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	t.Cleanup(r.kill)
	return r
}

func (r *running) kill() {
	_ = r.cmd.Process.Kill()
	if r.done != nil {
		<-r.done //nolint:errcheck // it was killed
		r.done = nil
	}
}

// alive fails the test where the process ended by itself.
func (r *running) alive() {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.done = nil
		r.t.Fatalf("leat sync ended by itself: %v\n%s", err, lastLines(r.out.String(), 30))
	default:
	}
}

// until waits for a condition while the process runs.
func (r *running) until(limit time.Duration, what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		select {
		case err := <-r.done:
			r.done = nil
			r.t.Fatalf("leat sync ended by itself while waiting for %s: %v\n%s", what, err, lastLines(r.out.String(), 30))
		default:
		}
		if ok() {
			return
		}
	}
	r.t.Fatalf("%s did not come within %s\n%s", what, limit, lastLines(r.out.String(), 10))
}

// peak is the most memory that the process had resident, in MiB.
func (r *running) peak() int {
	r.t.Helper()
	n, ok := residentPeak(r.cmd.Process.Pid)
	if !ok {
		r.t.Skip("this system does not tell how much memory a process has resident")
	}
	return int(n >> 20)
}

func number(t *testing.T, c *pgx.Conn, sql string, args ...any) (n int64) {
	t.Helper()
	if err := c.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		return -1 // not there yet
	}
	return n
}

func execute(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%.200s: %v", sql, err)
	}
}

const (
	senderSQL   = `select coalesce(max(active_pid), 0) from pg_replication_slots where database = current_database()`
	retainedSQL = `select max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))::int8 from pg_replication_slots where database = current_database()`
	silenceSQL  = `select coalesce(extract(epoch from max(clock_timestamp() - r.reply_time)), 0)::int8 from pg_stat_replication r
		join pg_replication_slots s on s.active_pid = r.pid where s.database = current_database()`
)

// One transaction of many rows passes in little memory, and the server hears from leat all the time: wal_sender_timeout is 5 s, and the
// connection stays. LEAT_HUGE_ROWS makes it larger.
//
// clause S6, case C047, case C067.
func TestHugeTransaction(t *testing.T) {
	rows := amount(t, "LEAT_HUGE_ROWS", 300_000)
	source, target := pgtest.Database(t), pgtest.Database(t)
	from, to := pgtest.Conn(t, source), pgtest.Conn(t, target)
	execute(t, from, `create table big (id bigint primary key, v text, w text); create table unpublished (id bigint, v text);
		insert into big values (0, 'first', '')`)
	execute(t, from, `do $$ begin execute format('alter database %I set wal_sender_timeout = ''5s''', current_database()); end $$`)
	dropSlots(t, source)
	f := &follower{bin: buildLeat(t), state: filepath.Join(t.TempDir(), "state"), source: source + "&tables=public.big", targets: []string{target}}
	r := f.start(t)
	r.until(30*time.Second, "the first row", func() bool { return number(t, to, "select count(*) from big") == 1 })
	sender := number(t, from, senderSQL)
	if sender == 0 {
		t.Fatal("nobody reads the slot")
	}
	began := time.Now()
	execute(t, from, fmt.Sprintf(`begin; insert into unpublished select i, repeat('x', 100) from generate_series(1, %d) i;
		insert into big select i, 'value ' || i, md5(i::text) from generate_series(1, %d) i; commit`, rows, rows))
	committed, quiet := time.Since(began), int64(0)
	r.until(10*time.Minute, "the transaction", func() bool {
		quiet = max(quiet, number(t, from, silenceSQL))
		return number(t, to, "select count(*) from big") == int64(rows)+1
	})
	t.Logf("%d rows: committed in %s, in the target after %s, %d MiB resident at most, %d s of silence at most",
		rows, committed, time.Since(began), r.peak(), quiet)
	if r.peak() > 512 {
		t.Errorf("%d MiB resident", r.peak())
	}
	if now := number(t, from, senderSQL); now != sender {
		t.Errorf("the connection was lost: process %d reads the slot now, and it was %d", now, sender)
	}
	if sum := number(t, to, "select sum(id)::int8 from big"); sum != int64(rows)*int64(rows+1)/2 {
		t.Errorf("the sum of the ids is %d", sum)
	}
}

// A blocked sink holds the stream, not the connection: wal_sender_timeout is 2 s, and the sink is blocked for longer. What was blocked is
// not confirmed. LEAT_BLOCK_SECONDS makes it longer.
//
// case C042, case C047.
func TestBlockedSink(t *testing.T) {
	seconds := amount(t, "LEAT_BLOCK_SECONDS", 8)
	source, target := pgtest.Database(t), pgtest.Database(t)
	from, to, lock := pgtest.Conn(t, source), pgtest.Conn(t, target), pgtest.Conn(t, target)
	execute(t, from, `create table items (id int primary key, v text); insert into items values (0, 'first')`)
	execute(t, from, `do $$ begin execute format('alter database %I set wal_sender_timeout = ''2s''', current_database()); end $$`)
	dropSlots(t, source)
	f := &follower{bin: buildLeat(t), state: filepath.Join(t.TempDir(), "state"), source: source + "&tables=public.items", targets: []string{target}}
	r := f.start(t)
	r.until(30*time.Second, "the first row", func() bool { return number(t, to, "select count(*) from items") == 1 })
	sender := number(t, from, senderSQL)
	execute(t, lock, "begin; lock table items in access exclusive mode")
	before := number(t, from, "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8")
	execute(t, from, "insert into items select i, repeat(md5(i::text), 30) from generate_series(1, 20000) i")
	for range seconds {
		time.Sleep(time.Second)
		execute(t, from, "update items set v = v || '.' where id = 1")
	}
	if confirmed := number(t, from, `select pg_wal_lsn_diff(confirmed_flush_lsn, '0/0')::int8 from pg_replication_slots
		where database = current_database()`); confirmed > before {
		t.Errorf("the server was told that %d is durable, while the sink was blocked at %d", confirmed, before)
	}
	execute(t, lock, "rollback")
	r.until(60*time.Second, "what was blocked", func() bool {
		return number(t, to, "select length(v) from items where id = 1") == int64(960+seconds) && number(t, to, "select count(*) from items") == 20001
	})
	if now := number(t, from, senderSQL); now != sender {
		t.Errorf("the connection was lost: process %d reads the slot now, and it was %d", now, sender)
	}
}

// A quiet table beside much log of another one: what the server retains falls without the table being touched, and no row of it is lost
// over restarts. LEAT_WAL_MB makes the log longer.
//
// clause E3, clause S8, case C040, case C041.
func TestQuietTable(t *testing.T) {
	megabytes := amount(t, "LEAT_WAL_MB", 200)
	source, target := pgtest.Database(t), pgtest.Database(t)
	from, to := pgtest.Conn(t, source), pgtest.Conn(t, target)
	execute(t, from, `create table quiet (id int primary key); create table busy (id bigint, v text); insert into quiet values (0)`)
	dropSlots(t, source)
	f := &follower{bin: buildLeat(t), state: filepath.Join(t.TempDir(), "state"), source: source + "&tables=public.quiet", targets: []string{target}}
	for restart := range 3 {
		r := f.start(t)
		r.until(60*time.Second, "the rows so far", func() bool { return number(t, to, "select count(*) from quiet") == int64(2*restart)+1 })
		execute(t, from, fmt.Sprintf("insert into quiet values (%d)", 2*restart+1))
		for range megabytes / 3 / 10 {
			execute(t, from, "insert into busy select i, repeat(md5(i::text), 30) from generate_series(1, 10000) i")
		}
		execute(t, from, fmt.Sprintf("insert into quiet values (%d)", 2*restart+2))
		execute(t, from, "truncate busy")
		low := int64(0)
		r.until(60*time.Second, "less retained log", func() bool {
			execute(t, from, "checkpoint") // it logs what lets a slot move on, which the server does by itself every 15 s
			low = number(t, from, retainedSQL)
			return low >= 0 && low < 64<<20
		})
		t.Logf("%d MB of log retained", low>>20)
		r.kill()
	}
	f.once(t)
	if n, sum := number(t, to, "select count(*) from quiet"), number(t, to, "select sum(id)::int8 from quiet"); n != 7 || sum != 21 {
		t.Errorf("%d rows, sum %d", n, sum)
	}
}

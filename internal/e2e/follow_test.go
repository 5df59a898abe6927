package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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

// followedTable is one table of the source, and how its rows are picked.
type followedTable struct {
	name string
	ddl  string
	// key is an SQL expression for a random key, from a number.
	insert func(r *rand.Rand, n int64) string // an INSERT
	pick   string                             // a condition that picks few rows, with %d for a number
	move   string                             // an assignment that changes the key, with %d for a fresh number; empty: keys don't change
}

const wideColumns = `, i2 smallint, i4 int, f4 real, f8 double precision, amount numeric(20,5), any_num numeric, txt text, vc varchar(30),
	raw bytea, flag boolean, d date, tod time, ts timestamp, tz timestamptz, uid uuid, j json, jb jsonb, ip inet, mood mood,
	ints int[], texts text[]`

// wideValues are values of wideColumns, from a number.
func wideValues(r *rand.Rand, n int64) string {
	if r.IntN(12) == 0 {
		return strings.Repeat(", NULL", 21)
	}
	return fmt.Sprintf(`, %d, %d, %d.5, %d.25::float8 / 3, %d.12345, 1%0*d.5, 'it''s "%d" \ é', 'v%d', '\x00ff%02x', %t, date '2026-01-01' + %d,
		time '12:34:56.789' + %d * interval '1 second', timestamp '0044-03-15 12:00:00' + %d * interval '1 day',
		timestamptz '2026-01-01 00:00:00.123456Z' + %d * interval '1 hour', md5('%d')::uuid, '{"a": %d}', '{"b": [%d, null]}',
		'10.0.%d.1/24', '%s', '{%d,NULL,3}', '{"a,b","c\"d",%d}'`,
		n%30000, n, n%1000, n, n%100000, r.IntN(25)+1, 0, n, n, n%256, n%2 == 0, n%1000, n%1000, n%3000, n%9000, n, n, n, n%256,
		[]string{"sad", "it''s ok"}[n%2], n, n)
}

func toast(r *rand.Rand, n int64) string {
	switch r.IntN(4) {
	case 0:
		return "NULL"
	case 1:
		return fmt.Sprintf("repeat('%032x', 300)", n*0x9E3779B97F4A7C1)
	default:
		return fmt.Sprintf("'short %d'", n)
	}
}

func followedTables() []followedTable {
	var ts []followedTable
	for i := range 4 {
		name := fmt.Sprintf("plain%d", i)
		ts = append(ts, followedTable{
			name: name, ddl: `create table ` + name + ` (id bigint primary key, n int not null, doc text)`,
			insert: func(r *rand.Rand, n int64) string {
				return fmt.Sprintf(`insert into %s values (%d, %d, %s) on conflict do nothing`, name, n, n, toast(r, n))
			},
			pick: "id %% 997 = %d %% 997", move: "id = -id - %d",
		})
	}
	ts = append(ts,
		followedTable{
			name: "wide", ddl: `create table wide (id int primary key, n int not null, doc text` + wideColumns + `)`,
			insert: func(r *rand.Rand, n int64) string {
				return fmt.Sprintf(`insert into wide values (%d, %d, %s%s) on conflict do nothing`, n, n, toast(r, n), wideValues(r, n))
			},
			pick: "id %% 997 = %d %% 997", move: "id = -id - %d",
		},
		followedTable{
			name: "wide_full", ddl: `create table wide_full (id int primary key, n int not null, doc text` + wideColumns +
				`); alter table wide_full replica identity full`,
			insert: func(r *rand.Rand, n int64) string {
				return fmt.Sprintf(`insert into wide_full values (%d, %d, %s%s) on conflict do nothing`, n, n, toast(r, n), wideValues(r, n))
			},
			pick: "id %% 997 = %d %% 997", move: "id = -id - %d",
		},
		followedTable{
			name: "composite", ddl: `create table composite (a text, b int, n int not null, doc text, primary key (a, b))`,
			insert: func(r *rand.Rand, n int64) string {
				return fmt.Sprintf(`insert into composite values ('%s%d', %d, %d, %s) on conflict do nothing`,
					[]string{"k", "K", "é", "_"}[n%4], n%50, n, n, toast(r, n))
			},
			pick: "b %% 997 = %d %% 997", move: "b = -b - %d",
		},
		followedTable{
			name: "by_uuid", ddl: `create table by_uuid (id uuid primary key, n int not null, doc text)`,
			insert: func(r *rand.Rand, n int64) string {
				return fmt.Sprintf(`insert into by_uuid values (md5('%d')::uuid, %d, %s) on conflict do nothing`, n, n, toast(r, n))
			},
			pick: "n %% 997 = %d %% 997",
		},
		followedTable{
			name: "by_index", ddl: `create table by_index (code text not null, n int not null, doc text);
				create unique index by_index_code on by_index (code); alter table by_index replica identity using index by_index_code`,
			insert: func(r *rand.Rand, n int64) string {
				return fmt.Sprintf(`insert into by_index values ('c%d', %d, %s) on conflict do nothing`, n, n, toast(r, n))
			},
			pick: "n %% 997 = %d %% 997", move: "code = code || '-%d'",
		},
		followedTable{
			name: "keyless", ddl: `create table keyless (n int, v text); alter table keyless replica identity full`,
			insert: func(_ *rand.Rand, n int64) string {
				return fmt.Sprintf(`insert into keyless values (%d, 'v%d'), (%d, 'v%d')`, n%500, n%7, n%500, n%7)
			},
			pick: "ctid in (select ctid from keyless where n %% 101 = %d %% 101 limit 1)",
		},
	)
	return ts
}

// follower runs leat sync as a process.
type follower struct {
	bin, state, source string
	targets            []string
	more               []string // flags
}

func (f *follower) command(extra ...string) *exec.Cmd {
	args := append([]string{"sync", f.source}, f.targets...)
	args = append(append(args, "--state", f.state, "--name", "followed"), f.more...)
	return exec.Command(f.bin, append(args, extra...)...)
}

// runFor starts the process and kills it after d. It fails where the process ends by itself.
func (f *follower) runFor(t *testing.T, d time.Duration) {
	t.Helper()
	cmd := f.command()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("leat sync ended by itself: %v\n%s", err, lastLines(out.String(), 30))
	case <-time.After(d):
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-ended //nolint:errcheck // it was killed
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (f *follower) once(t *testing.T) {
	t.Helper()
	cmd := f.command("--once")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("leat sync --once: %v\n%s", err, lastLines(string(out), 30))
	}
}

// TestFollowKillNine: four writers change ten tables of all types while the real program copies and follows them into Postgres, SQLite,
// DuckDB and two change logs; it is killed 25 times, its sinks stall and are cut off. At rest every target equals the source row for
// row, and the change logs hold every change once, in order.
//
// LEAT_FOLLOW_SECONDS makes it longer, LEAT_FOLLOW_SEED repeats the choices of one run.
//
// clauses E8, E9, E11, E12, W15, case C029, case C030, case C033, case C034, case C036, case C041, case C042, case C048, case C059,
// case C060, case C063.
func TestFollowKillNine(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	seed, seconds := uint64(time.Now().UnixNano()), 60
	if s, err := strconv.ParseUint(os.Getenv("LEAT_FOLLOW_SEED"), 10, 64); err == nil {
		seed = s
	}
	if s, err := strconv.Atoi(os.Getenv("LEAT_FOLLOW_SECONDS")); err == nil {
		seconds = s
	}
	t.Logf("LEAT_FOLLOW_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	source, target, began := pgtest.Database(t), pgtest.Database(t), time.Now()
	tables := followedTables()
	ddl := []string{"create type mood as enum ('sad', 'it''s ok')"}
	for _, tb := range tables {
		ddl = append(ddl, tb.ddl)
	}
	admin := pgtest.Conn(t, source)
	if _, err := admin.Exec(t.Context(), strings.Join(ddl, ";")); err != nil {
		t.Fatal(err)
	}
	work := workload{tables: tables, big: bigPostgres, emptied: []string{"plain3", "keyless", "by_uuid"}, next: counter()}
	for _, tb := range tables {
		rows := make([]string, 2000)
		for i := range rows {
			rows[i] = tb.insert(r, work.next())
		}
		if _, err := admin.Exec(t.Context(), strings.Join(rows, ";")); err != nil {
			t.Fatalf("%s: %v", tb.name, err)
		}
	}
	dir := t.TempDir()
	f := &follower{
		bin: buildWhole(t), state: filepath.Join(dir, "state"), source: source + "&tables=public.*&chunk_bytes=100000&refresh=1s",
		targets: []string{
			target, "sqlite:" + filepath.Join(dir, "t.db"), "duckdb:" + filepath.Join(dir, "t.duckdb"),
			"jsonl:" + filepath.Join(dir, "log") + "?every=300ms", "parquet:" + filepath.Join(dir, "plog") + "?every=1s",
		},
	}
	dropSlots(t, source)

	w := startWriters(t, seed, 4, work, func() session { return pgSession{pgtest.Conn(t, source)} })
	w.more(func(ctx context.Context) { disturb(ctx, t, rand.New(rand.NewPCG(seed, 99)), target) })
	budget := time.Duration(seconds) * time.Second / kills
	for range kills {
		f.runFor(t, budget/4+time.Duration(r.Int64N(int64(budget)*3/2)))
		w.check()
	}
	transactions := w.rest()
	t.Logf("%s: the writers rest", time.Since(began))
	f.once(t)
	t.Logf("%s: everything is followed", time.Since(began))

	t.Logf("%d transactions", transactions)
	equalTables(t, "Postgres", tables, source, target)
	t.Logf("%s: Postgres compared", time.Since(began))
	for i, fresh := range []string{"sqlite:" + filepath.Join(dir, "fresh.db"), "duckdb:" + filepath.Join(dir, "fresh.duckdb")} {
		sameCopies(t, f.bin, tables, f.targets[1+i], source, fresh)
	}
	t.Logf("%s: SQLite and DuckDB compared", time.Since(began))
	for _, tb := range tables {
		replay(t, admin, tb.name, filepath.Join(dir, "log", "public."+tb.name), jsonLines)
		replay(t, admin, tb.name, filepath.Join(dir, "plog", "public."+tb.name), parquetLines(f.bin))
	}
}

// disturb stalls the Postgres target and cuts its connections.
func disturb(ctx context.Context, t *testing.T, r *rand.Rand, target string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, target)
	if err != nil {
		return
	}
	defer conn.Close(context.Background()) //nolint:errcheck // the test is over
	time.Sleep(3 * time.Second)            // a run that never came to follow is not tried again
	for ctx.Err() == nil {
		sql := fmt.Sprintf("begin; lock table plain1 in access exclusive mode; select pg_sleep(%f); commit", 0.2+r.Float64())
		if r.IntN(2) == 0 {
			sql = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'leat'"
		}
		if _, err := conn.Exec(ctx, sql); err != nil {
			_, _ = conn.Exec(ctx, "rollback")
		}
		select {
		case <-time.After(time.Duration(r.IntN(4000)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// dropSlots removes the slots of the source's database when the test ends.
func dropSlots(t *testing.T, source string) {
	t.Helper()
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), source)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background()) //nolint:errcheck // the test is over
		for range 50 {
			_, err = conn.Exec(context.Background(), `select pg_terminate_backend(active_pid) from pg_replication_slots
				where database = current_database() and active_pid is not null`)
			if err == nil {
				_, err = conn.Exec(context.Background(),
					`select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()`)
			}
			if err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("dropping slots: %v", err)
	})
}

// equalTables compares tables of two Postgres databases row for row.
func equalTables(t *testing.T, what string, tables []followedTable, source, target string) {
	t.Helper()
	a, b := pgtest.Conn(t, source), pgtest.Conn(t, target)
	for _, tb := range tables {
		sql := `select r from (select md5(x::text) || ' ' || left(x::text, 300) r from public.` + tb.name + ` x) q order by r collate "C"`
		want, got := texts(t, a, sql), texts(t, b, sql)
		if slices.Equal(want, got) {
			continue
		}
		i := 0
		for i < min(len(want), len(got)) && want[i] == got[i] {
			i++
		}
		at := func(rows []string) string {
			if i < len(rows) {
				return rows[i]
			}
			return "nothing"
		}
		t.Errorf("%s: %s has %d rows, the source %d; the first difference is\n%s\nwhere the source has\n%s",
			what, tb.name, len(got), len(want), at(got), at(want))
	}
}

func texts(t *testing.T, c *pgx.Conn, sql string) []string {
	t.Helper()
	rows, err := c.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sameCopies compares what was followed with a plain copy of the source at rest into the same kind of target.
func sameCopies(t *testing.T, bin string, tables []followedTable, followed, source, fresh string) {
	t.Helper()
	run(t, bin, "copy", source+"&tables=public.*", fresh, "--state", t.TempDir())
	for _, tb := range tables {
		sameRows(t, bin, tb.name, followed+"?table="+tb.name, fresh+"?table="+tb.name)
	}
}

// sameRows compares a table that was followed with a fresh copy of it.
func sameRows(t *testing.T, bin, table, followed, fresh string) {
	t.Helper()
	want, got := jsonOf(t, bin, fresh), jsonOf(t, bin, followed)
	if slices.Equal(want, got) {
		return
	}
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	t.Errorf("%s: %s has %d rows, the source %d; the first difference is\n%.300s\nwhere the source has\n%.300s",
		followed, table, len(got), len(want), strings.Join(got[i:min(i+1, len(got))], ""), strings.Join(want[i:min(i+1, len(want))], ""))
}

// jsonOf returns the rows of a table as sorted lines; of long ones the beginning and a sum.
func jsonOf(t *testing.T, bin, from string) []string {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq(run(t, bin, "copy", from, "jsonl:-", "--state", t.TempDir()), "\n") {
		if len(line) > 300 {
			line = fmt.Sprintf("%s… %x", line[:300], sha256.Sum256([]byte(line)))
		}
		lines = append(lines, strings.Clone(line))
	}
	slices.Sort(lines)
	return lines
}

// run runs the program and returns its standard output.
func run(t *testing.T, bin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(bin, args...)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		t.Fatalf("leat %s: %v\n%s", strings.Join(args, " "), err, lastLines(messages.String(), 10))
	}
	return out.String()
}

// logged is one line of a change log.
type logged struct {
	Op     string          `json:"op"`
	Key    json.RawMessage `json:"key"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	Seq    int64           `json:"seq"`
}

// replayed is what a change log makes of a table: how many rows there are of each key, or of each row where the table has no key.
type replayed struct {
	what    string
	keyless bool
	rows    map[string]int
	lines   int
}

// replay applies a change log strictly: an insert of what is there, a change of what is not, or a line out of order is an error. What
// it ends with are the keys of the table.
func replay(t *testing.T, source *pgx.Conn, table, dir string, read func(t *testing.T, dir string, f func(logged))) {
	t.Helper()
	r, last := replayed{what: dir, keyless: table == "keyless", rows: map[string]int{}}, int64(-1)
	read(t, dir, func(l logged) {
		if l.Seq <= last {
			t.Fatalf("%s: seq %d comes behind %d", dir, l.Seq, last)
		}
		last = l.Seq
		r.apply(t, l)
	})
	var want int
	if err := source.QueryRow(t.Context(), "select count(*) from "+table).Scan(&want); err != nil {
		t.Fatal(err)
	}
	if count := r.count(); count != want {
		t.Errorf("%s ends with %d rows after %d lines, and the source has %d", dir, count, r.lines, want)
	}
}

// apply applies the next line.
func (r *replayed) apply(t *testing.T, l logged) {
	t.Helper()
	r.lines++
	keyless := r.keyless || l.Key == nil
	fault := func(why string) {
		t.Fatalf("%s: line %d (%s of %s, seq %d): %s", r.what, r.lines, l.Op, l.Key, l.Seq, why)
	}
	now, before := string(l.Key), string(l.Key)
	if keyless {
		now, before = string(l.After), string(l.Before)
	} else if moved := keyIn(l.Before, l.Key); moved != "" {
		before = moved
	}
	switch l.Op {
	case "t":
		clear(r.rows)
	case "c", "r":
		if r.rows[now] > 0 && !keyless {
			fault("it is there")
		}
		r.rows[now]++
	case "u", "d":
		if r.rows[before] == 0 {
			fault("there is no " + before)
		}
		if r.rows[before]--; r.rows[before] == 0 {
			delete(r.rows, before)
		}
		if l.Op == "u" {
			if r.rows[now] > 0 && !keyless {
				fault("it is there")
			}
			r.rows[now]++
		}
	default:
		fault("unknown operation")
	}
}

// count is how many rows there are.
func (r *replayed) count() int {
	count := 0
	for _, n := range r.rows {
		count += n
	}
	return count
}

// keyIn takes the key's columns out of a row; empty: it lacks one.
func keyIn(row, key json.RawMessage) string {
	var r, k map[string]json.RawMessage
	if json.Unmarshal(row, &r) != nil || json.Unmarshal(key, &k) != nil || r == nil {
		return ""
	}
	dec := json.NewDecoder(bytes.NewReader(key))
	out := []byte{'{'}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return ""
		}
		name, ok := tok.(string)
		if !ok {
			continue
		}
		v, ok := r[name]
		if !ok || string(v) == "null" {
			return ""
		}
		var skip json.RawMessage
		if dec.Decode(&skip) != nil {
			return ""
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, strconv.Quote(name)...), ':'), v...)
	}
	return string(append(out, '}'))
}

// jsonLines reads the files of a folder in order.
func jsonLines(t *testing.T, dir string, f func(logged)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no files: %v", dir, err)
	}
	slices.Sort(files)
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var l logged
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			f(l)
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// parquetLines reads Parquet files by way of JSON Lines.
func parquetLines(bin string) func(t *testing.T, dir string, f func(logged)) {
	return func(t *testing.T, dir string, f func(logged)) {
		t.Helper()
		out := run(t, bin, "copy", "parquet:"+filepath.Join(dir, "*.parquet"), "jsonl:-", "--state", t.TempDir())
		for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
			var l struct {
				Op     string          `json:"_op"`
				Seq    int64           `json:"_seq"`
				Before json.RawMessage `json:"_before"`
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			f(logged{Op: l.Op, Seq: l.Seq})
		}
	}
}

var wholeBinary = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(binDir, "leat-whole")
	cmd := exec.Command("go", "build", "-tags", "duckdb_arrow", "-o", bin, "github.com/leatdata/leat/cmd/leat")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building leat: %w\n%s", err, out)
	}
	return bin, nil
})

// buildWhole is the real binary with all connectors.
func buildWhole(t *testing.T) string {
	t.Helper()
	bin, err := wholeBinary()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

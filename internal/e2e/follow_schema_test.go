package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/internal/pgtest"
)

// scenario follows one database into another one, step by step.
type scenario struct {
	t        *testing.T
	from, to *pgx.Conn
	f        *follower
	r        *running
}

func newScenario(t *testing.T, ddl string, more ...string) *scenario {
	t.Helper()
	source, target := pgtest.Database(t), pgtest.Database(t)
	s := &scenario{t: t, from: pgtest.Conn(t, source), to: pgtest.Conn(t, target)}
	execute(t, s.from, ddl)
	dropSlots(t, source)
	s.f = &follower{
		bin: buildLeat(t), state: filepath.Join(t.TempDir(), "state"), source: source + "&tables=public.*&refresh=500ms",
		targets: append([]string{target}, more...),
	}
	s.r = s.f.start(t)
	return s
}

// do changes the source.
func (s *scenario) do(sql string) {
	s.t.Helper()
	execute(s.t, s.from, sql)
}

// same waits until the tables are equal, columns included.
func (s *scenario) same(tables ...string) {
	s.t.Helper()
	for _, name := range tables {
		sql := "select to_jsonb(x)::text from " + name + ` x order by 1`
		var want, got []string
		equal := func() bool {
			want, got = column(s.from, sql), column(s.to, sql)
			return slices.Equal(want, got)
		}
		for end := time.Now().Add(30 * time.Second); !equal(); time.Sleep(100 * time.Millisecond) {
			select {
			case err := <-s.r.done:
				s.r.done = nil
				s.t.Fatalf("leat sync ended by itself: %v\n%s", err, lastLines(s.r.out.String(), 20))
			default:
			}
			if time.Now().After(end) {
				s.t.Fatalf("%s stays\n%.2000s\nwhere the source has\n%.2000s\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"),
					lastLines(s.r.out.String(), 15))
			}
		}
	}
}

// crash kills the process and starts another one.
func (s *scenario) crash() {
	s.t.Helper()
	s.r.kill()
	s.r = s.f.start(s.t)
}

func column(c *pgx.Conn, sql string) []string {
	rows, err := c.Query(context.Background(), sql)
	if err != nil {
		return []string{err.Error()}
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return []string{err.Error()}
	}
	return out
}

// Columns are added, renamed, retyped and dropped while the table is followed, with a crash in between.
//
// clause E15, case C037, case C038.
func TestColumnsChange(t *testing.T) {
	s := newScenario(t, `create table items (id int primary key, a int, gone text, v varchar(5)); insert into items values (1, 1, 'x', 'v')`)
	s.same("items")
	s.do(`alter table items add column c int default 7; insert into items values (2, 2, 'y', 'w', 8)`)
	s.same("items")
	s.crash()
	s.do(`insert into items values (3, 3, 'z', 'w')`)
	s.same("items")
	s.do(`alter table items add column d text; update items set d = 'd' where id = 1`)
	s.r.kill()
	s.do(`insert into items values (4, 4, 'z', 'w', null, 'late')`)
	s.r = s.f.start(t)
	s.same("items")
	s.do(`alter table items rename a to b; insert into items values (5, 5, 'z', 'w', 1, '')`)
	s.same("items")
	s.do(`alter table items alter b type bigint; insert into items values (6, 3000000000, 'z', 'w', 1, '')`)
	s.same("items")
	s.do(`alter table items alter v type varchar(50); insert into items values (7, 7, 'z', 'much longer than before', 1, '')`)
	s.same("items")
	s.do(`alter table items drop column gone; insert into items values (8, 8, 'v', 1, '')`)
	s.same("items")
	s.crash()
	s.do(`update items set b = b + 1; delete from items where id = 2`)
	s.same("items")
}

// A target keeps its columns where the policy says so, also over a restart, and gets everything once the policy is another one.
//
// clause E15, case C038.
func TestColumnsIgnored(t *testing.T) {
	s := newScenario(t, `create table items (id int primary key, a int, b text); insert into items values (1, 1, 'x')`)
	s.same("items")
	s.r.kill()
	s.f.more = []string{"--schema", "public.items=ignore"}
	s.r = s.f.start(t)
	kept := func(want string) {
		t.Helper()
		s.r.until(30*time.Second, want, func() bool {
			return strings.Join(column(s.to, "select to_jsonb(x)::text from items x order by id"), " ") == want
		})
	}
	s.do(`alter table items add column c int default 7; alter table items drop column b; insert into items values (2, 2, 8)`)
	kept(`{"a": 1, "b": "x", "id": 1} {"a": 2, "b": null, "id": 2}`)
	s.crash()
	s.do(`insert into items values (3, 3, 9); update items set a = 10 where id = 1`)
	kept(`{"a": 10, "b": "x", "id": 1} {"a": 2, "b": null, "id": 2} {"a": 3, "b": null, "id": 3}`)
	s.r.kill()
	s.f.more = nil
	s.r = s.f.start(t)
	s.do(`insert into items values (4, 4, 4)`)
	kept(`{"a": 10, "b": "x", "c": 7, "id": 1} {"a": 2, "b": null, "c": 8, "id": 2} {"a": 3, "b": null, "c": 9, "id": 3} ` +
		`{"a": 4, "b": null, "c": 4, "id": 4}`)
}

// A table that matches the pattern joins by itself, with all its rows, and stays over a crash.
//
// clause S28, case C064, case C110.
func TestTableJoins(t *testing.T) {
	s := newScenario(t, `create table items (id int primary key); insert into items values (1)`)
	s.same("items")
	s.do(`create table later (id int primary key, v text); insert into later select i, 'v' || i from generate_series(1, 5000) i`)
	s.do(`update later set v = 'changed' where id % 10 = 0; delete from later where id % 10 = 1; insert into items values (2)`)
	s.same("later", "items")
	s.crash()
	s.do(`update later set v = 'again' where id = 10; insert into later values (0, 'zero')`)
	s.same("later", "items")
}

// A table that the target can't take fails alone, and says so; the others go on. Once the target is mended it is copied as a whole.
//
// case C064.
func TestOneTableFails(t *testing.T) {
	s := newScenario(t, `create table items (id int primary key); insert into items values (1)`)
	s.same("items")
	execute(t, s.to, `create view bad as select 1 as id`)
	s.do(`create table bad (id int primary key, v text); insert into bad values (1, 'one'), (2, 'two')`)
	s.r.until(30*time.Second, "word of the failure", func() bool { return strings.Contains(s.r.out.String(), "a dataset failed") })
	s.do(`insert into items values (2); insert into bad values (3, 'three'); update bad set v = 'changed' where id = 1`)
	s.same("items")
	s.crash() // it is tried again, and fails again
	s.do(`insert into items values (3)`)
	s.same("items")
	status := exec.Command(s.f.bin, "status", "followed", "--state", s.f.state)
	if out, err := status.CombinedOutput(); err == nil || !strings.Contains(string(out), "failed") {
		t.Errorf("leat status: %v\n%s", err, out)
	}
	s.r.kill()
	execute(t, s.to, `drop view bad`)
	s.r = s.f.start(t)
	s.do(`delete from bad where id = 2; insert into items values (4)`)
	s.same("bad", "items")
}

// A partitioned table is one dataset, whatever becomes of its partitions, and a row that moves to another one is still one row.
//
// case C035, case C066.
func TestPartitions(t *testing.T) {
	s := newScenario(t, `create table ev (id int, day date, v text, primary key (id, day)) partition by range (day);
		create table ev_1 partition of ev for values from ('2026-01-01') to ('2026-02-01');
		create table ev_2 partition of ev for values from ('2026-02-01') to ('2026-03-01');
		insert into ev values (1, '2026-01-05', 'a'), (2, '2026-02-05', 'b')`)
	s.same("ev")
	s.do(`insert into ev values (3, '2026-01-06', 'c'); update ev set day = '2026-02-07' where id = 3`)
	s.same("ev")
	s.do(`create table ev_3 partition of ev for values from ('2026-03-01') to ('2026-04-01'); insert into ev values (4, '2026-03-05', 'd')`)
	s.same("ev")
	s.do(`update ev set v = 'moved', day = '2026-03-06' where id = 1`)
	s.same("ev")
	if n := number(t, s.to, `select count(*) from pg_class where relname like 'ev\_%' and relkind = 'r'`); n != 0 {
		t.Errorf("%d partitions came as tables of their own", n)
	}
}

// Generated columns: the same columns by snapshot and by stream.
//
// case C031.
func TestGeneratedColumns(t *testing.T) {
	s := newScenario(t, `create table lines (id int primary key, q int, p int, total int generated always as (q * p) stored);
		insert into lines values (1, 2, 3), (2, 4, 5), (3, 6, 7)`)
	same := func(want string) {
		t.Helper()
		s.r.until(30*time.Second, want, func() bool {
			return strings.Join(column(s.to, "select to_jsonb(x)::text from lines x order by id"), " ") == want
		})
	}
	same(`{"p": 3, "q": 2, "id": 1} {"p": 5, "q": 4, "id": 2} {"p": 7, "q": 6, "id": 3}`)
	s.do(`update lines set q = 10 where id = 1; insert into lines values (4, 1, 1); delete from lines where id = 3`)
	same(`{"p": 3, "q": 10, "id": 1} {"p": 5, "q": 4, "id": 2} {"p": 1, "q": 1, "id": 4}`)
}

// One table is copied once more while it is written to and followed, into a table and into a log: nothing of the old pass comes behind
// the new one.
//
// case C044, case C061.
func TestResnapshot(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := newScenario(t, `create table items (id int primary key, n int not null, doc text);
		insert into items select i, i, repeat('x', 200) from generate_series(1, 20000) i`, "jsonl:"+log+"?every=200ms")
	s.same("items")
	ctx, stop := context.WithCancel(t.Context())
	writing := make(chan error, 1)
	url, _, _ := strings.Cut(s.f.source, "&tables")
	conn := pgtest.Conn(t, url)
	go func() {
		for i := 0; ; i++ {
			_, err := conn.Exec(ctx, fmt.Sprintf(`update items set n = n + 1 where id %% 500 = %d; delete from items where id = %d;
				insert into items values (%d, 0, 'new')`, i%500, i*7%20000, 20001+i))
			if ctx.Err() != nil || err != nil {
				writing <- ctx.Err()
				return
			}
		}
	}()
	execute(t, s.to, "delete from items where id % 3 = 0; update items set doc = 'spoilt' where id % 3 = 1") // somebody meddled
	s.r.kill()
	again := s.f.command("--resnapshot", "public.items", "--once")
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, lastLines(string(out), 20))
	}
	s.r = s.f.start(t)
	before := number(t, s.to, "select max(id) from items")
	s.r.until(30*time.Second, "more rows", func() bool { return number(t, s.to, "select max(id) from items") > before })
	stop()
	<-writing //nolint:errcheck // it was stopped
	s.same("items")
	s.r.kill()
	s.f.once(t)
	replay(t, s.from, "items", filepath.Join(log, "public.items"), jsonLines)
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/internal/cli"
	"github.com/leatdata/leat/internal/deadletter"
	"github.com/leatdata/leat/internal/pgtest"
)

// clause E13
// case C101: the same with PostgreSQL as the target, from which the letter has the code of the refusal.
func TestDeadLettersPostgres(t *testing.T) {
	source, target, dir := pgtest.Database(t), pgtest.Database(t), t.TempDir()
	for url, sql := range map[string]string{
		source: "create table orders(id int primary key, total numeric(10,2), at timestamptz, note text[]);" +
			"insert into orders select i, i + 0.25, timestamptz '2025-01-01 12:00+02' + i * interval '1s', array['a', null, i::text] from generate_series(1, 1000) i",
		target: "create table orders(id int primary key, total numeric(10,2), at timestamptz, note text[], constraint not_500 check (id <> 500))",
	} {
		if err := pgExec(t.Context(), url, sql, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.Command("leat", append(args, "--state", dir)...)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Fatalf("leat %s ended with %d, want %d: %v\n%s", strings.Join(args, " "), code, want, err, out)
		}
		return string(out)
	}
	what := []string{source + "&table=orders", target, "--name", "orders", "--mode", "upsert"}
	if !strings.Contains(source, "?") {
		what[0] = source + "?table=orders"
	}
	if out := run(cli.ExitFailed, append([]string{"copy"}, what...)...); !strings.Contains(out, `"id":500`) {
		t.Errorf("policy stop names no row:\n%s", out)
	}
	run(cli.ExitSetAside, append([]string{"copy", "--set-aside", "-q"}, what...)...)
	var l struct {
		Code string `json:"code"`
		Row  struct {
			Total json.Number `json:"total"`
			Note  []string    `json:"note"`
		} `json:"row"`
	}
	if err := json.Unmarshal([]byte(run(cli.ExitOK, "dlq", "show", "orders", "--json")), &l); err != nil {
		t.Fatal(err)
	}
	if l.Code != "23514" || l.Row.Total != "500.25" || len(l.Row.Note) != 3 {
		t.Errorf("the letter is %+v", l)
	}
	replay := append([]string{"dlq", "replay", "--yes", "-q"}, what...)
	run(cli.ExitSetAside, replay...)
	if err := pgExec(t.Context(), target, "alter table orders drop constraint not_500", io.Discard); err != nil {
		t.Fatal(err)
	}
	if out := run(cli.ExitOK, replay...); !strings.Contains(out, "1 row written") {
		t.Errorf("replaying said:\n%s", out)
	}
	var sums [2]strings.Builder
	for i, url := range []string{source, target} {
		if err := pgExec(t.Context(), url, "select count(*), md5(string_agg(o::text, '|' order by id)) from orders o", &sums[i]); err != nil {
			t.Fatal(err)
		}
	}
	if sums[0].String() != sums[1].String() {
		t.Errorf("the source is %s, the target %s", sums[0].String(), sums[1].String())
	}
	if out := run(cli.ExitOK, "dlq", "list"); !strings.Contains(out, "no row is set aside") {
		t.Errorf("letters are left:\n%s", out)
	}
}

// clause E13
// case C063: exactly-once holds for dead letters, too: a run that is killed again and again leaves one letter for each bad row.
func TestDeadLettersKillNine(t *testing.T) {
	const every = 50
	source, _ := database(t, manyRows)
	target, conn := database(t, fmt.Sprintf("pragma journal_mode=wal; create table items(id integer primary key, name text, check (id %% %d <> 0))", every))
	state, letters := t.TempDir(), filepath.Join(t.TempDir(), "letters.db")
	args := []string{
		"copy", source, "sqlite:" + target, "--set-aside", "--guarantee", "exactly-once", "--name", "items", "--state", state,
		"--batch-rows", "100", "--commit-bytes", "1kB", "--dead-letters", "sqlite:" + letters,
	}
	for range 4 {
		l := start(t, args...)
		before := count(t, conn)
		l.until("progress", progress(float64(max(before, 1000))/4))
		if err := l.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for l.lines.Scan() { // to its end
		}
		_ = l.cmd.Wait() // it was killed
	}
	if n := count(t, conn); n >= manyCount-manyCount/every {
		t.Errorf("all %d rows were there before the end: nothing was killed", n)
	}
	l := start(t, args...)
	if code := l.wait(); code != cli.ExitSetAside {
		t.Fatalf("ended with %d:\n%s", code, strings.Join(l.all, "\n"))
	}
	if n := count(t, conn); n != manyCount-manyCount/every {
		t.Errorf("%d rows in the end", n)
	}
	if sum := sqliteText(t, letters, "select count(*), count(distinct key), count(distinct id) from dead_letters"); sum != "400|400|400" {
		t.Errorf("the sink of letters has %s", sum)
	}
	store := deadletter.New(filepath.Join(state, "dead.db"))
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	keys := map[string]int64{}
	err := store.Each(t.Context(), deadletter.Filter{Pipeline: "items"}, func(l deadletter.Letter) error {
		keys[string(l.Key)] += l.Times
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, n := range keys {
		if n != 1 {
			t.Errorf("%s: %d letters", key, n)
		}
	}
	if len(keys) != manyCount/every {
		t.Errorf("%d rows have letters, want %d", len(keys), manyCount/every)
	}
}

// sqliteText is the one row of a query, with | between the columns.
func sqliteText(t *testing.T, path, query string) string {
	t.Helper()
	conn, err := sqlite.OpenConn(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	var cells []string
	err = sqlitex.Execute(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		for i := range stmt.ColumnCount() {
			cells = append(cells, stmt.ColumnText(i))
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(cells, "|")
}

// clause E13: a replay that is killed at any moment writes no row twice and loses none, also where rows are appended.
func TestReplayKillNine(t *testing.T) {
	const rows = 4000
	source, _ := database(t, fmt.Sprintf(`create table items(id integer primary key, name text);
		with recursive n(i) as (select 1 union all select i + 1 from n where i < %d) insert into items select i, 'item number ' || i from n`, rows))
	target, conn := database(t, "pragma journal_mode=wal; create table items(id integer, name text); create trigger no before insert on items begin select raise(abort, 'no'); end")
	state := t.TempDir()
	what := []string{source, "sqlite:" + target, "--name", "items", "--state", state, "--batch-rows", "100"}
	if code := start(t, append([]string{"copy", "--set-aside"}, what...)...).wait(); code != cli.ExitSetAside {
		t.Fatalf("copying ended with %d", code)
	}
	if err := sqlitex.ExecuteTransient(conn, "drop trigger no", nil); err != nil {
		t.Fatal(err)
	}
	replay := append([]string{"dlq", "replay", "--yes", "-q"}, what...)
	killed := 0
	for wait := 40 * time.Millisecond; ; wait += 15 * time.Millisecond { // from before its first row to after its last
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		out, err := exec.CommandContext(ctx, "leat", replay...).CombinedOutput()
		late := ctx.Err() != nil
		cancel()
		if err == nil {
			break
		}
		if !late {
			t.Fatalf("%v\n%s", err, out)
		}
		killed++
	}
	if n := count(t, conn); n != rows || killed == 0 {
		t.Errorf("%d rows in the end, after %d kills", n, killed)
	}
	if got := sqliteText(t, target, "select count(distinct id) from items"); got != strconv.Itoa(rows) {
		t.Errorf("%s different rows", got)
	}
	if got := sqliteText(t, filepath.Join(state, "dead.db"), "select (select count(*) from letter), (select count(*) from queue)"); got != "0|0" {
		t.Errorf("letters and places are left: %s", got)
	}
}

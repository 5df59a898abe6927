package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/internal/cli"
	"github.com/leatdata/leat/internal/pgtest"
)

// A database is copied and followed by the real program. The server is the test's own: a slot waits for every transaction that is open
// in it. Each part has a database of its own.
func TestFollow(t *testing.T) {
	server := pgtest.Server(t, "wal_level=logical")
	database := func(t *testing.T) string {
		t.Helper()
		name, err := followed(t.Context(), server)
		if err != nil {
			t.Fatal(err)
		}
		return server.As("leat", name)
	}
	// clause E10
	t.Run("stop", func(t *testing.T) { stopFollowing(t, database(t)) })
	t.Run("example", func(t *testing.T) { followExample(t, database(t)) })
	t.Run("readme", func(t *testing.T) { followReadme(t, database(t)) })
	// cases C044, C049, C106
	t.Run("scripts", func(t *testing.T) { followScripts(t, server) })
}

// followed makes a database for something to follow.
func followed(ctx context.Context, server *pgtest.Cluster) (string, error) {
	name := "sync_" + strings.ToLower(rand.Text()[:8])
	return name, pgExec(ctx, server.URL(), "create database "+name, io.Discard)
}

// followScripts runs the scripts, each with a database of its own, $PG, and the URL of a role that may do little there, $PGPOOR.
func followScripts(t *testing.T, server *pgtest.Cluster) {
	t.Helper()
	p := params("testdata/sync/*.txt")
	p.Cmds["pg"] = pgCommand
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		name, err := followed(context.Background(), server)
		if err != nil {
			return err
		}
		env.Setenv("PG", server.As("leat", name))
		env.Setenv("PGPOOR", server.As("poor", name))
		return setup(env)
	}
	testscript.Run(t, p)
}

// The commands of the README's section do what it says.
func followReadme(t *testing.T, url string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "## Follow a database")
	_, block, _ := strings.Cut(section, "```\n")
	block, _, _ = strings.Cut(block, "```")
	if err := pgExec(t.Context(), url, "create table t(id int primary key); insert into t values (1), (2)", io.Discard); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var ran []string
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, "#")
		args := strings.Fields(strings.ReplaceAll(command, "'postgres://app@db/shop'", url))
		ran = append(ran, args[1])
		if args[1] == "sync" {
			args = append(args, "--once")
		}
		leatIn(t, dir, nil, args[1:]...)
	}
	if !slices.Equal(ran, []string{"check", "sync"}) {
		t.Errorf("ran %s", ran)
	}
	if n := strings.Count(leatIn(t, dir, nil, "copy", "replica.db", "jsonl:-", "-q"), "\n"); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// pg SQL: runs statements on $PG, and prints rows with | between the columns.
func pgCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pg SQL")
	}
	ts.Check(pgExec(context.Background(), ts.Getenv("PG"), args[0], ts.Stdout()))
}

func pgExec(ctx context.Context, url, sql string, out io.Writer) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	for _, r := range results {
		for _, row := range r.Rows {
			if _, err := fmt.Fprintf(out, "%s\n", bytes.Join(row, []byte("|"))); err != nil {
				return err
			}
		}
	}
	return err
}

// The first signal ends the following of a source in good order, with 0; the same command goes on, and nothing is missing or doubled.
func stopFollowing(t *testing.T, url string) {
	t.Helper()
	conn := pgtest.Conn(t, url)
	run := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	run(`create table items(id int primary key, name text)`)
	run(`insert into items select i, 'item number ' || i from generate_series(1, 1000) i`)
	target, rows := database(t, "pragma journal_mode=wal; create table other(a)")
	args := []string{"sync", url, "sqlite:" + target, "--name", "stop", "--state", t.TempDir()}

	l := start(t, args...)
	l.until("the copy", func(m map[string]any) bool { return m["msg"] == "phase" && m["phase"] == "live" })
	run(`update items set name = 'changed' where id <= 10; delete from items where id > 990; insert into items values (2000, 'new')`)
	l.until("the changes", func(m map[string]any) bool {
		n, _ := m["changes"].(float64)
		return m["msg"] == "progress" && n >= 21
	})
	if err := l.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := l.wait(); code != cli.ExitOK {
		t.Fatalf("ended with %d:\n%s", code, strings.Join(l.all, "\n"))
	}
	if n := count(t, rows); n != 991 {
		t.Errorf("%d rows after the stop", n)
	}

	run(`insert into items select i, 'later' from generate_series(3000, 3008) i; delete from items where id = 1`)
	l = start(t, append(args, "--once")...)
	l.until("the end", func(m map[string]any) bool { return m["msg"] == "done" && m["resumed"] == true && m["changes"] == 10.0 })
	if code := l.wait(); code != cli.ExitOK {
		t.Errorf("ended with %d", code)
	}
	if n := count(t, rows); n != 999 {
		t.Errorf("%d rows in the end", n)
	}
	if got := text(t, rows, "select name from items where id = 2"); got != "changed" {
		t.Errorf("got %q", got)
	}
}

func text(t *testing.T, conn *sqlite.Conn, query string) string {
	t.Helper()
	out := ""
	err := sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		out = s.ColumnText(0)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A database with what the example is about is followed to the end of its changes, twice.
func followExample(t *testing.T, url string) {
	t.Helper()
	dir := sample(t)
	env := []string{"SHOP_URL=" + url}
	leatIn(t, dir, env, "run", "examples/orders-to-postgres.yaml", "-q")
	leatIn(t, dir, env, "run", "examples/postgres-follow.yaml", "--once", "-q")
	replica := func() int {
		return strings.Count(leatIn(t, dir, nil, "copy", "sqlite:examples/out/shop-replica.db?table=orders", "jsonl:-", "-q"), "\n")
	}
	if n := replica(); n != 500 {
		t.Errorf("%d rows", n)
	}
	conn := pgtest.Conn(t, url)
	if _, err := conn.Exec(t.Context(), `delete from public.orders where order_id <= 100010`); err != nil {
		t.Fatal(err)
	}
	out := leatIn(t, dir, env, "run", "examples/postgres-follow.yaml", "--once", "--json")
	if n := replica(); n != 490 || !strings.Contains(out, `"state":"done"`) {
		t.Errorf("%d rows, %s", n, out)
	}
	if out := leatIn(t, dir, env, "status", "examples/postgres-follow.yaml"); !strings.Contains(out, "\nok\n") {
		t.Error(out)
	}
	if out := leatIn(t, dir, env, "drop", "examples/postgres-follow.yaml", "--yes"); !strings.Contains(out, "dropped") {
		t.Error(out)
	}
}

package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	neturl "net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/internal/pgtest"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"leat": func() { os.Exit(run()) }})
}

// clause S31
// cases C103, C104, C105.
func TestScripts(t *testing.T) {
	testscript.Run(t, params("testdata/*.txt", "testdata/dlq/*.txt", "testdata/file/*.txt", "testdata/orders/*.txt"))
}

// case C103.
func TestPostgresScripts(t *testing.T) {
	url := pgtest.Database(t)
	role := nastyRole(t, url)
	p := params("testdata/postgres/*.txt")
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		u, err := neturl.Parse(url)
		if err != nil {
			return err
		}
		env.Setenv("PG", url)
		env.Setenv("PGHOSTPORT", u.Host)
		env.Setenv("PGDATABASE", strings.TrimPrefix(u.Path, "/"))
		env.Setenv("NASTY", nastyPassword)
		env.Setenv("NASTYROLE", role)
		return setup(env)
	}
	testscript.Run(t, p)
}

// nastyRole makes a role with a password of every special character, and a table that it may read.
func nastyRole(t *testing.T, url string) string {
	t.Helper()
	conn := pgtest.Conn(t, url)
	role := "leat_nasty_" + strings.ToLower(rand.Text()[:8])
	for _, sql := range []string{
		"create role " + role + " login password '" + nastyPassword + "'",
		"create table nasty as select 1 as id",
		"grant select on nasty to " + role,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := conn.Exec(ctx, "drop owned by "+role+"; drop role "+role); err != nil {
			t.Error(err)
		}
	})
	return role
}

func params(patterns ...string) testscript.Params {
	var files []string
	for _, p := range patterns {
		found, _ := filepath.Glob(p) // a bad pattern finds nothing, which Run refuses
		files = append(files, found...)
	}
	return testscript.Params{
		Files:               files,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("LEAT_STATE", filepath.Join(env.WorkDir, "state"))
			env.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits, "sqlite": sqliteCommand, "nopassword": noPassword, "csv": csvCommand},
	}
}

// nastyPassword is what case C103 asks for.
const nastyPassword = `p@s/s:w#d%^?&`

// nopassword: the last command showed no part of the password, in any encoding, and nothing that was saved has it.
func noPassword(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: nopassword")
	}
	for _, form := range []string{nastyPassword, "s:w#d", "w#d%^", neturl.QueryEscape(nastyPassword), "%23d%25", `w#d%^?\u0026`} {
		for _, stream := range []string{"stdout", "stderr"} {
			if strings.Contains(ts.ReadFile(stream), form) {
				ts.Fatalf("%s shows %q", stream, form)
			}
		}
		saved, err := filepath.Glob(filepath.Join(ts.Getenv("LEAT_STATE"), "*"))
		ts.Check(err)
		for _, file := range saved {
			if data, err := os.ReadFile(file); err == nil && strings.Contains(string(data), form) {
				ts.Fatalf("%s holds %q", file, form)
			}
		}
	}
}

// exits CODE ARGS...: leat ends with exactly this exit code. Its output is checked with stdout and stderr.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE ARGS...")
	}
	err := ts.Exec("leat", args[1:]...)
	code := "0"
	if err != nil {
		code = "?"
		if i := indexExit(err.Error()); i != "" {
			code = i
		}
	}
	if code != args[0] {
		ts.Fatalf("leat %q ended with %s, want %s (%v)", args[1:], code, args[0], err)
	}
}

// indexExit takes the code out of `exit status 3`.
func indexExit(text string) string {
	const prefix = "exit status "
	if len(text) > len(prefix) && text[:len(prefix)] == prefix {
		return text[len(prefix):]
	}
	return ""
}

// csv FILE ROWS LINE VALUE: writes a table of ids and totals whose total in one line is VALUE. Line 1 is the header.
func csvCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: csv FILE ROWS LINE VALUE")
	}
	rows, err := strconv.Atoi(args[1])
	ts.Check(err)
	text := []byte("id,total\n")
	for i := 1; i <= rows; i++ {
		value := strconv.Itoa(i * 3)
		if strconv.Itoa(i+1) == args[2] {
			value = args[3]
		}
		text = fmt.Appendf(text, "%d,%s\n", i, value)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text, 0o600))
}

// sqlite FILE SQL: runs statements, and prints rows with | between the columns, as the sqlite3 program does.
func sqliteCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sqlite FILE SQL")
	}
	conn, err := sqlite.OpenConn(ts.MkAbs(args[0]))
	ts.Check(err)
	defer func() { ts.Check(conn.Close()) }()
	ts.Check(sqlitex.ExecuteScript(conn, args[1], &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		cells := make([]string, stmt.ColumnCount())
		for i := range cells {
			cells[i] = stmt.ColumnText(i)
		}
		_, err := ts.Stdout().Write([]byte(strings.Join(cells, "|") + "\n"))
		return err
	}}))
}

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/internal/cli"
)

// database makes an SQLite file and runs a script in it; the connection stays open until the test ends.
func database(t *testing.T, script string) (string, *sqlite.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	conn, err := sqlite.OpenConn(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := sqlitex.ExecuteScript(conn, script, nil); err != nil {
		t.Fatal(err)
	}
	return path, conn
}

// manyCount is how many rows manyRows makes; with small batches and commits they take a while.
const manyCount = 20_000

const manyRows = `create table items(id integer primary key, name text);
	with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
	insert into items select i, 'item number ' || i from n`

// logged is a leat process whose log is read as it runs.
type logged struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	all   []string
}

func start(t *testing.T, args ...string) *logged {
	t.Helper()
	cmd := exec.Command("leat", append(args, "--log-format", "json", "--progress-every", "10ms")...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &logged{t: t, cmd: cmd, lines: bufio.NewScanner(stderr)}
}

// until reads the log until a record fits.
func (l *logged) until(what string, fits func(m map[string]any) bool) {
	l.t.Helper()
	for l.lines.Scan() {
		l.all = append(l.all, l.lines.Text())
		var m map[string]any
		if err := json.Unmarshal(l.lines.Bytes(), &m); err == nil && fits(m) {
			return
		}
	}
	l.t.Fatalf("the log ended without %s:\n%s", what, strings.Join(l.all, "\n"))
}

// wait reads the rest of the log and returns the exit code.
func (l *logged) wait() int {
	l.t.Helper()
	for l.lines.Scan() {
		l.all = append(l.all, l.lines.Text())
	}
	err := l.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return 0
}

func progress(rows float64) func(m map[string]any) bool {
	return func(m map[string]any) bool {
		n, _ := m["rows"].(float64)
		return m["msg"] == "progress" && n > rows
	}
}

// case C106: progress grows from one record to the next, a blocked sink is reported as stalled, and so is that it goes on.
func TestProgressAndStall(t *testing.T) {
	source, _ := database(t, manyRows)
	target, lock := database(t, "pragma journal_mode=wal; create table other(a)")
	if err := sqlitex.ExecuteTransient(lock, "begin immediate", nil); err != nil {
		t.Fatal(err)
	}
	l := start(t, "copy", source, "sqlite:"+target+"?busy_timeout=1m", "--state", t.TempDir(), "--stalled-after", "50ms", "--batch-rows", "100", "--commit-bytes", "1kB")
	l.until("a stall", func(m map[string]any) bool { return m["stalled"] == true && m["msg"] == "stalled: nothing has moved" })
	if err := sqlitex.ExecuteTransient(lock, "rollback", nil); err != nil {
		t.Fatal(err)
	}
	l.until("going on", func(m map[string]any) bool { return m["stalled"] == false })
	var first float64
	l.until("progress", func(m map[string]any) bool {
		first, _ = m["rows"].(float64)
		return progress(0)(m)
	})
	l.until("more progress", progress(first))
	if code := l.wait(); code != cli.ExitOK {
		t.Errorf("ended with %d:\n%s", code, strings.Join(l.all, "\n"))
	}
}

// clause E10
// The first signal ends a run in good order; the same command goes on, and nothing is missing or doubled.
func TestInterrupt(t *testing.T) {
	source, _ := database(t, manyRows)
	target, conn := database(t, "pragma journal_mode=wal; create table other(a)")
	args := []string{"copy", source, "sqlite:" + target, "--state", t.TempDir(), "--batch-rows", "100", "--commit-bytes", "1kB"}
	l := start(t, args...)
	l.until("progress", progress(0))
	if err := l.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := l.wait(); code != cli.ExitInterrupted {
		t.Fatalf("ended with %d:\n%s", code, strings.Join(l.all, "\n"))
	}
	if n := count(t, conn); n <= 0 || n >= manyCount {
		t.Errorf("%d rows after the interruption", n)
	}
	l = start(t, args...)
	l.until("the end", func(m map[string]any) bool { return m["msg"] == "done" && m["resumed"] == true })
	if code := l.wait(); code != cli.ExitOK {
		t.Errorf("ended with %d", code)
	}
	if n := count(t, conn); n != manyCount {
		t.Errorf("%d rows in the end", n)
	}
}

func count(t *testing.T, conn *sqlite.Conn) int64 {
	t.Helper()
	n := int64(-1)
	err := sqlitex.ExecuteTransient(conn, "select count(*) from items", &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		n = s.ColumnInt64(0)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

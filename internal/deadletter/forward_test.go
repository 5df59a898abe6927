package deadletter_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connectors/file"
	sqliteconn "github.com/leatdata/leat/connectors/sqlite"
	"github.com/leatdata/leat/internal/deadletter"
	"github.com/leatdata/leat/internal/engine"
)

func forwarder(t *testing.T, s *deadletter.Store, target deadletter.Target) *deadletter.Forwarder {
	t.Helper()
	f, err := deadletter.NewForwarder(s, "p", target, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func sqliteTarget(t *testing.T, path string) deadletter.Target {
	t.Helper()
	cfg := sqliteconn.NewSink()
	if err := cfg.SetURL(path); err != nil {
		t.Fatal(err)
	}
	return deadletter.Target{Connector: "sqlite", Config: cfg}
}

// table returns the rows of a query.
func table(t *testing.T, path, query string) []string {
	t.Helper()
	conn, err := sqlite.OpenConn(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var out []string
	err = sqlitex.Execute(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		cells := make([]string, stmt.ColumnCount())
		for i := range cells {
			cells[i] = stmt.ColumnText(i)
		}
		out = append(out, strings.Join(cells, "|"))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// clause E13: any sink can be the dead-letter sink. A letter that comes again, after a crash or because its epoch was not committed, is
// one row of a sink that writes by key.
func TestForwardToSQLite(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "letters.sqlite")
	s := open(t, filepath.Join(dir, "dead.db"))
	f := forwarder(t, s, sqliteTarget(t, target))
	unread := bad(1, 0)
	unread.Sink, unread.Raw, unread.Line, unread.Message = "", []byte{0xff}, 7, "nul \x00 and \xff"
	elsewhere := bad(1, 0)
	elsewhere.Pipeline = "another pipeline"
	must(t, f.Append(t.Context(), []engine.Rejected{bad(1, 1), bad(2, 1), unread, elsewhere}), f.Flush(t.Context()), f.End(t.Context()))
	must(t, f.Forget(t.Context(), "p", "r", "s", 0)) // a crash before the commit

	f = forwarder(t, s, sqliteTarget(t, target))
	must(t, f.Append(t.Context(), []engine.Rejected{bad(1, 1), bad(2, 1), bad(3, 2)}), f.Flush(t.Context()), f.End(t.Context()))
	got := table(t, target, `select pipeline, sink, key, line, class, message, hex(raw) from dead_letters order by sink, key`)
	want := []string{
		`p|||7|bad_value|nul ` + "\uFFFD and \uFFFD" + `|FF`,
		`p|s|{"id":1}||bad_value|no|726F772031`, `p|s|{"id":2}||bad_value|no|726F772032`, `p|s|{"id":3}||bad_value|no|726F772033`,
	}
	want[0] = strings.Replace(want[0], `p||`, `p||{"id":1}`, 1)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ids := table(t, target, `select id from dead_letters order by id`)
	for i, l := range letters(t, s, deadletter.Filter{Pipeline: "p"}) {
		if !strings.Contains(strings.Join(ids, " "), l.ID) {
			t.Errorf("letter %d: id %s is not in the sink: %s", i, l.ID, ids)
		}
	}
}

// clause E13: the same in JSON Lines, where letters are appended.
func TestForwardToJSONLines(t *testing.T) {
	dir := t.TempDir()
	cfg := file.NewSink(filepath.Join(dir, "letters") + "/")
	cfg.Log = true
	s := open(t, filepath.Join(dir, "dead.db"))
	for range 2 { // the second process has nothing to do
		f := forwarder(t, s, deadletter.Target{Connector: "file", Config: cfg})
		must(t, f.Append(t.Context(), []engine.Rejected{bad(1, 0), bad(2, 0)}), f.Flush(t.Context()), f.End(t.Context()))
	}
	var lines []string
	must(t, filepath.WalkDir(filepath.Join(dir, "letters"), func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.Contains(path, ".jsonl") {
			return err
		}
		data, err := os.ReadFile(path)
		lines = append(lines, strings.Split(strings.TrimSpace(string(data)), "\n")...)
		return err
	}))
	if len(lines) != 2 || !strings.Contains(lines[0], `"message":"no"`) {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

// clause E13: a dead-letter sink that fails stops the run, and nothing is lost.
func TestForwardFails(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "folder")
	must(t, os.Mkdir(blocked, 0o700))
	s := open(t, filepath.Join(dir, "dead.db"))
	f := forwarder(t, s, sqliteTarget(t, blocked))
	must(t, f.Append(t.Context(), []engine.Rejected{bad(1, 0)}), f.Flush(t.Context()))
	err := f.End(t.Context())
	if err == nil || !strings.Contains(err.Error(), "writing dead letters to sqlite") || !strings.Contains(err.Error(), "dead.db") {
		t.Errorf("got %v (%s), want which sink, and where the letters are", err, connector.HintOf(err))
	}
	must(t, os.Remove(blocked))
	f = forwarder(t, s, sqliteTarget(t, blocked))
	must(t, f.End(t.Context()))
	if got := table(t, blocked, `select count(*) from dead_letters`); got[0] != "1" {
		t.Errorf("%s letters, want the one of before", got[0])
	}
}

func TestTargetsThatCannot(t *testing.T) {
	replace := connector.Replace
	whole := deadletter.Target{Connector: "file", Config: file.NewSink("letters.parquet")}
	mode := sqliteTarget(t, "x.db")
	mode.Mode = &replace
	for _, target := range []deadletter.Target{whole, mode} {
		if _, err := target.Promise(); err == nil || connector.HintOf(err) == "" {
			t.Errorf("%s: got %v without a hint", target.Connector, err)
		}
	}
	p, err := sqliteTarget(t, "x.db").Promise()
	if err != nil || p.Mode != connector.Upsert || p.Reached != connector.ExactlyOnce {
		t.Errorf("sqlite promises %+v, %v", p, err)
	}
}

package sqlite_test

import (
	"testing"

	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// run executes a script on a file, as another program would.
func run(t testing.TB, path, script string) {
	t.Helper()
	c := open(t, path)
	defer c.Close() //nolint:errcheck // a test's own connection
	if err := sqlitex.ExecuteScript(c, script, nil); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string) *zombie.Conn {
	t.Helper()
	c, err := zombie.OpenConn(path, zombie.OpenReadWrite, zombie.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// query returns the first column of every row.
func query(t testing.TB, path, sql string) []string {
	t.Helper()
	c := open(t, path)
	defer c.Close() //nolint:errcheck // a test's own connection
	var out []string
	err := sqlitex.ExecuteTransient(c, sql, &sqlitex.ExecOptions{ResultFunc: func(st *zombie.Stmt) error {
		out = append(out, st.ColumnText(0))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// begin takes the write lock.
func begin(t testing.TB, c *zombie.Conn) {
	t.Helper()
	if err := sqlitex.ExecuteTransient(c, "BEGIN EXCLUSIVE", nil); err != nil {
		t.Fatal(err)
	}
}

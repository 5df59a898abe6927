package pgtest_test

import (
	"testing"

	"github.com/leatdata/leat/internal/pgtest"
)

func TestServer(t *testing.T) {
	c := pgtest.Server(t, "wal_level=logical", "application_name=it's ours")
	conn := pgtest.Conn(t, c.URL())
	var level, system string
	err := conn.QueryRow(t.Context(), `SELECT current_setting('wal_level'), (SELECT system_identifier::text FROM pg_control_system())`).
		Scan(&level, &system)
	if err != nil || level != "logical" {
		t.Errorf("wal_level %q, error %v", level, err)
	}
	if _, err := conn.Exec(t.Context(), `CREATE TABLE t AS SELECT 1 AS a`); err != nil {
		t.Fatal(err)
	}

	t.Run("a killed server starts again with what it had", func(t *testing.T) {
		c.Kill()
		c.Start()
		wantRows(t, c.URL(), 1)
	})
	t.Run("a standby follows, and leads when it is promoted", func(t *testing.T) {
		s := c.Standby()
		if _, err := pgtest.Conn(t, c.URL()).Exec(t.Context(), `INSERT INTO t VALUES (2)`); err != nil {
			t.Fatal(err)
		}
		s.CatchUp(c)
		wantRows(t, s.URL(), 2)
		if _, err := pgtest.Conn(t, s.URL()).Exec(t.Context(), `SELECT pg_promote()`); err != nil {
			t.Fatal(err)
		}
		if _, err := pgtest.Conn(t, s.URL()).Exec(t.Context(), `INSERT INTO t VALUES (3)`); err != nil {
			t.Error(err)
		}
	})
	t.Run("a copy has the same identity", func(t *testing.T) {
		c.Stop()
		other := c.Copy()
		other.Start()
		wantRows(t, other.URL(), 2)
		var same bool
		err := pgtest.Conn(t, other.URL()).
			QueryRow(t.Context(), `SELECT system_identifier::text = $1 FROM pg_control_system()`, system).Scan(&same)
		if err != nil || !same {
			t.Errorf("same %t, error %v", same, err)
		}
	})
}

func wantRows(t *testing.T, url string, want int) {
	t.Helper()
	var n int
	if err := pgtest.Conn(t, url).QueryRow(t.Context(), `SELECT count(*) FROM t`).Scan(&n); err != nil || n != want {
		t.Errorf("%d rows, want %d, error %v", n, want, err)
	}
}

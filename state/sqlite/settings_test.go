package sqlite

import (
	"path/filepath"
	"testing"

	"zombiezen.com/go/sqlite/sqlitex"
)

// clause E16: a commit is synced before it returns. The setting belongs to the connection, so only the inside sees it.
func TestSynchronous(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	conn := <-s.conn
	level, err := sqlitex.ResultInt(conn.Prep("pragma synchronous"))
	if err != nil || level != 2 {
		t.Errorf("synchronous is %d, error %v, want 2 (full)", level, err)
	}
	s.conn <- conn
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

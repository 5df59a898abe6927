// Package sqlitefile opens the SQLite files that leat keeps for itself: the state, the dead letters. They are private to their user, known
// by a number in their header, in WAL mode, and what was committed survives loss of power.
package sqlitefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/connector"
)

const busyTimeout = 10 * time.Second

// Kind is one kind of file.
type Kind struct {
	Name          string // for people: "the state file"
	Code          string // what its error codes begin with
	Hint          string // what to do where it can't be opened
	ApplicationID int64  // in SQLite's header: the file is ours
	Layout        int64  // PRAGMA user_version: a newer one is refused
	Schema        string // makes what lacks, in a transaction
}

// Open opens the file, and makes it, and its folder with mode 0700, if it does not exist. Errors are for people.
func (k Kind) Open(ctx context.Context, path string) (*sqlite.Conn, error) {
	conn, err := k.open(ctx, path)
	if err != nil {
		return nil, &connector.Error{
			Class: connector.ClassPermanent, Code: k.Code + ".open", Doing: "opening " + k.Name + " " + path, Err: err, Hint: k.Hint,
		}
	}
	return conn, nil
}

func (k Kind) open(ctx context.Context, path string) (*sqlite.Conn, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // SQLite alone would make it readable for all
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	err = k.prepare(ctx, conn)
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// walPages is after how many pages the log goes into the file, and is begun anew: about half a megabyte.
const walPages = 128

func (k Kind) prepare(ctx context.Context, conn *sqlite.Conn) (err error) {
	defer conn.SetInterrupt(conn.SetInterrupt(ctx.Done()))
	conn.SetBusyTimeout(busyTimeout)
	if err := sqlitex.ExecuteTransient(conn, "pragma synchronous = full", nil); err != nil {
		return err
	}
	if err := k.checkOwner(conn); err != nil {
		return err
	}
	for _, pragma := range []string{"journal_mode = wal", fmt.Sprintf("wal_autocheckpoint = %d", walPages)} {
		if err := sqlitex.ExecuteTransient(conn, "pragma "+pragma, nil); err != nil {
			return err
		}
	}
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	return sqlitex.ExecuteScript(conn, fmt.Sprintf("%s; pragma application_id = %d; pragma user_version = %d",
		k.Schema, k.ApplicationID, k.Layout), nil)
}

// checkOwner refuses a database that is not empty and not ours, and one of a newer layout.
func (k Kind) checkOwner(conn *sqlite.Conn) error {
	ask := func(query string) (n int64, err error) {
		err = sqlitex.ExecuteTransient(conn, query, &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			n = stmt.ColumnInt64(0)
			return nil
		}})
		return n, err
	}
	tables, err1 := ask("select count(*) from sqlite_schema")
	owner, err2 := ask("pragma application_id")
	version, err3 := ask("pragma user_version")
	switch err := errors.Join(err1, err2, err3); {
	case err != nil:
		return err
	case tables > 0 && owner != k.ApplicationID:
		return errors.New("it is a database of something else")
	case version > k.Layout:
		return fmt.Errorf("it has layout %d, and this program knows %d: use the version of leat that made it", version, k.Layout)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrInvalid) {
		err = nil // some systems can't sync folders
	}
	return errors.Join(err, d.Close())
}

// Explain turns an error of a use of the file into one for people; a use that the context ended gives the context's.
func (k Kind) Explain(ctx context.Context, path string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && sqlite.ErrCode(err).ToPrimary() == sqlite.ResultInterrupt {
		return ctx.Err()
	}
	e := &connector.Error{Class: connector.ClassPermanent, Code: k.Code + ".io", Doing: "using " + k.Name + " " + path, Err: err}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultBusy, sqlite.ResultLocked:
		e.Class = connector.ClassTransient
	case sqlite.ResultFull:
		e.Hint = "make room on the disk of " + path
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		e.Hint = "restore the file from a backup, or move it away to start over"
	default:
	}
	return e
}

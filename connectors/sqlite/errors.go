package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
)

// wrap gives an error of the database its class, its code and a hint. It returns nil for nil, and leaves errors alone that have a
// class already.
func wrap(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	if _, known := errors.AsType[*connector.Error](err); known {
		return err
	}
	e := &connector.Error{Class: connector.ClassPermanent, Doing: doing, Err: err}
	switch code := sqlite.ErrCode(err); code.ToPrimary() {
	case sqlite.ResultBusy, sqlite.ResultLocked:
		e.Class, e.Code = connector.ClassTransient, "sqlite.busy"
		e.Hint = "another program holds the database; end its transaction, or wait longer with busy_timeout=60s"
	case sqlite.ResultFull:
		e.Code, e.Hint = "sqlite.full", "make room on the disk and run the same command again: it goes on where it stopped"
	case sqlite.ResultReadOnly, sqlite.ResultPerm, sqlite.ResultAuth:
		e.Code, e.Hint = "sqlite.readonly", "the file and its folder must be writable, also for the -wal and -shm files beside it"
	case sqlite.ResultNotADB:
		e.Code, e.Class = "sqlite.notadb", connector.ClassConfig
		e.Hint = "the file is no SQLite database (or an encrypted one): check its name"
	case sqlite.ResultCantOpen:
		e.Code, e.Class, e.Hint = "sqlite.open", connector.ClassConfig, "check the path, and that the folder exists and may be entered"
	case sqlite.ResultCorrupt:
		e.Code, e.Hint = "sqlite.corrupt", "run PRAGMA integrity_check in the sqlite3 shell, and .recover to save what can be read"
	case sqlite.ResultIOErr:
		e.Code, e.Hint = "sqlite.io", "the system could not read or write the file: look at the disk and the system's log"
	case sqlite.ResultConstraint:
		e.Code = "sqlite.constraint"
	default:
		e.Code = "sqlite.error"
	}
	return e
}

// rowRefused reports whether the database refused this one row, and would take others.
func rowRefused(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultConstraint, sqlite.ResultMismatch, sqlite.ResultTooBig:
		return true
	default:
		return false
	}
}

func configError(code, doing string, err error) *connector.Error {
	return &connector.Error{Class: connector.ClassConfig, Code: code, Doing: doing, Err: err}
}

// statError says that a file is not there before SQLite says less.
func statError(path string, err error) error {
	e := configError("sqlite.open", "opening "+path, err)
	if errors.Is(err, fs.ErrNotExist) {
		e.Err, e.Hint = errors.New("there is no such file"), "check the path: it is relative to the folder that leat was started in"
	}
	return e
}

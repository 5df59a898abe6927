package mysql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/mybinlog"
)

// lockPatience bounds how long writers of a table may have to wait where a server has no GTIDs: whole seconds are all it knows.
const lockPatience = 1

// politely is how often a lock is asked for that writers go before. Where they never leave off, the next ones make them wait.
const politely = 3

// locked begins a chunk's transaction on a server without GTIDs. Nothing tells there which transactions are on their way, so for a moment
// none may write to the table: what the log has then is what the snapshot sees of it. Not ok: the lock was not to be had in time.
func (s *Source) locked(ctx context.Context, w *wire, t *sourceTable, out snapshot, try int) (_ snapshot, ok bool, err error) {
	_, srv, err := s.server(ctx)
	if err != nil {
		return out, false, err
	}
	out.gtids, out.exact = mybinlog.NewGTIDSet(mybinlog.MySQL), true
	how := " READ"
	if try >= politely {
		how = " WRITE"
	}
	err = s.borrow(ctx, func(l *wire) error {
		if err := l.exec(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", lockPatience)); err != nil {
			return err
		}
		began := time.Now()
		if err := l.exec(ctx, "LOCK TABLES "+t.rel.String()+how); err != nil {
			if e, said := serverErrorOf(err); said && e.number == errLockWait {
				return l.exec(ctx, lockedOut)
			}
			return s.lockError(t, err)
		}
		err := w.exec(ctx, beginSQL)
		if err == nil {
			out.place, err = l.logPlace(ctx, srv)
		}
		ok = err == nil
		err = errors.Join(err, l.exec(ctx, "UNLOCK TABLES"))
		if took := time.Since(began); try >= politely {
			s.env.Log.WarnContext(ctx, "writers of a table had to wait for a snapshot; with gtid_mode=ON none has to",
				slog.String("dataset", t.dataset), slog.Duration("at_most", took))
		}
		return errors.Join(err, l.exec(ctx, lockedOut))
	})
	return out, ok && err == nil, err
}

// lockedOut gives a session back what it had before.
const lockedOut = "SET SESSION lock_wait_timeout = 60"

// lockError explains what keeps a table from being locked.
func (s *Source) lockError(t *sourceTable, err error) error {
	wrapped := s.cfg.wrap("locking the table for a moment, as the server has no GTIDs", err)
	if e, ok := errors.AsType[*connector.Error](wrapped); ok {
		e.Dataset = t.dataset
		if e.Class != connector.ClassTransient {
			e.Hint = "GRANT LOCK TABLES ON " + ident(t.rel.database) + ".* TO …; or let the server have GTIDs: gtid_mode=ON needs no lock"
		}
	}
	return wrapped
}

// settled is what is visible for sure on a server without GTIDs: what the log has when nobody is writing.
func (w *wire) settled(ctx context.Context, srv server, out snapshot) (snapshot, error) {
	var err error
	out.exact = true
	out.place, err = w.logPlace(ctx, srv)
	return out, err
}

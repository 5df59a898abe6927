package mysql

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/mybinlog"
)

// preparedMemory is how much of a prepared transaction is kept in memory; the rest is in a file.
const preparedMemory = 4 << 20

// prepared is a transaction of XA: its rows stand in the log where it was prepared, and count where it is committed. A stream has to read
// them again if it is resumed in between, so that nothing behind them is a position until then.
type prepared struct {
	xid    string
	events []byte // each behind its length, in memory
	file   *os.File
	stored int64
}

// keep adds an event.
func (x *prepared) keep(event []byte) error {
	x.events = binary.BigEndian.AppendUint32(x.events, uint32(len(event)))
	x.events = append(x.events, event...)
	if len(x.events) < preparedMemory {
		return nil
	}
	if x.file == nil {
		var err error
		if x.file, err = os.CreateTemp("", "leat-xa-*"); err != nil {
			return fmt.Errorf("keeping a prepared transaction: %w", err)
		}
	}
	if _, err := x.file.WriteAt(x.events, x.stored); err != nil {
		return fmt.Errorf("keeping a prepared transaction: %w", err)
	}
	x.stored += int64(len(x.events))
	x.events = x.events[:0]
	return nil
}

// drop forgets the transaction.
func (x *prepared) drop(ctx context.Context, log *slog.Logger) {
	if x.file == nil {
		return
	}
	err := errors.Join(x.file.Close(), os.Remove(x.file.Name()))
	x.file = nil
	if err != nil {
		log.WarnContext(ctx, "removing the file of a prepared transaction", slog.Any("error", err))
	}
}

// preparedReplay reads the events of a transaction that is committed.
type preparedReplay struct {
	*prepared

	in  *bufio.Reader
	now []byte // the present event; nil: not read yet
}

func (x *prepared) replay() *preparedReplay {
	var in io.Reader = strings.NewReader(string(x.events))
	if x.file != nil {
		in = io.MultiReader(io.NewSectionReader(x.file, 0, x.stored), in)
	}
	return &preparedReplay{prepared: x, in: bufio.NewReader(in)}
}

func (r *preparedReplay) next() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r.in, size[:]); err != nil {
		return nil, err //nolint:wrapcheck // io.EOF is the end
	}
	event := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r.in, event); err != nil {
		return nil, fmt.Errorf("reading back a prepared transaction: %w", err)
	}
	return event, nil
}

// xaStatement uses a statement about a transaction of XA.
func (f *stream) xaStatement(ctx context.Context, sql string) error {
	verb, xid, _ := strings.Cut(strings.TrimSpace(sql[2:]), " ")
	switch strings.ToUpper(verb) {
	case "START", "BEGIN":
		f.open = true
		f.xa = &prepared{xid: xidOf(xid)}
		return nil
	case "COMMIT", "ROLLBACK":
		at := slices.IndexFunc(f.pending, func(x *prepared) bool { return x.xid == xidOf(xid) })
		if at < 0 { // it was prepared before the stream began, or has no rows that concern it
			f.unknownXA = true
			return f.commit(ctx)
		}
		x := f.pending[at]
		f.pending = slices.Delete(f.pending, at, at+1)
		if strings.EqualFold(verb, "COMMIT") {
			f.again = x.replay()
			return nil
		}
		x.drop(ctx, f.s.env.Log)
		return f.commit(ctx)
	}
	return nil // XA END
}

// How long a stream waits to begin behind transactions of XA that are prepared.
const (
	preparedPatience = 30 * time.Second
	preparedPause    = 100 * time.Millisecond
)

// awaitPrepared waits until no transaction of XA is prepared, and reports whether it had to: then the log went on. The rows of such a
// one are in the log already, where a stream that begins now does not read, and not in any snapshot before it is committed.
func (f *stream) awaitPrepared(ctx context.Context) (waited bool, err error) {
	for end := time.Now().Add(preparedPatience); ; waited = true {
		found, err := ask(ctx, f.db, "XA RECOVER")
		if e, ok := serverErrorOf(err); ok && (e.number == errRecover || e.number == errPrivilege) {
			return false, f.warnOfPrepared(ctx)
		}
		switch {
		case err != nil:
			return false, f.s.cfg.wrap("looking for prepared transactions", err)
		case len(found) == 0:
			return waited, nil
		case time.Now().After(end):
			return false, &connector.Error{
				Class: connector.ClassTransient, Code: "mysql.prepared", Doing: "beginning to follow the tables",
				Err:  fmt.Errorf("%d transactions of XA are prepared and neither committed nor rolled back", len(found)),
				Hint: "XA RECOVER CONVERT XID lists them; end each by XA COMMIT or XA ROLLBACK",
			}
		}
		pause := time.NewTimer(preparedPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return false, fmt.Errorf("waiting for prepared transactions: %w", ctx.Err())
		case <-pause.C:
		}
	}
}

// warnOfPrepared is for users that may not list prepared transactions, where the server has had any.
func (f *stream) warnOfPrepared(ctx context.Context) error {
	used, err := ask(ctx, f.db, "SHOW GLOBAL STATUS WHERE Variable_name = 'Com_xa_prepare' AND Value > 0")
	if err != nil {
		return f.s.cfg.wrap("looking for prepared transactions", err)
	}
	if len(used) > 0 {
		f.s.env.Log.WarnContext(ctx, "prepared transactions of XA can't be listed: the rows of one that was prepared before now and is "+
			"committed behind the first copy are missing then", slog.String("fix", "GRANT XA_RECOVER_ADMIN ON *.* TO the user"))
	}
	return nil
}

// xidOf is a transaction's name in one form.
func xidOf(text string) string {
	text = strings.ToLower(strings.Join(strings.Fields(text), ""))
	return strings.TrimSuffix(text, "onephase")
}

// xaPrepare ends the changes of a transaction of XA.
func (f *stream) xaPrepare(ctx context.Context, body []byte) error {
	xid, onePhase, err := mybinlog.ParseXAPrepare(body)
	switch {
	case err != nil:
		return err //nolint:wrapcheck // callers say what was being done
	case f.txn == nil || f.xa == nil:
		return errOutside
	}
	x := f.xa
	f.xa = nil
	if onePhase {
		f.again = x.replay()
		return nil
	}
	x.xid = xidOf(xid)
	if len(x.events) > 0 || x.stored > 0 {
		if f.group.whole { // what is complete gets its position first
			if err := f.emit(ctx); err != nil {
				return err
			}
		}
		f.pending = append(f.pending, x)
	}
	return f.commit(ctx)
}

// replay uses the next event of a transaction that was prepared before and is committed now.
func (f *stream) replay(ctx context.Context) error {
	if f.again.now == nil {
		event, err := f.again.next()
		if errors.Is(err, io.EOF) {
			f.again.drop(ctx, f.s.env.Log)
			f.again = nil
			return f.commit(ctx)
		}
		if err != nil {
			return err
		}
		f.again.now = event
	}
	h, body, err := mybinlog.ParseHeader(f.again.now)
	if err != nil {
		return err //nolint:wrapcheck // callers say what was being done
	}
	used, err := f.apply(ctx, h, body)
	if used && err == nil {
		f.again.now = nil
	}
	return err
}

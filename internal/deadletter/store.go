package deadletter

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"slices"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/sqlitefile"
	"github.com/leatdata/leat/record"
)

const (
	maxPending    = 1000    // letters that are kept in memory at most
	maxPendingRaw = 4 << 20 // bytes of their rows, likewise
)

// file is what the file of letters is.
func file() sqlitefile.Kind {
	return sqlitefile.Kind{
		Name: "the dead letters", Code: "deadletter", Hint: "the folder must be writable and on a local disk; --state names another one",
		ApplicationID: 0x6c656164, Layout: 1, Schema: createTables,
	}
}

const createTables = `
create table if not exists store (id text not null) strict;
create table if not exists columns (
	id      blob primary key,
	dataset text not null,
	key     text not null,
	columns blob not null
) strict, without rowid;
create table if not exists letter (
	number   integer primary key autoincrement,
	identity blob not null,
	n        integer not null,
	pipeline text not null,
	run      text not null,
	sink     text not null,
	attempt  integer not null,
	epoch    integer not null,
	dataset  text not null,
	key      text,
	line     integer not null,
	offset   integer not null,
	shape    integer not null,
	position text,
	op       text not null,
	class    text not null,
	code     text not null,
	message  text not null,
	column   text not null,
	value    text not null,
	step     integer not null,
	columns  blob,
	row      blob,
	before   text,
	first    integer not null,
	last     integer not null,
	times    integer not null,
	asked    integer not null default 0
) strict;
create unique index if not exists letter_identity on letter (identity, n);
create index if not exists letter_pipeline on letter (pipeline);
create index if not exists letter_place on letter (pipeline, sink, epoch);
create table if not exists queue (
	pipeline text not null,
	sink     text not null,
	place    integer not null,
	letter   integer not null,
	primary key (pipeline, sink, place)
) strict, without rowid;
create index if not exists queue_letter on queue (letter);
create table if not exists place (
	pipeline text not null,
	sink     text not null,
	last     integer not null,
	primary key (pipeline, sink)
) strict, without rowid;
create table if not exists delivered (
	letter integer not null,
	sink   text not null,
	primary key (letter, sink)
) strict, without rowid;
create trigger if not exists letter_gone after delete on letter begin
	delete from queue where letter = old.number;
	delete from delivered where letter = old.number;
end;
create table if not exists forwarded (
	pipeline text not null,
	target   text not null,
	number   integer not null,
	fence    integer not null,
	primary key (pipeline, target)
) strict, without rowid`

// Store keeps letters in one SQLite file, which is made with the first letter. Its methods may be called from any goroutine, and many
// processes may use the file. What Flush returned for survives loss of power.
type Store struct {
	path string
	busy chan *session // capacity 1: whoever took it may use it, and puts it back
}

// session is the connection and what waits for it.
type session struct {
	conn    *sqlite.Conn // nil: not opened yet
	id      string       // of the file
	pending []engine.Rejected
	size    int
	columns map[*record.Schema]encodedSchema // that were encoded already
	closed  bool
}

var _ engine.RejectStore = (*Store)(nil)

var errClosed = errors.New("the store of dead letters is closed")

// New returns a store over a file. Nothing is done before it is used.
func New(path string) *Store {
	s := &Store{path: path, busy: make(chan *session, 1)}
	s.busy <- &session{}
	return s
}

// Path is the file.
func (s *Store) Path() string { return s.path }

// use runs f with the session. make: the file is made where it does not exist; else f is not called then.
func (s *Store) use(ctx context.Context, mk bool, f func(*session) error) error {
	var in *session
	select {
	case in = <-s.busy:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.busy <- in }()
	if in.closed {
		return errClosed
	}
	if in.conn == nil {
		if _, err := os.Stat(s.path); errors.Is(err, os.ErrNotExist) && !mk {
			return nil
		}
		if err := in.open(ctx, s.path); err != nil {
			return err
		}
	}
	defer in.conn.SetInterrupt(in.conn.SetInterrupt(ctx.Done()))
	return file().Explain(ctx, s.path, f(in))
}

func (in *session) open(ctx context.Context, path string) error {
	conn, err := file().Open(ctx, path)
	if err != nil {
		return err
	}
	if err := in.identify(ctx, conn); err != nil {
		return errors.Join(file().Explain(ctx, path, err), conn.Close())
	}
	in.conn = conn
	return nil
}

// identify gives the file a name of its own, once and for all.
func (in *session) identify(ctx context.Context, conn *sqlite.Conn) error {
	defer conn.SetInterrupt(conn.SetInterrupt(ctx.Done()))
	err := exec(conn, "insert into store select ? where not exists (select 1 from store)", rand.Text())
	if err != nil {
		return err
	}
	return sqlitex.Execute(conn, "select id from store", &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
		in.id = stmt.ColumnText(0)
		return nil
	}})
}

// exec executes a statement.
func exec(conn *sqlite.Conn, query string, args ...any) error {
	return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{Args: args})
}

// number is the one number that a query returns; 0 where it returns nothing.
func number(conn *sqlite.Conn, query string, args ...any) (n int64, err error) {
	err = sqlitex.Execute(conn, query, &sqlitex.ExecOptions{Args: args, ResultFunc: func(stmt *sqlite.Stmt) error {
		n = stmt.ColumnInt64(0)
		return nil
	}})
	return n, err
}

// Append implements engine.RejectStore.
func (s *Store) Append(ctx context.Context, rows []engine.Rejected) error {
	if len(rows) == 0 {
		return nil
	}
	return s.use(ctx, true, func(in *session) error {
		for _, r := range rows {
			in.pending = append(in.pending, r)
			in.size += len(r.Raw) + len(r.Before) + len(r.Message)
			if len(in.pending) >= maxPending || in.size >= maxPendingRaw {
				if err := in.write(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Flush implements engine.RejectStore.
func (s *Store) Flush(ctx context.Context) error {
	return s.use(ctx, false, (*session).write)
}

// write puts what is pending into the file, in one transaction.
func (in *session) write() (err error) {
	if len(in.pending) == 0 {
		return nil
	}
	end, err := sqlitex.ImmediateTransaction(in.conn)
	if err != nil {
		return err
	}
	defer func() {
		if end(&err); err != nil {
			return
		}
		clear(in.pending)
		in.pending, in.size = in.pending[:0], 0
	}()
	for _, r := range in.pending {
		if err := in.insert(r); err != nil {
			return err
		}
	}
	return nil
}

const insertLetter = `insert into letter (identity, n, pipeline, run, sink, attempt, epoch, dataset, key, line, offset, shape, position,
	op, class, code, message, column, value, step, columns, row, before, first, last, times)
	values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?24, 1)
	on conflict (identity, n) do update set times = times + 1, last = ?24, attempt = ?6, message = ?17, asked = 0`

func (in *session) insert(r engine.Rejected) error {
	id, n := identity(r), int64(0)
	var err error
	if r.Epoch > 0 { // Forget removes what comes again, so that rows which are alike are different ones
		if n, err = number(in.conn, "select coalesce(max(n) + 1, 0) from letter where identity = ?", id); err != nil {
			return err
		}
	}
	var columns any
	if r.Schema != nil {
		if columns, err = in.keepColumns(r.Schema); err != nil {
			return err
		}
	}
	return exec(in.conn, insertLetter,
		id, n, r.Pipeline, r.Run, r.Sink, int64(r.Attempt), int64(r.Epoch), r.Dataset, textOrNull(r.Key), r.Line, r.Offset,
		int64(r.Position.Shape),
		textOrNull(r.Position.Data), r.Op.String(), r.Class, r.Code, r.Message, r.Column, r.Value, int64(r.Step), columns,
		r.Raw, textOrNull(r.Before), r.Time.UnixMicro())
}

// maxColumns bounds how many schemas are remembered.
const maxColumns = 1000

// keepColumns keeps a schema and returns its id. It looks each time, as another process may have dropped it.
func (in *session) keepColumns(s *record.Schema) ([]byte, error) {
	e, ok := in.columns[s]
	if !ok {
		var err error
		if e, err = encodeSchema(s); err != nil {
			return nil, err
		}
		if in.columns == nil || len(in.columns) >= maxColumns {
			in.columns = map[*record.Schema]encodedSchema{}
		}
		in.columns[s] = e
	}
	err := exec(in.conn, "insert into columns (id, dataset, key, columns) values (?, ?, ?, ?) on conflict do nothing",
		e.id, s.Dataset, e.key, e.columns)
	return e.id, err
}

func textOrNull(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return string(b)
}

// Forget implements engine.RejectStore.
func (s *Store) Forget(ctx context.Context, pipeline, run, sink string, epoch uint64) error {
	return s.use(ctx, false, func(in *session) error {
		in.pending = slices.DeleteFunc(in.pending, func(r engine.Rejected) bool {
			return r.Pipeline == pipeline && r.Run == run && r.Sink == sink && r.Epoch > epoch
		})
		return exec(in.conn, "delete from letter where pipeline = ? and run = ? and sink = ? and epoch > ?",
			pipeline, run, sink, int64(epoch))
	})
}

// Close implements engine.RejectStore. It is idempotent.
func (s *Store) Close() error {
	in := <-s.busy
	defer func() { s.busy <- in }()
	if in.closed {
		return nil
	}
	in.closed = true
	if in.conn == nil {
		return nil
	}
	return file().Explain(context.Background(), s.path, errors.Join(in.write(), in.conn.Close())) //nolint:forbidigo // nothing waits
}

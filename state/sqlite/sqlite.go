package sqlite

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/internal/sqlitefile"
	"github.com/leatdata/leat/state"
)

const createTables = `
create table if not exists pipeline (
	name    text primary key,
	version integer not null,
	record  text not null
) strict, without rowid;
create table if not exists pipeline_orders (
	name    text primary key,
	version integer not null,
	orders  text not null
) strict, without rowid`

// file is what the state file is.
func file() sqlitefile.Kind {
	return sqlitefile.Kind{
		Name: "the state file", Code: "state",
		Hint:          "the folder must be writable and on a local disk; the path of the state file can be set",
		ApplicationID: 0x6c656174, // "leat"
		Layout:        2,          // 1 had no orders
		Schema:        createTables,
	}
}

// statements are those of one table.
type statements struct{ get, insert, update, remove string }

func records() statements {
	return statements{
		get:    "select version, record from pipeline where name = ?",
		insert: "insert into pipeline (name, record, version) values (?1, ?2, ?3) on conflict do nothing",
		update: "update pipeline set record = ?2, version = ?3 where name = ?1 and version = ?3 - 1",
		remove: "delete from pipeline where name = ?",
	}
}

func orders() statements {
	return statements{
		get:    "select version, orders from pipeline_orders where name = ?",
		insert: "insert into pipeline_orders (name, orders, version) values (?1, ?2, ?3) on conflict do nothing",
		update: "update pipeline_orders set orders = ?2, version = ?3 where name = ?1 and version = ?3 - 1",
		remove: "delete from pipeline_orders where name = ?",
	}
}

// Store implements state.Store.
type Store struct {
	path string
	conn chan *sqlite.Conn // capacity 1: whoever took the connection may use it, and puts it back; nil after Close
}

var _ state.Store = (*Store)(nil)

var errClosed = errors.New("the state store is closed")

// Open opens the file, and makes it, and its folder with mode 0700, if it does not exist.
func Open(ctx context.Context, path string) (*Store, error) {
	conn, err := file().Open(ctx, path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, conn: make(chan *sqlite.Conn, 1)}
	s.conn <- conn
	return s, nil
}

// use runs f, which makes exactly one transaction, with the connection.
func (s *Store) use(ctx context.Context, f func(*sqlite.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var conn *sqlite.Conn
	select {
	case conn = <-s.conn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.conn <- conn }()
	if conn == nil {
		return errClosed
	}
	defer conn.SetInterrupt(conn.SetInterrupt(ctx.Done()))
	return file().Explain(ctx, s.path, f(conn))
}

// Load implements state.Store.
func (s *Store) Load(ctx context.Context, pipeline string) (state.Record, state.Version, error) {
	if err := state.ValidateName(pipeline); err != nil {
		return state.Record{}, 0, err
	}
	text, version, err := s.get(ctx, records().get, pipeline)
	if err != nil {
		return state.Record{}, 0, err
	}
	if version == 0 {
		return state.Record{}, 0, state.ErrNotFound
	}
	r, err := state.Decode([]byte(text), pipeline)
	return r, version, err
}

// get returns a text and its version; 0 where there is none.
func (s *Store) get(ctx context.Context, query, pipeline string) (text string, version state.Version, err error) {
	err = s.use(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, query, &sqlitex.ExecOptions{
			Args: []any{pipeline},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				version, text = state.Version(stmt.ColumnInt64(0)), stmt.ColumnText(1)
				return nil
			},
		})
	})
	return text, version, err
}

// Save implements state.Store.
func (s *Store) Save(ctx context.Context, r state.Record, prev state.Version) (state.Version, error) {
	data, err := state.Encode(r)
	if err != nil {
		return 0, err
	}
	return s.put(ctx, records(), r.Pipeline, data, prev)
}

// Orders implements state.OrderStore.
func (s *Store) Orders(ctx context.Context, pipeline string) (state.Orders, state.Version, error) {
	if err := state.ValidateName(pipeline); err != nil {
		return state.Orders{}, 0, err
	}
	text, version, err := s.get(ctx, orders().get, pipeline)
	if err != nil || version == 0 {
		return state.Orders{}, 0, err
	}
	o, err := state.DecodeOrders([]byte(text), pipeline)
	return o, version, err
}

// SaveOrders implements state.OrderStore.
func (s *Store) SaveOrders(ctx context.Context, pipeline string, o state.Orders, prev state.Version) (state.Version, error) {
	data, err := state.EncodeOrders(o, pipeline)
	if err != nil {
		return 0, err
	}
	return s.put(ctx, orders(), pipeline, data, prev)
}

// put replaces a text of version prev and returns its new version.
func (s *Store) put(ctx context.Context, t statements, pipeline string, data []byte, prev state.Version) (state.Version, error) {
	query, next := t.update, prev+1
	if prev == 0 {
		query, next = t.insert, state.FirstVersion()
	}
	changed, err := s.change(ctx, query, pipeline, string(data), int64(next))
	if err != nil {
		return 0, err
	}
	if !changed {
		return 0, state.ErrConflict
	}
	return next, nil
}

// change executes one statement and reports whether it changed anything.
func (s *Store) change(ctx context.Context, query string, args ...any) (changed bool, err error) {
	err = s.use(ctx, func(conn *sqlite.Conn) error {
		if err := sqlitex.Execute(conn, query, &sqlitex.ExecOptions{Args: args}); err != nil {
			return err
		}
		changed = conn.Changes() > 0
		return nil
	})
	return changed, err
}

// List implements state.Store.
func (s *Store) List(ctx context.Context) ([]state.Record, error) {
	var list []state.Record
	var broken error
	err := s.use(ctx, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, "select name, record from pipeline order by name", &sqlitex.ExecOptions{
			ResultFunc: func(stmt *sqlite.Stmt) error {
				r, err := state.Decode([]byte(stmt.ColumnText(1)), stmt.ColumnText(0))
				switch {
				case err == nil:
					list = append(list, r)
				case broken == nil:
					broken = err
				}
				return nil
			},
		})
	})
	if err != nil {
		return nil, err
	}
	return list, broken
}

// Delete implements state.Store.
func (s *Store) Delete(ctx context.Context, pipeline string) error {
	if err := state.ValidateName(pipeline); err != nil {
		return err
	}
	changed := false
	err := s.use(ctx, func(conn *sqlite.Conn) (err error) {
		end, err := sqlitex.ImmediateTransaction(conn)
		if err != nil {
			return err
		}
		defer end(&err)
		for _, t := range []statements{records(), orders()} {
			if err := sqlitex.Execute(conn, t.remove, &sqlitex.ExecOptions{Args: []any{pipeline}}); err != nil {
				return err
			}
			changed = changed || conn.Changes() > 0
		}
		return nil
	})
	if err == nil && !changed {
		err = state.ErrNotFound
	}
	return err
}

// Close implements state.Store.
func (s *Store) Close() error {
	conn := <-s.conn
	defer func() { s.conn <- nil }()
	if conn == nil {
		return nil
	}
	if err := conn.Close(); err != nil {
		return fmt.Errorf("closing the state file %s: %w", s.path, err)
	}
	return nil
}

package sqlite

import (
	"context"
	"fmt"
	"os"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
)

// db is one connection. It is used by one goroutine at a time.
type db struct {
	conn      *sqlite.Conn
	roundtrip func(op string)
}

// openDB opens the file. A missing file is an error unless flags create it.
func openDB(path string, flags sqlite.OpenFlags, busy time.Duration, env connector.Env) (*db, error) {
	if flags&sqlite.OpenCreate == 0 && path != inMemory {
		if _, err := os.Stat(path); err != nil {
			return nil, statError(path, err)
		}
	}
	env.Roundtrip("open")
	c, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	c.SetBusyTimeout(busy)
	return &db{conn: c, roundtrip: env.Roundtrip}, nil
}

// inMemory is SQLite's name of a database that is never on disk; it lives as long as one source or sink.
const inMemory = ":memory:"

// bound makes every statement end when ctx does, until the returned function is called.
func (d *db) bound(ctx context.Context) (release func()) {
	d.conn.SetInterrupt(ctx.Done())
	return func() { d.conn.SetInterrupt(nil) }
}

// each runs a statement and calls row for each row of its result. It keeps no statement: it is for catalogues and commands.
func (d *db) each(query string, row func(*sqlite.Stmt) error, args ...any) error {
	d.roundtrip("query")
	st, trailing, err := d.conn.PrepareTransient(query)
	if err != nil {
		return err
	}
	if trailing > 0 {
		_ = st.Finalize()
		return fmt.Errorf("more than one statement in %q", query)
	}
	for i, a := range args {
		bindAny(st, i+1, a)
	}
	for {
		more, err := st.Step()
		if err != nil {
			_ = st.Finalize()
			return err
		}
		if !more {
			return st.Finalize()
		}
		if row == nil {
			continue
		}
		if err := row(st); err != nil {
			_ = st.Finalize()
			return err
		}
	}
}

// run runs a command without a result that is run again and again: the connection keeps it prepared.
func (d *db) run(query string, args ...any) error {
	d.roundtrip("exec")
	_, err := d.query(query, 0, func(st *sqlite.Stmt) error {
		for i, a := range args {
			bindAny(st, i+1, a)
		}
		return nil
	})
	return err
}

// exec runs commands without a result.
func (d *db) exec(queries ...string) error {
	for _, q := range queries {
		if err := d.each(q, nil); err != nil {
			return fmt.Errorf("%s: %w", firstWords(q), err)
		}
	}
	return nil
}

func firstWords(q string) string {
	const show = 60
	if len(q) > show {
		return q[:show] + " …"
	}
	return q
}

func (d *db) close() error {
	if d == nil || d.conn == nil {
		return nil
	}
	c := d.conn
	d.conn = nil
	return c.Close()
}

// bindAny binds one of the few Go types that catalogue queries and positions use.
func bindAny(st *sqlite.Stmt, i int, v any) {
	switch v := v.(type) {
	case nil:
		st.BindNull(i)
	case int64:
		st.BindInt64(i, v)
	case int:
		st.BindInt64(i, int64(v))
	case string:
		st.BindText(i, v)
	case value:
		v.bind(st, i)
	default:
		panic(fmt.Sprintf("sqlite: binding %T", v)) // only called with the types above
	}
}

// exists reports whether a query has a row.
func (d *db) exists(query string, args ...any) (bool, error) {
	found := false
	err := d.each(query, func(*sqlite.Stmt) error {
		found = true
		return nil
	}, args...)
	return found, err
}

//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/url"
	"os"
	"strconv"

	duckdb "github.com/duckdb/duckdb-go/v2"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
)

// defaultMemory keeps a copy of any size within the promise for streaming jobs.
const defaultMemory = "128MB"

// db is one open database with one connection. It is used by one goroutine at a time.
type db struct {
	connector *duckdb.Connector
	conn      *duckdb.Conn
	arrow     *duckdb.Arrow
	roundtrip func(op string)
	flow      *flow // rows that are being inserted; nil: none
}

func open(ctx context.Context, d Database, mode string, env connector.Env) (*db, error) {
	if mode == "READ_ONLY" {
		if _, err := os.Stat(d.Path); err != nil {
			return nil, wrap(err, "opening "+d.Path, "", "name an existing file")
		}
	}
	options := url.Values{"access_mode": {mode}, "memory_limit": {defaultMemory}}
	if d.MemoryLimit != "" {
		options.Set("memory_limit", d.MemoryLimit)
	}
	if d.Threads > 0 {
		options.Set("threads", strconv.Itoa(d.Threads))
	}
	env.Roundtrip("open")
	c, err := duckdb.NewConnector(d.Path+"?"+options.Encode(), nil)
	if err != nil {
		return nil, wrap(err, "opening "+d.Path, "", "name a DuckDB file, or one that does not exist yet to write to")
	}
	x := &db{connector: c, roundtrip: env.Roundtrip}
	conn, err := c.Connect(ctx)
	if err != nil {
		return nil, errors.Join(wrap(err, "connecting to "+d.Path, "", ""), x.close())
	}
	var ok bool
	if x.conn, ok = conn.(*duckdb.Conn); !ok {
		return nil, errors.Join(errors.New("duckdb: the driver's connection has an unknown type"), x.close())
	}
	if x.arrow, err = duckdb.NewArrowFromConn(x.conn); err != nil {
		return nil, errors.Join(err, x.close())
	}
	// A few rows are looked up by their keys or ids: the more of those a scan knows, the more of the table it can leave alone.
	return x, x.exec(ctx, "SET TimeZone = 'UTC'; SET preserve_insertion_order = true; SET dynamic_or_filter_threshold = 1000")
}

func (d *db) close() error {
	var errs []error
	d.abandon()
	if d.conn != nil {
		errs = append(errs, d.conn.Close())
		d.conn = nil
	}
	if d.connector != nil {
		errs = append(errs, d.connector.Close())
		d.connector = nil
	}
	return errors.Join(errs...)
}

func named(args []any) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, a := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return out
}

func (d *db) exec(ctx context.Context, sql string, args ...any) error {
	if err := d.settle(ctx); err != nil {
		return err
	}
	d.roundtrip("exec")
	_, err := d.conn.ExecContext(ctx, sql, named(args))
	return err
}

// affected runs a statement and returns how many rows it changed.
func (d *db) affected(ctx context.Context, sql string, args ...any) (int64, error) {
	if err := d.settle(ctx); err != nil {
		return 0, err
	}
	d.roundtrip("exec")
	res, err := d.conn.ExecContext(ctx, sql, named(args))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// rows runs a small query and returns its values as text; null is the empty string.
func (d *db) rows(ctx context.Context, sql string, args ...any) ([][]string, error) {
	if err := d.settle(ctx); err != nil {
		return nil, err
	}
	d.roundtrip("query")
	r, err := d.conn.QueryContext(ctx, sql, named(args))
	if err != nil {
		return nil, err
	}
	var out [][]string
	vals := make([]driver.Value, len(r.Columns()))
	for {
		err := r.Next(vals)
		if errors.Is(err, io.EOF) {
			return out, r.Close()
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		row := make([]string, len(vals))
		for i, v := range vals {
			if s, ok := v.(string); ok {
				row[i] = s
			}
		}
		out = append(out, row)
	}
}

// table is a schema and a name.
type table struct{ schema, name string }

func (t table) sql() string { return sqlgen.Ident(t.schema) + "." + sqlgen.Ident(t.name) }

package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
)

// session is a sink's connection. Every statement goes out as one simple query: that works behind any pooler and leaves no
// prepared statement that a change of the tables could make stale. It is used by one goroutine.
type session struct {
	conn *pgx.Conn
	env  connector.Env
}

// exec runs one or more statements and returns how many rows each of them touched.
func (s *session) exec(ctx context.Context, op, sql string) ([]int64, error) {
	s.env.Roundtrip(op)
	results, err := s.conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err //nolint:wrapcheck // callers say what was being done
	}
	counts := make([]int64, len(results))
	for i, r := range results {
		counts[i] = r.CommandTag.RowsAffected()
	}
	return counts, nil
}

// query runs statements of which the last one that returns a row returns one JSON value, and reads it. It reports whether there
// was a value.
func (s *session) query(ctx context.Context, op, sql string, into any) (bool, error) {
	s.env.Roundtrip(op)
	results, err := s.conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		return false, err //nolint:wrapcheck // callers say what was being done
	}
	for i := len(results) - 1; i >= 0; i-- {
		if len(results[i].Rows) == 0 {
			continue
		}
		value := results[i].Rows[0][0]
		if value == nil {
			return false, nil
		}
		if err := json.Unmarshal(value, into); err != nil {
			return false, fmt.Errorf("reading the answer: %w", err)
		}
		return true, nil
	}
	return false, nil
}

// copyFrom runs statements of which the last one is a COPY … FROM STDIN, fed from r.
func (s *session) copyFrom(ctx context.Context, op, sql string, r io.Reader) (int64, error) {
	s.env.Roundtrip(op)
	tag, err := s.conn.PgConn().CopyFrom(ctx, r, sql)
	return tag.RowsAffected(), err //nolint:wrapcheck // callers say what was being done
}

// serverError returns the server's own error in err's tree where the session goes on after it.
func serverError(err error) (*pgconn.PgError, bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Severity == "FATAL" || e.Severity == "PANIC" {
		return nil, false
	}
	return e, true
}

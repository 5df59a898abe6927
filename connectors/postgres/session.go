package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
)

// session is a sink's connection. Nothing outlives a transaction on it that would not work behind any pooler, unless it is known that
// none stands in between. It is used by one goroutine.
type session struct {
	conn   *pgx.Conn
	env    connector.Env
	direct bool              // the server's process serves this connection alone
	kept   map[string]string // names of the statements that it keeps, by their text
	names  int               // how many names were given
}

// exec runs one or more statements.
func (s *session) exec(ctx context.Context, op, sql string) error {
	s.env.Roundtrip(op)
	_, err := s.conn.PgConn().Exec(ctx, sql).ReadAll()
	return err //nolint:wrapcheck // callers say what was being done
}

// query runs statements of which the last one that returns a row returns one JSON value, and reads it. It reports whether there
// was a value.
func (s *session) query(ctx context.Context, op, sql string, into any) (bool, error) {
	s.env.Roundtrip(op)
	results, err := s.conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		return false, err //nolint:wrapcheck // callers say what was being done
	}
	for _, r := range slices.Backward(results) {
		if len(r.Rows) == 0 {
			continue
		}
		value := r.Rows[0][0]
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

// copyFrom runs statements of which the last one is a COPY … FROM STDIN, fed from r. When it returns, r is no longer read.
func (s *session) copyFrom(ctx context.Context, sql string, r io.Reader) error {
	_, err := s.copyInto(ctx, sql, r)
	return err
}

// copyInto is copyFrom for statements of which some come behind the COPY; it returns what the last one answers.
func (s *session) copyInto(ctx context.Context, sql string, r io.Reader) (pgconn.CommandTag, error) {
	s.env.Roundtrip("copy")
	guarded := &guardedReader{r: r}
	defer guarded.end()
	return s.conn.PgConn().CopyFrom(ctx, guarded, sql) //nolint:wrapcheck // callers say what was being done
}

// guardedReader can be taken away from whoever reads it: where the connection is lost, the driver returns while its own goroutine
// may still be reading.
type guardedReader struct {
	mu    sync.Mutex
	r     io.Reader
	ended bool
}

// Read implements io.Reader.
func (g *guardedReader) Read(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return 0, io.ErrClosedPipe
	}
	return g.r.Read(p) //nolint:wrapcheck // io.EOF must stay
}

// end waits for a read that is under way; there is none after it.
func (g *guardedReader) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

// serverError returns the server's own error in err's tree where the session goes on after it.
func serverError(err error) (*pgconn.PgError, bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Severity == "FATAL" || e.Severity == "PANIC" {
		return nil, false
	}
	return e, true
}

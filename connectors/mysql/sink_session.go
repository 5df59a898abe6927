package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	gosql "github.com/go-sql-driver/mysql"

	"github.com/leatdata/leat/connector"
)

// writeSession is for writing. The modes are such that no value is changed quietly: what does not fit is an error, a zero in an
// auto-increment column is a zero, and dates that no calendar has are kept where the source has them.
const writeSession settings = "SET SESSION time_zone = '+00:00', autocommit = 1, sql_safe_updates = 0, sql_select_limit = DEFAULT," +
	" sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,NO_ENGINE_SUBSTITUTION,ALLOW_INVALID_DATES,ERROR_FOR_DIVISION_BY_ZERO'," +
	" sql_notes = 1, sql_big_selects = 1, unique_checks = 1, net_write_timeout = 86400, net_read_timeout = 86400," +
	" wait_timeout = 86400, lock_wait_timeout = 60"

// session is the connection that rows are written through. Several statements go in one message.
type session struct {
	pool   *sql.DB
	conn   *sql.Conn
	env    connector.Env
	server server

	packet     int  // most bytes of a statement
	load       bool // LOAD DATA LOCAL is allowed
	folded     bool // names of tables that differ only in case are the same
	stamps     bool // TIMESTAMP columns get no properties of their own
	statements bool // the binary log holds statements

	collations map[string]bool // those that were asked for
}

// open connects.
func (c *SinkConfig) open(ctx context.Context, env connector.Env) (*session, error) {
	s := &session{env: env}
	env.Roundtrip("connect")
	pool, err := c.control(writeSession, func(cfg *gosql.Config) { cfg.MultiStatements, cfg.ClientFoundRows = true, true })
	if err != nil {
		return nil, err
	}
	s.pool = pool
	if s.conn, err = pool.Conn(ctx); err == nil {
		err = s.look(ctx)
	}
	if err != nil {
		_ = pool.Close() // the first error says why
		return nil, c.wrap("connecting", err)
	}
	return s, nil
}

// look asks what the server is and what it allows.
func (s *session) look(ctx context.Context) error {
	var err error
	if s.server, err = identify(ctx, s.conn); err != nil {
		return err
	}
	rows, err := ask(ctx, s.conn, "SELECT @@max_allowed_packet, @@local_infile, @@lower_case_table_names,"+
		" @@explicit_defaults_for_timestamp, @@binlog_format")
	if err != nil {
		return err
	}
	r := rows[0]
	s.packet, s.load, s.folded, s.stamps = int(toInt(r[0])), isTrue(r[1]), string(r[2]) != "0", isTrue(r[3])
	s.statements = strings.EqualFold(string(r[4]), "STATEMENT")
	return nil
}

// close ends the connection. The server rolls back what is open.
func (s *session) close() error {
	err := s.conn.Close()
	return errors.Join(err, s.pool.Close())
}

// exactCollation is a collation of utf8mb4 in which only equal texts are equal, blanks at the end included.
func (s *session) exactCollation() string {
	if s.server.mariadb {
		return "utf8mb4_nopad_bin"
	}
	return "utf8mb4_0900_bin"
}

// result is the rows of one statement; a nil value is NULL.
type result [][][]byte

// number reads a result of one number.
func (r result) number() int64 {
	if len(r) == 0 || len(r[0]) == 0 {
		return -1
	}
	return toInt(r[0][0])
}

// run sends statements in one message, and returns the results of those that have rows, in order. The first one that fails ends it.
func (s *session) run(ctx context.Context, op string, statements ...string) ([]result, error) {
	s.env.Roundtrip(op)
	rows, err := s.conn.QueryContext(ctx, strings.Join(statements, ";\n"))
	if err != nil {
		return nil, err //nolint:wrapcheck // callers say what was being done
	}
	defer func() { _ = rows.Close() }() // its error is that of Err
	var out []result
	for {
		names, err := rows.Columns()
		if err != nil {
			return nil, err //nolint:wrapcheck // likewise
		}
		if len(names) > 0 {
			r, err := readResult(rows, len(names))
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
		if !rows.NextResultSet() {
			return out, rows.Err() //nolint:wrapcheck // likewise
		}
	}
}

func readResult(rows *sql.Rows, columns int) (result, error) {
	var out result
	for rows.Next() {
		row := make([][]byte, columns)
		at := make([]any, columns)
		for i := range row {
			at[i] = &row[i]
		}
		if err := rows.Scan(at...); err != nil {
			return nil, err //nolint:wrapcheck // callers say what was being done
		}
		out = append(out, row)
	}
	return out, rows.Err() //nolint:wrapcheck // likewise
}

// countedSQL stands behind a statement that writes: how many rows it found, and how many warnings it gave.
const countedSQL = "SELECT ROW_COUNT(), @@warning_count"

// write sends statements of which the last one writes, and checks that nothing was altered on the way: a warning, even a note, may mean
// that digits or blanks were cut off.
func (s *session) write(ctx context.Context, op string, statements ...string) error {
	results, err := s.run(ctx, op, append(statements, "SHOW WARNINGS")...)
	if err != nil {
		return err
	}
	for _, r := range results[len(results)-1] {
		if n := toInt(r[1]); !harmless(n) {
			return &alteredError{number: n, message: string(r[2])}
		}
	}
	return nil
}

// alteredError is a warning of a statement that wrote: a value is not what was sent.
type alteredError struct {
	number  int64
	message string
}

// Error is what the server said.
func (e *alteredError) Error() string {
	return fmt.Sprintf("%s (warning %d)", strings.TrimSuffix(e.message, "."), e.number)
}

// harmless are warnings that say nothing of values: deprecated syntax, statements that are unsafe for other binary logs, and a plan that
// was given up for want of memory.
func harmless(number int64) bool {
	switch number {
	case 1287, 1592, 1681, 1756, 3170, 3719, 3778, 4135:
		return true
	}
	return false
}

// onlyIf is a statement that fails, whatever the modes are, where a condition is false. [notSo] knows its error.
func onlyIf(condition string) string {
	return "SELECT 9223372036854775807 + IF(" + condition + ", 0, 1)"
}

// notSo reports whether onlyIf failed.
func notSo(err error) bool {
	const outOfRange = 1690
	e, ok := serverErrorOf(err)
	return ok && e.number == outOfRange && strings.Contains(e.message, "9223372036854775807")
}

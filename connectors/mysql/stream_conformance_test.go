package mysql_test

import (
	"context"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// anchoredConfig makes sources that begin at a place of the log, as the engine has it: the position was saved before.
type anchoredConfig struct {
	connector.SourceConfig

	at record.Position
}

// Open implements connector.SourceConfig.
func (c anchoredConfig) Open(env connector.Env) (connector.Source, error) {
	src, err := c.SourceConfig.Open(env)
	return &anchoredSource{Source: src, at: c.at}, err
}

type anchoredSource struct {
	connector.Source

	at record.Position
}

// Unwrap shows the capabilities of the source.
func (s *anchoredSource) Unwrap() any { return s.Source }

// Start implements connector.Source.
func (s *anchoredSource) Start(ctx context.Context, start connector.SourceStart) error {
	if start.From.Position.Zero() {
		start.From = connector.From{Origin: connector.Initialised, Position: s.at}
	}
	return s.Source.Start(ctx, start)
}

// clauses S1, S7, S8, S9, S12, S14, S15.
func TestStreamConformance(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		w := newFollower(t, mysqltest.Database(t, f), nil, `CREATE TABLE t (id int PRIMARY KEY, v text)`)
		w.do(t, `INSERT INTO t VALUES (1, 'a')`, `INSERT INTO t VALUES (2, 'b'), (3, 'c')`, `BEGIN`,
			`INSERT INTO t VALUES (100, REPEAT('x', 3000)), (101, REPEAT('x', 3000)), (102, REPEAT('x', 3000)), (103, REPEAT('x', 3000))`, `COMMIT`,
			`INSERT INTO t VALUES (5, 'e')`)
		rows := []string{`{"id":1,"v":"a"}`, `{"id":2,"v":"b"}`, `{"id":3,"v":"c"}`}
		rows = append(rows, numbered(`{"id":%d,"v":"`+strings.Repeat("x", 3000)+`"}`, 100, 103)...)
		connectortest.Source(t, connectortest.SourceCase{
			New: func(t testing.TB) connector.SourceConfig {
				t.Helper()
				return anchoredConfig{SourceConfig: sourceConfig(t, w.url, w.options), at: w.anchor}
			},
			Want: map[string][]string{w.name + ".t": append(rows, `{"id":5,"v":"e"}`)},
			Unreachable: func(t testing.TB) connector.SourceConfig {
				t.Helper()
				cfg := sourceConfig(t, w.url, w.options)
				cfg.Host, cfg.Port = "127.0.0.1", 1
				return anchoredConfig{SourceConfig: cfg, at: w.anchor}
			},
			Activity: readers(t, w),
		})
	})
}

// readers counts the sessions that are left of sources.
func readers(t testing.TB, w *follower) func(t testing.TB) int {
	t.Helper()
	return func(t testing.TB) int {
		t.Helper()
		var n int
		err := w.db.QueryRowContext(t.Context(),
			"SELECT count(*) FROM information_schema.PROCESSLIST WHERE DB = ? AND COMMAND LIKE 'Binlog Dump%'", w.name).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}

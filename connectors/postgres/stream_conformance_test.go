package postgres_test

import (
	"context"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// anchoredConfig makes sources that begin where the slot's stream begins, as the engine has it: the position was saved before.
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

// clauses S1, S7, S8, S9, S12, S14, S15, S23, S24.
func TestStreamConformance(t *testing.T) {
	w := newFollower(t, map[string]string{"spill_bytes": "0"}, earlyBlocks, `CREATE TABLE t (id int PRIMARY KEY, v text)`)
	must(t, w.conn, `INSERT INTO t VALUES (1, 'a')`, `INSERT INTO t VALUES (2, 'b'), (3, 'c')`, `BEGIN`, `INSERT INTO t SELECT i, repeat('x', 3000) FROM generate_series(100, 103) i`, `COMMIT`,
		`INSERT INTO t VALUES (5, 'e')`)
	rows := []string{`{"id":1,"v":"a"}`, `{"id":2,"v":"b"}`, `{"id":3,"v":"c"}`}
	rows = append(rows, numbered(`{"id":%d,"v":"`+strings.Repeat("x", 3000)+`"}`, 100, 103)...)
	connectortest.Source(t, connectortest.SourceCase{
		New: func(t testing.TB) connector.SourceConfig {
			t.Helper()
			return anchoredConfig{SourceConfig: sourceConfig(t, w.db, w.options), at: w.anchor}
		},
		Want: map[string][]string{"public.t": append(rows, `{"id":5,"v":"e"}`)},
		Unreachable: func(t testing.TB) connector.SourceConfig {
			t.Helper()
			cfg := sourceConfig(t, w.db, w.options)
			cfg.Host, cfg.Port = "127.0.0.1", "1"
			return anchoredConfig{SourceConfig: cfg, at: w.anchor}
		},
		Activity: func(t testing.TB) int { t.Helper(); return activity(t, w.conn) },
	})
}

package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/postgres"
	"github.com/leatdata/leat/internal/pgtest"
)

const sourcePassword = "leat-test"

// sourceConfig returns a configuration from the database's URL and options.
func sourceConfig(t testing.TB, db string, options map[string]string) *postgres.SourceConfig {
	t.Helper()
	cfg, ok := postgres.NewSource().(*postgres.SourceConfig)
	if !ok {
		t.Fatal("NewSource returns another type")
	}
	if err := cfg.SetURL(db); err != nil {
		t.Fatal(err)
	}
	if err := connector.SetOptions(cfg, options); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// activity counts the connections to the database but for the one that asks, and fails on open transactions that wait.
func activity(t testing.TB, conn *pgx.Conn) int {
	t.Helper()
	var n, idle int
	// A server process ends a moment after its connection.
	for deadline := time.Now().Add(5 * time.Second); ; {
		err := conn.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%') FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&n, &idle)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 || time.Now().After(deadline) {
			break
		}
	}
	if idle > 0 {
		t.Errorf("%d transactions are left open", idle)
	}
	return n
}

// clauses S1, S5, S6, S7, S8, S9, S12, S14, S15, S23, S24.
func TestSourceConformance(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE orders (region text COLLATE "C", id int, total numeric(12,2), note text, PRIMARY KEY (region, id))`,
		`INSERT INTO orders SELECT CASE WHEN i % 3 = 0 THEN 'north' ELSE 'South' END, i, i * 1.25, repeat('x', i % 40) FROM generate_series(1, 14) i`,
		`CREATE TABLE "Empty" (id bigint PRIMARY KEY, v jsonb)`,
		`CREATE TABLE sparse (id bigint PRIMARY KEY)`, `INSERT INTO sparse VALUES (1), (2), (4000000000000000000), (-9223372036854775808)`,
		`ANALYZE`)
	for name, options := range map[string]map[string]string{
		"chunks":    {"tables": "public.*", "chunk_bytes": "200", "parallel": "2"},
		"one chunk": {"tables": "public.*"},
		"query":     {"query": "SELECT id, total, note FROM orders", "key": "id", "chunk_bytes": "400", "parallel": "1"},
		"cursors":   {"tables": "orders,sparse", "cursor": "id"},
	} {
		t.Run(name, func(t *testing.T) {
			options["host"] = pgtest.SocketDir(t) // no password, which would cost more time than all else
			connectortest.Source(t, connectortest.SourceCase{
				New: func(t testing.TB) connector.SourceConfig {
					t.Helper()
					return sourceConfig(t, db, options)
				},
				Unreachable: func(t testing.TB) connector.SourceConfig {
					t.Helper()
					cfg := sourceConfig(t, db, options)
					cfg.Host, cfg.Port = "127.0.0.1", "1"
					return cfg
				},
				Secrets: []string{sourcePassword},
				Activity: func(t testing.TB) int {
					t.Helper()
					return activity(t, conn)
				},
			})
		})
	}
}

func must(t testing.TB, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

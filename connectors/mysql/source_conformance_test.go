package mysql_test

import (
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
)

// clauses S1, S5, S6, S7, S8, S9, S12, S14, S15, S23, S24.
func TestSourceConformance(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			url := mysqltest.Database(t, f)
			mysqltest.Exec(t, url,
				`CREATE TABLE orders (region varchar(20) COLLATE utf8mb4_bin, id int, total decimal(12,2), note text, PRIMARY KEY (region, id))`,
				`INSERT INTO orders VALUES ('north', 3, 3.75, 'xxx'), ('north', 6, 7.5, 'x'), ('north', 9, 1, NULL), ('South', 1, 1.25, 'x'),
				('South', 2, 2.5, 'xx'), ('South', 4, 5, 'xxxx'), ('South', 5, 6.25, ''), ('South', 7, 8.75, 'xxxxxxx'), ('South', 8, 10, 'ß')`,
				`CREATE TABLE empties (id bigint PRIMARY KEY, v json)`,
				`CREATE TABLE sparse (id bigint PRIMARY KEY)`, `INSERT INTO sparse VALUES (1), (2), (4000000000000000000), (-9223372036854775808)`,
				`ANALYZE TABLE orders, empties, sparse`)
			count := activity(t, f, url)
			for name, options := range map[string]map[string]string{
				"chunks":    {"chunk_bytes": "200", "parallel": "2"},
				"one chunk": {},
				"query":     {"query": "SELECT id, total, note FROM orders", "key": "id", "chunk_bytes": "400", "parallel": "1"},
				"cursors":   {"tables": "orders,sparse", "cursor": "id"},
			} {
				t.Run(name, func(t *testing.T) {
					connectortest.Source(t, connectortest.SourceCase{
						New: func(t testing.TB) connector.SourceConfig {
							t.Helper()
							return sourceConfig(t, url, options)
						},
						Unreachable: func(t testing.TB) connector.SourceConfig {
							t.Helper()
							cfg := sourceConfig(t, url, options)
							cfg.Host, cfg.Port = "127.0.0.1", 1
							return cfg
						},
						Secrets:  []string{testPassword},
						Activity: count,
					})
				})
			}
		})
	}
}

package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// BenchmarkStream drains inserts and updates of six columns from the log: in large transactions, and in those of a single row.
func BenchmarkStream(b *testing.B) {
	const rows = 100_000
	for _, f := range mysqltest.Flavors() {
		for _, size := range []string{"large", "single"} {
			b.Run(string(f)+"/"+size, func(b *testing.B) {
				w := newFollower(b, mysqltest.Database(b, f), nil,
					`CREATE TABLE wide (id bigint PRIMARY KEY, qty int, price double, amt decimal(12,2), name varchar(40), ts timestamp(6) NULL)`)
				n := fillWide(b, f, w, size, rows)
				b.ReportAllocs()
				batches := 0
				for b.Loop() {
					batches += drainStream(b, w, n)
				}
				b.ReportMetric(float64(n), "rows/op")
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
				b.ReportMetric(float64(batches)/float64(b.N), "batches")
			})
		}
	}
}

// fillWide changes rows, and returns how many changes that are.
func fillWide(b *testing.B, f mysqltest.Flavor, w *follower, size string, rows int) int {
	b.Helper()
	series := map[mysqltest.Flavor]string{
		mysqltest.MySQL:   `SET SESSION cte_max_recursion_depth = 1000000`,
		mysqltest.MariaDB: `SET SESSION max_recursive_iterations = 1000000`,
	}[f]
	const columns = `SELECT i, i %% 1000, i * 0.37, i * 1.25, CONCAT('name of ', i), '2026-01-01' + INTERVAL i SECOND FROM s`
	insert := func(from, to int) string {
		return fmt.Sprintf(`INSERT INTO wide WITH RECURSIVE s(i) AS (SELECT %d UNION ALL SELECT i + 1 FROM s WHERE i < %d) `+columns, from, to)
	}
	if size == "large" {
		w.do(b, series, insert(1, rows/2), `UPDATE wide SET qty = qty + 1`)
		return rows / 2 * 2
	}
	n := rows / 20
	statements := []string{series}
	for i := range n {
		statements = append(statements, insert(i, i))
	}
	w.do(b, statements...)
	return n
}

// drainStream reads n changes, and returns in how many batches they came.
func drainStream(b *testing.B, w *follower, n int) (batches int) {
	b.Helper()
	g := w.start(b, record.Position{}, nil)
	for want := (connector.Limit{Rows: 8192, Bytes: 8 << 20}); n > 0; {
		batch, err := g.src.Read(b.Context(), want)
		if err != nil {
			b.Fatal(err)
		}
		if batch == nil {
			select {
			case <-capability[connector.Notifier](b, g.src).Ready():
			case <-time.After(time.Second):
			}
			continue
		}
		n -= batch.NumRows()
		batches++
	}
	closeSource(b, g.src)
	return batches
}

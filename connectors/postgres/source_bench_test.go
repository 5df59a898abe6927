package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
)

// benchRows is the size of the table: LEAT_BENCH_ROWS, or small enough for every day.
func benchRows() int {
	if n, err := strconv.Atoi(os.Getenv("LEAT_BENCH_ROWS")); err == nil {
		return n
	}
	return 200_000
}

func benchTable(b *testing.B) string {
	b.Helper()
	db := pgtest.Database(b)
	must(b, pgtest.Conn(b, db),
		`CREATE TABLE wide (id bigint PRIMARY KEY, qty int, price float8, amt numeric(12,2), name text, code varchar(10), ok boolean,
			ts timestamptz, doc jsonb, uid uuid)`,
		fmt.Sprintf(`INSERT INTO wide SELECT i, i %% 1000, i * 0.37, i * 1.25, 'name of ' || i, 'c' || i %% 9999, i %% 2 = 0,
			'2026-01-01'::timestamptz + i * interval '1 second', jsonb_build_object('n', i, 'tag', 'x'), md5(i::text)::uuid
			FROM generate_series(1, %d) i`, benchRows()), `VACUUM ANALYZE wide`)
	return db
}

// BenchmarkSource reads a table of ten columns, in chunks by key and by block, and as the server alone writes it to nowhere.
func BenchmarkSource(b *testing.B) {
	db := benchTable(b)
	report := func(b *testing.B) {
		b.Helper()
		b.ReportMetric(float64(benchRows())*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	}
	b.Run("COPY", func(b *testing.B) {
		conn := pgtest.Conn(b, db)
		for b.Loop() {
			if _, err := conn.PgConn().CopyTo(b.Context(), io.Discard, "COPY wide TO STDOUT (FORMAT binary)"); err != nil {
				b.Fatal(err)
			}
		}
		report(b)
	})
	for name, options := range map[string]map[string]string{
		"key": {"table": "wide"}, "key1": {"table": "wide", "parallel": "1"}, "block": {"table": "wide", "chunks": "block"},
		"block1": {"table": "wide", "chunks": "block", "parallel": "1"},
		"cursor": {"table": "wide", "cursor": "id"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			peak := uint64(0)
			for b.Loop() {
				src, err := sourceConfig(b, db, options).Open(connectortest.Env(b))
				if err != nil {
					b.Fatal(err)
				}
				if got := drainRows(b, src, &peak); got != benchRows() {
					b.Fatalf("%d rows, want %d", got, benchRows())
				}
			}
			report(b)
			b.ReportMetric(float64(peak)/(1<<20), "peak-MB")
		})
	}
}

func drainRows(b *testing.B, src connector.Source, peak *uint64) int {
	b.Helper()
	if err := src.Start(b.Context(), connector.SourceStart{}); err != nil {
		b.Fatal(err)
	}
	rows := 0
	for i := 0; ; i++ {
		batch, err := src.Read(context.Background(), connector.Limit{Rows: 8192, Bytes: 8 << 20})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		rows += batch.NumRows()
		if i%50 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			*peak = max(*peak, m.Sys)
		}
	}
	if err := src.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	return rows
}

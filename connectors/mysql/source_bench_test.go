package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	protocol "github.com/go-mysql-org/go-mysql/mysql"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
)

// benchRows is the size of the table: LEAT_BENCH_ROWS, or small enough for every day.
func benchRows() int {
	if n, err := strconv.Atoi(os.Getenv("LEAT_BENCH_ROWS")); err == nil {
		return n
	}
	return 200_000
}

func benchTable(b *testing.B, f mysqltest.Flavor) string {
	b.Helper()
	db := mysqltest.Database(b, f)
	mysqltest.Exec(b, db,
		`CREATE TABLE wide (id bigint PRIMARY KEY, qty int, price double, amt decimal(12,2), name varchar(60), code varchar(10), ok tinyint(1),
			ts timestamp(6) NOT NULL, doc json, uid binary(16))`,
		`CREATE TABLE digits (d int PRIMARY KEY)`, `INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)`,
		fmt.Sprintf(`INSERT INTO wide SELECT i, i %% 1000, i * 0.37, i * 1.25, concat('name of ', i), concat('c', i %% 9999), i %% 2,
			'2026-01-01' + INTERVAL i SECOND, json_object('n', i, 'tag', 'x'), unhex(left(sha2(i, 256), 32)) FROM
			(SELECT a.d + 10*b.d + 100*c.d + 1000*d.d + 10000*e.d + 100000*f.d + 1000000*g.d AS i FROM digits a, digits b, digits c,
				digits d, digits e, digits f, digits g) n WHERE i < %d ORDER BY i`, benchRows()),
		`ANALYZE TABLE wide`)
	return db
}

// BenchmarkSource reads a table of ten columns, in chunks and by cursor.
func BenchmarkSource(b *testing.B) {
	for _, f := range mysqltest.Flavors() {
		b.Run(string(f), func(b *testing.B) {
			db := benchTable(b, f)
			for name, options := range map[string]map[string]string{
				"key": {"table": "wide"}, "key1": {"table": "wide", "parallel": "1"}, "cursor": {"table": "wide", "cursor": "id"},
			} {
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						src, err := sourceConfig(b, db, options).Open(connectortest.Env(b))
						if err != nil {
							b.Fatal(err)
						}
						if got := drainRows(b, src); got != benchRows() {
							b.Fatalf("%d rows, want %d", got, benchRows())
						}
					}
					b.ReportMetric(float64(benchRows()), "rows/op")
				})
			}
		})
	}
}

func drainRows(b *testing.B, src connector.Source) int {
	b.Helper()
	if err := src.Start(b.Context(), connector.SourceStart{}); err != nil {
		b.Fatal(err)
	}
	rows := 0
	for {
		batch, err := src.Read(b.Context(), connector.Limit{Rows: 8192, Bytes: 4 << 20})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		rows += batch.NumRows()
	}
	if err := src.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	return rows
}

// BenchmarkReaders reads the same table with the two libraries and throws the values away: what is measured is how long it takes to have
// them. Our own reader stands beside it in BenchmarkSource, with all that it makes of them.
func BenchmarkReaders(b *testing.B) {
	for _, f := range mysqltest.Flavors() {
		address := benchTable(b, f)
		b.Run(string(f)+"/driver-rawbytes", func(b *testing.B) {
			db := mysqltest.DB(b, address)
			b.ReportAllocs()
			for b.Loop() {
				readRaw(b, db)
			}
			b.ReportMetric(float64(benchRows()), "rows/op")
		})
		b.Run(string(f)+"/go-mysql-streaming", func(b *testing.B) {
			u, err := url.Parse(address)
			if err != nil {
				b.Fatal(err)
			}
			password, _ := u.User.Password()
			conn, err := client.Connect(u.Host, u.User.Username(), password, u.Path[1:])
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			b.ReportAllocs()
			for b.Loop() {
				rows := 0
				stmt, err := conn.Prepare("SELECT * FROM wide")
				if err != nil {
					b.Fatal(err)
				}
				var result protocol.Result
				err = stmt.ExecuteSelectStreaming(&result, func([]protocol.FieldValue) error { rows++; return nil }, nil)
				if err != nil || rows != benchRows() {
					b.Fatalf("%d rows: %v", rows, err)
				}
			}
			b.ReportMetric(float64(benchRows()), "rows/op")
		})
	}
}

func readRaw(b *testing.B, db *sql.DB) {
	b.Helper()
	rows, err := db.QueryContext(b.Context(), "SELECT * FROM wide")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	const columns = 10
	raw, at := make([]sql.RawBytes, columns), make([]any, columns)
	for i := range raw {
		at[i] = &raw[i]
	}
	n := 0
	for rows.Next() {
		if err := rows.Scan(at...); err != nil {
			b.Fatal(err)
		}
		n++
	}
	if err := rows.Err(); err != nil || n != benchRows() {
		b.Fatalf("%d rows: %v", n, err)
	}
}

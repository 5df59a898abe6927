package postgres_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// BenchmarkStream drains inserts and updates of six columns: in large transactions, in small ones, and the same over TCP; beside it the
// server's own client, which decodes nothing.
func BenchmarkStream(b *testing.B) {
	n := benchRows()
	table := `CREATE TABLE wide (id bigint PRIMARY KEY, qty int, price float8, amt numeric(12,2), name text, ts timestamptz)`
	insert := `INSERT INTO wide SELECT i, i % 1000, i * 0.37, i * 1.25, 'name of ' || i, '2026-01-01'::timestamptz + i * interval '1 second'
		FROM generate_series(`
	fill := map[string]func(w *follower){
		"large": func(w *follower) {
			must(b, w.conn, insert+fmt.Sprintf("1, %d) i", n/2), `UPDATE wide SET qty = qty + 1`)
		},
		"small": func(w *follower) {
			loop := func(sql string) string {
				return fmt.Sprintf("DO $$ BEGIN FOR j IN 1..%d LOOP %s; COMMIT; END LOOP; END $$", n/20, sql)
			}
			must(b, w.conn, loop(insert+"10 * j - 9, 10 * j) i"), loop(`UPDATE wide SET qty = qty + 1 WHERE id BETWEEN 10 * j - 9 AND 10 * j`))
		},
	}
	for _, size := range []string{"large", "small"} {
		w := newFollower(b, nil, table)
		fill[size](w)
		for _, how := range []string{"socket", "tcp", "tls", "pg_recvlogical"} {
			b.Run(size+"/"+how, func(b *testing.B) {
				options := map[string]string{}
				if how == "tcp" || how == "tls" {
					options["host"], options["sslmode"] = "127.0.0.1", map[string]string{"tcp": "disable", "tls": "require"}[how]
				}
				b.ReportAllocs()
				batches, began := 0, cpuTime()
				for b.Loop() {
					if how == "pg_recvlogical" {
						receive(b, w)
						continue
					}
					batches += drainStream(b, w, options, n)
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
				b.ReportMetric(float64(batches)/float64(b.N), "batches")
				b.ReportMetric(float64(cpuTime()-began)/float64(n)/float64(b.N), "cpu-ns/change")
			})
		}
	}
}

// cpuTime is what this process used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func drainStream(b *testing.B, w *follower, options map[string]string, n int) (batches int) {
	b.Helper()
	g := w.start(b, record.Position{}, options)
	g.want = connector.Limit{Rows: 8192, Bytes: 8 << 20}
	for n > 0 {
		batch, err := g.src.Read(b.Context(), g.want)
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

// receive lets the server's own client write the stream to nowhere. It moves the slot, and so must come last.
func receive(b *testing.B, w *follower) {
	b.Helper()
	program := filepath.Join("/usr/lib/postgresql/15/bin", "pg_recvlogical")
	if _, err := os.Stat(program); err != nil {
		b.Skip(err)
	}
	var end string
	if err := w.conn.QueryRow(b.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&end); err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), program, "-d", w.db+"&host="+pgtest.SocketDir(b), "-S", w.slot, "--start", "-f", "/dev/null",
		"-o", "proto_version=2", "-o", "publication_names="+w.slot, "-o", "binary=true", "-o", "streaming=on", "--endpos", end, "-s", "0", "-F", "0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}

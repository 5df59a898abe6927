package postgres_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// BenchmarkStream drains inserts and updates of six columns: in large transactions, in small ones and in those of a single row; over a
// socket, TCP and TLS. Beside it the server's own client, which decodes nothing.
func BenchmarkStream(b *testing.B) {
	n := benchRows()
	table := `CREATE TABLE wide (id bigint PRIMARY KEY, qty int, price float8, amt numeric(12,2), name text, ts timestamptz)`
	insert := `INSERT INTO wide SELECT i, i % 1000, i * 0.37, i * 1.25, 'name of ' || i, '2026-01-01'::timestamptz + i * interval '1 second'
		FROM generate_series(`
	loop := func(rows int) []string {
		loop := fmt.Sprintf("DO $$ BEGIN FOR j IN 0..%d LOOP ", n/2/rows-1) + "%s; COMMIT; END LOOP; END $$"
		return []string{
			fmt.Sprintf(loop, insert+fmt.Sprintf("%d * j + 1, %d * (j + 1)) i", rows, rows)),
			fmt.Sprintf(loop, fmt.Sprintf("UPDATE wide SET qty = qty + 1 WHERE id BETWEEN %d * j + 1 AND %d * (j + 1)", rows, rows)),
		}
	}
	for _, size := range []struct {
		name string
		sql  []string
	}{
		{"large", []string{insert + fmt.Sprintf("1, %d) i", n/2), `UPDATE wide SET qty = qty + 1`}}, {"small", loop(10)}, {"single", loop(1)},
	} {
		w := newFollower(b, nil, table)
		must(b, w.conn, size.sql...)
		for _, how := range []string{"socket", "tcp", "tls"} {
			options := map[string]string{}
			if how != "socket" {
				options["host"], options["sslmode"] = "127.0.0.1", map[string]string{"tcp": "disable", "tls": "require"}[how]
			}
			b.Run(size.name+"/"+how, func(b *testing.B) {
				b.ReportAllocs()
				batches, busy, began := 0, time.Duration(0), cpuTime()
				for b.Loop() {
					some, sender := drainStream(b, w, options, n)
					batches, busy = batches+some, busy+sender
				}
				b.ReportMetric(float64(n), "rows/op")
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
				b.ReportMetric(float64(batches)/float64(b.N), "batches")
				b.ReportMetric(float64(cpuTime()-began)/float64(n)/float64(b.N), "cpu-ns/change")
				b.ReportMetric(100*busy.Seconds()/b.Elapsed().Seconds(), "%sender-busy")
			})
			b.Run(size.name+"/"+how+"/pg_recvlogical", func(b *testing.B) {
				for b.Loop() {
					receive(b, w, options)
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "changes/s")
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

// drainStream reads n changes, and returns in how many batches they came, and how long the server's process was at work.
func drainStream(b *testing.B, w *follower, options map[string]string, n int) (batches int, sender time.Duration) {
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
	sender = processTime(w.count(b, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, w.slot))
	closeSource(b, g.src)
	return batches, sender
}

// processTime is what a process used so far; 0: that is not known.
func processTime(pid int64) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	const user, system, tick = 11, 12, 10 * time.Millisecond
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var sum time.Duration
	for _, f := range fields[user : system+1] {
		ticks, _ := strconv.Atoi(f)
		sum += time.Duration(ticks) * tick
	}
	return sum
}

// receive lets the server's own client write the stream of a copy of the slot to nowhere: the client moves the slot that it reads.
func receive(b *testing.B, w *follower, options map[string]string) {
	b.Helper()
	program := filepath.Join("/usr/lib/postgresql/15/bin", "pg_recvlogical")
	if _, err := os.Stat(program); err != nil {
		b.Skip(err)
	}
	var end string
	const copied = `SELECT pg_copy_logical_replication_slot($1, $2, false)::text, pg_current_wal_lsn()::text`
	if err := w.conn.QueryRow(b.Context(), copied, w.slot, w.slot+"_copy").Scan(nil, &end); err != nil {
		b.Fatal(err)
	}
	url := w.db + "&host=" + pgtest.SocketDir(b)
	if host := options["host"]; host != "" {
		url = w.db + "&host=" + host + "&sslmode=" + options["sslmode"]
	}
	cmd := exec.CommandContext(b.Context(), program, "-d", url, "-S", w.slot+"_copy", "--start", "-f", "/dev/null",
		"-o", "proto_version=2", "-o", "publication_names="+w.slot, "-o", "binary=true", "-o", "streaming=on", "--endpos", end, "-s", "0", "-F", "0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	must(b, w.conn, `SELECT pg_drop_replication_slot('`+w.slot+`_copy')`)
}

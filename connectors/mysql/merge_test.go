package mysql_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// While many write, every chunk has exactly the rows of the transactions that its snapshot includes, and no writer waits for a reader.
// cases C057, C060.
func TestSnapshotsUnderLoad(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		modes := map[string]loadMode{"gtid": {reads: 15}}
		if f == mysqltest.MySQL {
			modes["tagged"] = loadMode{reads: 15, sessions: []string{`SET gtid_next = 'AUTOMATIC'`, `SET gtid_next = 'AUTOMATIC:leat'`}}
			modes["minimal"] = loadMode{reads: 15, settings: []string{"binlog_row_image=MINIMAL"}}
			modes["no gtid"] = loadMode{reads: 2, settings: []string{"gtid_mode=OFF", "enforce_gtid_consistency=OFF"}}
		} else {
			modes["domains"] = loadMode{reads: 15, sessions: []string{`SET gtid_domain_id = 0`, `SET gtid_domain_id = 7`}}
		}
		for name, m := range modes {
			t.Run(name, func(t *testing.T) { snapshotsUnderLoad(t, mysqltest.Server(t, f, m.settings...), m) })
		}
	})
}

// loadMode is a way in which servers are written to.
type loadMode struct {
	settings []string // of the server
	sessions []string // what sessions that write do first, in turn
	reads    int      // of each reader
}

// loadRows is how many rows there may be; few, so that transactions meet in them.
const loadRows = 12

func snapshotsUnderLoad(t *testing.T, s *mysqltest.Instance, m loadMode) {
	t.Helper()
	w := newFollower(t, s.Database(), nil, `CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, v varchar(20))`, `INSERT INTO t VALUES (0, 0, '')`)
	w.url = trickle(t, w.url)
	g := w.start(t, record.Position{}, nil)
	var stop atomic.Bool
	var work sync.WaitGroup
	ctx := t.Context()
	for i := range 6 {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			conn, err := w.db.Conn(ctx)
			if err == nil && len(m.sessions) > 0 {
				_, err = conn.ExecContext(ctx, m.sessions[i%len(m.sessions)])
			}
			if err != nil {
				t.Error(err)
				return
			}
			for !stop.Load() {
				writeSome(ctx, t, conn, r)
			}
			endSession(conn)
		})
	}
	work.Go(func() { // who asks for any status makes MariaDB mix up the places of snapshots
		for !stop.Load() {
			if _, err := w.db.ExecContext(ctx, "SHOW STATUS LIKE 'binlog_snapshot_%'"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	snap := capability[connector.Snapshotter](t, g.src)
	type chunk struct {
		at   record.Position
		rows []string
	}
	var chunks []chunk
	var mu sync.Mutex
	for range 3 {
		work.Go(func() {
			for range m.reads {
				var c chunk
				err := snap.ReadChunk(ctx, record.Chunk{Dataset: w.name + ".t"}, func(b *record.Batch) error {
					c.at = b.Chunk.Snapshot
					if b.Rows != nil {
						c.rows = append(c.rows, connectortest.Rows(b)...)
					}
					return nil
				})
				if err != nil {
					t.Errorf("%v (%s)", err, connector.HintOf(err))
					break
				}
				mu.Lock()
				chunks = append(chunks, c)
				mu.Unlock()
			}
			stop.Store(true)
		})
	}
	work.Wait()
	tip, err := capability[connector.Tip](t, g.src).Tip(ctx)
	if err != nil {
		t.Fatal(err)
	}
	compare := capability[connector.Positions](t, g.src).Compare
	for end := time.Now().Add(streamPatience); ; {
		if _, err := g.next(t, time.Second); err != nil || time.Now().After(end) {
			t.Fatalf("the stream did not come to the end: %v", err)
		}
		if len(g.marks) > 0 {
			if order, ok := compare(g.last(), tip); ok && order >= 0 {
				break
			}
		}
	}
	merger := capability[connector.Merger](t, g.src)
	for i, c := range chunks {
		sameRows(t, fmt.Sprintf("chunk %d", i), replayed(merger, g.batches, c.at), sorted(c.rows))
		if !merger.Outlived(c.at, g.last()) {
			t.Errorf("the stream came to its end, and has not passed the snapshot of chunk %d", i)
		}
		if t.Failed() {
			t.Logf("snapshot %s", c.at)
			return
		}
	}
	t.Logf("%d chunks, %d changes", len(chunks), len(g.lines))
}

// trickle returns the URL of a server whose answers come in small pieces, so that a reader often waits in the middle of a transaction.
func trickle(t testing.TB, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	behind := u.Host
	u.Host = l.Addr().String()
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", behind)
			if err != nil {
				_ = client.Close()
				continue
			}
			work.Go(func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			})
			work.Go(func() {
				defer client.Close() //nolint:errcheck // it was copied
				piece := make([]byte, 256)
				for {
					n, err := server.Read(piece)
					if err != nil {
						return
					}
					if _, err := client.Write(piece[:n]); err != nil {
						_ = server.Close()
						return
					}
					time.Sleep(50 * time.Microsecond)
				}
			})
		}
	})
	return u.String()
}

// writeSome writes one transaction.
func writeSome(ctx context.Context, t testing.TB, conn *sql.Conn, r *rand.Rand) {
	t.Helper()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		t.Error(err)
		return
	}
	for range 1 + r.IntN(3) {
		id := r.IntN(loadRows)
		switch r.IntN(5) {
		case 0:
			_, err = tx.ExecContext(ctx, "DELETE FROM t WHERE id = ?", id)
		case 1:
			_, err = tx.ExecContext(ctx, "UPDATE IGNORE t SET id = ? WHERE id = ?", r.IntN(loadRows), id)
		case 2:
			_, err = tx.ExecContext(ctx, "UPDATE t SET n = n + 1 WHERE id = ?", id)
		default:
			_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (?, 1, 'x') ON DUPLICATE KEY UPDATE n = n + 1, v = CONCAT(LEFT(v, 3), 'y')", id)
		}
		if err != nil {
			_ = tx.Rollback() // a deadlock, which others made as well
			return
		}
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
}

// replayed is the table after the transactions that a snapshot includes.
func replayed(m connector.Merger, batches []*record.Batch, at record.Position) []string {
	rows := map[string]string{"0": `{"id":0,"n":0,"v":""}`}
	values := map[string][]string{"0": {"0", "0", `""`}}
	for _, b := range batches {
		if b.Schema == nil {
			continue
		}
		i := 0
		for _, txn := range b.Txns {
			included := m.Includes(at, txn.Position)
			for range txn.Rows {
				if included {
					apply(rows, values, b, i)
				}
				i++
			}
		}
	}
	var out []string
	for _, r := range rows {
		out = append(out, r)
	}
	slices.Sort(out)
	return out
}

func apply(rows map[string]string, values map[string][]string, b *record.Batch, i int) {
	key := string(record.AppendJSON(nil, b.Rows.Column(0), i))
	before := values[key]
	if b.Op(i) == record.Delete {
		delete(rows, key)
		delete(values, key)
		return
	}
	if b.KeyMoved(i) {
		old := string(record.AppendJSON(nil, b.Old.Column(0), i))
		before = values[old]
		delete(rows, old)
		delete(values, old)
	}
	now := make([]string, 3)
	for c := range now {
		if now[c] = string(record.AppendJSON(nil, b.Rows.Column(c), i)); b.IsUnchanged(c, i) && before != nil {
			now[c] = before[c]
		}
	}
	values[key] = now
	rows[key] = fmt.Sprintf(`{"id":%s,"n":%s,"v":%s}`, now[0], now[1], now[2])
}

// Keys are found among the ends of chunks by the order that the chunks are cut in, whatever their type.
func TestLocate(t *testing.T) {
	followBoth(t, func(t *testing.T, f mysqltest.Flavor) {
		t.Helper()
		keys := []struct{ columns, key, values string }{
			{"k bigint unsigned", "k", "(0), (5), (9223372036854775807), (9223372036854775808), (18446744073709551615), (10), (100)"},
			{"k int", "k", "(-2147483648), (-10), (-9), (0), (9), (10)"},
			{"k varbinary(8)", "k", "(X''), (X'00'), (X'0100'), (X'01'), (X'ff'), (X'0101')"},
			{"k binary(3)", "k", "(X'00'), (X'010000'), (X'0001'), (X'20')"},
			{"k varchar(20) character set utf8mb4", "k", "('a'), ('B'), ('c'), ('Ä2'), ('z'), ('é'), ('')"},
			{"k varchar(20) character set latin1 collate latin1_bin", "k", "('a'), ('B'), ('c'), ('é'), ('')"},
			{"k decimal(30,5)", "k", "(-1.5), (0), (12345678901234567890.5), (2)"},
			{"k datetime(3)", "k", "('2020-01-01'), ('2020-01-01 00:00:00.5'), ('1999-12-31 23:59:59')"},
			{"k time(2)", "k", "('-838:59:59'), ('-00:00:01'), ('00:00:00'), ('100:00:00.5'), ('99:00:00')"},
			{"k enum('z','a','m')", "k", "('z'), ('a'), ('m')"},
			{"k double", "k", "(-1e300), (-0.1), (0.1), (1e300)"},
			{"a int, b varchar(5)", "b, a", "(1, 'x'), (2, 'x'), (1, 'y'), (3, 'a')"},
		}
		for _, c := range keys {
			t.Run(c.columns, func(t *testing.T) {
				w := newFollower(t, mysqltest.Database(t, f), nil, `CREATE TABLE t (`+c.columns+`, PRIMARY KEY (`+c.key+`))`)
				g := w.start(t, record.Position{}, nil)
				w.do(t, `INSERT INTO t VALUES `+c.values)
				dataset := w.name + ".t"
				snap, merger := capability[connector.Snapshotter](t, g.src), capability[connector.Merger](t, g.src)
				var chunks []record.Chunk
				for chunk, err := range snap.PlanChunks(t.Context(), dataset, nil, 1) {
					if err != nil {
						t.Fatal(err)
					}
					chunks = append(chunks, chunk)
				}
				bounds := make([]record.Chunk, 0, len(chunks))
				bounds = append(bounds, chunks[:len(chunks)-1]...)
				where := map[string]int{}
				for n, chunk := range chunks {
					err := snap.ReadChunk(t.Context(), chunk, func(b *record.Batch) error {
						for i := range b.NumRows() {
							where[string(merger.KeyOf(b.Schema, b.Rows, i))] = n
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				g.until(t, len(where))
				for _, b := range g.batches {
					if b.NumRows() == 0 {
						continue
					}
					at, err := merger.Locate(t.Context(), b.Schema, b.Rows, ends(bounds))
					if err != nil {
						t.Fatal(err)
					}
					for i, n := range at {
						key := string(merger.KeyOf(b.Schema, b.Rows, i))
						if want, ok := where[key]; !ok || want != n {
							t.Errorf("the key %s is located in chunk %d, and was read in %d (%v)", key, n, want, ok)
						}
					}
				}
			})
		}
	})
}

func ends(chunks []record.Chunk) (out []json.RawMessage) {
	for _, c := range chunks {
		out = append(out, c.To)
	}
	return out
}

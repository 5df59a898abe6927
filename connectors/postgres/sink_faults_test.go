package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// faultyNet is a proxy in front of the server that cuts the connection after it let a number of writes of the client through: the
// server sees what was sent, the client sees no answer.
type faultyNet struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	left     int  // writes of the client until the cut; negative: never
	answer   bool // the server's answer to the last write is awaited and dropped
	wg       sync.WaitGroup
}

func newFaultyNet(t testing.TB, rawURL string) (*faultyNet, string) {
	t.Helper()
	u, err := url.Parse(rawURL)
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &faultyNet{listener: l, target: u.Host, left: -1}
	f.wg.Go(f.serve)
	t.Cleanup(func() {
		must(t, l.Close())
		f.wg.Wait()
	})
	u.Host = l.Addr().String()
	return f, u.String() + "&sslmode=disable"
}

func (f *faultyNet) serve() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", f.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		f.wg.Go(func() { f.pipe(client, server) })
	}
}

func (f *faultyNet) pipe(client, server net.Conn) {
	done := make(chan struct{})
	var cut atomic.Bool
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			dropped := cut.Load()
			if n > 0 && !dropped {
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil && !dropped {
				_ = client.Close() // the server has ended it
			}
			if err != nil || dropped {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		f.mu.Lock()
		now := f.left == 0
		if f.left > 0 {
			f.left--
		}
		if now {
			f.left = -1
			cut.Store(true)
		}
		answer := f.answer
		f.mu.Unlock()
		if now && !answer {
			break
		}
		if _, err := server.Write(buf[:n]); err != nil {
			break
		}
		if now {
			_ = server.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // in the middle of a COPY there is no answer
			<-done                                                             // the server has done what it was told
			break
		}
	}
	_ = client.Close()
	_ = server.Close()
	<-done
}

func (f *faultyNet) cutAfter(writes int, answer bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.answer = writes, answer
}

// untouched reports whether the cut did not happen yet.
func (f *faultyNet) untouched() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.left >= 0
	f.left = -1
	return was
}

// A run of two commits, in which the connection is lost at message 0, then at message 1, and so on until a run is untouched; each
// time a new generation goes on from what the target says. Nothing is lost and nothing doubled, in any mode.
// clauses E5, E8
// case C063
func TestSinkConnectionLostAtEveryStep(t *testing.T) {
	outcomes := 0
	for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert, connector.Replace} {
		for _, answer := range []bool{false, true} {
			if mode == connector.Upsert && !answer {
				continue // in no way other than append
			}
			t.Run(fmt.Sprintf("%s, the server acts: %t", mode, answer), func(t *testing.T) {
				rawURL, conn := db(t)
				faults, through := newFaultyNet(t, rawURL)
				for n := 0; ; n++ {
					sqlExec(t, conn, "DROP TABLE IF EXISTS t; DROP SCHEMA IF EXISTS _leat CASCADE")
					faults.cutAfter(n, answer)
					outcomes += runUntilDone(t, sinkConfig(t, through), mode)
					if faults.untouched() {
						break
					}
					want(t, fmt.Sprintf("cut at message %d", n), "20|20|0|19", one(t, conn, "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM t"))
					want(t, "left behind", "0", one(t, conn, "SELECT count(*) FROM pg_class WHERE relname LIKE '\\_leat%' AND relpersistence = 'p' AND relkind = 'r'"))
					if t.Failed() {
						return
					}
				}
			})
		}
	}
	if outcomes == 0 {
		t.Error("no commit was cut off in the middle")
	}
}

// runUntilDone delivers 2 batches of 10 rows as an engine would, and counts the commits of unknown outcome.
func runUntilDone(t testing.TB, cfg *SinkConfig, mode connector.WriteMode) (outcomes int) {
	t.Helper()
	source := make([]*record.Batch, 2)
	for i := range source {
		source[i] = connectortest.Numbered("t", i*10, 10)
		source[i].Schema = source[0].Schema
	}
	for generation := uint64(1); generation < 20; generation++ {
		done, err := deliver(t, cfg, mode, generation, source)
		if done {
			return outcomes
		}
		switch connector.ClassOf(err) {
		case connector.ClassOutcome:
			outcomes++
		case connector.ClassTransient:
		default:
			t.Fatalf("a lost connection is %s: %v", connector.ClassOf(err), err)
		}
	}
	t.Fatal("the run does not end")
	return 0
}

func deliver(t testing.TB, cfg *SinkConfig, mode connector.WriteMode, fence uint64, source []*record.Batch) (bool, error) {
	t.Helper()
	ctx := t.Context()
	snk := openSink(t, cfg)
	defer snk.Close(ctx) //nolint:errcheck // reported by openSink
	if err := snk.Start(ctx, connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: fence, Mode: mode}); err != nil {
		return false, err
	}
	p, ok, err := snk.Committed(ctx)
	if err != nil {
		return false, err
	}
	from := 0
	if ok && p.Run == "r" {
		if p.Done {
			return true, nil
		}
		from, err = strconv.Atoi(string(p.Position.Data))
		must(t, err)
	}
	for i := from; i < len(source); i++ {
		if err := snk.Write(ctx, source[i]); err != nil {
			return false, err
		}
		if err := snk.Commit(ctx, position(i+1)); err != nil {
			return false, err
		}
	}
	end := position(len(source))
	end.Done = true
	if err := snk.Finish(ctx, end); err != nil {
		return false, err
	}
	return true, nil
}

// terminate ends the sink's backend.
func terminate(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	want(t, "terminated", "t", one(t, conn, `SELECT bool_and(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`))
}

// case C063
func TestSinkBackendTerminated(t *testing.T) {
	rawURL, conn := db(t)
	b := connectortest.Numbered("t", 0, 100)
	steps := map[string]func(s *Sink) error{
		"Write":  func(s *Sink) error { return s.Write(t.Context(), b) },
		"Commit": func(s *Sink) error { return s.Commit(t.Context(), position(1)) },
		"Flush":  func(s *Sink) error { return s.Flush(t.Context()) },
		"Finish": func(s *Sink) error { return s.Finish(t.Context(), position(1)) },
	}
	for name, step := range steps {
		snk := startSink(t, sinkConfig(t, rawURL), connector.Append, 1)
		must(t, snk.Write(t.Context(), b))
		terminate(t, conn)
		err := step(snk)
		if c := connector.ClassOf(err); c != connector.ClassTransient && c != connector.ClassOutcome {
			t.Errorf("%s on a terminated backend is %s: %v", name, c, err)
		}
		if again := snk.Write(t.Context(), b); !errors.Is(again, err) {
			t.Errorf("%s: the value is not poisoned: %v", name, again)
		}
		must(t, snk.Close(t.Context()))
		want(t, "rows after "+name, "no row", one(t, conn, "SELECT relname FROM pg_class WHERE relname = 't'"))
	}
}

// Two owners at once: the one with the higher fence wins, whatever the other had begun.
// clauses K7, W10
func TestSinkTwoOwners(t *testing.T) {
	for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert, connector.Replace} {
		rawURL, conn := db(t)
		sqlExec(t, conn, "CREATE TABLE t (id bigint PRIMARY KEY, v text)")
		late := startSink(t, sinkConfig(t, rawURL), mode, 1)
		must(t, late.Write(t.Context(), connectortest.Numbered("t", 100, 10)))
		owner := startSink(t, sinkConfig(t, rawURL), mode, 2) // does not wait for the other's transaction
		must(t, owner.Write(t.Context(), connectortest.Numbered("t", 0, 10)))
		for name, err := range map[string]error{"Commit": late.Commit(t.Context(), position(9)), "Flush": late.Flush(t.Context()), "Finish": late.Finish(t.Context(), position(9))} {
			if connector.ClassOf(err) != connector.ClassFenced {
				t.Errorf("mode %s: %s of the late owner: %v", mode, name, err)
			}
		}
		must(t, owner.Finish(t.Context(), position(1)))
		want(t, "rows", "10|9", one(t, conn, "SELECT count(*), max(id) FROM t"))
		flushed := startSink(t, sinkConfig(t, rawURL), connector.Append, 2)
		must(t, flushed.Write(t.Context(), connectortest.Numbered("t", 200, 1)))
		startSink(t, sinkConfig(t, rawURL), connector.Append, 3)
		if err := flushed.Flush(t.Context()); connector.ClassOf(err) != connector.ClassFenced {
			t.Errorf("Flush of the late owner: %v", err)
		}
		opened := openSink(t, sinkConfig(t, rawURL))
		err := opened.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 2, Mode: mode})
		if connector.ClassOf(err) != connector.ClassFenced {
			t.Errorf("Start with an old fence: %v", err)
		}
		want(t, "rows", "10|9", one(t, conn, "SELECT count(*), max(id) FROM t"))
	}
}

// The progress comes back as it was written, byte for byte.
func TestSinkProgressIsExact(t *testing.T) {
	rawURL, _ := db(t)
	snk := startSink(t, sinkConfig(t, rawURL), connector.Append, 1)
	if _, ok, err := snk.Committed(t.Context()); ok || err != nil {
		t.Errorf("a new lane has progress: %v", err)
	}
	p := record.Progress{
		Run:      `it's "r" \ <&>`,
		Position: record.Position{Shape: 7, Data: []byte(`{"lsn":"0/16B<&>3748","n":98765432109876543210,"t":"\u0000 ' \\ ünï"}`)},
		Ledger:   []byte(`[{"from":null}]`), Done: true,
	}
	must(t, snk.Commit(t.Context(), p))
	got, ok, err := snk.Committed(t.Context())
	must(t, err)
	if !ok || got.Run != p.Run || !got.Position.Equal(p.Position) || string(got.Ledger) != string(p.Ledger) || !got.Done {
		t.Errorf("got %+v, want %+v", got, p)
	}
}

// clause S23
func TestSinkPrivileges(t *testing.T) {
	rawURL, conn := db(t)
	role := "leat_test_" + one(t, conn, "SELECT substr(md5(random()::text), 1, 10)")
	sqlExec(t, conn, "CREATE ROLE "+role+" LOGIN PASSWORD 'pw'; REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE TABLE t (id bigint PRIMARY KEY, v text)")
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		must(t, err)
	})
	u, err := url.Parse(rawURL)
	must(t, err)
	u.User = url.UserPassword(role, "pw")
	cfg := sinkConfig(t, u.String()+"&table=t")
	failed := func() (fixes []string) {
		probes, err := openSink(t, cfg).Check(t.Context())
		must(t, err)
		for _, p := range probes {
			if p.Status == connector.Fail {
				fixes = append(fixes, p.Fix)
			}
		}
		return fixes
	}
	snk := openSink(t, cfg)
	err = snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 1})
	if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(connector.HintOf(err), "CREATE SCHEMA IF NOT EXISTS _leat") {
		t.Errorf("no place for progress: %v, hint %q", err, connector.HintOf(err))
	}
	fixes := failed()
	if len(fixes) != 2 {
		t.Fatalf("fixes: %q", fixes)
	}
	for _, fix := range fixes { // typed as they are
		fix = strings.TrimPrefix(fix, "as an administrator: ")
		fix, _, _ = strings.Cut(fix, "; and where")
		sqlExec(t, conn, fix)
	}
	if fixes := failed(); len(fixes) > 0 {
		t.Errorf("after the fixes: %q", fixes)
	}
	snk = startSink(t, cfg, connector.Append, 1)
	must(t, snk.Write(t.Context(), connectortest.Numbered("t", 0, 3)))
	must(t, snk.Commit(t.Context(), position(1)))
	other := startSink(t, sinkConfig(t, u.String()), connector.Append, 1)
	err = other.Write(t.Context(), connectortest.Numbered("new", 0, 3))
	if err == nil || !strings.Contains(err.Error(), "permission denied for schema public") || connector.HintOf(err) == "" {
		t.Errorf("a table that can't be made: %v, hint %q", err, connector.HintOf(err))
	}
}

var _ io.Reader = (*rowsReader)(nil)

package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
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
	return f, u.String() + "?ssl_mode=required" // one message is one write
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
		now, answer := f.count()
		cut.Store(now)
		if now && !answer {
			break
		}
		if _, err := server.Write(buf[:n]); err != nil {
			break
		}
		if now {
			_ = server.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			<-done // the server has done what it was told
			break
		}
	}
	_ = client.Close()
	_ = server.Close()
	<-done
}

// count counts a write, and says whether it is the one to cut at.
func (f *faultyNet) count() (now, answer bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now = f.left == 0
	if f.left >= 0 {
		f.left--
	}
	return now, f.answer
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
// time a new generation goes on from what the target says. Nothing is lost and nothing doubled, in any mode; a replacement shows all of
// the old rows or all of the new ones.
// clauses E5, E8
// case C063
func TestSinkConnectionLostAtEveryStep(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		first := time.Now().Nanosecond() / 1000 // each run of the test looks at other messages
		outcomes := 0
		for _, answer := range []bool{false, true} {
			outcomes += cutEverywhere(t, kind, connector.Replace, answer, first%cutStride)
		}
		for i := range cutStride { // until a commit is among them; upserts go in no other way
			outcomes += cutEverywhere(t, kind, connector.Append, true, (first+i)%cutStride)
			if outcomes > 0 || t.Failed() {
				return
			}
		}
		t.Error("no commit was cut off in the middle")
	})
}

// cutStride is the distance of the messages at which connections are lost, to stay short.
const cutStride = 5

// cutEverywhere loses the connection at message n, and at each that is cutStride further.
func cutEverywhere(t *testing.T, kind mysqltest.Flavor, mode connector.WriteMode, answer bool, n int) (outcomes int) {
	t.Helper()
	rawURL := mysqltest.Database(t, kind)
	db := watcher(t, rawURL)
	faults, through := newFaultyNet(t, rawURL)
	const old = "CREATE TABLE t (id bigint PRIMARY KEY, v varchar(50)) COMMENT 'it''s ours'"
	const connecting = 16
	if mode == connector.Replace {
		n += connecting
	}
	for ; ; n += cutStride {
		sqlRun(t, db, "DROP TABLE IF EXISTS t, _leat_progress, _leat_columns, _leat_shadows", old)
		if mode == connector.Replace {
			sqlRun(t, db, "INSERT INTO t VALUES (-1, 'old'), (-2, 'old')")
		}
		faults.cutAfter(n, answer)
		outcomes += runUntilDone(t, sinkConfig(t, through), mode, func() {
			if mode == connector.Replace {
				if rows := one(t, db, "SELECT COUNT(*), MIN(id) FROM t"); rows != "2|-2" && rows != "20|0" {
					t.Errorf("cut at message %d: readers see %s", n, rows)
				}
			}
		})
		if faults.untouched() {
			return outcomes
		}
		what := fmt.Sprintf("%s, cut at message %d", mode, n)
		want(t, what, "20|20|0|19", one(t, db, "SELECT COUNT(*), COUNT(DISTINCT id), MIN(id), MAX(id) FROM t"))
		want(t, what+": left behind", "it's ours|4|0", one(t, db, `SELECT MAX(IF(TABLE_NAME = 't', TABLE_COMMENT, '')), COUNT(*),
			(SELECT COUNT(*) FROM _leat_shadows) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()`))
		if t.Failed() {
			return outcomes
		}
	}
}

// runUntilDone delivers 2 batches of 10 rows as an engine would, and counts the commits of unknown outcome. between is called behind
// each generation.
func runUntilDone(t testing.TB, cfg *SinkConfig, mode connector.WriteMode, between func()) (outcomes int) {
	t.Helper()
	source := make([]*record.Batch, 2)
	for i := range source {
		source[i] = connectortest.Numbered("t", i*10, 10)
		source[i].Schema = source[0].Schema
	}
	for generation := uint64(1); generation < 20; generation++ {
		done, err := deliverRows(t, cfg, mode, generation, source)
		between()
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

func deliverRows(t testing.TB, cfg *SinkConfig, mode connector.WriteMode, fence uint64, source []*record.Batch) (bool, error) {
	t.Helper()
	ctx := t.Context()
	opened, err := cfg.Open(connectortest.Env(t))
	must(t, err)
	snk := opened.(*Sink) //nolint:forcetypeassert // of this package
	defer func() { must(t, snk.Close(context.WithoutCancel(ctx))) }()
	if err := snk.Start(ctx, connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r1", Fence: fence, Mode: mode}); err != nil {
		return false, err
	}
	p, ok, err := snk.Committed(ctx)
	if err != nil {
		return false, err
	}
	from := 0
	if ok && p.Run == "r1" {
		if p.Done {
			return true, nil
		}
		from, err = strconv.Atoi(string(p.Position.Data[len(`{"at":`) : len(p.Position.Data)-1]))
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

// Columns change in the middle of a transaction, and the connection is lost at every message: what was not committed leaves no row, and
// whoever goes on brings each column to its name, also where two have changed theirs with each other.
// clauses E5, E15
// case C038
func TestSinkEvolveLostAtEveryStep(t *testing.T) {
	text := arrow.BinaryTypes.String
	column := func(id, name string, dt arrow.DataType) arrow.Field {
		return record.WithID(arrow.Field{Name: name, Type: dt, Nullable: true}, id)
	}
	id := record.WithID(idField, "1")
	was := keyed("t", id, column("2", "a", text), column("3", "b", text), column("4", "gone", text), column("5", "n", arrow.PrimitiveTypes.Int32))
	is := keyed("t", id, column("2", "b", text), column("3", "a", text), column("5", "n", arrow.PrimitiveTypes.Int64),
		record.WithMissing(column("6", "more", text), "it's new"))
	first := connectortest.BatchOf(was, []string{"1", `"a1"`, `"b1"`, `"x"`, "1"})
	second := connectortest.BatchOf(was, []string{"2", `"a2"`, `"b2"`, `"x"`, "2"})
	third := connectortest.BatchOf(is, []string{"3", `"a3"`, `"b3"`, "3000000000", "null"})
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		rawURL := mysqltest.Database(t, kind)
		db := watcher(t, rawURL)
		faults, through := newFaultyNet(t, rawURL)
		generation := func(cfg *SinkConfig, fence uint64) error {
			opened, err := cfg.Open(connectortest.Env(t))
			must(t, err)
			snk := opened.(*Sink) //nolint:forcetypeassert // of this package
			defer func() { must(t, snk.Close(context.WithoutCancel(t.Context()))) }()
			err = snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r1", Fence: fence, Mode: connector.Upsert})
			if err != nil {
				return err
			}
			p, ok, err := snk.Committed(t.Context())
			if err != nil || (ok && string(p.Position.Data) == `{"at":2}`) {
				return err
			}
			steps := []func() error{
				func() error { return snk.Evolve(t.Context(), nil, was) },
				func() error { return snk.Write(t.Context(), first) },
				func() error { return snk.Commit(t.Context(), position(1)) },
				func() error { return snk.Write(t.Context(), second) },
				func() error { return snk.Evolve(t.Context(), was, is) },
				func() error { return snk.Write(t.Context(), third) },
				func() error { return snk.Commit(t.Context(), position(2)) },
			}
			for i, step := range steps {
				if ok && (i == 1 || i == 2) {
					continue
				}
				if err := step(); err != nil {
					return err
				}
			}
			return nil
		}
		const connecting, stride = 16, 8 // each run looks at other messages
		for n := connecting + time.Now().Nanosecond()/1000%stride; ; n += stride {
			sqlRun(t, db, "DROP TABLE IF EXISTS t, _leat_progress, _leat_columns, _leat_shadows")
			faults.cutAfter(n, true)
			err := errors.New("not yet")
			for fence := uint64(1); err != nil && fence < 9; fence++ {
				err = generation(sinkConfig(t, through), fence)
				if c := connector.ClassOf(err); err != nil && c != connector.ClassTransient && c != connector.ClassOutcome {
					t.Fatalf("cut at message %d: %v (hint: %s)", n, err, connector.HintOf(err))
				}
			}
			must(t, err)
			if faults.untouched() {
				break
			}
			want(t, fmt.Sprintf("cut at message %d", n), "1|a1|b1|1|it's new\n2|a2|b2|2|it's new\n3|a3|b3|3000000000|NULL",
				one(t, db, "SELECT id, b, a, n, more FROM t ORDER BY id"))
			want(t, "columns", "a b id more n", one(t, db, `SELECT GROUP_CONCAT(COLUMN_NAME ORDER BY COLUMN_NAME SEPARATOR ' ')
				FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'`))
			if t.Failed() {
				return
			}
		}
	})
}

// Two owners at once: the one with the higher fence wins, whatever the other had begun.
// clauses K7, W10
func TestSinkTwoOwners(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert, connector.Replace} {
			rawURL := mysqltest.Database(t, kind)
			db := watcher(t, rawURL)
			sqlRun(t, db, "CREATE TABLE t (id bigint PRIMARY KEY, v varchar(50))")
			late := startSink(t, sinkConfig(t, rawURL), mode, 1)
			must(t, late.Write(t.Context(), connectortest.Numbered("t", 100, 10)))
			owner := startSink(t, sinkConfig(t, rawURL), mode, 2) // does not wait for the other's transaction
			must(t, owner.Write(t.Context(), connectortest.Numbered("t", 0, 10)))
			if err := late.Write(t.Context(), connectortest.Numbered("new", 0, 1)); connector.ClassOf(err) != connector.ClassFenced {
				t.Errorf("mode %s: the late owner makes a table: %v", mode, err)
			}
			for name, err := range map[string]error{
				"Commit": late.Commit(t.Context(), position(9)), "Flush": late.Flush(t.Context()), "Finish": late.Finish(t.Context(), position(9)),
			} {
				if connector.ClassOf(err) != connector.ClassFenced {
					t.Errorf("mode %s: %s of the late owner: %v", mode, name, err)
				}
			}
			must(t, owner.Finish(t.Context(), position(1)))
			want(t, "rows", "10|9", one(t, db, "SELECT COUNT(*), MAX(id) FROM t"))
			flushed := startSink(t, sinkConfig(t, rawURL), connector.Append, 2)
			must(t, flushed.Write(t.Context(), connectortest.Numbered("t", 200, 1)))
			startSink(t, sinkConfig(t, rawURL), connector.Append, 3)
			if err := flushed.Flush(t.Context()); connector.ClassOf(err) != connector.ClassFenced {
				t.Errorf("Flush of the late owner: %v", err)
			}
			want(t, "rows", "10|9", one(t, db, "SELECT COUNT(*), MAX(id) FROM t"))
		}
	})
}

// The progress comes back as it was written, byte for byte.
func TestSinkProgressIsExact(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		snk := startSink(t, sinkConfig(t, mysqltest.Database(t, kind)), connector.Append, 1)
		p := record.Progress{
			Run:      `it's "r" \ <&>`,
			Position: record.Position{Shape: 7, Data: []byte(`{"gtid":"0/16B<&>3748","n":98765432109876543210,"t":"\u0000 ' \\ ünï 😀"}`)},
			Ledger:   []byte(`[{"from":null}]`), Done: true,
		}
		must(t, snk.Commit(t.Context(), p))
		got, ok, err := snk.Committed(t.Context())
		must(t, err)
		if !ok || got.Run != p.Run || !got.Position.Equal(p.Position) || string(got.Ledger) != string(p.Ledger) || !got.Done {
			t.Errorf("got %+v, want %+v", got, p)
		}
	})
}

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// workload is what writers do to a source, in its SQL.
type workload struct {
	tables  []followedTable
	big     func(from int64) string // statements of a transaction of more than a thousand rows
	emptied []string                // tables that are truncated at times
	next    func() int64            // numbers that nobody has had
}

// counter returns numbers that nobody has had, to writers at the same time.
func counter() func() int64 {
	var n atomic.Int64
	return func() int64 { return n.Add(1) }
}

// session runs the statements of one writer.
type session interface {
	exec(ctx context.Context, sql string) error
	// clashed reports whether another was in the way, and rolls back what is open.
	clashed(ctx context.Context, err error) bool
}

// pgSession is a writer's connection to Postgres.
type pgSession struct{ conn *pgx.Conn }

func (s pgSession) exec(ctx context.Context, sql string) error {
	_, err := s.conn.Exec(ctx, sql)
	return err
}

func (s pgSession) clashed(ctx context.Context, err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.Code != "40P01" && pg.Code != "23505" && pg.Code != "40001" {
		return false // neither a deadlock, nor two keys that met
	}
	_, _ = s.conn.Exec(ctx, "rollback")
	return true
}

func bigPostgres(from int64) string {
	return fmt.Sprintf(`insert into plain0 select i, i, case when i %% 5 = 0 then repeat(md5(i::text), 200) end from generate_series(%d, %d) i
		on conflict do nothing; update plain0 set n = n + 1 where id %% 11 = 0`, from, from+1500)
}

// writers change a source at the same time.
type writers struct {
	t    *testing.T
	work workload
	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup
	errs chan error
	txns atomic.Int64
}

// startWriters lets n writers change the source until they rest, each with a session of its own.
func startWriters(t *testing.T, seed uint64, n int, work workload, open func() session) *writers {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writers{t: t, work: work, ctx: ctx, stop: stop, errs: make(chan error, n)}
	for i := range n {
		one := writer{writers: w, session: open(), r: rand.New(rand.NewPCG(seed, uint64(10+i)))}
		w.all.Go(func() {
			if err := one.run(); err != nil {
				w.errs <- fmt.Errorf("writer %d: %w", i, err)
			}
		})
	}
	t.Cleanup(func() { w.rest() })
	return w
}

// more runs something else beside them.
func (w *writers) more(f func(ctx context.Context)) { w.all.Go(func() { f(w.ctx) }) }

// check fails the test where a writer failed.
func (w *writers) check() {
	w.t.Helper()
	select {
	case err := <-w.errs:
		w.t.Fatal(err)
	default:
	}
}

// rest ends them, and returns how many transactions there were.
func (w *writers) rest() int64 {
	w.stop()
	w.all.Wait()
	return w.txns.Load()
}

// writer is one of them.
type writer struct {
	*writers
	session

	r *rand.Rand
}

func (w *writer) run() error {
	for w.ctx.Err() == nil {
		err := w.exec(w.ctx, w.transaction())
		if err != nil && w.ctx.Err() == nil && !w.clashed(w.ctx, err) {
			return err
		}
		if err == nil {
			w.txns.Add(1)
		}
	}
	return nil
}

// transaction is the SQL of one, or of one statement.
func (w *writer) transaction() string {
	t := w.work.tables[w.r.IntN(len(w.work.tables))]
	switch n := w.r.IntN(1000); {
	case n < 3:
		return w.work.big(w.work.next() * 10_000)
	case n < 5 && len(w.work.emptied) > 0:
		name := w.work.emptied[w.r.IntN(len(w.work.emptied))]
		return `begin; truncate ` + name + `; ` + w.statement(t) + `; commit`
	case n < 60: // some of it is rolled back
		return `begin; ` + w.statement(t) + `; savepoint s; ` + w.statement(t) + `; rollback to s; ` + w.statement(t) + `; commit`
	case n < 80:
		return `begin; ` + w.statement(t) + `; rollback`
	case n < 300:
		u := w.work.tables[w.r.IntN(len(w.work.tables))]
		return `begin; ` + w.statement(t) + `; ` + w.statement(u) + `; ` + w.statement(t) + `; commit`
	default:
		return w.statement(t)
	}
}

func (w *writer) statement(t followedTable) string {
	pick := fmt.Sprintf(t.pick, w.r.IntN(1000))
	switch n := w.r.IntN(10); {
	case n < 4:
		return t.insert(w.r, w.work.next())
	case n < 7 && t.name == "keyless":
		return fmt.Sprintf("update %s set v = 'u%d' where %s", t.name, w.r.IntN(9), pick)
	case n < 6:
		return fmt.Sprintf("update %s set n = n + 1 where %s", t.name, pick)
	case n < 7:
		return fmt.Sprintf("update %s set doc = %s where %s", t.name, toast(w.r, w.work.next()), pick)
	case n < 8 && t.move != "":
		return fmt.Sprintf("update %s set "+t.move+" where %s", t.name, w.work.next(), pick)
	default:
		return fmt.Sprintf("delete from %s where %s", t.name, pick)
	}
}

package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
)

// Forwarder is a reject store that passes each letter on to a sink, once the letter is kept. It does so beside the run, as the sink
// may be the place that the run itself writes to; a failure that does not pass is the error of the next Flush, which stops the run.
// Nothing is lost then: the next process goes on behind what the sink has.
type Forwarder struct {
	*Store
	pipeline string
	target   Target
	offer    engine.SinkOffer
	log      *slog.Logger
	now      func() time.Time

	mu    sync.Mutex // guards these
	fresh bool       // there may be letters that the sink lacks
	err   error      // why letters can't be passed on

	wake   chan struct{}
	stop   context.CancelFunc // ends what runs beside; nil: nothing does
	runs   sync.WaitGroup
	link   *sinkLink // nil: not open; of whoever forwards
	linked error     // of closing it
}

var _ engine.RejectStore = (*Forwarder)(nil)

// NewForwarder makes a forwarder of the letters of one pipeline. It does no I/O; a sink that can't take letters is an error. End must
// be called.
func NewForwarder(s *Store, pipeline string, t Target, log *slog.Logger, now func() time.Time) (*Forwarder, error) {
	offer, err := t.offer()
	if err != nil {
		return nil, err
	}
	return &Forwarder{
		Store: s, pipeline: pipeline, target: t, offer: offer, log: log, now: now, fresh: true, wake: make(chan struct{}, 1),
	}, nil
}

// Append implements engine.RejectStore.
func (f *Forwarder) Append(ctx context.Context, rows []engine.Rejected) error {
	err := f.Store.Append(ctx, rows)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh = f.fresh || len(rows) > 0
	return err
}

// Flush implements engine.RejectStore: letters are kept; the sink gets them soon.
func (f *Forwarder) Flush(ctx context.Context) error {
	if err := f.Store.Flush(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || !f.fresh {
		return f.err
	}
	f.fresh = false
	if f.stop == nil {
		beside, stop := context.WithCancel(context.WithoutCancel(ctx))
		f.stop = stop
		f.runs.Go(func() { f.run(beside) })
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return nil
}

// run passes letters on whenever there are new ones, until it fails for good.
func (f *Forwarder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		if err := f.insist(ctx); err != nil {
			if ctx.Err() == nil {
				f.failed(err)
			}
			return
		}
	}
}

func (f *Forwarder) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

const (
	maxTries = 6
	minWait  = 500 * time.Millisecond
)

// insist passes letters on, and tries again what may pass.
func (f *Forwarder) insist(ctx context.Context) error {
	wait := minWait
	for tries := 1; ; tries++ {
		err := f.forward(ctx)
		if err == nil {
			return nil
		}
		f.unlink(ctx)
		if connector.ClassOf(err) != connector.ClassTransient || tries == maxTries || ctx.Err() != nil {
			return &connector.Error{
				Class: connector.ClassPermanent, Code: "deadletter.sink", Doing: "writing dead letters to " + f.target.Connector,
				Err:  fmt.Errorf("%w; nothing is lost: the letters are kept in %s, too", err, f.Path()),
				Hint: "mend the sink, or take dead_letters out of the pipeline",
			}
		}
		f.log.Warn("writing dead letters", slog.Any("error", err), slog.Duration("wait", wait))
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		wait *= 2
	}
}

// End flushes, passes on what the sink still lacks, and closes the sink. The run must have ended. The store is closed by Close.
func (f *Forwarder) End(ctx context.Context) error {
	if f.stop != nil {
		f.stop()
		f.runs.Wait()
	}
	err := f.err
	if err == nil {
		err = f.Store.Flush(ctx)
	}
	if err == nil {
		err = f.insist(ctx)
	}
	f.unlink(ctx)
	return errors.Join(err, f.linked)
}

// unlink closes the sink, which is opened anew when it is needed.
func (f *Forwarder) unlink(ctx context.Context) {
	if f.link != nil {
		f.linked = f.link.close(ctx)
		f.link = nil
	}
}

// forward writes what the sink lacks.
func (f *Forwarder) forward(ctx context.Context) error {
	at, err := f.stand(ctx)
	if err != nil {
		return err
	}
	newest, err := f.newest(ctx)
	if err != nil || newest <= at.number {
		return err
	}
	if f.link == nil {
		if f.link, err = f.open(ctx, &at); err != nil {
			return err
		}
	}
	var page []Letter
	write := func() error {
		if len(page) == 0 {
			return nil
		}
		last := page[len(page)-1].Number
		if err := f.link.write(ctx, page, last); err != nil {
			return err
		}
		page = page[:0]
		return f.saveForwarded(ctx, last)
	}
	err = f.each(ctx, Filter{Pipeline: f.pipeline}, at.number, func(l Letter) error {
		page = append(page, l)
		if len(page) < pageLetters {
			return nil
		}
		return write()
	})
	if err != nil {
		return err
	}
	return write()
}

// standing is how far letters were passed on, as the store has it.
type standing struct {
	store  string // the store's id
	number int64
	fence  int64
}

func (f *Forwarder) stand(ctx context.Context) (at standing, err error) {
	err = f.use(ctx, false, func(in *session) error {
		at.store = in.id
		return sqlitex.Execute(in.conn, "select number, fence from forwarded where pipeline = ? and target = ?", &sqlitex.ExecOptions{
			Args: []any{f.pipeline, f.identity()},
			ResultFunc: func(stmt *sqlite.Stmt) error {
				at.number, at.fence = stmt.ColumnInt64(0), stmt.ColumnInt64(1)
				return nil
			},
		})
	})
	return at, err
}

// identity is the sink as its own configuration names it: another one gets all letters.
func (f *Forwarder) identity() string {
	id := map[string]string{"connector": f.target.Connector}
	for k, v := range f.target.Config.Identity() {
		id["option."+k] = v
	}
	text, err := json.Marshal(id)
	if err != nil {
		panic(fmt.Sprintf("deadletter: identity: %v", err)) // text always marshals
	}
	return string(text)
}

func (f *Forwarder) newest(ctx context.Context) (n int64, err error) {
	err = f.use(ctx, false, func(in *session) error {
		n, err = number(in.conn, "select coalesce(max(number), 0) from letter where pipeline = ?", f.pipeline)
		return err
	})
	return n, err
}

func (f *Forwarder) saveForwarded(ctx context.Context, last int64) error {
	return f.use(ctx, true, func(in *session) error {
		return exec(in.conn, "update forwarded set number = ? where pipeline = ? and target = ?", last, f.pipeline, f.identity())
	})
}

// open starts the sink under a fence of its own, and moves at to where the sink itself says that it stands.
func (f *Forwarder) open(ctx context.Context, at *standing) (*sinkLink, error) {
	fence := max(at.fence+1, f.now().UnixMicro())
	err := f.use(ctx, true, func(in *session) error {
		return exec(in.conn, "insert into forwarded (pipeline, target, number, fence) values (?, ?, ?, ?)"+
			" on conflict do update set fence = excluded.fence", f.pipeline, f.identity(), at.number, fence)
	})
	if err != nil {
		return nil, err
	}
	l := newLink(ctx, at.store, f.offer.Mode)
	env := connector.Env{
		Pipeline: f.pipeline, Log: f.log.With(slog.String("connector", Dataset)), Now: f.now, Roundtrip: func(string) {}, Go: l.spawn,
	}
	if l.sink, err = f.target.Config.Open(env); err != nil {
		return nil, err
	}
	err = l.start(ctx, connector.SinkStart{
		Pipeline: f.pipeline, Lane: Lane, Run: at.store, Fence: uint64(fence), Guarantee: connector.AtLeastOnce, Mode: f.offer.Mode,
	})
	if err == nil {
		err = l.resume(ctx, at)
	}
	if err != nil {
		return nil, errors.Join(err, l.close(ctx))
	}
	return l, nil
}

// sinkLink is an open sink of letters.
type sinkLink struct {
	sink   connector.Sink
	schema *record.Schema
	store  string
	ctx    context.Context //nolint:containedctx // the lifetime of the sink's goroutines
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newLink(ctx context.Context, store string, mode connector.WriteMode) *sinkLink {
	l := &sinkLink{schema: letterSchema(), store: store}
	if mode != connector.Upsert {
		l.schema.Key = nil
	}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return l
}

func (l *sinkLink) spawn(f func(ctx context.Context)) error {
	l.wg.Go(func() { f(l.ctx) })
	return nil
}

func (l *sinkLink) close(ctx context.Context) error {
	const wait = 10 * time.Second
	timed, stop := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer stop()
	l.cancel()
	err := l.sink.Close(timed)
	l.wg.Wait()
	return err
}

// start asks the sink how it will hold letters, and starts it.
func (l *sinkLink) start(ctx context.Context, s connector.SinkStart) error {
	if m, ok := connector.As[connector.Mapper](l.sink); ok {
		columns, err := m.Map(ctx, l.schema)
		if err != nil {
			return err
		}
		var bad []string
		for _, c := range columns {
			if c.Fidelity == connector.Inexact {
				bad = append(bad, c.Column+": "+c.Why)
			}
		}
		if len(bad) > 0 {
			return fmt.Errorf("it can't hold letters exactly: %s", strings.Join(bad, "; "))
		}
	}
	if err := l.sink.Start(ctx, s); err != nil {
		return err
	}
	if e, ok := connector.As[connector.Evolver](l.sink); ok {
		return e.Evolve(ctx, nil, l.schema)
	}
	return nil
}

// number is the position that a sink keeps: how far the letters of the store are in it.
type numberPosition struct {
	Number int64 `json:"number"`
}

// resume moves at to where the sink stands, where it says so.
func (l *sinkLink) resume(ctx context.Context, at *standing) error {
	var p record.Progress
	var found bool
	var err error
	if two, ok := connector.As[connector.TwoPhase](l.sink); ok {
		if err = two.Abort(ctx); err == nil {
			p, found, err = two.Committed(ctx)
		}
	} else if store, ok := connector.As[connector.PositionStore](l.sink); ok {
		p, found, err = store.Committed(ctx)
	}
	if err != nil || !found || p.Run != l.store {
		return err
	}
	var n numberPosition
	if err := json.Unmarshal(p.Position.Data, &n); err != nil {
		return fmt.Errorf("reading how far letters are in it: %w", err)
	}
	at.number = n.Number
	return nil
}

// write brings letters into the sink, durably.
func (l *sinkLink) write(ctx context.Context, letters []Letter, last int64) error {
	b, err := batchOf(l.schema, letters)
	if err != nil {
		return err
	}
	if err := l.sink.Write(ctx, b); err != nil {
		return err
	}
	data, err := json.Marshal(numberPosition{last})
	if err != nil {
		return fmt.Errorf("encoding how far letters are: %w", err)
	}
	p := record.Progress{Run: l.store, Position: record.Position{Shape: 1, Data: data}, Epoch: uint64(last)}
	if two, ok := connector.As[connector.TwoPhase](l.sink); ok {
		staged, err := two.Prepare(ctx, p)
		if err != nil {
			return err
		}
		return two.Publish(ctx, p, staged)
	}
	if store, ok := connector.As[connector.PositionStore](l.sink); ok {
		return store.Commit(ctx, p)
	}
	return l.sink.Flush(ctx)
}

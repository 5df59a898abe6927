package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// generation is one source value, the lanes, and a deliverer for each sink. After a failure of the source everything is replaced
// by another generation, which starts as a new process would: from what is durable.
type generation struct {
	r            *runner
	blue         *blueprint
	src          connector.Source
	srcValue     *value
	lanes        []*deliverer
	stream       lane.Stream
	durable      lane.Durable // the stream, where it outlives the process; nil: it does not
	resumes      bool         // everything goes on from what durable lanes have
	box          *mailbox
	begun        record.Position // where the source started; zero: at its beginning
	saved        lane.Mark       // by this generation's checkpointer, newest
	told         time.Time       // when it saved last how far the lanes are
	back         *backfiller     // nil: the source sends no changes, or can't be merged with snapshots
	restartsOnly bool
	reconciled   atomic.Bool
	inOrder      chan struct{} // capacity 1: the source is reconciled again, so what moved meanwhile may be saved
	ended        atomic.Bool   // the source came to its end: set before the stream is closed
	reached      atomic.Bool   // a run that was to end at some place of the stream got there
	left         atomic.Bool   // a lane was left with items in it
	over         chan struct{} // closed when nothing more is read

	soft context.Context //nolint:containedctx // ends reading
	stop context.CancelFunc
	hard context.Context //nolint:containedctx // ends everything
	kill context.CancelFunc

	mu    sync.Mutex
	cause error // the first failure
	own   *failure
}

// generation runs one generation. A *restartError asks for another one; nil is an end in order.
func (r *runner) generation(ctx context.Context) (err error) {
	g := &generation{r: r, box: newMailbox(), inOrder: make(chan struct{}, 1), over: make(chan struct{}), restartsOnly: r.restartsOnly()}
	g.reconciled.Store(true)
	g.soft, g.stop = context.WithCancel(ctx)
	g.hard, g.kill = context.WithCancel(context.WithoutCancel(ctx))
	defer g.stop()
	defer g.kill()
	if !r.ran {
		r.ctl.state(Starting, "", nil)
	}
	defer func() { err = g.close(err) }()
	s, err := g.open()
	if err != nil {
		return g.startFailed(err)
	}
	if s.finished {
		return r.complete(g.hard, g.finalPosition(record.Position{}))
	}
	return g.flow()
}

// startFailed decides about a generation that never came to read: only a later one than the first is worth another try, so that a
// wrong host is told at once. A pipeline that follows its source and has come to follow it before is tried again, too: it ran.
func (g *generation) startFailed(err error) error {
	if g.soft.Err() != nil || (!g.r.ran && !g.r.followedBefore(g.soft)) {
		return err
	}
	f := failure{err: err, tries: g.r.pacer.tries(), retry: g.r.plan.Retry, asked: g.r.plan.Guarantee, replay: g.r.contract.Replay}
	v, reason := judge(f)
	if v == giveUp {
		return reason
	}
	return &restartError{err: err}
}

// followedBefore reports whether an earlier process has followed the source.
func (r *runner) followedBefore(ctx context.Context) bool {
	if !r.follows() {
		return false
	}
	rec, _, err := r.load(ctx)
	return err == nil && rec != nil && (!rec.Progress.Position.Zero() || !rec.Origin.Zero())
}

// open builds and starts everything, up to the source's first read.
func (g *generation) open() (start, error) {
	r, ctx := g.r, g.soft
	if err := g.openSource(ctx); err != nil {
		return start{}, err
	}
	g.lanes = make([]*deliverer, len(r.plan.Sinks))
	for i := range r.plan.Sinks {
		g.lanes[i] = newDeliverer(g, i)
		if err := g.lanes[i].open(); err != nil {
			return start{}, err
		}
	}
	if _, err := r.loadOrders(ctx); err != nil {
		return start{}, err
	}
	before, _, err := r.load(ctx)
	if err != nil {
		return start{}, err
	}
	if before != nil {
		r.before = *before
	}
	blue, problems, err := r.plans(ctx, g.src, g.srcValue, g.asked())
	if err == nil {
		err = problemsError(problems)
	}
	if err != nil {
		return start{}, err
	}
	g.blue = blue
	order, migrate := positionsOf(g.src)
	c, err := r.begin(ctx, identityOf(r.plan, r.modes(), blue.schemas), migrate)
	if err != nil {
		return start{}, err
	}
	if err := g.openLanes(ctx, c); err != nil {
		return start{}, err
	}
	s, err := g.startLanes(ctx, c, order, migrate)
	if err != nil || s.finished {
		return s, err
	}
	if s.from.Origin == connector.Initial {
		if s.from, err = g.resolveOrigin(ctx, s.from); err != nil {
			return start{}, err
		}
	}
	g.begun = s.from.Position
	if err := g.startSource(ctx, s, c); err != nil {
		return start{}, err
	}
	if err := g.aim(ctx); err != nil {
		return start{}, err
	}
	return s, g.openBackfills(ctx, s, c)
}

func (g *generation) openSource(ctx context.Context) error {
	r := g.r
	g.srcValue = r.newValue(ctx, "source", r.shares.source, g.broke)
	err := g.srcValue.call("open", func() (err error) {
		g.src, err = r.plan.Source.Config.Open(g.srcValue.env(r.now))
		return err
	})
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	return nil
}

// asked is an opened sink that is asked about datasets.
type asked struct {
	sink connector.Sink
	v    *value
	maps mapper
}

func (g *generation) asked() []asked {
	as := make([]asked, len(g.lanes))
	for i, d := range g.lanes {
		as[i] = asked{d.sink, d.v, mapperOf(d.sink, d.v)}
	}
	return as
}

// mapperOf asks one opened sink.
func mapperOf(s connector.Sink, v *value) mapper {
	m, ok := connector.As[connector.Mapper](s)
	if !ok {
		return nil
	}
	return func(ctx context.Context, schema *record.Schema) (ms []connector.Mapping, err error) {
		err = v.call("map", func() (err error) {
			ms, err = m.Map(ctx, schema)
			return err
		})
		return ms, err
	}
}

// startLanes starts every sink, reads what each has, and decides where the source starts.
func (g *generation) startLanes(ctx context.Context, c choice, order compare, migrate migration) (start, error) {
	if g.durable != nil {
		s, ok, err := g.goOn(ctx, c, order, migrate)
		if err != nil || ok {
			g.resumes = ok
			return s, err
		}
	}
	f := startFacts{run: c.run, restarts: g.r.plan.Limit > 0, compare: order, joined: c.joined}
	_, f.acks = connector.As[connector.Acknowledger](g.src)
	for _, d := range g.lanes {
		d.only = onlyOf(c.only, d.spec.Name)
		d.failed = setOf(c.failed[d.spec.Name])
		d.frozen = c.frozen[d.spec.Name]
		if len(c.only) > 0 && len(d.only) == 0 {
			d.done = true // this run repairs other sinks: this one is not touched
			done := record.Progress{Run: c.run, Done: true}
			f.lanes = append(f.lanes, laneState{sink: d.spec.Name, kind: stores, has: true, committed: done})
			continue
		}
		l, err := d.stands(ctx, c, f, migrate)
		if err != nil {
			return start{}, err
		}
		f.lanes = append(f.lanes, l)
	}
	s, err := chooseStart(c, f)
	if err != nil {
		return start{}, err
	}
	g.r.resumed = g.r.resumed || s.resumed
	for i, d := range g.lanes {
		d.skipper = skipper{skip: s.skips[d.spec.Name], compare: order}
		if l := f.lanes[i]; l.has && l.committed.Run == c.run {
			d.took(l.committed)
			d.done = l.committed.Done
		}
	}
	return s, nil
}

// stands starts the sink and reads what it has.
func (d *deliverer) stands(ctx context.Context, c choice, f startFacts, migrate migration) (laneState, error) {
	l := laneState{sink: d.spec.Name, kind: d.kind}
	if err := d.start(ctx); err != nil {
		return l, err
	}
	p, has, err := d.progress(ctx)
	if err != nil {
		return l, err
	}
	d.ledger, d.stranger = p.Ledger, has && p.Run != c.run || d.begun()
	if d.kind != stores && d.kind != phased && !slices.Contains(c.joined, d.spec.Name) {
		d.ledger = c.ledger
	}
	if p.Position, err = migrate(p.Position); err != nil {
		return l, fmt.Errorf("the position in sink %q: %w", d.spec.Name, err)
	}
	if d.g.durable != nil && has && p.Run == c.run { // it can only have come from the lanes
		return l, lostError(fmt.Sprintf("sink %q has", d.spec.Name), p.Position, record.Position{})
	}
	l.committed, l.has = p, has
	if outdated(c, f, l) {
		d.stranger = true
		return l, nil
	}
	return l, d.trusted(ctx, p, has)
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

// onlyOf is the set of datasets that a repairing run delivers to one sink; nil: all.
func onlyOf(only map[string][]string, sink string) map[string]bool {
	if len(only) == 0 {
		return nil
	}
	return setOf(only[sink])
}

// resolveOrigin makes the configured default a position and saves it before the first read (S3).
func (g *generation) resolveOrigin(ctx context.Context, from connector.From) (connector.From, error) {
	resolve := originOf(g.src)
	if resolve == nil {
		return from, nil
	}
	var at record.Position
	err := g.srcValue.call("resolve origin", func() (err error) {
		at, err = resolve(ctx)
		return err
	})
	if err != nil {
		return from, fmt.Errorf("source: resolving where to start: %w", err)
	}
	if at.Zero() {
		return from, nil
	}
	err = g.r.update(ctx, func(rec *state.Record) error {
		rec.Origin = at
		return nil
	})
	if err != nil {
		return from, err
	}
	return connector.From{Origin: connector.Initialised, Position: at}, nil
}

// originOf returns how the source makes its default start a position; nil: it has no way.
func originOf(src connector.Source) func(context.Context) (record.Position, error) {
	if a, ok := connector.As[connector.Anchor](src); ok {
		return a.Anchor
	}
	if o, ok := connector.As[connector.Originator](src); ok {
		return o.ResolveOrigin
	}
	return nil
}

func (g *generation) startSource(ctx context.Context, s start, c choice) error {
	req := connector.SourceStart{
		From: s.from, Guarantee: g.r.admission.Reached, Datasets: g.blue.names, Cuts: s.cuts, Encoded: g.blue.encoded,
	}
	if len(c.only) > 0 {
		req.Datasets = g.blue.sourcesOf(c.only)
	}
	if err := req.Validate(); err != nil {
		return err
	}
	g.tellEncodings()
	if err := g.srcValue.call("start", func() error { return g.src.Start(ctx, req) }); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	return nil
}

// flow moves rows until the source ends, a stop, or a failure.
func (g *generation) flow() error {
	r := g.r
	names := make([]string, len(g.lanes))
	var untracked []string
	for i, d := range g.lanes {
		names[i] = d.spec.Name
		if d.kind == whole {
			untracked = append(untracked, d.spec.Name)
		}
	}
	if g.durable == nil {
		var err error
		if g.stream, err = r.deps.lanes(names, lane.Options{Bytes: r.plan.QueueBytes, Untracked: untracked}); err != nil {
			return err
		}
	}
	r.ran = true
	r.ctl.move(Running)

	rd := newReader(g)
	var work, checks sync.WaitGroup
	for _, d := range g.lanes {
		work.Go(func() {
			if err := d.v.guard(d.run); err != nil {
				g.fail(err, &failure{err: err, sink: true})
			}
		})
	}
	work.Go(func() { g.read(rd) })
	delivered := make(chan struct{})
	checks.Go(func() { g.watchLag(delivered) })
	checks.Go(func() { g.watchLanes(delivered) })
	checks.Go(func() { g.watchOrders(delivered) })
	if g.back != nil {
		checks.Go(func() {
			if err := g.listen(delivered); err != nil {
				g.fail(err, nil)
			}
		})
	}
	checks.Go(func() {
		if err := g.checkpointer(g.hard, delivered); err != nil {
			g.fail(err, nil)
		}
	})
	if err := g.await(&work); err != nil {
		return err
	}
	close(delivered)
	if err := g.await(&checks); err != nil {
		return err
	}
	return g.end(rd)
}

// read runs the reader, and closes the stream behind it: deliverers finish what was published.
func (g *generation) read(rd *reader) {
	ended := false
	err := g.srcValue.guard(func() (err error) {
		ended, err = rd.run(g.soft, g.hard)
		return err
	})
	if err != nil {
		g.fail(err, &failure{err: err})
	}
	g.ended.Store(ended && err == nil && !rd.reached)
	g.reached.Store(rd.reached && err == nil)
	g.r.ctl.move(Draining)
	_ = g.stream.Close() // never fails
	close(g.over)
}

// every calls f again and again, until done is closed or reading ends. f is first called after d.
func (g *generation) every(d time.Duration, done <-chan struct{}, f func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f()
		case <-done:
			return
		case <-g.soft.Done():
			return
		}
	}
}

// broke is told of panics in goroutines of connectors.
func (g *generation) broke(err error) { g.fail(err, nil) }

// fail keeps the first failure and ends reading. A lost ownership ends everything at once.
func (g *generation) fail(err error, f *failure) {
	g.mu.Lock()
	first := g.cause == nil
	if first {
		g.cause, g.own = err, f
	}
	g.mu.Unlock()
	if first {
		g.r.log.Warn("ending a generation", slog.Any("error", err))
	}
	if connector.ClassOf(err) == connector.ClassFenced {
		g.kill()
	}
	g.stop()
}

// await waits for the goroutines: as long as it takes while all is well, for Drain after a stop, and then, with all calls
// cancelled, for Drain once more. errStuck names the calls that did not return (S10).
func (g *generation) await(wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-g.soft.Done():
	}
	t := time.NewTimer(g.r.plan.Drain)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-g.hard.Done():
	case <-t.C:
		g.r.log.Warn("the drain took too long; giving up", slog.Duration("after", g.r.plan.Drain))
	}
	g.kill()
	t.Reset(g.r.plan.Drain)
	select {
	case <-done:
		return nil
	case <-t.C:
		return g.stuckError()
	}
}

func (g *generation) stuckError() error {
	var calls []string
	for _, v := range g.values() {
		if c := v.current(); c != "" {
			calls = append(calls, v.who+" in "+c)
		}
	}
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "engine.stuck", Doing: "stopping",
		Err: fmt.Errorf("%s: %w", strings.Join(calls, ", "), errStuck), Hint: "end the process; the next run goes on from what is durable",
	}
}

func (g *generation) values() []*value {
	vs := []*value{g.srcValue}
	for _, d := range g.lanes {
		vs = append(vs, d.value())
	}
	return vs
}

// end decides what the end of a generation means, once nothing runs any more.
func (g *generation) end(rd *reader) error {
	g.mu.Lock()
	cause, own := g.cause, g.own
	g.mu.Unlock()
	if cause == nil && g.reached.Load() && !g.left.Load() {
		g.r.done = true
	}
	if cause == nil && g.ended.Load() && !g.left.Load() {
		at := g.finalPosition(rd.last)
		if err := g.r.complete(g.hard, at); err != nil {
			return err
		}
		if !at.Zero() {
			g.box.put(at)
		}
	}
	if g.durable != nil && g.hard.Err() == nil {
		if err := g.saveFacts(g.hard); err != nil {
			g.r.log.Warn("saving what is known of the lanes", slog.Any("error", err))
		}
	}
	if g.back != nil && cause == nil && g.hard.Err() == nil {
		g.back.settleOrders(g.hard) // what was saved at the end counts, too
		g.back.settleParts(g.hard)
	}
	if err := g.lastWord(rd); err != nil {
		g.r.log.Warn("the last acknowledgement failed; the next run repeats it", slog.Any("error", err))
	}
	if cause == nil {
		return nil
	}
	return g.verdict(cause, own)
}

// lastWord tells the source of what was saved last; at the end of a run a failure is only logged (S11).
func (g *generation) lastWord(rd *reader) error {
	if g.hard.Err() != nil || rd.retired {
		return nil
	}
	ctx, cancel := context.WithTimeout(g.hard, g.r.plan.Drain)
	defer cancel()
	return rd.acknowledge(ctx)
}

// verdict judges the failure that ended the generation.
func (g *generation) verdict(cause error, own *failure) error {
	if _, ok := errors.AsType[*restartError](cause); ok {
		return cause
	}
	if own == nil || own.sink {
		return cause // a sink has judged its own failures
	}
	f := *own
	f.tries, f.retry, f.asked, f.replay = g.r.pacer.tries(), g.r.plan.Retry, g.r.plan.Guarantee, g.r.contract.Replay
	for _, d := range g.lanes {
		f.repeats = f.repeats || (d.dirty && repeats(d.offer, d.kind))
	}
	v, err := judge(f)
	if v == giveUp {
		return err
	}
	return &restartError{err: cause}
}

// finalPosition is the position behind all that the run read.
func (g *generation) finalPosition(last record.Position) record.Position {
	if !last.Zero() {
		return last
	}
	for _, d := range g.lanes {
		if !d.position.Zero() {
			return d.position
		}
	}
	return last
}

// close releases everything, whatever happened. What can't be closed is stuck, and outlives the generation.
func (g *generation) close(err error) error {
	g.stop()
	g.kill()
	if errors.Is(err, errStuck) {
		return err // something is still in a call: nothing may touch it
	}
	for _, d := range g.lanes {
		if d == nil {
			continue
		}
		d.consumer = nil
		if e := d.release(); e != nil {
			err = g.closeFailed(err, e)
		}
	}
	if g.durable != nil {
		if e := g.durable.Release(); e != nil {
			err = g.closeFailed(err, e)
		}
	}
	if g.src != nil {
		if e := g.srcValue.release(g.r.plan.Drain, g.src.Close); e != nil {
			err = g.closeFailed(err, e)
		}
	}
	return err
}

// closeFailed keeps a stuck close as the error; any other one is logged, as all that matters is durable by then.
func (g *generation) closeFailed(err, e error) error {
	if errors.Is(e, errStuck) {
		return &connector.Error{Class: connector.ClassPermanent, Code: "engine.stuck", Doing: "closing", Err: errors.Join(e, err)}
	}
	g.r.log.Warn("closing", slog.Any("error", e))
	return err
}

// signal wakes whoever waits on a channel of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

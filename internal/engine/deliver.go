package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// deliverer brings one lane into one sink. It replaces its sink's value after failures that may be tried again; all that it holds
// besides belongs to the lane and outlives values.
type deliverer struct {
	g     *generation
	i     int
	spec  SinkSpec
	offer SinkOffer
	kind  laneKind
	bad   *badCounter
	pacer *pacer
	room  gatherRoom

	mu      sync.Mutex // guards v, which a stuck run looks at, and the two behind it
	v       *value
	waiting context.Context //nolint:containedctx // to wait for items with; ended by wake
	wake    context.CancelFunc

	sink     connector.Sink
	store    connector.PositionStore // nil unless kind is stores
	phases   connector.TwoPhase      // nil unless kind is phased
	finisher connector.Finisher      // nil: nothing to finish
	evolver  connector.Evolver       // nil: schemas can't change
	consumer lane.Consumer[lane.Item]

	skipper  skipper
	datasets map[string]*inflow // by dataset as the lane carries it
	only     map[string]bool    // nil: all
	failed   map[string]bool
	done     bool // the sink has the whole run

	durable  committed           // what the sink has for sure
	position record.Position     // of the newest positioned item
	tried    committed           // the newest commit, whose outcome may be unknown
	into     *inflow             // what was written last went there
	ledger   json.RawMessage     // of open backfills, as the lane had it when the generation started
	frozen   map[string][]string // columns that the target keeps, by dataset: saved by an earlier process
	stranger bool                // the sink has rows, and nothing says what of
	later    error               // ends the lane at the next durable point
	epoch    uint64              // of the sink's newest commit in this run
	detached bool                // the durable lane was let go: the sink has to be filled anew
	attached chan struct{}       // capacity 1: the reader has attached the lane again
	isDown   atomic.Bool         // the sink fails, and is waited for
	pending
}

// pending is what was received since the last durable point.
type pending struct {
	held      []lane.Delivery[lane.Item] // not acknowledged, in order
	heldBytes int64
	bytes     int64 // written
	rows      map[string]int64
	since     time.Time   // of the first write
	dirty     bool        // rows were written
	released  bool        // some of those were acknowledged before they were durable
	boundary  lane.Mark   // newest positioned item; zero: none
	number    uint64      // of that item
	mid       bool        // something was written behind the boundary
	intended  bool        // the intent of a two-phase epoch is saved
	waits     []*gathered // received and not written yet, by dataset
	waitRows  int
	waitBytes int64
	stamps    []stamp // when the changes among them were committed in the source
}

// committed is a commit of a sink that keeps its progress: the mark that the lane carried, and the ledger as the sink keeps it.
type committed struct {
	lane.Mark
	kept  string
	epoch uint64
}

// is reports whether a sink's progress is this commit.
func (c committed) is(p record.Progress) bool {
	return p.Position.Equal(c.Position) && string(p.Ledger) == c.kept && p.Epoch == c.epoch
}

// inflow is one dataset on its way into the sink.
type inflow struct {
	*layout
	sent      *record.Schema // as it was last written; nil: nothing was
	kept      *record.Schema // as it was last written durably; nil: nothing was
	committed bool           // rows of it are durable
	checked   bool           // the target was brought up to the first schema
	frozen    *frozenColumns // the columns changed, and the target stays as it is; nil: it follows
	given     int64          // rows that were written
	before    int64          // likewise, of which durable
}

func newDeliverer(g *generation, i int) *deliverer {
	return &deliverer{
		g: g, i: i, spec: g.r.plan.Sinks[i], offer: g.r.offers[i], bad: g.r.sinkBad[i], pacer: newPacer(g.r.plan.Retry, g.r.random),
		room:     gatherRoomFor(g.r.offers[i].Contract.Rows, g.r.plan.Commit.Bytes),
		datasets: map[string]*inflow{}, failed: map[string]bool{}, pending: pending{rows: map[string]int64{}},
		attached: make(chan struct{}, 1),
	}
}

func (d *deliverer) value() *value {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.v
}

// open builds a value of the sink, without I/O.
func (d *deliverer) open() error {
	v := d.g.r.newValue(d.g.hard, d.spec.Name, d.g.r.shares.sink, d.g.broke)
	d.mu.Lock()
	d.v = v
	d.mu.Unlock()
	err := v.call("open", func() (err error) {
		d.sink, err = d.spec.Config.Open(v.env(d.g.r.now))
		return err
	})
	if err != nil {
		return d.wrap(err)
	}
	d.kind = kindOf(d.offer, d.sink)
	d.store, d.phases = nil, nil
	switch d.kind {
	case stores:
		d.store, _ = connector.As[connector.PositionStore](d.sink)
	case phased:
		d.phases, _ = connector.As[connector.TwoPhase](d.sink)
	case flushes, whole:
	}
	d.finisher, _ = connector.As[connector.Finisher](d.sink)
	d.evolver, _ = connector.As[connector.Evolver](d.sink)
	return nil
}

func (d *deliverer) wrap(err error) error { return fmt.Errorf("sink %q: %w", d.spec.Name, err) }

func (d *deliverer) start(ctx context.Context) error {
	req := connector.SinkStart{
		Pipeline: d.g.r.plan.Name, Lane: d.spec.Name, Run: d.g.r.runName, Fence: d.g.r.attempt,
		Guarantee: d.g.r.admission.Reached, Mode: d.offer.Mode,
	}
	if err := d.v.call("start", func() error { return d.sink.Start(ctx, req) }); err != nil {
		return d.wrap(err)
	}
	return nil
}

// progress reads back what the sink has committed, and lets go of what was set aside behind it.
func (d *deliverer) progress(ctx context.Context) (p record.Progress, has bool, err error) {
	switch {
	case d.phases != nil:
		p, has, err = d.recover(ctx)
	case d.store != nil:
		p, has, err = d.readBack(ctx, d.store.Committed)
	default:
		return p, false, nil
	}
	if err != nil {
		return p, false, d.wrap(err)
	}
	d.epoch = 0
	if has && p.Run == d.g.r.runName {
		d.epoch = p.Epoch
	}
	return p, has, d.g.r.forgetRejects(ctx, d.spec.Name, d.epoch)
}

func (d *deliverer) readBack(
	ctx context.Context, committed func(context.Context) (record.Progress, bool, error),
) (p record.Progress, has bool, err error) {
	err = d.v.call("read back the position", func() (err error) {
		p, has, err = committed(ctx)
		return err
	})
	return p, has, err
}

// release closes the value and waits for its goroutines.
func (d *deliverer) release() error {
	if d.sink == nil {
		return nil
	}
	s := d.sink
	d.sink = nil
	return d.v.release(d.g.r.plan.Drain, s.Close)
}

// run delivers until the lane has ended: one generation of the sink after the other.
func (d *deliverer) run() error {
	ctx := d.g.hard
	for {
		err := d.serve(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, errStuck) {
			return err
		}
		if errors.Is(err, lane.ErrDetached) {
			d.letGoOfLane()
		}
		var wait time.Duration
		alone, saveErr := d.isolate(ctx, err)
		if saveErr != nil {
			return saveErr
		}
		if !alone {
			f := d.failure(err)
			v, reason := judge(f)
			switch v {
			case giveUp:
				if wait, err = d.goDown(f, reason); err != nil {
					return err
				}
			case restart:
				return &restartError{err: err}
			case again:
				wait = d.pacer.next(err)
			}
		}
		if err := d.replace(err, wait); err != nil {
			return err
		}
	}
}

func (d *deliverer) failure(err error) failure {
	r := d.g.r
	return failure{
		err: err, sink: true, tries: d.pacer.tries(), retry: r.plan.Retry, asked: r.plan.Guarantee, replay: r.contract.Replay,
		kind: d.kind, released: d.released, repeats: d.dirty && repeats(d.offer, d.kind),
	}
}

// replace retires the sink's value and starts another one: the lane hands back what is not acknowledged.
func (d *deliverer) replace(cause error, wait time.Duration) error {
	if d.consumer != nil {
		_ = d.consumer.Close() // never fails; what was held goes back to the lane
		d.consumer = nil
	}
	if err := d.release(); err != nil {
		if errors.Is(err, errStuck) {
			return err
		}
		d.g.r.log.Warn("closing a sink that failed", slog.Any("error", err))
	}
	d.pending = pending{rows: map[string]int64{}}
	for _, in := range d.datasets { // columns that were changed and not committed are as they were
		if in.sent != in.kept && in.frozen == nil && d.g.r.follows() {
			in.layout = nil
		}
		in.sent, in.checked = in.kept, false
	}
	d.g.r.ctl.sink(d.spec.Name, func(s *SinkStatus) { s.Retries++ })
	if wait > 0 {
		d.g.r.log.Warn("replacing a sink", slog.String("sink", d.spec.Name), slog.Any("error", cause), slog.Duration("wait", wait))
		if !sleep(d.g.soft, wait) {
			return cause
		}
	}
	return nil
}

// serve is one generation of the sink: it returns nil when the lane has ended.
func (d *deliverer) serve(ctx context.Context) error {
	if d.sink == nil {
		if err := d.reopen(ctx); err != nil {
			return err
		}
	}
	if filled, err := d.askToBeFilled(ctx); err != nil || !filled {
		return err
	}
	d.shows(state.LaneLive, nil)
	consumer, err := d.g.stream.Lane(d.spec.Name)
	if err != nil {
		return err
	}
	d.consumer = consumer
	for {
		if d.due() {
			if err := d.commit(ctx); err != nil {
				return err
			}
		}
		if d.later != nil && (d.kind == whole || !d.mid && len(d.held) == 0) {
			return d.later
		}
		if waited, left := d.rest(); left || waited {
			if left {
				return nil
			}
			continue
		}
		del, err := d.receive(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return d.finish(ctx)
		case err != nil:
			return err
		case del == nil:
			continue // time to commit
		}
		if err := d.take(ctx, del); err != nil {
			return err
		}
	}
}

// reopen starts a new value behind a failed one, and reads back what became of the last commit: an unknown outcome is never guessed.
func (d *deliverer) reopen(ctx context.Context) error {
	if err := d.open(); err != nil {
		return err
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	p, found, err := d.progress(ctx)
	if err != nil || d.kind == flushes || d.kind == whole {
		return err
	}
	if d.detached {
		return nil // whatever it has is emptied
	}
	if d.g.durable != nil {
		return d.coverAgain(p, found)
	}
	ours := found && p.Run == d.g.r.runName
	switch {
	case ours && p.Done:
		d.done = true
		d.skipper.all = true
	case !ours && d.durable.Position.Zero(), ours && d.durable.is(p):
		return nil // nothing more than what is known
	case ours && !p.Position.Zero() && d.tried.is(p):
		d.skipper.until, d.skipper.ledger = p.Position, &d.tried.Ledger
	default:
		return d.wrap(behindError(d.spec.Name, p.Position, d.durable.Position))
	}
	d.durable = d.tried
	return nil
}

// receive waits for the next item, or, with something that should become durable, only until that is due: nil.
func (d *deliverer) receive(ctx context.Context) (lane.Delivery[lane.Item], error) {
	timed := d.untilKicked(ctx)
	if d.atBoundary() && d.kind != whole && (d.dirty || (len(d.held) > 0 && !d.g.r.contract.Bounded)) {
		var cancel context.CancelFunc
		timed, cancel = context.WithDeadline(timed, time.Now().Add(d.every()-time.Since(d.since)))
		defer cancel()
	}
	del, err := d.consumer.Receive(timed)
	if err != nil && ctx.Err() == nil && timed.Err() != nil && errors.Is(err, timed.Err()) {
		return nil, nil //nolint:nilnil // time to commit, or to look at what is wanted
	}
	return del, err
}

// every is how long the sink collects at most.
func (d *deliverer) every() time.Duration {
	every := d.g.r.plan.Commit.Every
	if e := d.offer.Contract.Every; e > 0 {
		every = e
	}
	return time.Duration(d.stretched(int64(every)))
}

// atBoundary reports whether all that was written ends with a replay unit.
func (d *deliverer) atBoundary() bool { return !d.boundary.Position.Zero() && !d.mid }

// due reports whether what was received should become durable now.
func (d *deliverer) due() bool {
	if !d.atBoundary() || d.kind == whole {
		return false
	}
	size := max(d.g.r.plan.Commit.Bytes, min(d.offer.Contract.Bytes, d.g.r.shares.sink))
	switch {
	case d.full(size), d.heldBytes >= d.stretched(max(size, d.g.r.plan.QueueBytes)), d.later != nil, d.g.soft.Err() != nil:
		return true
	case d.paused() && (d.dirty || len(d.held) > 0):
		return true
	case !d.dirty: // positions alone cost the sink nothing before they are needed
		free := d.store == nil && (d.phases == nil || d.g.durable == nil) && d.consumer.CaughtUp()
		waits := !d.g.r.contract.Bounded && len(d.held) > 0 && (free || time.Since(d.since) >= d.every())
		return waits || len(d.held) >= maxHeld
	case time.Since(d.since) >= d.every():
		return true
	}
	return !d.g.r.contract.Bounded && d.offer.Contract.Every == 0 && d.consumer.CaughtUp()
}

// maxHeld bounds the items without rows that wait to be acknowledged.
const maxHeld = 256

// take handles one item.
func (d *deliverer) take(ctx context.Context, del lane.Delivery[lane.Item]) error {
	b, ok := del.Item().(lane.Batch)
	if !ok { // a snapshot is complete: the ledger of the next position says so, too, and acknowledges both
		d.held = append(d.held, del)
		return nil
	}
	over, err := d.skipper.over(b.Position, b.Ledger)
	if err != nil {
		return err
	}
	if !b.Position.Zero() {
		d.position = b.Position
	}
	if over {
		n := int64(b.NumRows())
		d.g.r.ctl.sink(d.spec.Name, func(s *SinkStatus) { s.Skipped += n })
		return del.Ack()
	}
	if stats, err := d.g.stream.Stats(d.spec.Name); err == nil {
		d.g.r.ctl.sink(d.spec.Name, func(s *SinkStatus) { s.Queued = stats.Queued.Bytes })
	}
	if len(d.held) == 0 && !d.dirty {
		d.since = time.Now()
	}
	d.held = append(d.held, del)
	d.heldBytes += b.Bytes()
	d.stamps = stamped(d.stamps, b.Batch)
	if err := d.gather(ctx, b.Batch); err != nil {
		return err
	}
	if !b.Position.Zero() {
		d.boundary, d.number, d.mid = lane.Mark{Position: b.Position, Ledger: b.Ledger}, del.Number(), false
	} else {
		d.mid = true
	}
	return d.letGo(b.Position)
}

// letGo acknowledges early what need not be held: everything where the sink starts over after a failure anyway; and the inside of a
// replay unit that is larger than the lane may hold, which moves no frontier, but means that a failure starts over.
func (d *deliverer) letGo(at record.Position) error {
	if d.kind == whole {
		return d.ackHeld()
	}
	if !at.Zero() || d.heldBytes <= d.g.r.plan.QueueBytes {
		return nil
	}
	if d.g.durable != nil { // the lane has them on disk
		for _, h := range d.held {
			if r, ok := h.(interface{ Release() }); ok {
				r.Release()
			}
		}
		d.heldBytes = 0
		return nil
	}
	d.released = true
	kept := d.held[:0]
	d.heldBytes = 0
	for _, h := range d.held {
		if b, ok := h.Item().(lane.Batch); ok && !b.Position.Zero() {
			kept = append(kept, h)
			continue
		}
		if err := h.Ack(); err != nil {
			return d.wrap(fmt.Errorf("acknowledging: %w", err))
		}
	}
	clear(d.held[len(kept):])
	d.held = kept
	return nil
}

func (d *deliverer) ackHeld() error {
	for _, h := range d.held {
		if err := h.Ack(); err != nil {
			return d.wrap(fmt.Errorf("acknowledging: %w", err))
		}
	}
	clear(d.held)
	d.held, d.heldBytes = d.held[:0], 0
	return nil
}

// commit makes durable all that was received, dead letters first, and acknowledges it (E1).
func (d *deliverer) commit(ctx context.Context) error {
	if err := d.writeGathered(ctx); err != nil {
		return err
	}
	if err := d.g.r.flushRejects(ctx); err != nil {
		return err
	}
	var err error
	d.tried = committed{Mark: d.boundary}
	switch p := d.next(d.boundary, d.number); {
	case d.store != nil:
		d.tried = committed{d.boundary, string(p.Ledger), p.Epoch}
		err = d.v.call("commit", func() error { return d.store.Commit(ctx, p) })
	case d.phases != nil:
		d.tried = committed{d.boundary, string(p.Ledger), p.Epoch}
		err = d.publish(ctx, p)
	case d.dirty:
		err = d.v.call("flush", func() error { return d.sink.Flush(ctx) })
	}
	if err != nil {
		return d.wrap(err)
	}
	return d.settled(d.tried)
}

// next is the progress that the sink commits at a mark. A two-phase epoch has rows: without any only the progress moves.
func (d *deliverer) next(at lane.Mark, number uint64) record.Progress {
	p := record.Progress{Run: d.g.r.runName, Position: at.Position, Ledger: d.ledgerOf(at), Epoch: d.epoch + 1}
	if d.g.durable != nil {
		p.Item = number
	}
	if d.phases != nil && !d.intended {
		p.Epoch = d.epoch
	}
	return p
}

// ledgerOf is the ledger that the sink keeps at a mark: of datasets that failed it says that they have to be copied again.
func (d *deliverer) ledgerOf(m lane.Mark) json.RawMessage {
	if m.Ledger == "" {
		return nil
	}
	if d.g.back == nil || len(d.failed) == 0 {
		return json.RawMessage(m.Ledger)
	}
	return d.g.back.without(m.Ledger, d.spec.Name, d.failed)
}

// settled notes that everything received is durable.
func (d *deliverer) settled(at committed) error {
	d.pacer.reset()
	if !at.Equal(d.durable.Mark) || d.done {
		d.g.r.pacer.reset()
	}
	n := int64(0)
	for name, rows := range d.rows {
		n += rows
		if in := d.datasets[name]; in != nil && rows > 0 {
			in.committed, in.before = true, in.given
		}
	}
	now := d.g.r.now()
	d.g.r.ctl.sink(d.spec.Name, func(s *SinkStatus) {
		s.Durable += n
		s.Position = at.Position
		for _, c := range d.stamps {
			s.Latencies.add(now.Sub(c.at), c.rows)
		}
	})
	if err := d.ackHeld(); err != nil {
		return err
	}
	for _, in := range d.datasets {
		in.kept = in.sent
	}
	d.durable = at // not before: a commit that the lane did not hear of is skipped as one whose outcome was unknown
	d.epoch = at.epoch
	held := d.held
	d.pending = pending{rows: map[string]int64{}, held: held, stamps: d.stamps[:0]}
	return nil
}

// finish ends the lane. Only where the source came to its end does it make the run visible as a whole and tell the sink that it is
// done; a stop makes durable what ends with a replay unit.
func (d *deliverer) finish(ctx context.Context) error {
	if !d.g.ended.Load() || d.later != nil {
		if d.atBoundary() && d.kind != whole {
			if err := d.commit(ctx); err != nil {
				return err
			}
		}
		return d.later
	}
	if err := d.writeGathered(ctx); err != nil {
		return err
	}
	if err := d.skipper.missed(); err != nil {
		return err
	}
	if d.done {
		return d.ackHeld()
	}
	if err := d.g.r.flushRejects(ctx); err != nil {
		return err
	}
	p := d.next(lane.Mark{Position: d.position}, d.number)
	p.Done = true
	var err error
	switch {
	case d.finisher != nil:
		err = d.v.call("finish", func() error { return d.finisher.Finish(ctx, p) })
	case d.store != nil:
		err = d.v.call("commit", func() error { return d.store.Commit(ctx, p) })
	case d.phases != nil:
		err = d.publish(ctx, p)
	default:
		err = d.v.call("flush", func() error { return d.sink.Flush(ctx) })
	}
	if err != nil {
		return d.wrap(err)
	}
	d.done = true
	return d.settled(committed{Mark: lane.Mark{Position: d.position}, epoch: p.Epoch})
}

package lane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane/internal/wire"
)

// durable implements Durable on a Storage.
//
// An item goes this way: accepted (Publish has returned) → in a pack that is on its way to the log → stored → in the memory of the lanes
// that keep up, or left to be read from the log → handed out → acknowledged. Items that are accepted while a pack is on its way are
// put together into the next one, so many small publications share one sync. Nothing is handed out before it is stored.
//
// Goroutines: one writes packs, one saves the note, and one for each lane reads what that is behind with. They share mu; none holds it
// while it waits.
type durable struct {
	st      Storage
	log     *slog.Logger
	spec    Spec
	schemas *wire.Schemas
	recent  *recent
	moved   chan struct{}
	byName  map[string]*durableLane
	lanes   []*durableLane
	epoch   uint64
	began   uint64 // the epoch that began the run
	opened  uint64 // number of the newest item that there ever was when the stream was opened
	within  func(time.Duration) (context.Context, context.CancelFunc)
	stop    context.CancelFunc
	work    sync.WaitGroup
	toWrite chan struct{} // capacity 1: the writer has something to look at
	toSave  chan struct{} // capacity 1: the saver has
	flushes chan chan error
	release sync.Once
	ended   error // of the release

	mu        sync.Mutex // guards all that follows, and all queues; held for memory only, never while waiting
	requests  *asked
	waiting   []*durablePublication // in order of arrival
	number    uint64                // of the newest accepted item
	pending   []*accepted           // for the next pack
	size      int64                 // bytes of pending
	flying    []*flight             // packs on their way, in order
	aloft     int64                 // bytes of flying
	progress  time.Time             // when something was stored last
	broken    error                 // why a pack on its way may have been lost; nil: all is well
	next      uint64                // number of the next entry of the log
	entry     uint64                // the newest stored one that ends a pack
	item      uint64                // the newest stored item
	stored    mark
	watermark mark
	cuts      []cutNote
	version   uint64 // of the note
	trimmed   uint64 // everything below this entry was removed
	drained   chan struct{}
	idle      bool
	closed    bool
	failed    error // why the stream is of no use any more
}

// durableLane is one lane. The mutex of the stream guards it.
type durableLane struct {
	*queue[Item]

	sink     string
	tracked  bool
	found    Found
	detached bool
	from     uint64        // only items behind this number are the lane's
	began    uint64        // likewise, when it was created or attached
	total    wire.Sum      // of all that was accepted for it, also while it was detached
	packed   wire.Sum      // likewise, of all that is in packs; used by the writer
	behind   *place        // what is read from the log next; nil: all that is stored and not acknowledged is in the ledger
	turn     uint64        // counts what makes readings of no use
	wake     chan struct{} // capacity 1: the lane's reader has something to look at
	reads    reading
}

// place is where a lane reads on: the first item of it that is not below number, in the pack that begins with this entry.
type place struct {
	entry, number uint64
	since         time.Time // when that pack was written; zero: not known
}

// accepted is an item that Publish took.
type accepted struct {
	number uint64
	item   Item
	frame  *wire.Frame // nil once it is in a pack
	size   int64       // of the frame
	to     []string    // nil: all
	lanes  []*durableLane
	count  Count
	at     Mark
	since  time.Time
}

// durablePublication is a Publish that waits for room.
type durablePublication struct {
	accepted

	done chan struct{} // closed when it was accepted or refused
	err  error         // read after done
}

var _ Durable = (*durable)(nil)

// Limits of what is accepted and not stored yet, besides Options.Bytes.
const maxPending = 16 << 10

// Publish implements Input.
func (d *durable) Publish(ctx context.Context, it Item, to ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := d.prepare(it, to)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.waiting = append(d.waiting, p)
	d.admit()
	d.mu.Unlock()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
	}
	if d.withdraw(p) {
		return ctx.Err()
	}
	<-p.done // it was served in the same moment
	return p.err
}

func (d *durable) prepare(it Item, to []string) (*durablePublication, error) {
	it, err := decoded(it)
	if err != nil {
		return nil, fmt.Errorf("publishing to the lanes of %s: %w", d.spec.Pipeline, err)
	}
	p := &durablePublication{accepted: accepted{item: it, lanes: d.lanes, at: markOf(it)}, done: make(chan struct{})}
	if len(to) > 0 {
		p.lanes = nil
	}
	for _, s := range to {
		l, err := d.lane(s)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(p.lanes, l) {
			p.lanes, p.to = append(p.lanes, l), append(p.to, s)
		}
	}
	if len(p.to) == len(d.lanes) {
		p.to = nil
	}
	if p.to != nil && !p.at.Position.Zero() {
		return nil, fmt.Errorf("lane: an item with a position goes to all lanes, not only to %q", to)
	}
	var w wire.Item
	switch it := it.(type) {
	case Batch:
		if it.Batch == nil {
			return nil, errNothing
		}
		w = wire.Item{Batch: it.Batch, Ledger: it.Ledger}
	case SnapshotComplete:
		w = wire.Item{Complete: it.Datasets}
	default:
		return nil, errNothing
	}
	if p.frame, err = d.schemas.Encode(w, p.to); err != nil {
		return nil, fmt.Errorf("publishing to the lanes of %s: %w", d.spec.Pipeline, err)
	}
	p.count, p.size = countOf(it), p.frame.Size()
	return p, nil
}

// decoded returns an item whose rows are columns: how to decode a source's own encoding can't be stored.
func decoded(it Item) (Item, error) {
	b, ok := it.(Batch)
	if !ok || b.Batch == nil || b.Encoded == nil {
		return it, nil
	}
	var err error
	b.Batch, err = b.Decoded()
	return b, err //nolint:wrapcheck // says it all
}

var errNothing = errors.New("lane: publishing nothing")

func (d *durable) lane(sink string) (*durableLane, error) {
	l, ok := d.byName[sink]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownSink, sink)
	}
	return l, nil
}

// withdraw removes a publication that still waits, and reports whether it did.
func (d *durable) withdraw(p *durablePublication) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.waiting, p)
	if i < 0 {
		return false
	}
	d.waiting = slices.Delete(d.waiting, i, i+1)
	d.admit() // others may have waited behind it only
	return true
}

// admit accepts publications in order of arrival: one is accepted once there is room for it, and no earlier one waits for any of its
// lanes. The mutex is held.
func (d *durable) admit() {
	if len(d.waiting) > 0 {
		d.serve(time.Now())
	}
	d.report()
}

func (d *durable) serve(now time.Time) {
	blocked := make(map[*durableLane]bool, len(d.lanes))
	full := false
	d.waiting = slices.DeleteFunc(d.waiting, func(p *durablePublication) bool {
		switch {
		case d.failed != nil:
			p.err = d.failed
		case d.closed:
			p.err = ErrClosed
		default:
			full = full || !d.hasRoom(p.size)
			held := slices.ContainsFunc(p.lanes, func(l *durableLane) bool { return blocked[l] || !d.fits(l, p.size, now) })
			if full || held {
				for _, l := range p.lanes {
					blocked[l] = true
				}
				return false
			}
			d.accept(&p.accepted, now)
		}
		close(p.done)
		return true
	})
}

// hasRoom reports whether so many bytes more may wait to be stored.
func (d *durable) hasRoom(size int64) bool {
	if len(d.pending) == 0 && len(d.flying) == 0 {
		return true
	}
	return len(d.pending) < maxPending && d.size+d.aloft+size <= d.spec.Bytes
}

// accept gives a publication its number.
func (d *durable) accept(a *accepted, now time.Time) {
	d.number++
	a.number, a.since = d.number, now
	attached := make([]*durableLane, 0, len(a.lanes))
	sum := sumOf(a.count, a.size)
	for _, l := range a.lanes {
		l.total = l.total.Add(sum)
		if !l.detached {
			attached = append(attached, l)
			l.ledger.announce(a.count, a.size)
		}
	}
	a.lanes = attached
	d.pending, d.size, d.idle = append(d.pending, a), d.size+a.size, false
	signal(d.toWrite)
}

func sumOf(c Count, stored int64) wire.Sum {
	return wire.Sum{Items: c.Items, Rows: c.Rows, Changes: c.Changes, Memory: c.Bytes, Stored: stored}
}

func countIn(s wire.Sum) Count { return Count{s.Items, s.Rows, s.Changes, s.Memory} }

// settle follows everything that changed a queue: there may be room, a reader may have something to do, and the watermark may have moved.
// The mutex is held.
func (d *durable) settle() {
	for _, l := range d.lanes {
		if d.wanted(l) {
			signal(l.wake)
		}
	}
	signal(d.toSave)
	d.admit()
}

// report brings the watermark up to date and says so. The mutex is held.
func (d *durable) report() {
	idle := d.isIdle()
	if idle && !d.idle {
		signal(d.moved)
	}
	d.idle = idle
	if low := d.lowest(); low.number > d.watermark.number {
		d.watermark = low
		signal(d.moved)
	}
}

// lowest is the minimum of the frontiers of the tracked lanes that are attached; without any attached lane it is all that is stored.
func (d *durable) lowest() mark {
	fronts, attached := make([]mark, 0, len(d.lanes)), false
	for _, l := range d.lanes {
		attached = attached || !l.detached
		if l.tracked && !l.detached {
			fronts = append(fronts, l.ledger.frontier)
		}
	}
	if !attached {
		return d.stored
	}
	return lowest(fronts)
}

func (d *durable) isIdle() bool {
	if len(d.pending) > 0 || len(d.flying) > 0 || !d.requests.ledger.idle() {
		return false
	}
	return !slices.ContainsFunc(d.lanes, func(l *durableLane) bool { return !l.ledger.idle() })
}

// Lane implements Stream.
func (d *durable) Lane(sink string) (Consumer[Item], error) {
	l, err := d.lane(sink)
	if err != nil {
		return nil, err
	}
	return l.attach(), nil
}

// Ask implements Requests. Requests live as long as the process: a sink that finds no answer after a restart asks again.
func (d *durable) Ask(r Request) error {
	if _, err := d.lane(r.Sink); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.requests.ask(r)
	d.idle = d.idle && err != nil
	return err
}

// Requests implements Requests.
func (d *durable) Requests() (Consumer[Request], error) { return d.requests.attach(), nil }

// Watermark implements Progress.
func (d *durable) Watermark() (Mark, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.watermark.Mark, d.watermark.number > 0
}

// Moved implements Progress.
func (d *durable) Moved() <-chan struct{} { return d.moved }

// Idle implements Progress.
func (d *durable) Idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isIdle()
}

// Stats implements Stream. It counts from the opening of the stream: what the lane held then was published and is queued.
func (d *durable) Stats(sink string) (Stats, error) {
	l, err := d.lane(sink)
	if err != nil {
		return Stats{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return l.ledger.stats, nil
}

// Stored implements Durable.
func (d *durable) Stored() (Mark, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stored.Mark, d.stored.number > 0
}

// Found implements Durable.
func (d *durable) Found(sink string) (Found, error) {
	l, err := d.lane(sink)
	if err != nil {
		return 0, err
	}
	return l.found, nil
}

// Close implements Input.
func (d *durable) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.admit() // refuses all that wait
	for _, l := range d.lanes {
		l.close()
	}
	d.requests.close()
	signal(d.toWrite)
	return nil
}

// fail ends the stream: nothing is published, handed out or acknowledged any more.
func (d *durable) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		return
	}
	d.failed = err
	d.shut(err)
	d.log.Error("lanes failed", slog.String("pipeline", d.spec.Pipeline), slog.Any("error", err))
}

// shut ends all consumers; the mutex is held.
func (d *durable) shut(why error) {
	for _, l := range d.lanes {
		if !l.detached {
			l.refuse(why)
		}
	}
	d.requests.refuse(why)
	d.admit()
	d.settleDrained()
	signal(d.moved)
}

// settleDrained tells a release that there is nothing to wait for any more; the mutex is held.
func (d *durable) settleDrained() {
	if d.failed != nil || (len(d.pending) == 0 && len(d.flying) == 0) {
		signal(d.drained)
	}
}

// fenced is the error for an owner that another one followed.
func (d *durable) fenced() error {
	return &connector.Error{
		Class: connector.ClassFenced, Code: "lanes.fenced", Doing: "using the lanes of " + d.spec.Pipeline, Err: ErrFenced,
	}
}

// releaseWait is how long Release waits for what is accepted to be stored.
const releaseWait = 10 * time.Second

// Release implements Durable.
func (d *durable) Release() error {
	d.release.Do(func() { d.ended = d.end() })
	return d.ended
}

func (d *durable) end() error {
	ctx, cancel := d.within(releaseWait)
	defer cancel()
	d.mu.Lock()
	d.closed = true
	d.admit()
	d.settleDrained()
	d.mu.Unlock()
	var err error
	select {
	case <-d.drained:
		err = d.flush(ctx)
	case <-ctx.Done():
		err = fmt.Errorf("releasing the lanes of %s: what was published last is not stored yet: %w", d.spec.Pipeline, ctx.Err())
	}
	d.mu.Lock()
	if d.failed != nil {
		err = nil // it was told before
	}
	d.failed = cmpOr(d.failed, ErrClosed)
	d.shut(ErrClosed)
	d.mu.Unlock()
	d.stop()
	d.work.Wait()
	if cerr := d.st.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("releasing the lanes of %s: %w", d.spec.Pipeline, cerr))
	}
	return err
}

func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

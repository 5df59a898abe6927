package lane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane/internal/wire"
)

// saveEvery is how far the note may lag behind what sinks acknowledged, in time.
const saveEvery = 250 * time.Millisecond

// save keeps the note up to date, until the context ends.
func (d *durable) save(ctx context.Context) {
	timer := time.NewTimer(saveEvery)
	defer timer.Stop()
	var tick <-chan time.Time
	if age := d.spec.Quota.Age; age > 0 {
		t := time.NewTicker(min(max(age/10, time.Millisecond), time.Second))
		defer t.Stop()
		tick = t.C
	}
	dirty, ready := false, false
	delay := saveEvery
	for {
		var asked chan error
		select {
		case <-d.toSave:
			dirty = true
		case <-timer.C:
			ready = true
		case <-tick:
			d.letGoOfOld(ctx)
		case asked = <-d.flushes:
		case <-ctx.Done():
			return
		}
		if asked == nil && (!dirty || !ready) {
			continue
		}
		err := d.persist(ctx)
		switch {
		case err == nil:
			dirty, delay = false, saveEvery
		case connector.ClassOf(err) == connector.ClassFenced:
			d.fail(err)
		default: // it may lag, so this is tried again
			d.log.Warn("how far sinks got could not be saved", slog.String("pipeline", d.spec.Pipeline), slog.Any("error", err))
			delay = min(2*delay, lastDelay)
		}
		if asked != nil {
			asked <- err
		}
		ready = false
		timer.Reset(delay)
	}
}

// flush saves the note now.
func (d *durable) flush(ctx context.Context) error {
	d.mu.Lock()
	failed := d.failed
	d.mu.Unlock()
	if failed != nil {
		return failed
	}
	asked := make(chan error, 1)
	select {
	case d.flushes <- asked:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-asked:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// persist saves the note, and removes from the log what nobody needs any more.
func (d *durable) persist(ctx context.Context) error {
	d.mu.Lock()
	n, bound := d.noted()
	version, trimmed := d.version, d.trimmed
	d.mu.Unlock()
	b, err := n.encode()
	if err != nil {
		return err
	}
	saved, err := d.st.Save(ctx, b, version)
	if errors.Is(err, ErrNoRoom) && bound > trimmed {
		// Making room comes first, or nothing would ever make any. A crash right here is found at the next opening, as entries that the
		// note still asks for: nothing is lost in silence.
		if terr := d.trim(ctx, bound); terr != nil {
			return errors.Join(err, terr)
		}
		trimmed = bound
		saved, err = d.st.Save(ctx, b, version)
	}
	version = saved
	if errors.Is(err, ErrTaken) {
		if version, err = d.savedBefore(ctx); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("saving how far the lanes of %s are: %w", d.spec.Pipeline, err)
	}
	d.mu.Lock()
	d.version = version
	d.mu.Unlock()
	if bound <= trimmed {
		return nil
	}
	return d.trim(ctx, bound)
}

// trim removes what nobody needs any more.
func (d *durable) trim(ctx context.Context, bound uint64) error {
	if err := d.st.Trim(ctx, bound); err != nil {
		return fmt.Errorf("removing what was delivered from the lanes of %s: %w", d.spec.Pipeline, err)
	}
	d.mu.Lock()
	d.trimmed = bound
	d.mu.Unlock()
	return nil
}

// savedBefore finds out whether it was this owner who saved the note, by a call whose outcome was unknown; then it returns the version.
// The next call saves what is new.
func (d *durable) savedBefore(ctx context.Context) (uint64, error) {
	b, version, err := d.st.Load(ctx)
	if err != nil {
		return 0, fmt.Errorf("saving how far the lanes of %s are: %w", d.spec.Pipeline, err)
	}
	n, err := decodeNote(b, d.spec.Pipeline)
	if err != nil || n.Epoch != d.epoch {
		return 0, d.fenced()
	}
	signal(d.toSave)
	return version, nil
}

// noted returns the note of this moment, and the first entry of the log that somebody may still need. The mutex is held.
func (d *durable) noted() (*note, uint64) {
	n := &note{Format: noteFormat, Pipeline: d.spec.Pipeline, Run: d.spec.Run, Epoch: d.epoch, Began: d.began}
	bound, low := d.entry, d.item
	if d.stored.number > 0 {
		bound = min(bound, d.stored.entry)
	}
	for _, l := range d.lanes {
		ln := d.low(l)
		n.Lanes = append(n.Lanes, ln)
		if l.detached {
			continue
		}
		bound, low = min(bound, ln.Entry), min(low, ln.Number)
		if ln.Mark.Number > 0 {
			bound = min(bound, ln.Mark.Entry)
		}
	}
	d.cuts = slices.DeleteFunc(slices.Clone(d.cuts), func(c cutNote) bool { return c.ToEntry < bound && c.Last <= low })
	n.Cuts = d.cuts
	return n, bound
}

// low tells how far a lane is; the mutex is held.
func (d *durable) low(l *durableLane) laneNote {
	f := l.ledger.frontier
	n := laneNote{
		Sink: l.sink, Mark: wire.Mark{Number: f.number, Entry: f.entry}, Detached: l.detached, Began: l.began,
		Acked: l.ledger.passed.number, Passed: sumOf(l.ledger.passed.count, l.ledger.passed.size),
	}
	switch {
	case len(l.ledger.entries) > 0:
		e := l.ledger.entries[0]
		n.Number, n.Entry = e.number-1, e.stored.entry
	case l.behind != nil:
		n.Number, n.Entry = l.behind.number-1, l.behind.entry
	default:
		n.Number, n.Entry = max(d.item, l.from), d.entry+1
	}
	return n
}

// Holds implements Durable.
func (d *durable) Holds(sink string) (Holding, error) {
	l, err := d.lane(sink)
	if err != nil {
		return Holding{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := l.ledger.stats
	h := Holding{
		Count: s.Queued.plus(s.InFlight), Acked: l.ledger.passed.number, Last: d.number,
		Fresh: d.stored.number <= l.began, Detached: l.detached,
	}
	h.Bytes = l.ledger.size
	if h.Items > 0 {
		h.Oldest = l.oldest()
	}
	return h, nil
}

// oldest tells when the oldest item that a lane holds was published; zero: that is not known at the moment. The mutex is held.
func (l *durableLane) oldest() time.Time {
	switch {
	case len(l.ledger.entries) > 0:
		return l.ledger.entries[0].stored.since
	case l.behind != nil:
		return l.behind.since
	}
	return time.Time{}
}

// fits reports whether a lane may hold so many bytes more; over its quota it is let go where that is wanted. The mutex is held.
func (d *durable) fits(l *durableLane, size int64, now time.Time) bool {
	q := d.spec.Quota
	if l.detached || l.ledger.idle() {
		return true
	}
	tooMuch := q.Bytes > 0 && l.ledger.size+size > q.Bytes
	if !tooMuch && !d.tooOld(l, now) {
		return true
	}
	if !q.Detach {
		return false
	}
	d.letGo(l)
	return true
}

func (d *durable) tooOld(l *durableLane, now time.Time) bool {
	q, oldest := d.spec.Quota, l.oldest()
	return q.Age > 0 && !oldest.IsZero() && now.Sub(oldest) > q.Age
}

// letGo detaches a lane; the mutex is held.
func (d *durable) letGo(l *durableLane) {
	h := l.ledger.stats.Queued.plus(l.ledger.stats.InFlight)
	d.log.Warn("a lane held more than its quota and was let go", slog.String("pipeline", d.spec.Pipeline), slog.String("sink", l.sink),
		slog.Int64("items", h.Items), slog.Int64("bytes", l.ledger.size))
	l.detached, l.behind = true, nil
	l.turn++
	l.refuse(ErrDetached)
	l.ledger.drop()
	signal(d.toSave)
}

// letGoOfOld looks for lanes that hold something for too long, whether anything is published or not.
func (d *durable) letGoOfOld(ctx context.Context) {
	for _, l := range d.lanes {
		d.mu.Lock()
		unknown := place{}
		if len(l.ledger.entries) == 0 && l.behind != nil && l.behind.since.IsZero() {
			unknown = *l.behind
		}
		d.mu.Unlock()
		if unknown.entry > 0 {
			d.learnAge(ctx, l, unknown)
		}
		d.mu.Lock()
		if d.spec.Quota.Detach && !l.detached && d.tooOld(l, time.Now()) {
			d.letGo(l)
			d.settle()
		}
		d.mu.Unlock()
	}
}

// learnAge finds out when the item at a place was published.
func (d *durable) learnAge(ctx context.Context, l *durableLane, at place) {
	p, _, err := d.readPack(ctx, at.entry)
	if err != nil {
		return // whoever needs the item will say so
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.behind != nil && l.behind.entry == at.entry {
		l.behind.since = time.Unix(0, p.Time)
	}
}

// Attach implements Durable.
func (d *durable) Attach(sink string) error {
	l, err := d.lane(sink)
	if err != nil {
		return err
	}
	d.mu.Lock()
	if !l.detached || d.failed != nil {
		failed := d.failed
		d.mu.Unlock()
		return failed
	}
	l.detached, l.refused, l.from, l.began = false, nil, d.number, d.number
	l.ledger.frontier = mark{}
	l.ledger.passed = passed{count: countIn(l.total), size: l.total.Stored}
	d.report()
	d.mu.Unlock()
	ctx, cancel := d.within(releaseWait)
	defer cancel()
	return d.flush(ctx)
}

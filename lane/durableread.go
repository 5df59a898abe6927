package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leatdata/leat/lane/internal/wire"
)

// readPack reads the pack that begins with this entry, and returns its last one.
func (d *durable) readPack(ctx context.Context, first uint64) (*wire.Opened, uint64, error) {
	b, err := d.st.Read(ctx, first)
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // the caller says what it reads
	}
	head, payload, err := wire.ReadPrefix(b)
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // likewise
	}
	if head.Part != 0 {
		return nil, 0, fmt.Errorf("it is part %d of a pack", head.Part+1)
	}
	if head.Parts > 1 {
		payload = append(make([]byte, 0, len(payload)*head.Parts), payload...)
	}
	for i := 1; i < head.Parts; i++ {
		if b, err = d.st.Read(ctx, first+uint64(i)); err != nil {
			return nil, 0, err //nolint:wrapcheck // likewise
		}
		p, part, err := wire.ReadPrefix(b)
		if err != nil {
			return nil, 0, err //nolint:wrapcheck // likewise
		}
		if p.Part != i || p.Parts != head.Parts || p.Epoch != head.Epoch {
			return nil, 0, fmt.Errorf("entry %d is not its part %d", first+uint64(i), i+1)
		}
		payload = append(payload, part...)
	}
	o, err := d.schemas.Open(payload)
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // likewise
	}
	return o, first + uint64(head.Parts) - 1, nil
}

// reading is the pack that a lane's reader has open.
type reading struct {
	pack  *wire.Opened
	first uint64
	last  uint64

	shared *sharedPack
}

// wanted reports whether a lane should read on: somebody waits for it and there is room. The mutex is held.
func (d *durable) wanted(l *durableLane) bool {
	return l.behind != nil && l.consumer != nil && d.failed == nil && l.hasRoom(d.spec.Options, Count{})
}

// read brings a lane what it is behind with, until the context ends.
func (d *durable) read(ctx context.Context, l *durableLane) {
	delay := firstDelay
	since := time.Now()
	for {
		more, err := d.readOn(ctx, l)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if hopeless(err) || time.Since(since) > patience {
				d.fail(err)
				return
			}
			pause(ctx, &delay)
			continue
		case !more:
			select {
			case <-l.wake:
			case <-ctx.Done():
				return
			}
		}
		delay, since = firstDelay, time.Now()
	}
}

// readOn brings one item, or goes on to the next pack; false: there is nothing to do now.
func (d *durable) readOn(ctx context.Context, l *durableLane) (bool, error) {
	d.mu.Lock()
	if !d.wanted(l) {
		d.mu.Unlock()
		return false, nil
	}
	at, turn := *l.behind, l.turn
	d.mu.Unlock()
	r := &l.reads
	if r.pack == nil || r.first != at.entry {
		shared, err := d.recent.read(at.entry, func() (*wire.Opened, uint64, error) { return d.readPack(ctx, at.entry) })
		if err != nil {
			return false, d.readFailed(at.entry, err)
		}
		*r = reading{shared.pack, at.entry, shared.last, shared}
	}
	i, ok := d.pick(l, r.pack, at.number)
	var it Item
	if ok {
		w, err := r.shared.item(i)
		if err != nil {
			return false, d.unusable("item %d in entry %d of the log: %w", r.pack.First+uint64(i), at.entry, err)
		}
		it = itemOf(w)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.turn != turn || l.behind == nil {
		return true, nil // it was told to stand elsewhere
	}
	if !ok {
		d.goOn(l, r)
		return true, nil
	}
	number, sum := r.pack.First+uint64(i), r.pack.Sum(i)
	l.ledger.enter(&entry[Item]{
		number: number, item: it, count: countIn(sum), at: markOf(it), stored: stored{sum.Stored, at.entry, time.Unix(0, r.pack.Time)},
	})
	l.behind.number = number + 1
	if number == r.pack.First+uint64(r.pack.Items)-1 {
		d.goOn(l, r)
	}
	l.notify()
	return true, nil
}

// goOn moves a lane behind the pack that it has read; the mutex is held.
func (d *durable) goOn(l *durableLane, r *reading) {
	next := over(d.cuts, r.last+1)
	if next > d.entry {
		l.behind = nil
	} else {
		*l.behind = place{entry: next, number: l.behind.number}
	}
	*r = reading{}
}

// pick returns the first item of a pack, not below this number, that is the lane's.
func (d *durable) pick(l *durableLane, p *wire.Opened, number uint64) (int, bool) {
	from := 0
	if number > p.First {
		from = int(min(number-p.First, uint64(p.Items)))
	}
	for i := from; i < p.Items; i++ {
		if isFor(p.To(i), l.sink) && !d.isVoid(p.First+uint64(i)) {
			return i, true
		}
	}
	return 0, false
}

func (d *durable) isVoid(number uint64) bool {
	if number > d.opened {
		return false // cuts are older than that
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return void(d.cuts, number)
}

func (d *durable) readFailed(entry uint64, err error) error {
	if errors.Is(err, ErrMissing) || errors.Is(err, wire.ErrFormat) {
		return d.unusable("reading entry %d of the log: %w", entry, err)
	}
	return fmt.Errorf("reading entry %d of the lanes of %s: %w", entry, d.spec.Pipeline, err)
}

func itemOf(w wire.Item) Item {
	if w.Batch == nil {
		return SnapshotComplete{Datasets: w.Complete}
	}
	return Batch{Batch: w.Batch, Ledger: w.Ledger}
}

// coverWait is how long Covered may read.
const coverWait = time.Minute

// Covered implements Durable.
func (d *durable) Covered(sink string, number uint64) (bool, error) {
	l, err := d.lane(sink)
	if err != nil {
		return false, err
	}
	d.mu.Lock()
	if l.detached {
		d.mu.Unlock()
		return false, fmt.Errorf("%w: sink %s", ErrDetached, sink)
	}
	if number > d.item {
		last := d.item
		d.mu.Unlock()
		return false, d.unusable("sink %s has item %d, and the log ends with item %d", sink, number, last)
	}
	number = d.uncut(number) // what follows was cut out: it comes again
	if number < l.ledger.passed.number {
		d.mu.Unlock()
		return false, nil
	}
	l.ledger.cover(number)
	l.turn++
	d.settle()
	d.mu.Unlock()
	return true, d.coverBehind(l, number)
}

// coverBehind goes over what the lane has not read yet.
func (d *durable) coverBehind(l *durableLane, number uint64) error {
	ctx, cancel := d.within(coverWait)
	defer cancel()
	for {
		d.mu.Lock()
		if l.behind == nil || l.behind.number > number {
			d.mu.Unlock()
			return nil
		}
		at := *l.behind
		d.mu.Unlock()
		p, last, err := d.readPack(ctx, at.entry)
		if err != nil {
			return d.readFailed(at.entry, err)
		}
		var sum wire.Sum
		newest := uint64(0)
		front := mark{}
		for i := range p.Items {
			n := p.First + uint64(i)
			if n < at.number || n > number || !isFor(p.To(i), l.sink) || d.isVoid(n) {
				continue
			}
			sum, newest = sum.Add(p.Sum(i)), n
			if p.Positioned(i) {
				if front, err = d.markIn(p, wire.Mark{Number: n, Entry: at.entry}); err != nil {
					return err
				}
			}
		}
		d.mu.Lock()
		l.passOver(sum, front, newest)
		if p.First+uint64(p.Items) > number+1 {
			l.behind.number = max(l.behind.number, number+1)
		} else {
			d.goOn(l, &reading{pack: p, first: at.entry, last: last})
		}
		d.settle()
		d.mu.Unlock()
	}
}

// passOver counts as acknowledged what was never read; the mutex is held.
func (l *durableLane) passOver(sum wire.Sum, front mark, number uint64) {
	l.ledger.skip(countIn(sum), sum.Stored)
	l.ledger.passed.count = l.ledger.passed.count.plus(countIn(sum))
	l.ledger.passed.size += sum.Stored
	l.ledger.passed.number = max(l.ledger.passed.number, number)
	if front.number > 0 {
		l.ledger.frontier = front
	}
}

package lane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane/internal/wire"
)

// flight is a pack on its way to the log.
type flight struct {
	items   []*accepted
	entries [][]byte
	first   uint64 // number of its first entry
	size    int64
	left    int // entries that are not stored yet
}

const (
	packSize  = 512 << 10 // a pack of this size is sent while others are on their way
	packItems = 4096
)

// write sends packs until the context ends.
func (d *durable) write(ctx context.Context) {
	delay := firstDelay
	var since time.Time
	for {
		p, broken := d.nextFlight()
		switch {
		case broken != nil:
			if since.Before(d.lastProgress()) {
				since, delay = time.Now(), firstDelay
			}
			if err := d.resend(ctx, broken, since); err != nil {
				d.fail(err)
				return
			}
			pause(ctx, &delay)
		case p != nil:
			if err := d.send(p); err != nil {
				d.fail(err)
				return
			}
		default:
			select {
			case <-d.toWrite:
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (d *durable) lastProgress() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.progress
}

// Waits between tries to reach a storage, and how long it is tried.
const (
	firstDelay = 20 * time.Millisecond
	lastDelay  = 2 * time.Second
	patience   = 30 * time.Second
)

// pause waits, longer each time.
func pause(ctx context.Context, delay *time.Duration) {
	t := time.NewTimer(*delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	*delay = min(2**delay, lastDelay)
}

// nextFlight takes the next pack; or says that packs may have been lost, once nothing is known to be on its way.
func (d *durable) nextFlight() (*flight, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.failed != nil:
		return nil, nil //nolint:nilnil // nothing now
	case d.broken != nil:
		if slices.ContainsFunc(d.flying, func(f *flight) bool { return f.left > 0 }) {
			return nil, nil //nolint:nilnil // nothing now
		}
		return nil, d.broken
	case len(d.pending) == 0, len(d.flying) > 0 && d.size < packSize && len(d.pending) < packItems, d.aloft >= d.spec.Bytes && d.aloft > 0:
		return nil, nil //nolint:nilnil // nothing now
	}
	f := new(flight)
	n := 0
	for n < len(d.pending) && n < packItems && (n == 0 || f.size+d.pending[n].size <= packSize) {
		f.size += d.pending[n].size
		n++
	}
	f.items = slices.Clone(d.pending[:n])
	d.pending = slices.Delete(d.pending, 0, n)
	d.size -= f.size
	d.aloft += f.size
	f.left = 1 // until it is sent
	d.flying = append(d.flying, f)
	return f, nil
}

// send appends a pack to the log.
func (d *durable) send(f *flight) error {
	d.mu.Lock()
	h := wire.Head{
		Epoch: d.epoch, First: f.items[0].number, Mark: d.lastMark(f), Sums: make(map[string]wire.Sum, len(d.lanes)),
		Time: f.items[0].since.UnixNano(),
	}
	d.mu.Unlock()
	frames := make([]*wire.Frame, len(f.items))
	for _, l := range d.lanes {
		h.Sums[l.sink] = l.packed
	}
	for i, a := range f.items {
		frames[i] = a.frame
		for _, l := range d.lanes {
			if isFor(a.to, l.sink) {
				l.packed = l.packed.Add(sumOf(a.count, a.size))
			}
		}
	}
	entries, err := wire.Pack(h, frames, d.st.Limit())
	if err != nil {
		return fmt.Errorf("writing to the lanes of %s: %w", d.spec.Pipeline, err)
	}
	for _, a := range f.items {
		a.frame = nil // its bytes are in the entries
	}
	d.mu.Lock()
	f.entries, f.first, f.left = entries, d.next, len(entries)
	d.next += uint64(len(entries))
	d.mu.Unlock()
	for i, e := range entries {
		d.st.Append(f.first+uint64(i), e, func(err error) { d.landed(f, err) })
	}
	return nil
}

// lastMark returns the newest item with a position before a pack; the mutex is held.
func (d *durable) lastMark(f *flight) wire.Mark {
	m := wire.Mark{Number: d.stored.number, Entry: d.stored.entry}
	for _, g := range d.flying {
		if g == f {
			break
		}
		for _, a := range g.items {
			if !a.at.Position.Zero() {
				m = wire.Mark{Number: a.number, Entry: g.first}
			}
		}
	}
	return m
}

// landed hears of one entry.
func (d *durable) landed(f *flight, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f.left--
	if err != nil {
		d.broken = cmpOr(d.broken, err)
	}
	if d.broken == nil {
		d.enterStored()
	}
	signal(d.toWrite)
}

// enterStored lets into the lanes what is stored, in order; the mutex is held.
func (d *durable) enterStored() {
	for len(d.flying) > 0 && d.flying[0].left == 0 {
		f := d.flying[0]
		d.flying[0] = nil
		d.flying = d.flying[1:]
		d.aloft -= f.size
		d.progress = time.Now()
		d.entry = f.first + uint64(len(f.entries)) - 1
		for _, a := range f.items {
			d.enter(f, a)
		}
	}
	d.settleDrained()
	d.settle()
}

// enter lets one item into its lanes; the mutex is held.
func (d *durable) enter(f *flight, a *accepted) {
	d.item = a.number
	if !a.at.Position.Zero() {
		d.stored = mark{number: a.number, entry: f.first, Mark: a.at}
		signal(d.moved)
	}
	for _, l := range a.lanes {
		switch {
		case l.detached || a.number <= l.from || l.behind != nil: // let go, or read later
		case l.hasRoom(d.spec.Options, a.count):
			l.ledger.enter(&entry[Item]{
				number: a.number, item: a.item, count: a.count, at: a.at, stored: stored{a.size, f.first, a.since},
			})
			l.notify()
		default:
			l.behind = &place{entry: f.first, number: a.number, since: a.since}
		}
	}
}

// hasRoom reports whether one more item may wait in memory.
func (l *durableLane) hasRoom(o Options, c Count) bool {
	q := l.ledger.stats.Queued.minus(l.ledger.away)
	return q.Items <= 0 || (q.Items < int64(o.Items) && q.Bytes+c.Bytes <= o.Bytes)
}

// resend finds out which entries are in the log and appends the others once more. Nothing is on its way.
func (d *durable) resend(ctx context.Context, why error, since time.Time) error {
	d.log.Warn("an entry may not have been stored; it is looked for, and sent again",
		slog.String("pipeline", d.spec.Pipeline), slog.Any("error", why))
	last, err := d.readBack(ctx)
	if err != nil {
		if hopeless(err) || time.Since(since) > patience {
			return err
		}
		d.log.Warn("the storage of the lanes does not answer", slog.String("pipeline", d.spec.Pipeline), slog.Any("error", err))
		return nil // tried again
	}
	if time.Since(since) > patience || hopeless(why) {
		if errors.Is(why, ErrTaken) { // nobody else did: this was looked at
			why = errors.New("the storage does not take it")
		}
		return fmt.Errorf("writing to the lanes of %s: %w", d.spec.Pipeline, why)
	}
	type again struct {
		f *flight
		i int
	}
	var todo []again
	d.mu.Lock()
	d.broken = nil
	for _, f := range d.flying {
		f.left = 0
		for i := range f.entries {
			if f.first+uint64(i) > last {
				f.left++
				todo = append(todo, again{f, i})
			}
		}
	}
	d.enterStored()
	d.mu.Unlock()
	for _, a := range todo {
		d.st.Append(a.f.first+uint64(a.i), a.f.entries[a.i], func(err error) { d.landed(a.f, err) })
	}
	return nil
}

// hopeless reports whether trying again is of no use.
func hopeless(err error) bool {
	c := connector.ClassOf(err)
	return c == connector.ClassPosition || c == connector.ClassFenced || errors.Is(err, ErrStopped)
}

// readBack compares what the log has with what was sent, and returns its last entry.
func (d *durable) readBack(ctx context.Context) (uint64, error) {
	_, last, err := d.st.Bounds(ctx)
	if err != nil {
		return 0, fmt.Errorf("writing to the lanes of %s: %w", d.spec.Pipeline, err)
	}
	d.mu.Lock()
	flying, next := slices.Clone(d.flying), d.next
	d.mu.Unlock()
	if len(flying) == 0 || last+1 < flying[0].first {
		return 0, d.unusable("the log ends with entry %d, and later ones were stored", last)
	}
	if last >= next {
		return 0, d.fenced()
	}
	for _, f := range flying {
		for i, e := range f.entries {
			n := f.first + uint64(i)
			if n > last {
				return last, nil
			}
			got, err := d.st.Read(ctx, n)
			switch {
			case errors.Is(err, ErrMissing):
				return 0, d.unusable("entry %d was removed from the log", n)
			case err != nil:
				return 0, fmt.Errorf("writing to the lanes of %s: %w", d.spec.Pipeline, err)
			case !bytes.Equal(got, e):
				return 0, d.fenced()
			}
		}
	}
	return last, nil
}

package lane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/leatdata/leat/lane/internal/wire"
)

// defaultDurableItems is larger than in memory, since small items become durable, and so enter their lanes, many at a time.
const defaultDurableItems = 8192

// Open opens the durable lanes of a pipeline on a storage, which the result closes; after an error it is closed, too. Whoever had them
// open before is fenced. A nil logger is silent. Options bound what of a lane is in memory (0 items: 8192), and its bytes what waits to be
// stored, too; nobody waits for a sink because of them.
func Open(ctx context.Context, st Storage, spec Spec, log *slog.Logger) (Durable, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d, err := newDurable(ctx, st, spec, log)
	if err == nil {
		err = d.recover(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.work.Go(func() { d.write(run) })
	d.work.Go(func() { d.save(run) })
	for _, l := range d.lanes {
		d.work.Go(func() { d.read(run, l) })
	}
	return d, nil
}

func newDurable(ctx context.Context, st Storage, spec Spec, log *slog.Logger) (*durable, error) {
	if spec.Items <= 0 {
		spec.Items = defaultDurableItems
	}
	if spec.Bytes <= 0 {
		spec.Bytes = defaultBytes
	}
	d := &durable{
		st: st, log: log, spec: spec, schemas: wire.NewSchemas(), recent: newRecent(len(spec.Sinks)), byName: map[string]*durableLane{},
		moved:   make(chan struct{}, 1),
		toWrite: make(chan struct{}, 1), toSave: make(chan struct{}, 1), flushes: make(chan chan error), drained: make(chan struct{}, 1),
		idle: true,
	}
	d.within = func(t time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(ctx), t)
	}
	d.requests = &asked{queue: &queue[Request]{mu: &d.mu, settled: d.settle}}
	for _, s := range spec.Sinks {
		if s == "" || d.byName[s] != nil {
			return nil, fmt.Errorf("lane: sinks %q: names must be unique and not empty", spec.Sinks)
		}
		l := &durableLane{
			queue: &queue[Item]{mu: &d.mu, settled: d.settle}, sink: s, tracked: !slices.Contains(spec.Untracked, s),
			wake: make(chan struct{}, 1),
		}
		d.lanes, d.byName[s] = append(d.lanes, l), l
	}
	for _, s := range spec.Untracked {
		if d.byName[s] == nil {
			return nil, fmt.Errorf("untracked lane %q: %w", s, ErrUnknownSink)
		}
	}
	return d, nil
}

// recover takes the storage over and brings the lanes to where they were.
//
//  1. The note is saved with the next epoch: from here on the previous owner can't save it.
//  2. An entry without items is appended: the previous owner can't append any more, as the number it expects is taken. All before it
//     is final now.
//  3. What follows the newest item with a position is cut out, and the lanes are found; the note is saved with that.
//
// A crash anywhere in between changes nothing that the next owner could not find again.
func (d *durable) recover(ctx context.Context) error {
	n, version, err := d.claim(ctx)
	if err != nil {
		return err
	}
	t, err := d.fence(ctx, n, version)
	if err != nil {
		return err
	}
	if err := d.restore(ctx, n, t); err != nil {
		return err
	}
	if err := d.persist(ctx); err != nil {
		return err
	}
	if c := t.cut; c.FromEntry <= c.ToEntry && c.ToEntry > 0 {
		if err := d.st.Drop(ctx, c.FromEntry, c.ToEntry); err != nil {
			d.log.Warn("what was published behind the last position could not be removed; it is skipped",
				slog.String("pipeline", d.spec.Pipeline), slog.Any("error", err))
		}
	}
	return nil
}

// claims is how often a claim is tried: each one that is lost was won by another owner.
const claims = 10

// claim saves the note under a new epoch.
func (d *durable) claim(ctx context.Context) (*note, uint64, error) {
	for range claims {
		b, version, err := d.st.Load(ctx)
		if err != nil {
			return nil, 0, fmt.Errorf("opening the lanes of %s: %w", d.spec.Pipeline, err)
		}
		n, err := decodeNote(b, d.spec.Pipeline)
		if err != nil {
			return nil, 0, err
		}
		n.Epoch++
		if n.Run != d.spec.Run || n.Began == 0 {
			n.Run, n.Began, n.Lanes, n.Cuts = d.spec.Run, n.Epoch, nil, nil
		}
		if b, err = n.encode(); err != nil {
			return nil, 0, err
		}
		saved, err := d.st.Save(ctx, b, version)
		if errors.Is(err, ErrTaken) {
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("opening the lanes of %s: %w", d.spec.Pipeline, err)
		}
		d.epoch, d.began, d.version = n.Epoch, n.Began, saved
		return n, saved, nil
	}
	return nil, 0, d.fenced()
}

// tail is what the end of the log says.
type tail struct {
	number uint64       // of the newest item there ever was
	last   wire.Mark    // the newest item with a position
	pack   *wire.Opened // the one that last is in; nil: none
	end    uint64       // its last entry
	marker uint64       // the entry that fenced the previous owner
	first  uint64       // oldest entry
	cut    cutNote
}

// fence appends the entry that ends the previous owner.
func (d *durable) fence(ctx context.Context, n *note, version uint64) (*tail, error) {
	for try := range claims {
		t, last, err := d.tail(ctx, n)
		if err != nil {
			return nil, err
		}
		if try == 0 && n.Epoch == 1 && t.first <= last {
			return nil, d.unusable("the log holds what was published, but the note of how far sinks are is gone")
		}
		h := wire.Head{Epoch: d.epoch, First: t.number + 1, Mark: t.last, Time: time.Now().UnixNano()}
		entries, err := wire.Pack(h, nil, d.st.Limit())
		if err != nil {
			return nil, err //nolint:wrapcheck // says it all
		}
		t.marker = last + 1
		done := make(chan error, 1)
		d.st.Append(t.marker, entries[0], func(err error) { done <- err })
		if err = <-done; err == nil {
			return t, nil
		}
		if b, rerr := d.st.Read(ctx, t.marker); rerr == nil && bytes.Equal(b, entries[0]) {
			return t, nil // it arrived, whatever was said
		}
		if !errors.Is(err, ErrTaken) {
			return nil, fmt.Errorf("opening the lanes of %s: %w", d.spec.Pipeline, err)
		}
		_, now, err := d.st.Load(ctx)
		if err != nil {
			return nil, fmt.Errorf("opening the lanes of %s: %w", d.spec.Pipeline, err)
		}
		if now != version {
			return nil, d.fenced()
		}
	}
	return nil, d.fenced()
}

// tail reads the end of the log, whose last entry it returns too.
func (d *durable) tail(ctx context.Context, n *note) (*tail, uint64, error) {
	first, last, err := d.st.Bounds(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("opening the lanes of %s: %w", d.spec.Pipeline, err)
	}
	t := &tail{first: first}
	if first > last {
		if len(n.Lanes) > 0 {
			return nil, 0, d.unusable("the note knows of lanes, but the log of what was published is empty")
		}
		return t, last, nil
	}
	start, err := d.lastPack(ctx, first, last)
	if err != nil {
		return nil, 0, err
	}
	p, end, err := d.readPack(ctx, start)
	if err != nil {
		return nil, 0, d.unusable("reading entry %d of the log: %w", start, err)
	}
	t.number, t.last = p.First+uint64(p.Items)-1, p.Mark
	for i := range p.Items {
		if p.Positioned(i) {
			t.last = wire.Mark{Number: p.First + uint64(i), Entry: start}
		}
	}
	if t.last.Number == 0 {
		return t, last, nil
	}
	if t.last.Entry != start {
		if p, end, err = d.readPack(ctx, t.last.Entry); err != nil {
			return nil, 0, d.unusable("reading entry %d of the log: %w", t.last.Entry, err)
		}
	}
	if p.Epoch < n.Began { // of another run
		t.last = wire.Mark{}
		return t, last, nil
	}
	t.pack, t.end = p, end
	return t, last, nil
}

// lastPack returns the first entry of the last pack that is complete.
func (d *durable) lastPack(ctx context.Context, first, last uint64) (uint64, error) {
	for last >= first {
		b, err := d.st.Read(ctx, last)
		if err != nil {
			return 0, d.unusable("reading entry %d of the log: %w", last, err)
		}
		p, _, err := wire.ReadPrefix(b)
		if err != nil {
			return 0, d.unusable("reading entry %d of the log: %w", last, err)
		}
		before := last - uint64(p.Part)
		if p.Part == p.Parts-1 {
			return before, nil
		}
		last = before - 1 // the rest of it was never stored
	}
	return 0, d.unusable("the log has no complete entry")
}

func (d *durable) unusable(format string, args ...any) error {
	return unusable(d.spec.Pipeline, fmt.Errorf(format, args...))
}

// restore sets all that follows from the note and the end of the log.
func (d *durable) restore(ctx context.Context, n *note, t *tail) error {
	d.number, d.item, d.opened = t.number, t.number, t.number
	d.entry, d.next, d.trimmed = t.marker, t.marker+1, t.first
	d.cuts = n.Cuts
	if t.number > t.last.Number || t.marker > max(t.end, t.first-1)+1 {
		t.cut = cutNote{First: t.last.Number + 1, Last: t.number, FromEntry: max(t.end+1, t.first), ToEntry: t.marker - 1}
		d.cuts = append(slices.DeleteFunc(slices.Clone(n.Cuts), func(c cutNote) bool { return c.First >= t.cut.First }), t.cut)
	}
	if t.last.Number > 0 {
		at, err := d.markIn(t.pack, t.last)
		if err != nil {
			return err
		}
		d.stored = at
	}
	for _, l := range d.lanes {
		ln, ok := n.lane(l.sink)
		ok = ok && !slices.Contains(d.spec.Anew, l.sink)
		if err := d.restoreLane(ctx, l, ln, ok, t); err != nil {
			return err
		}
	}
	d.watermark = d.lowest()
	d.idle, d.progress = d.isIdle(), time.Now()
	return nil
}

// uncut returns the number itself, or the last one before the cut that it is in; the mutex is held.
func (d *durable) uncut(number uint64) uint64 {
	for _, c := range d.cuts {
		if number >= c.First && number <= c.Last {
			return c.First - 1
		}
	}
	return number
}

// markIn returns the position of an item.
func (d *durable) markIn(p *wire.Opened, m wire.Mark) (mark, error) {
	i := m.Number - p.First
	if m.Number < p.First || i >= uint64(p.Items) || !p.Positioned(int(i)) {
		return mark{}, d.unusable("item %d, which has a position, is not in entry %d", m.Number, m.Entry)
	}
	a := p.About(int(i))
	return mark{number: m.Number, entry: m.Entry, Mark: Mark{Position: a.Position, Ledger: a.Ledger}}, nil
}

func (d *durable) restoreLane(ctx context.Context, l *durableLane, n laneNote, known bool, t *tail) error {
	l.from, l.began = t.number, t.number
	if !known {
		l.found = Created
		return nil
	}
	l.found, l.began = Kept, n.Began
	if n.Number > t.number {
		return d.unusable("sink %s acknowledged item %d, and the log ends with item %d", l.sink, n.Number, t.number)
	}
	l.ledger.passed = passed{d.uncut(n.Acked), countIn(n.Passed), n.Passed.Stored}
	l.total, l.packed = n.Passed, n.Passed
	if n.Detached {
		l.found, l.detached = Detached, true
		l.refuse(ErrDetached)
		return nil
	}
	if n.Mark.Number > 0 {
		p, _, err := d.readPack(ctx, n.Mark.Entry)
		if err != nil {
			return d.unusable("reading entry %d of the log: %w", n.Mark.Entry, err)
		}
		if l.ledger.frontier, err = d.markIn(p, n.Mark); err != nil {
			return err
		}
	}
	if n.Number >= t.last.Number {
		return nil
	}
	return d.restoreHeld(ctx, l, n, t)
}

// restoreHeld makes a lane read on where it stood.
func (d *durable) restoreHeld(ctx context.Context, l *durableLane, n laneNote, t *tail) error {
	l.from = n.Number
	l.behind = &place{entry: over(d.cuts, n.Entry), number: n.Number + 1}
	if l.behind.entry < t.first {
		return d.unusable("sink %s lacks item %d, and the log begins with entry %d", l.sink, n.Number+1, t.first)
	}
	sum, ok := t.pack.Sums[l.sink]
	if !ok {
		return d.unusable("entry %d does not tell how much the lane of sink %s holds", t.last.Entry, l.sink)
	}
	for i := range t.pack.Items {
		if number := t.pack.First + uint64(i); number <= t.last.Number && isFor(t.pack.To(i), l.sink) && !void(d.cuts, number) {
			sum = sum.Add(t.pack.Sum(i))
		}
	}
	held := sum.Sub(n.Passed)
	l.total, l.packed = sum, sum
	l.ledger.announce(countIn(held), held.Stored)
	if held.Items == 0 {
		l.from, l.behind = t.number, nil
		return nil
	}
	p, _, err := d.readPack(ctx, l.behind.entry)
	if err != nil {
		return d.unusable("reading entry %d of the log: %w", l.behind.entry, err)
	}
	l.behind.since = time.Unix(0, p.Time)
	return nil
}

// isFor reports whether an item for these sinks is for that one.
func isFor(to []string, sink string) bool { return to == nil || slices.Contains(to, sink) }

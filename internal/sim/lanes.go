package sim

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
)

// Lanes are durable lanes of one pipeline in a world: what was published is there after a crash, acknowledgements may not be. They are
// the model of what lane.Durable promises, and as simple as that.
type Lanes struct {
	World    *World
	Detached int // how often a lane was let go

	run    string
	items  []storedItem
	number uint64
	lanes  map[string]*storedLane
	owner  *openLanes
}

type storedItem struct {
	number uint64
	item   lane.Item
	to     []string // nil: all
}

type storedLane struct {
	from     uint64 // items up to this one are none of its
	acked    uint64 // durably: all its items up to this one
	detached bool
}

// AddTo lets the world forget the process that had the lanes open.
func (l *Lanes) AddTo(w *World) *Lanes {
	l.World = w
	w.restarts = append(w.restarts, func() { l.owner = nil })
	return l
}

// Open opens the lanes, as lane.Durable says.
func (l *Lanes) Open(ctx context.Context, spec lane.Spec) (lane.Durable, error) {
	o := &openLanes{l: l, spec: spec, lanes: map[string]*openLane{}, moved: make(chan struct{}, 1)}
	err := l.World.do(ctx, Event{Who: "lanes", What: "open"}, func() (err error) {
		if l.lanes == nil || l.run != spec.Run {
			l.run, l.items, l.lanes = spec.Run, nil, map[string]*storedLane{}
		}
		end := slices.IndexFunc(l.items, func(s storedItem) bool { return s.number > l.last() })
		if end >= 0 {
			l.items = l.items[:end]
		}
		for name := range l.lanes {
			if !slices.Contains(spec.Sinks, name) || slices.Contains(spec.Anew, name) {
				delete(l.lanes, name)
			}
		}
		for _, name := range spec.Sinks {
			if err := o.add(name); err != nil {
				return err
			}
		}
		o.requests, err = lane.NewMemory(spec.Sinks, lane.Options{})
		l.owner = o
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// last is the number of the newest item with a position.
func (l *Lanes) last() uint64 {
	for _, s := range slices.Backward(l.items) {
		if b, ok := s.item.(lane.Batch); ok && !b.Position.Zero() {
			return s.number
		}
	}
	return 0
}

// openLanes is one process that has the lanes open.
type openLanes struct {
	l        *Lanes
	spec     lane.Spec
	requests *lane.Memory
	moved    chan struct{}

	mu     sync.Mutex // guards the map; lanes guard themselves
	lanes  map[string]*openLane
	closed bool
}

// openLane is one lane of an open stream: a lane in memory, without bounds, that was filled from what is stored.
type openLane struct {
	o       *openLanes
	name    string
	stored  *storedLane
	found   lane.Found
	mem     *lane.Memory
	numbers []uint64 // of the items in mem, by their number there, from 1
	acked   map[uint64]bool
	next    int // index in numbers of the first that is not acknowledged
}

func (o *openLanes) add(name string) error {
	n := &openLane{o: o, name: name, stored: o.l.lanes[name], found: lane.Kept}
	switch {
	case n.stored == nil:
		n.stored, n.found = &storedLane{from: o.l.number}, lane.Created
		o.l.lanes[name] = n.stored
	case n.stored.detached:
		n.found = lane.Detached
	}
	o.lanes[name] = n
	return n.fill()
}

// fill makes the lane in memory anew.
func (n *openLane) fill() (err error) {
	n.numbers, n.next, n.acked = nil, 0, map[uint64]bool{}
	if n.mem, err = lane.NewMemory([]string{n.name}, lane.Options{Items: 1 << 30, Bytes: 1 << 60}); err != nil || n.stored.detached {
		return err
	}
	for _, s := range n.o.l.items {
		if s.number > max(n.stored.from, n.stored.acked) && (s.to == nil || slices.Contains(s.to, n.name)) {
			if err := n.publish(s.number, s.item); err != nil {
				return err
			}
		}
	}
	if n.o.isClosed() {
		return n.mem.Close()
	}
	return nil
}

func (n *openLane) publish(number uint64, it lane.Item) error {
	n.numbers = append(n.numbers, number)
	return n.mem.Publish(context.Background(), it) //nolint:forbidigo // it has room, and never waits
}

func (o *openLanes) step(ctx context.Context, what, at string, effect func() error) error {
	return o.l.World.do(ctx, Event{Who: "lanes", What: what, At: at}, func() error {
		if o.l.owner != o {
			return &connector.Error{Class: connector.ClassFenced, Code: "sim.fenced", Err: lane.ErrFenced}
		}
		return effect()
	})
}

// Publish implements lane.Input.
func (o *openLanes) Publish(ctx context.Context, it lane.Item, to ...string) error {
	at, positioned := "", false
	if b, ok := it.(lane.Batch); ok {
		at, positioned = b.Position.String(), !b.Position.Zero()
	}
	return o.step(ctx, "publish", at, func() error {
		if o.isClosed() {
			return lane.ErrClosed
		}
		o.l.number++
		s := storedItem{number: o.l.number, item: it, to: slices.Clone(to)}
		o.l.items = append(o.l.items, s)
		for _, name := range o.spec.Sinks {
			n := o.lanes[name]
			if n.stored.detached || (len(to) > 0 && !slices.Contains(to, name)) {
				continue
			}
			if q := o.spec.Quota; q.Detach && q.Bytes > 0 && n.held() >= q.Bytes {
				n.stored.detached = true
				o.l.Detached++
				if err := n.mem.Close(); err != nil {
					return err
				}
				continue
			}
			if err := n.publish(s.number, it); err != nil {
				return err
			}
		}
		if positioned {
			signal(o.moved)
		}
		return nil
	})
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (n *openLane) held() int64 {
	s, err := n.mem.Stats(n.name)
	if err != nil {
		return 0
	}
	return s.Queued.Bytes + s.InFlight.Bytes
}

func (o *openLanes) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}

// Close implements lane.Input.
func (o *openLanes) Close() error {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.l.World.Look(func() {
		for _, n := range o.lanes {
			_ = n.mem.Close() // never fails
		}
	})
	return o.requests.Close()
}

// Release implements lane.Durable.
func (o *openLanes) Release() error { return o.Close() }

// Ask implements lane.Requests.
func (o *openLanes) Ask(r lane.Request) error { return o.requests.Ask(r) }

// Requests implements lane.Requests.
func (o *openLanes) Requests() (lane.Consumer[lane.Request], error) { return o.requests.Requests() }

// Stored implements lane.Durable.
func (o *openLanes) Stored() (m lane.Mark, ok bool) {
	o.l.World.Look(func() { m = o.l.Stored() })
	return m, !m.Position.Zero()
}

// Stored is the mark of the newest item with a position, zero where there is none. The world stands still meanwhile.
func (l *Lanes) Stored() lane.Mark {
	last := l.last()
	for _, s := range l.items {
		if b, is := s.item.(lane.Batch); is && s.number == last && last > 0 {
			return lane.Mark{Position: b.Position, Ledger: b.Ledger}
		}
	}
	return lane.Mark{}
}

// Watermark implements lane.Progress.
func (o *openLanes) Watermark() (m lane.Mark, ok bool) {
	o.l.World.Look(func() {
		least := o.l.number
		for _, n := range o.lanes {
			if !n.stored.detached {
				least = min(least, n.stored.acked)
			}
		}
		for _, s := range o.l.items {
			if b, is := s.item.(lane.Batch); is && s.number <= least && !b.Position.Zero() {
				m, ok = lane.Mark{Position: b.Position, Ledger: b.Ledger}, true
			}
		}
	})
	return m, ok
}

// Moved implements lane.Progress.
func (o *openLanes) Moved() <-chan struct{} { return o.moved }

// Idle implements lane.Progress.
func (o *openLanes) Idle() bool {
	idle := o.requests.Idle()
	o.l.World.Look(func() {
		for _, n := range o.lanes {
			idle = idle && n.mem.Idle()
		}
	})
	return idle
}

// Found implements lane.Durable.
func (o *openLanes) Found(sink string) (f lane.Found, err error) {
	return f, o.with(sink, func(n *openLane) error { f = n.found; return nil })
}

func (o *openLanes) with(sink string, f func(n *openLane) error) error {
	err := lane.ErrUnknownSink
	o.l.World.Look(func() {
		if n := o.lanes[sink]; n != nil {
			err = f(n)
		}
	})
	return err
}

// Holds implements lane.Durable.
func (o *openLanes) Holds(sink string) (h lane.Holding, err error) {
	return h, o.with(sink, func(n *openLane) error {
		s, err := n.mem.Stats(n.name)
		h = lane.Holding{Acked: n.stored.acked, Last: o.l.number, Detached: n.stored.detached}
		h.Fresh = h.Acked == 0 && o.l.last() <= n.stored.from
		h.Items, h.Bytes = s.Queued.Items+s.InFlight.Items, s.Queued.Bytes+s.InFlight.Bytes
		return err
	})
}

// Covered implements lane.Durable.
func (o *openLanes) Covered(sink string, number uint64) (ok bool, err error) {
	return ok, o.with(sink, func(n *openLane) error {
		if n.stored.detached {
			return lane.ErrDetached
		}
		ok = number >= n.stored.acked
		if ok && number > n.stored.from {
			n.stored.acked = number
			return n.fill()
		}
		return nil
	})
}

// Attach implements lane.Durable.
func (o *openLanes) Attach(sink string) error {
	return o.step(context.Background(), "attach", sink, func() error { //nolint:forbidigo // the interface has none
		n := o.lanes[sink]
		if n == nil {
			return lane.ErrUnknownSink
		}
		n.stored.from, n.stored.acked, n.stored.detached = o.l.number, 0, false
		return n.fill()
	})
}

// Stats implements lane.Stream.
func (o *openLanes) Stats(sink string) (s lane.Stats, err error) {
	return s, o.with(sink, func(n *openLane) (err error) {
		s, err = n.mem.Stats(n.name)
		return err
	})
}

// Lane implements lane.Stream.
func (o *openLanes) Lane(sink string) (c lane.Consumer[lane.Item], err error) {
	return c, o.with(sink, func(n *openLane) error {
		inner, err := n.mem.Lane(n.name)
		c = &laneConsumer{Consumer: inner, n: n, mem: n.mem, detached: n.stored.detached}
		return err
	})
}

type laneConsumer struct {
	lane.Consumer[lane.Item]
	n        *openLane
	mem      *lane.Memory
	detached bool
}

// Receive implements lane.Consumer.
func (c *laneConsumer) Receive(ctx context.Context) (lane.Delivery[lane.Item], error) {
	if c.detached {
		return nil, lane.ErrDetached
	}
	d, err := c.Consumer.Receive(ctx)
	if err == nil {
		return &laneDelivery{Delivery: d, n: c.n, mem: c.mem}, nil
	}
	if errors.Is(err, io.EOF) {
		c.n.o.l.World.Look(func() {
			if c.n.stored.detached {
				err = lane.ErrDetached
			}
		})
	}
	return nil, err
}

type laneDelivery struct {
	lane.Delivery[lane.Item]
	n   *openLane
	mem *lane.Memory
}

// Number implements lane.Delivery.
func (d *laneDelivery) Number() (number uint64) {
	d.n.o.l.World.Look(func() {
		if d.n.mem == d.mem {
			number = d.n.numbers[d.Delivery.Number()-1]
		}
	})
	return number
}

// Ack implements lane.Delivery: it becomes durable at once, or with a later one.
func (d *laneDelivery) Ack() error {
	if err := d.Delivery.Ack(); err != nil {
		return err
	}
	w := d.n.o.l.World
	w.Look(func() {
		n := d.n
		if n.mem != d.mem || w.crashed || n.o.l.owner != n.o {
			return
		}
		n.acked[n.numbers[d.Delivery.Number()-1]] = true
		for n.next < len(n.numbers) && n.acked[n.numbers[n.next]] {
			n.next++
		}
		if n.next > 0 && w.chance(0.7) {
			n.stored.acked = max(n.stored.acked, n.numbers[n.next-1])
		}
	})
	return nil
}

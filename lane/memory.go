package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Options bound the lanes of a [Memory] stream. The zero value has the defaults.
type Options struct {
	Items int   // most items that wait in one lane; 0: 64
	Bytes int64 // most bytes that wait in one lane; 0: 64 MiB. A larger item passes when nothing else waits
	// Untracked names lanes that take no part in the watermark: their sinks show nothing before the end of the run, so no
	// position is ever durable in them. If all lanes are untracked there is no watermark.
	Untracked []string
}

const (
	defaultItems = 64
	defaultBytes = 64 << 20
)

// Memory is the stream of lanes for one process. Bounds hold for what waits in a lane; what a consumer holds in flight is bounded by
// the consumer. If a lane is full the publisher waits, and all lanes with it: a sink delays the others no sooner than its own queue
// is full. A stream without any lane takes everything at once: its watermark is the last published position.
type Memory struct {
	names  []string
	opts   Options
	moved  chan struct{}
	byName map[string]*memoryLane

	mu        sync.Mutex // guards all that follows, and all queues; held for memory only, never while waiting
	lanes     []*memoryLane
	requests  *asked
	waiting   []*publication // in order of arrival
	number    uint64         // of the last publication
	watermark mark
	idle      bool
	closed    bool
}

type memoryLane struct {
	*queue[Item]
	tracked bool
}

// publication is a Publish that waits for room.
type publication struct {
	item  Item
	count Count
	lanes []*memoryLane
	done  chan struct{} // closed when it was published or refused
	err   error         // read after done
}

var _ Stream = (*Memory)(nil)

// NewMemory returns a stream with a lane for each of the sinks, which may be none. Names are unique and not empty.
func NewMemory(sinks []string, o Options) (*Memory, error) {
	if o.Items <= 0 {
		o.Items = defaultItems
	}
	if o.Bytes <= 0 {
		o.Bytes = defaultBytes
	}
	m := &Memory{
		names: slices.Clone(sinks), opts: o, moved: make(chan struct{}, 1), byName: make(map[string]*memoryLane, len(sinks)), idle: true,
	}
	m.requests = &asked{queue: &queue[Request]{mu: &m.mu, settled: m.settled}}
	for _, s := range sinks {
		if s == "" || m.byName[s] != nil {
			return nil, fmt.Errorf("lane: sinks %q: names must be unique and not empty", sinks)
		}
		l := &memoryLane{queue: &queue[Item]{mu: &m.mu, settled: m.settled}, tracked: !slices.Contains(o.Untracked, s)}
		m.lanes, m.byName[s] = append(m.lanes, l), l
	}
	for _, s := range o.Untracked {
		if m.byName[s] == nil {
			return nil, fmt.Errorf("untracked lane %q: %w", s, ErrUnknownSink)
		}
	}
	return m, nil
}

// Publish implements Input.
func (m *Memory) Publish(ctx context.Context, it Item, to ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := m.prepare(it, to)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.waiting = append(m.waiting, p)
	m.admit()
	m.mu.Unlock()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
	}
	if m.withdraw(p) {
		return ctx.Err()
	}
	<-p.done // it was served in the same moment
	return p.err
}

func (m *Memory) prepare(it Item, to []string) (*publication, error) {
	if b, ok := it.(Batch); it == nil || (ok && b.Batch == nil) {
		return nil, errors.New("lane: publishing nothing")
	}
	p := &publication{item: it, count: countOf(it), lanes: m.lanes, done: make(chan struct{})}
	if len(to) == 0 {
		return p, nil
	}
	p.lanes = nil
	for _, s := range to {
		l, err := m.lane(s)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(p.lanes, l) {
			p.lanes = append(p.lanes, l)
		}
	}
	if !markOf(it).Position.Zero() && len(p.lanes) < len(m.lanes) {
		return nil, fmt.Errorf("lane: an item with a position goes to all lanes, not only to %q", to)
	}
	return p, nil
}

func (m *Memory) lane(sink string) (*memoryLane, error) {
	l, ok := m.byName[sink]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownSink, sink)
	}
	return l, nil
}

// withdraw removes a publication that still waits, and reports whether it did.
func (m *Memory) withdraw(p *publication) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.waiting, p)
	if i < 0 {
		return false
	}
	m.waiting = slices.Delete(m.waiting, i, i+1)
	m.admit() // others may have waited behind it only
	return true
}

// admit serves publications in order of arrival: one is served once all its lanes have room and no earlier one waits for any of
// them, so that a stream of small publications into one lane can't starve one that goes to all. The mutex is held.
func (m *Memory) admit() {
	if len(m.waiting) > 0 {
		m.serve()
	}
	m.report()
}

func (m *Memory) serve() {
	blocked := make(map[*memoryLane]bool, len(m.lanes))
	m.waiting = slices.DeleteFunc(m.waiting, func(p *publication) bool {
		if m.closed {
			p.err = ErrClosed
			close(p.done)
			return true
		}
		if slices.ContainsFunc(p.lanes, func(l *memoryLane) bool { return blocked[l] || !m.hasRoom(l, p.count.Bytes) }) {
			for _, l := range p.lanes {
				blocked[l] = true
			}
			return false
		}
		m.enter(p)
		close(p.done)
		return true
	})
}

func (m *Memory) hasRoom(l *memoryLane, size int64) bool {
	q := l.ledger.stats.Queued
	return q.Items == 0 || (q.Items < int64(m.opts.Items) && q.Bytes+size <= m.opts.Bytes)
}

// enter puts a publication into all its lanes under one number.
func (m *Memory) enter(p *publication) {
	m.number++
	for _, l := range p.lanes {
		l.ledger.publish(&entry[Item]{number: m.number, item: p.item, count: p.count, at: markOf(p.item)})
		l.notify()
	}
	if at := markOf(p.item); len(m.lanes) == 0 && !at.Position.Zero() {
		m.watermark = mark{number: m.number, Mark: at}
		signal(m.moved)
	}
}

// settled follows every hand-out and every acknowledgement: there may be room, and the watermark may have moved. The mutex is held.
func (m *Memory) settled() { m.admit() }

// report brings the watermark up to date and says so. The mutex is held.
func (m *Memory) report() {
	idle := m.isIdle()
	if idle && !m.idle {
		signal(m.moved)
	}
	m.idle = idle
	if low := m.lowest(); low.number > m.watermark.number {
		m.watermark = low
		signal(m.moved)
	}
}

// lowest is the minimum of the frontiers of the tracked lanes, without number while one of them has none.
func (m *Memory) lowest() mark {
	fronts := make([]mark, 0, len(m.lanes))
	for _, l := range m.lanes {
		if l.tracked {
			fronts = append(fronts, l.ledger.frontier)
		}
	}
	return lowest(fronts)
}

// Lane implements Stream.
func (m *Memory) Lane(sink string) (Consumer[Item], error) {
	l, err := m.lane(sink)
	if err != nil {
		return nil, err
	}
	return l.attach(), nil
}

// Ask implements Requests.
func (m *Memory) Ask(r Request) error {
	if _, err := m.lane(r.Sink); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.requests.ask(r)
	m.idle = m.idle && err != nil
	return err
}

// Requests implements Requests.
func (m *Memory) Requests() (Consumer[Request], error) { return m.requests.attach(), nil }

// Watermark implements Progress.
func (m *Memory) Watermark() (Mark, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watermark.Mark, m.watermark.number > 0
}

// Moved implements Progress.
func (m *Memory) Moved() <-chan struct{} { return m.moved }

// Idle implements Progress.
func (m *Memory) Idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isIdle()
}

func (m *Memory) isIdle() bool {
	for _, l := range m.lanes {
		if !l.ledger.idle() {
			return false
		}
	}
	return m.requests.ledger.idle()
}

// Stats implements Stream.
func (m *Memory) Stats(sink string) (Stats, error) {
	l, err := m.lane(sink)
	if err != nil {
		return Stats{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return l.ledger.stats, nil
}

// Sinks returns the names that the stream was built with, in order.
func (m *Memory) Sinks() []string { return slices.Clone(m.names) }

// Close implements Input.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.admit() // refuses all that wait
	for _, l := range m.lanes {
		l.close()
	}
	m.requests.close()
	return nil
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/leatdata/leat/internal/backfill"
	"github.com/leatdata/leat/lane"
)

// names are what deliverers tell the reader.
type names struct {
	mu   sync.Mutex
	list []string
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, name)
}

func (n *names) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.list
	n.list = nil
	return list
}

// answer is a request of a sink, and the datasets that it gets.
type answer struct {
	request  lane.Delivery[lane.Request]
	datasets []string
}

// listen hands requests of sinks to the reader, until the generation ends.
func (g *generation) listen(done <-chan struct{}) error {
	c, err := g.stream.Requests()
	if err != nil {
		return fmt.Errorf("listening to requests: %w", err)
	}
	ctx, cancel := context.WithCancel(g.hard)
	defer cancel()
	go func() {
		select {
		case <-done:
		case <-g.soft.Done():
		case <-ctx.Done():
		}
		cancel()
	}()
	for {
		d, err := c.Receive(ctx)
		if err != nil {
			return c.Close()
		}
		select {
		case g.back.asked <- d:
		case <-ctx.Done():
			return c.Close()
		}
	}
}

// serveLanes lets go of lanes that were detached, and answers sinks that ask to be filled. A request is acknowledged once the marks
// that its snapshots are complete were published into the lane that asked (W13).
func (b *backfiller) serveLanes(ctx context.Context) error {
	for _, name := range b.detached.take() {
		b.merge.Drop(name)
		b.lanes = slices.DeleteFunc(b.lanes, func(l string) bool { return l == name })
	}
	var err error
	b.answers = slices.DeleteFunc(b.answers, func(a *answer) bool {
		sink := []string{a.request.Item().Sink}
		if slices.ContainsFunc(a.datasets, func(d string) bool { return b.filling(d, sink) }) {
			return false
		}
		err = errors.Join(err, a.request.Ack())
		return true
	})
	if err != nil {
		return fmt.Errorf("acknowledging a request: %w", err)
	}
	return b.fillLanes(ctx)
}

// fillLanes answers the requests that wait. A lane is attached only once the lanes have a ledger without it: else a crash in between
// would leave one that says that the sink has everything.
func (b *backfiller) fillLanes(ctx context.Context) error {
	for range len(b.g.lanes) {
		select {
		case d := <-b.asked:
			b.requests = append(b.requests, d)
		default:
		}
	}
	if len(b.requests) == 0 {
		return nil
	}
	if b.g.durable != nil {
		now := string(b.merge.Ledger())
		if at, ok := b.g.durable.Stored(); !ok || at.Ledger != now {
			if time.Since(b.marked) < time.Second || b.reader.last.Zero() {
				return nil
			}
			b.marked = time.Now()
			return b.mark(ctx, b.reader.last)
		}
	}
	requests := b.requests
	b.requests = nil
	for _, d := range requests {
		if err := b.fill(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// left reports whether a lane that was let go may still be filled: its sink is not known to be down.
func (b *backfiller) left() bool {
	return slices.ContainsFunc(b.g.lanes, func(d *deliverer) bool {
		return !slices.Contains(b.lanes, d.spec.Name) && !d.isDown.Load() && !d.paused()
	})
}

// fill opens the backfills that a sink asks for: of the datasets that it names, or of all of them.
func (b *backfiller) fill(ctx context.Context, d lane.Delivery[lane.Request]) error {
	r := d.Item()
	i := slices.IndexFunc(b.g.lanes, func(l *deliverer) bool { return l.spec.Name == r.Sink })
	if i < 0 {
		return d.Ack()
	}
	if !slices.Contains(b.lanes, r.Sink) {
		if err := b.g.durable.Attach(r.Sink); err != nil {
			return fmt.Errorf("attaching the lane of %q: %w", r.Sink, err)
		}
		b.lanes = append(b.lanes, r.Sink)
		b.g.r.log.Info("a sink is back, and filled anew", slog.String("sink", r.Sink))
	}
	a := &answer{request: d}
	for _, ds := range b.g.blue.datasets {
		if ds.Schema == nil || !b.known[ds.Name] || (len(r.Datasets) > 0 && !slices.Contains(r.Datasets, ds.Name)) {
			continue
		}
		if b.paused[ds.Name] { // it is filled once it is resumed
			b.merge.Fail(ds.Schema, r.Sink)
			continue
		}
		if err := b.lack(ctx, i, ds.Schema, backfill.Truncate); err != nil {
			return err
		}
		a.datasets = append(a.datasets, ds.Name)
		b.phase(ds.Name)
	}
	b.answers = append(b.answers, a)
	signal(b.g.lanes[i].attached)
	return nil
}

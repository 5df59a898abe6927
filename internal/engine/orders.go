package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/leatdata/leat/internal/backfill"
	"github.com/leatdata/leat/state"
)

// ordersEvery is how often somebody looks at what people want.
const ordersEvery = time.Second

// orders are what people want of the run.
type orders struct {
	state.Orders
	resumed map[string]int // how often each sink was resumed
}

// take replaces the orders by newer ones.
func (o *orders) take(next state.Orders) {
	for _, s := range o.Sinks {
		if !slices.Contains(next.Sinks, s) {
			if o.resumed == nil {
				o.resumed = map[string]int{}
			}
			o.resumed[s]++
		}
	}
	o.Orders = next
}

// sinkPaused reports whether a lane is paused, and returns the channel that is closed when that may have changed.
func (c *Control) sinkPaused(name string) (bool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.orders.Sinks, name), c.changed
}

// resumes counts how often a lane was resumed.
func (c *Control) resumes(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.orders.resumed[name]
}

// ordered returns what people want.
func (c *Control) ordered() state.Orders {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.orders.Orders
}

// loadOrders looks at what people want; it reports whether that is news.
func (r *runner) loadOrders(ctx context.Context) (bool, error) {
	o, v, err := r.deps.Store.Orders(ctx, r.plan.Name)
	if err != nil {
		return false, fmt.Errorf("loading the orders of %s: %w", r.plan.Name, err)
	}
	if v == r.ordersAt {
		return false, nil
	}
	r.ordersAt = v
	r.ctl.set(func() { r.ctl.orders.take(o) })
	return true, nil
}

// watchOrders looks at what people want from time to time.
func (g *generation) watchOrders(done <-chan struct{}) {
	t := time.NewTicker(ordersEvery)
	defer t.Stop()
	warned := false
	for {
		select {
		case <-t.C:
		case <-done:
			return
		case <-g.soft.Done():
			return
		}
		news, err := g.r.loadOrders(g.soft)
		switch {
		case err != nil && !warned && g.soft.Err() == nil:
			warned = true
			g.r.log.Warn("looking for orders", slog.Any("error", err))
		case news:
			warned = false
			for _, d := range g.lanes {
				d.kick()
			}
		}
	}
}

// obey brings the reader's side in line with what people want: datasets that are paused, and backfills.
func (b *backfiller) obey(ctx context.Context) error {
	o := b.g.r.ctl.ordered()
	for _, name := range o.Datasets {
		if !b.paused[name] && b.known[name] {
			b.pause(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.paused)) {
		if slices.Contains(o.Datasets, name) {
			continue
		}
		if err := b.goOn(ctx, name); err != nil {
			return err
		}
	}
	for _, f := range o.Backfills {
		if b.ordered[f.ID] == nil {
			if err := b.order(ctx, f); err != nil {
				return err
			}
		}
	}
	return b.settleOrders(ctx)
}

// pause ends a dataset for all lanes until it is resumed: then it is copied once more.
func (b *backfiller) pause(name string) {
	b.paused[name] = true
	s := b.schemaOf(name)
	for _, l := range b.lanes {
		b.merge.Fail(s, l)
	}
	b.g.r.log.Info("a dataset is paused", slog.String("dataset", name))
	b.phase(name)
}

// goOn copies a dataset that was paused once more.
func (b *backfiller) goOn(ctx context.Context, name string) error {
	delete(b.paused, name)
	if err := b.merge.Request(ctx, b.schemaOf(name), backfill.Truncate, b.lanes...); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	b.g.r.log.Info("a dataset is resumed, and copied once more", slog.String("dataset", name))
	b.phase(name)
	return nil
}

// fillOrder is a backfill that somebody asked for.
type fillOrder struct {
	datasets, lanes []string
	part            bool
	over            bool // it is complete, and off the list
}

// order opens what somebody asks for. What can't be done is logged and taken off the list, so that it is not tried for ever.
func (b *backfiller) order(ctx context.Context, f state.Backfill) error {
	o := &fillOrder{part: f.Where != "" || len(f.Keys) > 0}
	b.ordered[f.ID] = o
	datasets := f.Datasets
	if len(datasets) == 0 {
		datasets = slices.Sorted(maps.Keys(b.known))
	}
	lanes := slices.DeleteFunc(slices.Clone(b.lanes), func(l string) bool { return len(f.Sinks) > 0 && !slices.Contains(f.Sinks, l) })
	if err := b.orderable(f, datasets, lanes); err != nil {
		b.g.r.log.Error("a backfill that was asked for is not possible", slog.Uint64("id", f.ID), slog.Any("error", err))
		return nil
	}
	for _, name := range datasets {
		if err := b.copyAgain(ctx, name, lanes); err != nil {
			return err
		}
		b.phase(name)
	}
	o.datasets, o.lanes = datasets, lanes
	b.g.r.log.Info("a backfill that was asked for begins", slog.Uint64("id", f.ID), slog.Any("datasets", datasets), slog.Any("sinks", lanes))
	return nil
}

// orderable says why a backfill can't be opened.
func (b *backfiller) orderable(f state.Backfill, datasets, lanes []string) error {
	if len(lanes) == 0 {
		return fmt.Errorf("none of its sinks %q can be filled now", f.Sinks)
	}
	for _, name := range datasets {
		if !b.known[name] {
			return unknownDataset(name, b.g.blue.datasets)
		}
		if b.paused[name] {
			return fmt.Errorf("dataset %q is paused", name)
		}
	}
	return nil
}

// filling reports whether any of the lanes is being filled with a dataset.
func (b *backfiller) filling(dataset string, lanes []string) bool {
	return slices.ContainsFunc(lanes, func(l string) bool { return b.merge.Filling(l, dataset) })
}

// copyAgain empties a dataset in the lanes and copies it once more. Lanes that are being filled with it already go on.
func (b *backfiller) copyAgain(ctx context.Context, name string, lanes []string) error {
	var idle []string
	for _, l := range lanes {
		if !b.merge.Filling(l, name) {
			idle = append(idle, l)
		}
	}
	if len(idle) == 0 {
		return nil
	}
	if err := b.merge.Request(ctx, b.schemaOf(name), backfill.Truncate, idle...); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	return nil
}

// settleOrders takes complete backfills off the list of what people want. It comes after the marks of their completion were published
// (W13): a crash in between runs them again.
func (b *backfiller) settleOrders(ctx context.Context) error {
	var done []uint64
	for id, o := range b.ordered {
		if !o.over && !slices.ContainsFunc(o.datasets, func(d string) bool { return b.filling(d, o.lanes) }) {
			done = append(done, id)
		}
	}
	if len(done) == 0 {
		return nil
	}
	err := b.g.r.changeOrders(ctx, func(o *state.Orders) {
		o.Backfills = slices.DeleteFunc(o.Backfills, func(f state.Backfill) bool { return slices.Contains(done, f.ID) })
	})
	if err != nil {
		return err
	}
	for _, id := range done {
		b.ordered[id].over = true
		b.g.r.log.Info("a backfill that was asked for is complete", slog.Uint64("id", id))
	}
	return nil
}

// changeOrders changes what is saved of people's wishes.
func (r *runner) changeOrders(ctx context.Context, change func(*state.Orders)) error {
	for {
		o, v, err := r.deps.Store.Orders(ctx, r.plan.Name)
		if err != nil {
			return fmt.Errorf("loading the orders of %s: %w", r.plan.Name, err)
		}
		if v == 0 {
			return nil
		}
		change(&o)
		_, err = r.deps.Store.SaveOrders(ctx, r.plan.Name, o, v)
		if err == nil {
			return nil
		}
		if !errors.Is(err, state.ErrConflict) {
			return fmt.Errorf("saving the orders of %s: %w", r.plan.Name, err)
		}
	}
}

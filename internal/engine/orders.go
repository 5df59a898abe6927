package engine

import (
	"context"
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
	warned := false
	g.every(ordersEvery, done, func() {
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
		if g.back == nil {
			g.refuseBackfills(g.soft)
		}
	})
}

// refuseBackfills takes backfills off the list where the source has no snapshots that they could be made of.
func (g *generation) refuseBackfills(ctx context.Context) {
	for _, f := range g.r.ctl.ordered().Backfills {
		why := "its source has no snapshots: what it sent once can't be asked for again"
		g.r.log.Error("a backfill that was asked for is not possible", slog.Uint64("id", f.ID), slog.String("error", why))
		g.r.changeOrders(ctx, func(o *state.Orders) { *o = o.Fail(f.ID, why) })
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
	b.settleOrders(ctx)
	b.settleParts(ctx)
	return nil
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
	part            bool // only some rows of them, see parts
	over            bool // it is complete or refused, and off the list
}

// order opens what somebody asks for. What is not possible is taken off the list with the reason.
func (b *backfiller) order(ctx context.Context, f state.Backfill) error {
	o := &fillOrder{datasets: f.Datasets}
	b.ordered[f.ID] = o
	if len(o.datasets) == 0 {
		o.datasets = slices.Sorted(maps.Keys(b.known))
	}
	o.lanes = slices.DeleteFunc(slices.Clone(b.lanes), func(l string) bool { return len(f.Sinks) > 0 && !slices.Contains(f.Sinks, l) })
	if err := b.orderable(f, o.datasets, o.lanes); err != nil {
		b.refuse(ctx, f.ID, err)
		return nil
	}
	if o.part = f.Where != "" || len(f.Keys) > 0; o.part {
		return b.orderPart(ctx, f, o)
	}
	for _, name := range o.datasets {
		if err := b.merge.Again(ctx, b.schemaOf(name), f.ID, o.lanes...); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		b.phase(name)
	}
	b.g.r.log.Info("a backfill that was asked for begins",
		slog.Uint64("id", f.ID), slog.Any("datasets", o.datasets), slog.Any("sinks", o.lanes))
	return nil
}

// refuse takes a backfill off the list that is not possible.
func (b *backfiller) refuse(ctx context.Context, id uint64, why error) {
	b.g.r.log.Error("a backfill that was asked for is not possible", slog.Uint64("id", id), slog.Any("error", why))
	b.ordered[id].over = true
	b.g.r.changeOrders(ctx, func(o *state.Orders) { *o = o.Fail(id, why.Error()) })
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

// settleOrders takes backfills off the list of what people want that are complete, durably, in all lanes that they are for (W13): a
// crash before that runs them again.
func (b *backfiller) settleOrders(ctx context.Context) {
	b.mu.Lock()
	saved := b.parts.saved
	b.mu.Unlock()
	var done []uint64
	for id, o := range b.ordered {
		missing := func(dataset string) bool {
			return slices.ContainsFunc(o.lanes, func(l string) bool { return !slices.Contains(saved[id][dataset], l) })
		}
		if !o.over && !o.part && !slices.ContainsFunc(o.datasets, missing) {
			done = append(done, id)
		}
	}
	if len(done) == 0 || !b.g.r.changeOrders(ctx, func(o *state.Orders) {
		o.Backfills = slices.DeleteFunc(o.Backfills, func(f state.Backfill) bool { return slices.Contains(done, f.ID) })
	}) {
		return
	}
	for _, id := range done {
		b.ordered[id].over = true
		b.g.r.log.Info("a backfill that was asked for is complete", slog.Uint64("id", id))
	}
}

// changeOrders changes what is saved of people's wishes, and reports whether it did; else they stay, and are looked at again.
func (r *runner) changeOrders(ctx context.Context, change func(*state.Orders)) bool {
	_, err := state.UpdateOrders(ctx, r.deps.Store, r.plan.Name, func(o *state.Orders) error {
		change(o)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		r.log.Warn("saving the orders", slog.Any("error", err))
	}
	return err == nil
}

package sim

import (
	"context"
	"errors"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// TableSink is the configuration of a sink that applies changes by key, and the system behind it. With Stores it commits its progress
// with the rows, and then takes nothing that comes twice. With TwoPhase besides, it does so by epoch, prepared and then published.
type TableSink struct {
	World    *World
	Name     string
	Stores   bool
	TwoPhase bool
	Durable  *Target
	Progress record.Progress
	Has      bool
	Fence    uint64
	// Truncates counts how often it was emptied.
	Truncates int
	// Broken is what every call is answered with; nil: it works.
	Broken error
	epochs epochs[*Target]
}

// NewTableSink returns an empty one.
func NewTableSink(w *World, db *Database, name string, stores bool) *TableSink {
	return &TableSink{
		World: w, Name: name, Stores: stores, Durable: &Target{DB: db, Rows: map[int64]Image{}, Refill: !stores},
	}
}

// Contract implements connector.SinkConfig.
func (s *TableSink) Contract() (connector.SinkContract, error) {
	c := connector.SinkContract{
		Modes: []connector.WriteMode{connector.Upsert}, Durable: true, NeedsKey: true, Input: connector.Changelog,
		Atomicity: connector.KeyedWrites,
	}
	switch {
	case s.TwoPhase:
		c.Atomicity = connector.TwoPhaseCommit
	case s.Stores:
		c.Atomicity = connector.PositionInTransaction
	}
	return c, nil
}

// Identity implements connector.SinkConfig.
func (*TableSink) Identity() map[string]string { return nil }

// Open implements connector.SinkConfig.
func (s *TableSink) Open(connector.Env) (connector.Sink, error) {
	a := &applying{cfg: s}
	switch {
	case s.TwoPhase:
		return &struct {
			*applying
			phases[*Target]
		}{a, a.phases()}, nil
	case s.Stores:
		return &struct {
			*applying
			storing
		}{a, storing{a}}, nil
	}
	return a, nil
}

// applying is one generation of the sink.
type applying struct {
	cfg    *TableSink
	fence  uint64
	rows   *Target
	dirty  bool // rows were written and not prepared
	failed bool
}

func (a *applying) step(ctx context.Context, what string, p record.Position, effect func() error) error {
	e := Event{Who: a.cfg.Name, What: what}
	if !p.Zero() {
		e.At = p.String()
	}
	err := a.cfg.World.do(ctx, e, func() error {
		if a.cfg.Broken != nil {
			return a.cfg.Broken
		}
		if a.fence < a.cfg.Fence {
			return &connector.Error{Class: connector.ClassFenced, Code: "sim.fenced", Err: errors.New("another owner took over")}
		}
		return effect()
	})
	a.failed = a.failed || err != nil
	return err
}

// Start implements connector.Sink.
func (a *applying) Start(ctx context.Context, s connector.SinkStart) error {
	a.fence = s.Fence
	return a.step(ctx, "start", record.Position{}, func() error {
		a.cfg.Fence, a.rows = s.Fence, a.cfg.Durable.Clone()
		return nil
	})
}

// Write implements connector.Sink.
func (a *applying) Write(ctx context.Context, b *record.Batch) error {
	return a.step(ctx, "write", b.Position, func() error {
		if a.failed {
			a.cfg.World.violateLocked("sink %s: a write after a failure", a.cfg.Name)
		}
		if a.cfg.TwoPhase {
			a.phases().writes()
		}
		a.dirty = true
		if b.Truncate {
			a.cfg.Truncates++
		}
		if err := a.rows.Apply(b); err != nil {
			a.cfg.World.violateLocked("sink %s: %v", a.cfg.Name, err)
		}
		return nil
	})
}

// Flush implements connector.Sink.
func (a *applying) Flush(ctx context.Context) error {
	return a.step(ctx, "flush", record.Position{}, func() error {
		if a.cfg.TwoPhase {
			a.phases().violate("it publishes epochs, and was flushed")
		}
		a.cfg.Durable = a.rows.Clone()
		return nil
	})
}

// Close implements connector.Sink.
func (*applying) Close(context.Context) error { return nil }

func (a *applying) phases() phases[*Target] {
	c := a.cfg
	return phases[*Target]{epochs: &c.epochs, host: a, world: c.World, name: c.Name, progress: &c.Progress, has: &c.Has, place: PlaceOf}
}

func (*applying) before() error { return nil }

func (a *applying) take() *Target {
	rows := a.rows
	a.rows, a.dirty = a.cfg.Durable.Clone(), false
	return rows
}

func (a *applying) written() bool { return a.dirty }

func (a *applying) show(rows *Target) { a.cfg.Durable, a.rows = rows.Clone(), rows.Clone() }

// Staged is how many epochs are prepared, and neither published nor aborted.
func (s *TableSink) Staged() int { return len(s.epochs.staged()) }

type storing struct{ a *applying }

// Commit implements connector.PositionStore.
func (s storing) Commit(ctx context.Context, p record.Progress) error {
	c := s.a.cfg
	return s.a.step(ctx, "commit", p.Position, func() error {
		if c.Has && c.Progress.Run == p.Run && PlaceOf(p.Position) < PlaceOf(c.Progress.Position) {
			c.World.violateLocked("sink %s: back from %s to %s", c.Name, c.Progress.Position, p.Position)
		}
		c.Durable, c.Progress, c.Has = s.a.rows.Clone(), p, true
		return nil
	})
}

// Committed implements connector.PositionStore.
func (s storing) Committed(ctx context.Context) (p record.Progress, has bool, err error) {
	err = s.a.step(ctx, "committed", record.Position{}, func() error {
		p, has = s.a.cfg.Progress, s.a.cfg.Has
		return nil
	})
	return p, has, err
}

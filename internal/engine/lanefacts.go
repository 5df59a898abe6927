package engine

import (
	"context"
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// factsEvery bounds how often it is saved, for people, how far lanes are.
const factsEvery = 2 * time.Second

// saveFacts saves how far lanes are.
func (g *generation) saveFacts(ctx context.Context) error {
	g.told = time.Now()
	return g.r.update(ctx, func(rec *state.Record) error {
		rec.Lanes = g.laneFacts(rec.Lanes)
		return nil
	})
}

// laneFacts is what a checkpoint tells of each lane.
func (g *generation) laneFacts(was map[string]state.Lane) map[string]state.Lane {
	facts := decided(was)
	for _, s := range g.r.ctl.Status().Sinks {
		l := was[s.Name]
		if g.durable != nil {
			if h, err := g.durable.Holds(s.Name); err == nil {
				s.Held = h
			}
		}
		l.State, l.Error = s.State, ""
		if s.Filling && s.State == state.LaneLive {
			l.State = state.LaneFilling
		}
		if was[s.Name].State == state.LaneJoining && s.Position.Zero() && l.Progress.Position.Zero() {
			l.State = state.LaneJoining
		}
		if s.Err != nil {
			l.Error = s.Err.Error()
		}
		if !s.Position.Zero() && !g.r.phased(s.Name) {
			l.Progress = record.Progress{Run: g.r.runName, Position: s.Position, Item: s.Held.Acked}
		}
		l.Held, l.Items, l.Oldest = s.Held.Bytes, s.Held.Items, s.Held.Oldest
		facts[s.Name] = l
	}
	return facts
}

// phased reports whether a sink publishes in two phases, so that what is saved of its lane is the truth.
func (r *runner) phased(sink string) bool {
	return slices.ContainsFunc(r.offers, func(o SinkOffer) bool {
		return o.Name == sink && o.Contract.Atomicity == connector.TwoPhaseCommit
	})
}

// watchLanes shows what durable lanes hold.
func (g *generation) watchLanes(done <-chan struct{}) {
	if g.durable == nil {
		return
	}
	look := func() {
		for _, d := range g.lanes {
			if h, err := g.durable.Holds(d.spec.Name); err == nil {
				g.r.ctl.sink(d.spec.Name, func(s *SinkStatus) { s.Held = h })
			}
		}
	}
	look()
	g.every(time.Second, done, look)
}

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

// aim finds the place where a run of a source without an end is to end (Plan.Once).
func (g *generation) aim(ctx context.Context) error {
	refuse := func(code, cause, hint string) error {
		return &connector.Error{
			Class: connector.ClassConfig, Code: code, Doing: "starting the run", Err: errors.New(cause), Hint: hint,
		}
	}
	switch p := g.r.plan; {
	case !g.r.follows():
		return nil
	case p.Snapshot == SnapshotOnly && !g.r.refill:
		return refuse("engine.no_snapshot", "this source has no snapshots, and the run is to be nothing else", "leave snapshot: only out")
	case !p.Once:
		return nil
	}
	t, ok := connector.As[connector.Tip](g.src)
	if !ok {
		return refuse("engine.no_tip", "this source can't tell where its stream ends now", "leave --once out")
	}
	if !g.r.target.Zero() {
		return nil // another generation goes on to the same place
	}
	err := g.srcValue.call("tip", func() (err error) {
		g.r.target, err = t.Tip(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("source: asking where its stream ends: %w", err)
	}
	return nil
}

// reachedTip reports whether a place of the stream is where the run ends, or behind it.
func (g *generation) reachedTip(at record.Position) bool {
	order, _ := positionsOf(g.src)
	return !at.Zero() && order.covers(at, g.r.target)
}

// atTip reports whether a run without backfills has come to where it ends. What was reached is saved, also where nothing came.
func (r *reader) atTip(soft context.Context) (bool, error) {
	r.reached = r.g.r.follows() && r.g.r.plan.Once && !r.unit && r.g.reachedTip(r.last)
	if !r.reached || !r.last.Equal(r.g.begun) {
		return r.reached, nil
	}
	if err := r.g.stream.Publish(soft, lane.Batch{Batch: &record.Batch{Position: r.last}}); err != nil {
		return false, fmt.Errorf("publishing: %w", err)
	}
	return true, nil
}

package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// shows tells people what the lane does, and the error that is in the way.
func (d *deliverer) shows(s string, err error) {
	d.isDown.Store(s == state.LaneDown)
	d.g.r.ctl.sink(d.spec.Name, func(k *SinkStatus) { k.State, k.Err = s, err })
}

// goDown decides about a sink that failed for good: where its lane is durable it is tried again, as long as it takes, and nobody else is
// troubled (W15); else the run fails with reason. Rows that could be written twice are not tried again before somebody says so.
func (d *deliverer) goDown(f failure, reason error) (wait time.Duration, err error) {
	class := connector.ClassOf(f.err)
	if d.g.durable == nil || class == connector.ClassFenced || class == connector.ClassConfig || errors.Is(f.err, errStuck) {
		return 0, reason
	}
	select {
	case <-d.g.over:
		return 0, reason // nobody waits for it any more
	default:
	}
	d.shows(state.LaneDown, reason)
	d.g.r.log.Error("a sink is down; the others go on", slog.String("sink", d.spec.Name), slog.Any("error", reason))
	if f.repeats {
		return 0, d.untilResumed(reason)
	}
	return d.pacer.next(f.err), nil
}

// untilResumed waits until somebody resumes the lane; at the end of the run it returns the reason.
func (d *deliverer) untilResumed(reason error) error {
	was := d.g.r.ctl.resumes(d.spec.Name)
	for d.g.r.ctl.resumes(d.spec.Name) == was {
		select {
		case <-d.g.r.ctl.Changed():
		case <-d.g.over:
			return reason
		}
	}
	return nil
}

// paused reports whether somebody paused the lane.
func (d *deliverer) paused() bool {
	paused, _ := d.g.r.ctl.sinkPaused(d.spec.Name)
	return paused
}

// kick wakes a lane that waits for items, so that it looks at what is wanted of it.
func (d *deliverer) kick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wake != nil {
		d.wake()
	}
}

// untilKicked is the context to wait for items with.
func (d *deliverer) untilKicked(ctx context.Context) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil || d.waiting.Err() != nil {
		d.waiting, d.wake = context.WithCancel(ctx)
	}
	return d.waiting
}

// rest does nothing while the lane is paused, once what it holds is durable. left: the run ends while it is.
func (d *deliverer) rest() (waited, left bool) {
	for {
		paused, changed := d.g.r.ctl.sinkPaused(d.spec.Name)
		if !paused || d.mid || len(d.held) > 0 {
			if waited {
				d.shows(state.LaneLive, nil)
			}
			return waited, false
		}
		if !waited {
			d.shows(state.LanePaused, nil)
		}
		waited = true
		select {
		case <-changed:
		case <-d.g.over:
			d.g.left.Store(true)
			return true, true
		case <-d.g.hard.Done():
			return true, true
		}
	}
}

// letGoOfLane notes that the durable lane held too much.
func (d *deliverer) letGoOfLane() {
	d.detached = true
	d.g.r.log.Error("the lane held more than its quota and was let go; the sink is filled anew once it is there",
		slog.String("sink", d.spec.Name))
	if d.g.back != nil {
		d.g.back.detached.add(d.spec.Name)
	}
}

// askToBeFilled asks, for a sink whose lane was let go and that is there again, to be filled anew, and waits until the reader has
// attached the lane. filled is false where the run ends before.
func (d *deliverer) askToBeFilled(ctx context.Context) (filled bool, err error) {
	if !d.detached {
		return true, nil
	}
	d.shows(state.LaneDetached, nil)
	if err := d.g.stream.Ask(lane.Request{Sink: d.spec.Name}); err != nil {
		if errors.Is(err, lane.ErrClosed) {
			d.g.left.Store(true)
			return false, nil
		}
		return false, d.wrap(err)
	}
	select {
	case <-d.attached:
		d.detached = false
		return true, nil
	case <-d.g.over:
		d.g.left.Store(true)
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// coverAgain goes on with a sink that was opened again behind a durable lane: what it has is acknowledged there.
func (d *deliverer) coverAgain(p record.Progress, has bool) error {
	holds, err := d.g.durable.Holds(d.spec.Name)
	if err != nil {
		return d.wrap(err)
	}
	if err := d.cover(p, has, holds); err != nil {
		return err
	}
	if has && p.Run == d.g.r.runName {
		d.took(p)
	}
	return nil
}

package engine

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// intend saves, before the first write of an epoch, that there will be one, so that what it stages is not taken for anything else (E4).
func (d *deliverer) intend(ctx context.Context) error {
	if d.phases == nil || d.intended {
		return nil
	}
	err := d.g.r.updateLane(ctx, d.spec.Name, func(l *state.Lane) {
		l.Epoch = &state.Epoch{Number: d.epoch + 1}
	})
	d.intended = err == nil
	return err
}

// publish ends an epoch: what was written is staged, the epoch is decided by one compare-and-set together with the lane's progress, and
// then it is made visible. Behind the decision nothing rolls back: if Publish fails, it is repeated. Without an epoch only the progress is
// noted; it is saved with the position that the source may release.
func (d *deliverer) publish(ctx context.Context, p record.Progress) error {
	if !d.intended {
		keep := d.g.r.noteLane
		if d.g.durable != nil { // what is acknowledged on a durable lane does not come again
			keep = d.g.r.updateLane
		}
		return keep(ctx, d.spec.Name, func(l *state.Lane) { l.Progress = p })
	}
	var staged json.RawMessage
	err := d.v.call("prepare", func() (err error) {
		staged, err = d.phases.Prepare(ctx, p)
		return err
	})
	if err != nil {
		return err
	}
	err = d.g.r.updateLane(ctx, d.spec.Name, func(l *state.Lane) {
		l.Progress, l.Epoch = p, &state.Epoch{Number: p.Epoch, Decided: true, Progress: p, Staged: staged}
	})
	if err != nil {
		return err
	}
	return d.v.call("publish", func() error { return d.phases.Publish(ctx, p, staged) })
}

// recover ends what a crash or a failure left: an epoch that was decided is published, anything else that is staged goes. It returns how
// far the lane is.
func (d *deliverer) recover(ctx context.Context) (p record.Progress, has bool, err error) {
	l, err := d.g.r.savedLane(ctx, d.spec.Name)
	if err != nil {
		return p, false, err
	}
	if e := l.Epoch; e != nil && e.Decided {
		err = d.v.call("publish", func() error { return d.phases.Publish(ctx, e.Progress, e.Staged) })
		if err != nil {
			return p, false, err
		}
	}
	if err := d.v.call("abort", func() error { return d.phases.Abort(ctx) }); err != nil {
		return p, false, err
	}
	seen, found, err := d.readBack(ctx, d.phases.Committed)
	if err != nil {
		return p, false, err
	}
	p = l.Progress
	switch {
	case p.Run != d.g.r.runName && (!found || seen.Run != d.g.r.runName): // there is nothing of this run
		return seen, found, nil
	case p.Run != d.g.r.runName, found && seen.Run == p.Run && seen.Epoch > p.Epoch: // what is saved was put back, or is not of this run
		return seen, true, nil
	case p.Epoch > 0 && (!found || seen.Run != p.Run || seen.Epoch < p.Epoch):
		return p, false, emptiedError(d.spec.Name)
	}
	return p, true, nil
}

// trusted notes how far a two-phase sink is that goes on from there.
func (d *deliverer) trusted(ctx context.Context, p record.Progress, has bool) error {
	if d.phases == nil || !has || p.Run != d.g.r.runName {
		return nil
	}
	return d.g.r.noteLane(ctx, d.spec.Name, func(l *state.Lane) { l.Progress = p })
}

// updateLane saves something about one lane.
func (r *runner) updateLane(ctx context.Context, sink string, change func(*state.Lane)) error {
	return r.update(ctx, func(rec *state.Record) error {
		changeLane(rec, sink, change)
		return nil
	})
}

// noteLane changes what will be saved of one lane with the next save, which comes before anything relies on it.
func (r *runner) noteLane(ctx context.Context, sink string, change func(*state.Lane)) error {
	select {
	case r.saving <- struct{}{}:
		defer func() { <-r.saving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	changeLane(&r.rec, sink, change)
	return nil
}

func changeLane(rec *state.Record, sink string, change func(*state.Lane)) {
	l := rec.Lanes[sink]
	change(&l)
	lanes := maps.Clone(rec.Lanes)
	if lanes == nil {
		lanes = map[string]state.Lane{}
	}
	lanes[sink] = l
	rec.Lanes = lanes
}

// savedLane reads back what is saved of a lane: the outcome of the last save may be unknown.
func (r *runner) savedLane(ctx context.Context, sink string) (state.Lane, error) {
	select {
	case r.saving <- struct{}{}:
		defer func() { <-r.saving }()
	case <-ctx.Done():
		return state.Lane{}, ctx.Err()
	}
	rec, version, err := r.load(ctx)
	if err != nil {
		return state.Lane{}, err
	}
	if rec == nil || rec.Attempt != r.rec.Attempt {
		return state.Lane{}, fencedError(r.plan.Name, state.ErrConflict)
	}
	if version != r.version {
		r.rec, r.version = *rec, version
	}
	return r.rec.Lanes[sink], nil
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// saveEvery bounds how often the position is saved: the watermark moves with every commit, and only the newest counts.
const saveEvery = 200 * time.Millisecond

// checkpointer saves the watermark, then hands it to the reader (E1). It ends when done is closed, after one last look.
func (g *generation) checkpointer(ctx context.Context, done <-chan struct{}) error {
	for {
		last := false
		select {
		case <-g.stream.Moved():
		case <-g.inOrder:
		case <-done:
			last = true
		case <-ctx.Done():
			return nil
		}
		if err := g.checkpoint(ctx); err != nil || last {
			return err
		}
		t := time.NewTimer(saveEvery)
		select {
		case <-t.C:
		case <-done:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// checkpoint saves the watermark if it moved, and only then lets the source know.
func (g *generation) checkpoint(ctx context.Context) error {
	if g.restartsOnly || !g.reconciled.Load() {
		return nil // nothing before the end of the run may be called durable; or the source is not in order (S19)
	}
	at, ok := g.safe()
	if !ok {
		return nil
	}
	if at.Equal(g.saved) { // nothing more is read, but sinks of durable lanes may get on
		if g.durable == nil || time.Since(g.told) < factsEvery {
			return nil
		}
		return g.saveFacts(ctx)
	}
	err := g.r.update(ctx, func(rec *state.Record) error {
		rec.Progress.Position = at.Position
		rec.Lanes = g.laneFacts(rec.Lanes)
		if g.back == nil {
			return nil
		}
		return g.back.save(rec, at)
	})
	if err != nil {
		return err
	}
	if g.back != nil {
		g.back.partsSaved(at.Ledger)
	}
	moved := !at.Position.Equal(g.saved.Position)
	g.saved = at
	if moved {
		g.box.put(at.Position)
	}
	return nil
}

// safe is the mark up to which everything is durable: in every sink, or in lanes that outlive the process.
func (g *generation) safe() (lane.Mark, bool) {
	if g.durable != nil {
		return g.durable.Stored()
	}
	return g.stream.Watermark()
}

// update changes the saved record.
func (r *runner) update(ctx context.Context, change func(*state.Record) error) error {
	select {
	case r.saving <- struct{}{}:
		defer func() { <-r.saving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	next := r.rec
	if err := change(&next); err != nil {
		return err
	}
	return r.save(ctx, next)
}

// save writes the record by compare-and-set. A transient failure is tried again: after it the record is the old one or the new one,
// which the store tells.
func (r *runner) save(ctx context.Context, next state.Record) error {
	next.Updated = r.now().UTC()
	next.Rows, next.Rejected = r.rows0+r.delivered(), r.rejected0+r.rejected()
	pace := newPacer(r.plan.Retry, r.random)
	for {
		v, err := r.deps.Store.Save(ctx, next, r.version)
		if err == nil {
			r.rec, r.version = next, v
			return nil
		}
		if v, ok := r.savedAfterAll(ctx, next); ok {
			r.rec, r.version = next, v
			return nil
		}
		if errors.Is(err, state.ErrConflict) {
			return fencedError(r.plan.Name, err)
		}
		if connector.ClassOf(err) != connector.ClassTransient || pace.tries() >= r.plan.Retry.Attempts {
			return fmt.Errorf("saving the position: %w", err)
		}
		if !sleep(ctx, pace.next(err)) {
			return fmt.Errorf("saving the position: %w", err)
		}
	}
}

// savedAfterAll reads back whether a Save that failed did take effect.
func (r *runner) savedAfterAll(ctx context.Context, next state.Record) (state.Version, bool) {
	now, v, err := r.deps.Store.Load(ctx, next.Pipeline)
	if err != nil || v == r.version {
		return 0, false
	}
	same := now.Attempt == next.Attempt && now.Progress.Run == next.Progress.Run && now.Progress.Done == next.Progress.Done &&
		now.Progress.Position.Equal(next.Progress.Position) && now.Updated.Equal(next.Updated)
	return v, same
}

func fencedError(pipeline string, err error) error {
	return &connector.Error{
		Class: connector.ClassFenced, Code: "engine.fenced", Doing: "saving the state of " + pipeline, Err: err,
		Hint: "another process runs this pipeline: stop one of them",
	}
}

// delivered is how many rows every sink has durably.
func (r *runner) delivered() int64 {
	least := int64(-1)
	for _, s := range r.ctl.Status().Sinks {
		if n := s.Durable + s.Skipped; least < 0 || n < least {
			least = n
		}
	}
	return max(least, 0)
}

// rejected is how many rows were set aside by this process.
func (r *runner) rejected() int64 {
	n := int64(0)
	status := r.ctl.Status()
	for _, d := range status.Datasets {
		n += d.SetAside
	}
	for _, s := range status.Sinks {
		n += s.SetAside
	}
	return n
}

// begin takes a new attempt (S2) and decides which run it serves. The identity is compared with the saved one (S16).
func (r *runner) begin(ctx context.Context, identity map[string]string, migrate migration) (choice, error) {
	rec, version, err := r.load(ctx)
	if err != nil {
		return choice{}, err
	}
	if r.owned && version != r.version {
		return choice{}, fencedError(r.plan.Name, state.ErrConflict)
	}
	var changes []string
	var stale []string
	if rec != nil {
		saved := rec.Identity
		if r.follows() { // columns change while a dataset is followed
			saved, stale = followedIdentity(rec.Identity, identity)
		}
		changes = identityChanges(saved, identity)
	}
	c, err := chooseRun(rec, r.contract, changes, r.plan.Changed)
	if err != nil {
		return choice{}, err
	}
	c.stale = stale
	c.durable = rec != nil && rec.Stream != ""
	if rec != nil && r.follows() {
		c.frozen = r.plan.freezeChanged(c.frozen, rec.Identity, identity)
		c.joined = r.joined(rec)
	}
	c.again = rec != nil && rec.Progress.Run != "" && c.run == ""
	if c.origin.Position, err = migrate(c.origin.Position); err != nil {
		return choice{}, fmt.Errorf("source: the saved position: %w", err)
	}
	if c.saved, err = migrate(c.saved); err != nil {
		return choice{}, fmt.Errorf("source: the saved position: %w", err)
	}
	if c.base != nil {
		if c.base.Position, err = migrate(c.base.Position); err != nil {
			return choice{}, fmt.Errorf("source: the saved position: %w", err)
		}
	}
	next := r.record(rec, identity, &c)
	r.version = version
	if err := r.save(ctx, next); err != nil {
		return choice{}, err
	}
	r.owned, r.runName, r.attempt = true, c.run, next.Attempt
	return c, nil
}

func (r *runner) load(ctx context.Context) (*state.Record, state.Version, error) {
	rec, version, err := r.deps.Store.Load(ctx, r.plan.Name)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("loading the saved state of %s: %w", r.plan.Name, err)
	}
	return &rec, version, nil
}

// joined are the sinks that have nothing of the run that goes on: they were added, and have not committed anything since.
func (r *runner) joined(rec *state.Record) []string {
	var names []string
	for _, s := range r.plan.Sinks {
		if _, known := rec.Identity["sink "+s.Name]; !known || rec.Lanes[s.Name].State == state.LaneJoining {
			names = append(names, s.Name)
		}
	}
	return names
}

// lanesOf are the lanes of the sinks that the plan has; those that joined have nothing. An epoch that was decided is not forgotten, also
// where its sink was taken out.
func (r *runner) lanesOf(was map[string]state.Lane, joined []string) map[string]state.Lane {
	if was == nil && len(joined) == 0 {
		return nil
	}
	lanes := decided(was)
	for _, s := range r.plan.Sinks {
		if slices.Contains(joined, s.Name) {
			lanes[s.Name] = state.Lane{State: state.LaneJoining, Epoch: was[s.Name].Epoch}
		} else {
			lanes[s.Name] = was[s.Name]
		}
	}
	return lanes
}

// decided are the epochs that were decided, by sink.
func decided(was map[string]state.Lane) map[string]state.Lane {
	lanes := map[string]state.Lane{}
	for name, l := range was {
		if l.Epoch != nil && l.Epoch.Decided {
			lanes[name] = state.Lane{Epoch: l.Epoch}
		}
	}
	return lanes
}

// record is what an attempt saves before it does anything. The first attempt of all is numbered by the clock, in microseconds, so
// that attempts go on growing, and sinks don't take the owner for a late one, when the state was deleted a moment ago.
func (r *runner) record(old *state.Record, identity map[string]string, c *choice) state.Record {
	next := state.Record{Pipeline: r.plan.Name, Identity: identity, Attempt: uint64(max(r.now().UnixMicro(), 1))}
	if old != nil {
		// An epoch that was decided is published, whatever becomes of the run.
		next.Attempt, next.Lanes = old.Attempt+1, r.lanesOf(old.Lanes, c.joined)
	}
	if c.run == "" {
		c.run = r.runID(next.Attempt)
		r.rows0, r.rejected0 = 0, 0
	} else {
		next.Progress.Position, next.Stream = c.saved, old.Stream
		if !r.owned {
			r.rows0, r.rejected0 = old.Rows, old.Rejected
		}
	}
	if c.origin.Origin == connector.Initialised {
		next.Origin = c.origin.Position
	}
	next.Progress.Run = c.run
	next.Progress.Ledger = notes{Base: c.base, Only: c.only, Failed: c.failed, Backfill: c.ledger, Frozen: c.frozen}.encode()
	return next
}

// complete saves that the run is done; at is the position behind all that it read.
func (r *runner) complete(ctx context.Context, at record.Position) error {
	err := r.update(ctx, func(rec *state.Record) error {
		if !at.Zero() {
			rec.Progress.Position = at
		}
		rec.Progress.Done = true
		return nil
	})
	r.done = err == nil
	return err
}

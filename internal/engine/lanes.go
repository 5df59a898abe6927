package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// Lanes says how the lanes of a plan are kept. The zero value decides by the plan.
type Lanes struct {
	Kind  LaneChoice
	Quota lane.Quota // of each durable lane
}

// LaneChoice is where lanes are kept.
type LaneChoice uint8

// The choices.
const (
	AutoLanes    LaneChoice = iota // durable for a source that never ends and more than one sink, else in memory
	MemoryLanes                    // the source waits for the slowest sink, and keeps its log for it
	DurableLanes                   // what was published waits on disk: no sink delays another one, and the source's log is released
)

// String returns the name that configurations use.
func (c LaneChoice) String() string {
	switch c {
	case MemoryLanes:
		return "memory"
	case DurableLanes:
		return "durable"
	case AutoLanes:
	}
	return "auto"
}

// ParseLanes reads what String returns; empty is AutoLanes.
func ParseLanes(s string) (LaneChoice, error) {
	for _, c := range []LaneChoice{AutoLanes, MemoryLanes, DurableLanes} {
		if s == c.String() || s == "" {
			return c, nil
		}
	}
	return 0, fmt.Errorf("unknown lanes %q: want auto, memory or durable", s)
}

// chooseLanes decides where the lanes of this plan are kept, and says why, for people. stream is what the saved positions rely on; empty:
// nothing, or memory. began says that the run has begun: then its lanes stay what they are.
func chooseLanes(p Plan, src connector.SourceContract, can bool, stream string, began bool) (durable bool, why string, err error) {
	refuse := func(cause, hint string) error {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "engine.lanes", Doing: "planning the lanes", Err: errors.New(cause), Hint: hint,
		}
	}
	switch {
	case stream != "" && !can:
		return false, "", refuse("changes wait in lanes on disk, and this program was given no place for them", "set Deps.DurableLanes")
	case stream != "" && p.Lanes.Kind == MemoryLanes:
		return false, "", refuse("changes may still wait in the lanes on disk that the pipeline has",
			"leave lanes: memory out, or copy everything again with --restart")
	case stream != "":
		return true, "the pipeline has had durable lanes", nil
	case began && p.Lanes.Kind == DurableLanes:
		return false, "", refuse("the run began with lanes in memory, and durable ones begin with a run",
			"leave lanes: durable out, or copy everything again with --restart")
	case began && !src.Bounded:
		return false, "the run began with lanes in memory; with --restart it gets what it would get now", nil
	case p.Lanes.Kind == DurableLanes && src.Bounded:
		return false, "", refuse("the source is read to its end, and starts over or goes on by itself: there is nothing to keep",
			"leave lanes: durable out")
	case p.Lanes.Kind == DurableLanes && !can:
		return false, "", refuse("durable lanes were asked for, and there is no place for them", "set Deps.DurableLanes")
	case p.Lanes.Kind == DurableLanes:
		return true, "they were asked for", nil
	case p.Lanes.Kind == MemoryLanes:
		return false, "they were asked for", nil
	case src.Bounded:
		return false, "the source is read to its end, and nothing is kept for it", nil
	case len(p.Sinks) == 1:
		return false, "there is one sink, and the source's own log waits for it", nil
	case !can:
		return false, "there is no place for durable ones", nil
	}
	return true, fmt.Sprintf("%d sinks follow one source, and none may hold up the others or the source's log", len(p.Sinks)), nil
}

// chooseLanes decides where the lanes are kept; rec is what is saved of the pipeline, nil: nothing.
func (r *runner) chooseLanes(rec *state.Record) (LaneChoice, string, error) {
	stream, began := "", false
	if rec != nil && (!rec.Progress.Position.Zero() || !rec.Origin.Zero()) {
		stream, began = rec.Stream, true
	}
	durable, why, err := chooseLanes(r.plan, r.contract, r.deps.DurableLanes != nil, stream, began)
	if !durable || err != nil {
		return MemoryLanes, why, err
	}
	return DurableLanes, why, nil
}

// openLanes opens the durable lanes of the run, where it has such.
func (g *generation) openLanes(ctx context.Context, c choice) error {
	r := g.r
	kind, why, err := r.chooseLanes(&r.rec)
	if err != nil {
		return err
	}
	r.ctl.set(func() { r.ctl.status.Lanes, r.ctl.status.WhyLanes = kind, why })
	if kind != DurableLanes {
		return nil
	}
	if !r.ran {
		r.log.Info("lanes are durable", slog.String("why", why))
	}
	names := make([]string, len(g.lanes))
	for i, d := range g.lanes {
		names[i] = d.spec.Name
	}
	quota := r.plan.Lanes.Quota
	quota.Detach = quota.Detach && r.refill // else its sink would lack for good what the lane had
	g.durable, err = r.deps.DurableLanes(ctx, lane.Spec{
		Pipeline: r.plan.Name, Run: c.run, Sinks: names, Anew: c.joined,
		Options: lane.Options{Bytes: r.plan.QueueBytes}, Quota: quota,
	})
	if err != nil {
		return fmt.Errorf("opening the lanes: %w", err)
	}
	g.stream = g.durable
	return r.update(ctx, func(rec *state.Record) error {
		rec.Stream = c.run
		return nil
	})
}

// goOn decides where everything goes on from durable lanes that have something: the source behind what is stored, and each sink behind
// what it has of its lane. ok is false where they have nothing yet: then the sinks decide, as with lanes in memory.
func (g *generation) goOn(ctx context.Context, c choice, order compare, migrate migration) (s start, ok bool, err error) {
	at, found := g.durable.Stored()
	if at.Position, err = migrate(at.Position); err != nil {
		return s, false, fmt.Errorf("the position in the lanes: %w", err)
	}
	if lost(c, order, at, found) {
		return s, false, lostError("the source has released", c.saved, at.Position)
	}
	if !found {
		return s, false, g.attachAll()
	}
	for _, d := range g.lanes {
		d.failed, d.frozen, d.skipper = setOf(c.failed[d.spec.Name]), c.frozen[d.spec.Name], skipper{compare: order}
		if err := d.goOn(ctx, at, migrate); err != nil {
			return s, false, err
		}
		g.r.resumed = true
	}
	from := connector.From{Origin: connector.Resume, Attempt: max(c.attempt, 1), Position: at.Position}
	return start{from: from, resumed: true, skips: map[string]skip{}}, true, nil
}

func lostError(who string, has, lanes record.Position) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "engine.lanes_lost", Doing: "going on from durable lanes",
		Err:  fmt.Errorf("%s what came up to %s, and the lanes go up to %s: their folder was lost or put back", who, has, lanes),
		Hint: "put the folder of the lanes back as it was, or copy everything again with --restart",
	}
}

// attachAll attaches the lanes that were let go before they had anything that counts.
func (g *generation) attachAll() error {
	for _, d := range g.lanes {
		found, err := g.durable.Found(d.spec.Name)
		if err == nil && found == lane.Detached {
			err = g.durable.Attach(d.spec.Name)
		}
		if err != nil {
			return d.wrap(err)
		}
	}
	return nil
}

// lost reports whether durable lanes lack what the source has already released.
func lost(c choice, order compare, at lane.Mark, found bool) bool {
	if c.saved.Zero() || !c.durable {
		return false
	}
	if !found || order == nil {
		return !found
	}
	return !order.covers(at.Position, c.saved)
}

// goOn starts the sink of a durable lane. A sink of a lane that has worked before may be out of order: then the lane waits for it.
func (d *deliverer) goOn(ctx context.Context, at lane.Mark, migrate migration) error {
	name := d.spec.Name
	found, err := d.g.durable.Found(name)
	if err != nil {
		return d.wrap(err)
	}
	holds, err := d.g.durable.Holds(name)
	if err != nil {
		return d.wrap(err)
	}
	d.ledger, d.detached = []byte(at.Ledger), found == lane.Detached
	if holds.Fresh { // what the sink has is of another time
		d.ledger, d.stranger = nil, d.begun() || (found != lane.Created && !d.g.r.before.Lanes[name].Progress.Position.Zero())
	}
	if d.detached || !d.planned() {
		return d.release() // it is opened and started once it is there
	}
	p, has, err := record.Progress{}, false, d.start(ctx)
	if err == nil {
		p, has, err = d.progress(ctx)
	}
	if err == nil {
		p.Position, err = migrate(p.Position)
	}
	if err == nil && found == lane.Kept {
		err = d.cover(p, has, holds)
	}
	if err != nil && (found == lane.Created || connector.ClassOf(err) == connector.ClassFenced) {
		return err
	}
	if err != nil {
		d.g.r.log.Warn("a sink is not there; the others go on", slog.String("sink", name), slog.Any("error", err))
		return d.release()
	}
	if holds.Fresh {
		d.stranger = d.stranger || has
		return nil
	}
	if has && p.Run == d.g.r.runName {
		d.took(p)
	}
	return d.trusted(ctx, p, has)
}

// begun reports whether a sink that joined and keeps no progress got rows before: then it has to be emptied.
func (d *deliverer) begun() bool {
	return d.kind == flushes && d.g.r.before.Lanes[d.spec.Name].State == state.LaneJoining
}

// planned reports whether the sink could be asked when the run was planned.
func (d *deliverer) planned() bool { return d.g.blue.down[d.i] == nil }

// took notes what the sink has.
func (d *deliverer) took(p record.Progress) {
	kept := string(p.Ledger)
	d.durable = committed{lane.Mark{Position: p.Position, Ledger: kept}, kept, p.Epoch}
	d.position, d.epoch = p.Position, p.Epoch
}

// cover acknowledges on a durable lane what its sink has.
func (d *deliverer) cover(p record.Progress, has bool, holds lane.Holding) error {
	if d.kind == flushes || holds.Fresh { // what it has is of another time
		return nil
	}
	if !has || p.Run != d.g.r.runName {
		if holds.Acked == 0 {
			return nil
		}
		return d.wrap(emptiedError(d.spec.Name))
	}
	ok, err := d.g.durable.Covered(d.spec.Name, p.Item)
	if err != nil {
		return d.wrap(err)
	}
	if !ok {
		return d.wrap(emptiedError(d.spec.Name))
	}
	return nil
}

func emptiedError(sink string) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "engine.sink_behind", Doing: fmt.Sprintf("resuming sink %q", sink),
		Err:  errors.New("it has less than what it had confirmed: it was restored or emptied"),
		Hint: "restore it as it was; or take it out of the pipeline, run that with --adopt, and add it again: then it is filled anew",
	}
}

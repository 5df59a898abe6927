package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// Run runs a plan until its source ends, it is stopped (by Control.Stop or by cancelling ctx), or it fails. A stop is no error: it
// delivers and checkpoints what was read, within Plan.Drain, and Summary.Done is false. The next Run of the same plan goes on where
// this one ended, however it ended.
//
// Errors are *connector.Error with a class, a code and a hint. A refused plan is a *PlanError inside of one, with every problem.
// Where a dataset failed while the others went on, the error names it (code engine.datasets_failed), and the next Run copies just
// that dataset again.
//
// Connectors that don't return hold up nobody for longer than twice Plan.Drain: Run returns, and the state is Stuck.
func Run(ctx context.Context, p Plan, d Deps) (Summary, error) {
	r, err := newRunner(p, d)
	if err != nil {
		if d.Control != nil {
			d.Control.state(Failed, "", err)
		}
		return Summary{Pipeline: p.Name}, err
	}
	err = r.run(ctx)
	switch {
	case errors.Is(err, errStuck):
		r.ctl.state(Stuck, err.Error(), err)
	case err != nil:
		r.ctl.state(Failed, "", err)
	default:
		r.ctl.state(Stopped, "", nil)
	}
	return r.summary(), err
}

// runner is one Run. Its fields are written by the goroutine of run, and by one generation at a time.
type runner struct {
	plan      Plan
	deps      Deps
	ctl       *Control
	log       *slog.Logger
	now       func() time.Time
	contract  connector.SourceContract
	offers    []SinkOffer
	admission Admission
	shares    shares
	pacer     *pacer
	bad       *badCounter // rows of the source and the shared transforms
	sinkBad   []*badCounter

	randMu sync.Mutex
	rand   *rand.Rand

	started time.Time
	runName string // of the run that is served, and the attempt at it: fixed while a generation runs
	attempt uint64
	saving  chan struct{} // capacity 1: held by whoever changes rec and version while a generation runs, also while it waits
	rec     state.Record  // as saved last
	version state.Version
	before  state.Record // as an earlier process saved it
	owned   bool         // rec is ours: a newer one means that another process took over
	ran     bool         // a generation came as far as reading
	resumed bool
	done    bool
	refill  bool // the source can fill a lane anew while it is followed, see refills

	ordersAt state.Version // of the orders that were looked at

	target record.Position // where a run with Plan.Once ends; zero: nowhere

	rows0, rejected0 int64 // of the run before this process
}

// newRunner validates the plan without I/O and admits it. A plan that is not admitted is an error beside a runner.
func newRunner(p Plan, d Deps) (*runner, error) {
	p = p.withDefaults()
	if err := state.ValidateName(p.Name); err != nil {
		return nil, err
	}
	r := &runner{saving: make(chan struct{}, 1), plan: p, deps: d, ctl: d.Control, log: d.Log, now: d.Now, rand: d.Rand}
	if r.ctl == nil {
		r.ctl = NewControl()
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.deps.lanes == nil {
		r.deps.lanes = func(sinks []string, o lane.Options) (lane.Stream, error) { return lane.NewMemory(sinks, o) }
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.rand == nil {
		r.rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:forbidigo,gosec // the default seed; no secrets are made of it
	}
	r.log = r.log.With(slog.String("pipeline", p.Name))
	r.started = r.now()
	r.pacer = newPacer(p.Retry, r.random)
	r.bad = &badCounter{BadRows: p.BadRows}
	for _, s := range p.Sinks {
		r.sinkBad = append(r.sinkBad, &badCounter{BadRows: s.badRows(p)})
		r.ctl.sink(s.Name, func(*SinkStatus) {})
	}
	if err := r.admit(); err != nil {
		return r, err
	}
	r.ctl.set(func() { r.ctl.status.Reached, r.ctl.status.Started = r.admission.Reached, r.started })
	return r, nil
}

// admit asks for the contracts, which is pure, and judges them.
func (r *runner) admit() error {
	var err error
	if r.contract, err = r.plan.Source.Config.Contract(); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	for _, s := range r.plan.Sinks {
		c, err := s.Config.Contract()
		if err != nil {
			return fmt.Errorf("sink %q: %w", s.Name, err)
		}
		o := SinkOffer{Name: s.Name, Contract: c, Input: r.contract.Input}
		switch {
		case s.Mode != nil:
			o.Mode = *s.Mode
		case len(c.Modes) > 0:
			o.Mode = c.Modes[0]
		}
		r.offers = append(r.offers, o)
	}
	r.share()
	r.admission = Admit(r.contract, r.offers, r.plan.Guarantee)
	if r.plan.Limit > 0 && (!r.contract.Bounded || r.contract.Incremental) {
		r.admission.Problems = append(r.admission.Problems, Problem{
			Code: "admit.limit", Message: "a row limit needs a source that is read from its beginning to its end",
			Hint: "leave the limit out, or read without the cursor",
		})
	}
	return r.admission.Err()
}

// follows reports whether the source goes on without end. Its datasets, and their columns, may change meanwhile.
func (r *runner) follows() bool { return !r.contract.Bounded }

// refills reports whether lanes can get snapshots of the datasets that are followed, merged with their changes.
func (r *runner) refills(src connector.Source) bool {
	_, merges := connector.As[connector.Merger](src)
	_, cuts := connector.As[connector.Snapshotter](src)
	return r.follows() && r.contract.Input == connector.Changelog && merges && cuts
}

func (r *runner) random(n int64) int64 {
	r.randMu.Lock()
	defer r.randMu.Unlock()
	return r.rand.Int64N(n)
}

// run runs generation after generation, until one ends for good.
func (r *runner) run(parent context.Context) error {
	ctx, stop := context.WithCancel(parent)
	defer stop()
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()
	watch.Go(func() { r.watch(ctx, stop) })
	for {
		err := r.generation(ctx)
		if err == nil || (ctx.Err() != nil && errors.Is(err, context.Canceled)) {
			return r.outcome()
		}
		var again *restartError
		if !errors.As(err, &again) {
			return err
		}
		if ctx.Err() != nil {
			return again.err
		}
		if tries := r.pacer.tries(); tries >= r.plan.Retry.Attempts {
			return fmt.Errorf("after %d tries: %w", tries+1, again.err)
		}
		wait := r.pacer.next(again.err)
		r.log.Warn("starting again", slog.Any("error", again.err), slog.Duration("wait", wait))
		r.ctl.state(Starting, fmt.Sprintf("trying again in %s", wait.Round(time.Millisecond)), again.err)
		if !sleep(ctx, wait) {
			return again.err
		}
	}
}

// restartError asks for another generation.
type restartError struct{ err error }

func (e *restartError) Error() string { return e.err.Error() }
func (e *restartError) Unwrap() error { return e.err }

// watch cancels the run once Control.Stop was called.
func (r *runner) watch(ctx context.Context, stop context.CancelFunc) {
	for {
		_, stopped, changed := r.ctl.wanted()
		if stopped {
			stop()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// sleep reports whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// outcome is the error of a run that ended in order: nil, unless datasets failed on the way.
func (r *runner) outcome() error {
	var lines []string
	status := r.ctl.Status()
	for _, s := range status.Sinks {
		for _, d := range slices.Sorted(maps.Keys(s.Failed)) {
			lines = append(lines, fmt.Sprintf("%s into %s: %s", d, s.Name, s.Failed[d]))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "engine.datasets_failed", Doing: "copying",
		Err:  fmt.Errorf("%d of the datasets failed, the others went on:\n%s", len(lines), strings.Join(lines, "\n")),
		Hint: "mend the cause and run again: only what failed is copied again",
	}
}

func (r *runner) summary() Summary {
	status := r.ctl.Status()
	s := Summary{
		Pipeline: r.plan.Name, Run: r.rec.Progress.Run, Attempt: r.rec.Attempt, Reached: r.admission.Reached, Why: r.admission.Why,
		Resumed: r.resumed, Done: r.done, Started: r.started, Took: r.now().Sub(r.started), Position: r.rec.Progress.Position,
		Datasets: status.Datasets, Sinks: status.Sinks,
	}
	s.Target = r.target
	s.SetAside = r.rejected()
	for _, k := range status.Sinks {
		s.Failed += len(k.Failed)
	}
	return s
}

// restartsOnly reports whether a run can only be read from its beginning: a sink shows nothing before its end, or rows are counted.
func (r *runner) restartsOnly() bool {
	return r.plan.Limit > 0 || slices.ContainsFunc(r.offers, func(o SinkOffer) bool { return o.Contract.Atomicity == connector.Whole })
}

// kindOf is what the lane of an opened sink keeps.
func kindOf(o SinkOffer, s connector.Sink) laneKind {
	if o.Contract.Atomicity == connector.Whole {
		return whole
	}
	if _, ok := connector.As[connector.TwoPhase](s); ok && o.Contract.Atomicity == connector.TwoPhaseCommit {
		return phased
	}
	if _, ok := connector.As[connector.PositionStore](s); ok && o.Contract.Atomicity == connector.PositionInTransaction {
		return stores
	}
	return flushes
}

// repeats reports whether writing rows again would double them.
func repeats(o SinkOffer, k laneKind) bool {
	return k == flushes && (o.Mode != connector.Upsert || o.Contract.Atomicity < connector.KeyedWrites)
}

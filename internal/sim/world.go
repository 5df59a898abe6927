package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leatdata/leat/connector"
)

// errCrashed answers every call after a crash.
var errCrashed = &connector.Error{Class: connector.ClassPermanent, Code: "sim.crashed", Err: errors.New("the world has crashed")}

// Event is one step that took effect.
type Event struct {
	Step int
	Who  string // source, state, or the sink's name
	What string // read, write, flush, commit, finish, prepare, publish, abort, save, acknowledge, start, close
	At   string // the position, where there is one
}

// String is the event without its number.
func (e Event) String() string {
	if e.At == "" {
		return e.Who + " " + e.What
	}
	return e.Who + " " + e.What + " " + e.At
}

// Faults say how often the world misbehaves, each as a chance between 0 and 1.
type Faults struct {
	Transient float64 // a step fails without effect
	Lost      float64 // a step takes effect and its answer is lost: class outcome for commits, else transient
	Stall     float64 // a step takes up to a minute
	CrashAt   int     // the step that crashes the world; 0: none
	After     bool    // the crash comes after the step took effect
}

// World holds all that is durable, and the faults. Its methods may be called from any goroutine.
type World struct {
	mu         sync.Mutex
	rand       *rand.Rand
	faults     Faults
	step       int
	crashed    bool
	events     []Event
	violations []string
	restarts   []func()
	failSaves  int // how many saves of the state store fail, without effect
}

// NewWorld returns a world whose chances come from the seed.
func NewWorld(seed uint64) *World {
	return &World{rand: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a simulation
}

// SetFaults replaces the faults; steps are counted from now on.
func (w *World) SetFaults(f Faults) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults, w.step = f, 0
}

// FailSaves makes the next n saves fail with a permanent error, without effect.
func (w *World) FailSaves(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failSaves = n
}

// Steps returns how many steps there were since SetFaults.
func (w *World) Steps() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.step
}

// Restart ends a crash: everything that was not durable is gone.
func (w *World) Restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.crashed = false
	for _, f := range w.restarts {
		f()
	}
}

// Events returns what took effect, in order.
func (w *World) Events() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Event(nil), w.events...)
}

// Violations returns what the engine did and must not.
func (w *World) Violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.violations...)
}

// Look runs f while no step takes effect, so that what is durable can be read, and changed, beside a running engine.
func (w *World) Look(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// violateLocked notes something that must not happen. The mutex is held.
func (w *World) violateLocked(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

func (w *World) chance(p float64) bool { return p > 0 && w.rand.Float64() < p }

// do is one step: effect runs under the world's mutex, if at all.
func (w *World) do(ctx context.Context, e Event, effect func() error) error {
	if d := w.stall(); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.crashed {
		return errCrashed
	}
	w.step++
	e.Step = w.step
	crash := w.step == w.faults.CrashAt
	if crash && !w.faults.After {
		w.crashed = true
		return errCrashed
	}
	if w.chance(w.faults.Transient) && e.What != "close" {
		return &connector.Error{Class: connector.ClassTransient, Code: "sim.transient", Doing: e.String(), Err: errors.New("try again")}
	}
	if err := effect(); err != nil {
		return err
	}
	w.events = append(w.events, e)
	if crash {
		w.crashed = true
		return errCrashed
	}
	return w.lost(e)
}

func (w *World) lost(e Event) error {
	if e.What == "close" || e.What == "read" || !w.chance(w.faults.Lost) {
		return nil
	}
	class := connector.ClassTransient
	if e.What == "commit" || e.What == "finish" || e.What == "publish" {
		class = connector.ClassOutcome
	}
	return &connector.Error{Class: class, Code: "sim.lost", Doing: e.String(), Err: errors.New("no answer came")}
}

func (w *World) stall() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.chance(w.faults.Stall) {
		return 0
	}
	return time.Duration(w.rand.Int64N(int64(10 * time.Second)))
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/leatdata/leat/connector"
)

// errSealed refuses a goroutine of a connector value that was closed.
var errSealed = errors.New("the connector was closed")

// errStuck says that a call into a connector, or a goroutine of it, did not end: nothing may replace the value.
var errStuck = errors.New("it does not return")

// value is one generation of one connector: it counts the goroutines, names the running call, and turns panics into errors.
type value struct {
	who      string // source, or the sink's name: for people
	memory   int64  // of its buffers, in bytes
	pipeline string
	log      *slog.Logger
	count    func(who string) // of real calls to the system
	fail     func(error)      // told of a panic in a goroutine; called at most a few times, from any goroutine

	ctx    context.Context //nolint:containedctx // the lifetime of the value's goroutines
	cancel context.CancelFunc

	mu     sync.Mutex
	doing  string
	sealed bool
	alive  int
	idle   chan struct{} // closed when sealed and alive is 0
}

func (r *runner) newValue(ctx context.Context, who string, memory int64, fail func(error)) *value {
	vctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &value{
		who: who, memory: memory, pipeline: r.plan.Name, log: r.log.With(slog.String("connector", who)), fail: fail,
		count: r.ctl.roundtrip, ctx: vctx, cancel: cancel,
		idle: make(chan struct{}),
	}
}

// env is what the connector is handed.
func (v *value) env(now func() time.Time) connector.Env {
	return connector.Env{Pipeline: v.pipeline, Log: v.log, Now: now, Roundtrip: v.roundtrip, Go: v.spawn, Memory: v.memory}
}

func (v *value) roundtrip(string) { v.count(v.who) }

// spawn starts a goroutine that the value waits for (S10).
func (v *value) spawn(f func(ctx context.Context)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sealed {
		return errSealed
	}
	v.alive++
	go func() {
		defer v.ended()
		if err := v.guard(func() error { f(v.ctx); return nil }); err != nil {
			v.fail(err)
		}
	}()
	return nil
}

func (v *value) ended() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.alive--
	if v.sealed && v.alive == 0 {
		close(v.idle)
	}
}

// call runs one call into the connector under a name that Stuck shows.
func (v *value) call(doing string, f func() error) error {
	v.mu.Lock()
	v.doing = doing
	v.mu.Unlock()
	err := v.guard(f)
	v.mu.Lock()
	v.doing = ""
	v.mu.Unlock()
	return err
}

// current names the running call; empty: none.
func (v *value) current() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.doing
}

// guard turns a panic into an error, and logs its stack.
func (v *value) guard(f func() error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		v.log.Error("a connector panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		err = &connector.Error{
			Class: connector.ClassPermanent, Code: "engine.panic", Doing: v.who, Err: fmt.Errorf("broken invariant: %v", p),
			Hint: "this is a mistake in the connector: please report it with the log",
		}
	}()
	return f()
}

// release closes the connector and waits until all its goroutines have ended, at most for the given time each. The value must not
// be in a call. errStuck means that nothing may replace it.
func (v *value) release(timeout time.Duration, closer func(context.Context) error) error {
	v.cancel()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx), timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- v.call("close", func() error { return closer(ctx) }) }()
	grace := time.NewTimer(2 * timeout)
	defer grace.Stop()
	var err error
	select {
	case err = <-done:
	case <-grace.C:
		return fmt.Errorf("%s: closing: %w", v.who, errStuck)
	}
	v.seal()
	select {
	case <-v.idle:
	case <-grace.C:
		return fmt.Errorf("%s: a goroutine of it: %w", v.who, errStuck)
	}
	if err != nil {
		return fmt.Errorf("%s: closing: %w", v.who, err)
	}
	return nil
}

func (v *value) seal() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sealed {
		return
	}
	v.sealed = true
	if v.alive == 0 {
		close(v.idle)
	}
}

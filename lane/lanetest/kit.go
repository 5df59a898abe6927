package lanetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/leatdata/leat/lane"
)

// Kit is an implementation to be tested.
type Kit struct {
	// Open returns a stream without items, and what ends it.
	Open func(t TB, spec lane.Spec) (s lane.Stream, finish func())
	// Durable says that nobody waits for room in a lane, and that batches may be copies of those that were published.
	Durable bool
	// Reopen ends a stream, by Release or, if crash is set, in the middle of whatever it does, and opens it again; nil: it has no memory.
	// After a crash what had not been saved may be lost; whatever was at rest for a second of the kit's time is saved.
	Reopen func(t TB, s lane.Stream, spec lane.Spec, crash bool) lane.Durable
	// Real says that the stream can't live in a bubble of testing/synctest: calls are waited for by the clock.
	Real bool
}

// TB is what *testing.T, *testing.B and *rapid.T have in common, as far as it is used here.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Context() context.Context
}

// patience is how long a call may take that must return.
const patience = 10 * time.Second

// run checks a property: in a bubble, unless the stream is real.
func (k Kit) run(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	if k.Real {
		rapid.Check(t, property)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, property) // in a bubble a *testing.T can't be asked for its deadline
	})
}

// bubble runs a test in a bubble, unless the stream is real.
func (k Kit) bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if k.Real {
		f(t)
		return
	}
	synctest.Test(t, f)
}

// rest waits until nothing moves any more, where that can be known.
func (k Kit) rest() {
	if !k.Real {
		synctest.Wait()
	}
}

// eventually reports whether a condition holds, at rest or after a while.
func (k Kit) eventually(ok func() bool) bool {
	if !k.Real {
		synctest.Wait()
		return ok()
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		if ok() {
			return true
		}
	}
	return ok()
}

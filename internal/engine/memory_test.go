package engine

import (
	"runtime/debug"
	"testing"

	"pgregory.net/rapid"
)

// All shares together stay within the budget, unless it is too small for any work; none is larger than it is of use.
func TestShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		memory := rapid.Int64Range(0, 1<<34).Draw(t, "memory")
		sinks, readers := rapid.IntRange(1, 20).Draw(t, "sinks"), rapid.IntRange(0, 16).Draw(t, "readers")
		s := sharesOf(memory, sinks, readers)
		all := s.source + s.held + s.chunk*int64(max(readers, 1)) + (s.lane+s.sink)*int64(sinks)
		least := int64(2+max(readers, 1)+2*sinks) * leastShare
		if all > max(memory, least)+least {
			t.Errorf("%d of %d bytes are shared: %+v", all, memory, s)
		}
		for _, n := range []int64{s.source, s.held, s.chunk, s.lane, s.sink} {
			if n < leastShare || n > mostShare {
				t.Errorf("a share of %d: %+v", n, s)
			}
		}
		if s.lane > mostLane {
			t.Errorf("a lane of %d", s.lane)
		}
	})
}

// The budget follows the limit that Go's memory has, which is what GOMEMLIMIT sets.
func TestMemoryFollowsTheLimit(t *testing.T) { //nolint:paralleltest // the limit is the process's own
	before := debug.SetMemoryLimit(100 << 20)
	defer debug.SetMemoryLimit(before)
	if got := (Plan{}).withDefaults().Memory; got != 50<<20 {
		t.Errorf("the budget is %d", got)
	}
	if got := (Plan{Memory: 7 << 20}).withDefaults().Memory; got != 7<<20 {
		t.Errorf("a budget that was asked for is %d", got)
	}
}

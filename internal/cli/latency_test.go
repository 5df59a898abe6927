package cli

import (
	"testing"
	"time"

	"github.com/leatdata/leat/internal/engine"
)

// case C106: what is shown is how long changes took lately, not since the run began.
func TestLatencyLately(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	tr := newTracker(start, watching{follows: true})
	var counts engine.Latencies
	at := func(seconds, bucket int, n int64) sinkView {
		counts.Counts[bucket] += n
		st := engine.Status{State: engine.Running, Sinks: []engine.SinkStatus{{Name: "a", Latencies: counts}}}
		return tr.observe(start.Add(time.Duration(seconds)*time.Second), st).Sinks[0]
	}
	slow, fast := 300, 100
	bound := func(b int) time.Duration { return counts.Bound(b) }
	if v := at(0, fast, 0); v.Usual != 0 || v.Most != 0 {
		t.Errorf("without changes: %+v", v)
	}
	if v := at(1, slow, 1000); v.Usual != bound(slow) {
		t.Errorf("after slow changes: %+v", v)
	}
	at(6, fast, 1)
	at(12, fast, 1)
	if v := at(18, fast, 98); v.Usual != bound(fast) || v.Most != bound(fast) {
		t.Errorf("slow changes of long ago still show: %+v", v)
	}
	if v := at(20, fast, 0); v.Most != bound(fast) {
		t.Errorf("the window is too short: %+v", v)
	}
	if v := at(50, fast, 0); v.Most != 0 {
		t.Errorf("nothing came for long, and %+v shows", v)
	}
}

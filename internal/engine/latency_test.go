package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leatdata/leat/record"
)

// Every duration falls into the bucket whose bound is the least one that is not below it, and no further from it than a sixteenth.
func TestLatencyBuckets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "duration"))
		var l Latencies
		b := bucketOf(d)
		if l.Bound(b) < d || b > 0 && l.Bound(b-1) >= d {
			t.Fatalf("%s is in bucket %d, from %s to %s", d, b, l.Bound(b-1), l.Bound(b))
		}
		if over := l.Bound(b) - d; over > d/16+time.Microsecond {
			t.Fatalf("%s counts as %s", d, l.Bound(b))
		}
	})
}

func TestLatencyQuantiles(t *testing.T) {
	t.Parallel()
	var l Latencies
	if q := l.Quantile(0.5); q != 0 {
		t.Errorf("of nothing: %s", q)
	}
	for i := range 100 {
		l.add(time.Duration(i+1)*time.Millisecond, 10)
	}
	l.add(-time.Second, 1) // a clock that is ahead
	l.add(1000*time.Hour, 1)
	for q, want := range map[float64]time.Duration{0.5: 50 * time.Millisecond, 0.99: 99 * time.Millisecond} {
		if got := l.Quantile(q); got < want || got > want+want/15 {
			t.Errorf("quantile %v is %s, want about %s", q, got, want)
		}
	}
	if got := l.Quantile(1); got != l.Bound(latencyBuckets-1) {
		t.Errorf("the longest is %s", got)
	}
	older := l
	l.add(3*time.Second, 5)
	lately := l.Since(&older)
	if n, q := lately.Count(), lately.Quantile(0.5); n != 5 || q < 3*time.Second || q > 3200*time.Millisecond || lately.Sum != 15 {
		t.Errorf("lately: %d, about %s, sum %v", n, q, lately.Sum)
	}
}

// Changes that were committed at about the same time are one stamp; rows of snapshots and those without a commit time are none.
func TestStamps(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	b := &record.Batch{Txns: []record.Txn{{Rows: 2, Time: at}, {Rows: 0, Time: at}, {Rows: 3, Time: at.Add(stampStep / 2)}, {Rows: 1}}}
	got := stamped(nil, b)
	got = stamped(got, &record.Batch{Txns: []record.Txn{{Rows: 4, Time: at.Add(time.Second)}}})
	got = stamped(got, &record.Batch{Chunk: &record.Chunk{}, Txns: []record.Txn{{Rows: 4, Time: at.Add(time.Hour)}}})
	if len(got) != 2 || got[0] != (stamp{at, 5}) || got[1] != (stamp{at.Add(time.Second), 4}) {
		t.Errorf("stamps %v", got)
	}
}

package engine

import (
	"math"
	"math/bits"
	"time"

	"github.com/leatdata/leat/record"
)

// Latencies counts changes by the time from their commit in the source until they were durable in a sink. Buckets are narrow, a
// sixteenth of their bound, so that quantiles are right within 7 %. The zero value is empty.
type Latencies struct {
	Counts [latencyBuckets]int64 // see Bound
	Sum    float64               // of all, in seconds
}

const (
	latencySteps   = 16                              // buckets for each doubling
	latencyBuckets = latencySteps * (latencyTop + 1) // the last one takes all that is longer
	latencyTop     = 32                              // doublings of a microsecond: over an hour
)

// add counts n changes that took d.
func (l *Latencies) add(d time.Duration, n int64) {
	d = max(d, 0) // the clock of the source is ahead of ours
	l.Counts[bucketOf(d)] += n
	l.Sum += d.Seconds() * float64(n)
}

// bucketOf is the bucket of a duration: microseconds below 16 are exact, then each doubling has 16 steps.
func bucketOf(d time.Duration) int {
	us := uint64(d.Microseconds())
	if us < latencySteps {
		return int(us)
	}
	shift := bits.Len64(us) - bits.Len(latencySteps)
	return min(shift*latencySteps+int(us>>shift), latencyBuckets-1)
}

// Bound is the longest duration that a bucket counts.
func (*Latencies) Bound(bucket int) time.Duration {
	if bucket < latencySteps {
		return time.Duration(bucket+1)*time.Microsecond - 1
	}
	shift := bucket/latencySteps - 1
	return time.Duration(latencySteps+bucket%latencySteps+1)<<shift*time.Microsecond - 1
}

// Count is how many changes were counted.
func (l *Latencies) Count() int64 {
	n := int64(0)
	for _, c := range l.Counts {
		n += c
	}
	return n
}

// Quantile is the time within which the share q of the changes was durable, 0 to 1; zero where nothing was counted.
func (l *Latencies) Quantile(q float64) time.Duration {
	least := int64(math.Ceil(q * float64(l.Count())))
	n := int64(0)
	for i, c := range l.Counts {
		if n += c; n >= max(least, 1) {
			return l.Bound(i)
		}
	}
	return 0
}

// Since is what was counted after an older state.
func (l *Latencies) Since(old *Latencies) Latencies {
	d := Latencies{Sum: l.Sum - old.Sum}
	for i := range d.Counts {
		d.Counts[i] = l.Counts[i] - old.Counts[i]
	}
	return d
}

// stamp says when some changes were committed in the source.
type stamp struct {
	at   time.Time
	rows int64
}

// stampStep is how far apart commits are told apart.
const stampStep = 100 * time.Microsecond

// stamped appends when the changes of a batch were committed. Those without a commit time, and rows of snapshots, are left out.
func stamped(to []stamp, b *record.Batch) []stamp {
	if b.Chunk != nil {
		return to
	}
	for _, t := range b.Txns {
		if t.Rows == 0 || t.Time.IsZero() {
			continue
		}
		if last := len(to) - 1; last >= 0 && t.Time.Sub(to[last].at).Abs() < stampStep {
			to[last].rows += int64(t.Rows)
			continue
		}
		to = append(to, stamp{t.Time, int64(t.Rows)})
	}
	return to
}

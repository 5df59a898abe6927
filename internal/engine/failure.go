package engine

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/leatdata/leat/connector"
)

// verdict is what a failure leads to.
type verdict uint8

const (
	giveUp  verdict = iota // the run fails
	again                  // this sink alone is replaced
	restart                // everything is replaced, from what is durable
)

// failure is what judge looks at.
type failure struct {
	err      error
	sink     bool // else the source
	tries    int  // without progress, before this one
	retry    Retry
	asked    connector.Guarantee
	replay   connector.Replay
	kind     laneKind // of the failed sink
	repeats  bool     // rows that may be there already would be written again: a plain append that keeps no position
	released bool     // the lane no longer holds all that the sink would need again
}

// judge decides what a failure leads to. Only what is known to be safe is tried again (E14): a plain append that may have kept rows
// is not, unless rows that come twice were asked for. The error that is returned replaces f.err where it gives up.
func judge(f failure) (verdict, error) {
	class := connector.ClassOf(f.err)
	transient := class == connector.ClassTransient || (f.sink && class == connector.ClassOutcome)
	switch {
	case !transient || errors.Is(f.err, errStuck):
		return giveUp, f.err
	case f.tries >= f.retry.Attempts:
		if f.tries > 0 {
			return giveUp, fmt.Errorf("after %d tries: %w", f.tries+1, f.err)
		}
		return giveUp, f.err
	case f.repeats && f.asked != connector.AtLeastOnce:
		return giveUp, &connector.Error{
			Class: connector.ClassPermanent, Code: "engine.would_repeat", Doing: "trying again",
			Err:  fmt.Errorf("the sink keeps no position, so rows could be written twice: %w", f.err),
			Hint: "check what arrived, then run again; with guarantee at-least-once it is tried again by itself",
		}
	case f.sink && f.kind != whole && !f.released:
		return again, nil
	case f.replay == connector.NoReplay:
		return giveUp, fmt.Errorf("the source can't be read again: %w", f.err)
	}
	return restart, nil
}

// retryAfter is implemented by errors that know when to come back.
type retryAfter interface{ RetryAfter() time.Duration }

// pacer says how long to wait before each try. Progress resets it. It may be used by several goroutines.
type pacer struct {
	mu     sync.Mutex
	policy *backoff.ExponentialBackOff
	random func(n int64) int64
	count  int
}

func newPacer(r Retry, random func(n int64) int64) *pacer {
	return &pacer{
		policy: &backoff.ExponentialBackOff{InitialInterval: r.Min, Multiplier: 2, MaxInterval: r.Max}, random: random,
	}
}

func (p *pacer) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count = 0
	p.policy.Reset()
}

func (p *pacer) tries() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// next counts a try and returns how long to wait before it: half of the interval for sure, the rest by chance, and never less than
// the system asked for.
func (p *pacer) next(err error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	d := p.policy.NextBackOff()
	d = d/2 + time.Duration(p.random(int64(d/2)+1))
	var wait retryAfter
	if errors.As(err, &wait) {
		d = max(d, wait.RetryAfter())
	}
	return d
}

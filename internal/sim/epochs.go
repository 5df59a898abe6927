package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// epochs are those of one simulated sink. All of it is durable: what is staged outlives crashes of the world.
type epochs[T any] struct {
	all []*epoch[T] // that were prepared; what Prepare answers is an index
}

// epoch is what was prepared once, and what became of it.
type epoch[T any] struct {
	Progress  record.Progress
	What      T
	decided   bool // Publish was called
	published bool
	aborted   bool
}

// staged are epochs that are neither published nor aborted.
func (e *epochs[T]) staged() []*epoch[T] {
	return slices.DeleteFunc(slices.Clone(e.all), func(o *epoch[T]) bool { return o.published || o.aborted })
}

// phaseHost is the value of a sink behind phases. The world's mutex is held but for step, which takes it.
type phaseHost[T any] interface {
	step(ctx context.Context, what string, p record.Position, effect func() error) error
	before() error // of a publication's effect
	take() T       // what was written since the last epoch: it is not the value's any more
	written() bool // there is something to take
	show(staged T) // makes it visible
}

// phases is connector.TwoPhase of one value. What an engine may not do is a violation: to write or prepare while another epoch is
// staged; to publish what was not prepared, or was aborted; to abort what it has begun to publish; to go back.
type phases[T any] struct {
	*epochs[T]

	host     phaseHost[T]
	world    *World
	name     string
	progress *record.Progress // what the sink has committed
	has      *bool
	place    func(record.Position) int
}

func (p phases[T]) violate(format string, args ...any) {
	p.world.violateLocked("sink %s: %s", p.name, fmt.Sprintf(format, args...))
}

// writes notes a write behind a prepared epoch. The world's mutex is held.
func (p phases[T]) writes() {
	if len(p.staged()) > 0 {
		p.violate("a write while an epoch is staged")
	}
}

// Prepare implements connector.TwoPhase.
func (p phases[T]) Prepare(ctx context.Context, at record.Progress) (staged json.RawMessage, err error) {
	err = p.host.step(ctx, "prepare", at.Position, func() error {
		switch {
		case len(p.staged()) > 0:
			p.violate("epoch %d is prepared while another one is staged", at.Epoch)
		case at.Epoch == 0 || *p.has && p.progress.Run == at.Run && at.Epoch <= p.progress.Epoch:
			p.violate("epoch %d is prepared, and epoch %d is published", at.Epoch, p.progress.Epoch)
		}
		p.all = append(p.all, &epoch[T]{Progress: at, What: p.host.take()})
		staged = json.RawMessage(fmt.Sprintf(`{"number":%d}`, len(p.all)))
		return nil
	})
	return staged, err
}

// Publish implements connector.TwoPhase.
func (p phases[T]) Publish(ctx context.Context, at record.Progress, staged json.RawMessage) error {
	var what struct {
		Number int `json:"number"`
	}
	if err := json.Unmarshal(staged, &what); err != nil {
		return fmt.Errorf("reading what was staged: %w", err)
	}
	e := p.decide(what.Number, at)
	if e == nil {
		return &connector.Error{Class: connector.ClassPosition, Code: "sim.unprepared"}
	}
	return p.host.step(ctx, "publish", at.Position, func() error {
		switch {
		case e.published:
			return nil
		case e.aborted:
			p.violate("epoch %d is published, and was aborted", at.Epoch)
			return &connector.Error{Class: connector.ClassPosition, Code: "sim.aborted"}
		case p.host.written():
			p.violate("epoch %d is published while others are written", at.Epoch)
		case *p.has && p.progress.Run == at.Run && p.place(at.Position) < p.place(p.progress.Position):
			p.violate("back from %s to %s", p.progress.Position, at.Position)
		}
		if err := p.host.before(); err != nil {
			return err
		}
		p.host.show(e.What)
		*p.progress, *p.has, e.published = at, true, true
		return nil
	})
}

// decide finds the epoch, which from now on is decided, whatever becomes of the call.
func (p phases[T]) decide(number int, at record.Progress) *epoch[T] {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if number < 1 || number > len(p.all) || !sameProgress(p.all[number-1].Progress, at) {
		p.violate("epoch %d is published, and was not prepared", at.Epoch)
		return nil
	}
	e := p.all[number-1]
	e.decided = e.decided || !p.world.crashed
	return e
}

func sameProgress(a, b record.Progress) bool {
	one, err := a.Append(nil)
	two, err2 := b.Append(nil)
	return err == nil && err2 == nil && string(one) == string(two)
}

// Abort implements connector.TwoPhase.
func (p phases[T]) Abort(ctx context.Context) error {
	return p.host.step(ctx, "abort", record.Position{}, func() error {
		for _, e := range p.staged() {
			if e.decided {
				p.violate("epoch %d is aborted, and was decided", e.Progress.Epoch)
			}
			e.aborted = true
		}
		p.host.take()
		return nil
	})
}

// Committed implements connector.TwoPhase.
func (p phases[T]) Committed(ctx context.Context) (at record.Progress, has bool, err error) {
	err = p.host.step(ctx, "committed", record.Position{}, func() error {
		at, has = *p.progress, *p.has
		return nil
	})
	return at, has, err
}

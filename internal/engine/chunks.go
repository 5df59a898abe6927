package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/backfill"
	"github.com/leatdata/leat/record"
)

// event is what a goroutine tells the reader.
type event struct {
	work    *backfill.Work
	batches []*record.Batch
	more    bool // the chunk goes on
	passed  bool // parts of it were handed over before
	next    *record.Chunk
	err     error
	taken   chan struct{} // closed when the batches were passed on
}

// retry is work that failed, to be done again after a while.
type retry struct {
	work *backfill.Work
	at   time.Time
}

// planner walks along one dataset.
type planner struct {
	out chan plannedChunk // closed behind the last one
	end context.CancelFunc
}

type plannedChunk struct {
	chunk record.Chunk
	err   error
}

// next takes an event. While a chunk is passed on it waits for its next part; and while too many changes are held, for any chunk.
func (b *backfiller) next(ctx context.Context) (event, bool) {
	if b.passing == nil && len(b.waiting) > 0 {
		e := b.waiting[0]
		b.waiting = b.waiting[1:]
		return e, true
	}
	for b.passing != nil {
		select {
		case e := <-b.events:
			if e.work == b.passing {
				return e, true
			}
			b.waiting = append(b.waiting, e)
		case <-ctx.Done():
			return event{}, false
		}
	}
	if b.running > 0 && b.merge.Held() > b.g.r.shares.held {
		select {
		case e := <-b.events:
			return e, true
		case <-ctx.Done():
			return event{}, false
		}
	}
	select {
	case e := <-b.events:
		return e, true
	default:
		return event{}, false
	}
}

// handle takes one outcome in.
func (b *backfiller) handle(ctx context.Context, e event) error {
	if !e.more {
		b.running--
		b.passing = nil
	}
	w := e.work
	if w.Part != 0 && !w.Plan && e.err == nil {
		b.parts.read = append(b.parts.read, e)
		return nil
	}
	if e.taken != nil {
		defer close(e.taken)
	}
	switch {
	case e.err != nil:
		return b.trouble(ctx, e)
	case w.Plan:
		b.merge.Planned(w, e.next.To)
		return nil
	case w.Stale():
		return nil
	}
	if e.more {
		b.passing = w
	}
	rows, size := int64(0), int64(0)
	for _, batch := range e.batches {
		rows += int64(batch.NumRows())
		size += batch.Bytes()
		b.merge.Took(w, batch)
		if err := b.deliver(ctx, backfill.Delivery{Lanes: w.Lanes(), Batch: batch}); err != nil {
			return err
		}
	}
	b.g.r.ctl.dataset(w.Dataset, func(d *DatasetStatus) {
		d.Snapshot += rows
		d.Rows += rows
		d.Bytes += size
	})
	if e.more {
		return nil
	}
	b.g.r.pacer.reset()
	held, err := b.merge.Publish(ctx, w, *snapshotOf(e))
	if err != nil {
		return err
	}
	for _, d := range held {
		if err := b.deliver(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// snapshotOf is what the chunk was read under.
func snapshotOf(e event) *record.Position {
	for _, b := range e.batches {
		if b.Chunk != nil {
			return &b.Chunk.Snapshot
		}
	}
	return &e.work.Chunk.Snapshot
}

// trouble decides about reading that failed: it is tried again, or its dataset fails alone, or all does.
func (b *backfiller) trouble(ctx context.Context, e event) error {
	w := e.work
	if p := b.plans[w.Pass()]; p != nil && w.Plan {
		p.end()
		delete(b.plans, w.Pass())
	}
	if w.Stale() {
		return nil
	}
	b.g.r.log.Warn("reading a snapshot", slog.String("dataset", w.Dataset), slog.Any("error", e.err))
	switch class := connector.ClassOf(e.err); {
	case w.Part != 0:
		return b.partTrouble(ctx, e)
	case e.passed:
		return &restartError{err: e.err} // part of it is in the lanes, and nothing of it may become durable
	case class == connector.ClassTransient:
		b.retry(e)
		return nil
	case class == connector.ClassPermanent && len(b.known) > 1:
		s := b.schemaOf(w.Dataset)
		name := b.laneName(s)
		for _, l := range slices.Clone(w.Lanes()) {
			b.g.r.failed(l, name, e.err)
			b.merge.Fail(s, l)
		}
		b.phase(w.Dataset)
		return nil
	default:
		return e.err
	}
}

// retry does work once more, a little later.
func (b *backfiller) retry(e event) {
	b.later = append(b.later, retry{work: e.work, at: time.Now().Add(chunkRetry)})
}

// start begins what can be begun.
func (b *backfiller) start() {
	now := time.Now()
	b.later = slices.DeleteFunc(b.later, func(r retry) bool {
		due := !now.Before(r.at)
		if due {
			b.merge.Abandon(r.work)
		}
		return due
	})
	readers := max(b.g.r.contract.Readers, 1)
	for b.passing == nil && b.running < readers {
		w := b.merge.Next(readers)
		if w == nil {
			return
		}
		run := func(ctx context.Context) { b.read(ctx, w) }
		if w.Plan {
			p := b.plannerOf(w)
			run = func(ctx context.Context) { b.plan(ctx, w, p) }
		}
		b.phase(w.Dataset)
		b.running++
		if err := b.g.srcValue.spawn(run); err != nil {
			b.running--
			b.merge.Abandon(w)
			return
		}
	}
}

// tell hands an event to the reader, unless the generation ends.
func (b *backfiller) tell(ctx context.Context, e event) bool {
	select {
	case b.events <- e:
		return true
	case <-ctx.Done():
	case <-b.g.hard.Done():
	}
	return false
}

// plan finds the next chunk.
func (b *backfiller) plan(ctx context.Context, w *backfill.Work, p *planner) {
	e := event{work: w}
	var next plannedChunk
	select {
	case next = <-p.out:
	case <-ctx.Done():
		return
	}
	if next.err != nil {
		e.err = fmt.Errorf("source: planning the snapshot of %s: %w", w.Dataset, next.err)
	} else {
		e.next = &next.chunk // without an end: the last one
	}
	b.tell(ctx, e)
}

// plannerOf returns the walk that work goes on with.
func (b *backfiller) plannerOf(w *backfill.Work) *planner {
	for pass, p := range b.plans {
		if pass.Over() {
			p.end()
			delete(b.plans, pass)
		}
	}
	if p := b.plans[w.Pass()]; p != nil {
		return p
	}
	p := &planner{out: make(chan plannedChunk)}
	over, end := context.WithCancel(b.g.hard)
	p.end = end
	walk := func(ctx context.Context) {
		defer close(p.out)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(over, cancel)
		defer stop()
		for c, err := range b.walk(ctx, w) {
			select {
			case p.out <- plannedChunk{c, err}:
			case <-ctx.Done():
				return
			}
		}
	}
	if err := b.g.srcValue.spawn(walk); err != nil {
		close(p.out)
	}
	b.plans[w.Pass()] = p
	return p
}

// read reads one chunk. One that is larger than the buffer is handed over part by part.
func (b *backfiller) read(ctx context.Context, w *backfill.Work) {
	e, size := event{work: w}, int64(0)
	err := b.chunks.ReadChunk(ctx, w.Chunk, func(batch *record.Batch) error {
		e.batches = append(e.batches, batch)
		size += batch.Bytes()
		if size < orDefault(b.g.r.deps.chunkBuffer, b.g.r.shares.chunk) {
			return nil
		}
		part := event{work: w, batches: e.batches, more: true, taken: make(chan struct{})}
		e.batches, size, e.passed = nil, 0, true
		w.Chunk.Snapshot = *snapshotOf(part)
		if !b.tell(ctx, part) {
			return context.Canceled
		}
		select {
		case <-part.taken:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		e.err, e.batches = fmt.Errorf("source: reading the snapshot of %s: %w", w.Dataset, err), nil
	}
	b.tell(ctx, e)
}

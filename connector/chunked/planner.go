package chunked

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// BoundedPlanner is a capability of a Snapshotter: to plan up to a key. It is used where a chunk has to end exactly at a position
// that a sink has already reached. Without it the stretch up to there is one chunk.
type BoundedPlanner interface {
	// PlanChunksTo is like PlanChunks, but the last chunk ends at to (inclusive).
	PlanChunksTo(ctx context.Context, dataset string, after, to []byte, target int64) connector.ChunkSeq
}

// planner yields the chunks of all datasets. It is used by one goroutine at a time.
type planner struct {
	snap     connector.Snapshotter
	datasets []Dataset
	target   int64

	at    int // the dataset being planned
	after json.RawMessage
	mark  int64
	cuts  map[string][]position // ahead, in order

	next func() (record.Chunk, error, bool)
	stop func()
	till *position // the cut that the current sequence ends at
}

// planned is a chunk and what its position will be.
type planned struct {
	chunk    record.Chunk
	dataset  Dataset
	position record.Position // zero: none can be given
	last     bool            // of its dataset, or in front of a cut: nothing is joined beyond it
}

// chunk returns the next chunk; false: there is none.
func (p *planner) chunk(ctx context.Context) (planned, bool, error) {
	for p.at < len(p.datasets) {
		if p.next == nil {
			p.open(ctx)
		}
		c, err, ok := p.next()
		switch {
		case err != nil:
			return planned{}, false, err
		case ok:
			return p.number(c), true, nil
		case p.till == nil:
			return planned{}, false, fmt.Errorf("planning %s: the chunks end before the dataset does", p.datasets[p.at].Name)
		}
		p.close() // the stretch up to a cut is planned
	}
	return planned{}, false, nil
}

// open begins the next stretch: up to the next cut, or to the end of the dataset.
func (p *planner) open(ctx context.Context) {
	d := p.datasets[p.at]
	p.till = nil
	if cuts := p.cuts[d.Name]; len(cuts) > 0 {
		p.till, p.cuts[d.Name] = &cuts[0], cuts[1:]
	}
	p.next, p.stop = iter.Pull2(p.sequence(ctx, d))
}

func (p *planner) sequence(ctx context.Context, d Dataset) connector.ChunkSeq {
	if p.till == nil {
		return p.snap.PlanChunks(ctx, d.Name, p.after, p.target)
	}
	if b, ok := connector.As[BoundedPlanner](p.snap); ok {
		return b.PlanChunksTo(ctx, d.Name, p.after, p.till.After, p.target)
	}
	from, to := p.after, p.till.After
	return func(yield func(record.Chunk, error) bool) {
		yield(record.Chunk{Dataset: d.Name, From: from, To: to}, nil)
	}
}

// number gives the chunk its position, and moves on to the next dataset behind the last chunk.
func (p *planner) number(c record.Chunk) planned {
	d := p.datasets[p.at]
	out := planned{chunk: c, dataset: d, last: c.To == nil}
	if out.last {
		out.position = position{Dataset: d.Name, Done: true}.encode()
		p.close()
		p.at++
		p.after, p.mark = nil, 0
		return out
	}
	next := p.mark + step
	if p.till != nil {
		next = p.mark + min(step, (p.till.At-p.mark)/2)
		if bytes.Equal(c.To, p.till.After) {
			next, out.last = p.till.At, true
		}
	}
	if next > p.mark && !d.Whole {
		out.position = position{Dataset: d.Name, After: c.To, At: next}.encode()
	}
	p.after, p.mark = c.To, next
	return out
}

// close ends the current stretch.
func (p *planner) close() {
	if p.stop != nil {
		p.stop()
	}
	p.next, p.stop = nil, nil
}

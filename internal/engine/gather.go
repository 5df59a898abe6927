package engine

import (
	"context"

	"github.com/leatdata/leat/record"
)

// A lane that is behind has many small batches: those of one dataset are written as one, as long as more are waiting. A sink that keeps
// its position shows nothing of them before its commit, so that the order between datasets does not matter.
const (
	gatherRows  = 8192    // of all datasets: more are written, where the sink has no wish
	gatherBytes = 4 << 20 // likewise
	mostGather  = 8 << 20 // likewise, where it has one
	gatherUnder = 8       // batches of more than this part of that are worth their way
)

// gatherRoom is how much is gathered.
type gatherRoom struct {
	rows  int   // that are written as soon as there are so many
	bytes int64 // likewise
	under int   // batches of so many rows are written on their own
}

// gatherRoomFor works out how much is gathered for a sink that likes so many rows at once, and collects so many bytes before a commit.
func gatherRoomFor(wish int, commit int64) gatherRoom {
	if wish <= gatherRows {
		return gatherRoom{rows: gatherRows, bytes: gatherBytes, under: gatherRows / gatherUnder}
	}
	return gatherRoom{rows: wish, bytes: max(gatherBytes, min(commit, mostGather)), under: wish/gatherUnder + 1}
}

// gathered are batches of one dataset that are to be written as one.
type gathered struct {
	name    string
	batches []*record.Batch
}

// gather writes the batch, now or together with others.
func (d *deliverer) gather(ctx context.Context, b *record.Batch) error {
	if b.Schema == nil {
		return nil
	}
	if !d.gathers(b) {
		if err := d.writeGathered(ctx); err != nil {
			return err
		}
		return d.write(ctx, b)
	}
	if g := d.gatheredOf(b.Schema.Dataset); g != nil && !sameSchema(g.batches[0].Schema, b.Schema) {
		if err := d.writeGathered(ctx); err != nil {
			return err
		}
	}
	g := d.gatheredOf(b.Schema.Dataset)
	if g == nil {
		g = &gathered{name: b.Schema.Dataset}
		d.waits = append(d.waits, g)
	}
	g.batches = append(g.batches, b)
	d.waitRows += b.NumRows()
	d.waitBytes += b.Bytes()
	d.dirty = true
	if d.waitRows >= d.room.rows || d.waitBytes >= d.room.bytes || d.consumer.CaughtUp() {
		return d.writeGathered(ctx)
	}
	return nil
}

// gathers reports whether a batch may be written together with others.
func (d *deliverer) gathers(b *record.Batch) bool {
	return d.kind == stores && d.g.back != nil && !b.Truncate && b.Chunk == nil && len(b.Txns) > 0 && len(b.Rejects) == 0 &&
		b.Rows != nil && b.NumRows() > 0 && b.NumRows() < d.room.under
}

func (d *deliverer) gatheredOf(name string) *gathered {
	for _, g := range d.waits {
		if g.name == name {
			return g
		}
	}
	return nil
}

// writeGathered writes what was gathered.
func (d *deliverer) writeGathered(ctx context.Context) error {
	waits := d.waits
	d.waits, d.waitRows, d.waitBytes = nil, 0, 0
	for _, g := range waits {
		b := g.batches[0]
		if len(g.batches) > 1 {
			var err error
			if b, err = record.Concat(g.batches); err != nil {
				return d.wrap(err)
			}
		}
		if err := d.write(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

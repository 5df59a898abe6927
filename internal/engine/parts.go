package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/backfill"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// Part is what a saved record tells of rows of one dataset that are read once more.
type Part struct {
	ID      uint64 // of the order
	Dataset string
	Sinks   []string // sorted
	Where   string
	Keys    int   // that are yet to be read
	Rows    int64 // that were written once more
}

// Parts reads the ledger of a saved record (state.Record.Progress.Ledger): the parts that are not complete, in the order in which they were
// asked for. Their datasets are complete in the sinks, see Backfills.
func Parts(ledger json.RawMessage) ([]Part, error) {
	n, err := decodeNotes(ledger)
	if err != nil {
		return nil, err
	}
	open, _, err := backfill.Read(n.Backfill)
	if err != nil {
		return nil, err //nolint:wrapcheck // it speaks for itself
	}
	var out []Part
	for _, o := range open {
		if o.ID != 0 {
			out = append(out, Part{
				ID: o.ID, Dataset: o.Dataset, Sinks: slices.Sorted(slices.Values(o.Lanes)), Where: o.Where, Keys: o.Keys, Rows: o.Rows,
			})
		}
	}
	return out, nil
}

// parts are the rows of datasets that are read once more while the lanes go on, see backfill.Part. All but what the backfiller's mutex
// guards belongs to the reader's goroutine.
type parts struct {
	read []event // rows that wait until the stream has brought all that their snapshot includes
	open map[uint64]*openPart

	saved map[uint64]map[string][]string // with the mutex: what the saved ledger tells of complete parts: lanes by dataset
}

// openPart is an order that is not over.
type openPart struct {
	waits map[string][]string // lanes by dataset, that it is not complete in
	done  map[string][]string // those that it is
	err   error               // the first one
}

// part opens a part of a dataset for lanes. Its errors are refusals: nothing was opened. A part that is open already, or complete, is not
// opened again.
func (b *backfiller) part(ctx context.Context, dataset string, p backfill.Part, lanes []string) error {
	if !b.known[dataset] {
		return unknownDataset(dataset, b.g.blue.datasets)
	}
	s := b.schemaOf(dataset)
	if err := b.partFits(ctx, s, p, lanes); err != nil {
		return partError(dataset, err)
	}
	if err := b.merge.Part(ctx, s, p, lanes...); err != nil {
		if ctx.Err() != nil {
			return err //nolint:wrapcheck // the caller's own
		}
		return partError(dataset, err)
	}
	if b.parts.open == nil {
		b.parts.open = map[uint64]*openPart{}
	}
	if b.parts.open[p.ID] == nil {
		b.parts.open[p.ID] = &openPart{waits: map[string][]string{}, done: map[string][]string{}}
	}
	o := b.parts.open[p.ID]
	for _, l := range lanes {
		if !slices.Contains(o.waits[dataset], l) && !slices.Contains(o.done[dataset], l) {
			o.waits[dataset] = append(o.waits[dataset], l)
		}
	}
	b.g.r.log.Info("rows are read once more", slog.Uint64("id", p.ID), slog.String("dataset", dataset), slog.Any("sinks", lanes))
	return nil
}

// orderPart opens the parts that somebody asks for. What is not possible is taken off the list with the reason.
func (b *backfiller) orderPart(ctx context.Context, f state.Backfill, o *fillOrder) error {
	for _, name := range o.datasets {
		err := b.part(ctx, name, backfill.Part{ID: f.ID, Where: f.Where, Keys: f.Keys}, o.lanes)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return err
		}
		b.endParts(f.ID)
		b.refuse(ctx, f.ID, err)
		return nil
	}
	return nil
}

// endParts ends what is open of an order.
func (b *backfiller) endParts(id uint64) {
	if o := b.parts.open[id]; o != nil {
		for dataset := range o.waits {
			b.merge.Cancel(id, dataset)
		}
	}
	delete(b.parts.open, id)
}

// settleParts takes orders off the list that are over, and ends what nobody wants any more.
func (b *backfiller) settleParts(ctx context.Context) {
	done, failed := b.takeParts()
	for id, why := range failed {
		b.endParts(id)
		b.refuse(ctx, id, why)
	}
	if len(done) > 0 && b.g.r.changeOrders(ctx, func(o *state.Orders) {
		o.Backfills = slices.DeleteFunc(o.Backfills, func(f state.Backfill) bool { return slices.Contains(done, f.ID) })
	}) {
		for _, id := range done {
			b.ordered[id].over = true
			delete(b.parts.open, id)
		}
	}
	wanted := map[uint64]bool{}
	for _, f := range b.g.r.ctl.ordered().Backfills {
		wanted[f.ID] = b.ordered[f.ID] == nil || !b.ordered[f.ID].over
	}
	for id := range b.parts.open {
		if !wanted[id] {
			b.g.r.log.Info("rows are not read once more: nobody asks for them any longer", slog.Uint64("id", id))
			b.endParts(id)
		}
	}
	maps.DeleteFunc(wanted, func(_ uint64, is bool) bool { return !is })
	b.merge.Retain(slices.Collect(maps.Keys(wanted))...)
}

func partError(dataset string, err error) error {
	if known, ok := errors.AsType[*connector.Error](err); ok && known.Dataset != "" {
		return err
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "engine.part", Doing: "reading rows once more", Dataset: dataset, Err: err,
		Hint: "leat backfill FILE --dataset " + dataset + " copies all of it",
	}
}

// partFits refuses what source or sinks can't do.
func (b *backfiller) partFits(ctx context.Context, s *record.Schema, p backfill.Part, lanes []string) error {
	if len(s.Key) == 0 {
		return errors.New("it has no key: its rows can't be written over those that are there")
	}
	for i, d := range b.g.lanes {
		if !slices.Contains(lanes, d.spec.Name) {
			continue
		}
		if d.offer.Mode != connector.Upsert {
			return fmt.Errorf("sink %q does not write by key (mode %s): rows would be there twice", d.spec.Name, d.offer.Mode)
		}
		l := b.g.blue.lanes[i][b.laneName(s)]
		if l == nil || l.fit == nil {
			continue // it joined later, or is not written
		}
		if out, err := transformed(d.spec.Transforms, l.in); err == nil && out != nil && len(out.Key) == 0 {
			return fmt.Errorf("it has no key in sink %q: rows would be there twice", d.spec.Name)
		}
	}
	if p.Where == "" {
		return nil
	}
	if !b.g.r.contract.Conditions {
		return errors.New("this source can't read only the rows that meet a condition")
	}
	c, ok := connector.As[connector.Conditional](b.g.src)
	if !ok {
		return nil
	}
	if err := c.CheckWhere(ctx, s.Dataset, p.Where); err != nil && connector.ClassOf(err) != connector.ClassTransient {
		return err //nolint:wrapcheck // it names condition and dataset
	}
	return nil
}

// walk plans the chunks that work asks for.
func (b *backfiller) walk(ctx context.Context, w *backfill.Work) connector.ChunkSeq {
	if c, ok := connector.As[connector.Conditional](b.g.src); ok && w.Where != "" {
		return c.PlanWhere(ctx, w.Dataset, w.Where, w.After, 0)
	}
	return b.chunks.PlanChunks(ctx, w.Dataset, w.After, 0)
}

// refresh delivers the rows of parts that are due. It is called between two replay units of the source.
func (b *backfiller) refresh(ctx context.Context) error {
	waiting := b.parts.read
	b.parts.read = nil
	for i, e := range waiting {
		if !e.work.Stale() && !b.merge.Due(e.work, *snapshotOf(e)) {
			b.parts.read = append(b.parts.read, e)
			continue
		}
		err := b.handOver(ctx, e)
		if e.taken != nil {
			close(e.taken)
		}
		if err != nil {
			b.parts.read = append(b.parts.read, waiting[i+1:]...)
			return err
		}
	}
	return nil
}

// handOver delivers rows of a part.
func (b *backfiller) handOver(ctx context.Context, e event) error {
	w := e.work
	for _, batch := range e.batches {
		rows, err := b.merge.Refresh(ctx, w, batch)
		if err != nil {
			return err
		}
		if rows == nil {
			continue
		}
		n, size := int64(rows.NumRows()), rows.Bytes()
		b.g.r.ctl.dataset(w.Dataset, func(d *DatasetStatus) {
			d.Rows += n
			d.Bytes += size
		})
		if err := b.deliver(ctx, backfill.Delivery{Lanes: w.Lanes(), Batch: rows}); err != nil {
			return err
		}
	}
	if e.more || w.Stale() {
		return nil
	}
	b.g.r.pacer.reset()
	gone, err := b.merge.Publish(ctx, w, *snapshotOf(e))
	if err != nil {
		return err
	}
	for _, d := range gone {
		if err := b.deliver(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// partTrouble decides about reading that failed: it is tried again, or the part ends. What was delivered of a chunk does no harm.
func (b *backfiller) partTrouble(ctx context.Context, e event) error {
	switch connector.ClassOf(e.err) { //nolint:exhaustive // all others are of the part alone
	case connector.ClassTransient:
		b.retry(e)
		return nil
	case connector.ClassFenced:
		return e.err
	}
	lanes := b.merge.Cancel(e.work.Part, e.work.Dataset)
	return b.partOver(ctx, backfill.Delivery{Lanes: lanes, Part: e.work.Part, Dataset: e.work.Dataset, Err: e.err})
}

// partOver publishes the mark that a part is complete, to the lanes that it is for.
func (b *backfiller) partOver(ctx context.Context, d backfill.Delivery) error {
	attached := slices.DeleteFunc(slices.Clone(d.Lanes), func(l string) bool { return !slices.Contains(b.lanes, l) })
	if d.Err == nil && len(attached) > 0 {
		if err := b.g.stream.Publish(ctx, lane.SnapshotComplete{Datasets: []string{d.Dataset}}, attached...); err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
	}
	b.partDone(d.Part, d.Dataset, d.Lanes, d.Err)
	return nil
}

// partDone notes that a part is over in lanes.
func (b *backfiller) partDone(id uint64, dataset string, lanes []string, err error) {
	attrs := []any{slog.Uint64("id", id), slog.String("dataset", dataset), slog.Any("sinks", lanes)}
	if err != nil {
		b.g.r.log.Error("rows could not be read once more", append(attrs, slog.Any("error", err))...)
	} else {
		b.g.r.log.Info("rows that were read once more are complete", attrs...)
	}
	o := b.parts.open[id]
	if o == nil {
		return // of a process before, and its order is not known yet
	}
	o.err = errors.Join(o.err, err)
	over := func(l string) bool { return slices.Contains(lanes, l) }
	o.waits[dataset] = slices.DeleteFunc(slices.Clone(o.waits[dataset]), over)
	if len(o.waits[dataset]) == 0 {
		delete(o.waits, dataset)
	}
	o.done[dataset] = append(o.done[dataset], lanes...)
}

// partsSaved takes note of a ledger that was saved: what it says to be complete is durable in its lanes.
func (b *backfiller) partsSaved(ledger string) {
	finished, err := backfill.Finished([]byte(ledger))
	if err != nil {
		return // it was encoded here
	}
	saved := map[uint64]map[string][]string{}
	for l, ids := range finished {
		for id, datasets := range ids {
			if saved[id] == nil {
				saved[id] = map[string][]string{}
			}
			for _, d := range datasets {
				saved[id][d] = append(saved[id][d], l)
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts.saved, b.saved = saved, json.RawMessage(ledger)
}

// takeParts returns the orders that are over: their parts are complete in all lanes, durably, so that no crash loses any (W13);
// or one of them failed. Merge.Retain forgets them once they are off the list.
func (b *backfiller) takeParts() (done []uint64, failed map[uint64]error) {
	b.mu.Lock()
	saved := b.parts.saved
	b.mu.Unlock()
	failed = map[uint64]error{}
	for id, o := range b.parts.open {
		switch {
		case o.err != nil:
			failed[id] = o.err
		case len(o.waits) > 0:
		case o.durable(saved[id]):
			done = append(done, id)
		}
	}
	slices.Sort(done)
	return done, failed
}

// durable reports whether what was saved says that all of the order is complete.
func (o *openPart) durable(saved map[string][]string) bool {
	for dataset, lanes := range o.done {
		for _, l := range lanes {
			if !slices.Contains(saved[dataset], l) {
				return false
			}
		}
	}
	return true
}

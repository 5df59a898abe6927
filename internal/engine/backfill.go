package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/backfill"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

const (
	chunkRetry = time.Second
)

// backfiller gives lanes the snapshots that they lack while changes are followed. All but what its mutex guards belongs to the reader's
// goroutine.
type backfiller struct {
	g       *generation
	reader  *reader
	merge   *backfill.Merge
	chunks  connector.Snapshotter
	lanes   []string
	known   map[string]bool // datasets that lanes have or get
	events  chan event
	waiting []event // that came while a chunk was passed on
	running int
	parts   parts
	plans   map[backfill.Pass]*planner
	passing *backfill.Work // the chunk that is passed on while it is read
	later   []retry

	detached names                            // lanes that were let go
	asked    chan lane.Delivery[lane.Request] // of sinks that have to be filled
	requests []lane.Delivery[lane.Request]    // that wait to be answered
	answers  []*answer
	marked   time.Time             // when a ledger was published for a lane that waits to be attached
	ordered  map[uint64]*fillOrder // by id
	paused   map[string]bool       // datasets

	mu      sync.Mutex
	schemas []newSchema                // that the saved identity does not have yet
	failed  map[string]map[string]bool // datasets that failed while they were written, by sink, as lanes call them
	sources map[string][]string        // datasets of the source, by what the lanes call them
	saved   json.RawMessage            // the newest ledger that is saved; nil: it was looked at
}

// openBackfills finds out what each lane lacks.
func (g *generation) openBackfills(ctx context.Context, s start, c choice) error {
	if !g.r.refill {
		return nil
	}
	m, _ := connector.As[connector.Merger](g.src)
	chunks, _ := connector.As[connector.Snapshotter](g.src)
	b := &backfiller{
		g: g, chunks: chunks, known: map[string]bool{}, events: make(chan event, 1), plans: map[backfill.Pass]*planner{},
		failed: map[string]map[string]bool{}, sources: map[string][]string{},
		asked: make(chan lane.Delivery[lane.Request]), ordered: map[uint64]*fillOrder{}, paused: map[string]bool{},
	}
	order, _ := positionsOf(g.src)
	var lanes []backfill.Lane
	for _, d := range g.lanes {
		if d.detached {
			continue
		}
		b.lanes = append(b.lanes, d.spec.Name)
		l := backfill.Lane{Name: d.spec.Name, Ahead: s.skips[d.spec.Name].until}
		l.Loose = d.kind == flushes && d.offer.Mode == connector.Upsert
		if !d.stranger {
			l.Ledger = d.ledger
		}
		lanes = append(lanes, l)
	}
	var err error
	if b.merge, err = backfill.New(m, order, lanes); err != nil {
		return err
	}
	g.back = b
	b.partsSaved(string(b.merge.Ledger()))
	if err := b.request(ctx, c); err != nil {
		return err
	}
	// A sink that keeps no progress may be emptied for a backfill and then be found by a run that does not know why.
	err = g.r.update(ctx, func(rec *state.Record) error {
		n, err := decodeNotes(rec.Progress.Ledger)
		n.Backfill = b.merge.Ledger()
		rec.Progress.Ledger = n.encode()
		return err
	})
	if err != nil {
		return err
	}
	if g.durable == nil {
		b.merge.Told()
		return nil
	}
	if at, ok := g.durable.Stored(); ok && at.Ledger != string(b.merge.Ledger()) { // what lanes have tells of it from the start
		return b.mark(ctx, g.begun)
	}
	return nil
}

// request opens what is lacking when a generation starts.
func (b *backfiller) request(ctx context.Context, c choice) error {
	p := b.g.r.plan
	for _, name := range p.Resnapshot {
		if !slices.ContainsFunc(b.g.blue.datasets, func(d connector.Dataset) bool { return d.Name == name }) {
			return unknownDataset(name, b.g.blue.datasets)
		}
	}
	for _, ds := range b.g.blue.datasets {
		if ds.Schema == nil || !slices.Contains(b.g.blue.names, ds.Name) {
			continue
		}
		b.know(ds.Schema)
		b.merge.Describe(ds.Schema)
		for i, d := range b.g.lanes {
			how := backfill.First
			if d.stranger || c.again {
				how = backfill.Truncate
			}
			if err := b.lack(ctx, i, ds.Schema, how); err != nil {
				return err
			}
		}
		if err := b.onceMore(ctx, ds.Schema, c); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		b.phase(ds.Name)
	}
	return nil
}

// onceMore opens what has to be copied once more, for the lanes that need it: somebody asks for it; the columns are not those that the
// lanes have; or a target that kept its columns follows again, and so lacks values.
func (b *backfiller) onceMore(ctx context.Context, s *record.Schema, c choice) error {
	p, name := b.g.r.plan, b.laneName(s)
	for _, d := range b.g.lanes {
		if _, ok := d.frozen[name]; !ok || d.spec.schemaPolicy(name) != Evolve {
			continue
		}
		if err := b.merge.Request(ctx, s, refill(s), d.spec.Name); err != nil {
			return err //nolint:wrapcheck // the caller says whose it is
		}
	}
	switch {
	case slices.Contains(p.Resnapshot, s.Dataset) && !b.g.r.ran:
		return b.merge.Request(ctx, s, backfill.Truncate, b.lanes...) //nolint:wrapcheck // the caller says whose it is
	case slices.Contains(c.stale, name) && !b.merge.Open(s.Dataset) && p.Snapshot != SnapshotNone:
		return b.merge.Request(ctx, s, refill(s), b.lanes...) //nolint:wrapcheck // the caller says whose it is
	}
	return nil
}

// unknownDataset refuses the name of a dataset that is to be copied once more.
func unknownDataset(name string, known []connector.Dataset) error {
	names := make([]string, len(known))
	for i, d := range known {
		names[i] = d.Name
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "engine.resnapshot", Doing: "copying a dataset once more",
		Err: connector.UnknownName("dataset", name, names), Hint: "datasets are named as leat status shows them",
	}
}

// refill is how a dataset is copied once more over what lanes have.
func refill(s *record.Schema) backfill.How {
	if len(s.Key) == 0 {
		return backfill.Truncate
	}
	return backfill.Refill
}

// laneName is what a dataset of the source is called behind the shared transforms.
func (b *backfiller) laneName(s *record.Schema) string {
	out, err := transformed(b.g.r.plan.Source.Transforms, s)
	if err != nil || out == nil {
		return s.Dataset
	}
	return out.Dataset
}

// lack opens a backfill for one lane where it has nothing of the dataset.
func (b *backfiller) lack(ctx context.Context, i int, s *record.Schema, how backfill.How) error {
	d := b.g.lanes[i]
	if b.merge.Has(d.spec.Name, s.Dataset) || !slices.Contains(b.lanes, d.spec.Name) {
		return nil
	}
	name := b.laneName(s)
	if err := b.g.blue.errs[i][name]; err != nil {
		b.g.r.failed(d.spec.Name, name, err)
		b.merge.Fail(s, d.spec.Name)
		return nil
	}
	l := b.g.blue.lanes[i][name]
	if b.g.r.plan.Snapshot == SnapshotNone || (l != nil && l.fit == nil) {
		b.merge.Known(s.Dataset, d.spec.Name)
		return nil
	}
	if err := b.merge.Request(ctx, s, how, d.spec.Name); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	return nil
}

// reached reports whether the run has come to its end.
func (b *backfiller) reached(at record.Position) bool {
	p := b.g.r.plan
	if !p.Once && p.Snapshot != SnapshotOnly || b.merge.Busy() || b.left() || len(b.parts.open) > 0 {
		return false
	}
	if p.Snapshot == SnapshotOnly && !p.Once {
		return true
	}
	return b.g.reachedTip(at)
}

// turn does what is due: outcomes of reading, marks, new reading. It reports whether anything was published.
func (b *backfiller) turn(ctx context.Context) (moved bool, err error) {
	r := b.reader
	before := b.merge.Ledger()
	for {
		e, ok := b.next(ctx)
		if !ok {
			break
		}
		if err := b.handle(ctx, e); err != nil {
			return moved, err
		}
	}
	if ctx.Err() != nil {
		return moved, nil //nolint:nilerr // a stop
	}
	if !r.unit {
		if err := b.wishes(ctx); err != nil {
			return moved, err
		}
		if err := b.refresh(ctx); err != nil {
			return moved, err
		}
		if saved := b.takeSaved(); saved != nil {
			b.merge.Kept(saved)
		}
		for _, d := range b.merge.Turn(r.last) {
			if err := b.deliver(ctx, d); err != nil {
				return moved, err
			}
		}
	}
	if string(before) != string(b.merge.Ledger()) && !r.unit && !r.last.Zero() {
		moved = true
		if err := b.mark(ctx, r.last); err != nil {
			return moved, err
		}
	}
	b.start()
	return moved, nil
}

// takeSaved returns the ledger that was saved last, once.
func (b *backfiller) takeSaved() json.RawMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	saved := b.saved
	b.saved = nil
	return saved
}

// wishes does what sinks and people ask for.
func (b *backfiller) wishes(ctx context.Context) error {
	if err := b.serveLanes(ctx); err != nil {
		return err
	}
	if err := b.obey(ctx); err != nil {
		return err
	}
	return b.askedAgain(ctx)
}

// askedAgain opens the backfills that somebody asks for while the run goes on.
func (b *backfiller) askedAgain(ctx context.Context) error {
	for _, name := range b.g.r.ctl.askedAgain() {
		i := slices.IndexFunc(b.g.blue.datasets, func(d connector.Dataset) bool { return d.Name == name && d.Schema != nil })
		if i < 0 {
			b.g.r.log.Warn("copying a dataset once more", slog.Any("error", unknownDataset(name, b.g.blue.datasets)))
			continue
		}
		if err := b.merge.Request(ctx, b.g.blue.datasets[i].Schema, backfill.Truncate, b.lanes...); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		b.phase(name)
	}
	return nil
}

// mark publishes the position of the stream with the new ledger.
func (b *backfiller) mark(ctx context.Context, at record.Position) error {
	item := lane.Batch{Batch: &record.Batch{Position: at}, Ledger: string(b.merge.Ledger())}
	if err := b.g.stream.Publish(ctx, item); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	if b.g.durable != nil {
		b.merge.Told()
	}
	return nil
}

// change takes one batch of the stream to the lanes.
func (b *backfiller) change(ctx context.Context, batch *record.Batch) error {
	if batch.Schema != nil {
		if err := b.meet(ctx, batch.Schema); err != nil {
			return err
		}
	}
	parts, err := b.merge.Change(ctx, batch, b.lanes)
	if err != nil {
		return err
	}
	if len(parts) == 1 && parts[0].Lanes == nil {
		b.sawPosition(batch.Position)
		return b.reader.emit(ctx, parts[0].Batch)
	}
	for _, d := range parts {
		if err := b.deliver(ctx, d); err != nil {
			return err
		}
	}
	if batch.Position.Zero() {
		return nil
	}
	b.sawPosition(batch.Position)
	return b.mark(ctx, batch.Position)
}

// deliver publishes something without a position.
func (b *backfiller) deliver(ctx context.Context, d backfill.Delivery) error {
	if len(d.Lanes) == 0 {
		return nil
	}
	if d.Part != 0 {
		return b.partOver(ctx, d)
	}
	if d.Complete != "" {
		b.phase(d.Complete)
		b.g.r.log.Info("a snapshot is complete", slog.String("dataset", d.Complete), slog.Any("sinks", d.Lanes))
		if err := b.g.stream.Publish(ctx, lane.SnapshotComplete{Datasets: []string{d.Complete}}, d.Lanes...); err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
		return nil
	}
	return b.reader.emit(ctx, d.Batch, d.Lanes...)
}

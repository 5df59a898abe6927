package engine

import (
	"context"
	"encoding/json"
	"errors"
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
	chunkBytes   = 16 << 20 // wanted size of a chunk
	chunkReaders = 3        // chunks that are read at the same time
	chunkBuffer  = 64 << 20 // a chunk that is larger is passed on while it is read, and the stream waits for it
	heldBytes    = 64 << 20 // changes that wait for chunks: the stream waits when there are more
	chunkRetry   = time.Second
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
	plans   map[backfill.Pass]*planner
	passing *backfill.Work // the chunk that is passed on while it is read
	later   []retry
	target  record.Position // where the run ends; zero: nowhere

	mu      sync.Mutex
	schemas []newSchema // that the saved identity does not have yet
	failed  map[string]map[string]string
}

// event is what a goroutine tells the reader.
type event struct {
	work    *backfill.Work
	batches []*record.Batch
	more    bool // the chunk goes on
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

// newSchema is a dataset's columns from some place of the stream on.
type newSchema struct {
	dataset, columns string
	at               record.Position // zero: not known yet
}

// openBackfills finds out what each lane lacks.
func (g *generation) openBackfills(ctx context.Context, s start, c choice) error {
	if !g.r.follows() {
		return nil
	}
	m, merges := connector.As[connector.Merger](g.src)
	chunks, cuts := connector.As[connector.Snapshotter](g.src)
	if !merges || !cuts {
		return nil
	}
	b := &backfiller{
		g: g, chunks: chunks, known: map[string]bool{}, events: make(chan event, chunkReaders+1), plans: map[backfill.Pass]*planner{},
		failed: map[string]map[string]string{},
	}
	order, _ := positionsOf(g.src)
	lanes := make([]backfill.Lane, len(g.lanes))
	for i, d := range g.lanes {
		b.lanes = append(b.lanes, d.spec.Name)
		lanes[i] = backfill.Lane{Name: d.spec.Name, Ahead: s.skips[d.spec.Name].until, Loose: d.kind == flushes && d.offer.Mode == connector.Upsert}
		if !d.stranger {
			lanes[i].Ledger = d.ledger
		}
	}
	var err error
	if b.merge, err = backfill.New(m, order, lanes); err != nil {
		return err
	}
	g.back = b
	if err := b.request(ctx, c); err != nil {
		return err
	}
	if err := b.aim(ctx); err != nil {
		return err
	}
	// A sink that keeps no progress may be emptied for a backfill and then be found by a run that does not know why.
	return g.r.update(ctx, func(rec *state.Record) error {
		n, err := decodeNotes(rec.Progress.Ledger)
		n.Backfill = b.merge.Ledger()
		rec.Progress.Ledger = n.encode()
		return err
	})
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
		b.known[ds.Name] = true
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
		var err error
		if slices.Contains(p.Resnapshot, ds.Name) && !b.g.r.ran {
			err = b.merge.Request(ctx, ds.Schema, backfill.Truncate, b.lanes...)
		} else if slices.Contains(c.stale, b.laneName(ds.Schema)) && !b.merge.Open(ds.Name) && p.Snapshot != SnapshotNone {
			err = b.merge.Request(ctx, ds.Schema, onceMore(ds.Schema), b.lanes...)
		}
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		b.phase(ds.Name)
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
		Class: connector.ClassConfig, Code: "engine.resnapshot", Doing: "copying a dataset once more", Err: connector.UnknownName("dataset", name, names),
		Hint: "datasets are named as leat status shows them",
	}
}

// onceMore is how a dataset is copied once more.
func onceMore(s *record.Schema) backfill.How {
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
	if b.merge.Has(d.spec.Name, s.Dataset) {
		return nil
	}
	name := b.laneName(s)
	if err := b.g.blue.errs[i][name]; err != nil {
		b.fail(d.spec.Name, name, err)
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

// aim finds the place of the stream where the run ends.
func (b *backfiller) aim(ctx context.Context) error {
	if !b.g.r.plan.Once {
		return nil
	}
	t, ok := connector.As[connector.Tip](b.g.src)
	if !ok {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "engine.no_tip", Doing: "starting the run",
			Err: errors.New("this source can't tell where its stream ends now"), Hint: "leave --once out",
		}
	}
	if b.g.r.target.Zero() { // another generation goes on to the same place
		err := b.g.srcValue.call("tip", func() (err error) {
			b.g.r.target, err = t.Tip(ctx)
			return err
		})
		if err != nil {
			return fmt.Errorf("source: asking where its stream ends: %w", err)
		}
	}
	b.target = b.g.r.target
	return nil
}

// reached reports whether the run has come to its end.
func (b *backfiller) reached(at record.Position) bool {
	p := b.g.r.plan
	if !p.Once && p.Snapshot != SnapshotOnly || b.merge.Busy() {
		return false
	}
	if p.Snapshot == SnapshotOnly && !p.Once {
		return true
	}
	order, _ := positionsOf(b.g.src)
	if at.Zero() || order == nil {
		return false
	}
	cmp, ok := order(at, b.target)
	return ok && cmp >= 0
}

// turn does what is due: outcomes of reading, marks, new reading. It reports whether anything was published. inside: within a replay unit.
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

// mark publishes the position of the stream with the new ledger.
func (b *backfiller) mark(ctx context.Context, at record.Position) error {
	item := lane.Batch{Batch: &record.Batch{Position: at}, Ledger: string(b.merge.Ledger())}
	if err := b.g.stream.Publish(ctx, item); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	return nil
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
	if b.running > 0 && b.merge.Held() > heldBytes {
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
	if e.taken != nil {
		defer close(e.taken)
	}
	w := e.work
	switch {
	case e.err != nil:
		return b.trouble(e)
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
func (b *backfiller) trouble(e event) error {
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
	case len(e.batches) > 0 || w == b.passing || e.more:
		return &restartError{err: e.err} // part of it is in the lanes
	case class == connector.ClassTransient:
		b.later = append(b.later, retry{work: w, at: time.Now().Add(chunkRetry)})
		return nil
	case class == connector.ClassPermanent && len(b.known) > 1:
		s := b.schemaOf(w.Dataset)
		name := b.laneName(s)
		for _, l := range slices.Clone(w.Lanes()) {
			b.fail(l, name, e.err)
			b.merge.Fail(s, l)
		}
		b.phase(w.Dataset)
		return nil
	default:
		return e.err
	}
}

func (b *backfiller) schemaOf(dataset string) *record.Schema {
	for _, d := range b.g.blue.datasets {
		if d.Name == dataset && d.Schema != nil {
			return d.Schema
		}
	}
	return &record.Schema{Dataset: dataset}
}

// fail notes that a dataset failed for a lane.
func (b *backfiller) fail(sink, dataset string, err error) {
	b.g.r.log.Error("a dataset failed; the others go on", slog.String("sink", sink), slog.String("dataset", dataset), slog.Any("error", err))
	b.g.r.ctl.sink(sink, func(s *SinkStatus) { s.Failed[dataset] = err.Error() })
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
	for b.passing == nil && b.running < chunkReaders {
		w := b.merge.Next(chunkReaders)
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
		defer context.AfterFunc(over, cancel)()
		for c, err := range b.chunks.PlanChunks(ctx, w.Dataset, w.After, chunkBytes) {
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
		if size < chunkBuffer {
			return nil
		}
		part := event{work: w, batches: e.batches, more: true, taken: make(chan struct{})}
		e.batches, size = nil, 0
		e.more = true
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
	passed := e.more
	e.more = false
	if err != nil {
		e.err, e.batches = fmt.Errorf("source: reading the snapshot of %s: %w", w.Dataset, err), nil
		if passed {
			e.err = &restartError{err: e.err}
		}
	}
	b.tell(ctx, e)
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

// meet takes note of a dataset that joined, and of columns that changed.
func (b *backfiller) meet(ctx context.Context, s *record.Schema) error {
	if !b.known[s.Dataset] {
		b.known[s.Dataset] = true
		b.g.blue.datasets = append(b.g.blue.datasets, connector.Dataset{Name: s.Dataset, Schema: s, Rows: -1, Bytes: -1})
		b.g.r.log.Info("a dataset joined", slog.String("dataset", s.Dataset))
		for i := range b.g.lanes {
			if err := b.lack(ctx, i, s, backfill.First); err != nil {
				return err
			}
		}
		b.phase(s.Dataset)
		return nil
	}
	i := slices.IndexFunc(b.g.blue.datasets, func(d connector.Dataset) bool { return d.Name == s.Dataset })
	if i < 0 || b.g.blue.datasets[i].Schema == s {
		return nil
	}
	was := b.g.blue.datasets[i].Schema
	b.g.blue.datasets[i].Schema = s
	d := record.Diff(was, s)
	if d.Empty() {
		return nil
	}
	b.g.r.log.Info("the columns of a dataset changed", slog.String("dataset", s.Dataset), slog.Any("change", d))
	if rewritten(was, s, d) && !b.merge.Open(s.Dataset) {
		// The values may be others, and the stream says nothing of that.
		if err := b.merge.Request(ctx, s, onceMore(s), b.lanes...); err != nil {
			return fmt.Errorf("source: %w", err)
		}
		b.phase(s.Dataset)
	}
	if out, err := transformed(b.g.r.plan.Source.Transforms, s); err == nil && out != nil {
		b.mu.Lock()
		b.schemas = append(b.schemas, newSchema{dataset: out.Dataset, columns: columnsText(out)})
		b.mu.Unlock()
	}
	return nil
}

// rewritten reports whether a column got another type: the database may have computed new values for all rows.
func rewritten(was, s *record.Schema, d record.Difference) bool {
	return slices.ContainsFunc(d.Retyped, func(name string) bool {
		before := was.Column(name)
		for _, r := range d.Renamed {
			if r.To == name {
				before = was.Column(r.From)
			}
		}
		return before < 0 || was.Columns.Field(before).Type.ID() != s.Columns.Field(s.Column(name)).Type.ID()
	})
}

// sawPosition dates the schemas that are new.
func (b *backfiller) sawPosition(at record.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at.Zero() {
		return
	}
	for i := range b.schemas {
		if b.schemas[i].at.Zero() {
			b.schemas[i].at = at
		}
	}
}

// deliver publishes something without a position.
func (b *backfiller) deliver(ctx context.Context, d backfill.Delivery) error {
	if len(d.Lanes) == 0 {
		return nil
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

// phase brings the dataset's phase up to date.
func (b *backfiller) phase(dataset string) {
	p := Live
	open, _, _ := backfill.Read(b.merge.Ledger())
	failed := 0
	for _, o := range open {
		switch {
		case o.Dataset != dataset:
		case o.Failed:
			failed += len(o.Lanes)
		case o.Begun:
			p = Snapshotting
		case p == Live:
			p = Waiting
		}
	}
	if failed == len(b.lanes) {
		p = Broken
	}
	b.g.r.ctl.dataset(dataset, func(d *DatasetStatus) { d.Phase = p })
}

// save brings a saved record to a mark: the ledger, and the columns of datasets as they are there.
func (b *backfiller) save(rec *state.Record, at lane.Mark) error {
	n, err := decodeNotes(rec.Progress.Ledger)
	if err != nil {
		return err
	}
	n.Backfill = json.RawMessage(at.Ledger)
	for _, d := range b.g.lanes {
		if names := b.failures(d.spec.Name); len(names) > 0 {
			n.Backfill = b.without(string(n.Backfill), d.spec.Name, names)
		}
	}
	rec.Progress.Ledger = n.encode()
	order, _ := positionsOf(b.g.src)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.schemas = slices.DeleteFunc(b.schemas, func(s newSchema) bool {
		if s.at.Zero() || order == nil {
			return false
		}
		if cmp, ok := order(at.Position, s.at); !ok || cmp < 0 {
			return false
		}
		id := make(map[string]string, len(rec.Identity))
		for k, v := range rec.Identity {
			id[k] = v
		}
		id[columnsOf(s.dataset)] = s.columns
		rec.Identity = id
		return true
	})
	return nil
}

// failures are the datasets that failed for a sink while it was written to.
func (b *backfiller) failures(sink string) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	set := map[string]bool{}
	for d := range b.failed[sink] {
		set[d] = true
	}
	return set
}

// lost notes that a dataset failed for a sink, from the sink's goroutine.
func (b *backfiller) lost(sink, dataset string, err error) {
	b.mu.Lock()
	if b.failed[sink] == nil {
		b.failed[sink] = map[string]string{}
	}
	b.failed[sink][dataset] = err.Error()
	b.mu.Unlock()
	b.fail(sink, dataset, err)
}

// without is a ledger in which a sink has nothing of some datasets, named as its lane carries them.
func (b *backfiller) without(ledger, sink string, datasets map[string]bool) json.RawMessage {
	names := make([]string, 0, len(datasets))
	for d := range datasets {
		if s, ok := b.g.blue.bySource[d]; ok {
			d = s
		}
		names = append(names, d)
	}
	slices.Sort(names)
	return backfill.Without(json.RawMessage(ledger), sink, names)
}

// watchLag asks the source from time to time how far behind it is (S22).
func (g *generation) watchLag(done <-chan struct{}) {
	l, ok := connector.As[connector.LagReporter](g.src)
	if !ok {
		return
	}
	t := time.NewTicker(lagEvery)
	defer t.Stop()
	warned := false
	for {
		ctx, cancel := context.WithTimeout(g.hard, lagEvery)
		lag, err := l.Lag(ctx)
		cancel()
		switch {
		case err == nil:
			g.r.ctl.set(func() { g.r.ctl.status.Lag = lag })
		case !warned:
			warned = true
			g.r.log.Warn("asking for the lag", slog.Any("error", err))
		}
		select {
		case <-t.C:
		case <-done:
			return
		case <-g.soft.Done():
			return
		}
	}
}

const lagEvery = 3 * time.Second

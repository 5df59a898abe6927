package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/transform"
)

// mailbox holds the newest saved position that the source has not been told of.
type mailbox struct {
	mu   sync.Mutex
	at   record.Position
	full bool
	wake chan struct{} // capacity 1
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

func (m *mailbox) put(p record.Position) {
	m.mu.Lock()
	m.at, m.full = p, true
	m.mu.Unlock()
	signal(m.wake)
}

func (m *mailbox) take() (record.Position, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.at, m.full
	m.full = false
	return p, ok
}

// reader is the one goroutine that calls the source.
type reader struct {
	g       *generation
	src     connector.Source
	v       *value
	acks    connector.Acknowledger // nil: it has none
	control connector.Controlled   // nil: it has none
	ready   <-chan struct{}        // nil: it is polled
	idle    time.Duration

	checked  map[*record.Schema]bool
	retired  bool // a call failed or was cancelled: nothing more may be called
	unit     bool // inside of a replay unit
	last     record.Position
	later    error            // the limit of bad rows was passed: ends at the next boundary
	budget   map[string]int64 // rows left by dataset, with a limit
	grid     grid
	finished bool // every dataset has met its limit
	reached  bool // the run came to where it was to end
}

const (
	minIdle = 5 * time.Millisecond
	maxIdle = 500 * time.Millisecond
)

// While every lane is behind, nothing is gained by reading change by change: the source gathers for a moment, and sinks get fewer and
// larger batches.
const (
	smallBatch  = 256 // rows: larger ones are worth their way
	gather      = 50 * time.Millisecond
	behindItems = 32 // that wait in a lane
)

// behind reports whether all durable lanes that deliver have so much to do that what is read now would have to wait.
func (g *generation) behind() bool {
	if g.durable == nil {
		return false // a full lane holds the reader
	}
	least := int64(-1)
	for _, d := range g.lanes {
		if d.isDown.Load() || d.paused() || (g.back != nil && !slices.Contains(g.back.lanes, d.spec.Name)) {
			continue
		}
		if s, err := g.durable.Stats(d.spec.Name); err == nil && (least < 0 || s.Queued.Items < least) {
			least = s.Queued.Items
		}
	}
	return least >= behindItems
}

func newReader(g *generation) *reader {
	r := &reader{g: g, src: g.src, v: g.srcValue, checked: map[*record.Schema]bool{}, grid: gridFor(g)}
	r.acks, _ = connector.As[connector.Acknowledger](g.src)
	r.control, _ = connector.As[connector.Controlled](g.src)
	if g.back != nil {
		g.back.reader = r
	}
	if g.r.follows() {
		r.last = g.begun
	}
	if n, ok := connector.As[connector.Notifier](g.src); ok {
		r.ready = n.Ready()
	}
	if g.r.plan.Limit > 0 {
		r.budget = map[string]int64{}
		for _, name := range g.blue.names {
			r.budget[name] = g.r.plan.Limit
		}
	}
	return r
}

// run reads until the source ends (true), a stop, or an error. soft ends reading; hard ends everything.
func (r *reader) run(soft, hard context.Context) (ended bool, err error) {
	readCtx := hard
	if r.g.r.contract.CancelSafe {
		readCtx = soft
	}
	for {
		if err := r.acknowledge(hard); err != nil {
			return false, err
		}
		if soft.Err() != nil {
			return false, nil //nolint:nilerr // a stop is no error
		}
		if r.later != nil && !r.unit {
			return false, r.later
		}
		reconciled, err := r.drive()
		if err != nil {
			return false, err
		}
		if !reconciled || r.parked(soft) {
			r.wait(soft, maxIdle)
			continue
		}
		if stop, err := r.backfill(soft); err != nil || stop {
			return stop && err == nil, err
		}
		b, err := r.read(readCtx)
		switch {
		case atEnd(err):
			return r.later == nil, r.later
		case err != nil && soft.Err() != nil:
			return false, nil //nolint:nilerr // a stop: the value is retired, what was published is delivered
		case err != nil:
			return false, err
		case b == nil:
			r.idle = min(max(2*r.idle, minIdle), maxIdle)
			r.wait(soft, r.idle)
			continue
		}
		r.idle = 0
		if err := r.handle(soft, b); err != nil {
			if soft.Err() != nil {
				return false, nil //nolint:nilerr // a stop: the batch comes again
			}
			return false, err
		}
		if r.finished {
			return true, nil
		}
		r.gather(soft, b)
	}
}

// gather waits for a moment where the source should rather have more at once.
func (r *reader) gather(soft context.Context, b *record.Batch) {
	if !r.unit && b.NumRows() < smallBatch && r.g.behind() {
		sleep(soft, gather)
	}
}

// backfill does what is due for snapshots, and reports whether the run has come to where it was to end.
func (r *reader) backfill(soft context.Context) (stop bool, err error) {
	b := r.g.back
	if b == nil {
		return r.atTip(soft)
	}
	moved, err := b.turn(soft)
	if err != nil && soft.Err() != nil {
		return false, nil //nolint:nilerr // a stop: what was read comes again
	}
	if err != nil {
		return false, err
	}
	if moved {
		r.idle = 0
	}
	r.reached = !r.unit && b.reached(r.last)
	if r.reached && !r.last.Zero() {
		err = b.mark(soft, r.last) // what was reached is saved, also where nothing came
	}
	return r.reached, err
}

// atEnd reports whether a read says that the source is done. Only the bare io.EOF does: one inside of another error is a connection
// that was cut, and taking it for the end would lose what follows.
func atEnd(err error) bool {
	return err == io.EOF //nolint:errorlint // see above
}

// drive turns the control plane of a source that has one, and reports whether it may be read (S19).
func (r *reader) drive() (bool, error) {
	if r.control == nil {
		return true, nil
	}
	ok := false
	err := r.v.call("reconcile", func() (err error) {
		r.control.DriveControl()
		ok, err = r.control.Reconciled()
		return err
	})
	if was := r.g.reconciled.Swap(ok); ok && !was {
		signal(r.g.inOrder)
	}
	if err != nil {
		return false, fmt.Errorf("source: its control plane: %w", err)
	}
	return ok, nil
}

// parked reports whether the run is paused and stands at the end of a replay unit (E10).
func (r *reader) parked(soft context.Context) bool {
	paused, _, _ := r.g.r.ctl.wanted()
	state := Running
	if paused && !r.unit {
		state = Paused
	}
	if soft.Err() == nil {
		r.g.r.ctl.move(state)
	}
	return state == Paused
}

// acknowledge tells the source of the newest saved position; always before the next read (S11).
func (r *reader) acknowledge(ctx context.Context) error {
	p, ok := r.g.box.take()
	if !ok || r.acks == nil {
		return nil
	}
	err := r.v.call("acknowledge", func() error { return r.acks.Acknowledge(ctx, p) })
	if err != nil {
		r.retired = true
		return fmt.Errorf("source: acknowledging %s: %w", p, err)
	}
	return nil
}

func (r *reader) read(ctx context.Context) (b *record.Batch, err error) {
	want := r.g.r.plan.Batch
	want.Rows = r.grid.limit(want.Rows)
	err = r.v.call("read", func() (err error) {
		b, err = r.src.Read(ctx, want)
		return err
	})
	r.grid.add(b)
	if err != nil && !atEnd(err) {
		r.retired = !r.g.r.contract.CancelSafe || !errors.Is(err, context.Canceled) || ctx.Err() == nil
		err = fmt.Errorf("source: %w", err)
	}
	return b, err
}

// wait returns when there may be something to do: data, an acknowledgement, a command, a stop, or after d.
func (r *reader) wait(soft context.Context, d time.Duration) {
	_, _, changed := r.g.r.ctl.wanted()
	t := time.NewTimer(d)
	defer t.Stop()
	ready := r.ready
	if paused, _, _ := r.g.r.ctl.wanted(); paused {
		ready = nil
	}
	var events <-chan event
	if r.g.back != nil {
		events = r.g.back.events
	}
	select {
	case e := <-events:
		r.g.back.waiting = append(r.g.back.waiting, e)
	case <-ready:
	case <-r.g.box.wake:
	case <-changed:
	case <-soft.Done():
	case <-t.C:
	}
}

// handle takes one batch from the source to the lanes.
func (r *reader) handle(ctx context.Context, b *record.Batch) error {
	if err := r.validate(b); err != nil {
		return err
	}
	b, err := r.trim(b)
	if err != nil {
		return err
	}
	name := ""
	if b.Schema != nil {
		name = b.Schema.Dataset
		size := b.Size
		if size == 0 && b.Rows != nil {
			size = b.Bytes()
		}
		r.g.r.ctl.dataset(name, func(d *DatasetStatus) {
			d.Rows += int64(b.NumRows())
			d.Bytes += size
			d.Changes += int64(b.Changes)
		})
	}
	if r.g.back == nil {
		err = r.emit(ctx, b)
	} else if b, err = r.clean(ctx, name, b); err == nil {
		err = r.g.back.change(ctx, b)
	}
	if err != nil {
		return err
	}
	r.unit = b.Position.Zero()
	if !r.unit {
		r.last = b.Position
	}
	return nil
}

// clean sets aside the rows that could not be read.
func (r *reader) clean(ctx context.Context, dataset string, b *record.Batch) (*record.Batch, error) {
	if len(b.Rejects) == 0 {
		return b, nil
	}
	now, later := r.g.r.setAside(ctx, r.g.r.bad, refuser{at: b.Position}, b.Rejects)
	if now != nil {
		return nil, now
	}
	if later != nil {
		r.later = later
	}
	r.g.r.ctl.dataset(dataset, func(d *DatasetStatus) { d.SetAside += int64(len(b.Rejects)) })
	clean := *b
	clean.Rejects = nil
	return &clean, nil
}

// emit takes a batch through the shared transforms into the lanes of the named sinks, or of all.
func (r *reader) emit(ctx context.Context, b *record.Batch, lanes ...string) error {
	name := ""
	if b.Schema != nil {
		name = b.Schema.Dataset
	}
	b, err := applySteps(r.g.r.plan.Source.Transforms, b)
	if err != nil {
		return fmt.Errorf("transforming %s: %w", name, err)
	}
	if b, err = r.clean(ctx, name, b); err != nil {
		return err
	}
	if len(r.g.lanes) > 1 {
		countNulls(b)
	}
	item := lane.Batch{Batch: b}
	if r.g.back != nil && !b.Position.Zero() {
		item.Ledger = string(r.g.back.merge.Ledger())
	}
	if err := r.g.stream.Publish(ctx, item, lanes...); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	return nil
}

// countNulls brings up to date what Arrow works out when it is first asked for, so that lanes can share the arrays.
func countNulls(b *record.Batch) {
	for _, rows := range []arrow.RecordBatch{b.Rows, b.Old} {
		if rows == nil {
			continue
		}
		for _, c := range rows.Columns() {
			countNullsOf(c)
		}
	}
}

func countNullsOf(a arrow.Array) {
	a.NullN()
	switch a := a.(type) {
	case array.ExtensionArray:
		countNullsOf(a.Storage())
	case array.ListLike:
		countNullsOf(a.ListValues())
	case *array.Struct:
		for i := range a.NumField() {
			countNullsOf(a.Field(i))
		}
	}
}

// applySteps runs a batch through transforms. A batch that one drops stays as a position without rows.
func applySteps(steps []transform.Step, b *record.Batch) (*record.Batch, error) {
	if b.Schema == nil {
		return b, nil
	}
	for i, s := range steps {
		out, err := s.Apply(b)
		if err != nil {
			return nil, err
		}
		if out != nil {
			for n := len(b.Rejects); n < len(out.Rejects); n++ { // they are the step's own: it has cloned the list
				out.Rejects[n].Step = i + 1
			}
		}
		if out == nil {
			return &record.Batch{Position: b.Position, Changes: b.Changes, Rejects: b.Rejects}, nil
		}
		b = out
	}
	return b, nil
}

// trim cuts a batch at the dataset's row limit.
func (r *reader) trim(b *record.Batch) (*record.Batch, error) {
	if r.budget == nil || b.Schema == nil {
		return b, nil
	}
	name := b.Schema.Dataset
	left, known := r.budget[name]
	if !known {
		left = r.g.r.plan.Limit
	}
	if n := int64(b.NumRows()); n > left {
		cut, err := b.Keep(func(i int) bool { return int64(i) < left })
		if err != nil {
			return nil, err
		}
		b = cut
	}
	r.budget[name] = left - int64(b.NumRows())
	r.finished = len(r.g.blue.names) > 0
	for _, n := range r.budget {
		r.finished = r.finished && n == 0
	}
	return b, nil
}

// validate checks what a source returned, so that its mistakes stop here (S6, S7).
func (r *reader) validate(b *record.Batch) error {
	fault := func(format string, args ...any) error {
		e := &connector.Error{
			Class: connector.ClassPermanent, Code: "engine.bad_batch", Doing: "checking what the source sent",
			Err: fmt.Errorf(format, args...), Hint: "this is a mistake in the source: please report it",
		}
		if b.Schema != nil {
			e.Dataset = b.Schema.Dataset
		}
		return e
	}
	if !b.Position.Zero() && !json.Valid(b.Position.Data) {
		return fault("position %q is no JSON", b.Position.Data)
	}
	if b.Schema == nil {
		if b.Rows != nil || len(b.Rejects) > 0 {
			return fault("rows without a schema")
		}
		return nil
	}
	if !r.checked[b.Schema] {
		if err := b.Schema.Validate(); err != nil {
			return fault("%w", err)
		}
		r.checked[b.Schema] = true
	}
	n := b.NumRows()
	if b.Encoded != nil && !r.asked(b) {
		return fault("rows in an encoding that nobody asked for")
	}
	if b.Rows != nil && int(b.Rows.NumCols()) != b.Schema.Columns.NumFields() {
		return fault("%d columns, and the schema has %d", b.Rows.NumCols(), b.Schema.Columns.NumFields())
	}
	if b.Ops != nil && len(b.Ops) != n {
		return fault("%d operations for %d rows", len(b.Ops), n)
	}
	if b.Old != nil && int(b.Old.NumRows()) != n {
		return fault("%d images before for %d rows", b.Old.NumRows(), n)
	}
	return r.oversize(b, n, fault)
}

// asked reports whether rows in the source's own encoding were asked for, and nothing comes with them that belongs to single rows.
func (r *reader) asked(b *record.Batch) bool {
	return slices.Contains(r.g.blue.encoded, b.Schema.Dataset) &&
		b.Rows == nil && b.Ops == nil && b.Old == nil && b.Txns == nil && len(b.Rejects) == 0
}

// oversize enforces the hard limits of a replay unit that can't be cut.
func (r *reader) oversize(b *record.Batch, n int, fault func(string, ...any) error) error {
	c, want := r.g.r.contract, r.g.r.plan.Batch
	if most := max(int64(want.Rows), c.MaxUnitRows); want.Rows > 0 && int64(n) > most {
		return fault("a batch of %d rows, and the contract allows %d", n, most)
	}
	if c.MaxUnitBytes > 0 && want.Bytes > 0 {
		if size, most := b.Bytes(), max(want.Bytes, c.MaxUnitBytes); size > most && n > 1 {
			return fault("a batch of %d bytes, and the contract allows %d", size, most)
		}
	}
	return nil
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Kind is what a simulated sink can do.
type Kind uint8

// The kinds.
const (
	Transactional Kind = iota // rows and position in one transaction
	KeyedTable                // upserts by key, durable on flush
	WholeFile                 // nothing shows before Finish
	AppendLog                 // appends, durable on flush; after a crash some unflushed rows are there
	TwoPhase                  // appends, prepared and published by epoch
)

// Sink is the configuration of a simulated sink, and the system behind it.
type Sink struct {
	World    *World
	Name     string
	Kind     Kind
	Refuses  map[int64]bool // rows that the target refuses
	OnWrite  func(b *record.Batch) error
	OnMap    func(s *record.Schema) ([]connector.Mapping, error)
	OnEvolve func(from, to *record.Schema) error
	OnCommit func() error // before the effect of commit, flush and finish
	Options  map[string]string
	RowGroup int // of its contract

	Rows     []Row // durable
	Progress record.Progress
	Has      bool
	Fence    uint64
	Finished int
	pending  *writing // the value whose rows are not durable
	epochs   epochs[[]Row]
}

// AddTo lets the world forget what the sink had not made durable when it crashes.
func (s *Sink) AddTo(w *World) *Sink {
	s.World = w
	w.restarts = append(w.restarts, func() {
		if p := s.pending; p != nil && s.Kind == AppendLog && len(p.rows) > 0 {
			s.Rows = append(s.Rows, p.rows[:w.rand.IntN(len(p.rows)+1)]...)
		}
		s.pending = nil
	})
	return s
}

// Contract implements connector.SinkConfig.
func (s *Sink) Contract() (connector.SinkContract, error) {
	c := connector.SinkContract{Modes: []connector.WriteMode{connector.Append}, Durable: true, NeedsKey: true, RowGroup: s.RowGroup}
	switch s.Kind {
	case Transactional:
		c.Atomicity = connector.PositionInTransaction
	case KeyedTable:
		c.Atomicity, c.Modes, c.Input = connector.KeyedWrites, []connector.WriteMode{connector.Upsert}, connector.Changelog
	case WholeFile:
		c.Atomicity = connector.Whole
	case TwoPhase:
		c.Atomicity = connector.TwoPhaseCommit
	case AppendLog:
	}
	return c, nil
}

// Identity implements connector.SinkConfig.
func (s *Sink) Identity() map[string]string { return s.Options }

// Open implements connector.SinkConfig.
func (s *Sink) Open(connector.Env) (connector.Sink, error) {
	w := &writing{cfg: s}
	switch s.Kind {
	case Transactional:
		return &struct {
			*writing
			committer
		}{w, committer{w}}, nil
	case WholeFile:
		return &struct {
			*writing
			finisher
		}{w, finisher{w}}, nil
	case TwoPhase:
		return &struct {
			*writing
			phases[[]Row]
		}{w, w.phases()}, nil
	case KeyedTable, AppendLog:
	}
	return w, nil
}

// writing is one generation of a sink.
type writing struct {
	cfg     *Sink
	fence   uint64
	run     string
	rows    []Row
	started bool
	closed  bool
	failed  bool
}

func (w *writing) use(what string) {
	if w.closed || w.failed || (!w.started && what != "map") {
		w.cfg.World.violateLocked("sink %s: %s on a value that is closed, failed or not started", w.cfg.Name, what)
	}
}

func (w *writing) event(what string, p record.Position) Event {
	e := Event{Who: w.cfg.Name, What: what}
	if !p.Zero() {
		e.At = p.String()
	}
	return e
}

// step runs one call. After an error the value is poisoned.
func (w *writing) step(ctx context.Context, what string, p record.Position, effect func() error) error {
	err := w.cfg.World.do(ctx, w.event(what, p), func() error {
		w.use(what)
		if w.fence < w.cfg.Fence {
			return &connector.Error{Class: connector.ClassFenced, Code: "sim.fenced", Err: errors.New("another owner took over")}
		}
		return effect()
	})
	var rows *connector.RowErrors
	if err != nil && !errors.As(err, &rows) {
		w.failed = true
	}
	return err
}

// Start implements connector.Sink.
func (w *writing) Start(ctx context.Context, s connector.SinkStart) error {
	w.fence, w.started, w.run = s.Fence, true, s.Run
	return w.step(ctx, "start", record.Position{}, func() error {
		if p := w.cfg.pending; p != nil && !p.closed {
			w.cfg.World.violateLocked("sink %s: a value was started while another one was open", w.cfg.Name)
		}
		w.cfg.Fence = s.Fence
		w.cfg.pending = w
		return nil
	})
}

// Map implements connector.Mapper.
func (w *writing) Map(_ context.Context, s *record.Schema) ([]connector.Mapping, error) {
	if w.cfg.OnMap == nil {
		return nil, nil
	}
	return w.cfg.OnMap(s)
}

// Evolve implements connector.Evolver.
func (w *writing) Evolve(ctx context.Context, from, to *record.Schema) error {
	return w.step(ctx, "evolve", record.Position{}, func() error {
		if w.cfg.OnEvolve == nil {
			return nil
		}
		return w.cfg.OnEvolve(from, to)
	})
}

// RejectsRows implements connector.RowRejecter.
func (*writing) RejectsRows() {}

// Write implements connector.Sink.
func (w *writing) Write(ctx context.Context, b *record.Batch) error {
	var refused []connector.RowError
	err := w.step(ctx, "write", b.Position, func() error {
		if w.cfg.Kind == TwoPhase {
			w.phases().writes()
		}
		if w.cfg.OnWrite != nil {
			if err := w.cfg.OnWrite(b); err != nil {
				return err
			}
		}
		for i := range b.NumRows() {
			r := Row{Dataset: b.Schema.Dataset, ID: b.Rows.Column(0).(*array.Int64).Value(i)} //nolint:forcetypeassert // by construction
			if !b.Rows.Column(1).IsNull(i) {
				r.Value = string(record.AppendText(nil, b.Rows.Column(1), i))
			}
			if w.cfg.Refuses[r.ID] {
				refused = append(refused, connector.RowError{Index: i, Reject: record.Reject{
					Dataset: r.Dataset, Key: b.KeyJSON(i), Class: "refused_by_sink", Message: "a constraint", Raw: b.RowJSON(i),
				}})
				continue
			}
			w.rows = append(w.rows, r)
		}
		return nil
	})
	if err == nil && len(refused) > 0 {
		return &connector.RowErrors{Rows: refused}
	}
	return err
}

// Flush implements connector.Sink.
func (w *writing) Flush(ctx context.Context) error {
	return w.step(ctx, "flush", record.Position{}, func() error {
		if w.cfg.Kind == TwoPhase {
			w.phases().violate("it publishes epochs, and was flushed")
		}
		if err := w.before(); err != nil {
			return err
		}
		w.keep()
		return nil
	})
}

func (w *writing) before() error {
	if w.cfg.OnCommit == nil {
		return nil
	}
	return w.cfg.OnCommit()
}

// keep makes durable what was written.
func (w *writing) keep() {
	for _, r := range w.rows {
		at := -1
		if w.cfg.Kind == KeyedTable {
			at = slices.IndexFunc(w.cfg.Rows, func(o Row) bool { return o.Dataset == r.Dataset && o.ID == r.ID })
		}
		if at >= 0 {
			w.cfg.Rows[at] = r
			continue
		}
		w.cfg.Rows = append(w.cfg.Rows, r)
	}
	w.rows = nil
}

// Close implements connector.Sink: what is not durable is gone, but for an append log, where some of it may be there.
func (w *writing) Close(context.Context) error {
	w.cfg.World.mu.Lock()
	defer w.cfg.World.mu.Unlock()
	if w.cfg.Kind == AppendLog && !w.closed && !w.cfg.World.crashed && len(w.rows) > 0 {
		w.cfg.Rows = append(w.cfg.Rows, w.rows[:w.cfg.World.rand.IntN(len(w.rows)+1)]...)
	}
	w.closed, w.rows = true, nil
	return nil
}

type committer struct{ w *writing }

// Commit implements connector.PositionStore.
func (c committer) Commit(ctx context.Context, p record.Progress) error {
	return c.w.step(ctx, "commit", p.Position, func() error {
		if err := c.w.before(); err != nil {
			return err
		}
		if c.w.cfg.Has && c.w.cfg.Progress.Run == p.Run && UnitsOf(p.Position) < UnitsOf(c.w.cfg.Progress.Position) {
			c.w.cfg.World.violateLocked("sink %s: back from %s to %s", c.w.cfg.Name, c.w.cfg.Progress.Position, p.Position)
		}
		c.w.keep()
		c.w.cfg.Progress, c.w.cfg.Has = p, true
		return nil
	})
}

// Committed implements connector.PositionStore.
func (c committer) Committed(ctx context.Context) (p record.Progress, has bool, err error) {
	err = c.w.step(ctx, "committed", record.Position{}, func() error {
		p, has = c.w.cfg.Progress, c.w.cfg.Has
		return nil
	})
	return p, has, err
}

func (w *writing) phases() phases[[]Row] {
	c := w.cfg
	return phases[[]Row]{epochs: &c.epochs, host: w, world: c.World, name: c.Name, progress: &c.Progress, has: &c.Has, place: UnitsOf}
}

func (w *writing) take() []Row {
	rows := w.rows
	w.rows = nil
	return rows
}

func (w *writing) written() bool { return len(w.rows) > 0 }

func (w *writing) show(rows []Row) { w.cfg.Rows = append(w.cfg.Rows, rows...) }

// Staged are the rows that are prepared, and neither published nor aborted.
func (s *Sink) Staged() []Row {
	var rows []Row
	for _, e := range s.epochs.staged() {
		rows = append(rows, e.What...)
	}
	return rows
}

type finisher struct{ w *writing }

// Finish implements connector.Finisher.
func (f finisher) Finish(ctx context.Context, p record.Progress) error {
	return f.w.step(ctx, "finish", p.Position, func() error {
		if err := f.w.before(); err != nil {
			return err
		}
		f.w.cfg.Rows = f.w.rows
		f.w.cfg.Finished++
		f.w.cfg.Progress, f.w.cfg.Has = p, true
		return nil
	})
}

// Check compares what is durable with what the source sent: nothing lost, nothing that was not sent, order kept, and, but for an
// append log, nothing doubled. It returns what is wrong.
func (s *Sink) Check(sent []Row) error {
	want := slices.DeleteFunc(slices.Clone(sent), func(r Row) bool { return s.Refuses[r.ID] })
	got := slices.Clone(s.Rows)
	if s.Kind == AppendLog { // first occurrences only
		seen := map[Row]bool{}
		got = slices.DeleteFunc(got, func(r Row) bool { was := seen[r]; seen[r] = true; return was })
	}
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("sink %s: row %v is missing (%d of %d)", s.Name, want[i], len(got), len(want))
		case i >= len(want):
			return fmt.Errorf("sink %s: row %v was not sent, or is there twice", s.Name, got[i])
		case want[i] != got[i]:
			return fmt.Errorf("sink %s: row %d is %v, want %v", s.Name, i, got[i], want[i])
		}
	}
	return nil
}

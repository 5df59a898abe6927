package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/records"
	"github.com/leatdata/leat/record"
)

// RecordSource is the configuration of a simulated source that is read record by record.
type RecordSource struct {
	World    *World
	Rows     []Row
	Ends     map[int]bool // how many rows units may end behind; the last row ends one, too
	Bounded  bool
	Datasets []string
	Released int                   // rows that were acknowledged
	Durable  func(rows int) string // why so many rows may not be released; empty: they may
}

var recordForm = records.Form{System: "sim-records", Shape: 1} //nolint:gochecknoglobals // a constant

type recordPlace struct {
	Rows int `json:"rows"`
}

// Contract implements connector.SourceConfig.
func (s *RecordSource) Contract() (connector.SourceContract, error) {
	return connector.SourceContract{Replay: connector.Deterministic, Bounded: s.Bounded}, nil
}

// Identity implements connector.SourceConfig.
func (*RecordSource) Identity() map[string]string { return nil }

// Open implements connector.SourceConfig.
func (s *RecordSource) Open(connector.Env) (connector.Source, error) {
	p := &polling{cfg: s, schemas: map[string]*record.Schema{}}
	for _, d := range s.Datasets {
		p.schemas[d] = Schema(d)
	}
	return records.FromRecords(p), nil
}

// polling is one generation of the source.
type polling struct {
	cfg     *RecordSource
	schemas map[string]*record.Schema
	at      int
	inside  bool
	closed  bool
}

var (
	_ records.Source         = (*polling)(nil)
	_ connector.Positions    = (*polling)(nil)
	_ connector.Acknowledger = (*polling)(nil)
	_ connector.Discoverer   = (*polling)(nil)
	_ connector.Tip          = (*polling)(nil)
)

// Discover implements connector.Discoverer.
func (p *polling) Discover(context.Context) ([]connector.Dataset, error) {
	var out []connector.Dataset
	for _, d := range p.cfg.Datasets {
		out = append(out, connector.Dataset{Name: d, Schema: p.schemas[d], Rows: -1, Bytes: -1})
	}
	return out, nil
}

// Seek implements records.Source.
func (p *polling) Seek(ctx context.Context, at record.Position) error {
	return p.cfg.World.do(ctx, Event{Who: "source", What: "start", At: at.String()}, func() error {
		var place recordPlace
		if !at.Zero() {
			if err := recordForm.Decode(at, &place); err != nil {
				return err
			}
		}
		p.at = place.Rows
		if p.at < p.cfg.Released {
			err := fmt.Errorf("%d rows were released, and the start is %d", p.cfg.Released, p.at)
			return &connector.Error{Class: connector.ClassPosition, Err: err}
		}
		return nil
	})
}

// Poll implements records.Source.
func (p *polling) Poll(ctx context.Context, row *records.Row) (ok bool, err error) {
	err = p.cfg.World.do(ctx, Event{Who: "source", What: "read"}, func() error {
		if p.at >= len(p.cfg.Rows) {
			return nil
		}
		r := p.cfg.Rows[p.at]
		p.at, ok = p.at+1, true
		row.Begin(p.schemas[r.Dataset], record.Insert)
		row.Int(0, r.ID)
		row.Text(1, r.Value)
		if p.inside = p.at < len(p.cfg.Rows) && !p.cfg.Ends[p.at]; p.inside {
			row.More()
		}
		return nil
	})
	if err == nil && !ok && p.cfg.Bounded {
		err = io.EOF
	}
	return ok, err
}

// Checkpoint implements records.Source.
func (p *polling) Checkpoint(context.Context) (record.Position, error) {
	if p.inside {
		p.cfg.World.Look(func() { p.cfg.World.violateLocked("source: asked for a position inside of a unit") })
	}
	return recordForm.Encode(recordPlace{p.at})
}

// Tip implements connector.Tip.
func (p *polling) Tip(context.Context) (record.Position, error) {
	return recordForm.Encode(recordPlace{len(p.cfg.Rows)})
}

// Acknowledge implements connector.Acknowledger.
func (p *polling) Acknowledge(ctx context.Context, at record.Position) error {
	return p.cfg.World.do(ctx, Event{Who: "source", What: "acknowledge", At: at.String()}, func() error {
		var place recordPlace
		if err := recordForm.Decode(at, &place); err != nil {
			return err
		}
		if why := p.cfg.Durable(place.Rows); why != "" || place.Rows > p.at {
			p.cfg.World.violateLocked("acknowledged %s behind %d: %s", at, p.at, why)
		}
		p.cfg.Released = max(p.cfg.Released, place.Rows)
		return nil
	})
}

// Compare implements connector.Positions.
func (*polling) Compare(a, b record.Position) (int, bool) {
	var x, y recordPlace
	if recordForm.Decode(a, &x) != nil || recordForm.Decode(b, &y) != nil {
		return 0, false
	}
	return x.Rows - y.Rows, true
}

// Migrate implements connector.Positions.
func (*polling) Migrate(p record.Position) (record.Position, error) {
	return p, recordForm.Decode(p, new(recordPlace))
}

// Close implements records.Source.
func (p *polling) Close(context.Context) error {
	if p.closed {
		p.cfg.World.Look(func() { p.cfg.World.violateLocked("source: closed twice") })
	}
	p.closed = true
	return nil
}

// RecordSink is the configuration of a simulated sink that is written to record by record.
type RecordSink struct {
	World        *World
	Name         string
	Transactions bool // else what was flushed is durable, and of the rest some may be
	RowGroup     int  // of its contract
	Rows         []Row
	Progress     record.Progress
	Has          bool
	Fence        uint64
	Aborted      int
	open         *putting
}

// AddTo lets the world forget what was not durable when it crashes.
func (s *RecordSink) AddTo(w *World) *RecordSink {
	s.World = w
	w.restarts = append(w.restarts, func() {
		if p := s.open; p != nil && !s.Transactions && len(p.rows) > 0 {
			s.Rows = append(s.Rows, p.rows[:w.rand.IntN(len(p.rows)+1)]...)
		}
		s.open = nil
	})
	return s
}

// Contract implements connector.SinkConfig.
func (s *RecordSink) Contract() (connector.SinkContract, error) {
	c := connector.SinkContract{Modes: []connector.WriteMode{connector.Append}, Durable: true, RowGroup: s.RowGroup}
	if s.Transactions {
		c.Atomicity = connector.PositionInTransaction
	}
	return c, nil
}

// Identity implements connector.SinkConfig.
func (*RecordSink) Identity() map[string]string { return nil }

// Open implements connector.SinkConfig.
func (s *RecordSink) Open(connector.Env) (connector.Sink, error) {
	p := &putting{cfg: s}
	if s.Transactions {
		return records.ToRecords(&transacting{p}), nil
	}
	return records.ToRecords(p), nil
}

// putting is one generation of a sink.
type putting struct {
	cfg   *RecordSink
	fence uint64
	rows  []Row
	began bool
}

// transacting is one with transactions.
type transacting struct{ *putting }

var (
	_ records.Sink       = (*putting)(nil)
	_ records.Transactor = (*transacting)(nil)
)

func (p *putting) step(ctx context.Context, what string, at record.Position, effect func() error) error {
	e := Event{Who: p.cfg.Name, What: what}
	if !at.Zero() {
		e.At = at.String()
	}
	return p.cfg.World.do(ctx, e, func() error {
		if p.fence < p.cfg.Fence {
			return &connector.Error{Class: connector.ClassFenced, Err: errors.New("another owner took over")}
		}
		return effect()
	})
}

// Start implements records.Sink.
func (p *putting) Start(ctx context.Context, s connector.SinkStart) error {
	p.fence = s.Fence
	return p.step(ctx, "start", record.Position{}, func() error {
		p.cfg.Fence, p.cfg.open = s.Fence, p
		return nil
	})
}

// Put implements records.Sink.
func (p *putting) Put(ctx context.Context, r records.Record) error {
	return p.step(ctx, "write", record.Position{}, func() error {
		if p.cfg.Transactions && !p.began {
			p.cfg.World.violateLocked("sink %s: put outside of a transaction", p.cfg.Name)
		}
		p.rows = append(p.rows, Row{Dataset: r.Schema().Dataset, ID: r.Int(0), Value: string(r.Bytes(1))})
		return nil
	})
}

// Flush implements records.Sink.
func (p *putting) Flush(ctx context.Context) error {
	return p.step(ctx, "flush", record.Position{}, func() error {
		p.cfg.Rows, p.rows = append(p.cfg.Rows, p.rows...), nil
		return nil
	})
}

// Close implements records.Sink.
func (p *putting) Close(context.Context) error {
	p.cfg.World.Look(func() {
		if !p.cfg.Transactions && !p.cfg.World.crashed && len(p.rows) > 0 {
			p.cfg.Rows = append(p.cfg.Rows, p.rows[:p.cfg.World.rand.IntN(len(p.rows)+1)]...)
		}
		p.rows = nil
	})
	return nil
}

// Begin implements records.Transactor.
func (t *transacting) Begin(ctx context.Context) error {
	return t.step(ctx, "begin", record.Position{}, func() error {
		if t.began || len(t.rows) > 0 {
			t.cfg.World.violateLocked("sink %s: begun twice", t.cfg.Name)
		}
		t.began = true
		return nil
	})
}

// Commit implements records.Transactor.
func (t *transacting) Commit(ctx context.Context, p record.Progress) error {
	return t.step(ctx, "commit", p.Position, func() error {
		if !t.began {
			t.cfg.World.violateLocked("sink %s: a commit without a transaction", t.cfg.Name)
		}
		t.cfg.Rows, t.rows, t.began = append(t.cfg.Rows, t.rows...), nil, false
		t.cfg.Progress, t.cfg.Has = p, true
		return nil
	})
}

// Abort implements records.Transactor.
func (t *transacting) Abort(ctx context.Context) error {
	return t.step(ctx, "abort", record.Position{}, func() error {
		t.rows, t.began = nil, false
		t.cfg.Aborted++
		return nil
	})
}

// Committed implements records.Transactor.
func (t *transacting) Committed(ctx context.Context) (p record.Progress, ok bool, err error) {
	err = t.step(ctx, "committed", record.Position{}, func() error {
		p, ok = t.cfg.Progress, t.cfg.Has
		return nil
	})
	return p, ok, err
}

// Check compares what is durable with what was sent, dataset by dataset: with transactions each row once, in order; without them nothing
// is lost, and the first of each row is in order.
func (s *RecordSink) Check(sent []Row) error {
	got := slices.Clone(s.Rows)
	if !s.Transactions {
		seen := map[Row]bool{}
		got = slices.DeleteFunc(got, func(r Row) bool { was := seen[r]; seen[r] = true; return was })
	}
	of := func(rows []Row, dataset string) []Row {
		return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Dataset != dataset })
	}
	for _, r := range slices.Concat(sent, got) {
		if want, have := of(sent, r.Dataset), of(got, r.Dataset); !slices.Equal(want, have) {
			return fmt.Errorf("sink %s: of %s it has %v, want %v", s.Name, r.Dataset, have, want)
		}
	}
	return nil
}

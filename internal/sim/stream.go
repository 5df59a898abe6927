package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Stream is the configuration of a source that follows a Database of one dataset, and the system behind it. The database goes on
// changing while it is read, until Writes transactions were made.
type Stream struct {
	World    *World
	DB       *Database
	Writes   int
	Released int                     // place up to which the log was released
	Durable  func(place int) string  // why so much may not be released; empty: it may
	Starts   []connector.SourceStart // all that were accepted
	schema   *record.Schema
	anchored bool
}

// NewStream returns a source over a database that has some rows already.
func NewStream(w *World, db *Database) *Stream {
	s := &Stream{World: w, DB: db, schema: Table("t")}
	for range db.Rand.IntN(30) {
		db.Commit()
	}
	db.Settle()
	return s
}

// Contract implements connector.SourceConfig.
func (*Stream) Contract() (connector.SourceContract, error) {
	return connector.SourceContract{Replay: connector.Deterministic, Input: connector.Changelog, Readers: 3, Conditions: true}, nil
}

// Identity implements connector.SourceConfig.
func (*Stream) Identity() map[string]string { return nil }

// Open implements connector.SourceConfig.
func (s *Stream) Open(connector.Env) (connector.Source, error) { return &following{cfg: s}, nil }

// following is one generation of the source. Its snapshots may be read concurrently.
type following struct {
	cfg       *Stream
	cuts      []int
	place     int
	part      int // changes of the transaction at place that were delivered
	delivered int
	failed    bool
}

var (
	_ connector.Acknowledger = (*following)(nil)
	_ connector.Positions    = (*following)(nil)
	_ connector.Anchor       = (*following)(nil)
	_ connector.Discoverer   = (*following)(nil)
	_ connector.Snapshotter  = (*following)(nil)
	_ connector.Merger       = (*following)(nil)
	_ connector.Tip          = (*following)(nil)
)

func (f *following) do(ctx context.Context, what, at string, effect func() error) error {
	return f.cfg.World.do(ctx, Event{Who: "source", What: what, At: at}, effect)
}

// Discover implements connector.Discoverer.
func (f *following) Discover(context.Context) ([]connector.Dataset, error) {
	return []connector.Dataset{{Name: "t", Schema: f.cfg.schema, Rows: -1, Bytes: -1}}, nil
}

// Anchor implements connector.Anchor.
func (f *following) Anchor(ctx context.Context) (p record.Position, err error) {
	err = f.do(ctx, "anchor", "", func() error {
		if !f.cfg.anchored {
			f.cfg.DB.Settle()
			f.cfg.anchored, f.cfg.Released = true, len(f.cfg.DB.Log)
		}
		p = Place(f.cfg.Released)
		return nil
	})
	return p, err
}

// Start implements connector.Source. What the position and the cuts have passed is visible from here on.
func (f *following) Start(ctx context.Context, s connector.SourceStart) error {
	if err := s.Validate(); err != nil {
		return err
	}
	return f.do(ctx, "start", s.From.Position.String(), func() error {
		f.place = PlaceOf(s.From.Position)
		f.delivered = f.place
		last := f.place
		for _, c := range s.Cuts {
			f.cuts = append(f.cuts, PlaceOf(c))
			last = max(last, PlaceOf(c))
		}
		for _, t := range f.cfg.DB.Log[:last] {
			t.Visible = true
		}
		f.cfg.Starts = append(f.cfg.Starts, s)
		if f.place < f.cfg.Released {
			return &connector.Error{
				Class: connector.ClassPosition, Code: "sim.released",
				Err: fmt.Errorf("%d was released, and the start is %d", f.cfg.Released, f.place),
			}
		}
		return nil
	})
}

// live lets the database go on.
func (s *Stream) live() {
	db := s.DB
	for range db.Rand.IntN(3) {
		switch {
		case s.Writes > 0 && db.Rand.IntN(40) == 0:
			db.Truncate()
		case s.Writes > 0:
			db.Commit()
		}
		s.Writes = max(s.Writes-1, 0)
	}
	for range db.Rand.IntN(4) {
		db.Show()
	}
	if s.Writes == 0 {
		db.Show()
	}
}

// Read implements connector.Source.
func (f *following) Read(ctx context.Context, _ connector.Limit) (b *record.Batch, err error) {
	err = f.do(ctx, "read", "", func() error {
		f.cfg.live()
		b = f.next()
		return nil
	})
	f.failed = f.failed || err != nil
	return b, err
}

// next takes several transactions, or a part of one.
func (f *following) next() *record.Batch {
	db := f.cfg.DB
	if f.place >= len(db.Log) {
		return nil
	}
	t := db.Log[f.place]
	left := t.Changes[f.part:]
	if len(left) > 1 && !left[0].Truncate && db.Rand.IntN(4) == 0 {
		f.part++
		return ChangeBatch(f.cfg.schema, f.place+1, []*Transaction{{XID: t.XID, Changes: left[:1]}})
	}
	txns, first := []*Transaction{{XID: t.XID, Changes: left}}, f.place+1
	f.place, f.part = f.place+1, 0
	for f.place < len(db.Log) && !db.Log[f.place].Changes[0].Truncate && !slices.Contains(f.cuts, f.place) && db.Rand.IntN(2) == 0 {
		txns = append(txns, db.Log[f.place])
		f.place++
	}
	b := ChangeBatch(f.cfg.schema, first, txns)
	b.Position, f.delivered = Place(f.place), f.place
	return b
}

// PlanChunks implements connector.Snapshotter.
func (f *following) PlanChunks(ctx context.Context, _ string, after []byte, _ int64) connector.ChunkSeq {
	return func(yield func(record.Chunk, error) bool) {
		from := json.RawMessage(after)
		for {
			c := record.Chunk{Dataset: "t", From: from}
			err := f.do(ctx, "plan", "", func() error {
				low := int64(-1)
				if from != nil {
					low = KeyBound(from)
				}
				if to := low + 1 + f.cfg.DB.Rand.Int64N(12); to < maxKey {
					c.To = json.RawMessage(strconv.FormatInt(to, 10))
				}
				return nil
			})
			if !yield(c, err) || err != nil || c.To == nil {
				return
			}
			from = c.To
		}
	}
}

// ReadChunk implements connector.Snapshotter.
func (f *following) ReadChunk(ctx context.Context, c record.Chunk, emit func(*record.Batch) error) error {
	var whole *record.Batch
	err := f.do(ctx, "snapshot", "", func() error {
		at := f.cfg.DB.Snap()
		whole = ChunkBatch(f.cfg.schema, at, InChunk(c, f.cfg.DB.Rows(at)))
		whole.Chunk.From, whole.Chunk.To, whole.Chunk.Keys, whole.Chunk.Where = c.From, c.To, c.Keys, c.Where
		return nil
	})
	if err != nil {
		return err
	}
	half := whole.NumRows() / 2
	for _, first := range []bool{true, false} {
		part, err := whole.Keep(func(i int) bool { return i < half == first })
		if err != nil {
			return err
		}
		if err := f.do(ctx, "rows", "", func() error { return nil }); err != nil {
			return err
		}
		if err := emit(part); err != nil {
			return err
		}
	}
	return nil
}

// Now implements connector.Merger.
func (f *following) Now(ctx context.Context) (p record.Position, err error) {
	err = f.do(ctx, "now", "", func() error {
		p, err = f.cfg.DB.Now(ctx)
		return err
	})
	return p, err
}

// Includes implements connector.Merger.
func (f *following) Includes(snapshot, txn record.Position) (is bool) {
	f.cfg.World.Look(func() { is = f.cfg.DB.Includes(snapshot, txn) })
	return is
}

// Outlived implements connector.Merger.
func (f *following) Outlived(snapshot, at record.Position) (is bool) {
	f.cfg.World.Look(func() { is = f.cfg.DB.Outlived(snapshot, at) })
	return is
}

// Locate implements connector.Merger.
func (f *following) Locate(ctx context.Context, s *record.Schema, rows arrow.RecordBatch, bounds []json.RawMessage) ([]int, error) {
	return f.cfg.DB.Locate(ctx, s, rows, bounds)
}

// KeyOf implements connector.Merger.
func (f *following) KeyOf(s *record.Schema, rows arrow.RecordBatch, i int) json.RawMessage {
	return f.cfg.DB.KeyOf(s, rows, i)
}

// Tip implements connector.Tip.
func (f *following) Tip(ctx context.Context) (p record.Position, err error) {
	err = f.do(ctx, "tip", "", func() error {
		p = Place(len(f.cfg.DB.Log))
		return nil
	})
	return p, err
}

// Acknowledge implements connector.Acknowledger. It notes what comes too early.
func (f *following) Acknowledge(ctx context.Context, p record.Position) error {
	err := f.do(ctx, "acknowledge", p.String(), func() error {
		n := PlaceOf(p)
		if n > f.delivered {
			return errors.New("a place that was never delivered")
		}
		if f.cfg.Durable != nil {
			if why := f.cfg.Durable(n); why != "" {
				f.cfg.World.violateLocked("acknowledged %d: %s", n, why)
			}
		}
		f.cfg.Released = max(f.cfg.Released, n)
		return nil
	})
	f.failed = f.failed || err != nil
	return err
}

// Compare implements connector.Positions.
func (*following) Compare(a, b record.Position) (int, bool) { return ComparePlaces(a, b) }

// Migrate implements connector.Positions.
func (*following) Migrate(p record.Position) (record.Position, error) { return p, nil }

// Close implements connector.Source.
func (*following) Close(context.Context) error { return nil }

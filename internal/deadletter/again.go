package deadletter

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/record"
)

// flight is the letters that were read and may still be refused, by the place of their batch.
type flight struct {
	mu      sync.Mutex
	batches map[int64][]Letter
}

func (f *flight) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = map[int64][]Letter{}
}

func (f *flight) add(place int64, letters []queued) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range letters {
		f.batches[place] = append(f.batches[place], l.Letter)
	}
}

func (f *flight) acknowledged(place int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := range f.batches {
		if at <= place {
			delete(f.batches, at)
		}
	}
}

// match takes the letter that a refused row was made of out of its batch: the same row, or else the same key, or the only one.
func (f *flight) match(r engine.Rejected) (Letter, bool) {
	place, err := placeOf(r.Position)
	if err != nil {
		return Letter{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	letters := f.batches[place]
	i := slices.IndexFunc(letters, func(l Letter) bool { return bytes.Equal(l.Raw, r.Raw) })
	if i < 0 && len(r.Key) > 0 {
		i = slices.IndexFunc(letters, func(l Letter) bool { return bytes.Equal(l.Key, r.Key) })
	}
	if i < 0 && len(letters) == 1 {
		i = 0
	}
	if i < 0 {
		return Letter{}, false
	}
	l := letters[i]
	f.batches[place] = slices.Delete(letters, i, i+1)
	return l, true
}

// Rejects is the reject store of the run that replays: what is refused once more stays the letter that it was, with the new reason.
// A row that no letter is found for becomes a new one. The store is not closed with it.
func (r *Replay) Rejects() engine.RejectStore { return again{r} }

type again struct{ r *Replay }

// Append implements engine.RejectStore.
func (a again) Append(ctx context.Context, rows []engine.Rejected) error {
	for _, row := range rows {
		row.Pipeline = a.r.pipeline
		if row.Sink == "" {
			row.Sink = a.r.sink // the transforms that the source applies are those before this sink
		}
		l, found := a.r.flight.match(row)
		if !found {
			if err := a.r.store.Append(ctx, []engine.Rejected{row}); err != nil {
				return err
			}
			continue
		}
		if l.Sink != "" {
			if err := a.refused(ctx, l, row); err != nil {
				return err
			}
			continue
		}
		row.Run, row.Line, row.Offset, row.Position, row.Epoch = l.Run, l.Line, l.Offset, l.Position, 0
		if row.Step > 0 { // of the source and of the sink in one list: it starts over with them, for this sink
			row.Step, row.Schema, row.Raw, row.Before = 0, nil, l.Raw, l.Before
			if err := a.refused(ctx, l, engine.Rejected{Time: row.Time, Reject: l.why(row.Reject)}); err != nil {
				return err
			}
			continue
		}
		if err := a.r.store.Append(ctx, []engine.Rejected{row}); err != nil { // the other sinks may take it
			return err
		}
	}
	return nil
}

// why is the letter's own row with a new reason.
func (l Letter) why(r record.Reject) record.Reject {
	out := l.Reject
	out.Column, out.Value, out.Class, out.Code, out.Message = r.Column, r.Value, r.Class, r.Code, r.Message
	return out
}

// refused notes the new reason, and takes the letter out of the queue.
func (a again) refused(ctx context.Context, l Letter, row engine.Rejected) error {
	return a.r.store.use(ctx, true, func(in *session) (err error) {
		end, err := sqlitex.ImmediateTransaction(in.conn)
		if err != nil {
			return err
		}
		defer end(&err)
		var columns any
		if row.Schema != nil {
			if columns, err = in.keepColumns(row.Schema); err != nil {
				return err
			}
		}
		err = exec(in.conn, `update letter set class = ?2, code = ?3, message = ?4, column = ?5, value = ?6, step = ?7,
			columns = coalesce(?8, columns), row = ?9, before = ?10, last = ?11, times = times + 1, asked = 0 where number = ?1`,
			l.Number, row.Class, row.Code, row.Message, row.Column, row.Value, int64(row.Step), columns, row.Raw,
			textOrNull(row.Before), row.Time.UnixMicro())
		if err != nil {
			return err
		}
		return exec(in.conn, "delete from queue where letter = ? and pipeline = ? and sink = ?", l.Number, a.r.pipeline, a.r.sink)
	})
}

// Flush implements engine.RejectStore.
func (a again) Flush(ctx context.Context) error { return a.r.store.Flush(ctx) }

// Forget implements engine.RejectStore.
func (a again) Forget(ctx context.Context, _, run, sink string, epoch uint64) error {
	return a.r.store.Forget(ctx, a.r.pipeline, run, sink, epoch)
}

// Close implements engine.RejectStore.
func (again) Close() error { return nil }

// join makes one batch of letters of one schema.
func join(letters []queued) (*record.Batch, error) {
	first := letters[0].Schema
	out := &record.Batch{Schema: first}
	rows, old := make([]arrow.RecordBatch, len(letters)), make([]arrow.RecordBatch, len(letters))
	images := false
	for i, l := range letters {
		b, err := l.Batch()
		if err != nil {
			return nil, err
		}
		rows[i], old[i], images = b.Rows, b.Old, images || b.Old != nil
		if l.Op != record.Insert && out.Ops == nil {
			out.Ops = make([]record.Op, len(letters))
		}
	}
	for i := range out.Ops {
		out.Ops[i] = letters[i].Op
	}
	var err error
	if out.Rows, err = concat(first.Columns, rows); err != nil || !images {
		return out, err
	}
	for i := range old {
		if old[i] == nil {
			if old[i], err = rowOf(first, []byte("{}")); err != nil {
				return nil, err
			}
		}
	}
	out.Old, err = concat(first.Columns, old)
	return out, err
}

func concat(s *arrow.Schema, rows []arrow.RecordBatch) (arrow.RecordBatch, error) {
	cols := make([]arrow.Array, s.NumFields())
	for c := range cols {
		parts := make([]arrow.Array, len(rows))
		for i, r := range rows {
			parts[i] = r.Column(c)
		}
		var err error
		if cols[c], err = array.Concatenate(parts, memory.DefaultAllocator); err != nil {
			return nil, err
		}
	}
	return array.NewRecordBatch(s, cols, int64(len(rows))), nil
}

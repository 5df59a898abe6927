package backfill

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/record"
)

// route splits the changes of one dataset for the lanes of one job: what it returns is delivered now, in order.
func (m *Merge) route(ctx context.Context, j *job, b *record.Batch) ([]*record.Batch, error) {
	var out []*record.Batch
	if empty := m.emptied(j, b); empty != nil {
		out = append(out, empty)
	}
	if b.NumRows() == 0 {
		if len(out) == 0 && !b.Truncate && !j.failed {
			out = append(out, b) // it announces a schema
		}
		return out, nil
	}
	rows := *b
	rows.Truncate = false
	return m.judge(ctx, j, &rows, out)
}

// judge takes changes apart by the states of their keys; what is delivered now is added to out.
func (m *Merge) judge(ctx context.Context, j *job, b *record.Batch, out []*record.Batch) ([]*record.Batch, error) {
	r := router{m: m, job: j, out: out}
	if err := r.locate(ctx, b); err != nil {
		return nil, err
	}
	if err := r.run(b); err != nil {
		return nil, err
	}
	return r.out, m.visible(ctx, r.dropped)
}

// emptied starts a job over where the dataset was truncated, or where its columns changed by more than additions: what was read does
// not count any more. It returns the batch that empties the dataset in the lanes, if there is one.
func (m *Merge) emptied(j *job, b *record.Batch) *record.Batch {
	last := j.seen
	j.seen, j.schema = b.Schema, b.Schema
	restart := b.Truncate
	if last != nil && last != b.Schema {
		d := record.Diff(last, b.Schema)
		restart = restart || ((len(d.Dropped)+len(d.Renamed)+len(d.Retyped) > 0 || otherKey(last, b.Schema)) && !j.untouched())
	}
	if !restart || j.failed {
		return nil
	}
	j.replan()
	j.truncate, j.refill = false, false
	m.dirty = true
	return &record.Batch{Schema: b.Schema, Truncate: true, Changes: changesOf(b.Truncate)}
}

// otherKey reports whether the keys are other columns, or in another order: chunks and keys of the one mean nothing for the other.
func otherKey(a, b *record.Schema) bool {
	if len(a.Key) != len(b.Key) {
		return true
	}
	for i := range a.Key {
		f, g := a.Columns.Field(a.Key[i]), b.Columns.Field(b.Key[i])
		if same := record.IDOf(f) != "" && record.IDOf(f) == record.IDOf(g); !same && f.Name != g.Name {
			return true
		}
	}
	return false
}

func changesOf(truncate bool) int {
	if truncate {
		return 1
	}
	return 0
}

// router takes one batch apart.
type router struct {
	m       *Merge
	job     *job
	at, was []int // segment of each row's key, and of the key before where it moved
	moved   []bool
	out     []*record.Batch
	dropped []record.Position // transactions of which something is let go, for the sake of a chunk that is yet to be read
}

// locate finds the segments of the keys.
func (r *router) locate(ctx context.Context, b *record.Batch) error {
	n, bounds := b.NumRows(), r.job.ends()
	r.moved = make([]bool, n)
	moves := false
	for i := range n {
		r.moved[i] = b.KeyMoved(i)
		moves = moves || r.moved[i]
	}
	if len(bounds) == 0 {
		r.at, r.was = make([]int, n), make([]int, n)
		return nil
	}
	find := func(rows arrow.RecordBatch) (at []int, err error) {
		at, err = r.m.src.Locate(ctx, b.Schema, rows, bounds)
		if err == nil && len(at) != n {
			err = fmt.Errorf("%d keys were located, of %d", len(at), n)
		}
		if err != nil {
			return nil, fmt.Errorf("locating keys of %s: %w", b.Schema.Dataset, err)
		}
		return at, nil
	}
	var err error
	if r.at, err = find(b.Rows); err != nil || !moves {
		return err
	}
	r.was, err = find(b.Old)
	return err
}

// verdict is what happens to a change. A delete in a refill is delivered at once, and later as long as its chunk has no such row: the
// lanes may have one that nothing else takes away.
type verdict struct {
	deliver bool
	wait    *segment // held for it
	drop    bool     // let go because a chunk that is yet to be read has it
}

// judge decides about one side of a change; gone: the key has no row any more.
func (r *router) judge(where *segment, txn record.Position, gone func() json.RawMessage) verdict {
	deletes := gone != nil && r.job.refill
	switch where.state {
	case planned:
		return verdict{drop: true, deliver: deletes}
	case reading:
		return verdict{wait: where, deliver: deletes}
	case published:
		if r.m.src.Includes(where.snapshot, txn) {
			return verdict{deliver: deletes && !where.has[string(gone())]}
		}
	case done:
	}
	return verdict{deliver: true}
}

// key returns how to find a row's key.
func (r *router) key(s *record.Schema, rows arrow.RecordBatch, i int) func() json.RawMessage {
	return func() json.RawMessage { return r.m.src.KeyOf(s, rows, i) }
}

// segment is where a key is.
func (r *router) segment(rows arrow.RecordBatch, b *record.Batch, i, at int) *segment {
	if len(r.job.points) > 0 {
		if p := r.job.point(r.m.src.KeyOf(b.Schema, rows, i)); p != nil {
			return p
		}
	}
	return r.job.segments[at]
}

// run judges row by row, and keeps neighbours with the same verdict together.
func (r *router) run(b *record.Batch) error {
	i := 0
	from, last := 0, verdict{}
	flush := func(to int) error {
		if to == from || (!last.deliver && last.wait == nil) {
			return nil
		}
		part, err := cut(b, from, to)
		if err != nil {
			return err
		}
		r.put(part, last)
		return nil
	}
	for _, t := range b.Txns {
		for range t.Rows {
			v, split := r.row(b, i, t.Position)
			if split || v != last {
				if err := flush(i); err != nil {
					return err
				}
				from, last = i, v
			}
			if split {
				if err := r.split(b, i, t.Position); err != nil {
					return err
				}
				from, last = i+1, verdict{}
			} else if v.drop {
				r.note(t.Position)
			}
			i++
		}
	}
	if i != b.NumRows() {
		return fmt.Errorf("%d rows of %s belong to no transaction", b.NumRows()-i, b.Schema.Dataset)
	}
	return flush(i)
}

// note remembers a transaction, once in a row.
func (r *router) note(txn record.Position) {
	if n := len(r.dropped); n == 0 || !r.dropped[n-1].Equal(txn) {
		r.dropped = append(r.dropped, txn)
	}
}

// row judges one row. split: its old and its new key are judged differently.
func (r *router) row(b *record.Batch, i int, txn record.Position) (v verdict, split bool) {
	here := r.segment(b.Rows, b, i, r.at[i])
	var gone func() json.RawMessage
	if b.Op(i) == record.Delete {
		gone = r.key(b.Schema, b.Rows, i)
	}
	v = r.judge(here, txn, gone)
	if !r.moved[i] {
		if v.deliver && b.Op(i) == record.Insert && incomplete(b, i) { // half of a changed key
			v = r.reopen(b, i)
		}
		return v, false
	}
	there := r.segment(b.Old, b, i, r.was[i])
	old := r.judge(there, txn, nil)
	if v == old && (v.deliver || !r.job.refill) {
		return v, false
	}
	return verdict{}, true
}

// split delivers a change of a key as a delete and an insert.
func (r *router) split(b *record.Batch, i int, txn record.Position) error {
	gone, come, err := halves(b, i)
	if err != nil {
		return err
	}
	old := r.judge(r.segment(b.Old, b, i, r.was[i]), txn, r.key(b.Schema, b.Old, i))
	r.put(gone, old)
	now := r.judge(r.segment(b.Rows, b, i, r.at[i]), txn, nil)
	if now.deliver && incomplete(b, i) {
		now = r.reopen(b, i)
	}
	r.put(come, now)
	if old.drop || now.drop {
		r.note(txn)
	}
	return nil
}

// reopen is the verdict on an insert with values that were not sent: the lanes may not have the row that they would come from, so that
// the key is read once more.
func (r *router) reopen(b *record.Batch, i int) verdict {
	r.job.reopen(r.m.src.KeyOf(b.Schema, b.Rows, i))
	r.m.dirty = true
	return verdict{drop: true}
}

// put delivers or holds a part.
func (r *router) put(b *record.Batch, v verdict) {
	if v.deliver {
		r.out = append(r.out, b)
	}
	if v.wait != nil {
		v.wait.held = append(v.wait.held, b)
	}
}

// visible waits until all the transactions are.
func (m *Merge) visible(ctx context.Context, txns []record.Position) error {
	wait := time.Millisecond
	for {
		unseen := txns[:0:0]
		for _, t := range txns {
			if m.now.Zero() || !m.src.Includes(m.now, t) {
				unseen = append(unseen, t)
			}
		}
		if len(unseen) == 0 {
			return nil
		}
		txns = unseen
		now, err := m.src.Now(ctx)
		if err != nil {
			return fmt.Errorf("looking which transactions are visible: %w", err)
		}
		fresh := !now.Equal(m.now)
		m.now = now
		if fresh {
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err() //nolint:wrapcheck // the caller's own
		}
		wait = min(2*wait, 100*time.Millisecond)
	}
}

// incomplete reports whether the source did not send some value of row i.
func incomplete(b *record.Batch, i int) bool {
	for col := range b.Unchanged {
		if b.IsUnchanged(col, i) {
			return true
		}
	}
	return false
}

// cut returns rows from to to, with the transactions that have rows among them.
func cut(b *record.Batch, from, to int) (*record.Batch, error) {
	if from == 0 && to == b.NumRows() {
		return counted(b), nil
	}
	part, err := b.Keep(func(i int) bool { return i >= from && i < to })
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the column
	}
	return counted(part), nil
}

// counted leaves transactions without rows out, and counts the changes by rows.
func counted(b *record.Batch) *record.Batch {
	out := *b
	out.Txns = nil
	for _, t := range b.Txns {
		if t.Rows > 0 {
			out.Txns = append(out.Txns, t)
		}
	}
	out.Changes, out.Rejects, out.Size = out.NumRows(), nil, 0
	return &out
}

// halves takes the change of a key in row i apart.
func halves(b *record.Batch, i int) (gone, come *record.Batch, err error) {
	row, err := cut(b, i, i+1)
	if err != nil {
		return nil, nil, err
	}
	g, c := *row, *row
	g.Rows, g.Old, g.Ops, g.Unchanged = row.Old, nil, []record.Op{record.Delete}, nil
	c.Old, c.Ops = nil, []record.Op{record.Insert}
	g.Changes, c.Changes = 0, 1
	return &g, &c, nil
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// datasetError is a failure that concerns one dataset of the lane.
type datasetError struct {
	name string
	err  error
}

func (e *datasetError) Error() string { return e.err.Error() }
func (e *datasetError) Unwrap() error { return e.err }

// write brings one batch into the sink. Rows in the source's own encoding are decoded where they can't go in as they are.
func (d *deliverer) write(ctx context.Context, b *record.Batch) error {
	err := d.bring(ctx, b)
	if b.Encoded == nil || !errors.Is(err, connector.ErrNeedsRows) {
		return err
	}
	rows, err := b.Decoded()
	if err != nil {
		return d.wrap(err)
	}
	return d.bring(ctx, rows)
}

// bring takes a batch through all that the sink needs: transforms, schema changes, values, rows.
func (d *deliverer) bring(ctx context.Context, b *record.Batch) error {
	if b.Schema == nil {
		return nil
	}
	name := b.Schema.Dataset
	if d.failed[name] || (d.only != nil && !d.only[name]) {
		return nil
	}
	in, err := d.inflow(ctx, b.Schema)
	if err != nil {
		return err
	}
	at, l := b.Position, in.layout
	if b.Encoded != nil && !l.encoded { // the columns are no longer those of the plan
		return connector.ErrNeedsRows
	}
	if in.frozen != nil && !sameSchema(in.in, b.Schema) {
		if b, err = d.keepColumns(ctx, in.frozen, b); err != nil || b == nil {
			return err
		}
		l = in.frozen.layout
	}
	if l.fit == nil {
		return nil
	}
	if b, err = applySteps(l.steps, b); err != nil {
		return d.wrap(fmt.Errorf("transforming %s: %w", name, err))
	}
	if err := d.reject(ctx, at, b.Rejects); err != nil || b.Schema == nil {
		return err
	}
	fit, err := l.fit.apply(d.keyed(l, b))
	if err != nil {
		return d.wrap(fmt.Errorf("fitting %s: %w", name, err))
	}
	if fit.altered > 0 {
		d.g.r.ctl.sink(d.spec.Name, func(s *SinkStatus) { s.Altered += fit.altered })
	}
	if err := d.reject(ctx, at, fit.rejects); err != nil {
		return err
	}
	b = fit.batch
	if b.NumRows() == 0 && !b.Truncate && in.sent != nil {
		return nil
	}
	return d.put(ctx, in, name, b)
}

// keyed puts the batch under the schema that the sink knows, which may have another key, and without what the lane has dealt with.
func (*deliverer) keyed(l *layout, b *record.Batch) *record.Batch {
	out := *b
	out.Rejects, out.Schema = nil, l.fit.out
	return &out
}

// put writes the batch and takes care of the rows that the target refused.
func (d *deliverer) put(ctx context.Context, in *inflow, name string, b *record.Batch) error {
	if !d.dirty {
		d.since = time.Now()
	}
	if err := d.intend(ctx); err != nil {
		return err
	}
	d.dirty = true
	err := d.v.call("write", func() error { return d.sink.Write(ctx, b) })
	refused := 0
	if rows, ok := errors.AsType[*connector.RowErrors](err); ok {
		refused, err = len(rows.Rows), nil
		rejects := make([]record.Reject, refused)
		for i, r := range rows.Rows {
			rejects[i] = rejectedRow(b, r)
		}
		if err := d.reject(ctx, b.Position, rejects); err != nil {
			return err
		}
	}
	if err != nil {
		return d.wrap(&datasetError{name, fmt.Errorf("writing %s: %w", b.Schema.Dataset, err)})
	}
	in.sent = b.Schema
	n, size := int64(b.NumRows()-refused), b.Bytes()
	d.bytes += size
	d.into, in.given = in, in.given+int64(b.NumRows())
	d.rows[name] += n
	d.g.r.ctl.sink(d.spec.Name, func(s *SinkStatus) {
		s.Rows += n
		s.Bytes += size
		s.ByDataset[name] += n
	})
	return nil
}

// rejectedRow is a row that the target refused, with all that the batch knows of it.
func rejectedRow(b *record.Batch, r connector.RowError) record.Reject {
	if r.Index < 0 || r.Index >= b.NumRows() {
		return r.Reject
	}
	out, why := b.Reject(r.Index), r.Reject
	out.Column, out.Value, out.Class, out.Code, out.Message = why.Column, why.Value, why.Class, why.Code, why.Message
	return out
}

// reject deals with rows that this sink can't take.
func (d *deliverer) reject(ctx context.Context, at record.Position, rows []record.Reject) error {
	now, later := d.g.r.setAside(ctx, d.bad, refuser{sink: d.spec.Name, epoch: d.epoch + 1, at: at}, rows)
	if now != nil {
		return now
	}
	if later != nil {
		d.later = later
	}
	if len(rows) == 0 {
		return nil
	}
	d.g.r.ctl.sink(d.spec.Name, func(s *SinkStatus) { s.SetAside += int64(len(rows)) })
	if d.phases == nil {
		return nil
	}
	if !d.dirty {
		d.since = time.Now()
	}
	d.dirty = true // the epoch that they belong to is published, though the sink got nothing
	return d.intend(ctx)
}

// inflow returns how a dataset goes into the sink. A schema that is new works it out again, and lets the sink follow (E15).
func (d *deliverer) inflow(ctx context.Context, s *record.Schema) (*inflow, error) {
	in := d.datasets[s.Dataset]
	if in == nil {
		if err := d.g.blue.errs[d.i][s.Dataset]; err != nil {
			return nil, d.wrap(&datasetError{s.Dataset, err})
		}
		in = &inflow{layout: d.g.blue.lanes[d.i][s.Dataset]}
		if d.g.resumes && in.layout != nil && !sameSchema(in.in, s) {
			in.layout = nil // the lane is behind the columns of today
		}
		d.datasets[s.Dataset] = in
		if err := d.thaw(ctx, in, s); err != nil {
			return nil, err
		}
	}
	if in.layout != nil && (in.in == s || sameSchema(in.in, s)) {
		in.in = s
		return in, d.first(ctx, in)
	}
	if frozen, err := d.changed(ctx, in, s); err != nil || frozen {
		return in, err
	}
	l, problems, err := d.remap(ctx, s)
	if err == nil {
		err = problemsError(problems)
	}
	if err != nil {
		return nil, d.wrap(&datasetError{s.Dataset, err})
	}
	if in.sent != nil && l.fit != nil && !sameSchema(in.sent, l.fit.out) {
		if err := d.evolve(ctx, in.sent, l.fit.out); err != nil {
			return nil, d.wrap(&datasetError{s.Dataset, fmt.Errorf("changing the schema of %s: %w", l.fit.out.Dataset, err)})
		}
	}
	in.layout = l
	return in, d.first(ctx, in)
}

func sameSchema(a, b *record.Schema) bool {
	if a == b {
		return true
	}
	if a.Dataset != b.Dataset || len(a.Key) != len(b.Key) || !a.Columns.Equal(b.Columns) {
		return false
	}
	for i := range a.Key {
		if a.Key[i] != b.Key[i] {
			return false
		}
	}
	return true
}

// remap asks the sink about a schema while it is written to: with a value of its own, as a started one can't be asked.
func (d *deliverer) remap(ctx context.Context, s *record.Schema) (*layout, []Problem, error) {
	v := d.g.r.newValue(ctx, d.spec.Name, d.g.r.shares.sink, d.g.broke)
	var asked connector.Sink
	err := v.call("open", func() (err error) {
		asked, err = d.spec.Config.Open(v.env(d.g.r.now))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	l, problems, err := newLayout(ctx, d.spec, d.offer, s, mapperOf(asked, v))
	return l, problems, errors.Join(err, v.release(d.g.r.plan.Drain, asked.Close))
}

// isolate lets one dataset fail alone: its rows are left out from here on, and the run ends with an error that names it. It must be
// possible to copy the dataset again as a whole, so nothing of it may be in the sink already, unless rows are written by key.
func (d *deliverer) isolate(ctx context.Context, err error) (bool, error) {
	var de *datasetError
	if !errors.As(err, &de) || !d.g.r.isolates(err, d.g.datasets()) || d.released || d.kind == whole {
		return false, nil
	}
	in := d.datasets[de.name]
	clean := (in == nil || !in.committed) && !d.g.r.resumed || d.g.back != nil // it is emptied before it is copied again
	if (!clean && d.offer.Mode != connector.Upsert) || (d.dirty && repeats(d.offer, d.kind)) {
		return false, nil
	}
	d.failed[de.name] = true
	if d.g.back != nil {
		d.g.back.lost(d.spec.Name, de.name, de.err)
		return true, nil
	}
	return true, d.g.r.lost(ctx, d.spec.Name, de.name, de.err)
}

// failed tells that a dataset failed for one sink while others go on.
func (r *runner) failed(sink, dataset string, err error) {
	r.log.Error("a dataset failed; the others go on",
		slog.String("sink", sink), slog.String("dataset", dataset), slog.Any("error", err))
	r.ctl.sink(sink, func(s *SinkStatus) { s.Failed[dataset] = err.Error() })
}

// lost saves that a dataset failed for one sink, before any position moves past its rows: no later run may take it for copied.
func (r *runner) lost(ctx context.Context, sink, dataset string, err error) error {
	r.failed(sink, dataset, err)
	return r.update(ctx, func(rec *state.Record) error {
		n, err := decodeNotes(rec.Progress.Ledger)
		if err != nil {
			return err
		}
		if n.Failed == nil {
			n.Failed = map[string][]string{}
		}
		n.Failed[sink] = append(n.Failed[sink], dataset)
		rec.Progress.Ledger = n.encode()
		return nil
	})
}

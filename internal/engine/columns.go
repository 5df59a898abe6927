package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/state"
)

// first lets the sink add, before the first row of a dataset that is followed, what its target lacks: what became of an earlier change
// of the columns is not known (C037).
func (d *deliverer) first(ctx context.Context, in *inflow) error {
	if in.sent != nil || in.fit == nil || in.checked || !d.g.r.follows() || d.evolver == nil {
		return nil
	}
	in.checked = true
	err := d.v.call("evolve", func() error { return d.evolver.Evolve(ctx, nil, in.fit.out) })
	if err != nil {
		return d.wrap(&datasetError{in.in.Dataset, fmt.Errorf("preparing the target of %s: %w", in.fit.out.Dataset, err)})
	}
	return nil
}

// changed applies the declared policy to columns that changed (E15). frozen: the target stays as it is.
func (d *deliverer) changed(ctx context.Context, in *inflow, s *record.Schema) (frozen bool, err error) {
	if in.layout == nil || !d.g.r.follows() {
		return false, nil
	}
	policy := d.spec.schemaPolicy(s.Dataset)
	if in.frozen != nil && in.frozen.from == s {
		return true, nil
	}
	in.frozen = nil
	if policy == Evolve {
		return false, nil
	}
	diff := record.Diff(in.in, s)
	if diff.Empty() {
		return false, nil
	}
	if policy == FailSchema {
		return false, d.wrap(&datasetError{s.Dataset, &connector.Error{
			Class: connector.ClassPermanent, Code: "engine.schema_changed", Dataset: s.Dataset, Doing: "following the columns",
			Err:  fmt.Errorf("the columns changed (%s), and the policy is fail", describe(diff)),
			Hint: "declare another policy for it: --schema " + s.Dataset + "=evolve",
		}})
	}
	if err := d.freeze(ctx, in, in.in, s); err != nil {
		return false, err
	}
	return true, d.g.r.froze(ctx, d.spec.Name, s.Dataset, in.in.Names())
}

// schemaPolicy is what happens when the columns of a dataset change.
func (s SinkSpec) schemaPolicy(dataset string) SchemaPolicy {
	if p, ok := s.Schema[dataset]; ok {
		return p
	}
	return s.Schema["*"]
}

// freeze works out what a target with the columns of was takes of s: with the policy ignore the columns that it has, else nothing.
func (d *deliverer) freeze(ctx context.Context, in *inflow, was, s *record.Schema) error {
	f := &frozenColumns{from: s, change: describe(record.Diff(was, s))}
	if d.spec.schemaPolicy(s.Dataset) == IgnoreSchema {
		var err error
		if f.columns, f.schema, err = kept(was, s); err != nil {
			return d.wrap(&datasetError{s.Dataset, err})
		}
		var ps []Problem
		if f.layout, ps, err = d.remap(ctx, f.schema); err == nil {
			err = problemsError(ps)
		}
		if err != nil {
			return d.wrap(&datasetError{s.Dataset, err})
		}
	}
	in.frozen = f
	return nil
}

// thaw takes up what an earlier process has frozen, unless the policy is another one now.
func (d *deliverer) thaw(ctx context.Context, in *inflow, s *record.Schema) error {
	names, ok := d.frozen[s.Dataset]
	policy := d.spec.schemaPolicy(s.Dataset)
	if !ok || !d.g.r.follows() {
		return nil
	}
	if policy != IgnoreSchema && policy != SetAsideSchema {
		delete(d.frozen, s.Dataset)
		return d.g.r.froze(ctx, d.spec.Name, s.Dataset, nil)
	}
	var fields []arrow.Field
	for _, f := range s.Columns.Fields() {
		if slices.Contains(names, f.Name) {
			fields = append(fields, f)
		}
	}
	was := &record.Schema{Dataset: s.Dataset, Columns: arrow.NewSchema(fields, nil)}
	if len(fields) == len(names) && len(fields) == s.Columns.NumFields() {
		return nil // they are the same again
	}
	in.layout = &layout{in: was}
	return d.freeze(ctx, in, was, s)
}

// froze saves which columns a target keeps; nil: it follows.
func (r *runner) froze(ctx context.Context, sink, dataset string, names []string) error {
	return r.update(ctx, func(rec *state.Record) error {
		n, err := decodeNotes(rec.Progress.Ledger)
		if err != nil {
			return err
		}
		if n.Frozen == nil {
			n.Frozen = map[string]map[string][]string{}
		}
		if n.Frozen[sink] == nil {
			n.Frozen[sink] = map[string][]string{}
		}
		if n.Frozen[sink][dataset] = names; names == nil {
			delete(n.Frozen[sink], dataset)
		}
		rec.Progress.Ledger = n.encode()
		return nil
	})
}

// describe says what changed, in words.
func describe(d record.Difference) string {
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"added", d.Added}, {"dropped", d.Dropped}, {"of another type", d.Retyped}} {
		if len(p.names) > 0 {
			parts = append(parts, p.what+": "+strings.Join(p.names, ", "))
		}
	}
	for _, r := range d.Renamed {
		parts = append(parts, r.From+" renamed to "+r.To)
	}
	return strings.Join(parts, "; ")
}

// frozenColumns are the columns that a target keeps though those of its dataset changed.
type frozenColumns struct {
	from    *record.Schema
	change  string
	schema  *record.Schema // what is written of them; nil: rows are set aside
	columns []int          // the columns of from that are written
	layout  *layout
}

// keepColumns brings a batch of the new columns to those that the target has, or sets its rows aside; nil: nothing is left to write.
func (d *deliverer) keepColumns(ctx context.Context, f *frozenColumns, b *record.Batch) (*record.Batch, error) {
	if f.schema == nil {
		rejects := make([]record.Reject, b.NumRows())
		for i := range rejects {
			rejects[i] = b.Reject(i)
			rejects[i].Class = "schema_changed"
			rejects[i].Message = "the columns changed (" + f.change + "), and the policy is set_aside"
		}
		return nil, d.reject(ctx, b.Position, rejects)
	}
	out := *b
	out.Schema = f.schema
	out.Rows, out.Old = pick(b.Rows, f), pick(b.Old, f)
	out.Unchanged = nil
	for i, c := range f.columns {
		if bits, ok := b.Unchanged[c]; ok {
			if out.Unchanged == nil {
				out.Unchanged = map[int][]uint64{}
			}
			out.Unchanged[i] = bits
		}
	}
	return &out, nil
}

// kept chooses the columns of s that a target with the columns of was takes as they are.
func kept(was, s *record.Schema) (columns []int, out *record.Schema, err error) {
	diff := record.Diff(was, s)
	var fields []arrow.Field
	for i, f := range s.Columns.Fields() {
		if was.Column(f.Name) >= 0 && !slices.Contains(diff.Added, f.Name) && !slices.Contains(diff.Retyped, f.Name) {
			columns, fields = append(columns, i), append(fields, f)
		}
	}
	out, err = (&record.Schema{Dataset: s.Dataset, Columns: arrow.NewSchema(fields, nil), Version: s.Version}).WithKey(s.KeyNames()...)
	return columns, out, err //nolint:wrapcheck // it names dataset and column
}

func pick(rb arrow.RecordBatch, f *frozenColumns) arrow.RecordBatch {
	if rb == nil {
		return nil
	}
	arrays := make([]arrow.Array, len(f.columns))
	for i, c := range f.columns {
		arrays[i] = rb.Column(c)
	}
	return array.NewRecordBatch(f.schema.Columns, arrays, rb.NumRows())
}

func (d *deliverer) evolve(ctx context.Context, from, to *record.Schema) error {
	if d.evolver == nil {
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "engine.schema_changed", Dataset: to.Dataset,
			Err:  errors.New("the columns changed, and this sink can't change what it holds"),
			Hint: "select the columns with a transform, or write to a new place",
		}
	}
	return d.v.call("evolve", func() error { return d.evolver.Evolve(ctx, from, to) })
}

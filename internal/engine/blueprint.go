package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// blueprint is what is known of a plan's datasets before the first row.
type blueprint struct {
	datasets []connector.Dataset
	names    []string             // datasets to read: those that no transform drops; nil: the source can't say
	schemas  []*record.Schema     // behind the shared transforms, in the order of names
	lanes    []map[string]*layout // for each sink, by dataset as the lane carries it
	bySource map[string]string    // dataset of the source by dataset of the lane
	errs     []map[string]error   // for each sink, datasets that it can't take at all
	encoded  []string             // datasets to read in the source's own encoding
	down     []error              // for each sink, why it could not be asked: its lane is durable, and waits for it
}

// plans discovers the datasets and works out how each goes into each sink. Problems are what stands against the plan; all are found
// at once. One dataset of many that a sink can't take at all is no problem of the others (C064): it is left to fail alone.
func (r *runner) plans(ctx context.Context, src connector.Source, v *value, ask []asked) (*blueprint, []Problem, error) {
	r.refill = r.refills(src)
	b := &blueprint{bySource: map[string]string{}, down: make([]error, len(r.plan.Sinks))}
	for range r.plan.Sinks {
		b.lanes = append(b.lanes, map[string]*layout{})
		b.errs = append(b.errs, map[string]error{})
	}
	d, ok := connector.As[connector.Discoverer](src)
	if !ok {
		return b, nil, nil
	}
	err := v.call("discover", func() (err error) {
		b.datasets, err = d.Discover(ctx)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("source: %w", err)
	}
	problems := r.planDatasets(b)
	for i, spec := range r.plan.Sinks {
		for _, s := range b.schemas {
			l, ps, err := newLayout(ctx, spec, r.offers[i], s, ask[i].maps)
			switch {
			case err != nil && connector.ClassOf(err) == connector.ClassTransient && r.waitsFor(spec.Name):
				b.down[i], b.lanes[i], b.errs[i] = err, map[string]*layout{}, map[string]error{}
			case err != nil && r.isolates(err, len(b.schemas)):
				b.errs[i][s.Dataset] = err
			case err != nil:
				return nil, nil, fmt.Errorf("sink %q: planning %s: %w", spec.Name, s.Dataset, err)
			case l != nil:
				b.lanes[i][s.Dataset] = l
			}
			problems = append(problems, ps...)
			if b.down[i] != nil {
				break
			}
		}
		if b.down[i] != nil {
			continue
		}
		problems = append(problems, r.collisions(b, i)...)
		problems = append(problems, unusedPolicies(spec, b.lanes[i])...)
	}
	return b, problems, r.encodings(ctx, b, endpoints{src, v, ask})
}

// waitsFor reports whether a sink that is not there has a durable lane that waits for it: it has worked before.
func (r *runner) waitsFor(sink string) bool {
	_, ok := r.before.Lanes[sink]
	return ok && r.before.Stream != ""
}

// planDatasets passes what was discovered through the shared transforms.
func (r *runner) planDatasets(b *blueprint) []Problem {
	var problems []Problem
	if len(b.datasets) == 0 {
		return []Problem{{Code: "plan.empty", Message: "the source selects no dataset", Hint: "leat preview SOURCE shows what there is"}}
	}
	for _, d := range b.datasets {
		r.ctl.dataset(d.Name, func(s *DatasetStatus) { s.TotalRows, s.TotalBytes = d.Rows, d.Bytes })
		if d.Schema == nil {
			b.names = append(b.names, d.Name)
			continue
		}
		if err := d.Schema.Validate(); err != nil {
			problems = append(problems, Problem{Code: "plan.schema", Dataset: d.Name, Message: err.Error()})
			continue
		}
		s, err := transformed(r.plan.Source.Transforms, d.Schema)
		if err != nil {
			problems = append(problems, Problem{Code: "plan.transform", Dataset: d.Name, Message: err.Error()})
			continue
		}
		if s == nil {
			continue
		}
		if other, taken := b.bySource[s.Dataset]; taken && !sameColumns(b.schemas, s) {
			problems = append(problems, collision("", other, d.Name, s.Dataset))
			continue
		}
		b.bySource[s.Dataset] = d.Name
		b.names = append(b.names, d.Name)
		b.schemas = append(b.schemas, s)
	}
	if len(b.names) == 0 && len(problems) == 0 {
		problems = append(problems, Problem{Code: "plan.empty", Message: "the transforms drop every dataset"})
	}
	return problems
}

func sameColumns(known []*record.Schema, s *record.Schema) bool {
	return !slices.ContainsFunc(known, func(k *record.Schema) bool { return k.Dataset == s.Dataset && columnsText(k) != columnsText(s) })
}

func collision(sink, a, b, name string) Problem {
	return Problem{
		Code: "plan.collision", Sink: sink, Dataset: name,
		Message: fmt.Sprintf("%s and %s both become it, with different columns", a, b), Hint: "route them to different names",
	}
}

// collisions are datasets that a sink's transforms bring together though their columns differ.
func (r *runner) collisions(b *blueprint, i int) []Problem {
	var ps []Problem
	seen := map[string]*layout{}
	for _, name := range slices.Sorted(maps.Keys(b.lanes[i])) {
		l := b.lanes[i][name]
		if l.fit == nil {
			continue
		}
		other, taken := seen[l.fit.out.Dataset]
		if taken && columnsText(other.fit.out) != columnsText(l.fit.out) {
			ps = append(ps, collision(r.plan.Sinks[i].Name, other.in.Dataset, name, l.fit.out.Dataset))
		}
		seen[l.fit.out.Dataset] = l
	}
	return ps
}

// unusedPolicies are policies for columns that no dataset has: most likely a typing mistake.
func unusedPolicies(spec SinkSpec, layouts map[string]*layout) []Problem {
	known := map[string]bool{"*": true}
	for _, l := range layouts {
		if l.fit == nil {
			continue
		}
		for _, c := range l.fit.out.Names() {
			known[c], known[l.fit.out.Dataset+"."+c] = true, true
		}
	}
	if len(known) == 1 {
		return nil
	}
	var ps []Problem
	for _, k := range slices.Sorted(maps.Keys(spec.Schema)) {
		if _, ok := layouts[k]; !ok && k != "*" {
			err := connector.UnknownName("dataset", k, slices.Sorted(maps.Keys(layouts)))
			message := "a policy for its columns is declared for an " + err.Error()
			ps = append(ps, Problem{Code: "plan.policy", Sink: spec.Name, Message: message})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(spec.Policies)) {
		if !known[k] {
			err := connector.UnknownName("column", k, slices.Collect(maps.Keys(known)))
			ps = append(ps, Problem{Code: "plan.policy", Sink: spec.Name, Message: "a policy is declared for an " + err.Error()})
		}
	}
	return ps
}

// sourcesOf names the source's datasets of a repairing run, in order.
func (b *blueprint) sourcesOf(only map[string][]string) []string {
	var names []string
	for _, list := range only {
		for _, d := range list {
			if s, ok := b.bySource[d]; ok {
				d = s
			}
			names = append(names, d)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (r *runner) modes() []connector.WriteMode {
	ms := make([]connector.WriteMode, len(r.offers))
	for i, o := range r.offers {
		ms[i] = o.Mode
	}
	return ms
}

// isolates reports whether a failure of one dataset may be left to it alone: there are others, the run copies the datasets whole, so
// that the failed one can be copied again, and the failure is one of the dataset and not of the sink.
func (r *runner) isolates(err error, datasets int) bool {
	copies := r.contract.Bounded && !r.contract.Incremental && r.contract.Input == connector.AppendOnly
	if datasets < 2 || (!copies && !r.refill) {
		return false
	}
	class := connector.ClassOf(err)
	// Of a dataset that joins or changes while nobody looks, what stands against it is found only then.
	return class == connector.ClassPermanent || (r.refill && class == connector.ClassConfig)
}

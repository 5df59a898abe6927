package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/transform"
)

// layout is how one dataset goes into one sink.
type layout struct {
	in     *record.Schema // what the lane carries
	steps  []transform.Step
	fit    *fitter // nil: the sink's transforms drop the dataset
	report DatasetReport
	// encoded: rows come in the source's own encoding, and go into the sink as they are
	encoded bool
}

// mapper asks a sink how it will store a schema; nil where the sink stores everything as it comes.
type mapper func(ctx context.Context, s *record.Schema) ([]connector.Mapping, error)

// newLayout works out how a dataset goes into a sink, and all that stands against it. Only what went wrong while asking the sink
// is an error.
func newLayout(ctx context.Context, spec SinkSpec, offer SinkOffer, in *record.Schema, ask mapper) (*layout, []Problem, error) {
	l := &layout{in: in, steps: spec.Transforms, report: DatasetReport{Dataset: in.Dataset}}
	s, err := transformed(spec.Transforms, in)
	if err != nil {
		p := Problem{Code: "plan.transform", Sink: spec.Name, Dataset: in.Dataset, Message: err.Error()}
		return nil, []Problem{p}, nil //nolint:nilerr // it is a problem among others
	}
	if s == nil {
		return l, nil, nil
	}
	s, ps := withKey(spec, offer, in, s)
	if len(ps) > 0 {
		return nil, ps, nil
	}
	ms, err := mappings(ctx, s, ask)
	if err != nil {
		return nil, nil, err
	}
	policies, text, ps := choosePolicies(spec, s, ms)
	if len(ps) > 0 {
		return nil, ps, nil
	}
	if len(text) > 0 {
		s = textSchema(s, text)
		if ms, err = mappings(ctx, s, ask); err != nil {
			return nil, nil, err
		}
		if policies, _, ps = choosePolicies(spec.failing(s, text), s, ms); len(ps) > 0 {
			return nil, ps, nil
		}
	}
	if l.fit, err = newFitter(s, text, ms, policies); err != nil {
		p := Problem{Code: "plan.schema", Sink: spec.Name, Dataset: s.Dataset, Message: err.Error()}
		return nil, []Problem{p}, nil //nolint:nilerr // it is a problem among others
	}
	l.report = reportOf(l.fit.out, ms, policies)
	for _, c := range text {
		l.report.Columns[c].Policy = connector.PolicyText
	}
	return l, nil, nil
}

// transformed passes a schema through the steps; nil: they drop it.
func transformed(steps []transform.Step, s *record.Schema) (*record.Schema, error) {
	var err error
	for _, step := range steps {
		if s, err = step.Schema(s); err != nil || s == nil {
			return nil, err
		}
	}
	return s, s.Validate()
}

// withKey gives a schema the key that the plan declares, and checks that there is one where the mode needs it (E6).
func withKey(spec SinkSpec, offer SinkOffer, in, s *record.Schema) (*record.Schema, []Problem) {
	key := spec.Key
	for _, name := range []string{in.Dataset, s.Dataset} {
		if k, ok := spec.Keys[name]; ok {
			key = k
		}
	}
	if len(key) > 0 {
		keyed, err := s.WithKey(key...)
		if err != nil {
			return nil, []Problem{{
				Code: "plan.key", Sink: spec.Name, Dataset: s.Dataset, Message: err.Error(), Hint: "--key takes names of columns",
			}}
		}
		if offer.Input > connector.AppendOnly && len(s.Key) > 0 && !slices.Equal(s.Key, keyed.Key) {
			return nil, []Problem{{
				Code: "plan.key", Sink: spec.Name, Dataset: s.Dataset,
				Message: fmt.Sprintf("its changes say which row they mean by %s, and the key is to be %s",
					strings.Join(s.KeyNames(), ", "), strings.Join(keyed.KeyNames(), ", ")),
				Hint: "leave the key out; another one needs full images before a change (REPLICA IDENTITY FULL and no primary key)",
			}}
		}
		s = keyed
	}
	byImage := offer.Input == connector.Changelog && offer.Contract.Keyless
	if offer.Mode == connector.Upsert && offer.Contract.NeedsKey && len(s.Key) == 0 && !byImage {
		return nil, []Problem{{
			Code: "plan.no_key", Sink: spec.Name, Dataset: s.Dataset,
			Message: "mode upsert needs a key on every dataset, and this one has none",
			Hint:    "name the columns that identify a row with --key, or use mode append",
		}}
	}
	return s, nil
}

// mappings returns a mapping for each column, in order.
func mappings(ctx context.Context, s *record.Schema, ask mapper) ([]connector.Mapping, error) {
	out := make([]connector.Mapping, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		out[i] = connector.Mapping{Column: f.Name, Native: f.Type.String()}
	}
	if ask == nil {
		return out, nil
	}
	ms, err := ask(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, m := range ms {
		i := s.Column(m.Column)
		if i < 0 {
			return nil, fmt.Errorf("the sink mapped a column %q that %s does not have", m.Column, s.Dataset)
		}
		out[i] = m
	}
	return out, nil
}

// policyOf looks up what the plan says of a column; false: nothing.
func (s SinkSpec) policyOf(dataset, column string) (connector.Policy, bool) {
	for _, k := range []string{dataset + "." + column, column} {
		if p, ok := s.Policies[k]; ok {
			return p, true
		}
	}
	return 0, false
}

// failing is the spec without the policies of columns that have become text: what does not fit as text either fails, unless a
// policy for all columns helps.
func (s SinkSpec) failing(schema *record.Schema, text []int) SinkSpec {
	s.Policies = maps.Clone(s.Policies)
	for _, c := range text {
		name := schema.Columns.Field(c).Name
		delete(s.Policies, name)
		delete(s.Policies, schema.Dataset+"."+name)
	}
	if s.Policies["*"] == connector.PolicyText {
		delete(s.Policies, "*")
	}
	return s
}

// choosePolicies decides the policy of each column, and which columns become text.
func choosePolicies(spec SinkSpec, s *record.Schema, ms []connector.Mapping) ([]connector.Policy, []int, []Problem) {
	policies := make([]connector.Policy, len(ms))
	var text []int
	var ps []Problem
	for i, m := range ms {
		p, explicit := spec.policyOf(s.Dataset, m.Column)
		if all, ok := spec.Policies["*"]; !explicit && ok && slices.Contains(m.Policies, all) {
			p, explicit = all, true
		}
		if problem := policyProblem(m, p, explicit, slices.Contains(s.Key, i)); problem != nil {
			problem.Sink, problem.Dataset, problem.Column = spec.Name, s.Dataset, m.Column
			ps = append(ps, *problem)
			continue
		}
		policies[i] = p
		if p == connector.PolicyText {
			text = append(text, i)
			policies[i] = connector.PolicyFail
		}
	}
	return policies, text, ps
}

func policyProblem(m connector.Mapping, p connector.Policy, explicit, key bool) *Problem {
	allowed := make([]string, len(m.Policies))
	for i, a := range m.Policies {
		allowed[i] = a.String()
	}
	hint := "no policy helps; leave the column out with a transform, or choose another sink"
	if len(allowed) > 0 {
		hint = fmt.Sprintf("declare a policy for it: --policy %s=%s", m.Column, strings.Join(allowed, "|"))
	}
	switch {
	case m.Fidelity == connector.Inexact && !explicit:
		text := "it can't be stored exactly" + into(m.Native) + because(m.Why)
		return &Problem{Code: "plan.inexact", Hint: hint, Message: text}
	case !explicit || p == connector.PolicyFail && m.Fidelity != connector.Inexact:
		return nil
	case m.Fidelity == connector.Exact && (p == connector.PolicyText || m.Limits.Zero()):
		return nil // nothing can misfit
	case !slices.Contains(m.Policies, p):
		return &Problem{Code: "plan.policy", Hint: hint, Message: fmt.Sprintf("policy %s does not help it%s", p, because(m.Why))}
	case key && p != connector.PolicyText:
		return &Problem{
			Code: "plan.policy", Message: fmt.Sprintf("policy %s would change a key column", p), Hint: "use policy text or fail for it",
		}
	}
	return nil
}

func into(native string) string {
	if native == "" {
		return ""
	}
	return " as " + native
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func reportOf(s *record.Schema, ms []connector.Mapping, policies []connector.Policy) DatasetReport {
	r := DatasetReport{Dataset: s.Dataset, Schema: s, Key: s.KeyNames()}
	for i, f := range s.Columns.Fields() {
		t, err := record.TypeOf(f.Type)
		if err != nil {
			t = record.Type{Arrow: f.Type}
		}
		r.Columns = append(r.Columns, ColumnReport{Mapping: ms[i], Type: t, Policy: policies[i]})
	}
	return r
}

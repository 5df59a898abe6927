package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leatdata/leat/connector"
)

// Check looks for all that Run would refuse or trip over: admission, datasets, the mapping of every column, the saved state, and the
// probes of source and sinks. It changes nothing and consumes nothing that Run would need. What stands against the plan is in the
// report; the error says why no report could be made, as with a wrong password.
func Check(ctx context.Context, p Plan, d Deps) (Report, error) {
	r, err := newRunner(p, d)
	var refused *PlanError
	switch {
	case errors.As(err, &refused) && r != nil:
		return Report{Admission: r.admission, Problems: refused.Problems}, nil
	case err != nil:
		return Report{}, err
	}
	g := &generation{r: r}
	g.soft, g.stop = context.WithCancel(ctx)
	g.hard, g.kill = context.WithCancel(ctx)
	report, err := g.check()
	return report, g.close(err)
}

func (g *generation) check() (Report, error) {
	r, ctx := g.r, g.soft
	report := Report{Admission: r.admission}
	rec, _, err := r.load(ctx)
	if err == nil {
		report.Lanes, report.WhyLanes, err = r.chooseLanes(rec)
	}
	if err != nil {
		return report, err
	}
	if err := g.openSource(ctx); err != nil {
		return report, err
	}
	if report.Probes, err = probes(ctx, "source", g.src, g.srcValue); err != nil {
		return report, fmt.Errorf("source: %w", err)
	}
	g.lanes = make([]*deliverer, len(r.plan.Sinks))
	for i, spec := range r.plan.Sinks {
		d := newDeliverer(g, i)
		g.lanes[i] = d
		if err := d.open(); err != nil {
			return report, err
		}
		ps, err := probes(ctx, spec.Name, d.sink, d.v)
		if err != nil {
			return report, d.wrap(err)
		}
		report.Probes = append(report.Probes, ps...)
	}
	if slices.ContainsFunc(report.Probes, func(p ProbeReport) bool { return p.Status == connector.Fail }) {
		return report, nil // what is broken would break discovery as well, with a worse message
	}
	blue, problems, err := r.plans(ctx, g.src, g.srcValue, g.asked())
	if err != nil {
		return report, err
	}
	report.Datasets, report.Problems = blue.datasets, problems
	for i, spec := range r.plan.Sinks {
		s := SinkReport{Name: spec.Name, Mode: r.offers[i].Mode}
		for _, schema := range blue.schemas {
			if l := blue.lanes[i][schema.Dataset]; l != nil && l.fit != nil {
				s.Datasets = append(s.Datasets, l.report)
			}
			if err := blue.errs[i][schema.Dataset]; err != nil {
				report.Problems = append(report.Problems, Problem{
					Code: "plan.dataset", Sink: spec.Name, Dataset: schema.Dataset, Message: err.Error(), Hint: connector.HintOf(err),
				})
			}
		}
		report.Sinks = append(report.Sinks, s)
	}
	report.Resume, err = r.resumeText(ctx, blue)
	return report, err
}

// probes asks a connector that can look for trouble.
func probes(ctx context.Context, where string, of any, v *value) ([]ProbeReport, error) {
	c, ok := connector.As[connector.Checker](of)
	if !ok {
		return nil, nil
	}
	var found []connector.Probe
	err := v.call("check", func() (err error) {
		found, err = c.Check(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]ProbeReport, len(found))
	for i, p := range found {
		out[i] = ProbeReport{Where: where, Probe: p}
	}
	return out, nil
}

// resumeText says where a run would start.
func (r *runner) resumeText(ctx context.Context, blue *blueprint) (string, error) {
	if r.deps.Store == nil {
		return "", nil
	}
	rec, _, err := r.load(ctx)
	if err != nil || rec == nil {
		return "", err
	}
	changes := identityChanges(rec.Identity, identityOf(r.plan, r.modes(), blue.schemas))
	c, err := chooseRun(rec, r.contract, changes, r.plan.Changed)
	switch {
	case err != nil:
		return "", err
	case len(c.only) > 0:
		return "only the datasets that failed the last time are copied again", nil
	case c.complete:
		return "", nil
	case c.base != nil && c.run == "":
		return "behind " + c.base.Position.String() + ", where the last run ended", nil
	case c.run != "" && r.restartsOnly():
		return "the interrupted run starts again", nil
	case c.run != "" && !c.saved.Zero():
		return "behind " + c.saved.String() + ", or where the sink says", nil
	}
	return "", nil
}

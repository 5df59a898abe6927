package cli

import (
	"slices"
	"strings"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/prune"
)

// defaultBatchBytes is the wanted size of a batch where only its rows were asked for.
const defaultBatchBytes = 4 << 20

// planOf makes the engine's plan of a pipeline.
func planOf(p *config.Pipeline) (engine.Plan, error) {
	plan := engine.Plan{
		Name:      p.Name,
		Guarantee: p.Guarantee,
		Source: engine.SourceSpec{
			Connector: p.Source.Connector, Config: p.Source.Config, Transforms: p.Transforms.Steps, Text: p.Transforms.Text,
		},
		Limit: p.Limit, Once: p.Once,
	}
	var err error
	if plan.Snapshot, err = engine.ParseSnapshot(p.Snapshot); err != nil {
		return plan, &usageError{err: err}
	}
	if plan.Lanes, err = lanesOf(p.Lanes); err != nil {
		return plan, err
	}
	if p.BadRows != nil {
		plan.BadRows = badRows(*p.BadRows)
	}
	if p.BatchRows > 0 {
		plan.Batch = connector.Limit{Rows: p.BatchRows, Bytes: defaultBatchBytes}
	}
	for _, s := range p.Sinks {
		spec := engine.SinkSpec{
			Name: s.Name, Connector: s.Connector, Config: s.Config, Mode: s.Mode, Key: s.Key, Keys: s.Keys,
			Transforms: s.Transforms.Steps, Text: s.Transforms.Text, Policies: s.Policies,
		}
		if s.Deletes == config.DeletesSoft { // every row that is delivered is there
			spec.Transforms = append(slices.Clip(spec.Transforms), prune.FlagStep())
			spec.Text += "deletes: soft\n"
		}
		if s.BadRows != nil {
			b := badRows(*s.BadRows)
			spec.BadRows = &b
		}
		if spec.Schema, err = schemaPolicies(s.Schema); err != nil {
			return plan, &usageError{err: err}
		}
		plan.Sinks = append(plan.Sinks, spec)
	}
	return plan, nil
}

func schemaPolicies(names map[string]string) (map[string]engine.SchemaPolicy, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out := make(map[string]engine.SchemaPolicy, len(names))
	for dataset, name := range names {
		policy, err := engine.ParseSchemaPolicy(name)
		if err != nil {
			return nil, err
		}
		out[dataset] = policy
	}
	return out, nil
}

func badRows(b config.BadRows) engine.BadRows {
	if b.SetAside {
		return engine.BadRows{Action: engine.SetAside, Limit: b.Limit, PerDataset: b.PerDataset}
	}
	return engine.BadRows{Action: engine.Stop}
}

// load reads a pipeline file and makes its secrets known.
func (s *session) load(file string) (*config.Pipeline, error) {
	p, err := config.Load(file, s.Registry, s.Lookup)
	if err != nil {
		return nil, err
	}
	s.redact.addConfig(p.Source.Config)
	for _, sink := range p.Sinks {
		s.redact.addConfig(sink.Config)
	}
	if p.DeadLetters != nil {
		s.redact.addConfig(p.DeadLetters.Config)
	}
	for server := range strings.SplitSeq(p.Lanes.URL.Reveal(), ",") {
		s.redact.addURL(server)
	}
	if follows(p) {
		return p, followDefaults(p)
	}
	return p, nil
}

// writesStdout reports whether data goes to standard output, which then can't take a summary.
func writesStdout(p *config.Pipeline) bool {
	for _, s := range p.Sinks {
		if optionText(s.Config, "path") == "-" {
			return true
		}
	}
	return false
}

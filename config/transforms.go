package config

import (
	"encoding/json"
	"strings"

	"github.com/leatdata/leat/transform"
)

// transforms reads a list of steps: each a map of one kind to its arguments, with an optional `datasets` that narrows it.
func (d *decoder) transforms(v *node) Transforms {
	if v.kind != listNode {
		d.fail(v, "transforms: want a list, not %s", describe(v))
		return Transforms{}
	}
	var specs []Step
	var steps []transform.Step
	for _, e := range v.list {
		if spec, s := d.transform(e); s != nil {
			specs, steps = append(specs, spec), append(steps, s)
		}
	}
	return Transforms{Steps: steps, Text: stepsText(specs)}
}

// Step is one transform by its kind and its arguments as plain values, see transform.New.
type Step struct {
	Kind     string   `json:"kind"`
	Args     any      `json:"args"`
	Datasets []string `json:"datasets,omitempty"` // patterns; empty: all
}

// MakeTransforms builds transforms that no file declares, such as those of the command line.
func MakeTransforms(specs ...Step) (Transforms, error) {
	t := Transforms{Text: stepsText(specs)}
	for _, spec := range specs {
		s, err := spec.step()
		if err != nil {
			return Transforms{}, err
		}
		t.Steps = append(t.Steps, s)
	}
	return t, nil
}

func (s Step) step() (transform.Step, error) {
	step, err := transform.New(s.Kind, s.Args)
	if err != nil || len(s.Datasets) == 0 {
		return step, err
	}
	return transform.Only(s.Datasets, step), nil
}

func (d *decoder) transform(v *node) (Step, transform.Step) {
	if v.kind != mapNode {
		d.fail(v, "transforms: want a map of one transform, such as `- drop: [password]`")
		return Step{}, nil
	}
	var spec Step
	var kind *entry
	for i, e := range v.entries {
		switch {
		case e.key == "datasets":
			spec.Datasets = d.strings(e.value)
		case kind != nil:
			d.fail(e.at, "transforms: both %q and %q: want one transform for each item of the list", kind.key, e.key)
			return Step{}, nil
		default:
			kind = &v.entries[i]
		}
	}
	if kind == nil {
		d.fail(v, "transforms: no transform is named; known are %s", strings.Join(transform.Names(), ", "))
		return Step{}, nil
	}
	spec.Kind, spec.Args = kind.key, kind.value.plain()
	step, err := spec.step()
	if err != nil {
		d.fail(kind.at, "transforms: %s", err)
		return Step{}, nil
	}
	return spec, step
}

// stepsText is the canonical text of steps: JSON with sorted keys. The key of a hash is a secret and not part of it.
func stepsText(specs []Step) string {
	if len(specs) == 0 {
		return ""
	}
	public := make([]Step, len(specs))
	for i, s := range specs {
		if args, ok := s.Args.(map[string]any); ok && s.Kind == "hash" {
			s.Args = map[string]any{"columns": args["columns"], "key": "***"}
		}
		public[i] = s
	}
	text, err := json.Marshal(public)
	if err != nil { // plain values always encode, but for NaN, which YAML can't give here
		return err.Error()
	}
	return string(text)
}

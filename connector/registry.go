package connector

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Definition is a connector: its name, what selects it, and its configurations.
type Definition struct {
	Name       string   // short and stable: postgres
	Title      string   // for people: PostgreSQL
	Doc        string   // a few sentences: what it promises, privileges, limits
	Schemes    []string // URL schemes that select it: postgres, postgresql
	Extensions []string // file endings that select it, with the dot: .csv, .csv.gz
	Source     func() SourceConfig
	Sink       func() SinkConfig
	Types      []TypeRule // the mapping table
}

// URLSetter is a configuration that can be filled from what a person types: a URL or a file name. It takes over every part of it,
// query parameters included; an unknown parameter is an error that names the nearest right one (see SetOptions).
type URLSetter interface {
	SetURL(raw string) error
}

// Registry is the connectors that a program knows. The zero value is empty. It is filled once and then only read.
type Registry struct {
	defs []Definition
}

// Register adds a connector. A name, scheme or ending that is already taken is a mistake of the program.
func (r *Registry) Register(d Definition) error {
	for _, o := range r.defs {
		if o.Name == d.Name {
			return fmt.Errorf("connector %q is registered twice", d.Name)
		}
		for _, s := range slices.Concat(d.Schemes, d.Extensions) {
			if slices.Contains(o.Schemes, s) || slices.Contains(o.Extensions, s) {
				return fmt.Errorf("connectors %q and %q both claim %q", o.Name, d.Name, s)
			}
		}
	}
	r.defs = append(r.defs, d)
	slices.SortFunc(r.defs, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// All returns the connectors by name.
func (r *Registry) All() []Definition { return slices.Clone(r.defs) }

// Lookup returns the connector of this name.
func (r *Registry) Lookup(name string) (Definition, bool) {
	i := slices.IndexFunc(r.defs, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		return Definition{}, false
	}
	return r.defs[i], true
}

// Resolve finds the connector for a URL (by scheme) or a file name (by its longest known ending).
func (r *Registry) Resolve(raw string) (Definition, error) {
	if scheme, _, ok := strings.Cut(raw, ":"); ok && !strings.ContainsAny(scheme, `/\.`) && len(scheme) > 1 {
		var known []string
		for _, d := range r.defs {
			if slices.Contains(d.Schemes, strings.ToLower(scheme)) {
				return d, nil
			}
			known = append(known, d.Schemes...)
		}
		return Definition{}, &Error{
			Class: ClassConfig, Code: "connector.unknown", Doing: "finding a connector",
			Err:  UnknownName("scheme", scheme, known),
			Hint: "leat connectors lists what there is",
		}
	}
	file, _, _ := strings.Cut(raw, "?")
	base := strings.ToLower(path.Base(file))
	best, length := Definition{}, 0
	for _, d := range r.defs {
		for _, e := range d.Extensions {
			if strings.HasSuffix(base, e) && len(e) > length {
				best, length = d, len(e)
			}
		}
	}
	if length == 0 {
		return Definition{}, &Error{
			Class: ClassConfig, Code: "connector.unknown", Doing: "finding a connector",
			Err:  fmt.Errorf("%q has no scheme and no known file ending", file),
			Hint: "put the format in front, as in csv:FILE, sqlite:FILE or duckdb:FILE; leat connectors lists what there is",
		}
	}
	return best, nil
}

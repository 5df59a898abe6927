package config

import (
	"fmt"
	"slices"

	"github.com/leatdata/leat/connector"
)

// What a run of a source that is followed copies of what is there already.
const (
	SnapshotFirst = "first" // everything, while changes are followed
	SnapshotNone  = "none"  // nothing: only the changes from now on
	SnapshotOnly  = "only"  // everything, and then the run ends
)

// ParseSnapshot reads first, none or only.
func ParseSnapshot(s string) (string, error) {
	if !slices.Contains(snapshots(), s) {
		return "", fmt.Errorf("unknown snapshot %q: want first, none or only", s)
	}
	return s, nil
}

func snapshots() []string { return []string{SnapshotFirst, SnapshotNone, SnapshotOnly} }

// What happens when the columns of a dataset change while it is followed.
const (
	SchemaEvolve   = "evolve"    // the target follows
	SchemaIgnore   = "ignore"    // the target stays as it is
	SchemaSetAside = "set_aside" // rows under the new columns are set aside
	SchemaFail     = "fail"      // the dataset stops, the others go on
)

// ParseSchema reads evolve, ignore, set_aside or fail.
func ParseSchema(s string) (string, error) {
	if !slices.Contains(schemaPolicies(), s) {
		return "", fmt.Errorf("unknown schema policy %q: want evolve, ignore, set_aside or fail", s)
	}
	return s, nil
}

func schemaPolicies() []string {
	return []string{SchemaEvolve, SchemaIgnore, SchemaSetAside, SchemaFail}
}

func parseBool(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, fmt.Errorf("%q: want true or false", s)
	}
	return s == "true", nil
}

// schemaPolicies reads `schema: evolve` or `schema: {public.orders: fail, "*": ignore}`. Connectors may have an option of that name,
// which belongs to their own options.
func (d *decoder) schemaPolicies(v *node, connectorName string) map[string]string {
	parse := func(s string) (string, error) {
		p, err := ParseSchema(s)
		if err != nil && d.hasOption(connectorName, "schema") {
			return "", fmt.Errorf("%w (the option schema of %s belongs below %q)", err, connectorName, connectorName)
		}
		return p, err
	}
	entries := v.entries
	if v.kind != mapNode {
		entries = []entry{{key: "*", at: v, value: v}}
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		var policy string
		parsed(d, e.value, &policy, parse)
		out[e.key] = policy
	}
	return out
}

// following refuses what only a source that sends changes can take, and what such a source makes senseless.
func (d *decoder) following(root *node, p *Pipeline) {
	if p.Source.Config == nil {
		return
	}
	c, err := p.Source.Config.Contract()
	if err != nil {
		return // said already
	}
	sinks := root.get("sinks")
	if c.Input == connector.Changelog {
		eachSinkKey(sinks, "deletes", func(v *node) {
			if v.raw != DeletesKeep {
				d.fail(v, "deletes: source %s sends deletes itself: leave this out", p.Source.Connector)
			}
		})
		return
	}
	refuse := func(key string) func(v *node) {
		return func(v *node) {
			way := "copies what is there and follows no changes"
			if d.hasOption(p.Source.Connector, "follow") {
				way += "; set its option follow: true"
			}
			d.fail(v, "%s: source %s %s", key, p.Source.Connector, way)
		}
	}
	for _, key := range []string{"snapshot", "once", "lanes"} {
		if v := root.get(key); v != nil && !v.null() {
			refuse(key)(v)
		}
	}
	eachSinkKey(sinks, "schema", refuse("schema"))
}

// eachSinkKey visits the values of a key of all sinks.
func eachSinkKey(sinks *node, key string, visit func(v *node)) {
	if sinks == nil || sinks.kind != mapNode {
		return
	}
	for _, e := range sinks.entries {
		if e.value.kind != mapNode {
			continue
		}
		if v := e.value.get(key); v != nil && !v.null() {
			visit(v)
		}
	}
}

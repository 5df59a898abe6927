package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
)

// source reads `source: URL` or `source: {connector: URL or options}`.
func (d *decoder) source(v *node, dst *Source) {
	def, opts, ok := d.connector(v, "source", nil)
	if !ok {
		return
	}
	if def.Source == nil {
		d.fail(v, "source: connector %q can't be a source", def.Name)
		return
	}
	cfg := def.Source()
	dst.Connector, dst.Config = def.Name, cfg
	if d.options(cfg, opts, def.Name) {
		if _, err := cfg.Contract(); err != nil {
			d.fail(v, "source %s: %s", def.Name, withHint(err))
		}
	}
}

// sinkKeys are the keys of a sink besides its connector.
func sinkKeys() []string {
	return []string{"mode", "key", "policies", "bad_rows", "transforms", "deletes", "schema"}
}

// sinks reads `sinks: {name: sink}`.
func (d *decoder) sinks(v *node) []Sink {
	if v.kind != mapNode || len(v.entries) == 0 {
		d.fail(v, "sinks: want a map of names to sinks, at least one")
		return nil
	}
	out := make([]Sink, len(v.entries))
	for i, e := range v.entries {
		d.name(&node{line: e.at.line, column: e.at.column, scalar: e.key, raw: e.key}, &out[i].Name)
		d.sink(e.value, &out[i])
	}
	return out
}

func (d *decoder) sink(v *node, s *Sink) {
	what := "sink " + s.Name
	def, opts, ok := d.connector(v, what, sinkKeys())
	if ok && def.Sink == nil {
		d.fail(v, "%s: connector %q can't be a sink", what, def.Name)
		ok = false
	}
	if ok {
		cfg := def.Sink()
		s.Connector, s.Config = def.Name, cfg
		if d.options(cfg, opts, def.Name) {
			if _, err := cfg.Contract(); err != nil {
				d.fail(v, "%s: %s", what, withHint(err))
			}
		}
	}
	for _, e := range v.entries {
		if slices.Contains(sinkKeys(), e.key) && e.value.null() {
			d.fail(e.at, "%s: %q has no value", what, e.key)
			continue
		}
		switch e.key {
		case "mode":
			var m connector.WriteMode
			parsed(d, e.value, &m, connector.ParseWriteMode)
			s.Mode = &m
		case "key":
			d.keys(e.value, s)
		case "policies":
			s.Policies = d.policies(e.value)
		case "bad_rows":
			s.BadRows = d.badRows(e.value)
		case "transforms":
			s.Transforms = d.transforms(e.value)
		case "deletes":
			parsed(d, e.value, &s.Deletes, ParseDeletes)
		case "schema":
			s.Schema = d.schemaPolicies(e.value, def.Name)
		}
	}
	if s.Deletes != "" && s.Deletes != DeletesKeep && (s.Mode == nil || *s.Mode != connector.Upsert) {
		d.fail(v, "%s: deletes: %s needs mode: upsert", what, s.Deletes)
	}
}

// deadLetters reads the sink that gets rows that were set aside: `dead_letters: URL`, or a map of a connector and, beside it, a mode.
func (d *decoder) deadLetters(v *node) *Sink {
	const what = "dead_letters"
	s := &Sink{Name: what}
	def, opts, ok := d.connector(v, what, []string{"mode"})
	if !ok {
		return s
	}
	if def.Sink == nil {
		d.fail(v, "%s: connector %q can't be a sink", what, def.Name)
		return s
	}
	cfg := def.Sink()
	s.Connector, s.Config = def.Name, cfg
	if d.options(cfg, opts, def.Name) {
		if _, err := cfg.Contract(); err != nil {
			d.fail(v, "%s: %s", what, withHint(err))
		}
	}
	if m := v.get("mode"); m != nil && v.kind == mapNode {
		var mode connector.WriteMode
		parsed(d, m, &mode, connector.ParseWriteMode)
		if mode == connector.Replace {
			d.fail(m, "%s: mode replace would keep the last ones only: want append or upsert", what)
		}
		s.Mode = &mode
	}
	return s
}

// What happens to rows of a sink that are gone from the source.
const (
	DeletesKeep = "keep" // nothing
	DeletesHard = "hard" // they are deleted
	DeletesSoft = "soft" // the column _deleted is set, all others keep their last values
)

// ParseDeletes reads keep, hard or soft.
func ParseDeletes(s string) (string, error) {
	known := []string{DeletesKeep, DeletesHard, DeletesSoft}
	if slices.Contains(known, s) {
		return s, nil
	}
	return "", connector.UnknownName("way to treat deleted rows", s, known)
}

// keys reads a list of columns for all datasets, or a map of dataset to list.
func (d *decoder) keys(v *node, s *Sink) {
	if v.kind != mapNode {
		s.Key = d.strings(v)
		return
	}
	s.Keys = make(map[string][]string, len(v.entries))
	for _, e := range v.entries {
		s.Keys[e.key] = d.strings(e.value)
	}
}

func (d *decoder) policies(v *node) map[string]connector.Policy {
	if v.kind != mapNode {
		d.fail(v, "policies: want a map of columns to fail, text, null, clamp or strip")
		return nil
	}
	out := make(map[string]connector.Policy, len(v.entries))
	for _, e := range v.entries {
		var p connector.Policy
		parsed(d, e.value, &p, connector.ParsePolicy)
		out[e.key] = p
	}
	return out
}

// badRows reads `bad_rows: stop` or `bad_rows: {action: set_aside, limit: 100, per_dataset: 10}`.
func (d *decoder) badRows(v *node) *BadRows {
	b := &BadRows{}
	action := func(v *node) {
		parsed(d, v, &b.SetAside, func(s string) (bool, error) {
			if s != "stop" && s != "set_aside" {
				return false, fmt.Errorf("%q: want stop or set_aside", s)
			}
			return s == "set_aside", nil
		})
	}
	if v.kind == scalarNode {
		action(v)
		return b
	}
	d.fields(v, "bad_rows", []field{
		{key: "action", required: true, decode: action},
		{key: "limit", decode: func(v *node) { b.Limit = d.count(v) }},
		{key: "per_dataset", decode: func(v *node) { b.PerDataset = d.count(v) }},
	})
	return b
}

// connector finds the connector of a source or sink: by URL, or by the one key of a map that is no key of the surrounding form. It
// returns the node of the connector's options.
func (d *decoder) connector(v *node, what string, reserved []string) (connector.Definition, *node, bool) {
	none := connector.Definition{}
	if v.kind == scalarNode {
		var url string
		if !d.text(v, &url) {
			return none, nil, false
		}
		def, err := d.reg.Resolve(url)
		if err != nil {
			d.fail(v, "%s: %s", what, withHint(err))
			return none, nil, false
		}
		return def, v, true
	}
	if v.kind != mapNode {
		d.fail(v, "%s: want a URL, or the name of a connector with its options", what)
		return none, nil, false
	}
	found := d.connectorEntry(v, what, reserved)
	if found == nil {
		return none, nil, false
	}
	def, _ := d.reg.Lookup(found.key)
	return def, found.value, true
}

// connectorEntry returns the entry that names a connector; every other entry that is not reserved is a problem.
func (d *decoder) connectorEntry(v *node, what string, reserved []string) *entry {
	var found *entry
	var strange []entry
	for i, e := range v.entries {
		_, known := d.reg.Lookup(e.key)
		switch {
		case slices.Contains(reserved, e.key):
		case !known:
			strange = append(strange, e)
		case found != nil:
			d.fail(e.at, "%s: both %q and %q are named: want one connector", what, found.key, e.key)
		default:
			found = &v.entries[i]
		}
	}
	for _, e := range strange {
		d.strangeKey(e, found, what, reserved)
	}
	if found == nil && len(strange) == 0 {
		d.fail(v, "%s: no connector is named; known are %s", what, strings.Join(d.connectorNames(), ", "))
	}
	return found
}

// strangeKey says what was probably meant by a key that stands beside a connector, or in its place.
func (d *decoder) strangeKey(e entry, found *entry, what string, reserved []string) {
	switch {
	case found == nil && e.key == "url":
		d.fail(e.at, "%s: write the URL behind the connector's name, as in `postgres: URL`", what)
	case found == nil:
		names := slices.Concat(reserved, d.connectorNames())
		d.fail(e.at, "%s: %s", what, connector.UnknownName("connector", e.key, names))
	case d.hasOption(found.key, e.key):
		d.fail(e.at, "%s: %q is an option of %s: it belongs below %q", what, e.key, found.key, found.key)
	default:
		d.unknownKey(e, what, reserved)
	}
}

func (d *decoder) connectorNames() []string {
	var names []string
	for _, def := range d.reg.All() {
		names = append(names, def.Name)
	}
	return names
}

func (d *decoder) hasOption(connectorName, option string) bool {
	def, _ := d.reg.Lookup(connectorName)
	named := func(o connector.Option) bool { return o.Name == option }
	return (def.Source != nil && slices.ContainsFunc(connector.Options(def.Source()), named)) ||
		(def.Sink != nil && slices.ContainsFunc(connector.Options(def.Sink()), named))
}

// options fills a connector's configuration, and reports whether all of it was right.
func (d *decoder) options(cfg any, v *node, name string) bool {
	before := len(d.problems)
	opts := connector.Options(cfg)
	ownURL := slices.ContainsFunc(opts, func(o connector.Option) bool { return o.Name == "url" })
	switch {
	case v.null():
	case v.kind == scalarNode:
		d.setURL(cfg, v, name)
		return len(d.problems) == before
	case v.kind != mapNode:
		d.fail(v, "%s: want a URL or a map of options", name)
		return false
	}
	url := v.get("url")
	if url != nil && !ownURL {
		d.setURL(cfg, url, name)
	}
	for _, e := range v.entries {
		if e.key != "url" || ownURL {
			d.option(cfg, e, name)
		}
	}
	for _, o := range opts {
		if o.Required && v.get(o.Name) == nil && (url == nil || ownURL) {
			d.fail(v, "%s: option %q is missing", name, o.Name)
		}
	}
	return len(d.problems) == before
}

func (d *decoder) option(cfg any, e entry, name string) {
	opts := connector.Options(cfg)
	i := slices.IndexFunc(opts, func(o connector.Option) bool { return o.Name == e.key })
	switch {
	case i < 0 && slices.Contains(slices.Concat(sinkKeys(), pipelineKeys()), e.key):
		d.unknownKey(e, name, nil)
	case i >= 0 && e.value.null():
		d.fail(e.at, "%s: option %q has no value", name, e.key)
	case i >= 0 && e.value.deep():
		d.fail(e.value, "%s: option %q: want one level only (between brackets, text with a colon needs quotes)", name, e.key)
	default:
		if err := connector.SetOption(cfg, e.key, e.value.option()); err != nil {
			at := e.at
			if i >= 0 {
				at = e.value
			}
			d.fail(at, "%s: %s", name, err)
		}
	}
}

func (d *decoder) setURL(cfg any, v *node, name string) {
	var url string
	if !d.text(v, &url) {
		return
	}
	if err := CheckURL(url); err != nil {
		d.fail(v, "%s: %s", name, withHint(err))
		return
	}
	setter, ok := cfg.(connector.URLSetter)
	if !ok {
		d.fail(v, "%s: takes options, not a URL", name)
		return
	}
	if err := setter.SetURL(url); err != nil {
		d.fail(v, "%s: %s", name, withHint(err))
	}
}

func withHint(err error) string {
	if h := connector.HintOf(err); h != "" {
		return fmt.Sprintf("%s (%s)", err, h)
	}
	return err.Error()
}

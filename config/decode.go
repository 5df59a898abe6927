package config

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/state"
)

// Load reads a pipeline file.
func Load(path string, reg *connector.Registry, lookup Lookup) (*Pipeline, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &connector.Error{
			Class: connector.ClassConfig, Code: "config.unreadable", Doing: "reading the pipeline file", Err: err,
			Hint: "name a pipeline file that exists and can be read; leat run --help shows one",
		}
	}
	return Parse(data, path, reg, lookup)
}

// Parse decodes a pipeline file; file is its name for messages. The error is Problems where the content is wrong: all of it, not
// only the first mistake.
func Parse(data []byte, file string, reg *connector.Registry, lookup Lookup) (*Pipeline, error) {
	root, problems, err := parseYAML(data, file)
	if err != nil {
		return nil, err
	}
	d := &decoder{file: file, reg: reg, problems: problems}
	d.expandAll(root, lookup)
	p := d.pipeline(root)
	for _, problem := range d.problems {
		problem.Message = d.hide(problem.Message)
	}
	if err := d.problems.err(); err != nil {
		return nil, err
	}
	return p, nil
}

// decoder collects problems while it walks the file.
type decoder struct {
	file     string
	reg      *connector.Registry
	refs     []reference
	problems Problems
}

func (d *decoder) fail(at *node, format string, args ...any) {
	if at.broken {
		return
	}
	d.problems = append(d.problems, problemAt(d.file, at, format, args...))
}

// field is one allowed key of a map.
type field struct {
	key      string
	required bool
	decode   func(v *node)
}

// fields decodes a map by its allowed keys; unknown ones name the nearest right one, or the place where they belong.
func (d *decoder) fields(n *node, what string, allowed []field) {
	if n.kind != mapNode {
		d.fail(n, "%s: want a map, not %s", what, describe(n))
		return
	}
	names := make([]string, len(allowed))
	for i, f := range allowed {
		names[i] = f.key
	}
	for _, e := range n.entries {
		i := slices.Index(names, e.key)
		if i < 0 {
			d.unknownKey(e, what, names)
			continue
		}
		if e.value.null() {
			d.fail(e.at, "%s: %q has no value", what, e.key)
			continue
		}
		allowed[i].decode(e.value)
	}
	for _, f := range allowed {
		if f.required && n.get(f.key) == nil {
			d.fail(n, "%s: %q is missing", what, f.key)
		}
	}
}

func (d *decoder) unknownKey(e entry, what string, names []string) {
	place := ""
	switch {
	case slices.Contains(pipelineKeys(), e.key):
		place = "the top of the file"
	case slices.Contains(sinkKeys(), e.key):
		place = "a sink, beside its connector"
	}
	if place != "" {
		d.fail(e.at, "%s: %q does not belong here: it belongs to %s", what, e.key, place)
		return
	}
	d.fail(e.at, "%s: %s", what, connector.UnknownName("key", e.key, names))
}

// pipelineKeys are the keys at the top of a file.
func pipelineKeys() []string {
	return []string{
		"name", "guarantee", "source", "transforms", "sinks", "bad_rows", "dead_letters", "limit", "batch_rows", "snapshot", "once",
		"lanes",
	}
}

func (d *decoder) pipeline(root *node) *Pipeline {
	p := &Pipeline{}
	d.fields(root, "pipeline", []field{
		{key: "name", required: true, decode: func(v *node) { d.name(v, &p.Name) }},
		{key: "guarantee", decode: func(v *node) { parsed(d, v, &p.Guarantee, connector.ParseGuarantee) }},
		{key: "source", required: true, decode: func(v *node) { d.source(v, &p.Source) }},
		{key: "transforms", decode: func(v *node) { p.Transforms = d.transforms(v) }},
		{key: "sinks", required: true, decode: func(v *node) { p.Sinks = d.sinks(v) }},
		{key: "bad_rows", decode: func(v *node) { p.BadRows = d.badRows(v) }},
		{key: "dead_letters", decode: func(v *node) { p.DeadLetters = d.deadLetters(v) }},
		{key: "limit", decode: func(v *node) { p.Limit = d.count(v) }},
		{key: "batch_rows", decode: func(v *node) { p.BatchRows = int(min(d.count(v), maxBatchRows)) }},
		{key: "snapshot", decode: func(v *node) { parsed(d, v, &p.Snapshot, ParseSnapshot) }},
		{key: "once", decode: func(v *node) { parsed(d, v, &p.Once, parseBool) }},
		{key: "lanes", decode: func(v *node) { p.Lanes = d.lanes(v) }},
	})
	d.following(root, p)
	return p
}

// maxBatchRows is the largest batch: more gains nothing and costs memory.
const maxBatchRows = 1 << 20

// name reads the name of a pipeline or a sink: a key of all stores.
func (d *decoder) name(v *node, dst *string) {
	if !d.text(v, dst) {
		return
	}
	if err := state.ValidateName(*dst); err != nil {
		if e, ok := errors.AsType[*connector.Error](err); ok {
			err = e.Err
		}
		d.fail(v, "%s", strings.TrimPrefix(err.Error(), "pipeline "))
	}
}

// text reads a scalar as text; numbers and booleans are taken as they are written.
func (d *decoder) text(v *node, dst *string) bool {
	if v.kind != scalarNode || v.scalar == nil {
		d.fail(v, "want text, not %s", describe(v))
		return false
	}
	*dst = v.raw
	return true
}

func describe(v *node) string {
	if v.null() {
		return "nothing"
	}
	return "a " + v.kind.String()
}

func (d *decoder) count(v *node) int64 {
	n, err := parseCount(v.raw)
	if v.kind != scalarNode || err != nil {
		shown := describe(v)
		if v.kind == scalarNode && v.scalar != nil {
			shown = v.raw
		}
		d.fail(v, "want a whole number that is not negative, not %s", shown)
		return 0
	}
	return n
}

// parseCount reads a whole number that is not negative.
func parseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n < 0 {
		err = strconv.ErrRange
	}
	return n, err
}

// parsed reads a scalar through a parse function.
func parsed[T any](d *decoder, v *node, dst *T, parse func(string) (T, error)) {
	var s string
	if !d.text(v, &s) {
		return
	}
	t, err := parse(s)
	if err != nil {
		d.fail(v, "%s", err)
		return
	}
	*dst = t
}

// strings reads a list of text, or one text.
func (d *decoder) strings(v *node) []string {
	if v.kind == scalarNode {
		var s string
		if !d.text(v, &s) {
			return nil
		}
		return []string{s}
	}
	if v.kind != listNode {
		d.fail(v, "want a list, not a %s", v.kind)
		return nil
	}
	out := make([]string, len(v.list))
	for i, e := range v.list {
		d.text(e, &out[i])
	}
	return out
}

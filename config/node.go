package config

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxNodes bounds what aliases may multiply a file to.
const maxNodes = 100_000

// node is a YAML value with its place: a scalar, a list or a map in the order of the file.
type node struct {
	line, column int
	kind         nodeKind
	scalar       any    // string, int64, uint64, float64, bool, or nil
	raw          string // the scalar as the file has it: 007, 1.10
	list         []*node
	entries      []entry
	broken       bool // a problem was found in it: nothing more is said of it
}

type nodeKind uint8

const (
	scalarNode nodeKind = iota
	listNode
	mapNode
)

// String names the kind as messages do.
func (k nodeKind) String() string {
	switch k {
	case listNode:
		return "list"
	case mapNode:
		return "map"
	default:
		return "value"
	}
}

type entry struct {
	key   string
	at    *node // place of the key
	value *node
}

// get returns the value of a key, or nil.
func (n *node) get(key string) *node {
	for _, e := range n.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// null reports whether nothing stands where a value belongs.
func (n *node) null() bool { return n.kind == scalarNode && n.scalar == nil }

// deep reports whether a list or map holds other lists or maps, or nothing where a value belongs.
func (n *node) deep() bool {
	flat := func(e *node) bool { return e.kind == scalarNode && !e.null() }
	for _, e := range n.list {
		if !flat(e) {
			return true
		}
	}
	for _, e := range n.entries {
		if !flat(e.value) {
			return true
		}
	}
	return false
}

// plain returns the node as plain Go values: the arguments of a transform.
func (n *node) plain() any {
	switch n.kind {
	case listNode:
		list := make([]any, len(n.list))
		for i, e := range n.list {
			list[i] = e.plain()
		}
		return list
	case mapNode:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			m[e.key] = e.value.plain()
		}
		return m
	default:
		return n.scalar
	}
}

// option returns the node as the value of a connector's option: text as the file has it, so that 007 stays 007.
func (n *node) option() any {
	switch n.kind {
	case listNode:
		list := make([]any, len(n.list))
		for i, e := range n.list {
			list[i] = e.raw
		}
		return list
	case mapNode:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			m[e.key] = e.value.raw
		}
		return m
	default:
		return n.raw
	}
}

// parseYAML reads one document, and the problems that do not keep it from being read further, such as duplicate keys. Syntax errors
// carry their place.
func parseYAML(data []byte, file string) (*node, Problems, error) {
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, nil, Problems{syntaxProblem(err, file)}
	}
	if len(f.Docs) != 1 || f.Docs[0].Body == nil {
		message := "the file is empty"
		if len(f.Docs) > 1 {
			message = fmt.Sprintf("want one YAML document, found %d", len(f.Docs))
		}
		return nil, nil, Problems{{File: file, Line: 1, Column: 1, Message: message}}
	}
	b := builder{file: file, anchors: map[string]*node{}}
	n := b.build(f.Docs[0].Body)
	return n, b.problems, nil
}

func syntaxProblem(err error, file string) *Problem {
	p := &Problem{File: file, Line: 1, Column: 1, Message: "broken YAML: " + err.Error()}
	if se, ok := errors.AsType[*yaml.SyntaxError](err); ok {
		p.Message = "broken YAML: " + se.Message
		if se.Token != nil {
			p.Line, p.Column = se.Token.Position.Line, se.Token.Position.Column
		}
	}
	return p
}

// builder turns the library's tree into nodes.
type builder struct {
	file     string
	anchors  map[string]*node
	problems Problems
	nodes    int
}

// fail records a problem; the value it is in is not looked at further.
func (b *builder) fail(at *node, format string, args ...any) {
	b.problems = append(b.problems, problemAt(b.file, at, format, args...))
	at.broken = true
}

func (b *builder) build(n ast.Node) *node {
	out := &node{line: 1, column: 1}
	if n == nil {
		return out
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		out.line, out.column = t.Position.Line, t.Position.Column
		out.raw = t.Value
	}
	b.nodes++
	switch n := n.(type) {
	case *ast.MappingNode:
		b.buildMap(out, n.Values)
	case *ast.MappingValueNode:
		b.buildMap(out, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		out.kind = listNode
		for _, v := range n.Values {
			out.list = append(out.list, b.build(v))
		}
	case *ast.AnchorNode:
		v := b.build(n.Value)
		b.anchors[anchorName(n.Name)] = v
		return v
	case *ast.AliasNode:
		return b.alias(out, anchorName(n.Value))
	case *ast.TagNode:
		return b.build(n.Value)
	case *ast.LiteralNode:
		out.scalar, out.raw = n.Value.Value, n.Value.Value
	case *ast.StringNode:
		out.scalar, out.raw = n.Value, n.Value
	case *ast.IntegerNode:
		out.scalar = n.Value
	case *ast.FloatNode:
		out.scalar = n.Value
	case *ast.BoolNode:
		out.scalar = n.Value
	case *ast.NullNode:
		out.raw = ""
	default:
		b.fail(out, "%s is not supported here", n.Type())
	}
	return out
}

func anchorName(n ast.Node) string {
	if n == nil || n.GetToken() == nil {
		return ""
	}
	return n.GetToken().Value
}

// alias copies what an anchor named, so that every place of the file has nodes of its own.
func (b *builder) alias(at *node, name string) *node {
	v, ok := b.anchors[name]
	if !ok {
		b.fail(at, "no anchor %q stands above", name)
		return at
	}
	if b.nodes >= maxNodes {
		b.fail(at, "aliases multiply this file to more than %d values", maxNodes)
		return at
	}
	return b.copy(v)
}

func (b *builder) copy(n *node) *node {
	c := *n
	if b.nodes++; b.nodes > maxNodes {
		return &c
	}
	c.list, c.entries = nil, nil
	for _, e := range n.list {
		c.list = append(c.list, b.copy(e))
	}
	for _, e := range n.entries {
		c.entries = append(c.entries, entry{key: e.key, at: e.at, value: b.copy(e.value)})
	}
	return &c
}

func (b *builder) buildMap(out *node, values []*ast.MappingValueNode) {
	out.kind = mapNode
	seen := map[string]*node{}
	var merged []*node
	for i, v := range values {
		t := v.Key.GetToken()
		if t == nil || t.Position == nil {
			b.fail(out, "this key is not supported")
			continue
		}
		at := &node{line: t.Position.Line, column: t.Position.Column}
		if i == 0 {
			out.line, out.column = at.line, at.column
		}
		if v.Key.IsMergeKey() {
			merged = append(merged, b.build(v.Value))
			continue
		}
		if first, ok := seen[t.Value]; ok {
			b.fail(at, "key %q stands here for the second time (first in line %d)", t.Value, first.line)
			continue
		}
		seen[t.Value] = at
		out.entries = append(out.entries, entry{key: t.Value, at: at, value: b.build(v.Value)})
	}
	for _, m := range merged {
		b.merge(out, m)
	}
}

// merge adds the entries of `<<: *anchor` that the map itself does not have.
func (b *builder) merge(out, from *node) {
	switch from.kind {
	case mapNode:
		for _, e := range from.entries {
			if out.get(e.key) == nil {
				out.entries = append(out.entries, e)
			}
		}
	case listNode:
		for _, m := range from.list {
			b.merge(out, m)
		}
	default:
		b.fail(from, "<< merges what is no map")
	}
}

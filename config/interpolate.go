package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Lookup is where values for ${env:NAME} and ${file:PATH} come from.
type Lookup struct {
	Env  func(name string) (string, bool)
	File func(path string) ([]byte, error)
}

// SystemLookup reads the process environment and the file system.
func SystemLookup() Lookup { return Lookup{Env: os.LookupEnv, File: os.ReadFile} }

// Expand replaces ${env:NAME}, ${env:NAME:-default} and ${file:PATH} in a value; $${ stands for a literal ${. It works on values
// after parsing, so that nothing that is put in can change the form of the file. In a URL, what is put into the user, the password
// or the query is percent-encoded, so that any password can be written as it is. A final newline of a file is left out. ${parent.NAME}
// stays: it is for the connector.
func (l Lookup) Expand(s string) (string, error) {
	out, _, err := l.expand(s)
	return out, err
}

// parentReference begins what stands for a value of a parent record: see connector.ResolveParent.
const parentReference = "${parent."

// reference is a value that was put in, and the text that stands for it in messages.
type reference struct{ value, text string }

func (l Lookup) expand(s string) (string, []reference, error) {
	var out strings.Builder
	var refs []reference
	encode := newURLEncoder(s)
	for rest, at := s, 0; ; {
		start := strings.Index(rest, "${")
		if start < 0 {
			out.WriteString(rest)
			return out.String(), refs, nil
		}
		if start > 0 && rest[start-1] == '$' {
			out.WriteString(rest[:start-1] + "${")
			rest, at = rest[start+2:], at+start+2
			continue
		}
		end := strings.Index(rest[start:], "}")
		if end < 0 {
			return "", nil, errors.New("${ without a closing }")
		}
		end += start
		if strings.HasPrefix(rest[start:], parentReference) { // a connector knows how a value goes into its option
			out.WriteString(rest[:end+1])
			rest, at = rest[end+1:], at+end+1
			continue
		}
		v, err := l.value(rest[start+2 : end])
		if err != nil {
			return "", nil, err
		}
		encoded := encode.at(at+start, v)
		refs = append(refs, reference{v, rest[start : end+1]}, reference{encoded, rest[start : end+1]})
		out.WriteString(rest[:start] + encoded)
		rest, at = rest[end+1:], at+end+1
	}
}

func (l Lookup) value(ref string) (string, error) {
	kind, name, ok := strings.Cut(ref, ":")
	switch {
	case ok && kind == "env":
		name, fallback, hasFallback := strings.Cut(name, ":-")
		if v, set := l.Env(name); set {
			return v, nil
		}
		if hasFallback {
			return fallback, nil
		}
		return "", fmt.Errorf("environment variable %s is not set", name)
	case ok && kind == "file":
		b, err := l.File(name)
		if err != nil {
			return "", fmt.Errorf("reading a value: %w", err)
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
	}
	return "", fmt.Errorf("${%s}: want ${env:NAME} or ${file:PATH}; $${ is a plain ${", ref)
}

// urlEncoder knows which parts of a URL take percent-encoding. The zero value encodes nothing.
type urlEncoder struct {
	userEnd int // what begins before is user or password
	query   int // what begins behind is query
}

// newURLEncoder looks at a value as it stands in the file, before anything is put in.
func newURLEncoder(s string) urlEncoder {
	start := strings.Index(s, "://")
	if start < 0 || strings.ContainsAny(s[:start], "/${ ") {
		return urlEncoder{query: len(s)}
	}
	e := urlEncoder{query: len(s)}
	authority := true
	for i := start + 3; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "${"):
			if end := strings.Index(s[i:], "}"); end > 0 {
				i += end
			}
		case s[i] == '@' && authority:
			e.userEnd = i
		case s[i] == '?':
			e.query = i
			return e
		case s[i] == '/' || s[i] == '#':
			authority = false
		}
	}
	return e
}

func (e urlEncoder) at(offset int, v string) string {
	switch {
	case offset < e.userEnd:
		// QueryEscape turns a space into +, which only a query reads as a space.
		return strings.ReplaceAll(url.QueryEscape(v), "+", "%20")
	case offset > e.query:
		return url.QueryEscape(v)
	}
	return v
}

// expandAll expands every scalar below n, in place.
func (d *decoder) expandAll(n *node, l Lookup) {
	if s, ok := n.scalar.(string); ok && n.kind == scalarNode {
		v, refs, err := l.expand(s)
		if err != nil {
			d.fail(n, "%s", err)
			n.broken = true
		}
		n.scalar, n.raw = v, v
		d.refs = append(d.refs, refs...)
	}
	for _, e := range n.list {
		d.expandAll(e, l)
	}
	for _, e := range n.entries {
		d.expandAll(e.value, l)
	}
}

// minHidden is the length from which a value that was put in is hidden in messages: a shorter one says nothing, and hiding it would
// spoil every word that has the same letters.
const minHidden = 3

// hide replaces what was put in by its reference, so that no message shows a secret.
func (d *decoder) hide(message string) string {
	refs := slices.Clone(d.refs)
	slices.SortStableFunc(refs, func(a, b reference) int { return len(b.value) - len(a.value) })
	for _, r := range refs {
		if len(r.value) < minHidden {
			continue
		}
		quoted := strconv.Quote(r.value)
		message = strings.ReplaceAll(message, r.value, r.text)
		message = strings.ReplaceAll(message, quoted[1:len(quoted)-1], r.text)
	}
	return message
}

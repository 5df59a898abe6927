package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/record"
)

// document is what counts of a JSON Schema.
type document struct {
	Ref        string            `json:"$ref"`
	Type       json.RawMessage   `json:"type"`
	Title      string            `json:"title"`
	Properties orderedMembers    `json:"properties"`
	Additional json.RawMessage   `json:"additionalProperties"`
	Items      json.RawMessage   `json:"items"`
	OneOf      []json.RawMessage `json:"oneOf"`
	AnyOf      []json.RawMessage `json:"anyOf"`
	AllOf      []json.RawMessage `json:"allOf"`
	ConnectAs  string            `json:"connect.type"`
	Params     map[string]string `json:"connect.parameters"`
	LeatType   string            `json:"leat.type"`
}

// orderedMembers are the members of an object in their order.
type orderedMembers []member

type member struct {
	name  string
	value json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *orderedMembers) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	t, err := dec.Token()
	if err != nil || t != json.Delim('{') {
		return errors.Join(err, errors.New("properties are no object"))
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return fmt.Errorf("properties: %w", err)
		}
		one := member{name: fmt.Sprint(key)}
		if err := dec.Decode(&one.value); err != nil {
			return fmt.Errorf("properties: %w", err)
		}
		*m = append(*m, one)
	}
	return nil
}

// compile reads a registered schema.
func compile(s *registry.Schema) (*connect.Schema, error) {
	if s.Kind != registry.JSON {
		return nil, fmt.Errorf("schema %d is %s, not JSON Schema", s.ID, s.Kind)
	}
	c := compiler{refs: map[string]json.RawMessage{}, open: map[string]bool{}, root: json.RawMessage(s.Text)}
	for _, r := range s.Refs {
		c.refs[r.Name] = json.RawMessage(r.Text)
	}
	out, err := c.schema(c.root)
	if err != nil {
		return nil, fmt.Errorf("schema %d: %w", s.ID, err)
	}
	return out, nil
}

type compiler struct {
	root  json.RawMessage
	refs  map[string]json.RawMessage // the other schemas that are referred to
	open  map[string]bool            // references that are being followed
	count int
}

func anything() *connect.Schema { return &connect.Schema{Type: connect.Any, Optional: true} }

const maxSchemas = 100_000

func (c *compiler) schema(text json.RawMessage) (*connect.Schema, error) {
	if c.count++; c.count > maxSchemas {
		return nil, errors.New("it is too large")
	}
	if t := bytes.TrimSpace(text); len(t) == 0 || t[0] != '{' {
		return anything(), nil // true, or nothing
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("no JSON Schema: %w", err)
	}
	if d.LeatType != "" {
		dt, err := record.ParseType(d.LeatType)
		if err != nil {
			return nil, fmt.Errorf("leat.type: %w", err)
		}
		return &connect.Schema{Type: connect.Any, Record: dt, Optional: true}, nil
	}
	switch {
	case d.Ref != "":
		return c.reference(d.Ref)
	case len(d.OneOf) > 0 || len(d.AnyOf) > 0:
		return c.choice(append(d.OneOf, d.AnyOf...))
	case len(d.AllOf) == 1:
		return c.schema(d.AllOf[0])
	case len(d.AllOf) > 1:
		return anything(), nil
	}
	s, err := c.typed(&d)
	if err != nil {
		return nil, err
	}
	if strings.Contains(d.Title, ".") && s.Type != connect.Struct {
		s.Name, s.Params = d.Title, d.Params
	}
	return s, nil
}

// reference follows a reference, unless it is being followed already.
func (c *compiler) reference(ref string) (*connect.Schema, error) {
	if c.open[ref] {
		return anything(), nil
	}
	c.open[ref] = true
	defer delete(c.open, ref)
	file, path, _ := strings.Cut(ref, "#")
	doc := c.root
	if file != "" {
		var ok bool
		if doc, ok = c.refs[file]; !ok {
			return nil, fmt.Errorf("unknown reference %q", ref)
		}
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if part == "" {
			continue
		}
		var members map[string]json.RawMessage
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		if json.Unmarshal(doc, &members) != nil || members[part] == nil {
			return nil, fmt.Errorf("unknown reference %q", ref)
		}
		doc = members[part]
	}
	return c.schema(doc)
}

// choice is a type that may be null, or else anything.
func (c *compiler) choice(of []json.RawMessage) (*connect.Schema, error) {
	var rest []json.RawMessage
	for _, x := range of {
		var d document
		if json.Unmarshal(x, &d) == nil && string(d.Type) == `"null"` {
			continue
		}
		rest = append(rest, x)
	}
	if len(rest) != 1 {
		return anything(), nil
	}
	s, err := c.schema(rest[0])
	if err != nil {
		return nil, err
	}
	out := *s
	out.Optional = true
	return &out, nil
}

// typed reads a schema by its type.
func (c *compiler) typed(d *document) (*connect.Schema, error) {
	names := typesOf(d.Type)
	optional := false
	kept := names[:0]
	for _, n := range names {
		if n == "null" {
			optional = true
			continue
		}
		kept = append(kept, n)
	}
	if len(kept) == 0 && len(d.Properties) > 0 {
		kept = []string{"object"}
	}
	if len(kept) != 1 {
		return anything(), nil
	}
	s := &connect.Schema{Optional: optional}
	var err error
	switch kept[0] {
	case "boolean":
		s.Type = connect.Boolean
	case "integer":
		s.Type = connect.Int64
	case "number":
		s.Type = connect.Number
	case "string":
		s.Type = connect.String
	case "array":
		if d.ConnectAs == "map" {
			return anything(), nil
		}
		s.Type = connect.Array
		s.Elem, err = c.schema(d.Items)
	case "object":
		return c.object(d, s)
	default:
		return anything(), nil
	}
	if t, ok := connect.ParseType(connectName(d.ConnectAs)); ok && t < connect.Array {
		s.Type = t
	}
	return s, err
}

// connectName is a type's name in schemas of Connect's own.
func connectName(s string) string {
	switch s {
	case "float32":
		return "float"
	case "float64":
		return "double"
	}
	return s
}

func typesOf(raw json.RawMessage) []string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	var several []string
	if json.Unmarshal(raw, &several) == nil {
		return several
	}
	return nil
}

func (c *compiler) object(d *document, s *connect.Schema) (*connect.Schema, error) {
	if len(d.Properties) == 0 {
		if t := bytes.TrimSpace(d.Additional); len(t) == 0 || t[0] != '{' {
			return anything(), nil
		}
		elem, err := c.schema(d.Additional)
		s.Type, s.Key, s.Elem = connect.Map, &connect.Schema{Type: connect.String}, elem
		return s, err
	}
	s.Type, s.Name = connect.Struct, d.Title
	for _, p := range d.Properties {
		fs, err := c.schema(p.value)
		if err != nil {
			return nil, fmt.Errorf("property %q: %w", p.name, err)
		}
		s.Fields = append(s.Fields, connect.Field{Name: p.name, Schema: fs})
	}
	return s, nil
}

package connect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/leatdata/leat/format/internal/jsontext"
)

// SchemaAndPayload takes apart what Connect's JSON converter writes with schemas.enable: an object with exactly these two members.
func SchemaAndPayload(c Cell) (schema, payload Cell, ok bool) {
	if c.json() != jsontext.Object {
		return schema, payload, false
	}
	n := 0
	inner := jsontext.Lexer{B: c.Bytes}
	inner.Object(func(k, v jsontext.Span) bool {
		n++
		cell := RawCell(c.Bytes[v.Start:v.End], v.Kind)
		switch string(c.Bytes[k.Start:k.End]) {
		case `"schema"`:
			schema = cell
		case `"payload"`:
			payload = cell
		default:
			n = -1
			return false
		}
		return true
	})
	return schema, payload, n == 2 && schema.Kind != Absent && payload.Kind != Absent
}

// Expect says which name of the guessed ones comes next.
func (t *Tape) Expect(next int) { t.lex.Next = next }

// jsonSchema is a schema as Connect's JSON converter writes it.
type jsonSchema struct {
	Type     string            `json:"type"`
	Optional bool              `json:"optional"`
	Name     string            `json:"name,omitempty"`
	Version  int               `json:"version,omitempty"`
	Params   map[string]string `json:"parameters,omitempty"`
	Field    string            `json:"field,omitempty"`
	Fields   []jsonSchema      `json:"fields,omitempty"`
	Keys     *jsonSchema       `json:"keys,omitempty"`
	Values   *jsonSchema       `json:"values,omitempty"`
	Items    *jsonSchema       `json:"items,omitempty"`
}

// ParseJSON reads a schema as Connect's JSON converter writes it.
func ParseJSON(text []byte) (*Schema, error) {
	var doc jsonSchema
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("no schema of Connect: %w", err)
	}
	return doc.schema()
}

// AppendJSON appends the schema as Connect's JSON converter writes it.
func (s *Schema) AppendJSON(dst []byte) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s.json()); err != nil {
		panic(fmt.Sprintf("connect: encoding a schema: %v", err)) // texts and numbers always marshal
	}
	return append(dst, bytes.TrimSpace(out.Bytes())...)
}

func (s *Schema) json() *jsonSchema {
	if s == nil {
		return nil
	}
	d := &jsonSchema{
		Type: s.Type.String(), Optional: s.Optional, Name: s.Name, Version: s.Version, Params: s.Params, Keys: s.Key.json(),
	}
	if s.Type == Array {
		d.Items = s.Elem.json()
	} else {
		d.Values = s.Elem.json()
	}
	for _, f := range s.Fields {
		field := *f.Schema.json()
		field.Field = f.Name
		d.Fields = append(d.Fields, field)
	}
	return d
}

func (d *jsonSchema) schema() (*Schema, error) {
	if d == nil {
		return nil, errors.New("a schema is missing")
	}
	t, ok := ParseType(d.Type)
	if !ok || t > Struct {
		return nil, fmt.Errorf("unknown type %q", d.Type)
	}
	s := &Schema{Type: t, Name: d.Name, Version: d.Version, Params: d.Params, Optional: d.Optional}
	var err error
	switch t {
	case Array:
		s.Elem, err = d.Items.schema()
	case Map:
		if s.Key, err = d.Keys.schema(); err == nil {
			s.Elem, err = d.Values.schema()
		}
	case Struct:
		s.Fields = make([]Field, len(d.Fields))
		for i := range d.Fields {
			s.Fields[i].Name = d.Fields[i].Field
			if s.Fields[i].Schema, err = d.Fields[i].schema(); err != nil {
				return nil, fmt.Errorf("field %q: %w", d.Fields[i].Field, err)
			}
		}
	default:
	}
	return s, err
}

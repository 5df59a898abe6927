package jsonschema

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/internal/plain"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/record"
)

// NewFormat is the format of plain rows in JSON with schemas of a registry.
func NewFormat(r *registry.Client) message.Format {
	return &plain.Format{
		Wire: Wire{r}, Mapping: jsonl.Mapping,
		Packer: func(t message.Topic, key bool) (plain.Packer, error) {
			return &packer{registry: r, topic: t.Name, key: key}, nil
		},
	}
}

// Wire is JSON with the schemas of a registry, as formats of messages use it.
type Wire struct{ Registry *registry.Client }

var _ plain.Wire = Wire{}

// Unpacker implements plain.Wire.
func (w Wire) Unpacker(_ string, key bool) plain.Unpacker {
	return &unpacker{registry: w.Registry, key: key, schemas: map[registry.Ref]*connect.Schema{}}
}

// Known implements plain.Wire.
func (w Wire) Known(ctx context.Context, topic string, key bool) (*connect.Schema, error) {
	s, err := w.Registry.Newest(ctx, topic, key)
	if err != nil || s == nil || s.Kind != registry.JSON {
		return nil, err
	}
	return compile(s)
}

// Mine implements plain.Wire.
func (Wire) Mine(data []byte) bool { return registry.Mine(data) }

type unpacker struct {
	registry *registry.Client
	key      bool
	schemas  map[registry.Ref]*connect.Schema
}

// Unpack implements plain.Unpacker.
func (u *unpacker) Unpack(
	ctx context.Context, data []byte, headers []message.Header, _ *connect.Tape,
) (*connect.Schema, connect.Cell, error) {
	ref, content, err := registry.Split(data, headers, u.key)
	if err != nil {
		return nil, connect.Cell{}, err
	}
	s := u.schemas[ref]
	if s == nil {
		found, err := u.registry.Find(ctx, ref)
		if err != nil {
			return nil, connect.Cell{}, err
		}
		if s, err = compile(found); err != nil {
			return nil, connect.Cell{}, err
		}
		u.schemas[ref] = s
	}
	c, err := connect.Parse(content)
	if err != nil {
		return nil, c, fmt.Errorf("it is no JSON: %w", err)
	}
	return s, c, nil
}

// packer writes rows as JSON behind the id of their schema.
type packer struct {
	registry *registry.Client
	topic    string
	key      bool
	id       int
	json     plain.JSONPacker
}

// Bind implements plain.Packer.
func (p *packer) Bind(ctx context.Context, s *record.Schema, cols []int) error {
	if err := p.json.Bind(ctx, s, cols); err != nil {
		return err
	}
	title := s.Dataset + ".Value"
	if p.key {
		title = s.Dataset + ".Key"
	}
	var err error
	p.id, err = p.registry.Register(ctx, p.registry.Subject(p.topic, p.key, title), registry.JSON, textOf(s, cols, title))
	return err
}

// Rows implements plain.Packer.
func (p *packer) Rows(rows arrow.RecordBatch) { p.json.Rows(rows) }

// Append implements plain.Packer.
func (p *packer) Append(dst []byte, i int) ([]byte, error) {
	return p.json.Append(registry.AppendID(dst, p.id), i)
}

// textOf is the JSON Schema of rows.
func textOf(s *record.Schema, cols []int, title string) string {
	out := record.AppendJSONString([]byte(`{"$schema":"http://json-schema.org/draft-07/schema#","title":`), title)
	out = append(out, `,"type":"object","properties":{`...)
	var required []byte
	for i, c := range cols {
		f := s.Columns.Field(c)
		if i > 0 {
			out = append(out, ',')
		}
		out = append(record.AppendJSONString(out, f.Name), ':')
		types := kindsOf(f)
		if f.Nullable && !slices.Contains(s.Key, c) && types != nil {
			types = append([]string{"null"}, types...)
		} else {
			if required != nil {
				required = append(required, ',')
			}
			required = record.AppendJSONString(required, f.Name)
		}
		out = append(out, '{')
		if types != nil {
			out = append(out, `"type":[`...)
			for n, t := range types {
				if n > 0 {
					out = append(out, ',')
				}
				out = record.AppendJSONString(out, t)
			}
			out = append(out, `],`...)
		}
		out = append(record.AppendJSONString(append(out, `"leat.type":`...), record.FormatType(f.Type)), '}')
	}
	out = append(out, '}')
	if required != nil {
		out = append(append(append(out, `,"required":[`...), required...), ']')
	}
	return string(append(out, '}'))
}

// kindsOf are the kinds of JSON that values are written as; nil: any.
func kindsOf(f arrow.Field) []string {
	t, err := record.TypeOf(f.Type)
	if err != nil {
		return nil
	}
	switch {
	case t.Kind == record.Bool:
		return []string{"boolean"}
	case t.Kind >= record.Int8 && t.Kind <= record.Uint64:
		return []string{"integer"}
	case t.Kind == record.Decimal:
		return []string{"number"}
	case t.Kind == record.Float32, t.Kind == record.Float64, t.Kind == record.Numeric:
		return []string{"number", "string"} // NaN and the infinities
	case t.Kind == record.Struct:
		return []string{"object"}
	case t.Kind == record.Array:
		return []string{"array", "object"} // with lower bounds
	case t.Nested():
		return []string{"array"}
	case t.Kind == record.JSON:
		return nil
	default:
		return []string{"string"}
	}
}

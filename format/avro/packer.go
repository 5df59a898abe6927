package avro

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/internal/plain"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/record"
)

// NewFormat is the format of plain rows in Avro.
func NewFormat(r *registry.Client) message.Format {
	return &plain.Format{
		Wire: Wire{r}, Mapping: Mapping,
		Packer: func(t message.Topic, key bool) (plain.Packer, error) {
			return &packer{registry: r, topic: t.Name, key: key}, nil
		},
	}
}

// Mapping says how the columns are kept.
func Mapping(s *record.Schema) []connector.Mapping {
	out := make([]connector.Mapping, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		m := connector.Mapping{Column: f.Name}
		t, err := record.TypeOf(f.Type)
		if err != nil {
			m.Native, m.Fidelity, m.Why = f.Type.String(), connector.Inexact, err.Error()
			out[i] = m
			continue
		}
		m.Native = nativeName(schemaOf(t))
		if m.Limits = Limits(t); !m.Limits.Zero() {
			m.Fidelity, m.Why = connector.Checked, "lists have as many dimensions as the column says, and elements are counted from 1"
			m.Policies = []connector.Policy{connector.PolicyText, connector.PolicyNull}
		}
		out[i] = m
	}
	return out
}

// Limits is what arrays in values of a type must keep.
func Limits(t record.Type) connector.Limits {
	var inner []record.Type
	switch t.Kind {
	case record.Array:
		return connector.Limits{Rank: t.Rank, LowerBounds: true}
	case record.List:
		inner = []record.Type{*t.Elem}
	case record.Map:
		inner = []record.Type{*t.Key, *t.Elem}
	case record.Struct:
		for _, f := range t.Fields {
			inner = append(inner, f.Type)
		}
	default:
	}
	for _, x := range inner {
		if l := Limits(x); !l.Zero() {
			return l
		}
	}
	return connector.Limits{}
}

// nativeName is the Avro type, with its logical type.
func nativeName(s *connect.Schema) string {
	switch s.Type {
	case connect.Array:
		return "array<" + nativeName(s.Elem) + ">"
	case connect.Map:
		return "map<" + nativeName(s.Elem) + ">"
	case connect.Struct:
		return "record"
	default:
	}
	base := avroTypes[s.Type]
	for key, name := range logical {
		if name == s.Name && len(key) > len(base) && key[:len(base)+1] == base+"/" {
			return base + " " + key[len(base)+1:]
		}
	}
	return base
}

// packer writes rows in Avro, behind the id of their schema.
type packer struct {
	registry *registry.Client
	topic    string
	key      bool
	row      Rows
	id       int
	bound    arrow.RecordBatch
}

// Rows writes columns of rows, one behind the other, as the fields of a record. It is used by one goroutine at a time.
type Rows struct {
	schema *connect.Schema
	cols   []int
	names  []string
	puts   []appender
	arrays []arrow.Array
}

// Bind prepares for the columns cols of rows of a schema; key: they are its key, which is never null. schemas says how columns are
// written; nil: as Mapping says.
func (r *Rows) Bind(s *record.Schema, cols []int, key bool, schemas func(arrow.Field) *connect.Schema) error {
	*r = Rows{schema: &connect.Schema{Type: connect.Struct}, cols: cols}
	for _, c := range cols {
		f := s.Columns.Field(c)
		t, err := record.TypeOf(f.Type)
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		cs := schemaOf(t)
		cs.Optional = f.Nullable && !slices.Contains(s.Key, c)
		if schemas != nil {
			cs = schemas(f)
		}
		if key {
			cs.Optional = false
		}
		put, err := element(cs, t)
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		r.schema.Fields = append(r.schema.Fields, connect.Field{Name: f.Name, Schema: cs})
		r.names, r.puts = append(r.names, f.Name), append(r.puts, put)
	}
	return nil
}

// Of says which rows Append is about.
func (r *Rows) Of(rows arrow.RecordBatch) {
	r.arrays = r.arrays[:0]
	for _, c := range r.cols {
		r.arrays = append(r.arrays, rows.Column(c))
	}
}

// Schema is the record that the columns are the fields of.
func (r *Rows) Schema() *connect.Schema { return r.schema }

// Append appends row i. Where instead is not nil it returns what is written instead of the value of a column, with the union's branch;
// nil: the value itself.
func (r *Rows) Append(dst []byte, i int, instead func(col int) []byte) ([]byte, error) {
	var err error
	for n, put := range r.puts {
		if instead != nil {
			if b := instead(n); b != nil {
				dst = append(dst, b...)
				continue
			}
		}
		if dst, err = put(dst, r.arrays[n], i); err != nil {
			return dst, fmt.Errorf("column %q: %w", r.names[n], err)
		}
	}
	return dst, nil
}

// Bind implements plain.Packer.
func (p *packer) Bind(ctx context.Context, s *record.Schema, cols []int) error {
	if err := p.row.Bind(s, cols, p.key, nil); err != nil {
		return fmt.Errorf("dataset %s: %w", s.Dataset, err)
	}
	p.bound = nil
	name := recordName(s.Dataset, p.key)
	var err error
	p.id, err = p.registry.Register(ctx, p.registry.Subject(p.topic, p.key, name), registry.Avro, Text(p.row.schema, name))
	return err
}

// recordName is the full name of the record of a dataset.
func recordName(dataset string, key bool) string {
	var name []byte
	for i, part := range record.SplitName(dataset) {
		if i > 0 {
			name = append(name, '.')
		}
		name = append(name, allowed(part)...)
	}
	if key {
		return string(name) + ".Key"
	}
	return string(name) + ".Value"
}

// Rows implements plain.Packer.
func (p *packer) Rows(rows arrow.RecordBatch) {
	if rows != p.bound {
		p.bound = rows
		p.row.Of(rows)
	}
}

// Append implements plain.Packer.
func (p *packer) Append(dst []byte, i int) ([]byte, error) {
	return p.row.Append(registry.AppendID(dst, p.id), i, nil)
}

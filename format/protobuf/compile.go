package protobuf

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/record"
)

// fileName is what the file of a registered schema is called; the names of those that it imports are its own.
const fileName = "leat/schema.proto"

// files compiles a registered schema.
func files(ctx context.Context, s *registry.Schema) (protoreflect.FileDescriptor, error) {
	if s.Kind != registry.Protobuf {
		return nil, fmt.Errorf("schema %d is %s, not Protobuf", s.ID, s.Kind)
	}
	sources := map[string]string{fileName: s.Text}
	for _, r := range s.Refs {
		sources[r.Name] = r.Text
	}
	own := &protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(sources)}
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(own), MaxParallelism: 1}
	out, err := c.Compile(ctx, fileName)
	if err != nil {
		return nil, fmt.Errorf("schema %d: %w", s.ID, err)
	}
	return out[0], nil
}

// find follows the indexes of messages within messages.
func find(f protoreflect.FileDescriptor, indexes []int) (protoreflect.MessageDescriptor, error) {
	within := f.Messages()
	var m protoreflect.MessageDescriptor
	for _, i := range indexes {
		if i < 0 || i >= within.Len() {
			return nil, fmt.Errorf("its schema has no message %v", indexes)
		}
		m = within.Get(i)
		within = m.Messages()
	}
	if m == nil {
		return nil, errors.New("it names no message of its schema")
	}
	return m, nil
}

// part is a field that was prepared for reading.
type part struct {
	field protoreflect.FieldDescriptor
	value node // of a field, of an element, or of the value of a map
	key   node
}

// node is how a value is read.
type node struct {
	schema *connect.Schema
	kind   protoreflect.Kind
	known  string // the full name of a type of Google's that is read in its own way
	inner  *message
}

// message is a message that was prepared for reading.
type message struct {
	desc   protoreflect.MessageDescriptor
	schema *connect.Schema
	parts  []part
}

type compiler struct {
	open  map[protoreflect.FullName]bool
	count int
}

const maxMessages = 10_000

func (c *compiler) message(d protoreflect.MessageDescriptor) (*message, error) {
	if c.count++; c.count > maxMessages {
		return nil, errors.New("its schema is too large")
	}
	if c.open[d.FullName()] {
		return nil, fmt.Errorf("message %s contains itself, which columns can't", d.FullName())
	}
	c.open[d.FullName()] = true
	defer delete(c.open, d.FullName())
	m := &message{desc: d, schema: &connect.Schema{Type: connect.Struct, Name: string(d.FullName())}}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		p := part{field: f}
		var err error
		s := &connect.Schema{}
		switch {
		case f.IsMap():
			if p.key, err = c.node(f.MapKey()); err == nil {
				p.value, err = c.node(f.MapValue())
			}
			s.Type, s.Key, s.Elem = connect.Map, p.key.schema, p.value.schema
		case f.IsList():
			p.value, err = c.node(f)
			s.Type, s.Elem = connect.Array, p.value.schema
		default:
			p.value, err = c.node(f)
			s = p.value.schema
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name(), err)
		}
		m.parts = append(m.parts, p)
		m.schema.Fields = append(m.schema.Fields, connect.Field{Name: string(f.Name()), Schema: s})
	}
	return m, nil
}

// plain are the types of scalars.
var plainTypes = map[protoreflect.Kind]connect.Type{ //nolint:gochecknoglobals // a constant table
	protoreflect.BoolKind: connect.Boolean, protoreflect.Int32Kind: connect.Int32, protoreflect.Sint32Kind: connect.Int32,
	protoreflect.Sfixed32Kind: connect.Int32, protoreflect.Int64Kind: connect.Int64, protoreflect.Sint64Kind: connect.Int64,
	protoreflect.Sfixed64Kind: connect.Int64, protoreflect.Uint32Kind: connect.Uint32, protoreflect.Fixed32Kind: connect.Uint32,
	protoreflect.Uint64Kind: connect.Uint64, protoreflect.Fixed64Kind: connect.Uint64, protoreflect.FloatKind: connect.Float32,
	protoreflect.DoubleKind: connect.Float64, protoreflect.StringKind: connect.String, protoreflect.BytesKind: connect.Bytes,
}

const google = "google.protobuf."

func (c *compiler) node(f protoreflect.FieldDescriptor) (node, error) {
	n := node{kind: f.Kind()}
	if t, ok := plainTypes[f.Kind()]; ok {
		n.schema = &connect.Schema{Type: t}
		return n, nil
	}
	if f.Kind() == protoreflect.EnumKind {
		values := f.Enum().Values()
		labels := make([]string, values.Len())
		for i := range labels {
			labels[i] = string(values.Get(i).Name())
		}
		n.schema = &connect.Schema{Type: connect.String, Record: record.EnumType(string(f.Enum().Name()), labels)}
		return n, nil
	}
	switch name := string(f.Message().FullName()); name {
	case google + "Timestamp":
		n.known, n.schema = name, &connect.Schema{Type: connect.Int64, Name: connect.InstantNanos}
	case google + "Duration":
		n.known, n.schema = name, &connect.Schema{Type: connect.Int64, Name: connect.NanoDuration}
	case google + "Struct", google + "Value", google + "ListValue":
		n.known, n.schema = name, &connect.Schema{Type: connect.String, Name: connect.JSON}
	default:
		if strings.HasPrefix(name, google) && strings.HasSuffix(name, "Value") {
			inner, err := c.node(f.Message().Fields().ByNumber(1))
			n.known, n.schema = google+"Wrapper", inner.schema
			return n, err
		}
		m, err := c.message(f.Message())
		if err != nil {
			return n, err
		}
		n.inner, n.schema = m, m.schema
	}
	return n, nil
}

// read decodes the bytes of a message.
func (m *message) read(b []byte, t *connect.Tape) (connect.Cell, error) {
	msg := dynamicpb.NewMessage(m.desc)
	if err := (proto.UnmarshalOptions{AllowPartial: true, DiscardUnknown: true}).Unmarshal(b, msg); err != nil {
		return connect.Cell{}, err //nolint:wrapcheck // the caller says more
	}
	return m.cells(msg, t)
}

func (m *message) cells(msg protoreflect.Message, t *connect.Tape) (connect.Cell, error) {
	out := t.Reserve(connect.Record, len(m.parts))
	for i := range m.parts {
		p := &m.parts[i]
		c, err := p.cell(msg, t)
		if err != nil {
			return out, fmt.Errorf("field %s: %w", p.field.Name(), err)
		}
		t.Set(out, i, c)
	}
	return out, nil
}

func (p *part) cell(msg protoreflect.Message, t *connect.Tape) (connect.Cell, error) {
	f := p.field
	if f.HasPresence() && !msg.Has(f) {
		return connect.Cell{Kind: connect.Null}, nil
	}
	v := msg.Get(f)
	switch {
	case f.IsList():
		mark := t.Open()
		for i := range v.List().Len() {
			c, err := p.value.cell(v.List().Get(i), f, t)
			if err != nil {
				return c, err
			}
			t.Push(c)
		}
		return t.Close(connect.List, mark), nil
	case f.IsMap():
		mark := t.Open()
		var err error
		v.Map().Range(func(k protoreflect.MapKey, item protoreflect.Value) bool {
			var c connect.Cell
			if c, err = p.key.cell(k.Value(), f.MapKey(), t); err == nil {
				t.Push(c)
				c, err = p.value.cell(item, f.MapValue(), t)
				t.Push(c)
			}
			return err == nil
		})
		return t.Close(connect.Pairs, mark), err
	default:
		return p.value.cell(v, f, t)
	}
}

func (n *node) cell(v protoreflect.Value, f protoreflect.FieldDescriptor, t *connect.Tape) (connect.Cell, error) {
	switch n.kind {
	case protoreflect.BoolKind:
		return connect.BoolCell(v.Bool()), nil
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return connect.FloatCell(v.Float()), nil
	case protoreflect.StringKind:
		return connect.Cell{Kind: connect.Text, Bytes: []byte(v.String())}, nil
	case protoreflect.BytesKind:
		return connect.Cell{Kind: connect.Blob, Bytes: v.Bytes()}, nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return connect.UintCell(v.Uint()), nil
	case protoreflect.EnumKind:
		d := f.Enum().Values().ByNumber(v.Enum())
		if d == nil {
			return connect.Cell{}, fmt.Errorf("enum %s has no label for %d", f.Enum().Name(), v.Enum())
		}
		return connect.Cell{Kind: connect.Text, Bytes: []byte(d.Name())}, nil
	case protoreflect.MessageKind, protoreflect.GroupKind:
		if n.inner != nil {
			return n.inner.cells(v.Message(), t)
		}
		return n.wellKnown(v.Message(), t)
	default:
		return connect.IntCell(v.Int()), nil
	}
}

const second = 1_000_000_000

// wellKnown reads a type of Google's.
func (n *node) wellKnown(m protoreflect.Message, t *connect.Tape) (connect.Cell, error) {
	fields := m.Descriptor().Fields()
	switch n.known {
	case google + "Timestamp", google + "Duration":
		seconds, nanos := m.Get(fields.ByNumber(1)).Int(), m.Get(fields.ByNumber(2)).Int()
		whole := seconds * second
		if seconds > math.MaxInt64/second-1 || seconds < math.MinInt64/second+1 || nanos <= -second || nanos >= second {
			return connect.Cell{}, fmt.Errorf("%d seconds and %d nanoseconds do not fit 64 bits of nanoseconds", seconds, nanos)
		}
		return connect.IntCell(whole + nanos), nil
	case google + "Wrapper":
		f := fields.ByNumber(1)
		inner := node{kind: f.Kind()}
		return inner.cell(m.Get(f), f, t)
	default:
		doc, err := protojson.Marshal(m.Interface())
		if err != nil {
			return connect.Cell{}, fmt.Errorf("%s: %w", n.known, err)
		}
		return connect.Cell{Kind: connect.Text, Bytes: doc}, nil
	}
}

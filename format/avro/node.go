package avro

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/twmb/avro"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/registry"
	"github.com/leatdata/leat/record"
)

// kind is what has to be read.
type kind uint8

const (
	null kind = iota
	boolean
	integer // int and long
	float
	double
	text
	blob
	fixed
	enum
	list
	pairs
	object
	union
	optional // a union of null and one other
)

// node is a schema that was prepared for reading.
type node struct {
	kind    kind
	schema  *connect.Schema
	parts   []*node // of a record or union; one of a list, pairs or optional
	symbols []string
	size    int
	null    int // optional: which branch is null
}

// Properties of schemas.
const (
	propType    = "leat.type"
	propName    = "leat.name"
	propConnect = "connect.name"
	propVersion = "connect.version"
	propParams  = "connect.parameters"
	propPlain   = "connect.type"
)

// compile prepares a registered schema.
func compile(s *registry.Schema) (*node, error) {
	if s.Kind != registry.Avro {
		return nil, fmt.Errorf("schema %d is %s, not Avro", s.ID, s.Kind)
	}
	var cache avro.SchemaCache
	c := compiler{named: map[string]*avro.SchemaNode{}, open: map[string]bool{}}
	for _, r := range s.Refs {
		parsed, err := cache.Parse(r.Text)
		if err != nil {
			return nil, fmt.Errorf("schema %s, which schema %d refers to: %w", r.Name, s.ID, err)
		}
		c.names(parsed.Root())
	}
	parsed, err := cache.Parse(s.Text)
	if err != nil {
		return nil, fmt.Errorf("schema %d: %w", s.ID, err)
	}
	root := parsed.Root()
	c.names(root)
	n, err := c.node(root)
	if err != nil {
		return nil, fmt.Errorf("schema %d: %w", s.ID, err)
	}
	return n, nil
}

// compiler makes nodes. Named types may stand for themselves later.
type compiler struct {
	named map[string]*avro.SchemaNode
	open  map[string]bool // those that are being made
	space string          // the namespace of the record that is being made
	count int
}

// names remembers the named types in a schema.
func (c *compiler) names(n *avro.SchemaNode) {
	switch n.Type {
	case "record", "error", "enum", "fixed":
		c.named[fullName(n)] = n
	}
	for i := range n.Fields {
		c.names(&n.Fields[i].Type)
	}
	for i := range n.Branches {
		c.names(&n.Branches[i])
	}
	if n.Items != nil {
		c.names(n.Items)
	}
	if n.Values != nil {
		c.names(n.Values)
	}
}

func fullName(n *avro.SchemaNode) string {
	if n.Namespace == "" || strings.Contains(n.Name, ".") {
		return n.Name
	}
	return n.Namespace + "." + n.Name
}

// maxNodes bounds how large a schema may become when names in it are replaced.
const maxNodes = 100_000

func (c *compiler) node(n *avro.SchemaNode) (*node, error) {
	if c.count++; c.count > maxNodes {
		return nil, errors.New("it is too large")
	}
	out := &node{schema: &connect.Schema{}}
	switch n.Type {
	case "null":
		out.kind, out.schema.Type, out.schema.Optional = null, connect.String, true
	case "boolean":
		out.kind, out.schema.Type = boolean, connect.Boolean
	case "int":
		out.kind, out.schema.Type = integer, connect.Int32
	case "long":
		out.kind, out.schema.Type = integer, connect.Int64
	case "float":
		out.kind, out.schema.Type = float, connect.Float32
	case "double":
		out.kind, out.schema.Type = double, connect.Float64
	case "string":
		out.kind, out.schema.Type = text, connect.String
	case "bytes":
		out.kind, out.schema.Type = blob, connect.Bytes
	case "fixed":
		out.kind, out.schema.Type, out.size = fixed, connect.Bytes, n.Size
		if n.LogicalType == "" {
			out.schema.Record = &arrow.FixedSizeBinaryType{ByteWidth: n.Size}
		}
	case "enum":
		out.kind, out.schema.Type, out.symbols = enum, connect.String, n.Symbols
		out.schema.Record = record.EnumType(n.Name, n.Symbols)
	case "array", "map", "record", "error", "union":
		if err := c.compound(n, out); err != nil {
			return nil, err
		}
	default:
		return c.reference(n)
	}
	return out, meaning(n, out)
}

func (c *compiler) reference(n *avro.SchemaNode) (*node, error) {
	def, ok := c.named[c.space+"."+n.Type]
	if !ok {
		def, ok = c.named[n.Type]
	}
	if !ok {
		return nil, fmt.Errorf("unknown type %q", n.Type)
	}
	return c.node(def)
}

func (c *compiler) compound(n *avro.SchemaNode, out *node) error {
	switch n.Type {
	case "array":
		return c.array(n, out)
	case "map":
		elem, err := c.node(n.Values)
		if err != nil {
			return err
		}
		out.kind, out.parts = pairs, []*node{elem}
		out.schema.Type, out.schema.Key, out.schema.Elem = connect.Map, &connect.Schema{Type: connect.String}, elem.schema
		return nil
	case "union":
		return c.union(n, out)
	}
	name := fullName(n)
	if c.open[name] {
		return fmt.Errorf("type %s contains itself, which columns can't", name)
	}
	c.open[name] = true
	space := c.space
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		c.space = name[:at]
	} else {
		c.space = ""
	}
	defer func() {
		delete(c.open, name)
		c.space = space
	}()
	out.kind, out.schema.Type, out.schema.Name = object, connect.Struct, name
	for i := range n.Fields {
		f := &n.Fields[i]
		part, err := c.node(&f.Type)
		if err != nil {
			return fmt.Errorf("field %q: %w", f.Name, err)
		}
		column, _ := f.Props[propName].(string)
		out.parts = append(out.parts, part)
		out.schema.Fields = append(out.schema.Fields, connect.Field{Name: f.Name, Column: column, Schema: part.schema})
	}
	return nil
}

// array makes a list, or what Connect writes for maps whose keys are no text: a list of entries.
func (c *compiler) array(n *avro.SchemaNode, out *node) error {
	elem, err := c.node(n.Items)
	if err != nil {
		return err
	}
	out.kind, out.parts = list, []*node{elem}
	out.schema.Type, out.schema.Elem = connect.Array, elem.schema
	e := elem.schema
	if strings.HasSuffix(e.Name, "MapEntry") && len(e.Fields) == 2 && e.Fields[0].Name == "key" && e.Fields[1].Name == "value" {
		out.schema = &connect.Schema{Type: connect.Map, Key: e.Fields[0].Schema, Elem: e.Fields[1].Schema}
	}
	return nil
}

func (c *compiler) union(n *avro.SchemaNode, out *node) error {
	out.kind, out.null = union, -1
	names := map[string]bool{}
	for i := range n.Branches {
		b := &n.Branches[i]
		part, err := c.node(b)
		if err != nil {
			return err
		}
		out.parts = append(out.parts, part)
		if part.kind == null {
			out.null = i
			continue
		}
		name := b.Name
		if name == "" {
			name = b.Type
		}
		if names[name] {
			name += strconv.Itoa(i)
		}
		names[name] = true
		branch := *part.schema
		branch.Optional = true
		out.schema.Fields = append(out.schema.Fields, connect.Field{Name: name, Schema: &branch})
	}
	switch {
	case len(out.parts) == 2 && out.null >= 0:
		out.kind = optional
		s := *out.parts[1-out.null].schema
		s.Optional = true
		out.schema = &s
	case len(out.parts) == 1:
		*out = *out.parts[0]
	default:
		out.schema.Type = connect.Struct
		out.schema.Name = "union"
	}
	return nil
}

// logical are the names of logical types, where they are of the type that Avro says.
var logical = map[string]string{ //nolint:gochecknoglobals // a constant table
	"int/date": connect.Date, "int/time-millis": connect.MilliTime, "long/time-micros": connect.MicroTime,
	"long/timestamp-millis": connect.InstantMillis, "long/timestamp-micros": connect.InstantMicros,
	"long/timestamp-nanos": connect.InstantNanos, "long/local-timestamp-millis": connect.LocalMillis,
	"long/local-timestamp-micros": connect.LocalMicros, "long/local-timestamp-nanos": connect.LocalNanos, "string/uuid": connect.UUID,
	"bytes/decimal": connect.Decimal, "fixed/decimal": connect.Decimal, "fixed/uuid": connect.UUID, "fixed/duration": connect.AvroDuration,
}

// meaning adds what the properties of a schema say.
func meaning(n *avro.SchemaNode, out *node) error {
	s := out.schema
	if n.Type == "union" {
		return nil
	}
	if n.Type == "fixed" && n.LogicalType == "uuid" && n.Size != 16 {
		return nil
	}
	if name, ok := logical[n.Type+"/"+n.LogicalType]; ok {
		s.Name = name
		if name == connect.Decimal {
			s.Params = map[string]string{connect.ParamScale: strconv.Itoa(n.Scale), connect.ParamPrecision: strconv.Itoa(n.Precision)}
		}
	}
	if name, ok := n.Props[propConnect].(string); ok {
		s.Name = name
		s.Version = 1
		if params, ok := n.Props[propParams].(map[string]any); ok {
			s.Params = map[string]string{}
			for k, v := range params {
				s.Params[k] = fmt.Sprint(v)
			}
		}
		if n.Type == "enum" && name != connect.Enum {
			s.Record = arrow.BinaryTypes.String
		}
	}
	switch n.Props[propPlain] {
	case "int8":
		s.Type = connect.Int8
	case "int16":
		s.Type = connect.Int16
	}
	if name, ok := n.Props[propType].(string); ok {
		dt, err := record.ParseType(name)
		if err != nil {
			return fmt.Errorf("property %s: %w", propType, err)
		}
		s.Record = dt
	}
	return nil
}

// reader reads the bytes of one value.
type reader struct {
	b    []byte
	t    *connect.Tape
	left int // cells that may still be made
}

var errShort = errors.New("it ends in the middle of a value")

// long reads a variable-length integer.
func (r *reader) long() (int64, error) {
	var v uint64
	for i, shift := 0, 0; i < len(r.b) && shift < 64; i, shift = i+1, shift+7 {
		c := r.b[i]
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			if shift == 63 && c > 1 {
				break
			}
			r.b = r.b[i+1:]
			return int64(v>>1) ^ -int64(v&1), nil
		}
	}
	if len(r.b) < 10 {
		return 0, errShort
	}
	return 0, errors.New("a number has more than 64 bits")
}

// take reads n bytes.
func (r *reader) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(r.b)) {
		return nil, errShort
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out, nil
}

func (r *reader) bytes() ([]byte, error) {
	n, err := r.long()
	if err != nil {
		return nil, err
	}
	return r.take(n)
}

// maxCells bounds the values of one message: elements of some types take no bytes at all.
const maxCells = 1 << 24

// value reads one value of a node.
func (r *reader) value(n *node) (connect.Cell, error) {
	if r.left--; r.left < 0 {
		return connect.Cell{}, fmt.Errorf("it has more than %d values", maxCells)
	}
	switch n.kind {
	case null:
		return connect.Cell{Kind: connect.Null}, nil
	case boolean:
		b, err := r.take(1)
		if err != nil || b[0] > 1 {
			return connect.Cell{}, errors.Join(err, errors.New("a boolean is neither 0 nor 1"))
		}
		return connect.BoolCell(b[0] == 1), nil
	case integer:
		v, err := r.long()
		if n.schema.Type != connect.Int64 && (v < math.MinInt32 || v > math.MaxInt32) {
			return connect.Cell{}, errors.New("an int has more than 32 bits")
		}
		return connect.IntCell(v), err
	case float:
		b, err := r.take(4)
		if err != nil {
			return connect.Cell{}, err
		}
		return connect.FloatCell(float64(math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24))), nil
	case double:
		b, err := r.take(8)
		if err != nil {
			return connect.Cell{}, err
		}
		var v uint64
		for i := range 8 {
			v |= uint64(b[i]) << (8 * i)
		}
		return connect.FloatCell(math.Float64frombits(v)), nil
	default:
		return r.sized(n)
	}
}

// sized reads a value of a length of its own.
func (r *reader) sized(n *node) (connect.Cell, error) {
	switch n.kind {
	case text:
		b, err := r.bytes()
		if err == nil && !utf8.Valid(b) {
			err = errors.New("a text is not valid UTF-8")
		}
		return connect.Cell{Kind: connect.Text, Bytes: b}, err
	case blob:
		b, err := r.bytes()
		return connect.Cell{Kind: connect.Blob, Bytes: b}, err
	case fixed:
		b, err := r.take(int64(n.size))
		return connect.Cell{Kind: connect.Blob, Bytes: b}, err
	case enum:
		v, err := r.long()
		if err == nil && (v < 0 || v >= int64(len(n.symbols))) {
			err = fmt.Errorf("an enum has no label %d", v)
		}
		if err != nil {
			return connect.Cell{}, err
		}
		return connect.Cell{Kind: connect.Text, Bytes: []byte(n.symbols[v])}, nil
	case list:
		return r.blocks(connect.List, func() error {
			v, err := r.value(n.parts[0])
			r.t.Push(v)
			return err
		})
	case pairs:
		return r.blocks(connect.Pairs, func() error {
			k, err := r.bytes()
			if err == nil && !utf8.Valid(k) {
				err = errors.New("a key is not valid UTF-8")
			}
			if err != nil {
				return err
			}
			r.t.Push(connect.Cell{Kind: connect.Text, Bytes: k})
			v, err := r.value(n.parts[0])
			r.t.Push(v)
			return err
		})
	default:
		return r.parts(n)
	}
}

// parts reads a record or a union.
func (r *reader) parts(n *node) (connect.Cell, error) {
	if n.kind == object {
		c := r.t.Reserve(connect.Record, len(n.parts))
		for i, p := range n.parts {
			v, err := r.value(p)
			if err != nil {
				return c, fmt.Errorf("field %q: %w", n.schema.Fields[i].Name, err)
			}
			r.t.Set(c, i, v)
		}
		return c, nil
	}
	branch, err := r.long()
	if err == nil && (branch < 0 || branch >= int64(len(n.parts))) {
		err = fmt.Errorf("a union has no branch %d", branch)
	}
	if err != nil {
		return connect.Cell{}, err
	}
	b := int(branch)
	if n.kind == optional || b == n.null {
		return r.value(n.parts[b])
	}
	c := r.t.Reserve(connect.Record, len(n.schema.Fields))
	v, err := r.value(n.parts[b])
	if n.null >= 0 && b > n.null {
		b--
	}
	r.t.Set(c, b, v)
	return c, err
}

// blocks reads the blocks of an array or a map.
func (r *reader) blocks(k connect.Kind, one func() error) (connect.Cell, error) {
	mark := r.t.Open()
	for {
		n, err := r.long()
		if err != nil {
			return connect.Cell{}, err
		}
		if n == 0 {
			return r.t.Close(k, mark), nil
		}
		if n < 0 {
			if n == math.MinInt64 {
				return connect.Cell{}, errShort
			}
			n = -n
			if _, err := r.long(); err != nil { // how many bytes the block has
				return connect.Cell{}, err
			}
		}
		for ; n > 0; n-- {
			if err := one(); err != nil {
				return connect.Cell{}, err
			}
		}
	}
}

// read reads a whole value.
func (n *node) read(b []byte, t *connect.Tape) (connect.Cell, error) {
	r := reader{b: b, t: t, left: maxCells}
	c, err := r.value(n)
	if err == nil && len(r.b) > 0 {
		err = fmt.Errorf("%d bytes are left behind the value", len(r.b))
	}
	return c, err
}

package avro

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/record"
)

// schemaOf is the type of Connect that a column is written with.
func schemaOf(t record.Type) *connect.Schema {
	s := plainSchema(t)
	if implied, err := (connect.Reading{}).TypeOf(asRead(s)); err != nil || !arrow.TypeEqual(implied, t.Arrow) {
		s.Record = t.Arrow
	}
	return s
}

// asRead is a schema as its Avro form is read, where that says less: Avro has neither 8 nor 16 bits but as properties.
func asRead(s *connect.Schema) *connect.Schema {
	out := *s
	out.Record = nil
	return &out
}

func named(t connect.Type, name string) *connect.Schema { return &connect.Schema{Type: t, Name: name} }

func plainSchema(t record.Type) *connect.Schema {
	plain := map[record.Kind]connect.Type{
		record.Bool: connect.Boolean, record.Int8: connect.Int8, record.Int16: connect.Int16, record.Int32: connect.Int32,
		record.Int64: connect.Int64, record.Uint8: connect.Int32, record.Uint16: connect.Int32, record.Uint32: connect.Int64,
		record.Float32: connect.Float32, record.Float64: connect.Float64, record.Binary: connect.Bytes, record.Duration: connect.Int64,
	}
	if p, ok := plain[t.Kind]; ok {
		return &connect.Schema{Type: p}
	}
	switch t.Kind {
	case record.Uint64:
		return decimal(20, 0)
	case record.Decimal:
		if t.Scale >= 0 && t.Scale <= t.Precision {
			return decimal(t.Precision, t.Scale)
		}
	case record.UUID:
		return named(connect.String, connect.UUID)
	case record.JSON:
		return named(connect.String, connect.JSON)
	case record.Date:
		return named(connect.Int32, connect.Date)
	case record.Time:
		return timeSchema(t.Unit)
	case record.Timestamp:
		return timestampSchema(t)
	case record.List, record.Array:
		s := &connect.Schema{Type: connect.Array, Elem: optionalOf(*t.Elem)}
		for range t.Rank - 1 {
			s = &connect.Schema{Type: connect.Array, Elem: s}
		}
		return s
	case record.Map:
		return &connect.Schema{Type: connect.Map, Key: schemaOf(*t.Key), Elem: optionalOf(*t.Elem)}
	case record.Struct:
		s := &connect.Schema{Type: connect.Struct}
		for _, f := range t.Fields {
			s.Fields = append(s.Fields, connect.Field{Name: f.Name, Schema: optionalOf(f.Type)})
		}
		return s
	default:
	}
	return &connect.Schema{Type: connect.String}
}

func optionalOf(t record.Type) *connect.Schema {
	s := schemaOf(t)
	s.Optional = true
	return s
}

func decimal(precision, scale int32) *connect.Schema {
	s := named(connect.Bytes, connect.Decimal)
	s.Params = map[string]string{connect.ParamScale: strconv.Itoa(int(scale)), connect.ParamPrecision: strconv.Itoa(int(precision))}
	return s
}

func timeSchema(u arrow.TimeUnit) *connect.Schema {
	switch u {
	case arrow.Nanosecond:
		return named(connect.Int64, connect.NanoTime)
	case arrow.Microsecond:
		return named(connect.Int64, connect.MicroTime)
	default:
		return named(connect.Int32, connect.MilliTime)
	}
}

// timestampSchema: seconds are a plain number, as not all of them fit milliseconds.
func timestampSchema(t record.Type) *connect.Schema {
	if t.Unit == arrow.Second {
		return &connect.Schema{Type: connect.Int64}
	}
	names := map[arrow.TimeUnit]string{
		arrow.Millisecond: connect.LocalMillis, arrow.Microsecond: connect.LocalMicros, arrow.Nanosecond: connect.LocalNanos,
	}
	if t.Zoned {
		return named(connect.Int64, strings.TrimPrefix(names[t.Unit], "local-"))
	}
	return named(connect.Int64, names[t.Unit])
}

// schemaText appends the Avro schema of a type of Connect.
type schemaText struct {
	out     []byte
	taken   map[string]bool            // names of records
	written map[*connect.Schema]string // their names
}

// Text is the Avro schema of a struct, which is called name. A struct that stands in it a second time is written by its name.
func Text(s *connect.Schema, name string) string {
	w := schemaText{taken: map[string]bool{}, written: map[*connect.Schema]string{}}
	w.record(s, name)
	return string(w.out)
}

// full writes a schema, name being what records in it are called after.
func (w *schemaText) full(s *connect.Schema, name string) {
	if s.Optional {
		w.out = append(w.out, `["null",`...)
		w.value(s, name)
		w.out = append(w.out, ']')
		return
	}
	w.value(s, name)
}

// avroTypes are the types of Avro; those of 8 and 16 bits are told apart by a property.
var avroTypes = map[connect.Type]string{ //nolint:gochecknoglobals // a constant table
	connect.Int8: "int", connect.Int16: "int", connect.Int32: "int", connect.Int64: "long", connect.Float32: "float",
	connect.Float64: "double", connect.Boolean: "boolean", connect.String: "string", connect.Bytes: "bytes",
}

func (w *schemaText) value(s *connect.Schema, name string) {
	switch s.Type {
	case connect.Struct:
		w.record(s, name)
		return
	case connect.Array:
		w.out = append(w.out, `{"type":"array","items":`...)
		w.full(s.Elem, name+"_item")
	case connect.Map:
		if s.Key.Type == connect.String && s.Key.Name == "" && s.Key.Record == nil {
			w.out = append(w.out, `{"type":"map","values":`...)
			w.full(s.Elem, name+"_value")
			break
		}
		w.out = append(w.out, `{"type":"array","items":`...)
		w.record(&connect.Schema{Fields: []connect.Field{{Name: "key", Schema: s.Key}, {Name: "value", Schema: s.Elem}}}, name+"_MapEntry")
	default:
		w.out = append(append(append(w.out, `{"type":"`...), avroTypes[s.Type]...), '"')
	}
	w.properties(s)
	w.out = append(w.out, '}')
}

// properties writes what a type says besides.
func (w *schemaText) properties(s *connect.Schema) {
	for key, name := range logical {
		base, logicalType, _ := strings.Cut(key, "/")
		if name == s.Name && base == avroTypes[s.Type] {
			w.property("logicalType", logicalType)
		}
	}
	if s.Name == connect.Decimal {
		w.out = append(append(w.out, `,"precision":`...), s.Params[connect.ParamPrecision]...)
		w.out = append(append(w.out, `,"scale":`...), s.Params[connect.ParamScale]...)
	}
	if s.Type == connect.Int8 || s.Type == connect.Int16 {
		w.property(propPlain, s.Type.String())
	}
	if strings.Contains(s.Name, ".") {
		w.property(propConnect, s.Name)
		w.out = append(append(append(w.out, `,"`...), propVersion...), `":1`...)
		w.params(s)
	}
	if s.Record != nil {
		w.property(propType, record.FormatType(s.Record))
	}
}

func (w *schemaText) params(s *connect.Schema) {
	first := true
	for _, name := range []string{connect.ParamScale, connect.ParamPrecision, connect.ParamLength, connect.ParamAllowed} {
		v, ok := s.Params[name]
		if !ok {
			continue
		}
		if first {
			w.out = append(append(append(w.out, `,"`...), propParams...), `":{`...)
		} else {
			w.out = append(w.out, ',')
		}
		first = false
		w.out = record.AppendJSONString(append(record.AppendJSONString(w.out, name), ':'), v)
	}
	if !first {
		w.out = append(w.out, '}')
	}
}

func (w *schemaText) property(name, value string) {
	w.out = record.AppendJSONString(append(record.AppendJSONString(append(w.out, ','), name), ':'), value)
}

func (w *schemaText) record(s *connect.Schema, name string) {
	if earlier, ok := w.written[s]; ok {
		w.out = record.AppendJSONString(w.out, earlier)
		return
	}
	if s.Name != "" && !strings.HasPrefix(s.Name, "io.debezium.data.") {
		name = s.Name
	}
	parts := strings.Split(name, ".")
	for i := range parts {
		parts[i] = allowed(parts[i])
	}
	name = strings.Join(parts, ".")
	for n := 2; w.taken[name]; n++ {
		name = strings.TrimRight(name, "0123456789") + strconv.Itoa(n)
	}
	w.taken[name] = true
	w.written[s] = name
	w.out = append(w.out, `{"type":"record","name":`...)
	w.out = append(record.AppendJSONString(w.out, name), `,"fields":[`...)
	fields := map[string]bool{}
	short := parts[len(parts)-1]
	for i, f := range s.Fields {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		field := allowed(f.Name)
		for n := 2; fields[field]; n++ {
			field = fmt.Sprintf("%s_%d", allowed(f.Name), n)
		}
		fields[field] = true
		w.out = append(record.AppendJSONString(append(w.out, `{"name":`...), field), `,"type":`...)
		w.full(f.Schema, short+"_"+field)
		if f.Schema.Optional {
			w.out = append(w.out, `,"default":null`...)
		}
		if field != f.Name {
			w.property(propName, f.Name)
		}
		w.out = append(w.out, '}')
	}
	w.out = append(w.out, ']')
	if strings.HasPrefix(s.Name, "io.debezium.") || strings.HasPrefix(s.Name, "org.apache.kafka.connect.") {
		w.property(propConnect, s.Name)
	}
	if s.Record != nil {
		w.property(propType, record.FormatType(s.Record))
	}
	w.out = append(w.out, '}')
}

// allowed is a name with letters, digits and underscores only, as Avro wants it.
func allowed(name string) string {
	var out strings.Builder
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '_':
			out.WriteRune(r)
		case r >= '0' && r <= '9':
			if i == 0 {
				out.WriteByte('_')
			}
			out.WriteRune(r)
		default:
			out.WriteByte('_')
		}
	}
	if out.Len() == 0 {
		return "_"
	}
	return out.String()
}

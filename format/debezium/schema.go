package debezium

import (
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/record"
)

// schemaOf is the type of Connect that a column is written with, see Mapping.
func schemaOf(f arrow.Field) *connect.Schema {
	t, err := record.TypeOf(f.Type)
	if err != nil {
		return &connect.Schema{Type: connect.String, Optional: true}
	}
	s := schemaOfType(t, millis(record.NativeOf(f)))
	s.Optional = true
	return s
}

// exactSchema is the type that a column is written with where messages have schemas: as in JSON without, but for decimals and unsigned
// numbers of 64 bits, which are decimals there too.
func exactSchema(f arrow.Field) *connect.Schema {
	if t, err := record.TypeOf(f.Type); err == nil && isDecimal(t) {
		s := decimal(t.Precision, t.Scale)
		s.Optional = true
		return s
	}
	return withoutUnsigned(schemaOf(f))
}

// isDecimal reports whether values of a type are decimals of Connect.
func isDecimal(t record.Type) bool {
	return t.Kind == record.Decimal && t.Scale >= 0 && t.Scale <= t.Precision
}

func decimal(precision, scale int32) *connect.Schema {
	s := named(connect.Bytes, connect.Decimal)
	s.Params = map[string]string{
		connect.ParamScale: strconv.Itoa(int(scale)), connect.ParamPrecision: strconv.Itoa(int(precision)),
	}
	return s
}

func withoutUnsigned(s *connect.Schema) *connect.Schema {
	out := *s
	if s.Type == connect.Uint64 {
		out = *decimal(20, 0) // as many digits as 64 bits have
		out.Optional = s.Optional
	}
	if s.Elem != nil {
		out.Elem = withoutUnsigned(s.Elem)
	}
	if s.Key != nil {
		out.Key = withoutUnsigned(s.Key)
	}
	out.Fields = slices.Clone(s.Fields)
	for i := range out.Fields {
		out.Fields[i].Schema = withoutUnsigned(out.Fields[i].Schema)
	}
	return &out
}

// replaceable reports whether something can stand for a value that the source did not send.
func replaceable(s *connect.Schema) bool {
	return s.Type == connect.String || s.Type == connect.Bytes && s.Name == "" ||
		s.Type == connect.Array && s.Elem.Type == connect.String
}

func schemaOfType(t record.Type, millis bool) *connect.Schema {
	if s := schemaOfNumber(t); s != nil {
		return s
	}
	switch t.Kind {
	case record.Binary:
		return &connect.Schema{Type: connect.Bytes}
	case record.UUID:
		return named(connect.String, connect.UUID)
	case record.JSON:
		return named(connect.String, connect.JSON)
	case record.Enum:
		s := named(connect.String, connect.Enum)
		if t.Labels != nil {
			s.Params = map[string]string{connect.ParamAllowed: strings.Join(t.Labels, ",")}
		}
		return s
	case record.Bits:
		switch {
		case t.Varying || t.Width == 0:
			return &connect.Schema{Type: connect.String}
		case t.Width == 1:
			return &connect.Schema{Type: connect.Boolean}
		}
		s := named(connect.Bytes, connect.Bits)
		s.Params = map[string]string{connect.ParamLength: strconv.Itoa(t.Width)}
		return s
	case record.Date, record.Time, record.Timestamp, record.Duration, record.Interval:
		return schemaOfTime(t, millis)
	case record.List, record.Array:
		return schemaOfList(t)
	case record.Struct:
		s := &connect.Schema{Type: connect.Struct}
		for _, f := range t.Fields {
			fs := schemaOfType(f.Type, false)
			fs.Optional = true
			s.Fields = append(s.Fields, connect.Field{Name: f.Name, Schema: fs})
		}
		return s
	case record.Map:
		elem := schemaOfType(*t.Elem, false)
		elem.Optional = true
		return &connect.Schema{Type: connect.Map, Key: schemaOfType(*t.Key, false), Elem: elem}
	default:
		return &connect.Schema{Type: connect.String}
	}
}

func named(t connect.Type, name string) *connect.Schema {
	return &connect.Schema{Type: t, Name: name, Version: 1}
}

// schemaOfNumber is the type of a boolean or a number; nil: it is neither.
func schemaOfNumber(t record.Type) *connect.Schema {
	plain := map[record.Kind]connect.Type{
		record.Bool: connect.Boolean, record.Int8: connect.Int8, record.Int16: connect.Int16, record.Int32: connect.Int32,
		record.Int64: connect.Int64, record.Uint8: connect.Int16, record.Uint16: connect.Int32, record.Uint32: connect.Int64,
		record.Uint64: connect.Uint64, record.Float32: connect.Float32, record.Float64: connect.Float64,
		record.Decimal: connect.String, record.Numeric: connect.String,
	}
	if p, ok := plain[t.Kind]; ok {
		return &connect.Schema{Type: p}
	}
	return nil
}

func schemaOfTime(t record.Type, millis bool) *connect.Schema {
	switch name := native(t, millis); {
	case t.Kind == record.Date:
		return named(connect.Int32, name)
	case t.Kind == record.Interval || t.Kind == record.Timestamp && t.Zoned:
		return named(connect.String, name)
	case t.Kind == record.Time && name == connect.MilliTime:
		return named(connect.Int32, name)
	default:
		return named(connect.Int64, name)
	}
}

// schemaOfList is a list, with as many lists in it as an array has dimensions.
func schemaOfList(t record.Type) *connect.Schema {
	elem := schemaOfType(*t.Elem, false)
	elem.Optional = true
	s := &connect.Schema{Type: connect.Array, Elem: elem}
	if t.Kind == record.Array {
		for range t.Rank - 1 {
			s = &connect.Schema{Type: connect.Array, Elem: s}
		}
	}
	return s
}

func optional(t connect.Type) *connect.Schema { return &connect.Schema{Type: t, Optional: true} }

// envelopeSchema is the schema of an envelope around rows; row is written by its name the second time.
func envelopeSchema(row *connect.Schema, name, source string) *connect.Schema {
	text, long := &connect.Schema{Type: connect.String}, &connect.Schema{Type: connect.Int64}
	fields := func(of ...connect.Field) []connect.Field { return of }
	src := &connect.Schema{Type: connect.Struct, Name: source, Fields: fields(
		connect.Field{Name: "version", Schema: text},
		connect.Field{Name: "connector", Schema: text}, connect.Field{Name: "name", Schema: text},
		connect.Field{Name: "ts_ms", Schema: long}, connect.Field{Name: "snapshot", Schema: optional(connect.String)},
		connect.Field{Name: "db", Schema: text}, connect.Field{Name: "schema", Schema: text}, connect.Field{Name: "table", Schema: text},
		connect.Field{Name: "txId", Schema: optional(connect.Int64)}, connect.Field{Name: "lsn", Schema: optional(connect.Int64)},
	)}
	return &connect.Schema{Type: connect.Struct, Name: name + ".Envelope", Fields: fields(
		connect.Field{Name: "before", Schema: row}, connect.Field{Name: "after", Schema: row}, connect.Field{Name: "source", Schema: src},
		connect.Field{Name: "op", Schema: text}, connect.Field{Name: "ts_ms", Schema: optional(connect.Int64)},
	)}
}

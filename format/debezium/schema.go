package debezium

import (
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

package jsonl

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Mapping says how the columns are kept: each value in the JSON form of package record, from which the same type, when it is declared,
// reads the same value. The document null of a JSON column can't be told from NULL.
func Mapping(s *record.Schema) []connector.Mapping {
	out := make([]connector.Mapping, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		out[i] = connector.Mapping{Column: f.Name, Native: native(f)}
	}
	return out
}

// native is the kind of JSON value.
func native(f arrow.Field) string {
	t, err := record.TypeOf(f.Type)
	if err != nil {
		return "string"
	}
	switch {
	case t.Kind == record.Bool:
		return "boolean"
	case t.Kind >= record.Int8 && t.Kind <= record.Numeric:
		return "number"
	case t.Kind == record.Struct:
		return "object"
	case t.Nested():
		return "array"
	case t.Kind == record.JSON:
		return "any"
	default:
		return "string"
	}
}

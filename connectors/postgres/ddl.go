package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/record"
)

// newColumn is a column of a table that is to be made.
type newColumn struct {
	name, typ string
	notNull   bool
}

// newEnum is an enum type that is to be made.
type newEnum struct {
	at     relation
	labels []string
}

// newTable is a table that is to be made, and the types that it needs.
type newTable struct {
	at      relation
	enums   []newEnum
	columns []newColumn
	key     []string
}

// statements returns the SQL that makes schema, types and table, in order.
func (t newTable) statements() []string {
	out := []string{"CREATE SCHEMA IF NOT EXISTS " + ident(t.at.schema)}
	for _, e := range t.enums {
		labels := make([]string, len(e.labels))
		for i, l := range e.labels {
			labels[i] = literal(l)
		}
		out = append(out, fmt.Sprintf("CREATE TYPE %s AS ENUM (%s)", e.at, strings.Join(labels, ", ")))
	}
	lines := make([]string, 0, len(t.columns)+1)
	for _, c := range t.columns {
		lines = append(lines, c.String())
	}
	if len(t.key) > 0 {
		lines = append(lines, "PRIMARY KEY ("+idents(t.key)+")")
	}
	return append(out, fmt.Sprintf("CREATE TABLE %s (\n\t%s\n)", t.at, strings.Join(lines, ",\n\t")))
}

// String returns the column's definition.
func (c newColumn) String() string {
	if c.notNull {
		return ident(c.name) + " " + c.typ + " NOT NULL"
	}
	return ident(c.name) + " " + c.typ
}

// design decides how a table for the schema looks. It reads which types the target knows.
func (s *session) design(ctx context.Context, schema *record.Schema, at relation) (newTable, error) {
	known, err := s.knownTypes(ctx, schema, at)
	if err != nil {
		return newTable{}, err
	}
	t := newTable{at: at, key: schema.KeyNames()}
	for i, f := range schema.Columns.Fields() {
		c := newColumn{name: f.Name, notNull: !f.Nullable || slices.Contains(schema.Key, i)}
		rt, err := record.TypeOf(f.Type)
		if err != nil {
			return newTable{}, fmt.Errorf("column %q: %w", f.Name, err)
		}
		c.typ = chooseType(f, rt, known, at)
		if e, ok := enumOf(rt, at); ok && !known.has(e.at.String()) && strings.TrimSuffix(c.typ, "[]") == e.at.String() {
			if !slices.ContainsFunc(t.enums, func(o newEnum) bool { return o.at == e.at }) {
				t.enums = append(t.enums, e)
			}
		}
		t.columns = append(t.columns, c)
	}
	return t, nil
}

// knownTypes maps a type's name, as a column could declare it, to whether the target has it.
type knownTypes map[string]bool

func (k knownTypes) has(name string) bool { return k[name] }

// knownTypes asks for all types that the schema's columns come from, in one query.
func (s *session) knownTypes(ctx context.Context, schema *record.Schema, at relation) (knownTypes, error) {
	var names []string
	for _, f := range schema.Columns.Fields() {
		if n := record.NativeOf(f); n.System == systemName && n.Type != "" {
			names = append(names, n.Type)
		}
		rt, err := record.TypeOf(f.Type)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		for e := &rt; e != nil; e = e.Elem {
			if e.Kind == record.Foreign && e.System == systemName {
				names = append(names, e.Name)
			}
		}
		if e, ok := enumOf(rt, at); ok {
			names = append(names, e.at.String())
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = fmt.Sprintf("%s, to_regtype(%s) IS NOT NULL", literal(n), literal(n))
	}
	var known knownTypes
	if _, err := s.query(ctx, "types", "SELECT json_build_object("+strings.Join(parts, ", ")+")", &known); err != nil {
		return nil, fmt.Errorf("reading the target's types: %w", err)
	}
	return known, nil
}

// maxLabel is how many bytes an enum label may have.
const maxLabel = 63

// enumOf returns the enum type that a column needs in the target's schema: one of the same name and labels. Other systems' enums
// that have no name become text.
func enumOf(t record.Type, at relation) (newEnum, bool) {
	if t.Kind == record.Array && t.Elem.Kind == record.Enum {
		t = *t.Elem
	}
	if t.Kind != record.Enum || t.Name == "" || len(t.Labels) == 0 ||
		slices.ContainsFunc(t.Labels, func(l string) bool { return len(l) > maxLabel }) {
		return newEnum{}, false
	}
	parts := record.SplitName(t.Name)
	return newEnum{at: relation{schema: at.schema, name: shortName(parts[len(parts)-1])}, labels: t.Labels}, true
}

// chooseType returns the SQL type of a new column: the very type that it comes from where the target has it, or else the narrowest
// one that holds every value of t.
func chooseType(f arrow.Field, t record.Type, known knownTypes, at relation) string {
	if n := record.NativeOf(f); n.System == systemName && known.has(n.Type) {
		return n.Type
	}
	if e, ok := enumOf(t, at); ok {
		if t.Kind == record.Array {
			return e.at.String() + "[]"
		}
		return e.at.String()
	}
	return sqlType(t, known)
}

// plainType is the SQL type of a kind without parameters.
func plainType(k record.Kind) string {
	return map[record.Kind]string{
		record.Bool: "boolean", record.Int8: "smallint", record.Int16: "smallint", record.Uint8: "smallint", record.Int32: "integer",
		record.Uint16: "integer", record.Int64: "bigint", record.Uint32: "bigint", record.Uint64: "numeric(20,0)",
		record.Float32: "real", record.Float64: "double precision", record.Numeric: "numeric", record.String: "text",
		record.Binary: "bytea", record.UUID: "uuid", record.JSON: "json", record.Date: "date", record.Time: "time",
		record.Duration: "interval", record.Interval: "interval", record.Enum: "text",
		record.Struct: "json", record.Map: "json",
	}[k]
}

func sqlType(t record.Type, known knownTypes) string {
	const maxPrecision = 1000
	switch t.Kind {
	case record.Decimal:
		if t.Scale < 0 || t.Precision > maxPrecision {
			return "numeric"
		}
		return fmt.Sprintf("numeric(%d,%d)", t.Precision, t.Scale)
	case record.Timestamp:
		if t.Zoned {
			return "timestamp with time zone"
		}
		return "timestamp without time zone"
	case record.Bits:
		switch {
		case t.Varying && t.Width > 0:
			return fmt.Sprintf("bit varying(%d)", t.Width)
		case t.Varying || t.Width == 0:
			return "bit varying"
		}
		return fmt.Sprintf("bit(%d)", t.Width)
	case record.Network:
		return t.Name
	case record.Foreign:
		if t.System == systemName && known.has(t.Name) {
			return t.Name
		}
		return "text"
	case record.Array, record.List:
		if t.Elem.Nested() {
			return "json"
		}
		return sqlType(*t.Elem, known) + "[]"
	default:
		return plainType(t.Kind)
	}
}

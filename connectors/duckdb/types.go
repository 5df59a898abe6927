package duckdb

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// typeRules is the mapping table, for the documentation and for readers of it; columnOf and fieldOf follow it.
func typeRules() []connector.TypeRule {
	both := func(native string, k record.Kind, note string) connector.TypeRule {
		return connector.TypeRule{Native: native, Kind: k, Read: true, Write: true, Note: note}
	}
	read := func(native string, k record.Kind, note string) connector.TypeRule {
		return connector.TypeRule{Native: native, Kind: k, Read: true, Note: note}
	}
	text := func(k record.Kind, note string) connector.TypeRule {
		return connector.TypeRule{Native: "VARCHAR", Kind: k, Write: true, Note: note}
	}
	return []connector.TypeRule{
		both("BOOLEAN", record.Bool, ""), both("TINYINT", record.Int8, ""), both("SMALLINT", record.Int16, ""),
		both("INTEGER", record.Int32, ""), both("BIGINT", record.Int64, ""), both("UTINYINT", record.Uint8, ""),
		both("USMALLINT", record.Uint16, ""), both("UINTEGER", record.Uint32, ""), both("UBIGINT", record.Uint64, ""),
		both("FLOAT", record.Float32, "NaN and infinities too"), both("DOUBLE", record.Float64, "NaN and infinities too"),
		both("DECIMAL(p,s)", record.Decimal, "up to 38 digits; wider ones are written as VARCHAR"),
		read("HUGEINT, UHUGEINT, BIGNUM", record.Numeric, ""),
		text(record.Numeric, "exact text; cast the column to decimal(p,s) to get a number"),
		both("VARCHAR", record.String, ""), both("BLOB", record.Binary, ""), both("UUID", record.UUID, ""),
		both("JSON", record.JSON, "byte for byte"), both("ENUM", record.Enum, "labels in order; without labels: VARCHAR"),
		read("BIT", record.Bits, ""), text(record.Bits, "digits 0 and 1: DuckDB has no empty bit string"),
		text(record.Network, ""), text(record.Foreign, "the text form of the source"),
		both("DATE", record.Date, "infinities too"), both("TIME", record.Time, "microseconds; finer ones are checked"),
		both("TIMESTAMP", record.Timestamp, "zone-less, microseconds, infinities too"),
		both("TIMESTAMP_S, TIMESTAMP_MS, TIMESTAMP_NS", record.Timestamp, "zone-less, in their units"),
		both("TIMESTAMP WITH TIME ZONE", record.Timestamp, "instants, microseconds, infinities too"),
		both("INTERVAL", record.Interval, "months, days and microseconds"),
		text(record.Duration, "ISO 8601"), read("TIME WITH TIME ZONE", record.Foreign, ""),
		both("T[]", record.List, ""), read("T[n]", record.List, ""),
		{
			Native: "T[]", Kind: record.Array, Write: true, Fidelity: connector.Checked,
			Note: "as many dimensions as the column declares; lower bounds must be 1",
		},
		both("STRUCT", record.Struct, ""), both("MAP", record.Map, ""), read("UNION and others", record.Foreign, "text form"),
	}
}

// duck is a DuckDB type, taken apart.
type duck struct {
	base   string // upper case, without parameters: DECIMAL, VARCHAR, LIST, STRUCT, MAP …
	text   string // as DuckDB writes it
	params string // what stands in the parentheses
	elem   *duck  // LIST: the elements; MAP: the values
	key    *duck  // MAP
	names  []string
	fields []duck // STRUCT
}

// parseDuck reads a type as DuckDB's catalogue writes it.
func parseDuck(s string) (duck, error) {
	s = strings.TrimSpace(s)
	if strings.HasSuffix(s, "]") {
		open := strings.LastIndexByte(s, '[')
		if open < 1 {
			return duck{}, fmt.Errorf("type %q can't be read", s)
		}
		elem, err := parseDuck(s[:open])
		if err != nil {
			return duck{}, err
		}
		return duck{base: "LIST", text: s, elem: &elem}, nil
	}
	base, params, hasParams := strings.Cut(s, "(")
	d := duck{base: strings.ToUpper(strings.TrimSpace(base)), text: s}
	if !hasParams {
		return d, nil
	}
	if !strings.HasSuffix(params, ")") {
		return duck{}, fmt.Errorf("type %q can't be read", s)
	}
	d.params = strings.TrimSuffix(params, ")")
	parts := splitTop(d.params)
	switch d.base {
	case "STRUCT":
		for _, p := range parts {
			name, typ := cutName(strings.TrimSpace(p))
			f, err := parseDuck(typ)
			if err != nil {
				return duck{}, err
			}
			d.names, d.fields = append(d.names, name), append(d.fields, f)
		}
	case "MAP":
		if len(parts) != 2 {
			return duck{}, fmt.Errorf("type %q can't be read", s)
		}
		key, err := parseDuck(parts[0])
		if err != nil {
			return duck{}, err
		}
		elem, err := parseDuck(parts[1])
		if err != nil {
			return duck{}, err
		}
		d.key, d.elem = &key, &elem
	}
	return d, nil
}

// splitTop splits at the commas that stand in no parentheses, brackets or quotes.
func splitTop(s string) []string {
	var parts []string
	depth, start := 0, 0
	quote := byte(0)
	for i := range len(s) {
		c := s[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// cutName splits a struct field into its name, which may be quoted, and its type.
func cutName(s string) (name, typ string) {
	if !strings.HasPrefix(s, `"`) {
		name, typ, _ = strings.Cut(s, " ")
		return name, typ
	}
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			i++
			continue
		}
		return strings.ReplaceAll(s[1:i], `""`, `"`), strings.TrimSpace(s[i+1:])
	}
	return s, ""
}

// plainTypes are DuckDB's types that Arrow carries as they are.
func plainTypes() map[string]arrow.DataType {
	return map[string]arrow.DataType{
		"BOOLEAN": arrow.FixedWidthTypes.Boolean, "TINYINT": arrow.PrimitiveTypes.Int8, "SMALLINT": arrow.PrimitiveTypes.Int16,
		"INTEGER": arrow.PrimitiveTypes.Int32, "BIGINT": arrow.PrimitiveTypes.Int64, "UTINYINT": arrow.PrimitiveTypes.Uint8,
		"USMALLINT": arrow.PrimitiveTypes.Uint16, "UINTEGER": arrow.PrimitiveTypes.Uint32, "UBIGINT": arrow.PrimitiveTypes.Uint64,
		"FLOAT": arrow.PrimitiveTypes.Float32, "DOUBLE": arrow.PrimitiveTypes.Float64, "VARCHAR": arrow.BinaryTypes.String,
		"BLOB": arrow.BinaryTypes.Binary, "TIME": arrow.FixedWidthTypes.Time64us,
		"DATE": record.InfiniteDateType(), "TIMESTAMP": record.InfiniteTimestampType(false),
		"TIMESTAMP WITH TIME ZONE": record.InfiniteTimestampType(true),
		"TIMESTAMP_S":              &arrow.TimestampType{Unit: arrow.Second}, "TIMESTAMP_MS": &arrow.TimestampType{Unit: arrow.Millisecond},
		"TIMESTAMP_NS": &arrow.TimestampType{Unit: arrow.Nanosecond},
	}
}

// target returns the vocabulary's type of a DuckDB type, and the type to cast to in the query so that the values arrive in a form
// that is read exactly: text, where Arrow has none.
func (d *duck) target() (dt arrow.DataType, transfer string, err error) {
	if dt, ok := plainTypes()[d.base]; ok {
		return dt, d.text, nil
	}
	switch d.base {
	case "DECIMAL":
		parts := splitTop(d.params)
		p, errP := strconv.ParseInt(strings.TrimSpace(parts[0]), 10, 32)
		s, errS := strconv.ParseInt(strings.TrimSpace(parts[len(parts)-1]), 10, 32)
		if errP != nil || errS != nil || len(parts) != 2 {
			return nil, "", fmt.Errorf("type %q can't be read", d.text)
		}
		return &arrow.Decimal128Type{Precision: int32(p), Scale: int32(s)}, d.text, nil
	case "HUGEINT", "UHUGEINT", "BIGNUM", "VARINT":
		return record.NumericType(), "VARCHAR", nil
	case "UUID":
		return record.UUIDType(), "VARCHAR", nil
	case "JSON":
		return record.JSONType(), "VARCHAR", nil
	case "INTERVAL":
		return record.IntervalType(), "VARCHAR", nil
	case "BIT":
		return record.BitsType(0, true), "VARCHAR", nil
	case "ENUM":
		return record.EnumType("", labels(d.params)), "VARCHAR", nil
	case "LIST":
		dt, inner, err := d.elem.target()
		if err != nil {
			return nil, "", err
		}
		return arrow.ListOf(dt), inner + "[]", nil
	case "STRUCT":
		return d.structTarget()
	case "MAP":
		k, innerK, err := d.key.target()
		if err != nil {
			return nil, "", err
		}
		v, innerV, err := d.elem.target()
		if err != nil {
			return nil, "", err
		}
		return arrow.MapOf(k, v), "MAP(" + innerK + ", " + innerV + ")", nil
	}
	return record.ForeignType("duckdb", strings.ToLower(d.text)), "VARCHAR", nil
}

func (d *duck) structTarget() (arrow.DataType, string, error) {
	fields := make([]arrow.Field, len(d.fields))
	casts := make([]string, len(d.fields))
	for i := range d.fields {
		dt, inner, err := d.fields[i].target()
		if err != nil {
			return nil, "", err
		}
		fields[i] = arrow.Field{Name: d.names[i], Type: dt, Nullable: true}
		casts[i] = sqlgen.Ident(d.names[i]) + " " + inner
	}
	return arrow.StructOf(fields...), "STRUCT(" + strings.Join(casts, ", ") + ")", nil
}

func labels(params string) []string {
	parts := splitTop(params)
	out := make([]string, len(parts))
	for i, p := range parts {
		p = strings.TrimSpace(p)
		out[i] = strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(p, "'"), "'"), "''", "'")
	}
	return out
}

// fieldOf makes a column of the vocabulary.
func fieldOf(name, native string, nullable bool) (f arrow.Field, transfer string, err error) {
	d, err := parseDuck(native)
	if err != nil {
		return f, "", err
	}
	dt, transfer, err := d.target()
	if err != nil {
		return f, "", err
	}
	return record.WithNative(arrow.Field{Name: name, Type: dt, Nullable: nullable}, record.Native{
		System: "duckdb",
		Type:   native,
	}), transfer, nil
}

// column is how a type is created and how its values travel.
type column struct {
	native   string         // the type of the created column
	transfer arrow.DataType // what is handed to DuckDB
	mapping  connector.Mapping
}

const maxDecimal = 38

// columnOf says how a column of the vocabulary is stored.
func columnOf(f arrow.Field) (column, error) {
	t, err := record.TypeOf(f.Type)
	if err != nil {
		return column{}, err
	}
	c := storeOf(t)
	c.mapping.Column, c.mapping.Native = f.Name, c.native
	return c, nil
}

func same(native string, dt arrow.DataType) column { return column{native: native, transfer: dt} }

// asText stores the canonical text.
func asText(why string) column {
	return column{native: "VARCHAR", transfer: arrow.BinaryTypes.String, mapping: connector.Mapping{Why: why}}
}

// viaText hands the canonical text to DuckDB, which casts it.
func viaText(native string) column { return column{native: native, transfer: arrow.BinaryTypes.String} }

// sameKinds are the kinds that both sides have, by DuckDB's names.
func sameKinds() map[record.Kind]string {
	return map[record.Kind]string{
		record.Bool: "BOOLEAN", record.Int8: "TINYINT", record.Int16: "SMALLINT", record.Int32: "INTEGER", record.Int64: "BIGINT",
		record.Uint8: "UTINYINT", record.Uint16: "USMALLINT", record.Uint32: "UINTEGER", record.Uint64: "UBIGINT",
		record.Float32: "FLOAT", record.Float64: "DOUBLE", record.String: "VARCHAR",
	}
}

func storeOf(t record.Type) column {
	if native, ok := sameKinds()[t.Kind]; ok {
		return same(native, t.Arrow)
	}
	switch t.Kind {
	case record.Decimal:
		if t.Precision > maxDecimal || t.Scale < 0 {
			return asText("more than 38 digits: kept as text")
		}
		return same(fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale), &arrow.Decimal128Type{Precision: t.Precision, Scale: t.Scale})
	case record.Numeric:
		return asText("a number of any precision: kept as text; cast the column to decimal(p,s) to get a number")
	case record.Binary:
		return same("BLOB", arrow.BinaryTypes.Binary)
	case record.UUID:
		return viaText("UUID")
	case record.JSON:
		return viaText("JSON")
	case record.Enum:
		if len(t.Labels) == 0 {
			return asText("the labels are not known")
		}
		return viaText("ENUM(" + sqlgen.Join(t.Labels, ", ", sqlgen.Literal) + ")")
	case record.Interval:
		return viaText("INTERVAL")
	case record.Bits, record.Network, record.Foreign, record.Duration:
		return asText("kept as text")
	default:
		return storeMoment(t)
	}
}

// storeMoment covers dates, times and nested types.
func storeMoment(t record.Type) column {
	switch t.Kind { //nolint:exhaustive // the others are above, or kept as text
	case record.Date:
		return same("DATE", arrow.FixedWidthTypes.Date32)
	case record.Time:
		c := same("TIME", arrow.FixedWidthTypes.Time64us)
		if t.Unit == arrow.Nanosecond {
			c.mapping = micros("DuckDB's TIME has microseconds")
		}
		return c
	case record.Timestamp:
		return storeTimestamp(t)
	case record.List:
		e := storeOf(*t.Elem)
		return nested(e.native+"[]", arrow.ListOf(e.transfer), e)
	case record.Map:
		k, v := storeOf(*t.Key), storeOf(*t.Elem)
		return nested("MAP("+k.native+", "+v.native+")", arrow.MapOf(k.transfer, v.transfer), k, v)
	case record.Struct:
		return storeStruct(t)
	case record.Array:
		e := storeOf(*t.Elem)
		c := e
		for range max(t.Rank, 1) {
			c = nested(c.native+"[]", arrow.ListOf(c.transfer), e)
		}
		c.mapping = connector.Mapping{
			Fidelity: connector.Checked, Limits: connector.Limits{Rank: max(t.Rank, 1), LowerBounds: true},
			Why:      fmt.Sprintf("arrays of %d dimensions whose lower bounds are 1", max(t.Rank, 1)),
			Policies: []connector.Policy{connector.PolicyText, connector.PolicyNull},
		}
		return c
	}
	return asText("kept as text")
}

func micros(why string) connector.Mapping {
	return connector.Mapping{
		Fidelity: connector.Checked, Limits: connector.Limits{MicrosOnly: true}, Why: why,
		Policies: []connector.Policy{connector.PolicyText, connector.PolicyNull},
	}
}

func storeTimestamp(t record.Type) column {
	if t.Zoned {
		c := same("TIMESTAMP WITH TIME ZONE", record.InstantType())
		if t.Unit == arrow.Nanosecond {
			c.mapping = micros("DuckDB's TIMESTAMP WITH TIME ZONE has microseconds")
		}
		return c
	}
	switch t.Unit {
	case arrow.Second:
		return same("TIMESTAMP_S", t.Arrow)
	case arrow.Millisecond:
		return same("TIMESTAMP_MS", t.Arrow)
	case arrow.Nanosecond:
		return same("TIMESTAMP_NS", t.Arrow)
	default:
		return same("TIMESTAMP", &arrow.TimestampType{Unit: arrow.Microsecond})
	}
}

func storeStruct(t record.Type) column {
	fields := make([]arrow.Field, len(t.Fields))
	types := make([]string, len(t.Fields))
	parts := make([]column, len(t.Fields))
	for i, f := range t.Fields {
		parts[i] = storeOf(f.Type)
		fields[i] = arrow.Field{Name: f.Name, Type: parts[i].transfer, Nullable: true}
		types[i] = sqlgen.Ident(f.Name) + " " + parts[i].native
	}
	return nested("STRUCT("+strings.Join(types, ", ")+")", arrow.StructOf(fields...), parts...)
}

// nested joins what is inside: limits of inner values can't be checked one by one, so a type with some is kept as text.
func nested(native string, transfer arrow.DataType, parts ...column) column {
	for _, p := range parts {
		if p.mapping.Fidelity != connector.Exact {
			return asText("kept as JSON text: what is inside does not always fit")
		}
	}
	return same(native, transfer)
}

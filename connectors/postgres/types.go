package postgres

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// serverType is a type of the server's catalogue.
type serverType struct {
	oid          uint32
	schema, name string // as in the catalogue
	sql          string // as SQL writes it, without a modifier
	kind         byte   // b base, c composite, d domain, e enum, p pseudo, r range, m multirange
	base         uint32 // domains: what they are over
	baseMod      int32
	elem         uint32 // arrays: the elements; 0: no array
	send         string // the function that makes the binary form; qualified outside of pg_catalog
	output       string // the function that makes the text form, quoted and qualified
	labels       []string
}

// serverTypes are types by OID, with all that they are made of.
type serverTypes map[uint32]*serverType

// base goes through domains.
func (ts serverTypes) base(oid uint32, mod int32) (*serverType, int32, error) {
	for {
		t, ok := ts[oid]
		if !ok {
			return nil, 0, fmt.Errorf("the catalogue has no type with OID %d", oid)
		}
		if t.kind != 'd' {
			return t, mod, nil
		}
		oid, mod = t.base, t.baseMod
	}
}

// sourceColumn is a column that is read.
type sourceColumn struct {
	name    string
	typ     uint32
	mod     int32
	sql     string // the type as SQL writes it, with its modifier; domains and enums by their own name
	notNull bool
	always  bool // the server computes it: generated, identity always

	arrow arrow.DataType
	wire  pgcopy.Type
	expr  string // what the SELECT list has for it
	cast  string // the type that a value's text is cast to in conditions
}

// readOptions are what the user says about reading types.
type readOptions struct {
	exactNumeric bool
	as           map[string]string // by column: text or numeric
}

// carry decides how the values of a column travel: the Arrow type, the binary form, and the expression that yields it. Every type
// has an exact way: what has no binary form that is known here travels in the text form of its own output function.
func (ts serverTypes) carry(c *sourceColumn, o readOptions) error {
	t, mod, err := ts.base(c.typ, c.mod)
	if err != nil {
		return fmt.Errorf("column %q: %w", c.name, err)
	}
	c.expr, c.cast = ident(c.name), t.sql
	switch o.as[c.name] {
	case "text":
		c.arrow, c.wire, c.expr = arrow.BinaryTypes.String, pgcopy.Type{Form: pgcopy.Raw}, t.text(c.expr)
		return nil
	case "numeric":
		if t.send != "numeric_send" {
			return fmt.Errorf("types: column %q is %s, not numeric", c.name, c.sql)
		}
		mod = -1
	}
	if o.exactNumeric && t.send == "numeric_send" {
		mod = -1
	}
	if t.elem != 0 {
		return ts.carryArray(c, t, mod, o)
	}
	if dt, wire, ok := t.plain(mod); ok {
		c.arrow, c.wire = dt, wire
		return nil
	}
	c.arrow, c.wire, c.expr = t.foreign(), pgcopy.Type{Form: pgcopy.Raw}, t.text(c.expr)
	if t.send == "charsend" {
		c.arrow = arrow.BinaryTypes.String
	}
	return nil
}

func (ts serverTypes) carryArray(c *sourceColumn, t *serverType, mod int32, o readOptions) error {
	elem, elemMod, err := ts.base(t.elem, mod)
	if err != nil {
		return fmt.Errorf("column %q: %w", c.name, err)
	}
	if elem.send == "numeric_send" && o.exactNumeric {
		elemMod = -1
	}
	if elem.elem != 0 { // arrays of domains over arrays
		c.arrow, c.wire, c.expr = t.foreign(), pgcopy.Type{Form: pgcopy.Raw}, t.text(c.expr)
		return nil
	}
	dt, wire, ok := elem.plain(elemMod)
	if !ok {
		dt, wire = elem.foreign(), pgcopy.Type{Form: pgcopy.Raw}
		if elem.send == "charsend" {
			dt = arrow.BinaryTypes.String
		}
		c.expr += "::text[]"
	}
	c.arrow, c.wire = record.ArrayType(dt, 1), pgcopy.ArrayOf(wire, t.elem)
	return nil
}

// text is the expression for the text form of a value by the type's own output function; a cast to text is not always that (it
// cuts the padding of character(n), and adds a mask to addresses).
func (t *serverType) text(expr string) string {
	return "pg_catalog.textin(" + t.output + "(" + expr + "))"
}

func (t *serverType) foreign() arrow.DataType { return record.ForeignType(systemName, t.sql) }

// plain returns the Arrow type and the binary form of a type that is no array; false: the type is foreign and travels as text.
func (t *serverType) plain(mod int32) (arrow.DataType, pgcopy.Type, bool) {
	if t.kind == 'e' {
		return record.EnumType(record.JoinName(t.schema, t.name), t.labels), pgcopy.Type{Form: pgcopy.Raw}, true
	}
	if t.schema != "pg_catalog" {
		if t.send == "textsend" || t.name == "citext" {
			return t.foreign(), pgcopy.Type{Form: pgcopy.Raw}, true
		}
		return nil, pgcopy.Type{}, false
	}
	form := pgcopy.Type{Form: sendForms()[t.send], CIDR: t.send == "cidr_send"}
	dt := t.vocabulary(mod)
	return dt, form, dt != nil && form.Form != 0
}

// sendForms is the binary form that a send function makes.
func sendForms() map[string]pgcopy.Form {
	return map[string]pgcopy.Form{
		"boolsend": pgcopy.Bool, "int2send": pgcopy.Int2, "int4send": pgcopy.Int4, "int8send": pgcopy.Int8, "float4send": pgcopy.Float4,
		"float8send": pgcopy.Float8, "numeric_send": pgcopy.Numeric, "textsend": pgcopy.Raw, "varcharsend": pgcopy.Raw,
		"bpcharsend": pgcopy.Raw, "namesend": pgcopy.Raw, "byteasend": pgcopy.Raw, "json_send": pgcopy.Raw, "jsonb_send": pgcopy.Versioned,
		"uuid_send": pgcopy.UUID, "date_send": pgcopy.Date, "time_send": pgcopy.Time, "timestamp_send": pgcopy.Timestamp,
		"timestamptz_send": pgcopy.Timestamp, "interval_send": pgcopy.Interval, "bit_send": pgcopy.Bits, "varbit_send": pgcopy.Bits,
		"inet_send": pgcopy.Network, "cidr_send": pgcopy.Network, "macaddr_send": pgcopy.MAC, "macaddr8_send": pgcopy.MAC,
	}
}

// vocabulary is the Arrow type of a built-in type; nil: none.
func (t *serverType) vocabulary(mod int32) arrow.DataType {
	switch t.send {
	case "boolsend":
		return arrow.FixedWidthTypes.Boolean
	case "int2send":
		return arrow.PrimitiveTypes.Int16
	case "int4send":
		return arrow.PrimitiveTypes.Int32
	case "int8send":
		return arrow.PrimitiveTypes.Int64
	case "float4send":
		return arrow.PrimitiveTypes.Float32
	case "float8send":
		return arrow.PrimitiveTypes.Float64
	case "numeric_send":
		return numericType(mod)
	case "textsend", "varcharsend", "bpcharsend", "namesend":
		return arrow.BinaryTypes.String
	case "byteasend":
		return arrow.BinaryTypes.Binary
	case "json_send", "jsonb_send":
		return record.JSONType()
	case "uuid_send":
		return record.UUIDType()
	case "date_send":
		return record.InfiniteDateType()
	case "time_send":
		return arrow.FixedWidthTypes.Time64us
	case "timestamp_send":
		return record.InfiniteTimestampType(false)
	case "timestamptz_send":
		return record.InfiniteTimestampType(true)
	case "interval_send":
		return record.IntervalType()
	case "bit_send", "varbit_send":
		return record.BitsType(max(int(mod), 0), t.send == "varbit_send")
	case "inet_send", "cidr_send", "macaddr_send", "macaddr8_send":
		return record.NetworkType(t.name)
	}
	return nil
}

// Limits of Arrow's decimals.
const (
	maxDecimal128 = 38
	maxDecimal256 = 76
)

// numericType reads the modifier of numeric: precision in the upper half, an 11-bit signed scale in the lower one, plus 4.
func numericType(mod int32) arrow.DataType {
	if mod < 4 {
		return record.NumericType()
	}
	precision := (mod - 4) >> 16 & 0xffff
	scale := ((mod-4)&0x7ff ^ 0x400) - 0x400
	switch {
	case scale < 0 || scale > precision || precision > maxDecimal256:
		return record.NumericType()
	case precision > maxDecimal128:
		return &arrow.Decimal256Type{Precision: precision, Scale: scale}
	}
	return &arrow.Decimal128Type{Precision: precision, Scale: scale}
}

// field is the column in a schema.
func (c *sourceColumn) field() arrow.Field {
	f := arrow.Field{Name: c.name, Type: c.arrow, Nullable: !c.notNull}
	return record.WithNative(f, record.Native{System: systemName, Type: c.sql, ReadOnly: c.always})
}

// pgText is the text form of value i as this system reads it: the canonical one but for years outside of 1 to 9999.
func pgText(arr arrow.Array, i int) string {
	s := string(record.AppendText(nil, arr, i))
	t, err := record.TypeOf(arr.DataType())
	if err != nil || (t.Kind != record.Date && t.Kind != record.Timestamp) || strings.HasSuffix(s, "infinity") {
		return s
	}
	date, rest, _ := strings.Cut(s, "T")
	if rest != "" {
		rest = " " + rest
	}
	date = strings.TrimPrefix(date, "+")
	if !strings.HasPrefix(date, "-") && !strings.HasPrefix(date, "0000-") {
		return date + rest
	}
	var year, month, day int
	if _, err := fmt.Sscanf(strings.TrimPrefix(date, "-"), "%d-%d-%d", &year, &month, &day); err != nil {
		return s
	}
	return fmt.Sprintf("%04d-%02d-%02d%s BC", year+1, month, day, rest)
}

// TypeRules is the mapping table: how each type of PostgreSQL is read, and which type is made for each type of the vocabulary.
func TypeRules() []connector.TypeRule {
	both := func(native string, k record.Kind, note string) connector.TypeRule {
		return connector.TypeRule{Native: native, Kind: k, Read: true, Write: true, Note: note}
	}
	read := func(native string, k record.Kind, note string) connector.TypeRule {
		return connector.TypeRule{Native: native, Kind: k, Read: true, Note: note}
	}
	write := func(native string, k record.Kind, f connector.Fidelity, note string) connector.TypeRule {
		return connector.TypeRule{Native: native, Kind: k, Write: true, Fidelity: f, Note: note}
	}
	return []connector.TypeRule{
		both("boolean", record.Bool, ""),
		both("smallint", record.Int16, ""),
		both("integer", record.Int32, ""),
		both("bigint", record.Int64, ""),
		both("real", record.Float32, "NaN, infinities and -0 included"),
		both("double precision", record.Float64, "NaN, infinities and -0 included"),
		both("numeric(p,s)", record.Decimal, "p up to 76; a row with NaN is set aside: read the column with types=col:numeric to keep it"),
		both("numeric", record.Numeric, "any precision, NaN and infinities; also numeric(p,s) with p above 76, or s negative or above p"),
		both("text", record.String, "no zero character"),
		read("character varying(n), character(n), name, \"char\"", record.String, "the padding of character(n) is kept"),
		both("bytea", record.Binary, ""),
		both("uuid", record.UUID, ""),
		both("json", record.JSON, "byte for byte"),
		read("jsonb", record.JSON, "as the server prints it"),
		both("enum types", record.Enum, "with their labels"),
		both("bit(n), bit varying(n)", record.Bits, ""),
		both("inet, cidr, macaddr, macaddr8", record.Network, ""),
		both("date", record.Date, "BC and infinities included"),
		both("time", record.Time, "24:00:00 included"),
		both("timestamp", record.Timestamp, "BC and infinities included; a row with a value beyond the year 294246 is set aside"),
		both("timestamptz", record.Timestamp, "an instant in UTC; otherwise as timestamp"),
		both("interval", record.Interval, "a row with an infinite interval (PostgreSQL 17) is set aside: types=col:text keeps it"),
		both("arrays of all these", record.Array, "any rank, NULL elements and lower bounds"),
		read("domains", 0, "as the type that they are over; a PostgreSQL sink that has the domain keeps it"),
		both("timetz, ranges, multiranges, composites, hstore, citext, ltree, xml, money, tsvector, oid, xid, pg_lsn, all others",
			record.Foreign, "in the text form of their output function"),
		write("smallint", record.Int8, connector.Exact, ""),
		write("smallint", record.Uint8, connector.Exact, ""),
		write("integer", record.Uint16, connector.Exact, ""),
		write("bigint", record.Uint32, connector.Exact, ""),
		write("numeric(20,0)", record.Uint64, connector.Exact, ""),
		write("interval", record.Duration, connector.Checked, "digits below a microsecond don't fit"),
		write("json", record.Struct, connector.Exact, ""),
		write("json", record.Map, connector.Exact, "as an array of pairs"),
		write("arrays, or json where lists are nested", record.List, connector.Exact, ""),
	}
}

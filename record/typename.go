package record

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// namedType is a type whose name has no parameters. Where a type has several names the first one is the one that is written.
type namedType struct {
	name string
	dt   arrow.DataType
}

func namedTypes() []namedType {
	list := []namedType{
		{"bool", arrow.FixedWidthTypes.Boolean},
		{"int8", arrow.PrimitiveTypes.Int8},
		{"int16", arrow.PrimitiveTypes.Int16},
		{"int32", arrow.PrimitiveTypes.Int32},
		{"int64", arrow.PrimitiveTypes.Int64},
		{"uint8", arrow.PrimitiveTypes.Uint8},
		{"uint16", arrow.PrimitiveTypes.Uint16},
		{"uint32", arrow.PrimitiveTypes.Uint32},
		{"uint64", arrow.PrimitiveTypes.Uint64},
		{"float32", arrow.PrimitiveTypes.Float32},
		{"float64", arrow.PrimitiveTypes.Float64},
		{"numeric", NumericType()},
		{"text", arrow.BinaryTypes.String},
		{"string", arrow.BinaryTypes.String},
		{"binary", arrow.BinaryTypes.Binary},
		{"uuid", UUIDType()},
		{"json", JSONType()},
		{"date", InfiniteDateType()},
		{"date[d]", arrow.FixedWidthTypes.Date32},
		{"time", arrow.FixedWidthTypes.Time64us},
		{"timestamp", InfiniteTimestampType(false)},
		{"timestamptz", InfiniteTimestampType(true)},
		{"interval", IntervalType()},
		{"duration", arrow.FixedWidthTypes.Duration_us},
		{"bits", BitsType(0, true)},
		{"time[s]", arrow.FixedWidthTypes.Time32s},
		{"time[ms]", arrow.FixedWidthTypes.Time32ms},
		{"time[ns]", arrow.FixedWidthTypes.Time64ns},
	}
	for _, kind := range []string{"inet", "cidr", "macaddr", "macaddr8"} {
		list = append(list, namedType{kind, NetworkType(kind)})
	}
	for _, u := range []arrow.TimeUnit{arrow.Second, arrow.Millisecond, arrow.Microsecond, arrow.Nanosecond} {
		list = append(list,
			namedType{"timestamp[" + u.String() + "]", &arrow.TimestampType{Unit: u}},
			namedType{"timestamptz[" + u.String() + "]", &arrow.TimestampType{Unit: u, TimeZone: "UTC"}},
			namedType{"duration[" + u.String() + "]", &arrow.DurationType{Unit: u}})
	}
	return list
}

// ParseType reads the name of a type as people write it in options and casts: bool, int8 to int64, uint8 to uint64, float32,
// float64, decimal(precision,scale), numeric, text (or string), binary, uuid, json, date, time, timestamp, timestamptz, duration,
// interval, list<TYPE> (always one dimension) and array<TYPE> (any), and every other name that FormatType writes. The plain names
// of dates and timestamps are those with infinities; a unit in brackets means the ones without.
func ParseType(s string) (arrow.DataType, error) {
	s = strings.TrimSpace(s)
	for _, n := range namedTypes() {
		if n.name == s {
			return n.dt, nil
		}
	}
	if name, args, ok := cutArgs(s); ok {
		if dt, err := parseWithArgs(s, name, args); dt != nil || err != nil {
			return dt, err
		}
	}
	return nil, fmt.Errorf("unknown type %q: want bool, int8 … int64, uint8 … uint64, float32, float64, decimal(p,s), numeric, "+
		"text, binary, uuid, json, date, time, timestamp, timestamptz, duration, interval, list<…> or array<…>", s)
}

// FormatType returns the name by which ParseType finds the type again; dt is of the vocabulary.
func FormatType(dt arrow.DataType) string {
	for _, n := range namedTypes() {
		if arrow.TypeEqual(n.dt, dt) {
			return n.name
		}
	}
	t, err := TypeOf(dt)
	if err != nil {
		return dt.String()
	}
	switch t.Kind {
	case Decimal:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case Binary:
		return fmt.Sprintf("binary(%d)", t.Width)
	case Bits:
		if t.Varying {
			return fmt.Sprintf("varbits(%d)", t.Width)
		}
		return fmt.Sprintf("bits(%d)", t.Width)
	case Network:
		return "network(" + quoteAll([]string{t.Name}) + ")"
	case Enum:
		return "enum(" + quoteAll(append([]string{t.Name}, t.Labels...)) + ")"
	case Foreign:
		return "foreign(" + quoteAll([]string{t.System, t.Name}) + ")"
	case Timestamp: // an instant: whatever zone it is shown in, its values are UTC
		return "timestamptz[" + t.Unit.String() + "]"
	case List:
		return "list<" + FormatType(t.Elem.Arrow) + ">"
	case Array:
		return fmt.Sprintf("array%d<%s>", t.Rank, FormatType(t.Elem.Arrow))
	case Map:
		return "map<" + FormatType(t.Key.Arrow) + "," + FormatType(t.Elem.Arrow) + ">"
	case Struct:
		parts := make([]string, len(t.Fields))
		for i, f := range t.Fields {
			parts[i] = strconv.Quote(f.Name) + ":" + FormatType(f.Type.Arrow)
		}
		return "struct<" + strings.Join(parts, ",") + ">"
	default:
		return t.String()
	}
}

func quoteAll(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strconv.Quote(s)
	}
	return strings.Join(out, ",")
}

// cutArgs splits name(args) or name<args>.
func cutArgs(s string) (name, args string, ok bool) {
	at := strings.IndexAny(s, "(<")
	if at < 0 || len(s) < at+2 {
		return s, "", false
	}
	closing := byte(')')
	if s[at] == '<' {
		closing = '>'
	}
	return s[:at], s[at+1 : len(s)-1], s[len(s)-1] == closing
}

// parseWithArgs reads a type with parameters; nil and no error: there is none of this name.
func parseWithArgs(s, name, args string) (arrow.DataType, error) {
	parts := splitArgs(args)
	switch name {
	case "decimal":
		return parseDecimalType(s, parts)
	case "binary", "bits", "varbits":
		return parseWidthType(s, name, args)
	case "network", "enum", "foreign":
		return parseQuotedType(s, name, parts)
	case "list":
		elem, err := ParseType(args)
		if err != nil {
			return nil, err
		}
		return arrow.ListOf(elem), nil
	case "map":
		return parseMapType(s, parts)
	case "struct":
		return parseStructType(s, parts)
	}
	if rank, ok := strings.CutPrefix(name, "array"); ok {
		n, err := strconv.Atoi("0" + rank)
		if err != nil {
			return nil, fmt.Errorf("type %q: %q is no number of dimensions", s, rank)
		}
		elem, err := ParseType(args)
		if err != nil {
			return nil, err
		}
		return ArrayType(elem, n), nil
	}
	return nil, nil //nolint:nilnil // the caller knows the message
}

// splitArgs splits at the commas outside of quotes and brackets.
func splitArgs(s string) []string {
	var parts []string
	depth, start, quoted := 0, 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(' || c == '<' || c == '[':
			depth++
		case c == ')' || c == '>' || c == ']':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, strings.TrimSpace(s[start:i]))
			start = i + 1
		}
	}
	return append(parts, strings.TrimSpace(s[start:]))
}

func parseDecimalType(s string, parts []string) (arrow.DataType, error) {
	if len(parts) == 1 {
		parts = append(parts, "0")
	}
	precision, err := strconv.ParseInt(parts[0], 10, 32)
	scale, errScale := strconv.ParseInt(parts[1], 10, 32)
	if err != nil || errScale != nil || len(parts) != 2 || precision < 1 || precision > 76 || max(scale, -scale) > 76 {
		return nil, fmt.Errorf("type %q: want decimal(precision,scale) with a precision of 1 to 76 and a scale of -76 to 76", s)
	}
	if precision <= 38 {
		return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(scale)}, nil
	}
	return &arrow.Decimal256Type{Precision: int32(precision), Scale: int32(scale)}, nil
}

func parseWidthType(s, name, args string) (arrow.DataType, error) {
	n, err := strconv.Atoi(args)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("type %q: want %s(width)", s, name)
	}
	switch name {
	case "binary":
		return &arrow.FixedSizeBinaryType{ByteWidth: n}, nil
	case "bits":
		return BitsType(n, false), nil
	default:
		return BitsType(n, true), nil
	}
}

func parseQuotedType(s, name string, parts []string) (arrow.DataType, error) {
	texts := make([]string, len(parts))
	for i, p := range parts {
		t, err := strconv.Unquote(p)
		if err != nil {
			return nil, fmt.Errorf("type %q: %s is no quoted text", s, p)
		}
		texts[i] = t
	}
	switch {
	case name == "enum":
		if len(texts) == 1 {
			return EnumType(texts[0], nil), nil
		}
		return EnumType(texts[0], slices.Clone(texts[1:])), nil
	case name == "foreign" && len(texts) == 2:
		return ForeignType(texts[0], texts[1]), nil
	case name == "network" && len(texts) == 1:
		return NetworkType(texts[0]), nil
	}
	return nil, fmt.Errorf("type %q has %d parameters", s, len(texts))
}

func parseMapType(s string, parts []string) (arrow.DataType, error) {
	if len(parts) != 2 {
		return nil, fmt.Errorf("type %q: want map<KEY,VALUE>", s)
	}
	k, err := ParseType(parts[0])
	if err != nil {
		return nil, err
	}
	v, err := ParseType(parts[1])
	if err != nil {
		return nil, err
	}
	return arrow.MapOf(k, v), nil
}

func parseStructType(s string, parts []string) (arrow.DataType, error) {
	fields := make([]arrow.Field, len(parts))
	for i, p := range parts {
		quoted, err := strconv.QuotedPrefix(p)
		if err != nil || !strings.HasPrefix(p[len(quoted):], ":") {
			return nil, fmt.Errorf(`type %q: want struct<"name":TYPE,…>`, s)
		}
		name, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("type %q: %w", s, err)
		}
		dt, err := ParseType(p[len(quoted)+1:])
		if err != nil {
			return nil, err
		}
		fields[i] = arrow.Field{Name: name, Type: dt, Nullable: true}
	}
	return arrow.StructOf(fields...), nil
}

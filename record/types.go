package record

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
)

// Kind names a type of the vocabulary without its parameters: what a connector switches on.
type Kind uint8

// The vocabulary. The comment gives the Arrow storage and what the value means.
const (
	Bool      Kind = iota + 1 // bool
	Int8                      // int8
	Int16                     // int16
	Int32                     // int32
	Int64                     // int64
	Uint8                     // uint8
	Uint16                    // uint16
	Uint32                    // uint32
	Uint64                    // uint64
	Float32                   // float32, NaN and infinities included
	Float64                   // float64, NaN and infinities included
	Decimal                   // decimal128 or decimal256: fixed precision and scale, always finite
	Numeric                   // leat.numeric over utf8: any precision, plain digits, or NaN, Infinity, -Infinity
	String                    // utf8, valid UTF-8
	Binary                    // binary or fixed_size_binary
	UUID                      // arrow.uuid over fixed_size_binary(16), big-endian
	JSON                      // arrow.json over utf8: one JSON document, byte for byte
	Enum                      // leat.enum over utf8: the label
	Bits                      // leat.bits over utf8: digits 0 and 1, first bit first
	Network                   // leat.network over utf8: inet, cidr, macaddr or macaddr8, as Postgres prints it
	Foreign                   // leat.foreign over utf8: the text form of a type that the vocabulary lacks
	Date                      // date32, or leat.date over date32: days since 1970-01-01, proleptic Gregorian
	Time                      // time64: time of day, 24:00:00 included
	Timestamp                 // timestamp, or leat.timestamp over timestamp: zone-less (Zoned false) or an instant (Zoned true)
	Duration                  // duration: a signed amount of time
	Interval                  // leat.interval over fixed_size_binary(16): months, days, microseconds, kept apart
	Array                     // leat.array over struct<dims, lower, values>: any rank, each value its own
	List                      // list: always one dimension
	Struct                    // struct
	Map                       // map
)

// kindNames is indexed by Kind.
var kindNames = [...]string{ //nolint:gochecknoglobals // a constant table
	"", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "decimal",
	"numeric", "string", "binary", "uuid", "json", "enum", "bits", "network", "foreign", "date", "time", "timestamp", "duration",
	"interval", "array", "list", "struct", "map",
}

// String returns the lower-case name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Type is a type of the vocabulary with its parameters. Which fields mean something depends on the kind.
type Type struct {
	Kind      Kind
	Arrow     arrow.DataType // what it was read from
	Precision int32          // Decimal: digits in all
	Scale     int32          // Decimal: digits after the point
	Unit      arrow.TimeUnit // Time, Timestamp, Duration
	Zoned     bool           // Timestamp: an instant in UTC
	Infinite  bool           // Date, Timestamp: the largest and the smallest storage value mean infinity and -infinity
	Width     int            // Binary: fixed width in bytes, 0: any; Bits: declared length, 0: any
	Varying   bool           // Bits: Width is a maximum
	Name      string         // Enum: the type's name; Network: inet, cidr …; Foreign: the type's name in System
	System    string         // Foreign: the system that has the type
	Labels    []string       // Enum: in order; nil: unknown
	Rank      int            // Array: the declared number of dimensions, at least 1; values may differ
	Elem      *Type          // Array, List: the elements; Map: the values
	Key       *Type          // Map: the keys
	Fields    []Field        // Struct
}

// Field is one field of a Struct.
type Field struct {
	Name string
	Type Type
}

// String returns a short form for people, such as decimal(12,2) or timestamp[us, UTC].
func (t Type) String() string {
	switch t.Kind {
	case Decimal:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case Timestamp:
		zone := ""
		if t.Zoned {
			zone = ", UTC"
		}
		return fmt.Sprintf("timestamp[%s%s]", t.Unit, zone)
	case Enum, Network, Foreign:
		return fmt.Sprintf("%s(%s)", t.Kind, t.Name)
	case Array, List:
		return fmt.Sprintf("%s<%s>", t.Kind, t.Elem)
	case Map:
		return fmt.Sprintf("map<%s, %s>", t.Key, t.Elem)
	case Struct:
		fields := make([]string, len(t.Fields))
		for i, f := range t.Fields {
			fields[i] = f.Name + ": " + f.Type.String()
		}
		return "struct<" + strings.Join(fields, ", ") + ">"
	default:
		return t.Kind.String()
	}
}

// Nested reports whether values of the type are made of other values.
func (t Type) Nested() bool {
	return t.Kind == Array || t.Kind == List || t.Kind == Struct || t.Kind == Map
}

// TypeOf reads an Arrow type. It is an error where the vocabulary lacks the type: sources convert such columns first (dictionary,
// run-end and view encodings, large offsets, months-only intervals).
func TypeOf(dt arrow.DataType) (Type, error) {
	t := Type{Arrow: dt}
	switch dt := dt.(type) {
	case *ExtType:
		return dt.describe()
	case *extensions.UUIDType:
		t.Kind = UUID
	case *extensions.JSONType:
		if dt.StorageType().ID() != arrow.STRING {
			return t, fmt.Errorf("type %s is not in the vocabulary: its storage must be utf8", dt)
		}
		t.Kind = JSON
	case *arrow.Decimal128Type:
		t.Kind, t.Precision, t.Scale = Decimal, dt.Precision, dt.Scale
	case *arrow.Decimal256Type:
		t.Kind, t.Precision, t.Scale = Decimal, dt.Precision, dt.Scale
	case *arrow.FixedSizeBinaryType:
		t.Kind, t.Width = Binary, dt.ByteWidth
	case *arrow.Time32Type:
		t.Kind, t.Unit = Time, dt.Unit
	case *arrow.Time64Type:
		t.Kind, t.Unit = Time, dt.Unit
	case *arrow.TimestampType:
		t.Kind, t.Unit, t.Zoned = Timestamp, dt.Unit, dt.TimeZone != ""
	case *arrow.DurationType:
		t.Kind, t.Unit = Duration, dt.Unit
	case *arrow.ListType:
		return t.nest(List, dt.Elem())
	case *arrow.MapType:
		key, err := TypeOf(dt.KeyType())
		if err != nil {
			return t, err
		}
		t.Key = &key
		return t.nest(Map, dt.ItemType())
	case *arrow.StructType:
		t.Kind = Struct
		for _, f := range dt.Fields() {
			ft, err := TypeOf(f.Type)
			if err != nil {
				return t, fmt.Errorf("field %q: %w", f.Name, err)
			}
			t.Fields = append(t.Fields, Field{Name: f.Name, Type: ft})
		}
	default:
		kind, ok := plainKinds[dt.ID()]
		if !ok {
			return t, fmt.Errorf("type %s is not in the vocabulary", dt)
		}
		t.Kind = kind
	}
	return t, nil
}

// plainKinds are the Arrow types without parameters.
var plainKinds = map[arrow.Type]Kind{ //nolint:gochecknoglobals // a constant table
	arrow.BOOL: Bool, arrow.INT8: Int8, arrow.INT16: Int16, arrow.INT32: Int32, arrow.INT64: Int64,
	arrow.UINT8: Uint8, arrow.UINT16: Uint16, arrow.UINT32: Uint32, arrow.UINT64: Uint64,
	arrow.FLOAT32: Float32, arrow.FLOAT64: Float64, arrow.STRING: String, arrow.BINARY: Binary, arrow.DATE32: Date,
}

func (t Type) nest(kind Kind, elem arrow.DataType) (Type, error) {
	e, err := TypeOf(elem)
	if err != nil {
		return t, fmt.Errorf("element: %w", err)
	}
	t.Kind, t.Elem = kind, &e
	return t, nil
}

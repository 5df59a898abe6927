package record

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
)

// ExtType is an extension type of this package. Values are kept in the storage type; the name and the parameters give them their
// meaning. Use the constructors ([NumericType], [EnumType] …) and [TypeOf].
type ExtType struct {
	arrow.ExtensionBase
	name   string
	params extParams
}

// extParams is the part of a type that travels in the metadata of files and messages: a persisted format.
type extParams struct {
	Name    string   `json:"name,omitempty"`
	System  string   `json:"system,omitempty"`
	Labels  []string `json:"labels,omitempty"`
	Width   int      `json:"width,omitempty"`
	Varying bool     `json:"varying,omitempty"`
	Rank    int      `json:"rank,omitempty"`
}

// Names of the extension types: part of persisted files.
const (
	extNumeric   = "leat.numeric"
	extEnum      = "leat.enum"
	extBits      = "leat.bits"
	extNetwork   = "leat.network"
	extForeign   = "leat.foreign"
	extDate      = "leat.date"
	extTimestamp = "leat.timestamp"
	extInterval  = "leat.interval"
	extArray     = "leat.array"
	extJSON      = "arrow.json" // the Arrow project's
)

// NumericType is a number of any precision and scale: plain digits with an optional sign and point, or NaN, Infinity, -Infinity.
// Trailing zeros are part of the value's text.
func NumericType() *ExtType { return ext(extNumeric, arrow.BinaryTypes.String, extParams{}) }

// EnumType is a label out of a list.
func EnumType(name string, labels []string) *ExtType {
	return ext(extEnum, arrow.BinaryTypes.String, extParams{Name: name, Labels: labels})
}

// BitsType is a string of bits; width 0 is any length, varying makes width a maximum.
func BitsType(width int, varying bool) *ExtType {
	return ext(extBits, arrow.BinaryTypes.String, extParams{Width: width, Varying: varying})
}

// NetworkType is an address; kind is inet, cidr, macaddr or macaddr8.
func NetworkType(kind string) *ExtType {
	return ext(extNetwork, arrow.BinaryTypes.String, extParams{Name: kind})
}

// ForeignType is a type of another system that the vocabulary lacks, carried in its text form.
func ForeignType(system, name string) *ExtType {
	return ext(extForeign, arrow.BinaryTypes.String, extParams{System: system, Name: name})
}

// InfiniteDateType is a date that may be infinite: the largest and smallest int32 stand for infinity and -infinity.
func InfiniteDateType() *ExtType { return ext(extDate, arrow.FixedWidthTypes.Date32, extParams{}) }

// InfiniteTimestampType is a timestamp in microseconds that may be infinite: the largest and smallest int64 stand for infinity
// and -infinity. Zoned makes it an instant in UTC.
func InfiniteTimestampType(zoned bool) *ExtType {
	zone := ""
	if zoned {
		zone = "UTC"
	}
	return ext(extTimestamp, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: zone}, extParams{})
}

// IntervalType is months, days and microseconds, kept apart: see [IntervalValue].
func IntervalType() *ExtType {
	return ext(extInterval, &arrow.FixedSizeBinaryType{ByteWidth: intervalWidth}, extParams{})
}

// ArrayType is an array of any rank: each value has its own dimensions and lower bounds. Rank is what the column declares and
// decides the nesting in systems with fixed ranks. The storage is struct<dims: list<int32>, lower: list<int32>, values: list<elem>>,
// values in row-major order; an empty array has no dimensions.
func ArrayType(elem arrow.DataType, rank int) *ExtType {
	dims := arrow.ListOf(arrow.PrimitiveTypes.Int32)
	storage := arrow.StructOf(
		arrow.Field{Name: "dims", Type: dims},
		arrow.Field{Name: "lower", Type: dims},
		arrow.Field{Name: "values", Type: arrow.ListOf(elem)},
	)
	return ext(extArray, storage, extParams{Rank: max(rank, 1)})
}

// UUIDType is the Arrow project's own extension type.
func UUIDType() arrow.ExtensionType { return extensions.NewUUIDType() }

// JSONType is the Arrow project's own extension type, over utf8.
func JSONType() arrow.ExtensionType {
	t, err := extensions.NewJSONType(arrow.BinaryTypes.String)
	if err != nil {
		panic(fmt.Sprintf("record: utf8 is a storage type of arrow.json: %v", err)) // broken invariant of the library
	}
	return t
}

// InstantType is a finite instant in UTC, in microseconds.
func InstantType() arrow.DataType {
	return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
}

func ext(name string, storage arrow.DataType, p extParams) *ExtType {
	return &ExtType{ExtensionBase: arrow.ExtensionBase{Storage: storage}, name: name, params: p}
}

// registerOnce guards Arrow's own process-wide table of extension types.
var registerOnce = sync.OnceValue(func() error { //nolint:gochecknoglobals // Arrow's registry is global
	for _, t := range []arrow.ExtensionType{
		NumericType(), EnumType("", nil), BitsType(0, false), NetworkType("inet"), ForeignType("", ""), InfiniteDateType(),
		InfiniteTimestampType(false), IntervalType(), ArrayType(arrow.BinaryTypes.String, 1),
	} {
		if err := arrow.RegisterExtensionType(t); err != nil {
			return fmt.Errorf("registering type %s: %w", t.ExtensionName(), err)
		}
	}
	return nil
})

// Register makes Arrow's readers of files and messages know the extension types. It may be called any number of times, from any
// goroutine; readers and writers of Arrow IPC and Parquet call it.
func Register() error { return registerOnce() }

// ExtArray is the array of every extension type of this package; read its Storage.
type ExtArray struct{ array.ExtensionArrayBase }

// ValueStr returns the canonical text form of value i.
func (a *ExtArray) ValueStr(i int) string {
	if a.IsNull(i) {
		return array.NullValueStr
	}
	return string(AppendText(nil, a, i))
}

var _ arrow.ExtensionType = (*ExtType)(nil)

// ArrayType implements arrow.ExtensionType.
func (*ExtType) ArrayType() reflect.Type { return reflect.TypeFor[ExtArray]() }

// ExtensionName implements arrow.ExtensionType.
func (t *ExtType) ExtensionName() string { return t.name }

// String returns the name with its parameters.
func (t *ExtType) String() string { return "extension<" + t.name + t.Serialize() + ">" }

// ExtensionEquals implements arrow.ExtensionType.
func (t *ExtType) ExtensionEquals(other arrow.ExtensionType) bool {
	o, ok := other.(*ExtType)
	return ok && t.name == o.name && t.Serialize() == o.Serialize() && arrow.TypeEqual(t.Storage, o.Storage)
}

// Serialize implements arrow.ExtensionType: a JSON object of the parameters.
func (t *ExtType) Serialize() string {
	b, err := json.Marshal(t.params)
	if err != nil {
		panic(fmt.Sprintf("record: parameters of %s: %v", t.name, err)) // strings and numbers always marshal
	}
	return string(b)
}

// Deserialize implements arrow.ExtensionType.
func (t *ExtType) Deserialize(storage arrow.DataType, data string) (arrow.ExtensionType, error) {
	out := &ExtType{ExtensionBase: arrow.ExtensionBase{Storage: storage}, name: t.name}
	if data != "" {
		if err := json.Unmarshal([]byte(data), &out.params); err != nil {
			return nil, fmt.Errorf("parameters of type %s: %w", t.name, err)
		}
	}
	if _, err := out.describe(); err != nil {
		return nil, err
	}
	return out, nil
}

func (t *ExtType) describe() (Type, error) {
	d := Type{
		Arrow: t, Name: t.params.Name, System: t.params.System, Labels: t.params.Labels, Width: t.params.Width, Varying: t.params.Varying,
	}
	want := arrow.STRING
	switch t.name {
	case extNumeric:
		d.Kind = Numeric
	case extEnum:
		d.Kind = Enum
	case extBits:
		d.Kind = Bits
	case extNetwork:
		d.Kind = Network
	case extForeign:
		d.Kind = Foreign
	case extDate:
		d.Kind, d.Infinite, want = Date, true, arrow.DATE32
	case extTimestamp:
		d.Kind, d.Infinite, want = Timestamp, true, arrow.TIMESTAMP
		if ts, ok := t.Storage.(*arrow.TimestampType); ok {
			d.Unit, d.Zoned = ts.Unit, ts.TimeZone != ""
		}
	case extInterval:
		d.Kind, want = Interval, arrow.FIXED_SIZE_BINARY
	case extArray:
		return t.describeArray(d)
	default:
		return d, fmt.Errorf("unknown type %s", t.name)
	}
	fixed, ok := t.Storage.(*arrow.FixedSizeBinaryType)
	if t.Storage.ID() != want || (ok && fixed.ByteWidth != intervalWidth) {
		return d, fmt.Errorf("type %s over %s: want %s", t.name, t.Storage, want)
	}
	return d, nil
}

func (t *ExtType) describeArray(d Type) (Type, error) {
	st, ok := t.Storage.(*arrow.StructType)
	if !ok || st.NumFields() != 3 {
		return d, fmt.Errorf("type %s over %s: want a struct of dims, lower, values", t.name, t.Storage)
	}
	ints := func(field int) bool {
		l, ok := st.Field(field).Type.(*arrow.ListType)
		return ok && l.Elem().ID() == arrow.INT32
	}
	list, ok := st.Field(2).Type.(*arrow.ListType)
	if !ok || !ints(0) || !ints(1) {
		return d, fmt.Errorf("type %s over %s: want list<int32>, list<int32> and a list of values", t.name, t.Storage)
	}
	d.Rank = max(t.params.Rank, 1)
	return d.nest(Array, list.Elem())
}

const intervalWidth = 16

// IntervalValue is one value of IntervalType.
type IntervalValue struct {
	Months, Days int32
	Micros       int64
}

// Bytes returns the storage form: months, days and microseconds, little-endian.
func (v IntervalValue) Bytes() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, intervalWidth), uint32(v.Months))
	b = binary.LittleEndian.AppendUint32(b, uint32(v.Days))
	return binary.LittleEndian.AppendUint64(b, uint64(v.Micros))
}

// IntervalOf reads the storage form; b has 16 bytes.
func IntervalOf(b []byte) IntervalValue {
	return IntervalValue{
		Months: int32(binary.LittleEndian.Uint32(b)),
		Days:   int32(binary.LittleEndian.Uint32(b[4:])),
		Micros: int64(binary.LittleEndian.Uint64(b[8:])),
	}
}

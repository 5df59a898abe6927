package connect

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/record"
)

// Reading says what a schema alone doesn't tell.
type Reading struct {
	// Infinite dates and timestamps exist at the source: its system is Postgres.
	Infinite bool
	// Local timestamps: Connect's own Timestamp has no zone, as Debezium uses it.
	Local bool
}

const (
	maxPrecision128 = 38
	maxPrecision256 = 76
)

// TypeOf is the type of package record that keeps every value of a schema.
func (r Reading) TypeOf(s *Schema) (arrow.DataType, error) {
	if s.Record != nil {
		return s.Record, nil
	}
	if dt := r.named(s); dt != nil {
		return dt, nil
	}
	switch s.Type {
	case Int8:
		return arrow.PrimitiveTypes.Int8, nil
	case Int16:
		return arrow.PrimitiveTypes.Int16, nil
	case Int32:
		return arrow.PrimitiveTypes.Int32, nil
	case Int64:
		return arrow.PrimitiveTypes.Int64, nil
	case Uint32:
		return arrow.PrimitiveTypes.Uint32, nil
	case Uint64:
		return arrow.PrimitiveTypes.Uint64, nil
	case Float32:
		return arrow.PrimitiveTypes.Float32, nil
	case Float64:
		return arrow.PrimitiveTypes.Float64, nil
	case Boolean:
		return arrow.FixedWidthTypes.Boolean, nil
	case String:
		return arrow.BinaryTypes.String, nil
	case Bytes:
		return arrow.BinaryTypes.Binary, nil
	case Number:
		return record.NumericType(), nil
	case Any:
		return record.JSONType(), nil
	default:
		return r.nested(s)
	}
}

func (r Reading) nested(s *Schema) (arrow.DataType, error) {
	switch s.Type {
	case Array:
		elem, err := r.TypeOf(s.Elem)
		if err != nil {
			return nil, err
		}
		return arrow.ListOf(elem), nil
	case Map:
		key, err := r.TypeOf(s.Key)
		if err != nil {
			return nil, err
		}
		elem, err := r.TypeOf(s.Elem)
		if err != nil {
			return nil, err
		}
		return arrow.MapOf(key, elem), nil
	case Struct:
		if len(s.Fields) == 0 {
			return record.JSONType(), nil
		}
		fields := make([]arrow.Field, len(s.Fields))
		for i, f := range s.Fields {
			dt, err := r.TypeOf(f.Schema)
			if err != nil {
				return nil, fmt.Errorf("field %q: %w", f.Name, err)
			}
			fields[i] = arrow.Field{Name: f.ColumnName(), Type: dt, Nullable: true}
		}
		return arrow.StructOf(fields...), nil
	default:
		return nil, fmt.Errorf("unknown type %s", s.Type)
	}
}

// named is the type of a schema with a meaning; nil: the name says nothing that is known here.
func (r Reading) named(s *Schema) arrow.DataType {
	if unit, ok := timestampUnits[s.Name]; ok && s.Type == Int64 {
		return r.timestamp(s.Name, unit)
	}
	if unit, ok := timeUnits[s.Name]; ok && (s.Type == Int64 || s.Type == Int32) {
		return &arrow.Time64Type{Unit: max(unit, arrow.Microsecond)}
	}
	switch s.Name {
	case Decimal:
		return decimalType(s)
	case VariableScale:
		return record.NumericType()
	case JSON:
		return record.JSONType()
	case UUID:
		return record.UUIDType()
	case Enum:
		return record.EnumType("", strings.Split(s.Params[ParamAllowed], ","))
	case Bits:
		n, _ := s.param(ParamLength)
		return record.BitsType(n, false)
	case AvroDuration:
		return &arrow.FixedSizeBinaryType{ByteWidth: avroDurationWidth}
	default:
		return r.temporal(s)
	}
}

// temporal is the type of a date, a time without unit, or an amount of time.
func (r Reading) temporal(s *Schema) arrow.DataType {
	switch s.Name {
	case Date, EpochDate, IsoDate:
		if r.Infinite && s.Name == EpochDate {
			return record.InfiniteDateType()
		}
		return arrow.FixedWidthTypes.Date32
	case ZonedTimestamp:
		if r.Infinite {
			return record.InfiniteTimestampType(true)
		}
		return record.InstantType()
	case ZonedTime:
		return record.ForeignType("postgres", "time with time zone")
	case Interval:
		return record.IntervalType()
	case MicroDuration:
		return arrow.FixedWidthTypes.Duration_us
	case NanoDuration:
		return arrow.FixedWidthTypes.Duration_ns
	default:
		return nil
	}
}

const avroDurationWidth = 12

var (
	timestampUnits = map[string]arrow.TimeUnit{ //nolint:gochecknoglobals // a constant table
		Timestamp: arrow.Millisecond, MilliTimestamp: arrow.Millisecond, MicroTimestamp: arrow.Microsecond, NanoTimestamp: arrow.Nanosecond,
		InstantMillis: arrow.Millisecond, InstantMicros: arrow.Microsecond, InstantNanos: arrow.Nanosecond,
		LocalMillis: arrow.Millisecond, LocalMicros: arrow.Microsecond, LocalNanos: arrow.Nanosecond,
	}
	timeUnits = map[string]arrow.TimeUnit{ //nolint:gochecknoglobals // a constant table
		Time: arrow.Millisecond, MilliTime: arrow.Millisecond, MicroTime: arrow.Microsecond, NanoTime: arrow.Nanosecond,
	}
)

func (r Reading) timestamp(name string, unit arrow.TimeUnit) arrow.DataType {
	if name == MicroTimestamp && r.Infinite {
		return record.InfiniteTimestampType(false)
	}
	zone := ""
	if strings.HasPrefix(name, "timestamp-") || (name == Timestamp && !r.Local) {
		zone = "UTC"
	}
	return &arrow.TimestampType{Unit: unit, TimeZone: zone}
}

// decimalType is as wide as the declared precision, and without one as wide as any.
func decimalType(s *Schema) arrow.DataType {
	scale, ok := s.param(ParamScale)
	precision, known := s.param(ParamPrecision)
	switch {
	case !ok || !known || scale < 0 || precision < 1 || scale > precision || precision > maxPrecision256:
		return record.NumericType()
	case precision <= maxPrecision128:
		return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(scale)}
	default:
		return &arrow.Decimal256Type{Precision: int32(precision), Scale: int32(scale)}
	}
}

// UnitOf is the unit in which a time, a timestamp or an amount of time is counted; false: the schema is of none, or of no known unit.
func UnitOf(s *Schema) (arrow.TimeUnit, bool) {
	if u, ok := timestampUnits[s.Name]; ok {
		return u, true
	}
	if u, ok := timeUnits[s.Name]; ok {
		return u, true
	}
	switch s.Name {
	case MicroDuration:
		return arrow.Microsecond, true
	case NanoDuration:
		return arrow.Nanosecond, true
	}
	return 0, false
}

// Infinite is what Debezium's PostgreSQL connector writes for the infinite timestamp with this sign, in microseconds.
func Infinite(sign int) int64 {
	if sign < 0 {
		return negInfinity
	}
	return infinity
}

package record

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// typeNames are the types that have no parameters, by the name that configurations use.
func typeNames() map[string]arrow.DataType {
	return map[string]arrow.DataType{
		"bool": arrow.FixedWidthTypes.Boolean, "int8": arrow.PrimitiveTypes.Int8, "int16": arrow.PrimitiveTypes.Int16,
		"int32": arrow.PrimitiveTypes.Int32, "int64": arrow.PrimitiveTypes.Int64, "uint8": arrow.PrimitiveTypes.Uint8,
		"uint16": arrow.PrimitiveTypes.Uint16, "uint32": arrow.PrimitiveTypes.Uint32, "uint64": arrow.PrimitiveTypes.Uint64,
		"float32": arrow.PrimitiveTypes.Float32, "float64": arrow.PrimitiveTypes.Float64, "numeric": NumericType(),
		"string": arrow.BinaryTypes.String, "text": arrow.BinaryTypes.String, "binary": arrow.BinaryTypes.Binary,
		"uuid": UUIDType(), "json": JSONType(), "date": InfiniteDateType(), "time": arrow.FixedWidthTypes.Time64us,
		"timestamp": InfiniteTimestampType(false), "timestamptz": InfiniteTimestampType(true),
		"duration": arrow.FixedWidthTypes.Duration_us, "interval": IntervalType(),
	}
}

// ParseType reads the name of a type as people write it in options and casts: bool, int8 to int64, uint8 to uint64, float32,
// float64, decimal(precision,scale), numeric, string (or text), binary, uuid, json, date, time, timestamp, timestamptz, duration,
// interval, list<TYPE> (always one dimension) and array<TYPE> (any).
func ParseType(s string) (arrow.DataType, error) {
	s = strings.TrimSpace(s)
	if dt, ok := typeNames()[s]; ok {
		return dt, nil
	}
	name, args, ok := cutArgs(s)
	switch {
	case ok && name == "decimal":
		return parseDecimalType(s, args)
	case ok && name == "list":
		elem, err := ParseType(args)
		if err != nil {
			return nil, err
		}
		return arrow.ListOf(elem), nil
	case ok && name == "array":
		elem, err := ParseType(args)
		if err != nil {
			return nil, err
		}
		return ArrayType(elem, 1), nil
	}
	return nil, fmt.Errorf("unknown type %q: want bool, int8 … int64, uint8 … uint64, float32, float64, decimal(p,s), numeric, "+
		"string, binary, uuid, json, date, time, timestamp, timestamptz, duration, interval, list<…> or array<…>", s)
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

func parseDecimalType(s, args string) (arrow.DataType, error) {
	p, sc, _ := strings.Cut(args, ",")
	precision, err := strconv.ParseInt(strings.TrimSpace(p), 10, 32)
	scale, errScale := strconv.ParseInt(strings.TrimSpace(sc), 10, 32)
	if sc == "" {
		scale, errScale = 0, nil
	}
	if err != nil || errScale != nil || precision < 1 || precision > 76 || scale < 0 || scale > precision {
		return nil, fmt.Errorf("type %q: want decimal(precision,scale) with a precision of 1 to 76 and a scale up to it", s)
	}
	if precision <= 38 {
		return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(scale)}, nil
	}
	return &arrow.Decimal256Type{Precision: int32(precision), Scale: int32(scale)}, nil
}

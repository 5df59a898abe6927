package sqlite

import (
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/record"
)

// shapesFor lists how a column that was declared so may be read, the most exact way first; the last ones take more values. Which
// one it is depends on the stored values, see choose: SQLite checks declarations only in STRICT tables.
func shapesFor(declared string) []shape {
	t := parseTypeName(declared)
	if s := ownShapes(t); s != nil {
		return s
	}
	switch affinityOf(declared) {
	case affInteger:
		return append([]shape{int64Shape()}, wider()...)
	case affText:
		return []shape{stringShape()}
	case affReal:
		return []shape{float64Shape(), stringShape()}
	case affNumeric:
		return numericShapes(t)
	default:
		if strings.Contains(t.base, "BLOB") {
			return []shape{binaryShape(), stringShape()}
		}
	}
	return anyShapes()
}

// wider are the ways to read a column whose values are no whole numbers only.
func wider() []shape { return []shape{float64Shape(), numericShape(), stringShape()} }

// anyShapes are for columns whose declaration says nothing.
func anyShapes() []shape {
	return append(append([]shape{int64Shape()}, wider()...), binaryShape())
}

// undeclared reports whether the stored values alone say what a column is.
func undeclared(declared string) bool {
	s := shapesFor(declared)
	return s[0].kind == record.Int64 && s[len(s)-1].kind == record.Binary
}

// rangedTypes are the integers that this package declares for fewer than 64 bits, and common names of the same.
func rangedTypes(base string) (shape, bool) {
	switch base {
	case "TINYINT":
		return rangedShape(arrow.PrimitiveTypes.Int8, math.MinInt8, math.MaxInt8), true
	case "SMALLINT", "INT2":
		return rangedShape(arrow.PrimitiveTypes.Int16, math.MinInt16, math.MaxInt16), true
	case "INT4", "MEDIUMINT":
		return rangedShape(arrow.PrimitiveTypes.Int32, math.MinInt32, math.MaxInt32), true
	case "UINT1":
		return rangedShape(arrow.PrimitiveTypes.Uint8, 0, math.MaxUint8), true
	case "UINT2":
		return rangedShape(arrow.PrimitiveTypes.Uint16, 0, math.MaxUint16), true
	case "UINT4":
		return rangedShape(arrow.PrimitiveTypes.Uint32, 0, math.MaxUint32), true
	}
	return shape{}, false
}

// ownShapes are the types that this package declares, and their common names. Nil: the name says no more than its affinity.
func ownShapes(t typeName) []shape {
	if s, ok := rangedTypes(t.base); ok {
		return append([]shape{s, int64Shape()}, wider()...)
	}
	text := func(dt arrow.DataType) []shape { return []shape{parsedShape(dt, texts), stringShape()} }
	const defaultPrecision = 38
	switch t.base {
	case "FLOAT4":
		return []shape{float32Shape(), float64Shape(), stringShape()}
	case "UNSIGNED_TEXT":
		return []shape{spelledShape(arrow.PrimitiveTypes.Uint64), stringShape()}
	case "NUMERIC_TEXT":
		return []shape{spelledShape(record.NumericType()), stringShape()}
	case "DECIMAL_TEXT":
		return text(decimalType(t.arg(0, defaultPrecision), t.arg(1, 0)))
	case "JSON_TEXT":
		return text(record.JSONType())
	case "BIT_TEXT":
		return text(record.BitsType(t.arg(0, 0), false))
	case "VARBIT_TEXT":
		return text(record.BitsType(t.arg(0, 0), true))
	case "INET_TEXT", "CIDR_TEXT", "MACADDR_TEXT", "MACADDR8_TEXT":
		return text(record.NetworkType(strings.ToLower(strings.TrimSuffix(t.base, "_TEXT"))))
	case "DURATION_TEXT":
		return text(&arrow.DurationType{Unit: unitOf(t.arg(0, microDigits))})
	case "PERIOD_TEXT":
		return text(record.IntervalType())
	}
	return nil
}

// numericShapes are for names of numeric affinity: numbers, booleans, and all that is text because it looks like no number.
func numericShapes(t typeName) []shape {
	notText := append([]shape{int64Shape()}, wider()...)
	switch t.base {
	case "BOOLEAN", "BOOL":
		return append([]shape{boolShape()}, notText...)
	case "DECIMAL", "NUMERIC", "DEC", "NUMBER", "MONEY":
		return decimalShapes(t)
	case "DATE":
		finite := parsedShape(arrow.FixedWidthTypes.Date32, texts)
		finite.tight = true
		return append([]shape{finite, parsedShape(record.InfiniteDateType(), texts)}, notText...)
	case "TIME":
		dt := arrow.DataType(&arrow.Time64Type{Unit: unitOf(t.arg(0, microDigits))})
		if t.arg(0, microDigits) <= 3 {
			dt = &arrow.Time32Type{Unit: unitOf(t.arg(0, microDigits))}
		}
		return append([]shape{parsedShape(dt, texts)}, notText...)
	case "TIMESTAMP", "DATETIME", "TIMESTAMP WITHOUT TIME ZONE":
		u := unitOf(t.arg(0, microDigits))
		return slices.Concat(timestampShapes(u, ""), timestampShapes(u, "UTC"), notText)
	case "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE", "DATETIMEOFFSET":
		return append(timestampShapes(unitOf(t.arg(0, microDigits)), "UTC"), notText...)
	case "UUID", "GUID", "UNIQUEIDENTIFIER":
		return append([]shape{spelledShape(record.UUIDType())}, stringShape(), binaryShape())
	case "JSON", "JSONB":
		return []shape{parsedShape(record.JSONType(), ints|reals|texts), stringShape(), binaryShape()}
	}
	return anyShapes()
}

// decimalShapes are for numbers with digits declared, or not.
func decimalShapes(t typeName) []shape {
	p, s := t.arg(0, 0), t.arg(1, 0)
	if p < 1 || p > 76 || s < 0 || s > p {
		return []shape{numericShape(), stringShape()}
	}
	return []shape{decimalShape(p, s), numericShape(), stringShape()}
}

// forced is the shape that the option types asks for: a name as record.ParseType reads it, or one of SQL's.
func forced(name string) (shape, error) {
	switch strings.ToLower(name) {
	case "text", "string":
		return anyTextShape(), nil
	case "binary", "blob", "bytes":
		return bytesShape(), nil
	case "int64", "int", "integer", "bigint":
		return int64Shape(), nil
	case "float64", "float", "double", "real":
		return float64Shape(), nil
	case "bool", "boolean":
		return boolShape(), nil
	}
	dt, err := record.ParseType(strings.ToLower(name))
	if err != nil {
		return shape{}, err
	}
	return parsedShape(dt, ints|reals|texts), nil
}

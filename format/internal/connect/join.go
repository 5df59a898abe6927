package connect

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/record"
)

// Join returns a type that keeps every value of two: where nothing narrower does, text, and for what is made of other values JSON. A
// type that was joined once stays what it is when it meets either again.
func Join(a, b arrow.DataType) arrow.DataType {
	if arrow.TypeEqual(a, b) {
		return a
	}
	x, errX := record.TypeOf(a)
	y, errY := record.TypeOf(b)
	switch {
	case errX != nil || errY != nil:
		return record.JSONType()
	case isNumber(x) && isNumber(y):
		return joinNumbers(x, y)
	case x.Kind == y.Kind && !x.Nested():
		return joinAlike(x, y)
	case x.Kind == record.List && y.Kind == record.List:
		return arrow.ListOf(Join(x.Elem.Arrow, y.Elem.Arrow))
	case x.Kind == record.Struct && y.Kind == record.Struct:
		return joinStructs(x, y)
	case x.Nested() || y.Nested() || x.Kind == record.JSON || y.Kind == record.JSON:
		return record.JSONType()
	default:
		return arrow.BinaryTypes.String
	}
}

func isNumber(t record.Type) bool { return t.Kind >= record.Int8 && t.Kind <= record.Numeric }

// digits is how many digits an integer type has at most; 0: it is none.
func integerDigits(t record.Type) int32 {
	switch t.Kind {
	case record.Int8, record.Uint8:
		return 3
	case record.Int16, record.Uint16:
		return 5
	case record.Int32, record.Uint32:
		return 10
	case record.Int64:
		return 19
	case record.Uint64:
		return 20
	default:
		return 0
	}
}

func joinNumbers(x, y record.Type) arrow.DataType {
	if x.Kind > y.Kind {
		x, y = y, x
	}
	n, m := integerDigits(x), integerDigits(y)
	switch {
	case n > 0 && m > 0:
		return joinIntegers(x, y)
	case (y.Kind == record.Float32 || y.Kind == record.Float64) && (x.Kind == record.Float32 || n > 0 && n <= 10):
		return arrow.PrimitiveTypes.Float64
	case y.Kind == record.Decimal && (n > 0 || x.Kind == record.Decimal):
		scale := max(x.Scale, y.Scale)
		whole := max(n, x.Precision-x.Scale, y.Precision-y.Scale)
		switch {
		case x.Scale < 0 || y.Scale < 0 || whole+scale > maxPrecision256:
		case whole+scale <= maxPrecision128:
			return &arrow.Decimal128Type{Precision: whole + scale, Scale: scale}
		default:
			return &arrow.Decimal256Type{Precision: whole + scale, Scale: scale}
		}
	}
	return record.NumericType()
}

// joinIntegers joins two integer types, the kind of x being the smaller.
func joinIntegers(x, y record.Type) arrow.DataType {
	signed := func(t record.Type) bool { return t.Kind <= record.Int64 }
	switch {
	case signed(x) == signed(y):
		return y.Arrow
	case y.Kind == record.Uint64:
		return record.NumericType()
	}
	wider := map[record.Kind]arrow.DataType{
		record.Uint8: arrow.PrimitiveTypes.Int16, record.Uint16: arrow.PrimitiveTypes.Int32, record.Uint32: arrow.PrimitiveTypes.Int64,
	}
	return Join(x.Arrow, wider[y.Kind])
}

// joinAlike joins two types of one kind that differ in what they say besides.
func joinAlike(x, y record.Type) arrow.DataType {
	switch x.Kind {
	case record.Date:
		return record.InfiniteDateType()
	case record.Binary:
		return arrow.BinaryTypes.Binary
	case record.Time:
		return &arrow.Time64Type{Unit: max(x.Unit, y.Unit, arrow.Microsecond)}
	case record.Duration:
		return &arrow.DurationType{Unit: max(x.Unit, y.Unit)}
	case record.Timestamp:
		if x.Zoned != y.Zoned {
			return arrow.BinaryTypes.String
		}
		if (x.Infinite || y.Infinite) && max(x.Unit, y.Unit) <= arrow.Microsecond {
			return record.InfiniteTimestampType(x.Zoned)
		}
		zone := ""
		if x.Zoned {
			zone = "UTC"
		}
		return &arrow.TimestampType{Unit: max(x.Unit, y.Unit), TimeZone: zone}
	case record.Bits:
		return record.BitsType(0, true)
	default:
		return arrow.BinaryTypes.String
	}
}

func joinStructs(x, y record.Type) arrow.DataType {
	fields := make([]arrow.Field, len(x.Fields), len(x.Fields)+len(y.Fields))
	at := map[string]int{}
	for i, f := range x.Fields {
		fields[i] = arrow.Field{Name: f.Name, Type: f.Type.Arrow, Nullable: true}
		at[f.Name] = i
	}
	for _, f := range y.Fields {
		if i, ok := at[f.Name]; ok {
			fields[i].Type = Join(fields[i].Type, f.Type.Arrow)
			continue
		}
		fields = append(fields, arrow.Field{Name: f.Name, Type: f.Type.Arrow, Nullable: true})
	}
	return arrow.StructOf(fields...)
}

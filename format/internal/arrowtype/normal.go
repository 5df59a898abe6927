package arrowtype

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"

	"github.com/leatdata/leat/record"
)

// Normal returns the type of the vocabulary that values of type dt become: dt itself where it is one. Dictionary, run-end and view
// encodings and 64-bit offsets go, narrow decimals and half floats widen, zones become UTC (the instants stay), months-only and
// other Arrow intervals become leat's, lists of fixed size become lists, days in milliseconds become days, a column of nothing but
// nulls becomes text, unknown extension types become what they are stored as. Unions are refused.
func Normal(dt arrow.DataType) (arrow.DataType, error) {
	switch dt := dt.(type) {
	case *record.ExtType:
		_, err := record.TypeOf(dt)
		return dt, err //nolint:wrapcheck // says it all
	case *extensions.UUIDType:
		return dt, nil
	case *extensions.JSONType:
		return record.JSONType(), nil
	case arrow.ExtensionType:
		return Normal(dt.StorageType())
	case *arrow.DictionaryType:
		return Normal(dt.ValueType)
	case *arrow.RunEndEncodedType:
		return Normal(dt.Encoded())
	case *arrow.TimestampType:
		if dt.TimeZone == "" || dt.TimeZone == "UTC" {
			return dt, nil
		}
		return &arrow.TimestampType{Unit: dt.Unit, TimeZone: "UTC"}, nil
	case *arrow.StructType:
		return normalStruct(dt)
	case *arrow.MapType:
		return normalMap(dt)
	case arrow.ListLikeType:
		return normalList(dt)
	}
	return normalPlain(dt)
}

func normalPlain(dt arrow.DataType) (arrow.DataType, error) {
	switch dt.ID() {
	case arrow.LARGE_STRING, arrow.STRING_VIEW, arrow.NULL:
		return arrow.BinaryTypes.String, nil
	case arrow.LARGE_BINARY, arrow.BINARY_VIEW:
		return arrow.BinaryTypes.Binary, nil
	case arrow.FLOAT16:
		return arrow.PrimitiveTypes.Float32, nil
	case arrow.DECIMAL32, arrow.DECIMAL64, arrow.DECIMAL128, arrow.DECIMAL256:
		return normalDecimal(dt.(arrow.DecimalType)) //nolint:forcetypeassert // by its id
	case arrow.DATE64:
		return arrow.FixedWidthTypes.Date32, nil
	case arrow.INTERVAL_MONTHS, arrow.INTERVAL_DAY_TIME, arrow.INTERVAL_MONTH_DAY_NANO:
		return record.IntervalType(), nil
	default:
		_, err := record.TypeOf(dt)
		return dt, err //nolint:wrapcheck // says it all
	}
}

// maxScale bounds the digits that stand behind the point, or, negated, the zeros that are left out in front of it.
const maxScale = 76

func normalDecimal(dt arrow.DecimalType) (arrow.DataType, error) {
	p, scale := dt.GetPrecision(), dt.GetScale()
	most := map[arrow.Type]int32{arrow.DECIMAL32: 9, arrow.DECIMAL64: 18, arrow.DECIMAL128: 38, arrow.DECIMAL256: 76}[dt.ID()]
	if p < 1 || p > most || scale > maxScale || scale < -maxScale {
		return nil, fmt.Errorf("%s has a precision or a scale that no such number has", dt)
	}
	if dt.ID() == arrow.DECIMAL32 || dt.ID() == arrow.DECIMAL64 {
		return &arrow.Decimal128Type{Precision: p, Scale: scale}, nil
	}
	return dt, nil
}

// normalField keeps name, metadata and nullability, but a field of a type that becomes another one may be null.
func normalField(f arrow.Field) (arrow.Field, error) {
	t, err := Normal(f.Type)
	if err != nil {
		return f, fmt.Errorf("field %q: %w", f.Name, err)
	}
	f.Type = t
	return f, nil
}

func normalStruct(dt *arrow.StructType) (arrow.DataType, error) {
	fields := dt.Fields()
	changed := false
	for i, f := range fields {
		nf, err := normalField(f)
		if err != nil {
			return nil, err
		}
		changed = changed || nf.Type != f.Type
		fields[i] = nf
	}
	if !changed {
		return dt, nil
	}
	return arrow.StructOf(fields...), nil
}

func normalMap(dt *arrow.MapType) (arrow.DataType, error) {
	key, err := normalField(dt.KeyField())
	if err != nil {
		return nil, err
	}
	item, err := normalField(dt.ItemField())
	if err != nil {
		return nil, err
	}
	if key.Type == dt.KeyType() && item.Type == dt.ItemType() {
		return dt, nil
	}
	m := arrow.MapOfFields(key, item)
	m.KeysSorted = dt.KeysSorted
	return m, nil
}

func normalList(dt arrow.ListLikeType) (arrow.DataType, error) {
	elem, err := normalField(dt.ElemField())
	if err != nil {
		return nil, err
	}
	if list, ok := dt.(*arrow.ListType); ok && elem.Type == dt.Elem() {
		return list, nil
	}
	return arrow.ListOfField(elem), nil
}

package parquet

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/leatdata/leat/format/internal/arrowtype"
	"github.com/leatdata/leat/record"
)

// intervalWidth is the width of Parquet's INTERVAL.
const intervalWidth = 12

// natural returns the type of the vocabulary that a column has by what the file says: Parquet's annotations, and the Arrow schema of
// writers that keep one.
func natural(f *pqarrow.SchemaField, s *schema.Schema) (arrow.DataType, error) {
	switch dt := f.Field.Type.(type) {
	case *arrow.StructType:
		return naturalStruct(f, s)
	case *arrow.MapType:
		if len(f.Children) == 1 && len(f.Children[0].Children) == 2 {
			return naturalMap(f, s)
		}
	case *arrow.ListType, *arrow.LargeListType, *arrow.FixedSizeListType:
		if len(f.Children) == 1 {
			elem, err := naturalField(&f.Children[0], s)
			if err != nil {
				return nil, err
			}
			return arrow.ListOfField(elem), nil
		}
	default:
		if f.ColIndex >= 0 && len(f.Children) == 0 {
			return naturalLeaf(dt, s.Column(f.ColIndex))
		}
	}
	return arrowtype.Normal(f.Field.Type) //nolint:wrapcheck // says it all
}

func naturalLeaf(dt arrow.DataType, c *schema.Column) (arrow.DataType, error) {
	_, isExtension := dt.(arrow.ExtensionType)
	switch c.LogicalType().(type) {
	case schema.JSONLogicalType:
		return record.JSONType(), nil
	case schema.EnumLogicalType:
		if !isExtension {
			return arrow.BinaryTypes.String, nil
		}
	case schema.IntervalLogicalType:
		if c.TypeLength() != intervalWidth {
			return nil, fmt.Errorf("an INTERVAL of %d bytes", c.TypeLength())
		}
		return record.IntervalType(), nil
	}
	return arrowtype.Normal(dt) //nolint:wrapcheck // says it all
}

func naturalField(f *pqarrow.SchemaField, s *schema.Schema) (arrow.Field, error) {
	t, err := natural(f, s)
	if err != nil {
		return arrow.Field{}, fmt.Errorf("field %q: %w", f.Field.Name, err)
	}
	return arrow.Field{Name: f.Field.Name, Type: t, Nullable: f.Field.Nullable}, nil
}

func naturalStruct(f *pqarrow.SchemaField, s *schema.Schema) (arrow.DataType, error) {
	fields := make([]arrow.Field, len(f.Children))
	for i := range fields {
		var err error
		if fields[i], err = naturalField(&f.Children[i], s); err != nil {
			return nil, err
		}
	}
	return arrow.StructOf(fields...), nil
}

func naturalMap(f *pqarrow.SchemaField, s *schema.Schema) (arrow.DataType, error) {
	key, err := naturalField(&f.Children[0].Children[0], s)
	if err != nil {
		return nil, err
	}
	item, err := naturalField(&f.Children[0].Children[1], s)
	if err != nil {
		return nil, err
	}
	return arrow.MapOfFields(key, item), nil
}

// same reports whether two types hold the same values, whatever their fields are called inside.
func same(a, b arrow.DataType) bool {
	if a == nil || b == nil || a.ID() != b.ID() {
		return false
	}
	switch a := a.(type) {
	case *arrow.StructType:
		other := b.(*arrow.StructType) //nolint:forcetypeassert // of the same id
		if a.NumFields() != other.NumFields() {
			return false
		}
		for i := range a.NumFields() {
			if !same(a.Field(i).Type, other.Field(i).Type) {
				return false
			}
		}
		return true
	case *arrow.MapType:
		other := b.(*arrow.MapType) //nolint:forcetypeassert // of the same id
		return same(a.KeyType(), other.KeyType()) && same(a.ItemType(), other.ItemType())
	case *arrow.ListType:
		return same(a.Elem(), b.(*arrow.ListType).Elem()) //nolint:forcetypeassert // of the same id
	}
	return arrow.TypeEqual(a, b)
}

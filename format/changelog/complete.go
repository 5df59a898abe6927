package changelog

import (
	"fmt"
	"maps"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// Complete returns the batch with the values that the source did not send but that are known all the same: from the image before an
// update, which such a value is equal to. It returns b itself where there is nothing to fill in.
func Complete(b *record.Batch) (*record.Batch, error) {
	if b.Old == nil || len(b.Unchanged) == 0 {
		return b, nil
	}
	var cols []arrow.Array
	left := maps.Clone(b.Unchanged)
	for col := range b.Unchanged {
		filled, bits, err := fill(b, col)
		if err != nil {
			return nil, fmt.Errorf("completing column %q: %w", b.Rows.ColumnName(col), err)
		}
		if filled == nil {
			continue
		}
		if cols == nil {
			cols = append(cols, b.Rows.Columns()...)
		}
		cols[col], left[col] = filled, bits
	}
	if cols == nil {
		return b, nil
	}
	out := *b
	out.Rows, out.Unchanged = array.NewRecordBatch(b.Rows.Schema(), cols, b.Rows.NumRows()), left
	return &out, nil
}

// fill takes the values of a column that are known only from the image before; nil: none is.
func fill(b *record.Batch, col int) (arrow.Array, []uint64, error) {
	now, before := b.Rows.Column(col), b.Old.Column(col)
	var parts []arrow.Array
	bits := b.Unchanged[col]
	from := 0
	for i := range b.NumRows() {
		if !b.IsUnchanged(col, i) || before.IsNull(i) {
			continue
		}
		if parts == nil {
			bits = append([]uint64(nil), bits...)
		}
		bits[i/64] &^= 1 << (i % 64)
		if from < i {
			parts = append(parts, array.NewSlice(now, int64(from), int64(i)))
		}
		parts = append(parts, array.NewSlice(before, int64(i), int64(i)+1))
		from = i + 1
	}
	if parts == nil {
		return nil, nil, nil
	}
	if from < b.NumRows() {
		parts = append(parts, array.NewSlice(now, int64(from), int64(b.NumRows())))
	}
	joined, err := array.Concatenate(parts, memory.DefaultAllocator)
	return joined, bits, err
}

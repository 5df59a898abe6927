package parquet

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// sampleRows is how many values of a column are looked at; they are spread over the batch.
const sampleRows = 1_000

// repeating says for each column whether a dictionary pays: whether a quarter of a sample repeats values of it, as of a
// column with less than two thousand different ones. A dictionary of near-unique values costs time and space for nothing.
func repeating(rows arrow.RecordBatch) []bool {
	out := make([]bool, rows.NumCols())
	for i := range out {
		c := rows.Column(i)
		step := max(1, c.Len()/sampleRows)
		seen := map[string]struct{}{}
		values := 0
		var buf []byte
		for r := 0; r < c.Len(); r += step {
			if c.IsNull(r) {
				continue
			}
			values++
			if buf = record.AppendText(buf[:0], c, r); len(buf) > 128 {
				buf = buf[:128]
			}
			seen[string(buf)] = struct{}{}
		}
		out[i] = 4*len(seen) <= 3*values || values < 16
	}
	return out
}

// size is how much memory the rows of an array take; windows count what they show.
func size(arr arrow.Array) int64 {
	n := int64(arr.Len())
	switch a := arr.(type) {
	case *array.String:
		return 4*n + int64(len(a.ValueBytes()))
	case *array.Binary:
		return 4*n + int64(len(a.ValueBytes()))
	case array.ExtensionArray:
		return size(a.Storage())
	case array.ListLike:
		if n == 0 {
			return 0
		}
		from, _ := a.ValueOffsets(0)
		_, to := a.ValueOffsets(int(n) - 1)
		return 4*n + size(array.NewSlice(a.ListValues(), from, to))
	case *array.Struct:
		total := n / 8
		for f := range a.NumField() {
			total += size(a.Field(f))
		}
		return total
	}
	if fixed, ok := arr.DataType().(arrow.FixedWidthDataType); ok {
		return n * int64(max(8, fixed.BitWidth())) / 8
	}
	return n
}

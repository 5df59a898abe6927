package record_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/record"
)

// Rows that are kept are the same arrays that the library makes of slices, of all types and of windows on longer arrays.
func TestKeepIsConcatenate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dt := anyType(t, 2)
		whole := anyArray(t, dt, rapid.IntRange(1, 150).Draw(t, "rows"))
		from := rapid.IntRange(0, whole.Len()-1).Draw(t, "from")
		arr := array.NewSlice(whole, int64(from), int64(rapid.IntRange(from, whole.Len()).Draw(t, "to")))
		s := &record.Schema{Columns: arrow.NewSchema([]arrow.Field{{Name: "v", Type: dt, Nullable: true}}, nil)}
		b := &record.Batch{Schema: s, Rows: array.NewRecordBatch(s.Columns, []arrow.Array{arr}, int64(arr.Len()))}
		keep := rapid.SliceOfN(rapid.Bool(), arr.Len(), arr.Len()).Draw(t, "keep")
		parts := []arrow.Array{array.NewSlice(arr, 0, 0)}
		for i, k := range keep {
			if k {
				parts = append(parts, array.NewSlice(arr, int64(i), int64(i)+1))
			}
		}
		want, err := array.Concatenate(parts, memory.DefaultAllocator)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := b.Keep(func(i int) bool { return keep[i] })
		if err != nil {
			t.Fatal(err)
		}
		got := kept.Rows.Column(0)
		same := array.ApproxEqual(want, got, array.WithNaNsEqual(true), array.WithAbsTolerance(0))
		if !same || want.NullN() != got.NullN() || !arrow.TypeEqual(got.DataType(), dt) {
			t.Fatalf("%v (%d nulls) of %s, want %v (%d)", got, got.NullN(), got.DataType(), want, want.NullN())
		}
	})
}

// A key moved exactly if the library says that the values differ.
func TestKeyMovedIsUnequal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dt := anyType(t, 1)
		n := rapid.IntRange(1, 30).Draw(t, "rows")
		s := &record.Schema{Columns: arrow.NewSchema([]arrow.Field{{Name: "k", Type: dt, Nullable: true}}, nil), Key: []int{0}}
		before, after := anyArray(t, dt, n), anyArray(t, dt, n)
		if rapid.Bool().Draw(t, "some stay") {
			parts := []arrow.Array{array.NewSlice(before, 0, int64(n/2)), array.NewSlice(after, int64(n/2), int64(n))}
			var err error
			if after, err = array.Concatenate(parts, memory.DefaultAllocator); err != nil {
				t.Fatal(err)
			}
		}
		rows := func(arr arrow.Array) arrow.RecordBatch {
			return array.NewRecordBatch(s.Columns, []arrow.Array{arr}, int64(n))
		}
		b := &record.Batch{Schema: s, Rows: rows(after), Old: rows(before), Ops: make([]record.Op, n)}
		for i := range b.Ops {
			b.Ops[i] = record.Update
		}
		for i := range n {
			want := before.IsValid(i) && !array.SliceEqual(before, int64(i), int64(i)+1, after, int64(i), int64(i)+1)
			if got := b.KeyMoved(i); got != want {
				t.Fatalf("row %d moved: %v, want %v (%v, %v)", i, got, want, before, after)
			}
		}
	})
}

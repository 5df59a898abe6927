package record_test

import (
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// encodedRows are rows of as many bytes as their values say.
func encodedRows(sizes ...int) *record.Batch {
	s := &record.Schema{Dataset: "d", Columns: arrow.NewSchema([]arrow.Field{{Name: "size", Type: arrow.PrimitiveTypes.Int64}}, nil)}
	e := &record.Encoded{Format: "f"}
	for _, n := range sizes {
		e.Data = append(e.Data, slices.Repeat([]byte{byte(n)}, n)...)
		e.Ends = append(e.Ends, len(e.Data))
	}
	e.Decode = func(data []byte) (*record.Batch, error) {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		for len(data) > 0 {
			b.Append(int64(data[0]))
			data = data[data[0]:]
		}
		a := b.NewArray()
		return &record.Batch{Schema: s, Rows: array.NewRecordBatch(s.Columns, []arrow.Array{a}, int64(a.Len()))}, nil
	}
	return &record.Batch{Schema: s, Encoded: e, Changes: 3, Position: record.Position{Shape: 1, Data: []byte("1")}}
}

func decodedSizes(t *testing.T, b *record.Batch) []int64 {
	t.Helper()
	d, err := b.Decoded()
	if err != nil {
		t.Fatal(err)
	}
	if d.Encoded != nil || d.NumRows() != b.NumRows() || d.Changes != b.Changes || !d.Position.Equal(b.Position) {
		t.Fatalf("decoded: %+v", d)
	}
	return slices.Clone(d.Rows.Column(0).(*array.Int64).Int64Values()) //nolint:forcetypeassert // made above
}

// Every part of encoded rows, and parts joined again, are the rows that they are.
//
// clause S27.
func TestEncoded(t *testing.T) {
	sizes := []int{3, 1, 4, 1, 5}
	b := encodedRows(sizes...)
	for from := range len(sizes) + 1 {
		for to := from; to <= len(sizes); to++ {
			part := *b
			part.Encoded = b.Encoded.Slice(from, to)
			got := decodedSizes(t, &part)
			for i, n := range sizes[from:to] {
				if len(got) != to-from || got[i] != int64(n) {
					t.Fatalf("rows %d to %d: %v", from, to, got)
				}
			}
			part.Encoded = record.JoinEncoded([]*record.Encoded{b.Encoded.Slice(0, from), b.Encoded.Slice(from, to), b.Encoded.Slice(to, len(sizes))})
			if !slices.Equal(part.Encoded.Data, b.Encoded.Data) || !slices.Equal(part.Encoded.Ends, b.Encoded.Ends) {
				t.Fatalf("joined again: %+v", part.Encoded)
			}
		}
	}
	if n := b.Bytes(); n < int64(len(b.Encoded.Data)) {
		t.Errorf("%d bytes", n)
	}
	if _, err := b.Keep(func(int) bool { return true }); err == nil {
		t.Error("rows were taken out of an encoding that nobody knows")
	}
}

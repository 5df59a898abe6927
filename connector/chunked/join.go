package chunked

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// Join makes one batch of several of the same schema, at least one; the position is the last one's.
func Join(batches []*record.Batch) (*record.Batch, error) {
	last := batches[len(batches)-1]
	out := *last
	out.Rejects, out.Size, out.Chunk, out.Encoded = nil, 0, nil, nil
	var parts []arrow.RecordBatch
	var encoded []*record.Encoded
	for _, b := range batches {
		out.Rejects = append(out.Rejects, b.Rejects...)
		out.Size += b.Size
		switch {
		case b.NumRows() == 0:
		case b.Encoded != nil:
			encoded = append(encoded, b.Encoded)
		default:
			parts = append(parts, b.Rows)
		}
	}
	if len(encoded) > 0 { // then all are: it holds for a dataset
		out.Encoded = record.JoinEncoded(encoded)
		return &out, nil
	}
	if len(parts) == 0 {
		return &out, nil
	}
	cols := make([]arrow.Array, parts[0].NumCols())
	rows := int64(0)
	for _, p := range parts {
		rows += p.NumRows()
	}
	for c := range cols {
		arrays := make([]arrow.Array, len(parts))
		for i, p := range parts {
			arrays[i] = p.Column(c)
		}
		var err error
		if cols[c], err = array.Concatenate(arrays, memory.DefaultAllocator); err != nil {
			return nil, fmt.Errorf("joining batches of %s: %w", out.Schema.Dataset, err)
		}
	}
	out.Rows = array.NewRecordBatch(parts[0].Schema(), cols, rows)
	return &out, nil
}

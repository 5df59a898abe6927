package record

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Concat makes one batch of several, in order: changes of one dataset under one schema, without chunk, truncation and rejects. It has
// the position of the last one. The batches stay as they are; the new one shares nothing with them but the schema. The error says which
// column can't be joined.
func Concat(batches []*Batch) (*Batch, error) {
	last := batches[len(batches)-1]
	out := &Batch{Schema: last.Schema, Position: last.Position}
	rows, old := make([]arrow.RecordBatch, len(batches)), make([]arrow.RecordBatch, len(batches))
	n, images, plain := 0, false, true
	for i, b := range batches {
		rows[i], old[i] = b.Rows, b.Old
		images, plain = images || b.Old != nil, plain && b.Ops == nil
		n += b.NumRows()
		out.Changes += b.Changes
		out.Size += b.Size
		out.Txns = appendTxns(out.Txns, b.Txns)
	}
	if !plain {
		out.Ops = make([]Op, 0, n)
		for _, b := range batches {
			for i := range b.NumRows() {
				out.Ops = append(out.Ops, b.Op(i))
			}
		}
	}
	out.Unchanged = joinBitmaps(batches, n)
	var err error
	if out.Rows, err = joinRows(out.Schema, rows, batches); err != nil {
		return nil, err
	}
	if images {
		out.Old, err = joinRows(out.Schema, old, batches)
	}
	return out, err
}

// appendTxns appends runs; one transaction that goes on is one run.
func appendTxns(to, txns []Txn) []Txn {
	for _, t := range txns {
		if n := len(to); n > 0 && to[n-1].Position.Equal(t.Position) {
			to[n-1].Rows += t.Rows
			continue
		}
		to = append(to, t)
	}
	return to
}

func joinBitmaps(batches []*Batch, n int) map[int][]uint64 {
	var out map[int][]uint64
	at := 0
	for _, b := range batches {
		for col := range b.Unchanged {
			for i := range b.NumRows() {
				if !b.IsUnchanged(col, i) {
					continue
				}
				if out == nil {
					out = map[int][]uint64{}
				}
				if out[col] == nil {
					out[col] = make([]uint64, (n+63)/64) //nolint:mnd // bits of a word
				}
				out[col][(at+i)/64] |= 1 << ((at + i) % 64) //nolint:mnd // bits of a word
			}
		}
		at += b.NumRows()
	}
	return out
}

// joinRows joins columns; a part that is nil has nulls.
func joinRows(s *Schema, parts []arrow.RecordBatch, batches []*Batch) (arrow.RecordBatch, error) {
	cols := make([]arrow.Array, s.Columns.NumFields())
	rows := int64(0)
	for c := range cols {
		chunks := make([]arrow.Array, len(parts))
		rows = 0
		for i, p := range parts {
			if p == nil {
				chunks[i] = array.MakeArrayOfNull(memory.DefaultAllocator, s.Columns.Field(c).Type, batches[i].NumRows())
			} else {
				chunks[i] = p.Column(c)
			}
			rows += int64(chunks[i].Len())
		}
		var err error
		if cols[c], err = array.Concatenate(chunks, memory.DefaultAllocator); err != nil {
			return nil, fmt.Errorf("joining batches of %s: column %q: %w", s.Dataset, s.Columns.Field(c).Name, err)
		}
	}
	return array.NewRecordBatch(s.Columns, cols, rows), nil
}

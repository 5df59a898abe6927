//go:build cgo && duckdb_arrow

package duckdb

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// adapt brings a batch to the columns that its dataset has by now: renamed, widened, and with the values of older rows in those that were
// added. An error says that values have no place there.
func adapt(b *record.Batch, to *record.Schema) (*record.Batch, error) {
	var table []sqlgen.Held
	for _, f := range b.Schema.Columns.Fields() {
		table = append(table, sqlgen.Held{Name: f.Name, ID: record.IDOf(f)})
	}
	a, err := sqlgen.Alter(table, b.Schema, to)
	if err != nil {
		return nil, fmt.Errorf("duckdb: %w", err)
	}
	out := *b
	out.Schema, out.Unchanged = to, nil
	for i, name := range a.Held {
		if bits, ok := b.Unchanged[b.Schema.Column(name)]; ok && name != "" {
			if out.Unchanged == nil {
				out.Unchanged = map[int][]uint64{}
			}
			out.Unchanged[i] = bits
		}
	}
	if out.Rows, err = adaptRows(b.Rows, b.Schema, to, a.Held); err != nil {
		return nil, err
	}
	if b.Old != nil {
		out.Old, err = adaptRows(b.Old, b.Schema, to, a.Held)
	}
	return &out, err
}

// adaptRows makes the columns of to; held names where each comes from, empty: it was added.
func adaptRows(rb arrow.RecordBatch, from, to *record.Schema, held []string) (arrow.RecordBatch, error) {
	cols := make([]arrow.Array, len(held))
	for i, f := range to.Columns.Fields() {
		var err error
		if held[i] == "" {
			cols[i], err = olderRows(f, int(rb.NumRows()))
		} else {
			cols[i], err = retyped(rb.Column(from.Column(held[i])), f.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
	}
	return array.NewRecordBatch(to.Columns, cols, rb.NumRows()), nil
}

// olderRows is a column of rows that are older than it.
func olderRows(f arrow.Field, n int) (arrow.Array, error) {
	text, ok := record.MissingOf(f)
	if !ok {
		return array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, n), nil
	}
	b := array.NewBuilder(memory.DefaultAllocator, f.Type)
	for range n {
		if err := record.ParseText(b, text); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

// retyped is a column under another type, by way of the text form.
func retyped(a arrow.Array, to arrow.DataType) (arrow.Array, error) {
	if arrow.TypeEqual(a.DataType(), to) {
		return a, nil
	}
	b := array.NewBuilder(memory.DefaultAllocator, to)
	for i := range a.Len() {
		if a.IsNull(i) {
			b.AppendNull()
			continue
		}
		if err := record.ParseText(b, string(record.AppendText(nil, a, i))); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

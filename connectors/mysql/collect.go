package mysql

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// collector collects rows of one dataset in columns. Rows with a value that can't be carried are set aside.
type collector struct {
	schema *record.Schema
	cells  []*cell
	rows   int
	last   int        // how many rows the last batch had; 0: nothing to go by
	bad    []badValue // in the order of the rows; several of one row stand together
}

// badValue is a value that was refused, in whose place NULL stands.
type badValue struct {
	row, col int
	why      *refusal
}

// newCollector makes a collector; charsets holds the decoders of the columns' character sets, see charsetsOf.
func newCollector(schema *record.Schema, cols []sourceColumn, charsets map[string]*charset) *collector {
	c := &collector{schema: schema, cells: make([]*cell, len(cols))}
	for i := range cols {
		c.cells[i] = newCell(&cols[i], charsets[cols[i].charset])
	}
	return c
}

// charsetsOf loads the decoders that columns need.
func charsetsOf(ctx context.Context, q querier, known map[string]*charset, cols []sourceColumn) error {
	for _, c := range cols {
		if _, ok := known[c.charset]; ok || isUTF8(c.charset) {
			continue
		}
		cs, err := loadCharset(ctx, q, c.charset)
		if err != nil {
			return err
		}
		known[c.charset] = cs
	}
	return nil
}

// refused looks at what a cell returned: a value that can't be carried becomes NULL, and its row is set aside later.
func (c *collector) refused(col int, err error) error {
	why, ok := errors.AsType[*refusal](err)
	if !ok {
		return err
	}
	c.bad = append(c.bad, badValue{row: c.rows, col: col, why: why})
	c.cells[col].null()
	return nil
}

// begin begins a row.
func (c *collector) begin() {
	if c.rows > 0 || c.last == 0 {
		return
	}
	for _, x := range c.cells {
		x.reserve(c.last)
	}
	c.last = 0
}

// end ends a row.
func (c *collector) end() { c.rows++ }

// take returns the rows so far, those set aside as Rejects, and begins anew. zeros counts dates that became NULL.
func (c *collector) take() (b *record.Batch, zeros int, err error) {
	cols := make([]arrow.Array, len(c.cells))
	for i, x := range c.cells {
		cols[i] = x.take()
		zeros += x.zeros
		x.zeros = 0
	}
	b = &record.Batch{Schema: c.schema, Rows: array.NewRecordBatch(c.schema.Columns, cols, int64(c.rows))}
	bad := c.bad
	c.last, c.rows, c.bad = c.rows, 0, nil
	if len(bad) == 0 {
		return b, zeros, nil
	}
	out := make(map[int]bool, len(bad))
	var rejects []record.Reject
	for i, v := range bad {
		if i == 0 || bad[i-1].row != v.row {
			rejects = append(rejects, rejectOf(b, bad[i:]))
		}
		out[v.row] = true
	}
	kept, err := b.Keep(func(i int) bool { return !out[i] })
	if err != nil {
		return nil, zeros, fmt.Errorf("setting rows aside: %w", err)
	}
	kept.Rejects = rejects
	return kept, zeros, nil
}

// rejectOf describes the row of the first of these values: refused values are shown as text.
func rejectOf(b *record.Batch, bad []badValue) record.Reject {
	fields := b.Schema.Columns.Fields()
	cols := make([]arrow.Array, len(fields))
	row := bad[0].row
	for i := range cols {
		cols[i] = array.NewSlice(b.Rows.Column(i), int64(row), int64(row)+1)
	}
	for _, v := range bad {
		if v.row != row {
			break
		}
		fields[v.col].Type, fields[v.col].Nullable = arrow.BinaryTypes.String, true
		text := array.NewStringBuilder(memory.DefaultAllocator)
		text.Append(v.why.value)
		cols[v.col] = text.NewArray()
	}
	schema := *b.Schema
	schema.Columns = arrow.NewSchema(fields, nil)
	one := &record.Batch{Schema: &schema, Rows: array.NewRecordBatch(schema.Columns, cols, 1)}
	r := one.Reject(0)
	r.Column, r.Value, r.Class, r.Message = fields[bad[0].col].Name, bad[0].why.value, "not_representable", bad[0].why.why
	return r
}

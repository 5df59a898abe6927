package file

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// join makes one batch of consecutive ones of the same schema; the last one's position is its own.
func join(parts []*record.Batch) (*record.Batch, error) {
	if len(parts) == 1 {
		return parts[0], nil
	}
	out := *parts[len(parts)-1]
	out.Rejects, out.Size = nil, 0
	cols := make([][]arrow.Array, out.Schema.Columns.NumFields())
	rows := int64(0)
	for _, p := range parts {
		out.Rejects = append(out.Rejects, p.Rejects...)
		out.Size += p.Size
		if p.Rows == nil {
			continue
		}
		rows += p.Rows.NumRows()
		for i := range cols {
			cols[i] = append(cols[i], p.Rows.Column(i))
		}
	}
	joined := make([]arrow.Array, len(cols))
	for i, c := range cols {
		var err error
		if joined[i], err = array.Concatenate(c, memory.DefaultAllocator); err != nil {
			return nil, fmt.Errorf("joining rows of column %q: %w", out.Schema.Columns.Field(i).Name, err)
		}
	}
	out.Rows = array.NewRecordBatch(out.Schema.Columns, joined, rows)
	return &out, nil
}

// project gives a batch of a file with a schema of its own the dataset's schema.
func (d *dataset) project(b *record.Batch, path string) error {
	if !sameColumns(b.Schema.Columns, d.full.Columns) {
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "file.columns", Doing: "reading " + path, Dataset: d.name,
			Err:  errors.New("its columns or types differ from those of the other files: " + difference(b.Schema.Columns, d.full.Columns)),
			Hint: "read it on its own, or say datasets=per_file",
		}
	}
	cols := make([]arrow.Array, d.schema.Columns.NumFields())
	for i, f := range d.schema.Columns.Fields() {
		cols[i] = b.Rows.Column(d.full.Column(f.Name))
	}
	b.Rows = array.NewRecordBatch(d.schema.Columns, cols, b.Rows.NumRows())
	b.Schema = d.schema
	return nil
}

func sameColumns(a, b *arrow.Schema) bool {
	if a.NumFields() != b.NumFields() {
		return false
	}
	for i, f := range a.Fields() {
		if f.Name != b.Field(i).Name || !arrow.TypeEqual(f.Type, b.Field(i).Type) {
			return false
		}
	}
	return true
}

// difference names the first column in which two schemas differ.
func difference(a, b *arrow.Schema) string {
	for i, f := range a.Fields() {
		if i >= b.NumFields() {
			return fmt.Sprintf("column %q is more", f.Name)
		}
		if g := b.Field(i); f.Name != g.Name {
			return fmt.Sprintf("column %d is %q, elsewhere %q", i+1, f.Name, g.Name)
		} else if !arrow.TypeEqual(f.Type, g.Type) {
			return fmt.Sprintf("column %q is %s, elsewhere %s", f.Name, record.FormatType(f.Type), record.FormatType(g.Type))
		}
	}
	return fmt.Sprintf("column %q is missing", b.Field(a.NumFields()).Name)
}

func logPath(p string) slog.Attr { return slog.String("path", p) }

func logRows(n int64) slog.Attr { return slog.Int64("rows", n) }

package pgcopy_test

import (
	"testing"

	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/internal/benchtest"
)

// orderTypes are those of benchtest.Orders.
func orderTypes() []pgcopy.Type {
	return []pgcopy.Type{
		form(pgcopy.Int8), form(pgcopy.Int4), form(pgcopy.Float8), form(pgcopy.Numeric), form(pgcopy.Raw), form(pgcopy.Raw), form(pgcopy.Bool),
		form(pgcopy.Timestamp), form(pgcopy.Raw),
	}
}

// BenchmarkRows encodes and decodes rows that no server is needed for.
func BenchmarkRows(b *testing.B) {
	s := benchtest.Orders()
	batch := benchtest.Batch(s, 0, benchtest.Rows)
	columns := make([]pgcopy.Column, len(orderTypes()))
	for i, t := range orderTypes() {
		columns[i] = pgcopy.Column{Name: s.Columns.Field(i).Name, Type: t}
	}
	e, err := pgcopy.NewEncoder(s.Columns, columns)
	if err != nil {
		b.Fatal(err)
	}
	rows, err := e.AppendRows(nil, batch.Rows, 0, batch.NumRows())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		var out []byte
		b.SetBytes(int64(len(rows)))
		b.ReportAllocs()
		for b.Loop() {
			if out, err = e.AppendRows(out[:0], batch.Rows, 0, batch.NumRows()); err != nil {
				b.Fatal(err)
			}
		}
		benchtest.PerRow(b, benchtest.Rows)
	})
	b.Run("decode", func(b *testing.B) {
		stream := append([]byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"), rows...)
		stream = append(stream, 0xff, 0xff)
		b.SetBytes(int64(len(stream)))
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for _, got := range decode(b, s, orderTypes(), stream, 64<<10, pgcopy.DecoderOptions{}) {
				n += got.NumRows()
			}
			if n != benchtest.Rows {
				b.Fatal(n)
			}
		}
		benchtest.PerRow(b, benchtest.Rows)
	})
}

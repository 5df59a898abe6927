package pgcopy_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

func selectColumn(b *record.Batch, c int, s *record.Schema) arrow.RecordBatch {
	return array.NewRecordBatch(s.Columns, []arrow.Array{b.Rows.Column(c)}, b.Rows.NumRows())
}

const benchRows = 100_000

func benchInput(b *testing.B) (*record.Schema, []pgcopy.Type, []byte) {
	b.Helper()
	stream := copyOut(b, pgtest.Conn(b, pgtest.URL(b)), `SELECT i::int8, i, i * 0.37::float8, (i * 1.25)::numeric(12,2), 'name of ' || i, 'c' || i % 9999,
		i % 2 = 0, '2026-01-01'::timestamptz + i * interval '1 second', jsonb_build_object('n', i), md5(i::text)::uuid
		FROM generate_series(1, 100000) i`)
	s := schemaOf(arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Float64, &arrow.Decimal128Type{Precision: 12, Scale: 2},
		arrow.BinaryTypes.String, arrow.BinaryTypes.String, arrow.FixedWidthTypes.Boolean, record.InfiniteTimestampType(true), record.JSONType(),
		record.UUIDType())
	return s, []pgcopy.Type{
		form(pgcopy.Int8), form(pgcopy.Int4), form(pgcopy.Float8), form(pgcopy.Numeric), form(pgcopy.Raw), form(pgcopy.Raw), form(pgcopy.Bool),
		form(pgcopy.Timestamp), form(pgcopy.Versioned), form(pgcopy.UUID),
	}, stream
}

func BenchmarkDecode(b *testing.B) {
	s, types, stream := benchInput(b)
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		decode(b, s, types, stream, 64<<10, pgcopy.DecoderOptions{})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRows, "ns/row")
}

func BenchmarkEncode(b *testing.B) {
	s, types, stream := benchInput(b)
	batches := decode(b, s, types, stream, 64<<10, pgcopy.DecoderOptions{})
	cols := make([]pgcopy.Column, len(types))
	for i, t := range types {
		cols[i] = pgcopy.Column{Name: "c", Type: t}
	}
	e, err := pgcopy.NewEncoder(s.Columns, cols)
	if err != nil {
		b.Fatal(err)
	}
	var out []byte
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		for _, batch := range batches {
			if out, err = e.AppendRows(out[:0], batch.Rows, 0, batch.NumRows()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRows, "ns/row")
}

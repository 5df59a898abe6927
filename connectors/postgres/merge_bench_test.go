package postgres

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// One question for each transaction of the stream and each chunk that is not forgotten yet.
func BenchmarkIncludes(b *testing.B) {
	var s Source
	seen := record.Position{Shape: mergeShape, Data: []byte(`{"snapshot":"100:200:100,150,160","lsn":"0/100"}`)}
	txn := make([]record.Position, 1<<10)
	for i := range txn {
		p := streamPosition{LSN: lsn(i), XID: uint64(i)}
		p.System, p.Timeline, p.Slot, p.Created = "7123456789012345678", 1, "leat_shop", 1<<30
		txn[i] = p.encode()
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Includes(seen, txn[i/8%len(txn)]) // 8 chunks
	}
}

// A batch of 8192 keys among 32 chunks, compared here and by the server.
func BenchmarkLocate(b *testing.B) {
	const rows, bounds = 8192, 32
	build := func(dt arrow.DataType, text func(i int) string) (*record.Schema, arrow.RecordBatch, []bound) {
		values := array.NewBuilder(memory.DefaultAllocator, dt)
		for i := range rows {
			if err := record.ParseText(values, text(i*7919%rows)); err != nil {
				b.Fatal(err)
			}
		}
		schema := &record.Schema{Dataset: "public.t", Columns: arrow.NewSchema([]arrow.Field{{Name: "k", Type: dt}}, nil), Key: []int{0}}
		ends := make([]bound, bounds)
		for i := range ends {
			ends[i] = bound{Key: []string{text(i * rows / bounds)}}
		}
		return schema, array.NewRecordBatch(schema.Columns, []arrow.Array{values.NewArray()}, rows), ends
	}
	b.Run("here", func(b *testing.B) {
		schema, batch, ends := build(arrow.PrimitiveTypes.Int64, strconv.Itoa)
		for b.Loop() {
			if _, err := locateHere(schema, []keyColumn{{at: 0, cast: "bigint", local: true}}, batch, ends); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("there", func(b *testing.B) {
		s := followSource(b, pgtest.Database(b), nil)
		_, batch, ends := build(arrow.BinaryTypes.String, func(i int) string { return fmt.Sprintf("customer-%06d", i) })
		for b.Loop() {
			if _, err := s.locateThere(b.Context(), []keyColumn{{at: 0, cast: "text", collate: `pg_catalog."en-US-x-icu"`}}, batch, ends); err != nil {
				b.Fatal(err)
			}
		}
	})
}

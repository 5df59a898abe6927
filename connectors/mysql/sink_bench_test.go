package mysql

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

const benchRows = 8192

// as is a checked type assertion.
func as[T any](v any) T {
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("a %T", v)) // a mistake in the benchmark
	}
	return t
}

// benchBatches returns n batches of 9 columns whose ids count up by step, modulo mod.
func benchBatches(n, step, mod int, op record.Op) []*record.Batch {
	s := keyed("t", idField,
		arrow.Field{Name: "qty", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		arrow.Field{Name: "price", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		arrow.Field{Name: "amt", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}, Nullable: true},
		arrow.Field{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "code", Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: "ok", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		arrow.Field{Name: "ts", Type: &arrow.TimestampType{Unit: arrow.Microsecond}, Nullable: true},
		arrow.Field{Name: "doc", Type: arrow.BinaryTypes.String, Nullable: true},
	)
	out := make([]*record.Batch, n)
	id := 0
	for k := range out {
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
		ops := make([]record.Op, benchRows)
		for row := range benchRows {
			i := int64(id%mod + 1)
			id += step
			ops[row] = op
			as[*array.Int64Builder](b.Field(0)).Append(i)
			as[*array.Int32Builder](b.Field(1)).Append(int32(i % 1000))
			as[*array.Float64Builder](b.Field(2)).Append(float64(i) * 1.01)
			as[*array.Decimal128Builder](b.Field(3)).Append(decimal128.FromI64(i * 31))
			as[*array.StringBuilder](b.Field(4)).Append("customer name number " + strconv.FormatInt(i, 10))
			as[*array.StringBuilder](b.Field(5)).Append("C" + strconv.FormatInt(i%5000, 10))
			as[*array.BooleanBuilder](b.Field(6)).Append(i%3 == 0)
			as[*array.TimestampBuilder](b.Field(7)).Append(arrow.Timestamp(1_700_000_000_000_000 + i*1_000_000))
			as[*array.StringBuilder](b.Field(8)).Append(`{"k":` + strconv.FormatInt(i, 10) + `}`)
		}
		out[k] = &record.Batch{Schema: s, Rows: b.NewRecordBatch(), Ops: ops}
	}
	return out
}

func benchTable(b *testing.B, kind mysqltest.Flavor) string {
	b.Helper()
	url := mysqltest.Database(b, kind)
	sqlRun(b, watcher(b, url), `CREATE TABLE t (id bigint PRIMARY KEY, qty int, price double, amt decimal(12,2), name varchar(100), code varchar(20),
		ok tinyint(1), ts datetime(6), doc longtext) CHARACTER SET utf8mb4`)
	return url
}

// BenchmarkSinkAppend appends rows, as a file and by statements.
func BenchmarkSinkAppend(b *testing.B) {
	const batches = 12
	all := benchBatches(batches, 1, 1<<40, record.Insert)
	for _, kind := range mysqltest.Flavors() {
		for _, file := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/file=%t", kind, file), func(b *testing.B) {
				url := benchTable(b, kind)
				db := watcher(b, url)
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					sqlRun(b, db, "TRUNCATE t")
					snk := startSink(b, sinkConfig(b, url), connector.Append, 1)
					snk.db.load = file
					b.StartTimer()
					for _, batch := range all {
						must(b, snk.Write(b.Context(), batch))
					}
					must(b, snk.Commit(b.Context(), position(1)))
				}
				b.ReportMetric(batches*benchRows, "rows/op")
				b.ReportMetric(float64(batches*benchRows*b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

// BenchmarkSinkUpsert updates rows that are there: of a table whose key is its only unique index, and, by way of a stage, of one that has
// another one.
func BenchmarkSinkUpsert(b *testing.B) {
	const batches = 4
	for _, kind := range mysqltest.Flavors() {
		for _, way := range []string{"direct", "staged"} {
			b.Run(fmt.Sprintf("%s/%s", kind, way), func(b *testing.B) {
				url := benchTable(b, kind)
				if way == "staged" {
					sqlRun(b, watcher(b, url), "ALTER TABLE t ADD UNIQUE (name)")
				}
				snk := startSink(b, sinkConfig(b, url), connector.Upsert, 1)
				all := benchBatches(batches, 7919, batches*benchRows, record.Update)
				for _, batch := range all {
					must(b, snk.Write(b.Context(), batch))
				}
				must(b, snk.Commit(b.Context(), position(1)))
				b.ReportAllocs()
				for b.Loop() {
					for _, batch := range all {
						must(b, snk.Write(b.Context(), batch))
					}
					must(b, snk.Commit(b.Context(), position(2)))
				}
				b.ReportMetric(batches*benchRows, "rows/op")
				b.ReportMetric(float64(batches*benchRows*b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

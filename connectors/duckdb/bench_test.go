//go:build cgo && duckdb_arrow

package duckdb_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/duckdb"
	"github.com/leatdata/leat/record"
)

func benchSchema(uuids bool) *record.Schema {
	key := arrow.Field{Name: "id", Type: arrow.PrimitiveTypes.Int64}
	if uuids {
		key.Type = record.UUIDType()
	}
	return &record.Schema{Dataset: "t", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		key,
		{Name: "qty", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "price", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "amount", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}, Nullable: true},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "at", Type: record.InstantType(), Nullable: true},
	}, nil)}
}

// benchBatch are rows of some keys; their other values are of a version.
func benchBatch(s *record.Schema, keys []int64, version int) *record.Batch {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	add := func(c int, text string) {
		if err := record.ParseText(rb.Field(c), text); err != nil {
			panic(err)
		}
	}
	for _, k := range keys {
		id := strconv.FormatInt(k, 10)
		if s.Columns.Field(0).Type.ID() == arrow.EXTENSION {
			h := uint64(k) * 0x9E3779B97F4A7C15
			id = fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", h>>32, h>>16&0xffff, h&0xfff, h>>20&0xfff, k)
		}
		add(0, id)
		add(1, strconv.Itoa(version))
		add(2, strconv.FormatFloat(float64(k)*0.37+1, 'g', -1, 64))
		add(3, fmt.Sprintf("%d.%02d", k*31/100%1000000, k*31%100))
		add(4, fmt.Sprintf("customer name number %d", k))
		add(5, string(record.AppendTimestamp(nil, 1704067200000000+k*1000000, arrow.Microsecond, true)))
	}
	return &record.Batch{Schema: s, Rows: rb.NewRecordBatch()}
}

// benchTable fills a file with n rows.
func benchTable(b *testing.B, s *record.Schema, n int64) string {
	b.Helper()
	path := newFile(b)
	snk := follow(b, path)
	const page = 50_000
	for from := int64(0); from < n; from += page {
		keys := make([]int64, min(page, n-from))
		for i := range keys {
			keys[i] = from + int64(i)
		}
		mustWrite(b, snk, benchBatch(s, keys, 0))
	}
	end(b, snk)
	return path
}

// BenchmarkCommitChanges commits transactions of a few random changes each, as a stream that keeps up does. LEAT_BENCH_ROWS is the size
// of the table.
func BenchmarkCommitChanges(b *testing.B) {
	if testing.Short() {
		b.Skip("it fills a large table")
	}
	rows, err := strconv.ParseInt(os.Getenv("LEAT_BENCH_ROWS"), 10, 64)
	if err != nil {
		rows = 200_000
	}
	for _, uuids := range []bool{false, true} {
		s := benchSchema(uuids)
		path := benchTable(b, s, rows)
		r := rand.New(rand.NewPCG(1, 2))
		for n, size := range []int{1, 10, 100, 1000, 10_000} {
			for _, kind := range []string{"whole", "unsent"} {
				b.Run(fmt.Sprintf("uuid=%v/%s/%d", uuids, kind, size), func(b *testing.B) {
					snk := started(b, path, "r", uint64(n+2))
					version := 0
					for b.Loop() {
						b.StopTimer()
						version++
						keys := make([]int64, size)
						for i := range keys {
							keys[i] = r.Int64N(rows)
						}
						batch := benchBatch(s, keys, version)
						batch.Ops = make([]record.Op, size)
						for i := range batch.Ops {
							batch.Ops[i] = record.Update
						}
						if kind == "unsent" {
							bits := make([]uint64, (size+63)/64)
							for i := range bits {
								bits[i] = ^uint64(0)
							}
							batch.Unchanged = map[int][]uint64{4: bits}
						}
						b.StartTimer()
						mustWrite(b, snk, batch)
						commit(b, snk)
					}
					b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "rows/s")
					if err := snk.Close(b.Context()); err != nil {
						b.Fatal(err)
					}
				})
			}
		}
	}
}

// updates are updates of whole rows under keys, as one batch.
func updates(s *record.Schema, keys []int64, version int) *record.Batch {
	batch := benchBatch(s, keys, version)
	batch.Ops = slices.Repeat([]record.Op{record.Update}, len(keys))
	return batch
}

// BenchmarkFollowBehind applies batches of 8,192 updates, 16 of them to a commit, as a stream does that is behind.
func BenchmarkFollowBehind(b *testing.B) {
	if testing.Short() {
		b.Skip("it fills a large table")
	}
	const rows, size, batches = 1_000_000, 8_192, 16
	for _, uuids := range []bool{false, true} {
		s := benchSchema(uuids)
		path := benchTable(b, s, rows)
		fence := uint64(1)
		for _, order := range []string{"random", "ordered"} {
			b.Run(fmt.Sprintf("uuid=%v/%s", uuids, order), func(b *testing.B) {
				b.ReportAllocs()
				fence++
				snk := started(b, path, "r", fence)
				r := rand.New(rand.NewPCG(1, 2))
				next, version := int64(0), 0
				for b.Loop() {
					b.StopTimer()
					var list []*record.Batch
					for range batches {
						version++
						keys := make([]int64, size)
						for i := range keys {
							if keys[i] = r.Int64N(rows); order == "ordered" {
								keys[i] = next % rows
								next++
							}
						}
						list = append(list, updates(s, keys, version))
					}
					b.StartTimer()
					mustWrite(b, snk, list...)
					commit(b, snk)
				}
				b.ReportMetric(float64(size*batches*b.N)/b.Elapsed().Seconds(), "rows/s")
				b.ReportMetric(size*batches, "rows/op")
				if err := snk.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkAppend inserts batches of 8,192 rows, as a copy does.
func BenchmarkAppend(b *testing.B) {
	if testing.Short() {
		b.Skip("it fills a large table")
	}
	const size, batches = 8_192, 64
	s := benchSchema(false)
	var list []*record.Batch
	for n := range batches {
		keys := make([]int64, size)
		for i := range keys {
			keys[i] = int64(n*size + i)
		}
		list = append(list, benchBatch(s, keys, n))
	}
	snk, err := (&duckdb.SinkConfig{Database: duckdb.Database{Path: newFile(b)}}).Open(connectortest.Env(b))
	if err != nil {
		b.Fatal(err)
	}
	req := connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 1, Mode: connector.Append}
	if err := snk.Start(b.Context(), req); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		mustWrite(b, snk, list...)
		commit(b, snk)
	}
	b.ReportMetric(float64(size*batches*b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(size*batches, "rows/op")
	if err := snk.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

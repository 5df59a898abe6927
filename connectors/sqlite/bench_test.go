package sqlite_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

const benchRows = 131_072

func benchSchema() *record.Schema {
	return &record.Schema{Dataset: "t", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "qty", Type: arrow.PrimitiveTypes.Int32},
		{Name: "price", Type: arrow.PrimitiveTypes.Float64},
		{Name: "amount", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}},
		{Name: "name", Type: arrow.BinaryTypes.String},
		{Name: "at", Type: record.InstantType()},
	}, nil)}
}

// benchBatches are rows in batches of 8,192; keys in order, or shuffled.
func benchBatches(s *record.Schema, keys []int64) []*record.Batch {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	var out []*record.Batch
	for i, k := range keys {
		add(rb.Field(0), strconv.FormatInt(k, 10))
		add(rb.Field(1), strconv.FormatInt(k%1000, 10))
		add(rb.Field(2), strconv.FormatFloat(float64(k)*0.37+1, 'g', -1, 64))
		add(rb.Field(3), fmt.Sprintf("%d.%02d", k*31/100, k*31%100))
		add(rb.Field(4), fmt.Sprintf("customer name number %d", k))
		add(rb.Field(5), string(record.AppendTimestamp(nil, 1704067200000000+k*1000000, arrow.Microsecond, true)))
		if (i+1)%8192 == 0 || i+1 == len(keys) {
			out = append(out, &record.Batch{Schema: s, Rows: rb.NewRecordBatch()})
		}
	}
	return out
}

// add appends a value that is one of the column's type.
func add(b array.Builder, text string) {
	if err := record.ParseText(b, text); err != nil {
		panic(err)
	}
}

func benchKeys() []int64 {
	keys := make([]int64, benchRows)
	for i := range keys {
		keys[i] = int64(i)
	}
	return keys
}

func shuffled(keys []int64) []int64 {
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func benchWrite(b *testing.B, path string, mode connector.WriteMode, batches []*record.Batch) {
	b.Helper()
	snk, err := sinkOf(path).Open(testEnv(b))
	if err != nil {
		b.Fatal(err)
	}
	if err := snk.Start(b.Context(), connector.SinkStart{Mode: mode, Run: "r"}); err != nil {
		b.Fatal(err)
	}
	for i, batch := range batches {
		if err := snk.Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		if i%8 == 7 || i == len(batches)-1 {
			commit(b, snk, record.Progress{Run: "r"})
		}
	}
	if err := snk.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkInsert(b *testing.B) {
	if testing.Short() {
		b.Skip("it fills a large table")
	}
	batches := benchBatches(benchSchema(), benchKeys())
	b.ReportAllocs()
	for b.Loop() {
		benchWrite(b, filepath.Join(b.TempDir(), "t.db"), connector.Append, batches)
	}
	b.ReportMetric(float64(benchRows*b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(benchRows, "rows/op")
}

func BenchmarkUpsertRandom(b *testing.B) {
	if testing.Short() {
		b.Skip("it fills a large table")
	}
	path := filepath.Join(b.TempDir(), "t.db")
	benchWrite(b, path, connector.Append, benchBatches(benchSchema(), benchKeys()))
	batches := benchBatches(benchSchema(), shuffled(benchKeys()))
	b.ReportAllocs()
	for b.Loop() {
		benchWrite(b, path, connector.Upsert, batches)
	}
	b.ReportMetric(float64(benchRows*b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(benchRows, "rows/op")
}

func BenchmarkRead(b *testing.B) {
	if testing.Short() {
		b.Skip("it fills a large table")
	}
	path := filepath.Join(b.TempDir(), "t.db")
	benchWrite(b, path, connector.Append, benchBatches(benchSchema(), benchKeys()))
	for _, scan := range []string{"0", "200000"} {
		b.Run("scan="+scan, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				src, err := sourceOf(path, map[string]string{"table": "t", "scan": scan}).Open(testEnv(b))
				if err != nil {
					b.Fatal(err)
				}
				if err := src.Start(b.Context(), connector.SourceStart{}); err != nil {
					b.Fatal(err)
				}
				for {
					if _, err := src.Read(b.Context(), connector.Limit{Rows: 8192, Bytes: 16 << 20}); err != nil {
						break
					}
				}
				if err := src.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(benchRows*b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(benchRows, "rows/op")
		})
	}
}

// BenchmarkCommitChanges commits transactions of a few random changes each, as a stream that keeps up does.
func BenchmarkCommitChanges(b *testing.B) {
	if testing.Short() {
		b.Skip("it fills a large table")
	}
	path := filepath.Join(b.TempDir(), "t.db")
	s := benchSchema()
	benchWrite(b, path, connector.Upsert, benchBatches(s, benchKeys()))
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			snk, err := sinkOf(path).Open(testEnv(b))
			if err != nil {
				b.Fatal(err)
			}
			if err := snk.Start(b.Context(), connector.SinkStart{Mode: connector.Upsert, Run: "r"}); err != nil {
				b.Fatal(err)
			}
			batches := benchBatches(s, shuffled(benchKeys()))
			b.ReportAllocs()
			at, i := 0, 0
			for b.Loop() {
				if i+n > batches[at].NumRows() {
					at, i = (at+1)%len(batches), 0
				}
				batch := record.Batch{Schema: s, Rows: batches[at].Rows.NewSlice(int64(i), int64(i+n)), Ops: make([]record.Op, n)}
				for k := range batch.Ops {
					batch.Ops[k] = record.Update
				}
				i += n
				if err := snk.Write(b.Context(), &batch); err != nil {
					b.Fatal(err)
				}
				commit(b, snk, record.Progress{Run: "r", Position: record.Position{Shape: 2, Data: []byte(`{"lsn":"0/1"}`)}})
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(n), "rows/op")
			if err := snk.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

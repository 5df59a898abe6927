package parquet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/record"
)

const (
	benchRows  = 262_144
	benchBatch = 8_192
)

var (
	benchDecimal = &arrow.Decimal128Type{Precision: 12, Scale: 2}
	benchTime    = &arrow.TimestampType{Unit: arrow.Microsecond}
)

func benchSchema() *record.Schema {
	return &record.Schema{Dataset: "bench", Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "qty", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "price", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "amount", Type: benchDecimal, Nullable: true},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "code", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "active", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "created", Type: benchTime, Nullable: true},
		{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "uid", Type: record.UUIDType(), Nullable: true},
	}, nil)}
}

// benchBatches are rows of believable data: near-unique columns, columns that repeat, some nulls.
func benchBatches(b *testing.B) []*record.Batch {
	b.Helper()
	if err := record.Register(); err != nil {
		b.Fatal(err)
	}
	s := benchSchema()
	rnd := rand.New(rand.NewPCG(1, 2))
	var out []*record.Batch
	for from := 0; from < benchRows; from += benchBatch {
		id, qty := array.NewInt64Builder(memory.DefaultAllocator), array.NewInt64Builder(memory.DefaultAllocator)
		price := array.NewFloat64Builder(memory.DefaultAllocator)
		amount := array.NewDecimal128Builder(memory.DefaultAllocator, benchDecimal)
		name, code := array.NewStringBuilder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
		active := array.NewBooleanBuilder(memory.DefaultAllocator)
		created := array.NewTimestampBuilder(memory.DefaultAllocator, benchTime)
		note := array.NewStringBuilder(memory.DefaultAllocator)
		uid := array.NewFixedSizeBinaryBuilder(memory.DefaultAllocator, &arrow.FixedSizeBinaryType{ByteWidth: 16})
		for i := from; i < from+benchBatch; i++ {
			id.Append(int64(i))
			qty.Append(rnd.Int64N(1000))
			price.Append(float64(rnd.Int64N(1_000_000)) / 1000)
			amount.Append(decimal128.FromI64(rnd.Int64N(10_000_000)))
			name.Append(fmt.Sprintf("customer name number %d", rnd.Int64N(1_000_000)))
			code.Append(fmt.Sprintf("C%d", rnd.Int64N(5000)))
			active.Append(rnd.IntN(2) == 0)
			created.Append(arrow.Timestamp(1_767_225_600_000_000 + rnd.Int64N(28*86_400)*1_000_000))
			if rnd.IntN(10) == 0 {
				note.AppendNull()
			} else {
				note.Append(fmt.Sprintf("note, with a comma %x", rnd.Uint64()))
			}
			var u [16]byte
			for k := range u {
				u[k] = byte(rnd.Uint32())
			}
			uid.Append(u[:])
		}
		cols := []arrow.Array{
			id.NewArray(), qty.NewArray(), price.NewArray(), amount.NewArray(), name.NewArray(), code.NewArray(), active.NewArray(),
			created.NewArray(), note.NewArray(),
			array.NewExtensionArrayWithStorage(record.UUIDType(), uid.NewArray()),
		}
		out = append(out, &record.Batch{Schema: s, Rows: array.NewRecordBatch(s.Columns, cols, benchBatch)})
	}
	return out
}

type counted struct{ n int64 }

func (c *counted) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func BenchmarkWrite(b *testing.B) {
	batches := benchBatches(b)
	b.ReportAllocs()
	for b.Loop() {
		var out counted
		w, err := parquet.NewWriter(&out, batches[0].Schema, parquet.Options{})
		if err != nil {
			b.Fatal(err)
		}
		for _, batch := range batches {
			if err := w.Write(batch); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(out.n)/benchRows, "bytes/row")
	}
	b.ReportMetric(benchRows, "rows/op")
}

func BenchmarkRead(b *testing.B) {
	batches := benchBatches(b)
	var file bytes.Buffer
	w, err := parquet.NewWriter(&file, batches[0].Schema, parquet.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, batch := range batches {
		if err := w.Write(batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := open(file.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		rows := 0
		for {
			batch, err := r.Next(format.Want{Rows: benchBatch, Bytes: 4 << 20})
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			rows += batch.NumRows()
		}
		if rows != benchRows {
			b.Fatalf("%d rows", rows)
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(benchRows, "rows/op")
}

package parquet_test

import (
	"errors"
	"io"
	"testing"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/internal/benchtest"
	"github.com/leatdata/leat/record"
)

const benchBatches = 8

func benchRows(s *record.Schema) []*record.Batch {
	out := make([]*record.Batch, benchBatches)
	for i := range out {
		out[i] = benchtest.Batch(s, i*benchtest.Rows, benchtest.Rows)
	}
	return out
}

func BenchmarkWrite(b *testing.B) {
	s := benchtest.Orders()
	batches := benchRows(s)
	b.SetBytes(benchBatches * batches[0].Bytes())
	b.ReportAllocs()
	for b.Loop() {
		w, err := parquet.NewWriter(io.Discard, s, parquet.Options{})
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
	}
	benchtest.PerRow(b, benchBatches*benchtest.Rows)
}

func BenchmarkRead(b *testing.B) {
	s := benchtest.Orders()
	batches := benchRows(s)
	file := write(b, parquet.Options{}, s, batches...)
	b.SetBytes(benchBatches * batches[0].Bytes())
	b.ReportAllocs()
	for b.Loop() {
		r, err := open(file)
		if err != nil {
			b.Fatal(err)
		}
		rows := 0
		for {
			got, err := r.Next(format.Want{Rows: benchtest.Rows})
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			rows += got.NumRows()
		}
		if rows != benchBatches*benchtest.Rows {
			b.Fatal(rows)
		}
	}
	benchtest.PerRow(b, benchBatches*benchtest.Rows)
}

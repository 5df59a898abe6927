package csv_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/csv"
	"github.com/leatdata/leat/record"
)

const benchRows = 100_000

// sample has 8 columns: two whole numbers, a price, two texts, a day, a truth value and a note that is quoted now and then.
func sample() []byte {
	r := rand.New(rand.NewPCG(1, 1))
	var b bytes.Buffer
	b.WriteString("id,qty,price,name,category,day,active,note\n")
	for i := range benchRows {
		note := "some words about it, in quotes"
		if i%4 == 0 {
			note = "say \"\"hi\"\""
		}
		fmt.Fprintf(&b, "%d,%d,%d.%02d,customer name %d,category %d,20%02d-%02d-%02d,%t,\"%s\"\n", i, r.IntN(1000), r.IntN(10000), r.IntN(100), r.IntN(1e6),
			r.IntN(20), r.IntN(30), 1+r.IntN(12), 1+r.IntN(28), i%3 == 0, note)
	}
	return b.Bytes()
}

func perRow(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchRows, "ns/row")
	b.ReportMetric(benchRows, "rows/op")
}

func BenchmarkRead(b *testing.B) {
	in := sample()
	s := infer(b, csv.InferOptions{}, string(in))
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := csv.NewReader(bytes.NewReader(in), csv.Options{Schema: s})
		if err != nil {
			b.Fatal(err)
		}
		rows := 0
		for {
			batch, err := r.Next(format.Want{Rows: 8192})
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			rows += batch.NumRows()
		}
		if rows != benchRows {
			b.Fatal(rows)
		}
	}
	perRow(b)
}

func BenchmarkInfer(b *testing.B) {
	in := sample()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		inf, err := csv.NewInference(csv.InferOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := inf.Scan(bytes.NewReader(in), 0); err != nil {
			b.Fatal(err)
		}
	}
	perRow(b)
}

func BenchmarkWrite(b *testing.B) {
	in := sample()
	r, err := csv.NewReader(bytes.NewReader(in), csv.Options{Schema: infer(b, csv.InferOptions{}, string(in))})
	if err != nil {
		b.Fatal(err)
	}
	var batches []*record.Batch
	for {
		batch, err := r.Next(format.Want{})
		if err != nil {
			break
		}
		batches = append(batches, batch)
	}
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		w, err := csv.NewWriter(io.Discard, batches[0].Schema, csv.WriterOptions{})
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
	perRow(b)
}

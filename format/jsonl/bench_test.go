package jsonl_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/record"
)

const benchRows = 100_000

// sample has 8 columns, as the one for CSV.
func sample() []byte {
	r := rand.New(rand.NewPCG(1, 1))
	var b bytes.Buffer
	for i := range benchRows {
		fmt.Fprintf(&b, `{"id":%d,"qty":%d,"price":%d.%02d,"name":"customer name %d","category":"category %d","day":"20%02d-%02d-%02d","active":%t,"note":"some words, \"quoted\""}`+"\n",
			i, r.IntN(1000), r.IntN(10000), 1+r.IntN(99), r.IntN(1e6), r.IntN(20), r.IntN(30), 1+r.IntN(12), 1+r.IntN(28), i%3 == 0)
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
	s := infer(b, jsonl.InferOptions{}, string(in))
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := jsonl.NewReader(bytes.NewReader(in), jsonl.Options{Schema: s})
		if err != nil {
			b.Fatal(err)
		}
		for {
			_, err := r.Next(format.Want{Rows: 8192})
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	perRow(b)
}

func BenchmarkInfer(b *testing.B) {
	in := sample()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jsonl.NewInference(jsonl.InferOptions{}).Scan(bytes.NewReader(in), 0); err != nil {
			b.Fatal(err)
		}
	}
	perRow(b)
}

func BenchmarkWrite(b *testing.B) {
	in := sample()
	r, err := jsonl.NewReader(bytes.NewReader(in), jsonl.Options{Schema: infer(b, jsonl.InferOptions{}, string(in))})
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
		w := jsonl.NewWriter(io.Discard, batches[0].Schema)
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

package arrowipc_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/arrowipc"
	"github.com/leatdata/leat/internal/benchtest"
)

func BenchmarkWrite(b *testing.B) {
	s := benchtest.Orders()
	batch := benchtest.Batch(s, 0, benchtest.Rows)
	for _, compression := range []string{"none", "lz4", "zstd"} {
		b.Run(compression, func(b *testing.B) {
			b.SetBytes(8 * batch.Bytes())
			b.ReportAllocs()
			for b.Loop() {
				w, err := arrowipc.NewWriter(io.Discard, s, arrowipc.Options{Compression: compression})
				if err != nil {
					b.Fatal(err)
				}
				for range 8 {
					if err := w.Write(batch); err != nil {
						b.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					b.Fatal(err)
				}
			}
			benchtest.PerRow(b, 8*benchtest.Rows)
		})
	}
}

func BenchmarkRead(b *testing.B) {
	s := benchtest.Orders()
	batch := benchtest.Batch(s, 0, benchtest.Rows)
	for _, compression := range []string{"none", "lz4", "zstd"} {
		b.Run(compression, func(b *testing.B) {
			var file bytes.Buffer
			w, err := arrowipc.NewWriter(&file, s, arrowipc.Options{Compression: compression})
			if err != nil {
				b.Fatal(err)
			}
			for range 8 {
				if err := w.Write(batch); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(8 * batch.Bytes())
			b.ReportAllocs()
			for b.Loop() {
				r, err := arrowipc.NewReader(bytes.NewReader(file.Bytes()), "d")
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
				if rows != 8*benchtest.Rows {
					b.Fatal(rows)
				}
			}
			benchtest.PerRow(b, 8*benchtest.Rows)
		})
	}
}

// Single messages, as durable lanes keep them.
func BenchmarkRecord(b *testing.B) {
	batch := benchtest.Batch(benchtest.Orders(), 0, benchtest.Rows)
	b.Run("append", func(b *testing.B) {
		var buf []byte
		b.SetBytes(batch.Bytes())
		b.ReportAllocs()
		for b.Loop() {
			var err error
			if buf, err = arrowipc.AppendRecord(buf[:0], batch.Rows); err != nil {
				b.Fatal(err)
			}
		}
		benchtest.PerRow(b, benchtest.Rows)
	})
	b.Run("read", func(b *testing.B) {
		message, err := arrowipc.AppendRecord(nil, batch.Rows)
		if err != nil {
			b.Fatal(err)
		}
		schema, err := arrowipc.AppendSchema(nil, batch.Schema.Columns)
		if err != nil {
			b.Fatal(err)
		}
		r, err := arrowipc.NewRecords(schema)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(batch.Bytes())
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Read(message); err != nil {
				b.Fatal(err)
			}
		}
		benchtest.PerRow(b, benchtest.Rows)
	})
}

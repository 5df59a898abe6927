package record_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/internal/benchtest"
	"github.com/leatdata/leat/record"
)

// inputs are rows as they are read, and as a stream brings them.
func inputs() []struct {
	name  string
	batch *record.Batch
} {
	s := benchtest.Orders()
	return []struct {
		name  string
		batch *record.Batch
	}{{"rows", benchtest.Batch(s, 0, benchtest.Rows)}, {"changes", benchtest.Changes(s, 0, benchtest.Rows)}}
}

func BenchmarkConcat(b *testing.B) {
	for _, in := range inputs() {
		b.Run(in.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := record.Concat([]*record.Batch{in.batch, in.batch, in.batch, in.batch}); err != nil {
					b.Fatal(err)
				}
			}
			benchtest.PerRow(b, 4*in.batch.NumRows())
		})
	}
	b.Run("small", func(b *testing.B) { // as many transactions of few changes are written as one
		s := benchtest.Orders()
		var many []*record.Batch
		for i := range 256 {
			many = append(many, benchtest.Changes(s, 16*i, 16))
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := record.Concat(many); err != nil {
				b.Fatal(err)
			}
		}
		benchtest.PerRow(b, 256*16)
	})
}

func BenchmarkKeep(b *testing.B) {
	for _, in := range inputs() {
		for _, tc := range []struct {
			name string
			keep func(i int) bool
		}{
			{"all", func(int) bool { return true }},
			{"half", func(i int) bool { return i%2 == 0 }},
			{"few", func(i int) bool { return i%100 == 0 }},
			{"end", func(i int) bool { return i >= 4000 }},
		} {
			b.Run(in.name+"/"+tc.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := in.batch.Keep(tc.keep); err != nil {
						b.Fatal(err)
					}
				}
				benchtest.PerRow(b, in.batch.NumRows())
			})
		}
	}
}

// Every value as text, and parsed again.
func BenchmarkText(b *testing.B) {
	one := benchtest.Batch(benchtest.Orders(), 0, benchtest.Rows)
	b.Run("append", func(b *testing.B) {
		var buf []byte
		b.ReportAllocs()
		for b.Loop() {
			for _, c := range one.Rows.Columns() {
				for i := range c.Len() {
					if c.IsValid(i) {
						buf = record.AppendText(buf[:0], c, i)
					}
				}
			}
		}
		benchtest.PerRow(b, one.NumRows())
	})
	b.Run("json", func(b *testing.B) {
		var buf []byte
		b.ReportAllocs()
		for b.Loop() {
			for _, c := range one.Rows.Columns() {
				for i := range c.Len() {
					buf = record.AppendJSON(buf[:0], c, i)
				}
			}
		}
		benchtest.PerRow(b, one.NumRows())
	})
	texts := make([][]string, one.Rows.NumCols())
	for n, c := range one.Rows.Columns() {
		for i := range c.Len() {
			if c.IsValid(i) {
				texts[n] = append(texts[n], string(record.AppendText(nil, c, i)))
			}
		}
	}
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			rb := array.NewRecordBuilder(memory.DefaultAllocator, one.Schema.Columns)
			for c, text := range texts {
				for _, s := range text {
					if err := record.ParseText(rb.Field(c), s); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		benchtest.PerRow(b, one.NumRows())
	})
}

func BenchmarkKeyMoved(b *testing.B) {
	one := benchtest.Changes(benchtest.Orders(), 0, benchtest.Rows)
	b.ReportAllocs()
	for b.Loop() {
		for i := range one.NumRows() {
			if one.KeyMoved(i) {
				b.Fatal(i)
			}
		}
	}
	benchtest.PerRow(b, one.NumRows())
}

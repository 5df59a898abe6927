package changelog_test

import (
	"io"
	"testing"

	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/internal/benchtest"
)

func BenchmarkJSONOfChanges(b *testing.B) {
	batch := benchtest.Changes(benchtest.Orders(), 0, benchtest.Rows)
	w := changelog.NewJSON(io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(batch, 1); err != nil {
			b.Fatal(err)
		}
	}
	benchtest.PerRow(b, benchtest.Rows)
}

func BenchmarkParquetOfChanges(b *testing.B) {
	batch := benchtest.Changes(benchtest.Orders(), 0, benchtest.Rows)
	b.ReportAllocs()
	for b.Loop() {
		w, err := changelog.NewParquet(io.Discard, batch.Schema, "_leat_", parquet.Options{})
		if err != nil {
			b.Fatal(err)
		}
		for range 4 {
			if err := w.Write(batch, 1); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	benchtest.PerRow(b, 4*benchtest.Rows)
}

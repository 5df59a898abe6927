package debezium_test

import (
	"io"
	"testing"

	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/internal/benchtest"
)

func BenchmarkChanges(b *testing.B) {
	batch := benchtest.Changes(benchtest.Orders(), 0, benchtest.Rows)
	w := debezium.NewWriter(io.Discard, debezium.Options{Name: "shop", Now: now})
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(batch, 1); err != nil {
			b.Fatal(err)
		}
	}
	benchtest.PerRow(b, benchtest.Rows)
}

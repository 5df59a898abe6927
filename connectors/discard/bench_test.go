package discard_test

import (
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connectors/discard"
	"github.com/leatdata/leat/internal/benchtest"
)

func BenchmarkWriteOfRows(b *testing.B) {
	snk, err := discard.NewSink().Open(connector.Env{})
	if err != nil {
		b.Fatal(err)
	}
	batch := benchtest.Batch(benchtest.Orders(), 0, benchtest.Rows)
	b.ReportAllocs()
	for b.Loop() {
		if err := snk.Write(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	benchtest.PerRow(b, benchtest.Rows)
}

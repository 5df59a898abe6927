package deadletter_test

import (
	"path/filepath"
	"testing"

	"github.com/leatdata/leat/internal/benchtest"
	"github.com/leatdata/leat/internal/deadletter"
	"github.com/leatdata/leat/internal/engine"
)

// BenchmarkAppend keeps rows that a sink refused.
func BenchmarkAppend(b *testing.B) {
	batch := benchtest.Batch(benchtest.Orders(), 0, 1000)
	rows := make([]engine.Rejected, batch.NumRows())
	for i := range rows {
		rows[i] = bad(i, 0)
		rows[i].Reject = batch.Reject(i)
	}
	s := deadletter.New(filepath.Join(b.TempDir(), "letters"))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Append(b.Context(), rows); err != nil {
			b.Fatal(err)
		}
		if err := s.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	benchtest.PerRow(b, len(rows))
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

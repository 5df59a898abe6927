//go:build cgo && duckdb_arrow

package duckdb_test

import (
	"testing"

	"github.com/leatdata/leat/internal/benchtest"
	"github.com/leatdata/leat/record"
)

// BenchmarkWriteBatches folds changes of rows that are there, and applies them, a transaction for each batch.
func BenchmarkWriteBatches(b *testing.B) {
	s := benchtest.Orders()
	batch := benchtest.Changes(s, 0, benchtest.Rows)
	batch.Unchanged, batch.Position = nil, record.Position{} // commit has its own
	for i := range batch.Ops {
		batch.Ops[i] = record.Update
	}
	snk := follow(b, newFile(b))
	mustWrite(b, snk, benchtest.Batch(s, 0, benchtest.Rows))
	commit(b, snk)
	b.ReportAllocs()
	for b.Loop() {
		mustWrite(b, snk, batch)
		commit(b, snk)
	}
	benchtest.PerRow(b, benchtest.Rows)
	end(b, snk)
}

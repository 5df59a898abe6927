package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/benchtest"
	"github.com/leatdata/leat/record"
)

// BenchmarkWriteBatches writes rows, and changes of rows that are there, a transaction for each batch.
func BenchmarkWriteBatches(b *testing.B) {
	s := benchtest.Orders()
	changes := benchtest.Changes(s, 0, benchtest.Rows)
	changes.Unchanged, changes.Position = nil, record.Position{} // the sink adds its own
	for i := range changes.Ops {
		changes.Ops[i] = record.Update
	}
	keyless := *s
	keyless.Key = nil // the same rows again and again
	for _, tc := range []struct {
		name  string
		mode  connector.WriteMode
		batch *record.Batch
	}{
		{"append", connector.Append, benchtest.Batch(&keyless, 0, benchtest.Rows)},
		{"upsert", connector.Upsert, changes},
	} {
		b.Run(tc.name, func(b *testing.B) {
			snk, err := sinkOf(filepath.Join(b.TempDir(), "t.db")).Open(testEnv(b))
			if err != nil {
				b.Fatal(err)
			}
			if err := snk.Start(b.Context(), connector.SinkStart{Mode: tc.mode, Run: "r"}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := snk.Write(b.Context(), tc.batch); err != nil {
					b.Fatal(err)
				}
				commit(b, snk, record.Progress{Run: "r", Position: benchtest.Position(1)})
			}
			benchtest.PerRow(b, benchtest.Rows)
			if err := snk.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

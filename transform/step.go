package transform

import "github.com/leatdata/leat/record"

// Step is one transform of a pipeline. Steps are pure: the same batch gives the same result, and the input is never changed.
// Their methods may be called concurrently.
type Step interface {
	// Schema says what becomes of a dataset's schema, before any row is read; nil drops the dataset. An error names the column.
	Schema(in *record.Schema) (*record.Schema, error)
	// Apply transforms a batch whose schema Schema has accepted; nil drops it, but for its position, which the engine keeps.
	// Rows that can't be transformed are moved to the batch's Rejects.
	Apply(b *record.Batch) (*record.Batch, error)
}

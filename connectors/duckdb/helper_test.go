//go:build cgo && duckdb_arrow

package duckdb_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// jsonOf turns the canonical text of a value into its JSON form.
func jsonOf(t testing.TB, dt arrow.DataType, text string) string {
	t.Helper()
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	if err := record.ParseText(b, text); err != nil {
		t.Fatalf("%s: %v", dt, err)
	}
	return string(record.AppendJSON(nil, b.NewArray(), 0))
}

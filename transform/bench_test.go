package transform_test

import (
	"testing"

	"github.com/leatdata/leat/internal/benchtest"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/transform"
)

func BenchmarkSteps(b *testing.B) {
	s := benchtest.Orders()
	rows, changes := benchtest.Batch(s, 0, benchtest.Rows), benchtest.Changes(s, 0, benchtest.Rows)
	for _, tc := range []struct {
		name, kind string
		args       any
		in         *record.Batch
	}{
		{"select", "select", []any{"id", "name", "amount"}, rows},
		{"rename", "rename", map[string]any{"name": "n"}, changes},
		{"filter", "filter", `qty > 500 && category != "category 7"`, rows},
		{"filter-changes", "filter", `active`, changes},
		{"filter-decimal", "filter", `amount >= 100`, rows},
		{"filter-time", "filter", `at >= "2024-01-01T01:00:00Z"`, rows},
		{"set-constant", "set", map[string]any{"origin": "shop"}, rows},
		{"set-number", "set", map[string]any{"total": map[string]any{"expr": "price * qty"}}, rows},
		{"set-text", "set", map[string]any{"label": map[string]any{"expr": `name + "/" + category`}}, rows},
		{"cast-number", "cast", map[string]any{"qty": "int64"}, rows},
		{"cast-decimal", "cast", map[string]any{"amount": "decimal(18,4)", "price": "float32"}, rows},
		{"cast-text", "cast", map[string]any{"id": "text", "at": "text"}, rows},
		{"cast-time", "cast", map[string]any{"at": "timestamptz"}, rows},
		{"hash", "hash", map[string]any{"columns": "name", "key": "k"}, rows},
		{"mask", "mask", map[string]any{"columns": "name", "keep": 2}, rows},
		{"key", "key", "name", changes},
	} {
		b.Run(tc.name, func(b *testing.B) {
			step, err := transform.New(tc.kind, tc.args)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				out, err := step.Apply(tc.in)
				if err != nil || len(out.Rejects) > 0 {
					b.Fatal(err, out.Rejects)
				}
			}
			benchtest.PerRow(b, tc.in.NumRows())
		})
	}
}

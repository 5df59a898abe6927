package engine

import (
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/benchtest"
)

// BenchmarkFitOfSinks looks at values as the declared limits of sinks want it.
func BenchmarkFitOfSinks(b *testing.B) {
	s := benchtest.Orders()
	for _, tc := range []struct {
		name   string
		text   []int
		limits connector.Limits
		column int
	}{
		{"none", nil, connector.Limits{}, 0},
		{"no NaN", nil, connector.Limits{NoNaN: true}, 2},
		{"no NUL", nil, connector.Limits{NoNUL: true}, 4},
		{"as text", []int{3}, connector.Limits{}, 3},
	} {
		batch := benchtest.Changes(s, 0, benchtest.Rows)
		out := s
		if tc.text != nil {
			out = textSchema(s, tc.text)
		}
		mappings := make([]connector.Mapping, s.Columns.NumFields())
		mappings[tc.column].Limits = tc.limits
		f, err := newFitter(out, tc.text, mappings, make([]connector.Policy, len(mappings)))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got, err := f.apply(batch); err != nil || len(got.rejects) > 0 {
					b.Fatal(got.rejects, err)
				}
			}
			benchtest.PerRow(b, benchtest.Rows)
		})
	}
}

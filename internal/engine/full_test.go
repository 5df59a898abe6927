package engine

import (
	"testing"

	"github.com/leatdata/leat/connector"
)

// When a commit of 100 bytes is due for a sink whose row groups have 10 rows: at the end of a group where one more would be too much; in
// the middle of one, at three times the size; and behind a dataset without rows as much as behind another.
func TestFull(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		given, before, bytes int64
		want                 bool
	}{
		"a group of half the size":           {given: 10, bytes: 50, want: false},
		"a group of more than half the size": {given: 20, before: 10, bytes: 51, want: true},
		"three of four":                      {given: 30, bytes: 75, want: false},
		"four of four":                       {given: 40, bytes: 100, want: true},
		"the middle of one":                  {given: 15, bytes: 299, want: false},
		"the middle of a wide one":           {given: 15, bytes: 300, want: true},
		"no rows, behind many":               {given: 0, bytes: 1000, want: true},
		"no rows, behind few":                {given: 0, bytes: 40, want: false},
	} {
		d := &deliverer{g: &generation{r: &runner{contract: connector.SourceContract{Bounded: true}}}}
		d.offer.Contract.RowGroup = 10
		d.into = &inflow{given: c.given, before: c.before}
		d.bytes = c.bytes
		if got := d.full(100); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

package csv

import (
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Mapping says how the columns are kept: as text, from which the same type, when it is declared, reads the same value.
func Mapping(s *record.Schema) []connector.Mapping {
	out := make([]connector.Mapping, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		out[i] = connector.Mapping{Column: f.Name, Native: "text"}
	}
	return out
}

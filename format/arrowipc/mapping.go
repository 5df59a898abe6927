package arrowipc

import (
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Mapping says how the columns are kept: all of them exactly, as what they are.
func Mapping(s *record.Schema) []connector.Mapping {
	out := make([]connector.Mapping, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		out[i] = connector.Mapping{Column: f.Name, Native: f.Type.String()}
	}
	return out
}

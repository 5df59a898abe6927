package mysql

import (
	"context"

	"github.com/leatdata/leat/connector"
)

// Discover implements connector.Discoverer: catalogue lookups only. Rows and bytes are what the server's statistics say.
func (s *Source) Discover(ctx context.Context) ([]connector.Dataset, error) {
	tables, err := s.resolved(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]connector.Dataset, len(tables))
	for i, t := range tables {
		patch := map[string]string{"table": t.dataset, "tables": ""}
		if t.query {
			patch = map[string]string{"query": s.cfg.Query, "name": t.dataset}
		}
		out[i] = connector.Dataset{Name: t.dataset, Schema: t.schema, Rows: max(t.rows, -1), Bytes: max(t.bytes, -1), Patch: patch}
	}
	return out, nil
}

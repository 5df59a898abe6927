//go:build cgo && duckdb_arrow

package duckdb_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/duckdb"
)

// clause S20
// Path, query and condition of a child source have the values of its parent record.
func TestParentValues(t *testing.T) {
	dir := t.TempDir()
	script(t, filepath.Join(dir, "north.duckdb"), `CREATE TABLE orders (id INTEGER, customer VARCHAR)`,
		`INSERT INTO orders VALUES (1, 'ada'), (2, 'o''hara\'), (3, '$$')`)
	read := func(options map[string]string, parent map[string]any) ([]string, error) {
		cfg := duckdb.Definition().Source()
		if err := connector.SetOptions(cfg, options); err != nil {
			t.Fatal(err)
		}
		if err := connector.SetOption(cfg, "path", filepath.Join(dir, "${parent.region}.duckdb")); err != nil {
			t.Fatal(err)
		}
		env := connectortest.Env(t)
		env.Parent = parent
		src, err := cfg.Open(env)
		if err != nil {
			return nil, err
		}
		defer src.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // the outcome is known
		if err := src.Start(t.Context(), connector.SourceStart{}); err != nil {
			return nil, err
		}
		var rows []string
		for {
			b, err := src.Read(t.Context(), connector.Limit{Rows: 1000})
			if err != nil {
				return rows, nil
			}
			rows = append(rows, connectortest.Rows(b)...)
		}
	}
	for value, want := range map[string][]string{"ada": {`{"id":1}`}, `o'hara\`: {`{"id":2}`}, "$$": {`{"id":3}`}, "'; DROP TABLE orders; --": nil} {
		parent := map[string]any{"region": "north", "v": value}
		for _, options := range []map[string]string{
			{"query": "SELECT id FROM orders WHERE customer = ${parent.v}"},
			{"table": "orders", "where": "customer = ${parent.v}", "columns": "id"},
		} {
			if rows, err := read(options, parent); err != nil || !slices.Equal(rows, want) {
				t.Errorf("%s, %v: %q, %v", value, options, rows, err)
			}
		}
	}
	if _, err := read(map[string]string{"table": "orders"}, nil); err == nil || !strings.Contains(err.Error(), "no parent record") {
		t.Errorf("a root: %v", err)
	}
}

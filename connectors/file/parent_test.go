package file_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/file"
)

// clause S20
// The path of a child source has the values of its parent record: as parts of names, which lead nowhere else and match nothing more.
func TestParentValues(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"north/7-a.csv": "id\n1\n", "north/7-b.csv": "id\n2\n", "north/8-a.csv": "id\n3\n", "south/7-a.csv": "id\n4\n"} {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(parent map[string]any) (connector.Source, error) {
		cfg, ok := file.Definition().Source().(*file.SourceConfig)
		if !ok {
			t.Fatal("another configuration")
		}
		if err := cfg.SetURL(filepath.Join(dir, "${parent.region}", "${parent.day}-*.csv")); err != nil {
			t.Fatal(err)
		}
		env := connectortest.Env(t)
		env.Parent = parent
		return cfg.Open(env)
	}
	src, err := open(map[string]any{"region": "north", "day": int64(7)})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // the outcome is known
	if err := src.Start(t.Context(), connector.SourceStart{}); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for {
		b, err := src.Read(t.Context(), connector.Limit{})
		if err != nil {
			break
		}
		rows = append(rows, connectortest.Rows(b)...)
	}
	if !slices.Equal(rows, []string{`{"id":1}`, `{"id":2}`}) {
		t.Errorf("%q", rows)
	}
	for want, parent := range map[string]map[string]any{
		"this source has no parent record":                               nil,
		`unknown value of the parent record "day": did you mean "days"?`: {"region": "north", "days": 7},
		"${parent.day}: the value has one of /":                          {"region": "north", "day": "*"},
		"${parent.region}: the value has one of /":                       {"region": "../" + filepath.Base(dir) + "/south", "day": 7},
		"${parent.region}: the value is null":                            {"region": nil, "day": 7},
	} {
		if _, err := open(parent); err == nil || !strings.Contains(err.Error(), want) || connector.ClassOf(err) != connector.ClassConfig {
			t.Errorf("%v: %v, want %s", parent, err, want)
		}
	}
}

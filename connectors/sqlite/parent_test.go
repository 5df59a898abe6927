package sqlite_test

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/sqlite"
)

// childRows reads what a child source has for one parent record.
func childRows(t testing.TB, cfg *sqlite.SourceConfig, parent map[string]any) ([]string, error) {
	t.Helper()
	env := connectortest.Env(t)
	env.Parent = parent
	src, err := cfg.Open(env)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := src.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	if err := src.Start(t.Context(), connector.SourceStart{}); err != nil {
		return nil, err
	}
	rows := []string{}
	for {
		b, err := src.Read(t.Context(), connector.Limit{Rows: 1000})
		if err == io.EOF { //nolint:errorlint // the end
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		if b != nil {
			rows = append(rows, connectortest.Rows(b)...)
		}
	}
}

// clause S20
// Path, query and condition of a child source have the values of its parent record; the configuration itself, and with it identity and
// contract, is the same for all parents.
func TestParentValues(t *testing.T) {
	dir := t.TempDir()
	run(t, filepath.Join(dir, "north.db"), `CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT);
		INSERT INTO orders VALUES (1, 'ada'), (2, 'bob'), (3, 'o''hara')`)
	path := filepath.Join(dir, "${parent.region}.db")
	query := sqlite.NewSource()
	query.Path, query.Query = path, "SELECT id, ${parent.customer} AS who FROM orders WHERE customer = ${parent.customer} -- it's all\n"
	where := sqlite.NewSource()
	where.Path, where.Table, where.Where = path, "orders", "customer = ${parent.customer} OR id = ${parent.id}"
	identity := query.Identity()
	for customer, want := range map[string]string{
		"ada": `{"id":1,"who":"ada"}`, "o'hara": `{"id":3,"who":"o'hara"}`, "nobody": "", "' OR ''='": "", "${parent.region}": "",
	} {
		rows, err := childRows(t, query, map[string]any{"region": "north", "customer": customer})
		if got := strings.Join(rows, " "); err != nil || got != want {
			t.Errorf("%s: %s, %v", customer, got, err)
		}
	}
	rows, err := childRows(t, where, map[string]any{"region": "north", "customer": "bob", "id": json.Number("3")})
	if got := strings.Join(rows, " "); err != nil || got != `{"id":2,"customer":"bob"} {"id":3,"customer":"o'hara"}` {
		t.Errorf("%s, %v", got, err)
	}
	if query.Path != path || identity["query"] != query.Identity()["query"] || !strings.Contains(identity["query"], "${parent.customer}") {
		t.Errorf("the configuration was changed: %+v", query)
	}
	for want, parent := range map[string]map[string]any{
		"this source has no parent record":                                        nil,
		`unknown value of the parent record "customer": did you mean "costumer"?`: {"region": "north", "costumer": "ada"},
		"the value has one of /":                                                  {"region": "../north", "customer": "ada"},
	} {
		if _, err := childRows(t, query, parent); err == nil || !strings.Contains(err.Error(), want) || connector.ClassOf(err) != connector.ClassConfig {
			t.Errorf("%v: %v, want %s", parent, err, want)
		}
	}
}

// clause S20
// Whatever text a parent record has comes back from the database as it is, and does nothing else.
func FuzzParentText(f *testing.F) {
	dir := f.TempDir()
	run(f, filepath.Join(dir, "a.db"), `CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)`)
	for _, s := range []string{"", "'", "''", `\`, `\'`, "--", "/*", "*/", "$$", "${parent.v}", "x'; DROP TABLE t; --", "\n", "☃", "]", "`", `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ToValidUTF8(s, "") != s || strings.ContainsRune(s, 0) {
			t.Skip("no text")
		}
		cfg := sqlite.NewSource()
		cfg.Path, cfg.Query = filepath.Join(dir, "a.db"), "SELECT id, ${parent.v} AS v FROM t WHERE ${parent.v} = ${parent.v}"
		rows, err := childRows(t, cfg, map[string]any{"v": s})
		if err != nil || len(rows) != 1 {
			t.Fatalf("%q: %q, %v", s, rows, err)
		}
		var row struct {
			V string `json:"v"`
		}
		if err := json.Unmarshal([]byte(rows[0]), &row); err != nil || row.V != s {
			t.Errorf("%q came back as %q, %v", s, row.V, err)
		}
	})
}

package postgres_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
)

// clause S20
// Query and condition of a child source have the values of its parent record, as literals of which nothing can be made but a value.
func TestParentValues(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE orders (id int PRIMARY KEY, customer text, raw bytea)`,
		`INSERT INTO orders VALUES (1, 'ada', '\x00ff'), (2, 'o''hara\', NULL), (3, '$$', NULL)`)
	read := func(options map[string]string, parent map[string]any) ([]string, error) {
		env := connectortest.Env(t)
		env.Parent = parent
		src, err := sourceConfig(t, db, options).Open(env)
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
	for name, c := range map[string]struct {
		query string
		value any
		want  []string
	}{
		"text":      {"SELECT id FROM orders WHERE customer = ${parent.v}", "ada", []string{`{"id":1}`}},
		"quotes":    {"SELECT id FROM orders WHERE customer = ${parent.v}", `o'hara\`, []string{`{"id":2}`}},
		"dollars":   {"SELECT id FROM orders WHERE customer = ${parent.v}", `$$`, []string{`{"id":3}`}},
		"attack":    {"SELECT id FROM orders WHERE customer = ${parent.v}", `'); DROP TABLE orders; --`, nil},
		"backslash": {"SELECT id FROM orders WHERE customer = ${parent.v}", `\'; DROP TABLE orders; --`, nil},
		"number":    {"SELECT id FROM orders WHERE id = 5 -${parent.v}", int64(2), []string{`{"id":3}`}},
		"negative":  {"SELECT id FROM orders WHERE id = 0 -${parent.v}", int64(-2), []string{`{"id":2}`}},
		"bytes":     {"SELECT id FROM orders WHERE raw = ${parent.v}", []byte{0, 255}, []string{`{"id":1}`}},
		"null":      {"SELECT id FROM orders WHERE raw IS NOT DISTINCT FROM ${parent.v} ORDER BY id", nil, []string{`{"id":2}`, `{"id":3}`}},
		"array":     {"SELECT id FROM orders WHERE id = (ARRAY[3,2,1])[${parent.v}]", int64(1), []string{`{"id":3}`}},
	} {
		rows, err := read(map[string]string{"query": c.query}, map[string]any{"v": c.value})
		if err != nil || !slices.Equal(rows, c.want) {
			t.Errorf("%s: %q, %v; want %q", name, rows, err, c.want)
		}
	}
	rows, err := read(map[string]string{"table": "orders", "where": "customer = ${parent.who}", "columns": "id"}, map[string]any{"who": "ada"})
	if err != nil || !slices.Equal(rows, []string{`{"id":1}`}) {
		t.Errorf("%q, %v", rows, err)
	}
	for want, options := range map[string]map[string]string{
		`option "query": ${parent.who}: it stands inside of a string`:   {"query": "SELECT '${parent.who}'"},
		`option "table": values of a parent record can't be used there`: {"table": "orders_${parent.who}"},
		`unknown value of the parent record "how": did you mean "who"?`: {"table": "orders", "where": "customer = ${parent.how}"},
	} {
		if _, err := read(options, map[string]any{"who": "ada"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", options, err, want)
		}
	}
	if _, err := read(map[string]string{"query": "SELECT ${parent.who}"}, nil); err == nil || !strings.Contains(err.Error(), "no parent record") {
		t.Errorf("a root: %v", err)
	}
}

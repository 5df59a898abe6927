package sqlgen_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector/sqlgen"
)

// case C100.
func TestIdentQuotes(t *testing.T) {
	for in, want := range map[string]string{"select": `"select"`, `x"y`: `"x""y"`, "a b": `"a b"`, "ünï": `"ünï"`} {
		if got := sqlgen.Ident(in); got != want {
			t.Errorf("Ident(%q) = %s, want %s", in, got, want)
		}
	}
	if got := sqlgen.Literal("it's"); got != "'it''s'" {
		t.Errorf("Literal = %s", got)
	}
	if got := sqlgen.Equals([]string{"a", "b"}); got != `"a" = ? AND "b" = ?` {
		t.Errorf("Equals = %s", got)
	}
}

func TestSelect(t *testing.T) {
	names := []string{"orders", "Order_items", "users", "tmp_a"}
	for _, tt := range []struct {
		patterns string
		want     []string
		err      string
	}{
		{"", []string{"Order_items", "orders", "tmp_a", "users"}, ""},
		{"*,!tmp_*", []string{"Order_items", "orders", "users"}, ""},
		{"order*", []string{"Order_items", "orders"}, ""},
		{"USERS,users", []string{"users"}, ""},
		{"user?", []string{"users"}, ""},
		{"order", nil, `unknown table "order": did you mean "orders"?`},
		{"x*", nil, "no table matches"},
	} {
		got, err := sqlgen.Select(names, strings.Split(tt.patterns, ","))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("Select(%q): %s", tt.patterns, diff)
		}
		if (err != nil) != (tt.err != "") || (err != nil && !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("Select(%q): error %v, want %q", tt.patterns, err, tt.err)
		}
	}
}

func TestFileURL(t *testing.T) {
	schemes := []string{"sqlite", "sqlite3"}
	for _, tt := range []struct {
		raw, path string
		options   map[string]string
		bad       bool
	}{
		{raw: "app.db", path: "app.db", options: map[string]string{}},
		{raw: "sqlite:app.db?table=a%20b&mode=x", path: "app.db", options: map[string]string{"table": "a b", "mode": "x"}},
		{raw: "SQLite3:///srv/a%20b.db", path: "/srv/a%20b.db", options: map[string]string{}},
		{raw: "sqlite://rel/app.db", path: "rel/app.db", options: map[string]string{}},
		{raw: `c:\data\app.db`, path: `c:\data\app.db`, options: map[string]string{}},
		{raw: "sqlite:?table=x", bad: true},
		{raw: "a.db?table=x&table=y", bad: true},
		{raw: "a.db?table=%zz", bad: true},
	} {
		path, options, err := sqlgen.FileURL(tt.raw, schemes)
		if (err != nil) != tt.bad || path != tt.path {
			t.Errorf("FileURL(%q) = %q, %v", tt.raw, path, err)
		}
		if diff := cmp.Diff(tt.options, options); diff != "" {
			t.Errorf("FileURL(%q): %s", tt.raw, diff)
		}
	}
}

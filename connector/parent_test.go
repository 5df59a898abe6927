package connector_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leatdata/leat/connector"
)

type childConfig struct {
	Path   string            `leat:"path" doc:"a path"`
	Query  string            `leat:"query" doc:"a query"`
	Table  string            `leat:"table" doc:"a table"`
	Names  []string          `leat:"names" doc:"names"`
	Types  map[string]string `leat:"types" doc:"types"`
	Secret connector.Secret  `leat:"secret" doc:"a secret"`
}

// upper stands for a connector's own way to put values in.
func upper(text string, value func(string) (any, error)) (string, error) {
	return connector.ReplaceParents(text, value, func(_ string, v any) (string, error) {
		s, _ := v.(string)
		return strings.ToUpper(s), nil
	})
}

// clause S20
// Placeholders are resolved where the connector says how, and refused everywhere else, for a root, and where there is no such value;
// what is wrong is said at once.
func TestResolveParent(t *testing.T) {
	how := map[string]connector.ParentText{"path": connector.ParentPath, "query": upper}
	parent := map[string]any{"id": int64(7), "name": "ada", "customer_id": "x"}
	cfg := &childConfig{Path: "data/${parent.id}/${parent.name}-*.csv", Query: "a ${parent.name} b", Table: "$ {parent}"}
	if err := connector.ResolveParent(cfg, parent, how); err != nil {
		t.Fatal(err)
	}
	if cfg.Path != "data/7/ada-*.csv" || cfg.Query != "a ADA b" || cfg.Table != "$ {parent}" {
		t.Errorf("%+v", cfg)
	}
	if err := connector.ResolveParent(&childConfig{Path: "a", Query: "${other.x}"}, nil, how); err != nil {
		t.Errorf("a root without placeholders: %v", err)
	}
	for name, c := range map[string]struct {
		cfg    childConfig
		parent map[string]any
		want   []string
	}{
		"no parent": {childConfig{Path: "${parent.id}", Query: "${parent.id}"}, nil, []string{`option "path": this source has no parent record`, `option "query": this source has`}},
		"nearest":   {childConfig{Query: "${parent.costumer_id}"}, parent, []string{`unknown value of the parent record "costumer_id": did you mean "customer_id"?`}},
		"all known": {childConfig{Query: "${parent.qqqqqqqqqqqqq}"}, parent, []string{`known are customer_id, id, name`}},
		"option":    {childConfig{Table: "t${parent.id}"}, parent, []string{`option "table": values of a parent record can't be used there`}},
		"list":      {childConfig{Names: []string{"a", "${parent.id}"}}, parent, []string{`option "names": values`}},
		"map":       {childConfig{Types: map[string]string{"a": "${parent.id}"}}, parent, []string{`option "types": values`}},
		"secret":    {childConfig{Secret: "${parent.id}"}, parent, []string{`option "secret": values`}},
		"open":      {childConfig{Path: "${parent.id"}, parent, []string{"a placeholder is written ${parent.NAME}"}},
		"nameless":  {childConfig{Path: "${parent.}"}, parent, []string{"a placeholder is written ${parent.NAME}"}},
	} {
		before := c.cfg
		err := connector.ResolveParent(&c.cfg, c.parent, how)
		if err == nil || connector.ClassOf(err) != connector.ClassConfig {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
		}
		if before.Path != c.cfg.Path || before.Query != c.cfg.Query {
			t.Errorf("%s: it was changed to %+v", name, c.cfg)
		}
	}
}

// clause S20
// A value is a part of a path: it can't lead to another folder, and it is no pattern. No error shows it.
func TestParentPath(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		want  string // empty: refused
	}{
		"text": {"a b", "a b"}, "number": {int64(-3), "-3"}, "bool": {true, "true"}, "letters": {"ünïcode-1_2.x", "ünïcode-1_2.x"},
		"time":  {time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), "2026-01-02 00:00:00 +0000 UTC"},
		"slash": {"../etc/passwd", ""}, "backslash": {`a\b`, ""}, "dots": {"..", ""}, "star": {"*", ""}, "question": {"a?", ""},
		"class": {"[a]", ""}, "braces": {"{a,b}", ""}, "null": {nil, ""}, "empty": {"", ""}, "zero": {"a\x00b", ""}, "list": {[]any{1}, ""},
		"float": {1.5, ""}, "bytes": {[]byte("a"), ""}, "placeholder": {"${parent.other}", ""},
	} {
		got, err := connector.ParentPath("in/${parent.v}.csv", func(string) (any, error) { return c.value, nil })
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%s: %q", name, got)
		case c.want != "" && (err != nil || got != "in/"+c.want+".csv"):
			t.Errorf("%s: %q, %v", name, got, err)
		case err != nil && strings.Contains(err.Error(), "passwd"):
			t.Errorf("%s: the error shows the value: %v", name, err)
		}
	}
}

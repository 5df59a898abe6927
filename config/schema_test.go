package config_test

import (
	"bytes"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/leatdata/leat/config"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := config.JSONSchema(registry(t))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("pipeline.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("pipeline.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clause S31.
func TestSchemaAgreesWithParse(t *testing.T) {
	schema := compileSchema(t)
	for _, c := range []struct {
		name, yaml string
		good       bool
	}{
		{"URLs", "name: n\nsource: a.fake\nsinks: {a: b.fake}\n", true},
		{"options", "name: n\nsource: {fake: {path: x, rows: 3, header: true, wait: 5s, columns: [a], types: {a: b}}}\nsinks: {a: {drain: x}}\n", true},
		{"everything of a sink", "name: n\nsource: a.fake\nsinks: {a: {fake: x, mode: append, key: [a], policies: {a: text}, bad_rows: stop}}\n", true},
		{"keys by dataset", "name: n\nsource: a.fake\nsinks: {a: {fake: x, key: {d: [a], e: b}, bad_rows: {action: set_aside, limit: 3}}}\n", true},
		{"dead letters", "name: n\nsource: a.fake\nsinks: {a: x.fake}\nbad_rows: {action: set_aside, per_dataset: 3}\ndead_letters: {drain: x, mode: append}\n", true},
		{"URL of dead letters", "name: n\nsource: a.fake\nsinks: {a: x.fake}\ndead_letters: b.fake\n", true},
		{"dead letters that replace", "name: n\nsource: a.fake\nsinks: {a: x.fake}\ndead_letters: {drain: x, mode: replace}\n", false},
		{"transforms", "name: n\nsource: a.fake\nsinks: {a: x.fake}\ntransforms: [{drop: [a]}, {datasets: x, key: id}]\n", true},
		{"reference", "name: n\nsource: {fake: {path: x, rows: '${env:NOPE:-5}', style: '${env:NOPE:-plain}'}}\nsinks: {a: x.fake}\n", true},
		{"following", "name: n\nsource: {fake: {path: x, follow: true}}\nsnapshot: none\nonce: true\nsinks: {a: {fake: x, schema: {t: ignore, '*': fail}}, b: {fake: x, schema: evolve}}\n", true},
		{"lanes", "name: n\nsource: {fake: {path: x, follow: true}}\nlanes: {kind: durable, url: nats://h, quota: 5 GB, age: 7d, over: detach}\nsinks: {a: b.fake}\n", true},
		{"kind of lanes", "name: n\nsource: {fake: {path: x, follow: true}}\nlanes: memory\nsinks: {a: b.fake}\n", true},
		{"unknown kind of lanes", "name: n\nsource: {fake: {path: x, follow: true}}\nlanes: disk\nsinks: {a: b.fake}\n", false},
		{"unknown key of lanes", "name: n\nsource: {fake: {path: x, follow: true}}\nlanes: {size: 5GB}\nsinks: {a: b.fake}\n", false},
		{"unknown size", "name: n\nsource: {fake: {path: x, follow: true}}\nlanes: {quota: 5XB}\nsinks: {a: b.fake}\n", false},
		{"unknown snapshot", "name: n\nsource: {fake: {path: x, follow: true}}\nsnapshot: all\nsinks: {a: b.fake}\n", false},
		{"unknown schema policy", "name: n\nsource: {fake: {path: x, follow: true}}\nsinks: {a: {fake: x, schema: {t: drop}}}\n", false},
		{"no name", "source: a.fake\nsinks: {a: b.fake}\n", false},
		{"bad name", "name: a b\nsource: a.fake\nsinks: {a: b.fake}\n", false},
		{"unknown key", "name: n\nsource: a.fake\nsinks: {a: b.fake}\nsnapsot: true\n", false},
		{"wrong level", "name: n\nsource: a.fake\nsinks: {a: {fake: {path: x, mode: append}}}\n", false},
		{"unknown option", "name: n\nsource: {fake: {path: x, colums: [a]}}\nsinks: {a: b.fake}\n", false},
		{"missing option", "name: n\nsource: {fake: {rows: 1}}\nsinks: {a: b.fake}\n", false},
		{"unknown mode", "name: n\nsource: a.fake\nsinks: {a: {fake: x, mode: merge}}\n", false},
		{"two connectors", "name: n\nsource: a.fake\nsinks: {a: {fake: x, drain: y}}\n", false},
		{"no sinks", "name: n\nsource: a.fake\nsinks: {}\n", false},
		{"two transforms in one", "name: n\nsource: a.fake\nsinks: {a: x.fake}\ntransforms: [{drop: [a], select: [b]}]\n", false},
		{"source that is a sink", "name: n\nsource: {drain: {path: x}}\nsinks: {a: x.fake}\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Parse([]byte(c.yaml), "p.yaml", registry(t), lookup())
			if (err == nil) != c.good {
				t.Errorf("Parse: %v", err)
			}
			var doc any
			if err := yaml.Unmarshal([]byte(c.yaml), &doc); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(doc); (err == nil) != c.good {
				t.Errorf("schema: %v", err)
			}
		})
	}
}

package config

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/transform"
)

// object is a part of a JSON Schema; it marshals with sorted keys.
type object = map[string]any

// JSONSchema describes pipeline files, for editors: JSON Schema of draft 2020-12, with the connectors of the registry and their
// options. What it refuses, Parse refuses; Parse refuses more, since some options exclude each other and expressions are compiled.
func JSONSchema(reg *connector.Registry) ([]byte, error) {
	sources, sinks := object{}, object{}
	for _, def := range reg.All() {
		if def.Source != nil {
			sources[def.Name] = connectorSchema(def, def.Source())
		}
		if def.Sink != nil {
			sinks[def.Name] = connectorSchema(def, def.Sink())
		}
	}
	schema := object{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "leat pipeline",
		"type":                 "object",
		"additionalProperties": false,
		"required":             []string{"name", "source", "sinks"},
		"properties": object{
			"name":      nameSchema("The pipeline's name: stable, the key of all that is saved about it."),
			"guarantee": enum("What the pipeline promises; left out: the best that is reached.", guarantees()...),
			"source": object{
				"description": "A URL, or a connector with its options.", "oneOf": []any{urlSchema(), oneConnector(sources, nil)},
			},
			"transforms": ref("transforms"),
			"sinks": object{
				"description": "The sinks by name.", "type": "object", "minProperties": 1,
				"propertyNames": object{"pattern": namePattern}, "additionalProperties": ref("sink"),
			},
			"bad_rows": ref("bad_rows"),
			"dead_letters": object{
				"description": "A sink that gets every row that was set aside, besides what is kept of it.",
				"oneOf":       []any{urlSchema(), oneConnector(sinks, object{"mode": enum("append or upsert.", "append", "upsert")})},
			},
			"limit":      number("Rows of each dataset; 0: all."),
			"batch_rows": number("Rows of a batch; 0: a default that fits."),
			"snapshot": enum("Of a source that is followed, what is copied of what is there already: first everything, while changes are "+
				"followed; none of it; only that, and then the run ends.", snapshots()...),
			"once": object{
				"description": "Of a source that is followed: end where its changes end when the run starts.",
				"type":        []string{"boolean", "string"},
			},
			"lanes": ref("lanes"),
		},
		"$defs": object{
			"sink":       object{"oneOf": []any{urlSchema(), oneConnector(sinks, sinkProperties())}},
			"transforms": transformsSchema(),
			"bad_rows":   badRowsSchema(),
			"lanes":      lanesSchema(),
		},
	}
	return json.MarshalIndent(schema, "", "  ")
}

const namePattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`

func guarantees() []string {
	var names []string
	for g := connector.BestGuarantee; g <= connector.ExactlyOnce; g++ {
		names = append(names, g.String())
	}
	return names
}

func ref(name string) object { return object{"$ref": "#/$defs/" + name} }

func nameSchema(doc string) object {
	return object{"description": doc, "type": []string{"string", "number"}, "pattern": namePattern}
}

func number(doc string) object {
	return object{"description": doc, "type": "integer", "minimum": 0}
}

func enum(doc string, values ...string) object {
	return object{"description": doc, "enum": values}
}

func urlSchema() object {
	return object{"type": "string", "description": "A URL or a file name."}
}

// oneConnector is a map with exactly one of the connectors, and the other properties.
func oneConnector(connectors, others object) object {
	properties, names := object{}, make([]string, 0, len(connectors))
	for name, schema := range connectors {
		properties[name] = schema
		names = append(names, name)
	}
	slices.Sort(names)
	maps.Copy(properties, others)
	choices := make([]any, len(names))
	for i, name := range names {
		choices[i] = object{"required": []string{name}}
	}
	return object{"type": "object", "additionalProperties": false, "properties": properties, "oneOf": choices}
}

func sinkProperties() object {
	list := object{"type": []string{"string", "array"}, "items": object{"type": []string{"string", "number"}}}
	return object{
		"mode": enum("How rows meet what is already there; left out: the connector's default.", "append", "upsert", "replace"),
		"key": object{
			"description": "The key columns of every dataset, or a map of datasets to their key columns.",
			"oneOf":       []any{list, object{"type": "object", "additionalProperties": list}},
		},
		"policies": object{
			"description":          "What happens to values that the sink can't hold, by column, by dataset.column, or by * for all.",
			"type":                 "object",
			"additionalProperties": object{"enum": []string{"fail", "text", "null", "clamp", "strip"}},
		},
		"bad_rows":   ref("bad_rows"),
		"transforms": ref("transforms"),
		"deletes": enum("What happens to rows that are gone from the source, found by comparing all keys after each run; "+
			"needs mode upsert.",
			DeletesKeep, DeletesHard, DeletesSoft),
		"schema": schemaPolicySchema(),
	}
}

func schemaPolicySchema() object {
	policy := enum("evolve: the target follows; ignore: it stays as it is; set_aside: rows under the new columns are set aside; "+
		"fail: the dataset stops, the others go on.", schemaPolicies()...)
	return object{
		"description": "What happens when columns change while the source is followed, for all datasets or by dataset (* for all others).",
		"oneOf":       []any{policy, object{"type": "object", "additionalProperties": policy}},
	}
}

func badRowsSchema() object {
	action := enum("stop: the first such row ends the run; set_aside: it is kept with its reason.", "stop", "set_aside")
	return object{
		"description": "What happens to rows that can't be carried.",
		"oneOf": []any{action, object{
			"type": "object", "additionalProperties": false, "required": []string{"action"},
			"properties": object{
				"action": action, "limit": number("More rows than this end the run; 0: no limit."),
				"per_dataset": number("More rows of one dataset than this end the run; 0: no limit."),
			},
		}},
	}
}

func transformsSchema() object {
	properties := object{"datasets": object{
		"description": "Patterns of the datasets that the step is for; left out: all.",
		"type":        []string{"string", "array"}, "items": object{"type": "string"},
	}}
	choices := make([]any, 0, len(transform.Kinds()))
	for _, k := range transform.Kinds() {
		properties[k.Name] = object{"description": k.Doc + " Example: " + k.Example}
		choices = append(choices, object{"required": []string{k.Name}})
	}
	return object{
		"description": "Steps from source to sink, in order.", "type": "array",
		"items": object{"type": "object", "additionalProperties": false, "properties": properties, "oneOf": choices},
	}
}

// connectorSchema is a URL, or a map of the options.
func connectorSchema(def connector.Definition, cfg any) object {
	properties, required := object{}, []string{}
	for _, o := range connector.Options(cfg) {
		properties[o.Name] = optionSchema(o)
		if o.Required {
			required = append(required, o.Name)
		}
	}
	if _, ok := properties["url"]; !ok {
		properties["url"] = urlSchema()
	}
	options := object{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		options["anyOf"] = []any{object{"required": required}, object{"required": []string{"url"}}}
	}
	return object{
		"description": strings.TrimSpace(def.Title + ". " + def.Doc),
		"oneOf":       []any{urlSchema(), options},
	}
}

// optionSchema admits what Parse takes: a value of the option's type, or a reference to one in text.
func optionSchema(o connector.Option) object {
	s := object{}
	switch o.Type {
	case "bool":
		s["type"] = []string{"boolean", "string"}
	case "int":
		s["type"] = []string{"integer", "string"}
	case "float":
		s["type"] = []string{"number", "string"}
	case "list":
		s["type"], s["items"] = []string{"array", "string", "number", "boolean"}, object{"type": []string{"string", "number", "boolean"}}
	case "map":
		s["type"], s["additionalProperties"] = []string{"object", "string"}, object{"type": []string{"string", "number", "boolean"}}
	default:
		s["type"] = []string{"string", "number", "boolean"}
	}
	if len(o.Enum) > 0 {
		delete(s, "type")
		s["anyOf"] = []any{object{"enum": o.Enum}, object{"type": "string", "pattern": `\$\{`}}
	}
	doc := o.Doc
	if o.Example != "" {
		doc = strings.TrimSpace(doc + " Example: " + o.Example)
	}
	if doc != "" {
		s["description"] = doc
	}
	if o.Default != "" && o.Type != "secret" {
		s["default"] = o.Default
	}
	return s
}

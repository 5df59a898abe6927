package formats

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/format/avro"
	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/format/internal/plain"
	"github.com/leatdata/leat/format/jsonschema"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/protobuf"
	"github.com/leatdata/leat/format/registry"
)

// Names returns the formats, the default first.
func Names() []string {
	return []string{
		"json", "raw", "debezium", "debezium-connect", "avro", "json-schema", "protobuf", "debezium-avro", "debezium-json-schema",
		"debezium-protobuf",
	}
}

// Options are what some formats need.
type Options struct {
	Registry *registry.Client // of schemas; nil: there is none
	Debezium debezium.Options // what envelopes say about where they come from
}

// New returns a format; empty is the default.
func New(name string, o Options) (message.Format, error) {
	switch name {
	case "", "json":
		return plain.NewJSON(), nil
	case "raw":
		return message.Raw(), nil
	case "debezium":
		return debezium.NewFormat(o.Debezium), nil
	case "debezium-connect":
		return debezium.NewConnect(o.Debezium), nil
	}
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("unknown format %q: want one of %s", name, strings.Join(Names(), ", "))
	}
	if o.Registry == nil {
		return nil, fmt.Errorf("format %s needs a registry of schemas: say registry=http://host:8081", name)
	}
	switch name {
	case "avro":
		return avro.NewFormat(o.Registry), nil
	case "json-schema":
		return jsonschema.NewFormat(o.Registry), nil
	case "protobuf":
		return protobuf.NewFormat(o.Registry), nil
	case "debezium-json-schema":
		return debezium.Over(jsonschema.Wire{Registry: o.Registry}, o.Debezium), nil
	case "debezium-protobuf":
		return debezium.Over(protobuf.Wire{Registry: o.Registry}, o.Debezium), nil
	default:
		return debezium.NewAvro(o.Registry, o.Debezium), nil
	}
}

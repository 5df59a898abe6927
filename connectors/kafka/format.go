package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
)

// Format is how rows are written as messages; source and sink have the same options.
type Format struct {
	Name      string            `leat:"format" doc:"what messages are" enum:"json|raw|debezium"`
	KeyFormat string            `leat:"key" doc:"what keys are; empty: as the format likes best" enum:"|json|text|binary|none"`
	Types     map[string]string `leat:"types" doc:"declared column types, where messages have none" example:"id:int64,price:decimal(12,2)"`
}

func defaultFormat() Format { return Format{Name: formats.Names()[0]} }

func (f *Format) validate() error {
	if !slices.Contains(formats.Names(), f.Name) {
		return configError(connector.UnknownName("format", f.Name, formats.Names()), "")
	}
	return nil
}

func (f *Format) identity() map[string]string {
	id := map[string]string{"format": f.Name, "key": f.KeyFormat}
	for _, name := range slices.Sorted(maps.Keys(f.Types)) {
		id["type of "+name] = strings.TrimSpace(f.Types[name])
	}
	return id
}

// open returns the format, without I/O.
func (f *Format) open(o formats.Options) (message.Format, error) {
	out, err := formats.New(f.Name, o)
	if err != nil {
		return nil, configError(fmt.Errorf("format=%s: %w", f.Name, err), "")
	}
	return out, nil
}

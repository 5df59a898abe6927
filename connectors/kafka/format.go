package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/format/registry"
)

// Format is how rows are written as messages; source and sink have the same options.
type Format struct {
	Name      string            `leat:"format" doc:"what messages are: json, raw, avro, protobuf, debezium, debezium-connect …"`
	KeyFormat string            `leat:"key" doc:"what keys are; empty: as the format likes best" enum:"|json|text|binary|none"`
	Types     map[string]string `leat:"types" doc:"declared column types, where messages have none" example:"id:int64,price:decimal(12,2)"`

	Registry         string           `leat:"registry" doc:"schema registry, for formats with schemas" example:"https://registry:8081"`
	RegistryUser     string           `leat:"registry_user" doc:"user of the registry"`
	RegistryPassword connector.Secret `leat:"registry_password" doc:"password of that user"`
	RegistryToken    connector.Secret `leat:"registry_token" doc:"bearer token for the registry, instead of a user"`
	RegistryCA       string           `leat:"registry_ca" doc:"to check the registry by; default: of the system" example:"ca.pem"`
	RegistryCert     string           `leat:"registry_cert" doc:"certificate to show to the registry" example:"client.pem"`
	RegistryKey      string           `leat:"registry_key" doc:"key of that certificate" example:"client.key"`
	Subjects         string           `leat:"subjects" doc:"how the registry names the schemas of a topic" enum:"topic|record|topic-record"`
	Register         bool             `leat:"register" doc:"sink: register schemas; otherwise they have to be there"`
}

func defaultFormat() Format {
	return Format{Name: formats.Names()[0], Subjects: string(registry.TopicName), Register: true}
}

func (f *Format) validate() error {
	if !slices.Contains(formats.Names(), f.Name) {
		return configError(connector.UnknownName("format", f.Name, formats.Names()), "")
	}
	if (f.RegistryCert == "") != (f.RegistryKey == "") {
		return configError(errors.New("registry_cert and registry_key go together"), "name both files")
	}
	_, err := f.promised()
	return err
}

// promised returns the format to ask what it does, without I/O: it can't reach a registry that wants certificates.
func (f *Format) promised() (message.Format, error) {
	without := *f
	without.RegistryCA, without.RegistryCert, without.RegistryKey = "", "", ""
	return without.open(debezium.Options{})
}

func (f *Format) identity() map[string]string {
	id := map[string]string{"format": f.Name, "key": f.KeyFormat, "subjects": f.Subjects}
	for _, name := range slices.Sorted(maps.Keys(f.Types)) {
		id["type of "+name] = strings.TrimSpace(f.Types[name])
	}
	return id
}

// open returns the format. It reads the files of the registry's TLS, and asks the registry nothing.
func (f *Format) open(d debezium.Options) (message.Format, error) {
	o := formats.Options{Debezium: d}
	if f.Registry != "" {
		tls, err := tlsFiles("registry", f.RegistryCA, f.RegistryCert, f.RegistryKey)
		if err != nil {
			return nil, err
		}
		o.Registry, err = registry.New(registry.Options{
			URL: f.Registry, User: f.RegistryUser, Password: f.RegistryPassword.Reveal(), Token: f.RegistryToken.Reveal(), TLS: tls,
			Strategy: registry.Strategy(f.Subjects), Registered: !f.Register,
		})
		if err != nil {
			return nil, configError(err, "write it as registry=https://HOST:8081")
		}
	}
	out, err := formats.New(f.Name, o)
	if err != nil {
		return nil, configError(fmt.Errorf("format=%s: %w", f.Name, err), "")
	}
	return out, nil
}

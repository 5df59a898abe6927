package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
)

// fakeConfig is the configuration of a connector that has every type of option.
type fakeConfig struct {
	Path     string            `leat:"path,required" doc:"the file"`
	Password connector.Secret  `leat:"password"`
	Rows     int               `leat:"rows"`
	Header   bool              `leat:"header"`
	Wait     time.Duration     `leat:"wait"`
	Style    string            `leat:"style" enum:"plain|fancy"`
	Columns  []string          `leat:"columns"`
	Types    map[string]string `leat:"types"`
	Follow   bool              `leat:"follow"`
	query    string
}

func (c *fakeConfig) SetURL(raw string) error {
	path, query, _ := strings.Cut(strings.TrimPrefix(raw, "fake:"), "?")
	if path == "" {
		return &connector.Error{Err: errors.New("no path"), Hint: "put a path behind fake:"}
	}
	c.Path, c.query = path, query
	return nil
}

func (c *fakeConfig) Identity() map[string]string { return map[string]string{"path": c.Path} }

type fakeSource struct{ fakeConfig }

func (c *fakeSource) Contract() (connector.SourceContract, error) {
	if c.Path == "no" {
		return connector.SourceContract{}, errors.New("path no is no path")
	}
	if c.Follow {
		return connector.SourceContract{Input: connector.Changelog}, nil
	}
	return connector.SourceContract{Bounded: true}, nil
}

func (c *fakeSource) Open(connector.Env) (connector.Source, error) {
	return nil, errors.New("not in this test")
}

type fakeSink struct{ fakeConfig }

func (c *fakeSink) Contract() (connector.SinkContract, error) {
	return connector.SinkContract{Modes: []connector.WriteMode{connector.Append, connector.Upsert}}, nil
}

func (c *fakeSink) Open(connector.Env) (connector.Sink, error) {
	return nil, errors.New("not in this test")
}

// houseSink has an option with the name of a key of sinks.
type houseSink struct {
	fakeSink
	Schema string `leat:"schema"`
}

func registry(t testing.TB) *connector.Registry {
	t.Helper()
	reg := &connector.Registry{}
	for _, d := range []connector.Definition{
		{
			Name: "fake", Title: "Fake", Schemes: []string{"fake"}, Extensions: []string{".fake"},
			Source: func() connector.SourceConfig { return &fakeSource{} },
			Sink:   func() connector.SinkConfig { return &fakeSink{} },
		},
		{Name: "well", Schemes: []string{"well"}, Source: func() connector.SourceConfig { return &fakeSource{} }},
		{Name: "house", Schemes: []string{"house"}, Sink: func() connector.SinkConfig { return &houseSink{} }},
		{Name: "drain", Schemes: []string{"drain"}, Sink: func() connector.SinkConfig { return &fakeSink{} }},
	} {
		if err := reg.Register(d); err != nil {
			t.Fatal(err)
		}
	}
	return reg
}

// lookup knows a few variables and one file.
func lookup() config.Lookup {
	env := map[string]string{
		"NAME": "orders", "PW": "p@s/s:w#d%^?&", "QUOTED": "say \"hush\"\nnow", "YAML": "x}\nname: other", "EMPTY": "",
	}
	return config.Lookup{
		Env: func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		},
		File: func(path string) ([]byte, error) {
			if path != "/run/secrets/pw" {
				return nil, errors.New("no such file")
			}
			return []byte("from file\r\n"), nil
		},
	}
}

func fakeOf(t *testing.T, cfg any) fakeConfig {
	t.Helper()
	switch c := cfg.(type) {
	case *fakeSource:
		return c.fakeConfig
	case *fakeSink:
		return c.fakeConfig
	}
	t.Fatalf("%T is no fake", cfg)
	return fakeConfig{}
}

package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
)

// endpoint is a source or a sink as it was typed: a URL or a file name, and options.
type endpoint struct {
	raw  string // expanded; may hold a password
	def  connector.Definition
	opts []string // name=value
}

// locate finds the connector of an argument, and makes the secrets in it known before anything can show them.
func (s *session) locate(what, arg string, opts []string) (endpoint, error) {
	raw, err := s.Lookup.Expand(arg)
	if err != nil {
		return endpoint{}, &usageError{err: fmt.Errorf("%s: %w", what, err)}
	}
	if err := config.CheckURL(raw); err != nil {
		return endpoint{}, fmt.Errorf("%s: %w", what, err)
	}
	s.redact.addURL(raw)
	def, err := s.Registry.Resolve(raw)
	if err != nil {
		return endpoint{}, fmt.Errorf("%s: %w", what, err)
	}
	return endpoint{raw: raw, def: def, opts: opts}, nil
}

// source makes the configuration of a source from what was typed.
func (s *session) source(arg string, opts []string) (endpoint, connector.SourceConfig, error) {
	e, err := s.locate("source", arg, opts)
	if err != nil {
		return e, nil, err
	}
	if e.def.Source == nil {
		return e, nil, usagef("%s can't be a source", e.def.Name)
	}
	cfg := e.def.Source()
	return e, cfg, s.configure("source", cfg, e)
}

// sink is source for sinks.
func (s *session) sink(arg string, opts []string) (endpoint, connector.SinkConfig, error) {
	e, err := s.locate("sink", arg, opts)
	if err != nil {
		return e, nil, err
	}
	if e.def.Sink == nil {
		return e, nil, usagef("%s can't be a sink", e.def.Name)
	}
	cfg := e.def.Sink()
	return e, cfg, s.configure("sink", cfg, e)
}

func (s *session) configure(what string, cfg any, e endpoint) error {
	u, ok := cfg.(connector.URLSetter)
	if !ok {
		return usagef("%s: %s takes options, not a URL; declare it in a pipeline file", what, e.def.Name)
	}
	if err := u.SetURL(e.raw); err != nil {
		return &usageError{err: fmt.Errorf("%s: %w", what, err), hint: connector.HintOf(err)}
	}
	var errs []error
	for _, o := range e.opts {
		name, value, ok := strings.Cut(o, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("option %q: want name=value", o))
			continue
		}
		value, err := s.Lookup.Expand(value)
		if err == nil {
			err = connector.SetOption(cfg, name, value)
		}
		errs = append(errs, err)
	}
	s.redact.addConfig(cfg)
	if err := errors.Join(errs...); err != nil {
		return &usageError{err: fmt.Errorf("%s: %w", what, err), hint: "leat connectors " + e.def.Name + " lists its options"}
	}
	return nil
}

// hasOption reports whether a configuration has the option.
func hasOption(cfg any, name string) bool {
	return slices.ContainsFunc(connector.Options(cfg), func(o connector.Option) bool { return o.Name == name })
}

// optionText returns the text of an option's value, or nothing.
func optionText(cfg any, name string) string {
	text := ""
	walkOptions(reflect.ValueOf(cfg), func(n string, v reflect.Value) {
		if n == name && v.Kind() == reflect.String {
			text = v.String()
		}
	})
	return text
}

// place is where an endpoint is, without password: part of the name of a copy. A relative file name depends on the folder.
func (e endpoint) place() string {
	if before, rest, ok := strings.Cut(e.raw, "://"); ok {
		userinfo, tail, hasUser := strings.Cut(rest, "@")
		if !hasUser {
			return e.raw
		}
		user, _, _ := strings.Cut(userinfo, ":")
		return before + "://" + user + "@" + pair.ReplaceAllString(tail, "${1}="+hidden)
	}
	path := e.raw
	for _, scheme := range e.def.Schemes {
		path = strings.TrimPrefix(path, scheme+":")
	}
	if path == "-" || filepath.IsAbs(path) {
		return e.raw
	}
	dir, err := os.Getwd()
	if err != nil {
		return e.raw
	}
	return dir + "\x00" + e.raw
}

// label is a short name of the endpoint for people: the last part of its path without ending, or its connector.
func (e endpoint) label() string {
	path, _, _ := strings.Cut(e.raw, "?")
	if _, rest, ok := strings.Cut(path, "://"); ok {
		_, path, _ = strings.Cut(rest, "/")
	}
	base := filepath.Base(path)
	base, _, _ = strings.Cut(base[strings.LastIndexByte(base, ':')+1:], ".")
	label := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || (r >= '0' && r <= '9') || (r >= 'A' && r <= 'Z') || (r >= 'a' && r <= 'z') {
			return r
		}
		return -1
	}, base)
	if strings.Trim(label, "-_") == "" {
		return e.def.Name
	}
	return label[:min(len(label), 40)]
}

package file

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/leatdata/leat/connector"
)

// SetURL implements connector.URLSetter: a file name, or a scheme in front as in csv:FILE, file:FILE or file:///FILE, and options
// behind a question mark. A path is taken as it stands, but for file://, where it is percent-decoded.
func (c *SourceConfig) SetURL(raw string) error { return setURL(c, &c.Place, raw) }

// SetURL implements connector.URLSetter, see SourceConfig.SetURL. A path that ends in a slash, or that has no known ending while
// the option format is given, is a folder.
func (c *SinkConfig) SetURL(raw string) error { return setURL(c, &c.Place, raw) }

func setURL(cfg any, p *Place, raw string) error {
	name, query, _ := strings.Cut(raw, "?")
	options, err := parseQuery(query)
	if err != nil {
		return configError(err, "write options as FILE?name=value&name=value")
	}
	format := ""
	if scheme, rest, ok := strings.Cut(name, ":"); ok {
		if f, known := schemes()[strings.ToLower(scheme)]; known {
			format = f
			if name, err = trimSlashes(scheme, rest); err != nil {
				return configError(err, "write it as file:///FOLDER/FILE, or as a plain name")
			}
		}
	}
	if err := connector.SetOptions(cfg, options); err != nil {
		return configError(err, "leat connectors file lists the options")
	}
	if format != "" {
		if p.Format != "" && p.Format != format {
			return configError(fmt.Errorf("the URL says %s and its option format says %s", format, p.Format), "leave one of them out")
		}
		p.Format, p.scheme = format, true
	}
	p.Path = name
	return nil
}

// trimSlashes takes away the // that some write behind a scheme.
func trimSlashes(scheme, rest string) (string, error) {
	name, two := strings.CutPrefix(rest, "//")
	if !two || !strings.EqualFold(scheme, "file") {
		return name, nil
	}
	name = strings.TrimPrefix(name, "localhost/")
	if len(name) < len(rest)-len("//") {
		name = "/" + name
	}
	decoded, err := url.PathUnescape(name)
	if err != nil {
		return "", fmt.Errorf("reading the path: %w", err)
	}
	return decoded, nil
}

// parseQuery reads options. Unlike url.ParseQuery it takes ; and + as they stand, as delimiters are among the values.
func parseQuery(query string) (map[string]string, error) {
	out := map[string]string{}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		k, v, _ := strings.Cut(pair, "=")
		name, err := url.PathUnescape(k)
		if err != nil {
			return nil, fmt.Errorf("reading option %q: %w", k, err)
		}
		value, err := url.PathUnescape(v)
		if err != nil {
			return nil, fmt.Errorf("reading option %q: %w", name, err)
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("option %q is given twice", name)
		}
		out[name] = value
	}
	return out, nil
}

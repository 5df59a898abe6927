package kafka

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/leatdata/leat/connector"
)

// urlParts is a URL taken apart: kafka://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH?OPTION=VALUE.
type urlParts struct {
	tls            bool
	user, password string
	brokers        []string
	path           string
	options        [][2]string
}

var errURL = errors.New("the URL can't be taken apart")

// urlError never shows any of the URL, which may hold a password.
func urlError(err error) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "kafka.url", Doing: "reading the Kafka URL", Err: err,
		Hint: "kafka://BROKER:9092/TOPIC, or kafkas://USER:PASSWORD@BROKER:9093/TOPIC with TLS; special characters of the password " +
			"percent-encoded (@ is %40, / is %2F, ? is %3F, % is %25), or the option password",
	}
}

const defaultPort = "9092"

func splitURL(raw string) (urlParts, error) {
	var p urlParts
	scheme, rest, ok := strings.Cut(raw, "://")
	switch {
	case ok && strings.EqualFold(scheme, "kafkas"):
		p.tls = true
	case !ok || !strings.EqualFold(scheme, "kafka"):
		return p, errors.New("it does not begin with kafka://")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		var errU, errP error
		p.user, errU = url.PathUnescape(user)
		p.password, errP = url.PathUnescape(password)
		if errU != nil || errP != nil {
			return p, errURL
		}
		authority = authority[at+1:]
	}
	for host := range strings.SplitSeq(authority, ",") {
		broker, err := brokerAddress(host)
		if err != nil {
			return p, errURL
		}
		p.brokers = append(p.brokers, broker)
	}
	var err error
	if p.path, err = url.PathUnescape(path); err != nil || strings.Contains(p.path, "@") {
		return p, errURL
	}
	p.options, err = splitQuery(query)
	return p, err
}

// brokerAddress completes host or host:port.
func brokerAddress(s string) (string, error) {
	if s == "" || strings.ContainsAny(s, "/?#@ ") {
		return "", errURL
	}
	if host, port, err := net.SplitHostPort(s); err == nil {
		if host == "" || port == "" {
			return "", errURL
		}
		return s, nil
	}
	if strings.Count(s, ":") == 1 {
		return "", errURL
	}
	return net.JoinHostPort(strings.Trim(s, "[]"), defaultPort), nil
}

func splitQuery(query string) ([][2]string, error) {
	if query == "" {
		return nil, nil
	}
	var out [][2]string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(pair, "=")
		name, errN := url.PathUnescape(name)
		value, errV := url.PathUnescape(value)
		if !ok || name == "" || errN != nil || errV != nil {
			return nil, errors.New("an option is not of the form name=value, or a % in it is not followed by two hex digits (write %25)")
		}
		out = append(out, [2]string{name, value})
	}
	return out, nil
}

// setURL fills what source and sink have in common, and returns the path.
func setURL(cfg any, c *Connection, raw string) (path string, err error) {
	p, err := splitURL(raw)
	if err != nil {
		return "", urlError(err)
	}
	c.Brokers, c.User, c.TLS = p.brokers, p.user, p.tls
	if p.password != "" {
		c.Password = connector.Secret(p.password)
	}
	var errs []error
	for _, o := range p.options {
		errs = append(errs, connector.SetOption(cfg, o[0], o[1]))
	}
	if err := errors.Join(errs...); err != nil {
		return "", &connector.Error{Class: connector.ClassConfig, Code: "kafka.url", Doing: "reading the Kafka URL", Err: err}
	}
	return p.path, nil
}

// SetURL implements connector.URLSetter: the path is topics, with commas between.
func (c *SourceConfig) SetURL(raw string) error {
	path, err := setURL(c, &c.Connection, raw)
	if err == nil && path != "" {
		c.Topics = append(c.Topics, strings.Split(path, ",")...)
	}
	return err
}

// SetURL implements connector.URLSetter: the path is the name of topics, see the option topic.
func (c *SinkConfig) SetURL(raw string) error {
	path, err := setURL(c, &c.Connection, raw)
	if err == nil && path != "" {
		c.Topic = path
	}
	return err
}

package kafka

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
)

// urlError never shows any of the URL, which may hold a password.
func urlError(err error) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "kafka.url", Doing: "reading the Kafka URL", Err: err,
		Hint: "kafka://BROKER:9092/TOPIC, or kafkas://USER:PASSWORD@BROKER:9093/TOPIC with TLS; special characters of the password " +
			"percent-encoded (@ is %40, / is %2F, ? is %3F, % is %25), or the option password",
	}
}

const defaultPort = "9092"

// setURL fills what source and sink have in common, and returns the path.
func setURL(cfg any, c *Connection, raw string) (path string, err error) {
	var names []string
	for _, o := range connector.Options(cfg) {
		names = append(names, o.Name)
	}
	u, err := connector.ParseServerURL(raw, []string{"kafka", "kafkas"}, names)
	if err != nil {
		return "", urlError(err)
	}
	c.Brokers, c.User, c.TLS = nil, u.User, u.Scheme == "kafkas"
	noBroker := func(a connector.ServerAddress) bool { return a.Host == "" || strings.HasPrefix(a.Host, "/") }
	if len(u.Hosts) == 0 || slices.ContainsFunc(u.Hosts, noBroker) {
		return "", urlError(errors.New("it names no broker"))
	}
	for _, a := range u.Hosts {
		c.Brokers = append(c.Brokers, net.JoinHostPort(a.Host, cmp.Or(a.Port, defaultPort)))
	}
	if u.Password != "" {
		c.Password = u.Password
	}
	var errs []error
	for _, o := range u.Query {
		errs = append(errs, connector.SetOption(cfg, o[0], o[1]))
	}
	if err := errors.Join(errs...); err != nil {
		return "", &connector.Error{Class: connector.ClassConfig, Code: "kafka.url", Doing: "reading the Kafka URL", Err: err}
	}
	return u.Path, nil
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

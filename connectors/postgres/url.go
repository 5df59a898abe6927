package postgres

import (
	"errors"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
)

func schemes() []string { return []string{"postgres", "postgresql"} }

// setURL fills a configuration from postgres://user:password@host:port/database?parameters. Parameters are those of libpq and the
// configuration's own options. No part of the URL appears in an error, because it may be a part of the password.
func setURL(cfg any, c *Connection, raw string) error {
	u, err := connector.ParseServerURL(raw, schemes(), parameterNames(cfg))
	if err != nil {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "postgres.url", Doing: "reading the PostgreSQL URL", Err: err,
			Hint: "postgres://USER:PASSWORD@HOST:5432/DATABASE, with the password's special characters percent-encoded " +
				"(@ is %40, / is %2F, # is %23, ? is %3F, % is %25); or leave it out and set PGPASSWORD, or the option password",
		}
	}
	c.Host, c.Port = hostsAndPorts(u.Hosts)
	c.User, c.Database = u.User, u.Path
	if u.Password != "" {
		c.Password = u.Password
	}
	if err := setParameters(cfg, c, u.Query); err != nil {
		return &connector.Error{Class: connector.ClassConfig, Code: "postgres.url", Doing: "reading the PostgreSQL URL", Err: err}
	}
	return nil
}

// hostsAndPorts are the lists that libpq takes: a port for each host where there is any.
func hostsAndPorts(list []connector.ServerAddress) (hosts, ports string) {
	names, numbers, some := make([]string, len(list)), make([]string, len(list)), false
	for i, a := range list {
		names[i], numbers[i] = a.Host, a.Port
		some = some || a.Port != ""
	}
	if some {
		ports = strings.Join(numbers, ",")
	}
	return strings.Join(names, ","), ports
}

func parameterNames(cfg any) []string {
	names := append(libpqParams(), "dbname")
	for _, o := range connector.Options(cfg) {
		names = append(names, o.Name)
	}
	return names
}

func setParameters(cfg any, c *Connection, query [][2]string) error {
	var errs []error
	for _, kv := range query {
		name, value := kv[0], kv[1]
		switch {
		case name == "dbname":
			c.Database = value
		case slices.Contains(libpqParams(), name):
			if c.Params == nil {
				c.Params = map[string]string{}
			}
			c.Params[name] = value
		case !slices.Contains(parameterNames(cfg), name):
			errs = append(errs, connector.UnknownName("parameter", name, parameterNames(cfg)))
		default:
			errs = append(errs, connector.SetOption(cfg, name, value))
		}
	}
	return errors.Join(errs...)
}

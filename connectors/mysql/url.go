package mysql

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector"
)

func schemes() []string { return []string{"mysql", "mariadb"} }

// setURL fills a configuration from mysql://user:password@host:port/database?parameters; mariadb:// is the same. Parameters are the
// configuration's own options, with - or _. No part of the URL appears in an error, because it may be a part of the password.
func setURL(cfg any, c *Connection, raw string) error {
	u, err := connector.ParseServerURL(raw, schemes(), parameterNames(cfg))
	if err == nil {
		err = c.setServer(u)
	}
	if err != nil {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.url", Doing: "reading the MySQL URL", Err: err,
			Hint: "mysql://USER:PASSWORD@HOST:3306/DATABASE, with the password's special characters percent-encoded " +
				"(@ is %40, / is %2F, # is %23, ? is %3F, % is %25); or leave it out and set MYSQL_PWD, or the option password",
		}
	}
	if err := setParameters(cfg, u.Query); err != nil {
		return &connector.Error{Class: connector.ClassConfig, Code: "mysql.url", Doing: "reading the MySQL URL", Err: err}
	}
	return nil
}

// setServer takes over all of a URL but its parameters.
func (c *Connection) setServer(u connector.ServerURL) error {
	c.User, c.Database, c.Host, c.Port = u.User, u.Path, "", 0
	if u.Password != "" {
		c.Password = u.Password
	}
	switch len(u.Hosts) {
	case 0:
		return nil
	case 1:
	default:
		return errors.New("it names more than one host")
	}
	if c.Host = u.Hosts[0].Host; strings.HasPrefix(c.Host, "/") {
		c.Host, c.Socket = "", c.Host
	}
	if u.Hosts[0].Port == "" {
		return nil
	}
	port, err := strconv.ParseUint(u.Hosts[0].Port, 10, 16)
	c.Port = int(port)
	if err != nil {
		return errors.New("its port is no number up to 65535")
	}
	return nil
}

func parameterNames(cfg any) []string {
	var names []string
	for _, o := range connector.Options(cfg) {
		names = append(names, o.Name)
	}
	return names
}

func setParameters(cfg any, query [][2]string) error {
	var errs []error
	for _, kv := range query {
		name, value := strings.ReplaceAll(kv[0], "-", "_"), kv[1]
		if !slices.Contains(parameterNames(cfg), name) {
			errs = append(errs, connector.UnknownName("parameter", name, parameterNames(cfg)))
			continue
		}
		if name == "ssl_mode" { // others write VERIFY_CA, or verify-ca
			value = (&Connection{SSLMode: value}).sslMode()
		}
		errs = append(errs, connector.SetOption(cfg, name, value))
	}
	return errors.Join(errs...)
}

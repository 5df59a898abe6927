package mysql

import (
	"encoding/hex"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector"
)

// setURL fills a configuration from mysql://user:password@host:port/database?parameters; mariadb:// is the same. Parameters are the
// configuration's own options, with - or _. No part of the URL appears in an error, because it may be a part of the password.
func setURL(cfg any, c *Connection, raw string) error {
	parts, err := splitURL(raw, parameterNames(cfg))
	if err != nil {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.url", Doing: "reading the MySQL URL", Err: err,
			Hint: "mysql://USER:PASSWORD@HOST:3306/DATABASE, with the password's special characters percent-encoded " +
				"(@ is %40, / is %2F, # is %23, ? is %3F, % is %25); or leave it out and set MYSQL_PWD, or the option password",
		}
	}
	c.Host, c.Port, c.User, c.Database = parts.host, parts.port, parts.user, parts.database
	if strings.HasPrefix(c.Host, "/") {
		c.Host, c.Socket = "", c.Host
	}
	if parts.password != "" {
		c.Password = connector.Secret(parts.password)
	}
	if err := setParameters(cfg, parts.query); err != nil {
		return &connector.Error{Class: connector.ClassConfig, Code: "mysql.url", Doing: "reading the MySQL URL", Err: err}
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

// urlParts is a URL taken apart and decoded.
type urlParts struct {
	user, password, host, database string
	port                           int
	query                          [][2]string
}

var errURL = errors.New("the URL can't be taken apart")

// splitURL takes a URL apart. Where the password holds raw special characters, it looks for the only place where the host can begin.
func splitURL(raw string, known []string) (urlParts, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || (!strings.EqualFold(scheme, "mysql") && !strings.EqualFold(scheme, "mariadb")) {
		return urlParts{}, errors.New("it does not begin with mysql:// or mariadb://")
	}
	proper := strings.IndexAny(rest, "/?#")
	if proper < 0 {
		proper = len(rest)
	}
	if p, err := splitAt(rest, strings.LastIndexByte(rest[:proper], '@'), nil); err == nil {
		return p, nil
	}
	var found []urlParts
	for at := range len(rest) {
		if rest[at] != '@' {
			continue
		}
		if p, err := splitAt(rest, at, known); err == nil {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return urlParts{}, errURL
	}
	return found[0], nil
}

// hostPattern is one host with its port: a name, an IPv6 address in brackets, or the percent-encoded path of a socket.
var hostPattern = regexp.MustCompile(`^(?:((?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})*)|\[([0-9A-Fa-f:.]+)\])(?::([0-9]+))?$`)

// splitAt takes the URL apart with the user in front of at (-1: no user). With known, parameters must be among them.
func splitAt(rest string, at int, known []string) (urlParts, error) {
	var p urlParts
	if at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		p.user, p.password = decodeLenient(user), decodeLenient(password)
		rest = rest[at+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	host, database, _ := strings.Cut(rest, "/")
	m := hostPattern.FindStringSubmatch(host)
	if m == nil || strings.ContainsAny(database, "/@#") {
		return p, errURL
	}
	if m[3] != "" {
		port, err := strconv.ParseUint(m[3], 10, 16)
		if err != nil {
			return p, errURL
		}
		p.port = int(port)
	}
	var errHost, errName, errQuery error
	p.host, errHost = url.PathUnescape(m[1] + m[2])
	p.database, errName = url.PathUnescape(database)
	p.query, errQuery = splitQuery(query)
	if errHost != nil || errName != nil {
		return p, errURL
	}
	for _, kv := range p.query {
		if known != nil && !slices.Contains(known, strings.ReplaceAll(kv[0], "-", "_")) {
			return p, errURL
		}
	}
	return p, errQuery
}

// splitQuery keeps plus signs.
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
			return nil, errors.New("a parameter is not of the form name=value, or a % in it is not followed by two hex digits (write %25)")
		}
		out = append(out, [2]string{name, value})
	}
	return out, nil
}

// decodeLenient decodes percent-encoding where all of it is valid, and else takes s as it is.
func decodeLenient(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		if len(s) < i+3 {
			return s
		}
		if _, err := hex.DecodeString(s[i+1 : i+3]); err != nil {
			return s
		}
	}
	if decoded, err := url.PathUnescape(s); err == nil {
		return decoded
	}
	return s
}

package connector

import (
	"encoding/hex"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// ServerURL is a URL of servers, taken apart and decoded: SCHEME://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH?NAME=VALUE&NAME=VALUE.
type ServerURL struct {
	Scheme   string // in lower case
	User     string
	Password Secret
	Hosts    []ServerAddress
	Path     string // one step, without the slash
	Query    [][2]string
}

// ServerAddress is one of the hosts of a ServerURL.
type ServerAddress struct {
	Host string // a name, an address, or the path of a socket (which is percent-encoded in the URL)
	Port string // digits; empty: not said
}

// errServerURL says nothing of the URL, any of which may be a part of the password.
var errServerURL = errors.New("the URL can't be taken apart")

// ParseServerURL takes a URL of servers apart. A password need not be percent-encoded: where it has raw special characters, the only place
// where the hosts can begin is looked for; then every parameter must be one of those (with - for _), so that it is no part of the password.
// Plus signs stay what they are. No error shows any of the URL.
func ParseServerURL(raw string, schemes, parameters []string) (ServerURL, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !ok || !slices.Contains(schemes, scheme) {
		return ServerURL{}, errors.New("it does not begin with " + strings.Join(schemes, ":// or ") + "://")
	}
	proper := strings.IndexAny(rest, "/?#")
	if proper < 0 {
		proper = len(rest)
	}
	if u, err := splitServerURL(rest, strings.LastIndexByte(rest[:proper], '@')); err == nil {
		u.Scheme = scheme
		return u, nil
	}
	unknown := func(p [2]string) bool { return !slices.Contains(parameters, strings.ReplaceAll(p[0], "-", "_")) }
	var found []ServerURL
	for at := range len(rest) {
		if rest[at] != '@' {
			continue
		}
		if u, err := splitServerURL(rest, at); err == nil && !slices.ContainsFunc(u.Query, unknown) {
			found = append(found, u)
		}
	}
	if len(found) != 1 {
		return ServerURL{}, errServerURL
	}
	found[0].Scheme = scheme
	return found[0], nil
}

// splitServerURL takes apart what follows the scheme, with the user in front of at; -1: no user.
func splitServerURL(rest string, at int) (u ServerURL, err error) {
	if at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		u.User, u.Password = decodeLenient(user), Secret(decodeLenient(password))
		rest = rest[at+1:]
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(path, "/@#") {
		return u, errServerURL
	}
	if u.Hosts, err = splitHosts(hosts); err != nil {
		return u, err
	}
	if u.Path, err = url.PathUnescape(path); err != nil {
		return u, errServerURL
	}
	u.Query, err = splitQuery(query)
	return u, err
}

// hostPattern is one host with its port: a name, an IPv6 address in brackets, or the percent-encoded path of a socket.
var hostPattern = regexp.MustCompile(`^(?:((?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})*)|\[([0-9A-Fa-f:.]+)\])(?::([0-9]*))?$`)

func splitHosts(hosts string) ([]ServerAddress, error) {
	if hosts == "" {
		return nil, nil
	}
	var out []ServerAddress
	for h := range strings.SplitSeq(hosts, ",") {
		m := hostPattern.FindStringSubmatch(h)
		if m == nil {
			return nil, errServerURL
		}
		name, err := url.PathUnescape(m[1] + m[2])
		if err != nil {
			return nil, errServerURL
		}
		out = append(out, ServerAddress{Host: name, Port: m[3]})
	}
	return out, nil
}

// namePattern is the name of a parameter. Anything else in its place may be a part of the password.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

func splitQuery(query string) ([][2]string, error) {
	if query == "" {
		return nil, nil
	}
	var out [][2]string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(pair, "=")
		name, errN := url.PathUnescape(name)
		value, errV := url.PathUnescape(value)
		if !ok || !namePattern.MatchString(name) || errN != nil || errV != nil {
			return nil, errServerURL
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

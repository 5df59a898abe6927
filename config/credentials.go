package config

import (
	"errors"
	"net/url"
	"strings"

	"github.com/leatdata/leat/connector"
)

// CheckURL refuses a URL whose user or password has characters that no URL can hold as they are, such as / or #: part of the
// password would be read as host or path, and would show in messages. The error names the way out and shows nothing of the URL.
// What is no URL passes.
func CheckURL(raw string) error {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || strings.ContainsAny(scheme, "/?#@") || !strings.Contains(rest, "@") {
		return nil
	}
	userinfo, tail, _ := strings.Cut(rest, "@")
	_, password, ok := strings.Cut(userinfo, ":")
	if !ok {
		return nil // a user without a password, or an @ somewhere behind a host without a port
	}
	if i := strings.IndexAny(password, "/?#"); i >= 0 {
		if i > 0 && strings.Trim(password[:i], "0123456789") == "" {
			return nil // no password at all: a host with its port, and an @ behind it
		}
		return errPasswordForm()
	}
	before, _, _ := strings.Cut(tail, "?")
	if strings.ContainsAny(before, "@#") {
		return errPasswordForm()
	}
	if _, err := url.Parse(raw); err != nil {
		return errPasswordForm()
	}
	return nil
}

func errPasswordForm() error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "config.password", Doing: "reading the URL",
		Err: errors.New("its password has characters that a URL can't hold as they are"),
		Hint: "write ${env:NAME} in place of the password, or percent-encode it: " +
			"%40 for @, %2F for /, %3A for :, %23 for #, %25 for %, %3F for ?",
	}
}

package sqlgen

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// FileURL takes apart what names a database file: a plain path, or a scheme in front as in sqlite:app.db, sqlite://app.db or
// sqlite:///srv/app.db, and options behind a question mark. A path is taken as it stands, without percent-decoding; option values
// are decoded. Scheme names end at the colon; a drive letter is no scheme.
func FileURL(raw string, schemes []string) (path string, options map[string]string, err error) {
	path, query, _ := strings.Cut(raw, "?")
	if scheme, rest, ok := strings.Cut(path, ":"); ok && slices.Contains(schemes, strings.ToLower(scheme)) {
		path = strings.TrimPrefix(rest, "//")
	}
	if path == "" {
		return "", nil, errors.New("no file is named")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", nil, fmt.Errorf("reading the options behind the question mark: %w", err)
	}
	options = make(map[string]string, len(values))
	for k, v := range values {
		if len(v) > 1 {
			return "", nil, fmt.Errorf("option %q is given %d times", k, len(v))
		}
		options[k] = v[0]
	}
	return path, options, nil
}

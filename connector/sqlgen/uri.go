package sqlgen

import (
	"net/url"
	"path/filepath"
)

// FileURI names a table of a database file for lineage: file:///folder/file#dataset, by the absolute path, percent-encoded, so that it is
// the same from whatever folder a program runs.
func FileURI(path, dataset string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	abs = filepath.ToSlash(abs)
	if abs[0] != '/' { // a drive letter
		abs = "/" + abs
	}
	return (&url.URL{Scheme: "file", Path: abs, Fragment: dataset}).String()
}

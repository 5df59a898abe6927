package connector

import (
	"net/url"
	"path/filepath"
)

// FileURI names a dataset of a file for lineage: file:///folder/file#dataset, by the absolute path, percent-encoded, so that it is the same
// from whatever folder a program runs. dataset empty: the file is the dataset.
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

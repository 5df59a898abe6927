// Docs writes a page for every bundled connector: its options, what it promises, and its mapping table, all from the code.
//
// Usage:
//
//	go run -tags duckdb_arrow ./dev/docs [directory]
//
// The directory is docs/connectors unless it is given. Pages of connectors that are gone are deleted; files without the mark of a
// generated page are left alone.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connectors/all"
)

//go:generate go run -tags duckdb_arrow . ../../docs/connectors

func main() {
	if err := run(os.Args[1:]); err != nil {
		io.WriteString(os.Stderr, "docs: "+err.Error()+"\n") //nolint:errcheck // nobody is left to tell
		os.Exit(1)
	}
}

func run(args []string) error {
	dir := filepath.Join("docs", "connectors")
	if len(args) > 0 {
		dir = args[0]
	}
	registry, err := all.All()
	if err != nil {
		return fmt.Errorf("registering the connectors: %w", err)
	}
	return write(dir, registry.All())
}

// write makes the directory hold a page for each connector, the index, and no page of another connector.
func write(dir string, defs []connector.Definition) error {
	if err := os.MkdirAll(dir, 0o750); err != nil { //nolint:gosec // the directory is the developer's choice
		return fmt.Errorf("making the directory: %w", err)
	}
	pages := map[string][]byte{"README.md": index(defs)}
	for _, d := range defs {
		pages[d.Name+".md"] = page(d)
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return fmt.Errorf("listing pages: %w", err)
	}
	var errs []error
	for _, name := range old {
		if _, known := pages[filepath.Base(name)]; known {
			continue
		}
		text, err := os.ReadFile(name) //nolint:gosec // the directory is the developer's choice
		if err == nil && strings.HasPrefix(string(text), mark) {
			err = os.Remove(name) //nolint:gosec // the directory is the developer's choice
		}
		errs = append(errs, err)
	}
	for name, text := range pages {
		errs = append(errs, writeChanged(filepath.Join(dir, name), text))
	}
	return errors.Join(errs...)
}

// writeChanged leaves a file alone that is as it should be.
func writeChanged(name string, text []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, text) { //nolint:gosec // the directory is the developer's choice
		return nil
	}
	if err := os.WriteFile(name, text, 0o644); err != nil { //nolint:gosec // documents are for everybody
		return fmt.Errorf("writing a page: %w", err)
	}
	return nil
}

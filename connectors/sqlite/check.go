package sqlite

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
)

var (
	_ connector.Checker = (*source)(nil)
	_ connector.Named   = (*source)(nil)
	_ connector.Checker = (*sink)(nil)
	_ connector.Named   = (*sink)(nil)
)

// Check implements connector.Checker: the file opens, and the selection names tables.
func (s *source) Check(ctx context.Context) ([]connector.Probe, error) {
	name := "read " + s.cfg.Path
	if err := s.look(ctx); err != nil {
		return []connector.Probe{failed(name, err)}, nil
	}
	return []connector.Probe{{Name: name, Detail: fmt.Sprintf("%d datasets", len(s.tables))}}, nil
}

func failed(name string, err error) connector.Probe {
	return connector.Probe{Name: name, Status: connector.Fail, Detail: err.Error(), Fix: connector.HintOf(err)}
}

// Check implements connector.Checker. It creates nothing: neither the file nor a table.
func (s *sink) Check(ctx context.Context) ([]connector.Probe, error) {
	name := "write " + s.cfg.Path
	if s.cfg.Path == inMemory {
		return []connector.Probe{{
			Name: name, Status: connector.Warn, Detail: "the database is gone when leat ends", Fix: "name a file",
		}}, nil
	}
	if _, err := os.Stat(s.cfg.Path); err != nil {
		folder := filepath.Dir(s.cfg.Path)
		if _, err := os.Stat(folder); err != nil {
			p := connector.Probe{Name: name, Status: connector.Fail, Detail: err.Error(), Fix: "mkdir -p " + folder}
			return []connector.Probe{p}, nil //nolint:nilerr // the probe tells it
		}
		return []connector.Probe{{Name: name, Detail: "the file does not exist yet: it will be made"}}, nil
	}
	d, err := openDB(s.cfg.Path, sqlite.OpenReadWrite, s.cfg.BusyTimeout, s.env)
	if err != nil {
		return []connector.Probe{failed(name, wrap(ctx, "opening "+s.cfg.Path, err))}, nil
	}
	_, err = d.tableNames()
	if err := wrap(ctx, "reading the catalogue of "+s.cfg.Path, err); err != nil {
		_ = d.close() // the first error is the one to tell
		return []connector.Probe{failed(name, err)}, nil
	}
	return []connector.Probe{{Name: name, Detail: "the file is a database"}}, d.close()
}

// URI implements connector.Named.
func (s *source) URI(dataset string) string { return fileURI(s.cfg.Path, dataset) }

// URI implements connector.Named.
func (s *sink) URI(dataset string) string { return fileURI(s.cfg.Path, dataset) }

// fileURI names a table; one of a database that is never on disk has no place but this process.
func fileURI(path, dataset string) string {
	if path == inMemory {
		return (&url.URL{Scheme: system, Opaque: "memory", Fragment: dataset}).String()
	}
	return connector.FileURI(path, dataset)
}

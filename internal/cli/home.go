package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/state/sqlite"
)

// stateDir is the folder of the state store and of the rows that were set aside.
func (s *session) stateDir() (string, error) {
	if s.home != "" {
		return s.home, nil
	}
	if dir, ok := s.Lookup.Env("LEAT_STATE"); ok && dir != "" {
		return dir, nil
	}
	if dir, ok := s.Lookup.Env("XDG_STATE_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "leat"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &connector.Error{
			Class: connector.ClassConfig, Code: "state.folder", Doing: "finding a folder for the state", Err: err,
			Hint: "name one with --state DIR",
		}
	}
	return filepath.Join(home, ".local", "state", "leat"), nil
}

// openStore opens the state store, and makes its folder on first use.
func (s *session) openStore(ctx context.Context) (state.Store, error) {
	dir, err := s.stateDir()
	if err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, filepath.Join(dir, "state.db"))
	if e, ok := errors.AsType[*connector.Error](err); ok {
		named := *e
		named.Class, named.Hint = connector.ClassConfig, "name a folder on a local disk that can be written with --state DIR"
		return nil, &named
	}
	if err != nil {
		return nil, err
	}
	return store, nil
}

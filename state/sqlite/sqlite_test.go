package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/state/sqlite"
	"github.com/leatdata/leat/state/statetest"
)

// clauses S14, E16: the contract of a store; what was saved is there for the next process.
func TestContract(t *testing.T) {
	statetest.Run(t, func(t *testing.T) statetest.Open {
		path := filepath.Join(t.TempDir(), "made", "state.db")
		return func(t *testing.T) state.Store {
			s, err := sqlite.Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	})
}

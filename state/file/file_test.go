package file_test

import (
	"path/filepath"
	"testing"

	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/state/file"
	"github.com/leatdata/leat/state/statetest"
)

// clauses S14, E16: the contract of a store; what was saved is there for the next process.
func TestContract(t *testing.T) {
	statetest.Run(t, func(t *testing.T) statetest.Open {
		dir := filepath.Join(t.TempDir(), "made", "state")
		return func(t *testing.T) state.Store {
			s, err := file.Open(file.OS(), dir)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	})
}

package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/state"
	"github.com/leatdata/leat/state/file"
	"github.com/leatdata/leat/state/statetest"
)

func openAt(t *testing.T, dir string) *file.Store {
	t.Helper()
	s, err := file.Open(file.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clauses S14, E16: the contract of a store; what was saved is there for the next process.
func TestContract(t *testing.T) {
	statetest.Run(t, func(t *testing.T) statetest.Open {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "made", "state")
		return func(t *testing.T) state.Store {
			t.Helper()
			return openAt(t, dir)
		}
	})
}

func TestOnlyTheOwnerReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := openAt(t, dir).Save(t.Context(), statetest.Sample(pipeline), 0); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{dir: os.ModeDir | 0o700, filepath.Join(dir, "orders.json"): 0o600} {
		info, err := os.Stat(name)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, error %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// clause S14: what this program can't have written is refused with the file's name and a way out, and never overwritten.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir)
	version, err := s.Save(t.Context(), statetest.Sample(pipeline), 0)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "orders.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty":           "",
		"half":            string(good[:len(good)/2]),
		"two":             string(good) + string(good),
		"unknown field":   strings.Replace(string(good), `{"version"`, `{"more":1,"version"`, 1),
		"no version":      strings.Replace(string(good), `"version"`, `"record"`, 1),
		"newer format":    strings.Replace(string(good), `"format":2`, `"format":3`, 1),
		"unknown inside":  strings.Replace(string(good), `"attempt"`, `"more":1,"attempt"`, 1),
		"another's":       strings.Replace(string(good), `"orders"`, `"lines"`, 1),
		"not JSON at all": "garbage",
	} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Load(t.Context(), pipeline)
		if connector.ClassOf(err) != connector.ClassPosition || connector.HintOf(err) == "" || !strings.Contains(err.Error(), pipeline) {
			t.Errorf("%s: class %v, hint %q: %v", name, connector.ClassOf(err), connector.HintOf(err), err)
		}
		if _, err := s.List(t.Context()); connector.ClassOf(err) != connector.ClassPosition {
			t.Errorf("%s: listing: %v", name, err)
		}
		if _, err := s.Save(t.Context(), statetest.Sample(pipeline), 0); err == nil {
			t.Errorf("%s: it was overwritten", name)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != bad {
			t.Errorf("%s: the file was changed: %v", name, err)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	statetest.Expect(t, s, statetest.Sample(pipeline), version)
}

func TestOpenErrors(t *testing.T) {
	taken := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Open(file.OS(), taken); connector.HintOf(err) == "" || !strings.Contains(err.Error(), taken) {
		t.Errorf("opening a file as a folder: %v", err)
	}
}

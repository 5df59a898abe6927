package jetstream

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// clause E16 (lanes): a folder that got a new file is synced again, also when both come in the same tick of its clock; one that did not is
// left alone.
func TestFoldersAreSynced(t *testing.T) {
	d := syncedDir{path: t.TempDir()}
	settle := func() (synced bool) {
		t.Helper()
		before := d.at
		if err := d.settle(); err != nil {
			t.Fatal(err)
		}
		return d.at != before
	}
	create := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(d.path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"1.blk", "2.blk", "3.blk"} {
		create(name)
		if !settle() {
			t.Errorf("%s was made, and the folder not synced", name)
		}
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(d.path, old, old); err != nil {
		t.Fatal(err)
	}
	if !settle() || settle() {
		t.Error("a folder that has not changed for an hour is synced again")
	}
	create("4.blk")
	if !settle() {
		t.Error("4.blk was made, and the folder not synced")
	}
	if err := syncTree(d.path); err != nil {
		t.Error(err)
	}
	if (&syncedDir{path: filepath.Join(d.path, "none")}).settle() == nil {
		t.Error("a folder that is not there was synced")
	}
}

package jetstream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// The server inside syncs what it writes into a file before it says so, but not the folder that a file was just made in: after a loss of
// power the file could be missing. So the folders are synced here, before anybody hears that something is stored.

// syncedDir is a folder whose names are synced whenever they have changed.
type syncedDir struct {
	path string

	mu      sync.Mutex
	changed time.Time // of the folder, when it was synced last
	at      time.Time // when that was
}

// coarse is more than the resolution of the times that file systems note.
const coarse = 50 * time.Millisecond

// settle syncs the folder if names may have been added since the last time.
func (d *syncedDir) settle() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, err := os.Stat(d.path)
	if err != nil {
		return err //nolint:wrapcheck // has the path
	}
	// A name that was added in the same tick as the last sync does not show in the time.
	if i.ModTime().Equal(d.changed) && d.at.Sub(d.changed) > coarse {
		return nil
	}
	now := time.Now()
	if err := syncDir(d.path); err != nil {
		return err
	}
	d.changed, d.at = i.ModTime(), now
	return nil
}

func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil // it writes names with their files
	}
	f, err := os.Open(path)
	if err != nil {
		return err //nolint:wrapcheck // has the path
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("syncing %s: %w", path, err)
	}
	return nil
}

// syncTree syncs a folder, all folders in it, and the one that it is in.
func syncTree(dir string) error {
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error { //nolint:wrapcheck // has the path
		if err != nil || !e.IsDir() {
			return err
		}
		return syncDir(path)
	})
}

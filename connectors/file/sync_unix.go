//go:build unix

package file

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// syncDir makes the names in a folder survive loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // it was only opened
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err // some file systems can't sync folders, and keep names in order anyway
	}
	return nil
}

// writable reports whether files may be made in a folder.
func writable(dir string, _ fs.FileInfo) bool {
	const write = 2
	return syscall.Access(dir, write) == nil
}

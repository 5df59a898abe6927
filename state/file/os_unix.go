//go:build unix

package file

import (
	"errors"
	"os"
	"syscall"
)

// lock waits for the exclusive lock of an open file.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func syncDir(d *os.File) error { return d.Sync() }

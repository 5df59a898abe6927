//go:build unix

package jetstream

import (
	"errors"
	"os"
	"syscall"
)

var errLocked = errors.New("another process has them open")

// tryLock takes the exclusive lock of an open file, or returns errLocked.
func tryLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		default:
			return err
		}
	}
}

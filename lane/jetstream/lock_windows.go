package jetstream

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

var errLocked = errors.New("another process has them open")

// tryLock takes the exclusive lock of an open file, or returns errLocked. The locked byte is far behind what the file holds, so that others
// can read who has it.
func tryLock(f *os.File) error {
	at := &windows.Overlapped{OffsetHigh: 1}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return err
}

package file

import (
	"os"

	"golang.org/x/sys/windows"
)

// lock waits for the exclusive lock of an open file.
func lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}

// syncDir does nothing: Windows writes names with their files.
func syncDir(*os.File) error { return nil }

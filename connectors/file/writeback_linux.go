package file

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriting asks the system to bring bytes of a file to the disk, without waiting for it: the sync at the end then finds little left.
// What it says is not looked at: that sync is what makes the file durable.
func startWriting(f *os.File, from, size int64) {
	unix.SyncFileRange(int(f.Fd()), from, size, unix.SYNC_FILE_RANGE_WRITE) //nolint:errcheck // see above
}

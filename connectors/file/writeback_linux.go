package file

import (
	"os"
	"syscall"
)

// startWriting asks the system to bring bytes of a file to the disk, without waiting for it: the sync at the end then finds little left.
// What it says is not looked at: that sync is what makes the file durable.
func startWriting(f *os.File, from, size int64) {
	const write = 2                                       // SYNC_FILE_RANGE_WRITE
	syscall.SyncFileRange(int(f.Fd()), from, size, write) //nolint:errcheck // see above
}

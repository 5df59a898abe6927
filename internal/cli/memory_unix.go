//go:build unix

package cli

import (
	"runtime"
	"syscall"
)

// peakMemory returns the largest resident size of this process so far, in bytes; 0: unknown.
func peakMemory() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(u.Maxrss) //nolint:unconvert // 32 bits on some systems; bytes there, kilobytes elsewhere
	}
	return int64(u.Maxrss) * 1024 //nolint:unconvert // 32 bits on some systems
}

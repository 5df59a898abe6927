//go:build !linux

package file

import "os"

// startWriting does nothing: such systems write when they see fit.
func startWriting(*os.File, int64, int64) {}

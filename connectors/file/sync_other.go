//go:build !unix

package file

import "io/fs"

// syncDir does nothing: such systems keep names with the files.
func syncDir(string) error { return nil }

// writable reports whether files may be made in a folder.
func writable(_ string, info fs.FileInfo) bool { return info.Mode().Perm()&0o200 != 0 }

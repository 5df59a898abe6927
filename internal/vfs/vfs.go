package vfs

import "io"

// File is a file that is being written, from its beginning to its end.
type File = interface {
	io.WriteCloser
	Sync() error
}

// Files is the part of a file system that is about files. Errors are those of package os.
type Files interface {
	Create(name string) (File, error) // fs.ErrExist if there is one
	ReadFile(name string) ([]byte, error)
	Rename(from, to string) error
	Remove(name string) error
}

// Dirs is the part of a file system that is about folders.
type Dirs interface {
	MkdirAll(dir string) error
	ReadDir(dir string) ([]string, error) // names, sorted
	SyncDir(dir string) error
	Lock(name string) (io.Closer, error) // waits for its turn
}

// FS is a file system.
type FS interface {
	Files
	Dirs
}

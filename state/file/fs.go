package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Writer is a file that is being written.
type Writer = interface {
	io.WriteCloser
	Sync() error // what was written survives loss of power
}

// Files is the part of a file system that is about files.
type Files interface {
	// Create makes a file, readable only by its owner; it is an error (fs.ErrExist) if there is one.
	Create(name string) (Writer, error)
	// ReadFile returns a whole file; fs.ErrNotExist where there is none.
	ReadFile(name string) ([]byte, error)
	// Rename puts a file in the place of another one, atomically.
	Rename(from, to string) error
	// Remove deletes a file; fs.ErrNotExist where there is none.
	Remove(name string) error
}

// Dirs is the part of a file system that is about folders.
type Dirs interface {
	// MkdirAll makes the folder and its parents, accessible only by their owner.
	MkdirAll(dir string) error
	// ReadDir returns the names in the folder, sorted.
	ReadDir(dir string) ([]string, error)
	// SyncDir makes the names in the folder survive loss of power: what was created, renamed and removed.
	SyncDir(dir string) error
	// Lock takes the lock file of this name, waiting for other processes and other values of this package; Close gives it back.
	Lock(name string) (io.Closer, error)
}

// FS is the file system that a store needs: OS for the real one; tests have one that fails and one that loses power.
type FS interface {
	Files
	Dirs
}

// OS returns the file system of the machine.
func OS() FS { return osFS{} }

type osFS struct{}

const (
	fileMode = 0o600
	dirMode  = 0o700
)

// Create implements Files.
func (osFS) Create(name string) (Writer, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
}

// ReadFile implements Files.
func (osFS) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }

// Rename implements Files.
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements Files.
func (osFS) Remove(name string) error { return os.Remove(name) }

// MkdirAll implements Dirs.
func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, dirMode) }

// ReadDir implements Dirs.
func (osFS) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// SyncDir implements Dirs.
func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(syncDir(d), d.Close())
}

// Lock implements Dirs.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(filepath.Clean(name), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", name, err), f.Close())
	}
	return f, nil // closing it unlocks it
}

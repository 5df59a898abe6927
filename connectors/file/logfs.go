package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// logFile is a file of a log that is being written.
type logFile interface {
	io.WriteCloser
	Sync() error
}

// logFiles is the part of a file system that is about files.
type logFiles interface {
	Create(name string) (logFile, error) // fs.ErrExist if there is one
	ReadFile(name string) ([]byte, error)
	Open(name string) (io.ReadCloser, error)
	Stat(name string) (size int64, found bool, err error) // also of a folder, whose size means nothing
	Rename(from, to string) error                         // within a folder
	Remove(name string) error
}

// logDirs is the part of a file system that is about folders.
type logDirs interface {
	MkdirAll(dir string) error
	ReadDir(dir string) ([]string, error) // names, in any order
	SyncDir(dir string) error
	Lock(ctx context.Context, name string) (io.Closer, error) // waits for its turn
}

// logFS is the file system that a log needs: osLogFS, or in tests one that fails and loses power.
type logFS interface {
	logFiles
	logDirs
}

// osLogFS is the file system of the machine. The umask decides who may read, as for every program.
type osLogFS struct{}

var _ logFS = osLogFS{}

func (osLogFS) Create(name string) (logFile, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) //nolint:gosec // see osLogFS
}

func (osLogFS) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }

func (osLogFS) Open(name string) (io.ReadCloser, error) { return os.Open(name) }

func (osLogFS) Stat(name string) (size int64, found bool, err error) {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return info.Size(), true, nil
}

func (osLogFS) Rename(from, to string) error { return os.Rename(from, to) }

func (osLogFS) Remove(name string) error { return os.Remove(name) }

func (osLogFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o777) } //nolint:gosec // see osLogFS

func (osLogFS) ReadDir(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}

func (osLogFS) SyncDir(dir string) error { return syncDir(dir) }

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 20 * time.Millisecond

func (osLogFS) Lock(ctx context.Context, name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o666) //nolint:gosec // see osLogFS
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		locked, err := tryLock(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", name, err), f.Close())
		}
		if locked {
			return f, nil // closing it unlocks it
		}
		timer.Reset(lockPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("waiting for the lock %s: %w", name, context.Cause(ctx)), f.Close())
		}
	}
}

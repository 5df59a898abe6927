package file

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/leatdata/leat/internal/vfs"
)

// On makes a sink use a file system of tests.
func On(c *SinkConfig, fsys vfs.FS) *SinkConfig {
	c.fs = testFS{fsys}
	return c
}

// testFS is a file system of tests as a log uses it.
type testFS struct{ vfs.FS }

func (t testFS) Create(name string) (logFile, error) { return t.FS.Create(name) }

func (t testFS) Open(name string) (io.ReadCloser, error) {
	data, err := t.ReadFile(name)
	return io.NopCloser(bytes.NewReader(data)), err
}

func (t testFS) Stat(name string) (size int64, found bool, err error) {
	names, err := t.ReadDir(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !slices.Contains(names, filepath.Base(name)) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	data, err := t.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) { // a folder
		err = nil
	}
	return int64(len(data)), true, err
}

func (t testFS) Lock(_ context.Context, name string) (io.Closer, error) { return t.FS.Lock(name) }

// OS is the machine's file system.
func OS() vfs.FS { return osVFS{} }

type osVFS struct{ osLogFS }

func (o osVFS) Create(name string) (vfs.File, error) { return o.osLogFS.Create(name) }

func (o osVFS) Lock(name string) (io.Closer, error) {
	return o.osLogFS.Lock(context.Background(), name)
}

// The bounds that tests reach.
const (
	MaxListed  = maxListed
	MaxLogOpen = maxLogOpen
	MaxPacked  = maxPacked
)

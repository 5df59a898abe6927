package file

import (
	"context"
	"io"
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

func (t testFS) Exists(name string) (bool, error) {
	names, err := t.ReadDir(filepath.Dir(name))
	return slices.Contains(names, filepath.Base(name)), err
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

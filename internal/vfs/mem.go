package vfs

import (
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Mem is a file system in memory that knows what was synced. It may be used from any goroutine. Make it with NewMem.
type Mem struct {
	mu    sync.Mutex
	root  *node
	locks map[string]chan struct{} // capacity 1
}

var _ FS = (*Mem)(nil)

// node is a file or a folder.
type node struct {
	data   []byte // of a file
	synced int    // how much of data is durable

	entries map[string]*node // of a folder; nil: a file
	durable map[string]*node // what entries was when the folder was synced last
	changes []change         // since then, in order
}

// change is a set of entries that change together; nil removes one.
type change map[string]*node

// NewMem returns an empty file system: a durable root folder.
func NewMem() *Mem { return &Mem{root: newDir(), locks: map[string]chan struct{}{}} }

func newDir() *node { return &node{entries: map[string]*node{}, durable: map[string]*node{}} }

func (n *node) isDir() bool { return n.entries != nil }

func (n *node) apply(c change) {
	n.changes = append(n.changes, c)
	c.applyTo(n.entries)
}

func (c change) applyTo(entries map[string]*node) {
	for name, e := range c {
		if e == nil {
			delete(entries, name)
			continue
		}
		entries[name] = e
	}
}

// CrashClone returns the file system as it may be after loss of power at this moment. Of each folder's n changes that were not
// synced, the first keep(n) survive, and of each file's n bytes likewise; nil keeps none. Locks are free.
func (m *Mem) CrashClone(keep func(n int) int) *Mem {
	if keep == nil {
		keep = func(int) int { return 0 }
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Mem{root: m.root.crash(keep), locks: map[string]chan struct{}{}}
}

func (n *node) crash(keep func(n int) int) *node {
	if !n.isDir() {
		size := n.synced + keep(len(n.data)-n.synced)
		return &node{data: slices.Clone(n.data[:size]), synced: size}
	}
	left := maps.Clone(n.durable)
	for _, c := range n.changes[:keep(len(n.changes))] {
		c.applyTo(left)
	}
	clone := newDir()
	for _, name := range slices.Sorted(maps.Keys(left)) {
		clone.entries[name] = left[name].crash(keep)
	}
	clone.durable = maps.Clone(clone.entries)
	return clone
}

// find returns the node of a path, or nil; the mutex is held.
func (m *Mem) find(name string) *node {
	n := m.root
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(name)), "/") {
		if part == "" || part == "." {
			continue
		}
		if n = n.entries[part]; n == nil {
			return nil
		}
	}
	return n
}

// parent returns the folder that holds or would hold the name.
func (m *Mem) parent(op, name string) (*node, string, error) {
	dir := m.find(filepath.Dir(name))
	if dir == nil || !dir.isDir() {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return dir, filepath.Base(name), nil
}

// Create implements Files.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("create", name)
	if err != nil {
		return nil, err
	}
	if dir.entries[base] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	n := &node{}
	dir.apply(change{base: n})
	return &memFile{m: m, n: n}, nil
}

// ReadFile implements Files.
func (m *Mem) ReadFile(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil || n.isDir() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
	}
	return slices.Clone(n.data), nil
}

// Rename implements Files. Both names are in one folder.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("rename", from)
	if err != nil {
		return err
	}
	n := dir.entries[base]
	switch {
	case n == nil:
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	case filepath.Dir(from) != filepath.Dir(to):
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrInvalid}
	case from != to:
		dir.apply(change{base: nil, filepath.Base(to): n})
	}
	return nil
}

// Remove implements Files.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	if dir.entries[base] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	dir.apply(change{base: nil})
	return nil
}

// MkdirAll implements Dirs.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(dir)), "/") {
		if part == "" || part == "." {
			continue
		}
		if n.entries[part] == nil {
			n.apply(change{part: newDir()})
		}
		if n = n.entries[part]; !n.isDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrExist}
		}
	}
	return nil
}

// ReadDir implements Dirs.
func (m *Mem) ReadDir(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(dir)
	if n == nil || !n.isDir() {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: fs.ErrNotExist}
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

// SyncDir implements Dirs.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(dir)
	if n == nil || !n.isDir() {
		return &fs.PathError{Op: "sync", Path: dir, Err: fs.ErrNotExist}
	}
	n.durable, n.changes = maps.Clone(n.entries), nil
	return nil
}

// Lock implements Dirs.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	if m.locks[name] == nil {
		m.locks[name] = make(chan struct{}, 1)
	}
	l := m.locks[name]
	m.mu.Unlock()
	l <- struct{}{}
	return unlocker(func() { <-l }), nil
}

type unlocker func()

// Close implements io.Closer.
func (u unlocker) Close() error {
	u()
	return nil
}

// memFile implements File.
type memFile struct {
	m      *Mem
	n      *node
	closed bool
}

// Write implements io.Writer.
func (f *memFile) Write(p []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, fs.ErrClosed
	}
	f.n.data = append(f.n.data, p...)
	return len(p), nil
}

// Sync implements File.
func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.n.synced = len(f.n.data)
	return nil
}

// Close implements io.Closer.
func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}

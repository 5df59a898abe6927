package vfs

import (
	"fmt"
	"io"
	"sync"
)

// Op is an operation that is about to happen.
type Op struct {
	Index int    // counts from 0
	Kind  string // create, write, sync, close, read, rename, remove, mkdir, readdir, syncdir, lock
	Name  string // file or folder; of a rename the new name
}

// String names the operation for people.
func (o Op) String() string { return fmt.Sprintf("%d: %s %s", o.Index, o.Kind, o.Name) }

// Hooked is a file system that calls a function before each operation. An error of the function is the operation's: then nothing
// happens, except that a failing write writes half of its data, and a failing close closes.
type Hooked struct {
	fs     FS
	before func(Op) error

	mu   sync.Mutex
	next int
}

var _ FS = (*Hooked)(nil)

// Hook wraps a file system. The function is called by the goroutine of the operation.
func Hook(fsys FS, before func(Op) error) *Hooked { return &Hooked{fs: fsys, before: before} }

// Ops returns how many operations there were.
func (h *Hooked) Ops() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next
}

func (h *Hooked) op(kind, name string) error {
	h.mu.Lock()
	o := Op{Index: h.next, Kind: kind, Name: name}
	h.next++
	h.mu.Unlock()
	return h.before(o)
}

// Create implements Files.
func (h *Hooked) Create(name string) (File, error) {
	if err := h.op("create", name); err != nil {
		return nil, err
	}
	f, err := h.fs.Create(name)
	if err != nil {
		return nil, err
	}
	return &hookedFile{h: h, f: f, name: name}, nil
}

// ReadFile implements Files.
func (h *Hooked) ReadFile(name string) ([]byte, error) {
	if err := h.op("read", name); err != nil {
		return nil, err
	}
	return h.fs.ReadFile(name)
}

// Rename implements Files.
func (h *Hooked) Rename(from, to string) error {
	if err := h.op("rename", to); err != nil {
		return err
	}
	return h.fs.Rename(from, to)
}

// Remove implements Files.
func (h *Hooked) Remove(name string) error {
	if err := h.op("remove", name); err != nil {
		return err
	}
	return h.fs.Remove(name)
}

// MkdirAll implements Dirs.
func (h *Hooked) MkdirAll(dir string) error {
	if err := h.op("mkdir", dir); err != nil {
		return err
	}
	return h.fs.MkdirAll(dir)
}

// ReadDir implements Dirs.
func (h *Hooked) ReadDir(dir string) ([]string, error) {
	if err := h.op("readdir", dir); err != nil {
		return nil, err
	}
	return h.fs.ReadDir(dir)
}

// SyncDir implements Dirs.
func (h *Hooked) SyncDir(dir string) error {
	if err := h.op("syncdir", dir); err != nil {
		return err
	}
	return h.fs.SyncDir(dir)
}

// Lock implements Dirs.
func (h *Hooked) Lock(name string) (io.Closer, error) {
	if err := h.op("lock", name); err != nil {
		return nil, err
	}
	return h.fs.Lock(name)
}

// hookedFile implements File.
type hookedFile struct {
	h    *Hooked
	f    File
	name string
}

// Write implements io.Writer.
func (f *hookedFile) Write(p []byte) (int, error) {
	if err := f.h.op("write", f.name); err != nil {
		n, _ := f.f.Write(p[:len(p)/2])
		return n, err
	}
	return f.f.Write(p)
}

// Sync implements File.
func (f *hookedFile) Sync() error {
	if err := f.h.op("sync", f.name); err != nil {
		return err
	}
	return f.f.Sync()
}

// Close implements io.Closer.
func (f *hookedFile) Close() error {
	if err := f.h.op("close", f.name); err != nil {
		_ = f.f.Close()
		return err
	}
	return f.f.Close()
}

package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// FileRejects keeps rejected rows in one file of a folder, a JSON object per line: the fields of [Rejected], raw as base64. The file
// is created with the first row, is only appended to, and is made durable with its folder by Flush.
type FileRejects struct {
	path string

	mu    sync.Mutex
	file  *os.File
	buf   *bufio.Writer
	dirty bool
}

var _ RejectStore = (*FileRejects)(nil)

// NewFileRejects returns a store that writes to DIR/NAME.jsonl; nothing is created before there is a row.
func NewFileRejects(dir, name string) *FileRejects {
	return &FileRejects{path: filepath.Join(dir, name+".jsonl")}
}

// Path is the file that rows go to.
func (s *FileRejects) Path() string { return s.path }

// Append implements RejectStore.
func (s *FileRejects) Append(_ context.Context, rows []Rejected) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	s.dirty = true
	for _, r := range rows {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("writing %s: %w", s.path, err)
		}
		if _, err := s.buf.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("writing %s: %w", s.path, err)
		}
	}
	return nil
}

func (s *FileRejects) open() error {
	if s.file != nil {
		return nil
	}
	dir := filepath.Dir(s.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating the folder for bad rows: %w", err)
	}
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the file for bad rows: %w", err)
	}
	if err := endLine(f); err != nil {
		_ = f.Close() // the first error counts
		return fmt.Errorf("opening %s: %w", s.path, err)
	}
	if err := syncDir(dir); err != nil {
		_ = f.Close() // the first error counts
		return fmt.Errorf("syncing %s: %w", dir, err)
	}
	s.file, s.buf = f, bufio.NewWriter(f)
	return nil
}

// endLine ends a line that a crash cut short, so that the next one is whole.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	_, err = f.WriteString("\n")
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Flush implements RejectStore.
func (s *FileRejects) Flush(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flush()
}

func (s *FileRejects) flush() error {
	if !s.dirty {
		return nil
	}
	if err := errors.Join(s.buf.Flush(), s.file.Sync()); err != nil {
		return fmt.Errorf("writing %s: %w", s.path, err)
	}
	s.dirty = false
	return nil
}

// Forget implements RejectStore: what is in a file stays there, and is there twice.
func (*FileRejects) Forget(context.Context, string, string, string, uint64) error { return nil }

// Close implements RejectStore. It is idempotent.
func (s *FileRejects) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.flush(), s.file.Close())
	s.file, s.buf = nil, nil
	return err
}

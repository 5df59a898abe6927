package file

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/state"
)

const (
	suffix       = ".json"   // of a record
	ordersSuffix = ".orders" // of what people want of the pipeline
	tempSuffix   = ".tmp"
	lockName     = "lock"
)

// Store implements state.Store.
type Store struct {
	fs  FS
	dir string

	mu     sync.Mutex // one change at a time in this process; the lock file orders processes
	closed bool
	dirty  bool // a name may not be durable: what is read must not be relied on before the folder is synced
}

var _ state.Store = (*Store)(nil)

var errClosed = errors.New("the state store is closed")

// document is the content of a file: of one pipeline the record or the orders, whichever belongs there.
type document struct {
	Version state.Version   `json:"version"`
	Record  json.RawMessage `json:"record"`
	Orders  json.RawMessage `json:"orders"`
}

// whole reports whether a file of that name may hold the document.
func (d document) whole(name string) bool {
	orders := strings.HasSuffix(name, ordersSuffix)
	return d.Version > 0 && (len(d.Orders) > 0) == orders && (len(d.Record) > 0) != orders
}

// Open opens the folder, and makes it if it does not exist. Temporary files that a crash left behind are removed.
func Open(fsys FS, dir string) (*Store, error) {
	s := &Store{fs: fsys, dir: dir}
	if err := s.prepare(); err != nil {
		return nil, &connector.Error{
			Class: connector.ClassPermanent, Code: "state.open", Doing: "opening the state folder " + dir, Err: err,
			Hint: "the folder must be writable and on a local disk; the path of the state folder can be set",
		}
	}
	return s, nil
}

func (s *Store) prepare() (err error) {
	if err := s.fs.MkdirAll(s.dir); err != nil {
		return err
	}
	if err := s.fs.SyncDir(s.dir); err != nil { // what an interrupted Save renamed
		return err
	}
	for dir := s.dir; ; dir = filepath.Dir(dir) { // every folder that may have been made is a name in its parent
		if err := s.fs.SyncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if dir == filepath.Dir(dir) || dir == "." {
			break
		}
	}
	unlock, err := s.fs.Lock(s.path(lockName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock.Close()) }()
	names, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if strings.HasSuffix(n, tempSuffix) {
			if err := s.fs.Remove(s.path(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// fileName returns the file of a pipeline. Names that differ only in case get different files also where file names don't.
func fileName(pipeline, suffix string) string {
	lower := strings.ToLower(pipeline)
	if lower == pipeline {
		return lower + suffix
	}
	sum := sha256.Sum256([]byte(pipeline))
	return lower + "~" + hex.EncodeToString(sum[:6]) + suffix
}

// locked runs f alone among all goroutines and processes.
func (s *Store) locked(ctx context.Context, f func() error) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	unlock, err := s.fs.Lock(s.path(lockName))
	if err != nil {
		return s.explain(err)
	}
	defer func() { err = errors.Join(err, unlock.Close()) }()
	return f()
}

// usable comes before every use; the mutex is held.
func (s *Store) usable(ctx context.Context) error {
	switch {
	case s.closed:
		return errClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case s.dirty:
		return s.sync()
	}
	return nil
}

func (s *Store) explain(err error) error {
	return &connector.Error{Class: connector.ClassPermanent, Code: "state.io", Doing: "using the state folder " + s.dir, Err: err}
}

// read returns the document in a file; state.ErrNotFound where there is none.
func (s *Store) read(name string) (document, error) {
	data, err := s.fs.ReadFile(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return document{}, state.ErrNotFound
	}
	if err != nil {
		return document{}, s.explain(err)
	}
	var d document
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err = dec.Decode(&d)
	if err == nil {
		if _, end := dec.Token(); !errors.Is(end, io.EOF) || !d.whole(name) {
			err = errors.New("it is not as a store writes it")
		}
	}
	if err != nil {
		what := "start over"
		if strings.HasSuffix(name, ordersSuffix) {
			what = "forget the orders"
		}
		return document{}, &connector.Error{
			Class: connector.ClassPosition, Code: "state.format", Doing: "reading " + s.path(name), Err: err,
			Hint: "restore the file from a backup, or remove it to " + what,
		}
	}
	return d, nil
}

// Load implements state.Store.
func (s *Store) Load(ctx context.Context, pipeline string) (state.Record, state.Version, error) {
	if err := state.ValidateName(pipeline); err != nil {
		return state.Record{}, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return state.Record{}, 0, err
	}
	d, err := s.read(fileName(pipeline, suffix))
	if err != nil {
		return state.Record{}, 0, err
	}
	r, err := state.Decode(d.Record, pipeline)
	return r, d.Version, err
}

// Save implements state.Store.
func (s *Store) Save(ctx context.Context, r state.Record, prev state.Version) (state.Version, error) {
	data, err := state.Encode(r)
	if err != nil {
		return 0, err
	}
	return s.put(ctx, fileName(r.Pipeline, suffix), "record", data, prev)
}

// Orders implements state.OrderStore.
func (s *Store) Orders(ctx context.Context, pipeline string) (state.Orders, state.Version, error) {
	if err := state.ValidateName(pipeline); err != nil {
		return state.Orders{}, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return state.Orders{}, 0, err
	}
	d, err := s.read(fileName(pipeline, ordersSuffix))
	switch {
	case errors.Is(err, state.ErrNotFound):
		return state.Orders{}, 0, nil
	case err != nil:
		return state.Orders{}, 0, err
	}
	o, err := state.DecodeOrders(d.Orders, pipeline)
	return o, d.Version, err
}

// SaveOrders implements state.OrderStore.
func (s *Store) SaveOrders(ctx context.Context, pipeline string, o state.Orders, prev state.Version) (state.Version, error) {
	data, err := state.EncodeOrders(o, pipeline)
	if err != nil {
		return 0, err
	}
	return s.put(ctx, fileName(pipeline, ordersSuffix), "orders", data, prev)
}

// put replaces the content of version prev of a file by this field, and returns the new version.
func (s *Store) put(ctx context.Context, name, field string, data []byte, prev state.Version) (next state.Version, err error) {
	err = s.locked(ctx, func() error {
		d, err := s.read(name)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		if d.Version != prev { // 0 where there is none
			return state.ErrConflict
		}
		next = prev + 1
		if prev == 0 {
			next = state.FirstVersion()
		}
		return s.replace(name, fmt.Appendf(nil, "{\"version\":%d,%q:%s}\n", next, field, data))
	})
	if err != nil {
		return 0, err
	}
	return next, nil
}

// replace puts a new content into the place of a file's, durably, and leaves no temporary file behind.
func (s *Store) replace(name string, data []byte) error {
	temp := s.path("." + rand.Text() + tempSuffix)
	err := s.write(temp, data)
	if err == nil {
		err = s.fs.Rename(temp, s.path(name))
	}
	if err != nil {
		if rm := s.fs.Remove(temp); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = errors.Join(err, rm)
		}
		return s.explain(err)
	}
	return s.sync()
}

// sync makes the names in the folder durable.
func (s *Store) sync() error {
	s.dirty = true
	if err := s.fs.SyncDir(s.dir); err != nil {
		return s.explain(err)
	}
	s.dirty = false
	return nil
}

func (s *Store) write(name string, data []byte) error {
	f, err := s.fs.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// List implements state.Store.
func (s *Store) List(ctx context.Context) ([]state.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	names, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return nil, s.explain(err)
	}
	var list []state.Record
	var broken error
	for _, n := range names {
		if !strings.HasSuffix(n, suffix) {
			continue
		}
		r, err := s.readListed(n)
		switch {
		case err == nil:
			list = append(list, r)
		case broken == nil && !errors.Is(err, state.ErrNotFound): // one that is gone since is none
			broken = err
		}
	}
	slices.SortFunc(list, func(a, b state.Record) int { return strings.Compare(a.Pipeline, b.Pipeline) })
	return list, broken
}

// readListed reads a record whose pipeline is known only from the record itself.
func (s *Store) readListed(name string) (state.Record, error) {
	pipeline := strings.TrimSuffix(name, suffix)
	d, err := s.read(name)
	if err != nil {
		return state.Record{}, err
	}
	var head struct {
		Pipeline string `json:"pipeline"`
	}
	if json.Unmarshal(d.Record, &head) == nil && fileName(head.Pipeline, suffix) == name {
		pipeline = head.Pipeline
	}
	return state.Decode(d.Record, pipeline)
}

// Delete implements state.Store.
func (s *Store) Delete(ctx context.Context, pipeline string) error {
	if err := state.ValidateName(pipeline); err != nil {
		return err
	}
	return s.locked(ctx, func() error {
		removed := false
		for _, suffix := range []string{suffix, ordersSuffix} { // the record first: a pause is not lifted by half a deletion
			switch err := s.fs.Remove(s.path(fileName(pipeline, suffix))); {
			case err == nil:
				removed = true
			case !errors.Is(err, fs.ErrNotExist):
				return errors.Join(s.explain(err), s.sync())
			}
		}
		if !removed {
			return state.ErrNotFound
		}
		return s.sync()
	})
}

// Close implements state.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

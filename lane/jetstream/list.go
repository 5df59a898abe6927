package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/leatdata/leat/lane"
)

// List shows what the lanes of a pipeline hold to f, which may go through the items as long as it runs. It takes nothing over and changes
// nothing. Lanes in a folder can be looked at while no process runs the pipeline (otherwise the error has code lanes.locked: that process
// knows, by Durable.Holds); those of an external server at any time. The error has code lanes.none where there are none.
func List(ctx context.Context, c Config, pipeline string, f func(*lane.Inspection) error) (err error) {
	s, err := find(ctx, c, pipeline)
	if err != nil {
		return err
	}
	if s == nil {
		return lane.NoLanes(pipeline) //nolint:wrapcheck // says it all
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	i, err := lane.Inspect(ctx, s, pipeline)
	if err != nil {
		return err //nolint:wrapcheck // says it all
	}
	return f(i)
}

// Remove removes the lanes of a pipeline with all they hold; where there are none it does nothing. Lanes in a folder that a process has
// open are not removed: the error has code lanes.locked. A process that has those of an external server open ends with class ClassPosition.
func Remove(ctx context.Context, c Config, pipeline string) error {
	if err := c.validate(pipeline); err != nil {
		return err
	}
	if c.Dir != "" {
		return removeFolder(c, pipeline)
	}
	s, err := connect(ctx, c, pipeline)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	err = s.js.DeleteStream(ctx, s.name)
	if errors.Is(err, js.ErrStreamNotFound) {
		err = nil
	}
	if err == nil {
		s.notes, err = s.js.KeyValue(ctx, bucket)
		switch {
		case errors.Is(err, js.ErrBucketNotFound):
			err = nil
		case err == nil:
			err = s.notes.Purge(ctx, s.key)
		}
	}
	return errors.Join(s.failed("removing", err), s.Close())
}

func removeFolder(c Config, pipeline string) error {
	there, err := exists(c.Dir, pipeline)
	if err != nil || !there {
		return err
	}
	dir := folder(c.Dir, pipeline)
	lock, err := lockFolder(dir)
	if err != nil {
		return err
	}
	err = errors.Join(emptyFolder(dir), lock.Close(), os.RemoveAll(dir))
	if err != nil {
		return trouble("removing the lanes in "+dir, err)
	}
	return nil
}

// emptyFolder removes all but the lock, which is held.
func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != lockName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// find opens the storage of lanes that are there; nil: there are none.
func find(ctx context.Context, c Config, pipeline string) (*storage, error) {
	if err := c.validate(pipeline); err != nil {
		return nil, err
	}
	if c.Dir != "" {
		if there, err := exists(c.Dir, pipeline); err != nil || !there {
			return nil, err
		}
	}
	s, err := connect(ctx, c, pipeline)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	if s.stream, err = s.js.Stream(ctx, s.name); err == nil {
		s.notes, err = s.js.KeyValue(ctx, bucket)
	}
	switch {
	case errors.Is(err, js.ErrStreamNotFound), errors.Is(err, js.ErrBucketNotFound):
		return nil, s.Close()
	case err != nil:
		return nil, errors.Join(s.failed("looking at", err), s.Close())
	}
	return s, nil
}

// exists reports whether a pipeline has a folder.
func exists(dir, pipeline string) (bool, error) {
	_, err := os.Stat(folder(dir, pipeline))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, trouble("looking for the lanes", fmt.Errorf("in %s: %w", dir, err))
	}
	return true, nil
}

package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/leatdata/leat/connector"
)

// laneName is the name of the lane's manifest without its ending, and of the folder of its closed lists.
func (s *logSink) laneName() string {
	return caseless(s.start.Pipeline) + partMark + caseless(s.start.Lane)
}

// caseless makes a file name of a name that no other name shares where upper and lower case are the same.
func caseless(name string) string {
	out := stem(name)
	if out != strings.ToLower(out) && !strings.HasSuffix(out, clashMark+short(name)) {
		out += clashMark + short(name)
	}
	return out
}

const manifestEnding = ".json"

// path is a file of the log's own folder.
func (s *logSink) path(name string) string { return filepath.Join(s.root, logFolder, name) }

func (s *logSink) manifestPath() string { return s.path(s.laneName() + manifestEnding) }

// place is where a file of the log is, under its own name.
func (s *logSink) place(f logEntry) string { return filepath.Join(s.root, filepath.FromSlash(f.File)) }

// stagedPlace is where it is before it has its own name.
func (s *logSink) stagedPlace(f logEntry) string {
	return filepath.Join(filepath.Dir(s.place(f)), f.Staged)
}

// Start implements connector.Sink: it takes over the lane, gives committed files their names, and removes what was neither committed
// nor prepared.
func (s *logSink) Start(ctx context.Context, start connector.SinkStart) error {
	switch {
	case s.started || s.closed:
		return errors.New("the sink was started before")
	case ctx.Err() != nil:
		return fmt.Errorf("starting to log changes: %w", context.Cause(ctx))
	}
	s.start, s.prefix = start, temporaryPrefix(start)
	if err := s.makeFolders(); err != nil {
		return err
	}
	if err := s.locked(ctx, s.takeOver); err != nil {
		return err
	}
	s.started = true
	return nil
}

// makeFolders makes the folder of the log, durably: it is a name in its parent, and that in its own.
func (s *logSink) makeFolders() error {
	dir := filepath.Join(s.root, logFolder)
	s.env.Roundtrip("open")
	if err := s.fs.MkdirAll(dir); err != nil {
		_, found, _ := s.fs.Stat(s.root)
		if _, list := s.fs.ReadDir(s.root); found && list != nil {
			return configError(fmt.Errorf("%s is a file, and a log is a folder", s.root), "choose another name: "+s.root+"-log/")
		}
		return wrap(err, "making folder "+dir)
	}
	for ; ; dir = filepath.Dir(dir) {
		if err := s.fs.SyncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
			return wrap(err, "syncing folder "+filepath.Dir(dir))
		}
		if dir == filepath.Dir(dir) || dir == "." {
			return nil
		}
	}
}

// locked runs f with the log's lock.
func (s *logSink) locked(ctx context.Context, f func() error) error {
	l, err := s.fs.Lock(ctx, s.path(logLock))
	if err != nil {
		return wrap(err, "locking the log "+s.root)
	}
	return errors.Join(f(), l.Close())
}

// takeOver reads the manifest, catches up with it, and writes the fence; the lock is held.
func (s *logSink) takeOver() error {
	if err := s.syncDir(s.path("")); err != nil { // what an owner that died has put there must not be lost again
		return err
	}
	m, data, err := s.load()
	if err != nil {
		return err
	}
	if m.Fence > s.start.Fence {
		return s.fenced()
	}
	s.saved = data
	if err := s.name(m.Files); err != nil {
		return err
	}
	if err := s.findEpoch(m); err != nil {
		return err
	}
	s.reset(m)
	m.Fence = s.start.Fence
	unstage(m.Files)
	return s.replace(m)
}

// reset puts this value behind the newest commit.
func (s *logSink) reset(m *manifest) {
	clear(s.sets)
	for _, d := range m.Datasets {
		s.sets[d.Name] = &logSet{logDataset: d, known: true, next: d.Files + 1}
	}
	s.m, s.seq, s.open, s.finished = *m, m.Seq, 0, nil
	clear(s.temporaries)
}

// load reads the lane's manifest, or makes an empty one, which has no text.
func (s *logSink) load() (*manifest, []byte, error) {
	name := s.manifestPath()
	data, err := s.fs.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &manifest{Format: manifestFormat, Pipeline: s.start.Pipeline, Lane: s.start.Lane, Kind: s.kind}, nil, nil
	}
	if err != nil {
		return nil, nil, wrap(err, "reading "+name)
	}
	m, err := decodeManifest(data)
	switch {
	case err != nil:
		return nil, nil, manifestError(name, err)
	case m.Pipeline != s.start.Pipeline || m.Lane != s.start.Lane:
		return nil, nil, manifestError(name, fmt.Errorf("it belongs to pipeline %q, lane %q", m.Pipeline, m.Lane))
	case m.Kind != s.kind:
		return nil, nil, configError(fmt.Errorf("the log in %s is kept as %s, and this pipeline writes %s", s.root, m.Kind, s.kind),
			"say format="+m.Kind+", or log to another folder")
	}
	return m, data, nil
}

func manifestError(name string, err error) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "file.log_manifest", Doing: "reading " + name, Err: err,
		Hint: "put it back from a backup that is as new as the files; or log to another folder and start over",
	}
}

func (s *logSink) fenced() error {
	return &connector.Error{
		Class: connector.ClassFenced, Code: "file.fenced", Doing: "writing to " + s.root,
		Err:  fmt.Errorf("another process took over pipeline %q, lane %q", s.start.Pipeline, s.start.Lane),
		Hint: "only one process may run a pipeline: end the other one first",
	}
}

// unstage notes that files have their own names.
func unstage(files []logEntry) {
	for i := range files {
		files[i].Staged = ""
	}
}

// sweep removes temporary files of the lane but for those to keep; the lock is held, and an older owner can't commit any more.
func (s *logSink) sweep(keep map[string]bool) error {
	found, err := s.fs.ReadDir(s.root)
	if err != nil {
		return wrap(err, "looking for leftovers in "+s.root)
	}
	dirs := []string{s.path(""), s.path(s.laneName())}
	for _, name := range found {
		if name[0] != '.' && name != logFolder {
			dirs = append(dirs, filepath.Join(s.root, name))
		}
	}
	for _, dir := range dirs {
		names, err := s.fs.ReadDir(dir)
		if err != nil {
			continue // a file of somebody else
		}
		for _, name := range names {
			at := filepath.Join(dir, name)
			if name[0] != '.' || !strings.Contains(name, s.prefix) || !strings.HasSuffix(name, ".tmp") || keep[at] {
				continue
			}
			if err := s.remove(at); err != nil {
				return err
			}
			s.env.Log.Info("removed what a run left that did not end", logPath(at))
		}
	}
	return nil
}

// remove removes a file that may be gone already.
func (s *logSink) remove(name string) error {
	if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wrap(err, "removing "+name)
	}
	return nil
}

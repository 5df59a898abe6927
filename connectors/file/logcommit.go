package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
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

// Start implements connector.Sink: it takes over the lane, gives committed files their names, and removes what was not committed.
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
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(s.takeOver(), unlock.Close()); err != nil {
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
		found, _ := s.fs.Exists(s.root)
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

func (s *logSink) lock(ctx context.Context) (io.Closer, error) {
	l, err := s.fs.Lock(ctx, s.path(logLock))
	if err != nil {
		return nil, wrap(err, "locking the log "+s.root)
	}
	return l, nil
}

// takeOver reads the manifest, catches up with it, and writes the fence; the lock is held.
func (s *logSink) takeOver() error {
	if err := s.syncDir(s.path("")); err != nil { // what an owner that died has put there must not be lost again
		return err
	}
	m, err := s.load()
	if err != nil {
		return err
	}
	if m.Fence > s.start.Fence {
		return s.fenced()
	}
	if err := s.publish(m.Files); err != nil {
		return err
	}
	if err := s.sweep(); err != nil {
		return err
	}
	for _, d := range m.Datasets {
		s.sets[d.Name] = &logSet{logDataset: d, known: true, next: d.Files + 1}
	}
	s.seq, m.Fence = m.Seq, s.start.Fence
	unstage(m.Files)
	return s.replace(m)
}

// load reads the lane's manifest, or makes an empty one.
func (s *logSink) load() (*manifest, error) {
	name := s.manifestPath()
	data, err := s.fs.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &manifest{Format: manifestFormat, Pipeline: s.start.Pipeline, Lane: s.start.Lane, Kind: s.kind}, nil
	}
	if err != nil {
		return nil, wrap(err, "reading "+name)
	}
	m, err := decodeManifest(data)
	switch {
	case err != nil:
		return nil, manifestError(name, err)
	case m.Pipeline != s.start.Pipeline || m.Lane != s.start.Lane:
		return nil, manifestError(name, fmt.Errorf("it belongs to pipeline %q, lane %q", m.Pipeline, m.Lane))
	case m.Kind != s.kind:
		return nil, configError(fmt.Errorf("the log in %s is kept as %s, and this pipeline writes %s", s.root, m.Kind, s.kind),
			"say format="+m.Kind+", or log to another folder")
	}
	s.saved = data
	return m, nil
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

// sweep removes what was not committed; the lock is held, and an older owner can't commit any more.
func (s *logSink) sweep() error {
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
			if name[0] != '.' || !strings.Contains(name, s.prefix) || !strings.HasSuffix(name, ".tmp") {
				continue
			}
			if err := s.fs.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return wrap(err, "removing "+filepath.Join(dir, name))
			}
			s.env.Log.Info("removed what a run left that did not end", logPath(filepath.Join(dir, name)))
		}
	}
	return nil
}

// commit makes everything that was written part of the log, together with the progress.
func (s *logSink) commit(ctx context.Context, p *record.Progress) error {
	for _, name := range slices.Sorted(maps.Keys(s.sets)) {
		if set := s.sets[name]; set.file != nil {
			if err := s.finish(set); err != nil {
				return err
			}
		}
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	s.env.Roundtrip("commit")
	return errors.Join(s.commitLocked(p), unlock.Close())
}

func (s *logSink) commitLocked(p *record.Progress) error {
	if err := s.owns(); err != nil {
		return err
	}
	m := s.m
	m.Progress, m.Seq = p, s.seq
	m.Datasets, m.Files = s.datasets(), slices.Clone(s.m.Files)
	unstage(m.Files)
	if err := s.claim(); err != nil {
		return err
	}
	if err := s.present(); err != nil {
		return err
	}
	if err := s.syncFolders(s.finished, true); err != nil {
		return err
	}
	if len(m.Files) > maxListed {
		if err := s.closeList(&m); err != nil {
			return err
		}
	}
	m.Files = append(m.Files, s.finished...)
	if err := s.replace(&m); err != nil {
		return err
	}
	done := s.finished
	s.finished = nil
	for _, set := range s.sets {
		set.known = set.known || set.next > 1
	}
	if err := s.publish(done); err != nil {
		return outcome("naming files of the log "+s.root, err)
	}
	return nil
}

// owns makes sure that the manifest is as this owner wrote it. Only with the lock it stays so.
func (s *logSink) owns() error {
	name := s.manifestPath()
	data, err := s.fs.ReadFile(name)
	if err == nil && bytes.Equal(data, s.saved) {
		return nil
	}
	if err == nil {
		var m *manifest
		if m, err = decodeManifest(data); err == nil && m.Fence > s.start.Fence {
			return s.fenced()
		}
		if err == nil {
			err = errors.New("it was changed since this process wrote it, and not by an owner that came after")
		}
	}
	return manifestError(name, err)
}

// datasets lists those that have files.
func (s *logSink) datasets() []logDataset {
	var out []logDataset
	for _, name := range slices.Sorted(maps.Keys(s.sets)) {
		if set := s.sets[name]; set.next > 1 {
			set.Files = set.next - 1
			out = append(out, set.logDataset)
		}
	}
	return out
}

// claim refuses folders that another lane writes to; the lock is held.
func (s *logSink) claim() error {
	fresh := map[string]string{} // by folder
	for _, set := range s.sets {
		if !set.known && set.next > 1 {
			fresh[strings.ToLower(set.Folder)] = set.Name
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return s.taken(fresh)
}

// present makes sure that nobody has removed what is to be committed.
func (s *logSink) present() error {
	for _, f := range s.finished {
		name := filepath.Join(s.root, filepath.FromSlash(f.File), "..", f.Staged)
		found, err := s.fs.Exists(name)
		if err != nil {
			return wrap(err, "looking for "+name)
		}
		if !found {
			return &connector.Error{
				Class: connector.ClassTransient, Code: "file.log_removed", Doing: "committing " + name,
				Err:  errors.New("the file was written, and somebody has removed it"),
				Hint: "leave files whose names begin with a dot alone: they are not finished",
			}
		}
	}
	return nil
}

// taken refuses folders, in lower case and with their datasets, that another lane writes to.
func (s *logSink) taken(folders map[string]string) error {
	others, err := readManifests(s.fs, s.root, s.laneName()+manifestEnding)
	if err != nil {
		return err
	}
	for _, o := range others {
		for _, d := range o.m.Datasets {
			if name, taken := folders[strings.ToLower(d.Folder)]; taken {
				return &connector.Error{
					Class: connector.ClassConfig, Code: "file.log_taken", Doing: "logging to " + s.root, Dataset: name,
					Err:  fmt.Errorf("its folder holds the log of pipeline %q, lane %q", o.m.Pipeline, o.m.Lane),
					Hint: "log to a folder of its own; or if that pipeline is gone, move its files away and delete " + o.path,
				}
			}
		}
	}
	return nil
}

// foundManifest is a manifest in a log's folder.
type foundManifest struct {
	path string
	m    *manifest
}

// readManifests reads the manifests of a log but for one, sorted by name.
func readManifests(fsys logFS, root, except string) ([]foundManifest, error) {
	dir := filepath.Join(root, logFolder)
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, wrap(err, "reading "+dir)
	}
	slices.Sort(names)
	var out []foundManifest
	for _, name := range names {
		if name == except || name[0] == '.' || !strings.HasSuffix(name, manifestEnding) {
			continue
		}
		at := filepath.Join(dir, name)
		data, err := fsys.ReadFile(at)
		if err != nil {
			return nil, wrap(err, "reading "+at)
		}
		m, err := decodeManifest(data)
		if err != nil {
			return nil, manifestError(at, err)
		}
		out = append(out, foundManifest{at, m})
	}
	return out, nil
}

// syncFolders makes the names in the folders of files durable. before: a commit, which may be the first one of a folder.
func (s *logSink) syncFolders(files []logEntry, before bool) error {
	dirs := map[string]bool{}
	for _, f := range files {
		dirs[filepath.Join(s.root, filepath.FromSlash(f.File), "..")] = true
	}
	if before && len(dirs) > 0 {
		for _, set := range s.sets {
			if !set.known {
				dirs[s.root] = true
			}
		}
	}
	for _, d := range slices.Sorted(maps.Keys(dirs)) {
		if err := s.syncDir(d); err != nil {
			return err
		}
	}
	return nil
}

func (s *logSink) syncDir(dir string) error { return wrap(s.fs.SyncDir(dir), "syncing folder "+dir) }

// closeList moves all files of a manifest to a list of their own, so that it stays small however long the log grows.
func (s *logSink) closeList(m *manifest) error {
	data, err := encodeList(m.Files)
	if err != nil {
		return err
	}
	dir := s.path(s.laneName())
	if err := s.fs.MkdirAll(dir); err != nil {
		return wrap(err, "making folder "+dir)
	}
	if err := s.syncDir(s.path("")); err != nil {
		return err
	}
	m.Lists++
	m.Files = nil
	return s.put(filepath.Join(dir, fmt.Sprintf("%06d.jsonl", m.Lists)), data, nil)
}

// replace writes the manifest: the commit. What is under way is no longer this value's to remove from the moment on in which it may
// have become part of the log.
func (s *logSink) replace(m *manifest) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	if bytes.Equal(data, s.saved) {
		s.m = *m
		return nil
	}
	if err := s.put(s.manifestPath(), data, func() { clear(s.temporaries) }); err != nil {
		return err
	}
	s.m, s.saved = *m, data
	return nil
}

// put writes a file as a whole, durably. An error behind the call of ready means that it may be there or not.
func (s *logSink) put(name string, data []byte, ready func()) error {
	temporary := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+s.temporary())
	f, err := s.fs.Create(temporary)
	if err != nil {
		return wrap(err, "writing "+temporary)
	}
	s.temporaries[temporary] = true
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return wrap(err, "writing "+temporary)
	}
	if ready != nil {
		ready()
	}
	if err := s.fs.Rename(temporary, name); err != nil {
		return outcome("writing "+name, err)
	}
	delete(s.temporaries, temporary)
	if err := s.fs.SyncDir(filepath.Dir(name)); err != nil {
		return outcome("writing "+name, err)
	}
	return nil
}

// outcome is an error after which only the manifest tells whether the commit took place.
func outcome(doing string, err error) error {
	return &connector.Error{
		Class: connector.ClassOutcome, Code: "file.outcome", Doing: doing, Err: wrap(err, ""),
		Hint: "whether the changes were committed is read back on the next start",
	}
}

// publish gives committed files their names, in order. One that is there under neither name had its own, and a reader took it away.
func (s *logSink) publish(files []logEntry) error {
	var moved []logEntry
	for _, f := range files {
		if f.Staged == "" {
			continue
		}
		final := filepath.Join(s.root, filepath.FromSlash(f.File))
		staged := filepath.Join(filepath.Dir(final), f.Staged)
		err := s.fs.Rename(staged, final)
		if errors.Is(err, fs.ErrNotExist) { // it has its name already
			var found bool
			if found, err = s.fs.Exists(final); err == nil && !found {
				s.env.Log.Warn("a file of the log's newest commit is not there any more", logPath(final))
				continue
			}
		}
		if err != nil {
			return wrap(err, "naming "+final)
		}
		moved = append(moved, f)
	}
	return s.syncFolders(moved, false)
}

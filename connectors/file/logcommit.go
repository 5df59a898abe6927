package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// commit makes everything that was written part of the log, together with the progress, in one step.
func (s *logSink) commit(ctx context.Context, p *record.Progress) error {
	if err := s.finishAll(); err != nil {
		return err
	}
	s.env.Roundtrip("commit")
	return s.locked(ctx, func() error {
		e, err := s.seal(p)
		if err != nil {
			return err
		}
		return s.add(e)
	})
}

// finishAll completes the files under way.
func (s *logSink) finishAll() error {
	for _, name := range slices.Sorted(maps.Keys(s.sets)) {
		if set := s.sets[name]; set.file != nil {
			if err := s.finish(set); err != nil {
				return err
			}
		}
	}
	return nil
}

// seal makes an epoch of all files that are complete, durable but for a note of it; the lock is held.
func (s *logSink) seal(p *record.Progress) (*logEpoch, error) {
	if s.pending != nil {
		return nil, errPending
	}
	if err := s.owns(); err != nil {
		return nil, err
	}
	if err := s.claim(); err != nil {
		return nil, err
	}
	if err := s.present(); err != nil {
		return nil, err
	}
	if err := s.syncFolders(s.finished, true); err != nil {
		return nil, err
	}
	e := &logEpoch{
		Format: manifestFormat, Pipeline: s.start.Pipeline, Lane: s.start.Lane, Kind: s.kind, Fence: s.start.Fence,
		Commit: s.m.Commit + 1, After: s.m.Seq, Seq: s.seq, Progress: p, Datasets: []logDataset{}, Files: s.finished,
	}
	for _, name := range slices.Sorted(maps.Keys(s.sets)) {
		if set := s.sets[name]; set.next-1 > set.Files {
			e.Datasets = append(e.Datasets, logDataset{Name: set.Name, Folder: set.Folder, Files: set.next - 1})
		}
	}
	return e, nil
}

// add makes an epoch part of the log: the manifest that names its files is the commit, then they get their names; the lock is held.
func (s *logSink) add(e *logEpoch) error {
	m := s.m
	m.Progress, m.Seq, m.Commit = e.Progress, e.Seq, e.Commit
	m.Datasets, m.Files = merged(s.m.Datasets, e.Datasets), slices.Clone(s.m.Files)
	unstage(m.Files)
	if len(m.Files) > maxListed {
		if err := s.closeList(&m); err != nil {
			return err
		}
	}
	m.Files = append(m.Files, e.Files...)
	if err := s.replace(&m); err != nil {
		return err
	}
	s.seq, s.finished = m.Seq, nil
	for _, d := range e.Datasets {
		s.sets[d.Name] = &logSet{logDataset: d, known: true, next: d.Files + 1}
	}
	if err := s.name(e.Files); err != nil {
		return outcome("naming files of the log "+s.root, err)
	}
	return nil
}

// merged lists datasets by name, as the newer list says where it has them.
func merged(old, changed []logDataset) []logDataset {
	all := map[string]logDataset{}
	for _, d := range slices.Concat(old, changed) {
		all[d.Name] = d
	}
	var out []logDataset
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

var errChanged = errors.New("it was changed since this process wrote it, and not by an owner that came after")

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
			err = errChanged
		}
	}
	return manifestError(name, err)
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
		name := s.stagedPlace(f)
		_, found, err := s.fs.Stat(name)
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
	prepared, err := s.otherEpochs()
	if err != nil {
		return err
	}
	for _, o := range append(others, prepared...) {
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
		dirs[filepath.Dir(s.place(f))] = true
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

// name gives committed files their names, in order. One that is there under neither name had its own, and a reader took it away.
func (s *logSink) name(files []logEntry) error {
	var moved []logEntry
	for _, f := range files {
		if f.Staged == "" {
			continue
		}
		final := s.place(f)
		err := s.fs.Rename(s.stagedPlace(f), final)
		if errors.Is(err, fs.ErrNotExist) { // it has its name already
			var found bool
			if _, found, err = s.fs.Stat(final); err == nil && !found {
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

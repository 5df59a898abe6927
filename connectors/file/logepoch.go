package file

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// logEpoch is a commit of the log before it is one: files that are complete under their temporary names, and all that the manifest will say
// of them. Prepare returns it, and Publish needs nothing else. It is also kept in a file of the log's own folder, so that Start knows what
// was prepared and must stay.
type logEpoch struct {
	Format   int              `json:"format"`
	Pipeline string           `json:"pipeline"`
	Lane     string           `json:"lane"`
	Kind     string           `json:"kind"`
	Fence    uint64           `json:"fence"`  // of the owner that prepared it
	Commit   int64            `json:"commit"` // the number that it will have
	After    int64            `json:"after"`  // the number of the last change before it
	Seq      int64            `json:"seq"`    // the number of its last change
	Progress *record.Progress `json:"progress"`
	Datasets []logDataset     `json:"datasets"` // those that it changes
	Files    []logEntry       `json:"files"`
}

// epochFormat is the first format that has prepared epochs.
const epochFormat = 2

// epochEnding is the end of the name of the file that holds a prepared epoch; it begins with a dot, and then with the lane's name.
const epochEnding = ".epoch.json"

// errPending refuses changes while nobody has decided about the ones before.
var errPending = errors.New("an epoch is prepared: it has to be published or aborted before anything more is written")

func (s *logSink) epochPath() string { return s.path("." + s.laneName() + epochEnding) }

// encode returns the epoch as one line of JSON. The positions in it may be spaced otherwise than they were.
func (e *logEpoch) encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("encoding the prepared epoch: %w", err)
	}
	return b.Bytes(), nil
}

func decodeEpoch(data []byte) (*logEpoch, error) {
	e := &logEpoch{}
	if err := decodeStrictly(data, e, epochFormat); err != nil {
		return nil, err
	}
	if e.Progress == nil {
		return nil, errors.New("it is damaged: it has no progress")
	}
	return e, nil
}

// same reports whether both are the same epoch: temporary names are never used again.
func (e *logEpoch) same(o *logEpoch) bool {
	return e.Commit == o.Commit && e.Seq == o.Seq && slices.EqualFunc(e.Files, o.Files, func(a, b logEntry) bool {
		return a.File == b.File && a.Staged == b.Staged && a.SHA256 == b.SHA256
	})
}

// dataset is whose a file is.
func (e *logEpoch) dataset(f logEntry) logDataset {
	folder := path.Dir(f.File)
	at := slices.IndexFunc(e.Datasets, func(d logDataset) bool { return d.Folder == folder })
	if at < 0 {
		return logDataset{Name: folder, Folder: folder}
	}
	return e.Datasets[at]
}

// Prepare implements connector.TwoPhase. An epoch without files leaves nothing on the disk.
func (s *logSink) Prepare(ctx context.Context, p record.Progress) (staged json.RawMessage, err error) {
	err = s.guard(ctx, "preparing changes", func() error {
		if p.Epoch == 0 || s.m.Progress != nil && s.m.Progress.Run == p.Run && p.Epoch <= s.m.Progress.Epoch {
			return fmt.Errorf("preparing changes: epoch %d does not follow on what is committed", p.Epoch)
		}
		if _, err := p.Append(nil); err != nil {
			return fmt.Errorf("preparing changes: %w", err)
		}
		if err := s.finishAll(); err != nil {
			return err
		}
		s.env.Roundtrip("prepare")
		return s.locked(ctx, func() (err error) {
			staged, err = s.prepare(&p)
			return err
		})
	})
	return staged, err
}

// prepare writes down what was staged; the lock is held.
func (s *logSink) prepare(p *record.Progress) ([]byte, error) {
	e, err := s.seal(p)
	if err != nil {
		return nil, err
	}
	doc, err := e.encode()
	if err != nil {
		return nil, err
	}
	if len(e.Files) > 0 {
		if err := s.put(s.epochPath(), doc, func() { clear(s.temporaries) }); err != nil {
			return nil, err
		}
	}
	s.pending, s.mine, s.finished = e, true, nil
	return bytes.TrimSuffix(doc, []byte("\n")), nil
}

// Publish implements connector.TwoPhase.
func (s *logSink) Publish(ctx context.Context, p record.Progress, staged json.RawMessage) error {
	return s.guard(ctx, "publishing changes", func() error {
		e, err := s.prepared(p, staged)
		if err != nil {
			return err
		}
		s.env.Roundtrip("commit")
		return s.locked(ctx, func() error { return s.publish(e) })
	})
}

// prepared reads what Prepare returned.
func (s *logSink) prepared(p record.Progress, staged json.RawMessage) (*logEpoch, error) {
	e, err := decodeEpoch(staged)
	switch {
	case err != nil:
		return nil, s.epochError(fmt.Errorf("what was prepared can't be read: %w", err))
	case e.Pipeline != s.start.Pipeline || e.Lane != s.start.Lane || e.Kind != s.kind:
		return nil, s.epochError(fmt.Errorf("it was prepared by pipeline %q, lane %q, as %s", e.Pipeline, e.Lane, e.Kind))
	case e.Progress.Run != p.Run || e.Progress.Epoch != p.Epoch:
		return nil, s.epochError(fmt.Errorf("epoch %d of run %q was prepared, and epoch %d of run %q is to be published",
			e.Progress.Epoch, e.Progress.Run, p.Epoch, p.Run))
	}
	e.Progress = &p // byte for byte
	return e, nil
}

func (s *logSink) epochError(err error) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "file.log_epoch", Doing: "publishing changes in " + s.root, Err: err,
		Hint: "put the log's folder _leat and the pipeline's state back as they were together; or log to another folder and start over",
	}
}

// publish makes a prepared epoch part of the log, unless it is already; the lock is held. Its files are looked at before anything changes.
func (s *logSink) publish(e *logEpoch) error {
	if err := s.owns(); err != nil {
		return err
	}
	if s.m.Commit >= e.Commit {
		return s.published(e)
	}
	switch {
	case e.Commit != s.m.Commit+1 || e.After != s.m.Seq:
		return s.epochError(fmt.Errorf("the epoch is commit %d, behind change %d, and the log stands at commit %d, change %d",
			e.Commit, e.After, s.m.Commit, s.m.Seq))
	case s.open > 0 || len(s.finished) > 0:
		return errors.New("publishing changes: there are others that were written and not prepared")
	}
	mine := s.mine && s.pending != nil && s.pending.same(e)
	for _, f := range e.Files {
		if err := s.whole(e, f, mine); err != nil {
			return err
		}
	}
	if err := s.add(e); err != nil {
		return err
	}
	s.pending, s.mine = nil, false
	if len(e.Files) == 0 {
		return nil
	}
	return s.remove(s.epochPath())
}

// published makes sure that an epoch is the commit that has its number; commits before the newest one are not looked at.
func (s *logSink) published(e *logEpoch) error {
	if s.m.Commit > e.Commit {
		return nil
	}
	if p := s.m.Progress; p == nil || p.Run != e.Progress.Run || p.Epoch != e.Progress.Epoch || s.m.Seq != e.Seq {
		return s.epochError(fmt.Errorf("another epoch was published as commit %d", e.Commit))
	}
	return nil
}

// whole makes sure that a staged file is there as it was prepared, and that nothing is in its place. What this value staged itself is
// not read again.
func (s *logSink) whole(e *logEpoch, f logEntry, mine bool) error {
	name := s.stagedPlace(f)
	size, found, err := s.fs.Stat(name)
	switch {
	case err != nil:
		return wrap(err, "looking for "+name)
	case !found:
		return stagedError(name, errors.New("the file was prepared, and somebody has removed it"))
	case size != f.Bytes:
		return stagedError(name, fmt.Errorf("the file has %d bytes, and %d were prepared", size, f.Bytes))
	}
	if !mine {
		sum, err := s.digest(name)
		if err != nil {
			return wrap(err, "reading "+name)
		}
		if sum != f.SHA256 {
			return stagedError(name, errors.New("the file is damaged: its digest is not that of what was prepared"))
		}
	}
	if _, found, err := s.fs.Stat(s.place(f)); err != nil || found {
		return s.foreignFile(e.dataset(f), s.place(f), err)
	}
	return nil
}

func stagedError(name string, err error) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "file.log_staged", Doing: "publishing " + name, Err: err,
		Hint: "its changes were decided to be part of the log: put the file back from a backup; or log to another folder and start over",
	}
}

func (s *logSink) digest(name string) (string, error) {
	f, err := s.fs.Open(name)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Abort implements connector.TwoPhase. It may be called on a value that failed, which stays so.
func (s *logSink) Abort(ctx context.Context) error {
	switch {
	case s.closed || !s.started:
		return errors.New("the sink is not open")
	case ctx.Err() != nil:
		return fmt.Errorf("removing what was prepared: %w", context.Cause(ctx))
	}
	s.env.Roundtrip("abort")
	err := s.locked(ctx, s.abort)
	if s.failed == nil {
		s.failed = err
	}
	return err
}

// abort removes what was staged: first the note of it, so that the rest is removed by the next Start where this one dies. The lock is held.
func (s *logSink) abort() error {
	m, data, err := s.load()
	switch {
	case err != nil:
		return err
	case m.Fence > s.start.Fence:
		return s.fenced()
	case m.Fence < s.start.Fence:
		return manifestError(s.manifestPath(), errChanged)
	}
	if err := s.name(m.Files); err != nil { // of an epoch whose outcome this value did not hear
		return err
	}
	s.closeFiles()
	_, found, err := s.fs.Stat(s.epochPath())
	if err != nil {
		return wrap(err, "looking for "+s.epochPath())
	}
	if found {
		if err := errors.Join(s.remove(s.epochPath()), s.syncDir(s.path(""))); err != nil {
			return err
		}
	}
	if err := s.sweep(nil); err != nil {
		return err
	}
	s.reset(m)
	s.saved, s.pending, s.mine = data, nil, false
	return nil
}

// findEpoch looks for what was prepared, and removes other temporary files of the lane. A note that can't be read keeps all files: the one
// who decided knows what is in it. The lock is held.
func (s *logSink) findEpoch(m *manifest) error {
	data, err := s.fs.ReadFile(s.epochPath())
	if errors.Is(err, fs.ErrNotExist) {
		return s.sweep(nil)
	}
	if err != nil {
		return wrap(err, "reading "+s.epochPath())
	}
	e, err := decodeEpoch(data)
	if err != nil {
		s.env.Log.Warn("the note of what was prepared can't be read", logPath(s.epochPath()), slog.Any("error", err))
		return nil
	}
	keep := map[string]bool{}
	if e.Commit <= m.Commit {
		if err := s.remove(s.epochPath()); err != nil {
			return err
		}
		return s.sweep(keep)
	}
	s.pending = e
	for _, f := range e.Files {
		keep[s.stagedPlace(f)] = true
	}
	return s.sweep(keep)
}

// otherEpochs reads the prepared epochs of other lanes, as manifests that have their datasets.
func (s *logSink) otherEpochs() ([]foundManifest, error) {
	names, err := s.fs.ReadDir(s.path(""))
	if err != nil {
		return nil, wrap(err, "reading "+s.path(""))
	}
	slices.Sort(names)
	var out []foundManifest
	for _, name := range names {
		at := s.path(name)
		if at == s.epochPath() || name[0] != '.' || !strings.HasSuffix(name, epochEnding) {
			continue
		}
		data, err := s.fs.ReadFile(at)
		if err != nil {
			return nil, wrap(err, "reading "+at)
		}
		e, err := decodeEpoch(data)
		if err != nil {
			return nil, manifestError(at, err)
		}
		out = append(out, foundManifest{at, &manifest{Pipeline: e.Pipeline, Lane: e.Lane, Datasets: e.Datasets}})
	}
	return out, nil
}

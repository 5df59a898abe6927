package file

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/record"
)

// logSink keeps every change: a folder with a folder of numbered files for each dataset, and a manifest for each lane.
//
// Files are written under temporary names and synced, and an epoch of them is prepared by a note of what they are. The commit is one step:
// a manifest that names them, and holds the progress, takes the place of the old one. Then the files get their names, so that a file that
// has its name is committed for good; what a crash left in between is caught up with at the next Start. Owners of a lane are kept apart by
// a lock, which is held while the manifest is read, compared with what this owner wrote last, and replaced.
type logSink struct {
	cfg    *SinkConfig
	env    connector.Env
	fs     logFS
	kind   string // the format
	root   string
	start  connector.SinkStart
	prefix string // of what makes names temporary: only this lane removes them

	started bool
	closed  bool
	failed  error

	m     manifest // as it is committed
	saved []byte   // its text

	pending *logEpoch // prepared, and neither published nor aborted
	mine    bool      // by this value

	sets        map[string]*logSet // by dataset
	seq         int64              // the number of the last change that was written
	open        int                // files under way
	clock       int64              // counts writes
	finished    []logEntry         // complete, not committed, in order
	temporaries map[string]bool    // files that go if they are not committed
}

// logSet is a dataset on its way into the log.
type logSet struct {
	logDataset
	known bool       // the manifest has it
	next  int64      // the number of the next file
	file  *logOutput // nil: none is under way
}

var (
	_ connector.Sink     = (*logSink)(nil)
	_ connector.TwoPhase = (*logSink)(nil)
	_ connector.Mapper   = (*logSink)(nil)
	_ connector.Evolver  = (*logSink)(nil)
	_ connector.Checker  = (*logSink)(nil)
	_ connector.Named    = (*logSink)(nil)
)

const (
	logFolder  = "_leat"
	logLock    = "lock"
	maxLogOpen = 512 // files under way; the one that rests longest ends first
	maxPacked  = 64  // likewise, where each needs megabytes of memory: Parquet, compressed files
	maxListed  = 256 // files in the manifest that are older than the newest commit
)

func newLog(c *SinkConfig, env connector.Env) *logSink {
	s := &logSink{
		cfg: c, env: env, fs: c.fs, kind: c.logKind(), root: filepath.Clean(c.Path), sets: map[string]*logSet{},
		temporaries: map[string]bool{},
	}
	if s.fs == nil {
		s.fs = osLogFS{}
	}
	return s
}

// Map implements connector.Mapper.
func (s *logSink) Map(_ context.Context, schema *record.Schema) ([]connector.Mapping, error) {
	switch s.kind {
	case formatParquet:
		if err := changelog.CheckNames(schema, s.cfg.MetaPrefix); err != nil {
			return nil, err
		}
		return parquet.Mapping(schema), nil
	case formatDebezium:
		return debezium.Mapping(schema), nil
	default:
		return jsonl.Mapping(schema), nil
	}
}

// Evolve implements connector.Evolver: every file has its own columns, and other ones begin another file.
func (*logSink) Evolve(context.Context, *record.Schema, *record.Schema) error { return nil }

// Write implements connector.Sink.
func (s *logSink) Write(ctx context.Context, b *record.Batch) error {
	return s.guard(ctx, "writing changes", func() error {
		switch {
		case s.pending != nil:
			return errPending
		case b.Schema == nil:
			return nil
		}
		return s.write(b)
	})
}

// guard runs f; after an error the sink takes nothing more.
func (s *logSink) guard(ctx context.Context, doing string, f func() error) error {
	switch {
	case s.closed || !s.started:
		return errors.New("the sink is not open")
	case s.failed != nil:
		return s.failed
	case ctx.Err() != nil:
		s.failed = fmt.Errorf("%s: %w", doing, context.Cause(ctx))
		return s.failed
	}
	s.failed = f()
	return s.failed
}

func (s *logSink) write(b *record.Batch) error {
	set := s.set(b.Schema.Dataset)
	if o := set.file; o != nil && o.schema != b.Schema && !sameShape(o.schema, b.Schema) {
		if err := s.finish(set); err != nil {
			return err
		}
	}
	n := int64(changelog.Count(b))
	if set.file == nil && (n > 0 || set.next == 1) { // the first batch makes the dataset exist
		if err := s.makeRoom(); err != nil {
			return err
		}
		o, err := s.create(set, b.Schema)
		if err != nil {
			return err
		}
		set.file = o
		s.open++
	}
	if n == 0 {
		return nil
	}
	o := set.file
	if err := o.write(b, s.seq+1); err != nil {
		return wrap(err, "writing "+o.staged)
	}
	s.seq += n
	s.clock++
	o.used = s.clock
	if o.entry.Bytes >= s.cfg.FileBytes {
		return s.finish(set)
	}
	return nil
}

// sameShape reports whether rows of both schemas fit into one file.
func sameShape(a, b *record.Schema) bool {
	return slices.Equal(a.Key, b.Key) && sameColumns(a.Columns, b.Columns)
}

// set finds a dataset, or gives a new one its folder: its own name, as far as file systems take it. Names that differ only by case get
// a hash, as their folders may be the same.
func (s *logSink) set(name string) *logSet {
	if set := s.sets[name]; set != nil {
		return set
	}
	folder := stem(name)
	for _, other := range s.sets {
		if strings.EqualFold(other.Folder, folder) {
			folder = stem(name) + clashMark + short(name)
		}
	}
	set := &logSet{logDataset: logDataset{Name: name, Folder: folder}, next: 1}
	s.sets[name] = set
	return set
}

// makeRoom ends the file that rests longest, where too many are open.
func (s *logSink) makeRoom() error {
	if s.open < s.maxOpen() {
		return nil
	}
	var oldest *logSet
	for _, set := range s.sets {
		if set.file != nil && (oldest == nil || set.file.used < oldest.file.used) {
			oldest = set
		}
	}
	return s.finish(oldest)
}

func (s *logSink) maxOpen() int {
	if c := s.cfg.logCompression(); s.kind == formatParquet || c == compressGzip || c == compressZstd {
		return maxPacked
	}
	return maxLogOpen
}

// finish completes the file of a dataset.
func (s *logSink) finish(set *logSet) error {
	o := set.file
	set.file = nil
	s.open--
	if err := o.complete(); err != nil {
		return err
	}
	s.finished = append(s.finished, o.entry)
	set.next++
	return nil
}

// Flush implements connector.Sink, for use without an engine: what was written is committed, and the progress stays as it is.
func (s *logSink) Flush(ctx context.Context) error {
	return s.guard(ctx, "committing changes", func() error { return s.commit(ctx, s.m.Progress) })
}

// Committed implements connector.TwoPhase: it is read from the manifest each time.
func (s *logSink) Committed(ctx context.Context) (p record.Progress, found bool, err error) {
	err = s.guard(ctx, "reading the progress", func() error {
		m, _, err := s.load()
		if err == nil && m.Progress != nil {
			p, found = *m.Progress, true
		}
		return err
	})
	return p, found, err
}

// Close implements connector.Sink: files that were neither prepared nor committed are removed.
func (s *logSink) Close(context.Context) error {
	s.closed = true
	s.closeFiles()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.temporaries)) { // gone: another owner has cleared up
		errs = append(errs, s.remove(name))
	}
	clear(s.temporaries)
	return errors.Join(errs...)
}

// closeFiles gives up the files under way.
func (s *logSink) closeFiles() {
	for _, set := range s.sets {
		if set.file != nil {
			set.file.f.Close() //nolint:errcheck // it is removed
			set.file = nil
		}
	}
}

// URI implements connector.Named.
func (s *logSink) URI(name string) string {
	folder := stem(name)
	if set := s.sets[name]; set != nil {
		folder = set.Folder
	}
	return connector.FileURI(filepath.Join(s.root, folder), "")
}

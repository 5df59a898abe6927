package file

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/format/debezium"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/record"
)

// logOutput is a file of a log under way: it has a temporary name beside its place, and gets its own after the commit.
type logOutput struct {
	entry  logEntry
	staged string // its path
	schema *record.Schema
	used   int64 // when it was written last, see logSink.clock

	f      logFile
	sum    hash.Hash
	buffer *bufio.Writer
	packer io.WriteCloser // the compressor; nil: none
	w      changelog.Writer
}

// logBuffer collects small writes; the text formats write pieces of at least this size.
const logBuffer = 32 << 10

// logGroup is how much memory of a Parquet file's rows is held: many files may be under way.
const logGroup = 16 << 20

// fileName is the name of file n of a dataset.
func (s *logSink) fileName(n int64) string {
	kind := s.kind
	if kind == formatDebezium {
		kind = formatJSONL
	}
	return fmt.Sprintf("%012d%s", n, defaultEnding(kind, s.cfg.logCompression()))
}

// create begins the next file of a dataset.
func (s *logSink) create(set *logSet, schema *record.Schema) (*logOutput, error) {
	dir := filepath.Join(s.root, set.Folder)
	if err := s.fs.MkdirAll(dir); err != nil {
		return nil, wrap(err, "making folder "+dir)
	}
	name := s.fileName(set.next)
	if _, found, err := s.fs.Stat(filepath.Join(dir, name)); err != nil || found {
		return nil, s.foreignFile(set.logDataset, filepath.Join(dir, name), err)
	}
	o := &logOutput{
		entry: logEntry{File: path.Join(set.Folder, name), Seq: s.seq + 1, Staged: "." + name + s.temporary()},
		sum:   sha256.New(), schema: schema,
	}
	o.staged = filepath.Join(dir, o.entry.Staged)
	f, err := s.fs.Create(o.staged)
	if err != nil {
		return nil, wrap(err, "writing "+o.staged)
	}
	s.env.Roundtrip("create")
	s.temporaries[o.staged] = true
	o.f, o.buffer = f, bufio.NewWriterSize(io.MultiWriter(f, o.sum, (*byteCount)(&o.entry.Bytes)), logBuffer)
	if o.w, err = s.logWriter(o); err != nil {
		return nil, errors.Join(wrap(err, "writing "+o.staged), f.Close())
	}
	return o, nil
}

// temporary is the end of a name that nobody else uses.
func (s *logSink) temporary() string {
	var random [6]byte
	rand.Read(random[:])
	return s.prefix + hex.EncodeToString(random[:]) + ".tmp"
}

// foreignFile says why the next file of a dataset is there already.
func (s *logSink) foreignFile(d logDataset, name string, err error) error {
	if err != nil {
		return wrap(err, "looking for "+name)
	}
	if err := s.owns(); err != nil { // an owner that came after has written it
		return err
	}
	if err := s.taken(map[string]string{strings.ToLower(d.Folder): d.Name}); err != nil {
		return err
	}
	return &connector.Error{
		Class: connector.ClassPosition, Code: "file.log_foreign", Doing: "writing " + name,
		Err:  errors.New("the file exists, and the manifest of the log does not know it"),
		Hint: "the manifest is older than the files, or another program writes here: put the newest manifest back, or log elsewhere",
	}
}

// byteCount counts what is written.
type byteCount int64

func (c *byteCount) Write(p []byte) (int, error) {
	*c += byteCount(len(p))
	return len(p), nil
}

// logWriter begins the format.
func (s *logSink) logWriter(o *logOutput) (changelog.Writer, error) {
	compression := s.cfg.logCompression()
	if s.kind == formatParquet {
		p := parquet.Options{GroupBytes: logGroup}
		if compression != compressAuto {
			p.Compression = compression
		}
		return changelog.NewParquet(o.buffer, o.schema, s.cfg.MetaPrefix, p)
	}
	packer, err := newPacker(o.buffer, compression)
	if err != nil {
		return nil, err
	}
	var w io.Writer = o.buffer
	if packer != nil {
		o.packer, w = packer, packer
	}
	if s.kind == formatDebezium {
		return debezium.NewWriter(w, debezium.Options{Name: s.start.Pipeline, Now: s.env.Now}), nil
	}
	return changelog.NewJSON(w), nil
}

// write appends the changes of a batch, numbered from seq.
func (o *logOutput) write(b *record.Batch, seq int64) error {
	if err := o.w.Write(b, seq); err != nil {
		return err
	}
	o.entry.Rows += int64(changelog.Count(b))
	for i := range b.Txns {
		if t := &b.Txns[i]; t.Rows > 0 || (i == 0 && b.Truncate) {
			if o.entry.First == nil {
				o.entry.First = t.Position.Data
			}
			o.entry.Last = t.Position.Data
		}
	}
	return nil
}

// complete writes what ends the file, and syncs it.
func (o *logOutput) complete() error {
	err := o.w.Close()
	if err == nil && o.packer != nil {
		err = o.packer.Close()
	}
	if err == nil {
		err = o.buffer.Flush()
	}
	if err == nil {
		err = o.f.Sync()
	}
	if err = errors.Join(err, o.f.Close()); err != nil {
		return wrap(err, "writing "+o.staged)
	}
	o.entry.SHA256 = hex.EncodeToString(o.sum.Sum(nil))
	return nil
}

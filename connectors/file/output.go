package file

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/arrowipc"
	"github.com/leatdata/leat/format/csv"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/record"
)

// output is a file under way.
type output struct {
	dataset   string
	schema    *record.Schema
	target    string   // where it will appear
	temporary string   // where it is; empty: it is written in place, as to a device, or it has appeared
	f         *os.File // nil: standard output, or complete
	buffer    *bufio.Writer
	packer    io.WriteCloser // the compressor; nil: none
	w         format.Writer
	done      bool
}

// writeBuffer collects small writes; the text formats write pieces of at least its size, which go past it.
const writeBuffer = 64 << 10

// target is where the file of a dataset appears.
func (s *sink) target(name string) string {
	if !s.cfg.folder() {
		return s.cfg.Path
	}
	names := []string{name}
	for n := range s.planned {
		names = append(names, n)
	}
	slices.Sort(names)
	file := stems(slices.Compact(names))[name]
	if s.start.Mode == connector.Append {
		file += partMark + stem(s.start.Run)
	}
	return filepath.Join(s.dir(), file+defaultEnding(s.format, s.compression("")))
}

// compression of a file: as was said, or as its name says.
func (s *sink) compression(name string) string {
	if s.cfg.Compression == compressAuto || s.cfg.Compression == "" {
		_, _, said := named(name)
		return said
	}
	return s.cfg.Compression
}

const temporaryMark = ".leat-"

// temporaryPrefix is what the temporary names of a lane begin with, behind the name of the file: only that lane removes them.
func temporaryPrefix(start connector.SinkStart) string {
	return temporaryMark + short(start.Pipeline+"\x00"+start.Lane) + "-"
}

// sweep removes temporary files that a killed run of the same lane left.
func (s *sink) sweep(dir string) error {
	found, err := os.ReadDir(dir)
	if err != nil {
		return wrap(err, "looking for leftovers in "+dir)
	}
	own := "." + filepath.Base(s.cfg.Path) + temporaryPrefix(s.start)
	for _, f := range found {
		name := f.Name()
		mine := strings.HasPrefix(name, own)
		if s.cfg.folder() {
			mine = name[0] == '.' && strings.Contains(name, temporaryPrefix(s.start))
		}
		if !mine || !strings.HasSuffix(name, ".tmp") {
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return wrap(err, "removing "+filepath.Join(dir, name))
		}
		s.env.Log.Info("removed what a run left that did not end", logPath(filepath.Join(dir, name)))
	}
	return nil
}

// create begins the file of a dataset.
func (s *sink) create(schema *record.Schema) (*output, error) {
	o := &output{dataset: schema.Dataset, schema: schema, target: s.target(schema.Dataset)}
	w, err := s.place(o)
	if err != nil {
		return nil, wrap(err, "writing "+o.target)
	}
	o.buffer = bufio.NewWriterSize(w, writeBuffer)
	if o.w, err = s.writer(o); err != nil {
		return nil, errors.Join(wrap(err, "writing "+o.target), o.discard())
	}
	return o, nil
}

// place opens what the bytes go to.
func (s *sink) place(o *output) (io.Writer, error) {
	if s.cfg.std() {
		if s.cfg.Stdout != nil {
			return s.cfg.Stdout, nil
		}
		return os.Stdout, nil
	}
	s.env.Roundtrip("create")
	mode := fs.FileMode(0o666)
	if found, err := filepath.EvalSymlinks(o.target); err == nil {
		o.target = found // a link stays, and what it points to is replaced
		info, err := os.Stat(found)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			f, err := os.OpenFile(found, os.O_WRONLY, 0)
			o.f = f
			return f, err
		}
		mode = info.Mode().Perm()
	}
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("making a temporary name: %w", err)
	}
	name := "." + filepath.Base(o.target) + temporaryPrefix(s.start) + hex.EncodeToString(random[:]) + ".tmp"
	temporary := filepath.Join(filepath.Dir(o.target), name)
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	o.f, o.temporary = f, temporary
	if mode != 0o666 {
		if err := f.Chmod(mode); err != nil {
			return nil, errors.Join(err, o.discard())
		}
	}
	return &steady{f: f}, nil
}

// steady is a file that is written from its beginning to its end and synced then. On the way its bytes are sent to the disk, so that
// writing and what makes the rows go on side by side.
type steady struct {
	f             *os.File
	written, sent int64
}

// sendSize is how many bytes are sent to the disk at once.
const sendSize = 8 << 20

// Write implements io.Writer.
func (s *steady) Write(p []byte) (int, error) {
	n, err := s.f.Write(p)
	if s.written += int64(n); s.written-s.sent >= sendSize {
		startWriting(s.f, s.sent, s.written-s.sent)
		s.sent = s.written
	}
	return n, err
}

// How much memory of a Parquet file's rows is held: small row groups are slow to read and take more space.
const (
	mostGroup  = 64 << 20
	leastGroup = 8 << 20
)

// writer begins the format.
func (s *sink) writer(o *output) (format.Writer, error) {
	compression := s.compression(o.target)
	switch s.format {
	case formatParquet:
		p := parquet.Options{GroupBytes: max(leastGroup, s.env.Buffer(mostGroup))}
		if s.cfg.Compression != compressAuto && s.cfg.Compression != "" {
			p.Compression = s.cfg.Compression
		}
		return parquet.NewWriter(o.buffer, o.schema, p)
	case formatArrow:
		_, e, _ := named(o.target)
		a := arrowipc.Options{File: !e.stream && !s.cfg.std()}
		switch compression {
		case compressNone:
		case compressZstd:
			a.Compression = compressZstd
		default:
			return nil, configError(fmt.Errorf("compression %s is not for Arrow files", compression), "say compression=zstd or none")
		}
		return arrowipc.NewWriter(o.buffer, o.schema, a)
	}
	w, err := o.compress(compression)
	if err != nil {
		return nil, err
	}
	if s.format == formatJSONL {
		return jsonl.NewWriter(w, o.schema), nil
	}
	d := csv.Dialect{Delimiter: delimiter(s.cfg.Delimiter), Quote: s.cfg.Quote}
	if _, e, _ := named(o.target); d.Delimiter == "" {
		d.Delimiter = e.delimiter
	}
	return csv.NewWriter(w, o.schema, csv.WriterOptions{Dialect: d, NoHeader: !s.cfg.Header, Null: s.cfg.Null})
}

func (o *output) compress(compression string) (io.Writer, error) {
	packer, err := newPacker(o.buffer, compression)
	if err != nil || packer == nil {
		return o.buffer, err
	}
	o.packer = packer
	return packer, nil
}

// newPacker returns a compressor; nil: none is needed.
func newPacker(w io.Writer, compression string) (io.WriteCloser, error) {
	switch compression {
	case compressGzip:
		return gzip.NewWriter(w), nil
	case compressZstd:
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("starting zstd: %w", err)
		}
		return z, nil
	default:
		return nil, nil //nolint:nilnil // nothing is compressed
	}
}

// flush hands out what stands in the compressor and the buffer.
func (o *output) flush() error {
	if f, ok := o.packer.(flusher); ok {
		if err := f.Flush(); err != nil {
			return err
		}
	}
	return o.buffer.Flush()
}

// complete writes what ends the file, and syncs it.
func (o *output) complete() error {
	if o.done {
		return nil
	}
	if err := o.w.Close(); err != nil {
		return err
	}
	if o.packer != nil {
		if err := o.packer.Close(); err != nil {
			return err
		}
		o.packer = nil
	}
	if err := o.buffer.Flush(); err != nil {
		return err
	}
	if o.f != nil {
		if o.temporary != "" {
			if err := o.f.Sync(); err != nil {
				return err
			}
		}
		f := o.f
		o.f = nil
		if err := f.Close(); err != nil {
			return err
		}
	}
	o.done = true
	return nil
}

// appear gives a complete file its name. In mode Replace the parts that were appended before go with the file that they belonged to.
func (s *sink) appear(o *output) error {
	if err := os.Rename(o.temporary, o.target); err != nil {
		return err
	}
	o.temporary = ""
	if !s.cfg.folder() || s.start.Mode == connector.Append {
		return nil
	}
	base, _, _ := named(o.target)
	found, err := os.ReadDir(filepath.Dir(o.target))
	if err != nil {
		return err
	}
	for _, f := range found {
		part, e, _ := named(f.Name())
		if run, ok := strings.CutPrefix(part, base+partMark); ok && !strings.HasPrefix(run, partMark) && e.format == s.format {
			if err := os.Remove(filepath.Join(filepath.Dir(o.target), f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// discard closes a file, and removes it if it has not appeared.
func (o *output) discard() error {
	if z, ok := o.packer.(*zstd.Encoder); ok && !o.done {
		z.Reset(nil) // releases it without an end
	}
	o.packer = nil
	if o.f != nil {
		o.f.Close() //nolint:errcheck // it is removed
		o.f = nil
	}
	if o.temporary == "" {
		return nil
	}
	name := o.temporary
	o.temporary = ""
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wrap(err, "removing "+name)
	}
	return nil
}

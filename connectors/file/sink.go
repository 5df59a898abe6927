package file

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/arrowipc"
	"github.com/leatdata/leat/format/csv"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/record"
)

// sink writes one file, or a file for each dataset of a folder.
type sink struct {
	cfg     *SinkConfig
	env     connector.Env
	format  string
	start   connector.SinkStart
	started bool
	closed  bool
	failed  error

	planned map[string]*record.Schema // by dataset, from Map and Write
	outputs map[string]*output        // under way, by dataset
}

// evolvingSink is a sink of JSON Lines: a row has its own columns, so that new ones do no harm to the rows before.
type evolvingSink struct{ *sink }

var (
	_ connector.Sink     = (*sink)(nil)
	_ connector.Finisher = (*sink)(nil)
	_ connector.Mapper   = (*sink)(nil)
	_ connector.Checker  = (*sink)(nil)
	_ connector.Named    = (*sink)(nil)
	_ connector.Evolver  = evolvingSink{}
)

func newSink(c *SinkConfig, env connector.Env) connector.Sink {
	s := &sink{
		cfg: c, env: env, format: c.format(c.Path), planned: map[string]*record.Schema{}, outputs: map[string]*output{},
	}
	if s.format == formatJSONL {
		return evolvingSink{s}
	}
	return s
}

// dir is the folder that files are made in.
func (s *sink) dir() string {
	if s.cfg.folder() {
		return filepath.Clean(s.cfg.Path)
	}
	return filepath.Dir(s.cfg.Path)
}

// Map implements connector.Mapper.
func (s *sink) Map(_ context.Context, schema *record.Schema) ([]connector.Mapping, error) {
	s.planned[schema.Dataset] = schema
	if err := s.oneDataset(); err != nil {
		return nil, err
	}
	switch s.format {
	case formatCSV:
		return csv.Mapping(schema), nil
	case formatJSONL:
		return jsonl.Mapping(schema), nil
	case formatParquet:
		return parquet.Mapping(schema), nil
	default:
		return arrowipc.Mapping(schema), nil
	}
}

// oneDataset refuses a second dataset for one file.
func (s *sink) oneDataset() error {
	if len(s.planned) < 2 || s.cfg.folder() {
		return nil
	}
	names := slices.Sorted(maps.Keys(s.planned))
	return &connector.Error{
		Class: connector.ClassConfig, Code: "file.one_dataset", Doing: "writing " + s.cfg.Path,
		Err:  fmt.Errorf("a file holds one dataset, and there are %d: %s …", len(names), strings.Join(names[:2], ", ")),
		Hint: "a path with a slash at its end gets a file for each: " + s.folderInstead(),
	}
}

func (s *sink) folderInstead() string {
	base, _, _ := named(s.cfg.Path)
	if s.cfg.std() {
		base = "out"
	}
	return "file:" + filepath.Join(s.dir(), base) + "/?format=" + s.format
}

// Start implements connector.Sink. It removes what a run of the same pipeline left that did not end.
func (s *sink) Start(ctx context.Context, start connector.SinkStart) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting to write files: %w", err)
	}
	s.start = start
	if s.cfg.std() {
		s.started = true
		return nil
	}
	dir := s.dir()
	if s.cfg.folder() {
		if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // the umask decides, as for every program
			return wrap(err, "making folder "+dir)
		}
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return missingFolder(dir, err)
	case !info.IsDir():
		return wrap(&os.PathError{Op: "open", Path: dir, Err: errors.New("it is no folder")}, "writing to "+dir)
	}
	if info, err := os.Stat(s.cfg.Path); err == nil && info.IsDir() && !s.cfg.folder() {
		return configError(fmt.Errorf("%s is a folder", s.cfg.Path), "a slash at its end gets a file for each dataset: "+s.cfg.Path+"/")
	}
	s.started = true
	return s.sweep(dir)
}

func missingFolder(dir string, err error) error {
	out := wrap(err, "writing to "+dir)
	var e *connector.Error
	if errors.As(out, &e) && e.Code == "file.missing" {
		e.Err, e.Hint = errors.New("the folder does not exist"), "mkdir -p "+dir
	}
	return out
}

// Write implements connector.Sink.
func (s *sink) Write(ctx context.Context, b *record.Batch) error {
	switch {
	case s.closed || !s.started:
		return errors.New("the sink is not open")
	case s.failed != nil:
		return s.failed
	case ctx.Err() != nil:
		return fmt.Errorf("writing rows: %w", ctx.Err())
	}
	if b.Schema == nil {
		return nil
	}
	if err := s.write(b); err != nil {
		s.failed = err
		return err
	}
	return nil
}

func (s *sink) write(b *record.Batch) error {
	name := b.Schema.Dataset
	if b.Truncate || slices.ContainsFunc(b.Ops, func(op record.Op) bool { return op != record.Insert }) {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "file.changes", Doing: "writing " + s.cfg.Path, Dataset: name,
			Err:  errors.New("a file takes new rows only, no updates and deletes"),
			Hint: "write to a database, such as sqlite:FILE or duckdb:FILE",
		}
	}
	o := s.outputs[name]
	if o == nil {
		s.planned[name] = b.Schema
		if err := s.oneDataset(); err != nil {
			return err
		}
		var err error
		if o, err = s.create(b.Schema); err != nil {
			return err
		}
		s.outputs[name] = o
	}
	if b.Schema != o.schema && !sameColumns(b.Schema.Columns, o.schema.Columns) && s.format != formatJSONL {
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "file.schema_changed", Doing: "writing " + o.target, Dataset: name,
			Err:  errors.New("the columns changed while rows were written, and a " + s.format + " file has the same columns in all rows"),
			Hint: "write JSON Lines, or let the source find all columns first: infer=all",
		}
	}
	if err := o.w.Write(b); err != nil {
		return wrap(err, "writing "+o.target)
	}
	return nil
}

// Evolve implements connector.Evolver.
func (evolvingSink) Evolve(context.Context, *record.Schema, *record.Schema) error { return nil }

// flusher is a writer that can hand out what it buffers before its end.
type flusher interface{ Flush() error }

// Flush implements connector.Sink. Files become durable only as a whole, by Finish; standard output gets what is buffered.
func (s *sink) Flush(context.Context) error {
	if s.failed != nil {
		return s.failed
	}
	if !s.cfg.std() {
		return nil
	}
	for _, o := range s.outputs {
		if f, ok := o.w.(flusher); ok {
			if err := errors.Join(f.Flush(), o.flush()); err != nil {
				s.failed = wrap(err, "writing "+o.target)
				return s.failed
			}
		}
	}
	return nil
}

// Finish implements connector.Finisher: all files are completed and synced, then all get their names, then the folder is synced.
func (s *sink) Finish(ctx context.Context, _ record.Progress) error {
	switch {
	case s.failed != nil:
		return s.failed
	case s.closed || !s.started:
		return errors.New("the sink is not open")
	case ctx.Err() != nil:
		return fmt.Errorf("finishing files: %w", ctx.Err())
	}
	if err := s.finish(); err != nil {
		s.failed = err
		return err
	}
	return nil
}

func (s *sink) finish() error {
	names := slices.Sorted(maps.Keys(s.outputs))
	for _, n := range names {
		if err := s.outputs[n].complete(); err != nil {
			return wrap(err, "writing "+s.outputs[n].target)
		}
	}
	dirs := map[string]bool{}
	for _, n := range names {
		o := s.outputs[n]
		if o.temporary == "" {
			continue
		}
		if err := s.appear(o); err != nil {
			return wrap(err, "writing "+o.target)
		}
		dirs[filepath.Dir(o.target)] = true
	}
	for d := range dirs {
		if err := syncDir(d); err != nil {
			return wrap(err, "syncing folder "+d)
		}
	}
	return nil
}

// Close implements connector.Sink: files that were not finished are removed.
func (s *sink) Close(context.Context) error {
	s.closed = true
	var errs []error
	for _, n := range slices.Sorted(maps.Keys(s.outputs)) {
		errs = append(errs, s.outputs[n].discard())
		delete(s.outputs, n)
	}
	return errors.Join(errs...)
}

// URI implements connector.Named.
func (s *sink) URI(name string) string {
	if s.cfg.std() {
		return "file:///dev/stdout"
	}
	return connector.FileURI(s.target(name), "")
}

// typeRules is the mapping table: formats keep every type, see their packages.
func typeRules() []connector.TypeRule {
	rules := []connector.TypeRule{
		{Native: "CSV: true, false", Kind: record.Bool, Read: true},
		{Native: "CSV: digits", Kind: record.Int64, Read: true},
		{Native: "CSV: digits with a point", Kind: record.Float64, Read: true, Note: "where the float prints back the same number"},
		{Native: "CSV: YYYY-MM-DD", Kind: record.Date, Read: true},
		{Native: "CSV: YYYY-MM-DDThh:mm:ss", Kind: record.Timestamp, Read: true, Note: "with a zone: an instant"},
		{Native: "CSV: everything else", Kind: record.String, Read: true, Note: "types=COLUMN:TYPE declares any other type"},
		{Native: "JSON: true, false", Kind: record.Bool, Read: true},
		{Native: "JSON: whole number", Kind: record.Int64, Read: true},
		{Native: "JSON: number", Kind: record.Float64, Read: true, Note: "where the float prints back the same number"},
		{Native: "JSON: any other number", Kind: record.Numeric, Read: true},
		{Native: "JSON: string", Kind: record.String, Read: true},
		{Native: "JSON: object", Kind: record.Struct, Read: true, Note: "where all look alike"},
		{Native: "JSON: array", Kind: record.List, Read: true, Note: "where all look alike"},
		{Native: "JSON: values of several kinds", Kind: record.JSON, Read: true, Note: "the document is kept"},
	}
	for k := record.Bool; k <= record.Map; k++ {
		rules = append(rules, connector.TypeRule{
			Native: "CSV: text form", Kind: k, Write: true, Note: "exact when the type is declared on reading",
		})
	}
	return rules
}

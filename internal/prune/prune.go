package prune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
	"github.com/leatdata/leat/transform"
)

// Mode is what happens to rows that are gone from the source.
type Mode uint8

// The modes.
const (
	Keep Mode = iota // nothing: the default
	Hard             // they are deleted
	Soft             // the column Flag is set to true; all other columns keep their last values
)

// Flag is the column that a soft delete sets.
const Flag = "_deleted"

// FlagStep is the transform that a sink with soft deletes needs: every row that is delivered is not deleted.
func FlagStep() transform.Step {
	s, err := transform.Set([]transform.Computed{{Column: Flag, Expr: "false", Type: "bool"}})
	if err != nil {
		panic(fmt.Sprintf("prune: the type bool is known: %v", err)) // broken invariant
	}
	return s
}

// Job is one pass over one sink.
type Job struct {
	Pipeline, Lane, Run string
	Fence               uint64 // of the run that delivered the rows
	Source              connector.SourceConfig
	Sink                connector.SinkConfig
	Transforms          []transform.Step // the source's and the sink's
	Keys                map[string][]string
	Key                 []string
	Mode                Mode
	Dir                 string // for temporary files; empty: the system's
	Log                 *slog.Logger
	Now                 func() time.Time
}

// Result is what was found, by dataset of the sink.
type Result struct{ Gone map[string]int64 }

// Run compares and deletes. A dataset without a key, and a sink that can't be read back, are errors before anything is changed.
func Run(ctx context.Context, j Job) (Result, error) {
	res := Result{Gone: map[string]int64{}}
	if j.Mode == Keep {
		return res, nil
	}
	schemas, err := j.schemas(ctx)
	if err != nil {
		return res, fmt.Errorf("looking for deleted rows: %w", err)
	}
	parts, err := newParts(j.Dir)
	if err != nil {
		return res, fmt.Errorf("looking for deleted rows: %w", err)
	}
	defer parts.remove()
	for n, s := range schemas {
		if err := j.sinkKeys(ctx, parts, n, s); err != nil {
			return res, fmt.Errorf("reading the keys of %s back from sink %q: %w", s.Dataset, j.Lane, err)
		}
	}
	if err := j.sourceKeys(ctx, parts, schemas); err != nil {
		return res, fmt.Errorf("reading the keys of the source: %w", err)
	}
	return res, j.deliver(ctx, parts, schemas, res)
}

// env is an environment whose goroutines are waited for by the returned function.
func (j Job) env(ctx context.Context) (connector.Env, func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	env := connector.Env{
		Log: j.Log, Now: j.Now, Roundtrip: func(string) {},
		Go: func(f func(context.Context)) error {
			wg.Go(func() { f(ctx) })
			return nil
		},
	}
	return env, func() {
		cancel()
		wg.Wait()
	}
}

// copyOf clones a configuration, so that options can be changed.
func copyOf(cfg connector.SourceConfig) connector.SourceConfig {
	v := reflect.ValueOf(cfg)
	if v.Kind() != reflect.Pointer {
		return cfg
	}
	c := reflect.New(v.Elem().Type())
	c.Elem().Set(v.Elem())
	out, ok := reflect.TypeAssert[connector.SourceConfig](c)
	if !ok {
		return cfg
	}
	return out
}

func hasOption(cfg any, name string) bool {
	return slices.ContainsFunc(connector.Options(cfg), func(o connector.Option) bool { return o.Name == name })
}

// schemas are the datasets as the sink has them, with their keys.
func (j Job) schemas(ctx context.Context) ([]*record.Schema, error) {
	var out []*record.Schema
	err := j.withSource(ctx, j.Source, func(src connector.Source) error {
		d, ok := connector.As[connector.Discoverer](src)
		if !ok {
			return errors.New("the source can't say which datasets it has")
		}
		found, err := d.Discover(ctx)
		if err != nil {
			return err
		}
		for _, ds := range found {
			s, err := j.planned(ds.Schema)
			if err != nil {
				return err
			}
			if s == nil {
				continue
			}
			if len(s.Key) == 0 {
				return &connector.Error{
					Class: connector.ClassConfig, Code: "prune.key", Dataset: s.Dataset,
					Err:  errors.New("a dataset without a key can't be compared"),
					Hint: "name a key with --key",
				}
			}
			out = append(out, s)
		}
		return nil
	})
	return out, err
}

// planned passes a schema through the transforms and gives it its key.
func (j Job) planned(s *record.Schema) (*record.Schema, error) {
	var err error
	for _, t := range j.Transforms {
		if s, err = t.Schema(s); err != nil || s == nil {
			return nil, err
		}
	}
	key := j.Keys[s.Dataset]
	if key == nil {
		key = j.Key
	}
	if key == nil {
		return s, nil
	}
	return s.WithKey(key...)
}

func (j Job) withSource(ctx context.Context, cfg connector.SourceConfig, f func(connector.Source) error) (err error) {
	env, wait := j.env(ctx)
	defer wait()
	src, err := cfg.Open(env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close(context.WithoutCancel(ctx))) }()
	return f(src)
}

// scan reads everything that a configuration selects.
func (j Job) scan(ctx context.Context, cfg connector.SourceConfig, each func(*record.Batch) error) error {
	return j.withSource(ctx, cfg, func(src connector.Source) error {
		if err := src.Start(ctx, connector.SourceStart{}); err != nil {
			return err
		}
		for {
			b, err := src.Read(ctx, connector.Limit{Rows: scanRows, Bytes: scanBytes})
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if b == nil {
				continue
			}
			if len(b.Rejects) > 0 { // a key that can't be read is not a key that is gone
				return fmt.Errorf("a row can't be read, so nothing is taken for deleted: %w", b.Rejects[0])
			}
			if err := each(b); err != nil {
				return err
			}
		}
	})
}

const (
	scanRows  = 8192
	scanBytes = 4 << 20
)

// keyOf appends the canonical text of a row's key.
func keyOf(dst []byte, b *record.Batch, cols []int, i int) []byte {
	for _, c := range cols {
		at := len(dst)
		if !b.Rows.Column(c).IsNull(i) {
			dst = record.AppendText(dst, b.Rows.Column(c), i)
		}
		dst = fmt.Appendf(dst, "\x00%d\x00", len(dst)-at)
	}
	return dst
}

func (j Job) sinkKeys(ctx context.Context, p *parts, dataset int, s *record.Schema) error {
	env, wait := j.env(ctx)
	defer wait()
	snk, err := j.Sink.Open(env)
	if err != nil {
		return err
	}
	defer snk.Close(context.WithoutCancel(ctx)) //nolint:errcheck // never started
	rb, ok := connector.As[connector.Readback](snk)
	if !ok {
		return &connector.Error{
			Class: connector.ClassConfig, Code: "prune.readback",
			Err:  errors.New("this sink can't be read back, so deleted rows can't be found"),
			Hint: "leave --deletes out",
		}
	}
	cfg, err := rb.Readback(s.Dataset)
	if err != nil {
		return err
	}
	if hasOption(cfg, "columns") {
		columns := make([]any, 0, len(s.Key)+1)
		for _, k := range s.KeyNames() {
			columns = append(columns, k)
		}
		if j.Mode == Soft {
			columns = append(columns, Flag)
		}
		if err := connector.SetOption(cfg, "columns", columns); err != nil {
			return err
		}
	}
	var cols []int
	return j.scan(ctx, cfg, func(b *record.Batch) error {
		cols = cols[:0]
		for _, k := range s.KeyNames() {
			c := b.Schema.Column(k)
			if c < 0 {
				return fmt.Errorf("the sink has no column %q", k)
			}
			cols = append(cols, c)
		}
		flag := b.Schema.Column(Flag)
		for i := range b.NumRows() {
			if j.Mode == Soft && flag >= 0 && isTrue(b.Rows.Column(flag), i) {
				continue // marked before
			}
			if err := p.addSink(dataset, b, cols, i); err != nil {
				return err
			}
		}
		return nil
	})
}

func isTrue(a arrow.Array, i int) bool {
	if a.IsNull(i) {
		return false
	}
	s := string(record.AppendText(nil, a, i))
	return s == "true" || s == "1"
}

func (j Job) sourceKeys(ctx context.Context, p *parts, schemas []*record.Schema) error {
	cfg := copyOf(j.Source)
	if hasOption(cfg, "cursor") { // the whole table, not only what is behind the last run
		if err := connector.SetOption(cfg, "cursor", ""); err != nil {
			return err
		}
	}
	byName := make(map[string]int, len(schemas))
	for i, s := range schemas {
		byName[s.Dataset] = i
	}
	return j.scan(ctx, cfg, func(b *record.Batch) error {
		for _, t := range j.Transforms {
			var err error
			if b, err = t.Apply(b); err != nil || b == nil {
				return err
			}
		}
		n, ok := byName[b.Schema.Dataset]
		if !ok {
			return nil
		}
		if len(b.Rejects) > 0 {
			return fmt.Errorf("a row can't be transformed, so nothing is taken for deleted: %w", b.Rejects[0])
		}
		for i := range b.NumRows() {
			if err := p.addSource(n, b, schemas[n].Key, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// deliver writes the deletes, and commits them with the progress that the lane has.
func (j Job) deliver(ctx context.Context, p *parts, schemas []*record.Schema, res Result) (err error) {
	env, wait := j.env(ctx)
	defer wait()
	snk, err := j.Sink.Open(env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snk.Close(context.WithoutCancel(ctx))) }()
	if err := snk.Start(ctx, connector.SinkStart{
		Pipeline: j.Pipeline, Lane: j.Lane, Run: j.Run, Fence: j.Fence,
		Mode: connector.Upsert,
	}); err != nil {
		return err
	}
	err = p.gone(func(dataset int, keys []string) error {
		s := schemas[dataset]
		b, err := j.deletes(s, keys)
		if err != nil {
			return err
		}
		res.Gone[s.Dataset] += int64(len(keys))
		return snk.Write(ctx, b)
	})
	if err != nil || len(res.Gone) == 0 {
		return err
	}
	store, ok := connector.As[connector.PositionStore](snk)
	if !ok {
		return snk.Flush(ctx)
	}
	progress, found, err := store.Committed(ctx)
	if err != nil {
		return err
	}
	if !found {
		return snk.Flush(ctx)
	}
	return store.Commit(ctx, progress)
}

// deletes makes the changes for rows that are gone; keys are JSON arrays of the key's values.
func (j Job) deletes(s *record.Schema, keys []string) (*record.Batch, error) {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	b := &record.Batch{Schema: s, Ops: make([]record.Op, len(keys)), Changes: len(keys)}
	flag := s.Column(Flag)
	for n, k := range keys {
		vals, err := splitKey(k)
		if err != nil {
			return nil, err
		}
		for c := range s.Columns.NumFields() {
			at := slices.Index(s.Key, c)
			switch {
			case at >= 0:
				if err := record.ParseText(rb.Field(c), vals[at]); err != nil {
					return nil, fmt.Errorf("key column %q: %w", s.Columns.Field(c).Name, err)
				}
			case j.Mode == Soft && c == flag:
				if err := record.ParseText(rb.Field(c), "true"); err != nil {
					return nil, err
				}
			default:
				rb.Field(c).AppendNull()
			}
		}
		b.Ops[n] = record.Delete
	}
	b.Rows = rb.NewRecordBatch()
	if j.Mode == Soft {
		if flag < 0 {
			return nil, fmt.Errorf("dataset %s has no column %q to mark deleted rows with", s.Dataset, Flag)
		}
		b.Unchanged = map[int][]uint64{}
		for c := range s.Columns.NumFields() {
			if c != flag && !slices.Contains(s.Key, c) {
				b.Unchanged[c] = ones(len(keys))
			}
		}
		for n := range b.Ops {
			b.Ops[n] = record.Update
		}
	}
	return b, nil
}

func ones(n int) []uint64 {
	out := make([]uint64, (n+63)/64)
	for i := range out {
		out[i] = ^uint64(0)
	}
	return out
}

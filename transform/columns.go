package transform

import (
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// plan is what a step does to batches of one schema.
type plan struct {
	out   *record.Schema // nil: the dataset is dropped
	apply func(b *record.Batch) (*record.Batch, error)
}

// planned is a step that is worked out once for each schema. Sources keep the schema's pointer for as long as nothing changes.
type planned struct {
	work func(in *record.Schema) (*plan, error)

	mu   sync.Mutex
	done map[*record.Schema]*plan
}

func newPlanned(work func(in *record.Schema) (*plan, error)) *planned {
	return &planned{work: work, done: map[*record.Schema]*plan{}}
}

func (s *planned) plan(in *record.Schema) (*plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.done[in]; ok {
		return p, nil
	}
	p, err := s.work(in)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", in.Dataset, err)
	}
	s.done[in] = p
	return p, nil
}

// Schema implements Step.
func (s *planned) Schema(in *record.Schema) (*record.Schema, error) {
	p, err := s.plan(in)
	if err != nil {
		return nil, err
	}
	return p.out, nil
}

// Apply implements Step.
func (s *planned) Apply(b *record.Batch) (*record.Batch, error) {
	p, err := s.plan(b.Schema)
	if err != nil {
		return nil, err
	}
	return p.apply(b)
}

// pick makes a plan that keeps the columns with these indices, in this order, under the given fields.
func pick(in *record.Schema, keep []int, fields []arrow.Field) *plan {
	out := *in
	meta := in.Columns.Metadata()
	out.Columns = arrow.NewSchema(fields, &meta)
	out.Key = nil
	for _, k := range in.Key {
		at := slices.Index(keep, k)
		if at < 0 { // part of the key is gone: what is left identifies nothing
			out.Key = nil
			break
		}
		out.Key = append(out.Key, at)
	}
	return &plan{out: &out, apply: func(b *record.Batch) (*record.Batch, error) {
		c := *b
		c.Schema = &out
		c.Rows = pickColumns(b.Rows, keep, out.Columns)
		c.Old = pickColumns(b.Old, keep, out.Columns)
		c.Unchanged = nil
		for col, bits := range b.Unchanged {
			if at := slices.Index(keep, col); at >= 0 {
				if c.Unchanged == nil {
					c.Unchanged = map[int][]uint64{}
				}
				c.Unchanged[at] = bits
			}
		}
		return &c, nil
	}}
}

func pickColumns(rb arrow.RecordBatch, keep []int, schema *arrow.Schema) arrow.RecordBatch {
	if rb == nil {
		return nil
	}
	cols := make([]arrow.Array, len(keep))
	for i, k := range keep {
		cols[i] = rb.Column(k)
	}
	return array.NewRecordBatch(schema, cols, rb.NumRows())
}

// indices finds columns by name; all that are missing are named at once.
func indices(in *record.Schema, names []string) ([]int, error) {
	out := make([]int, len(names))
	var missing []string
	for i, n := range names {
		if out[i] = in.Column(n); out[i] < 0 {
			missing = append(missing, n)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("no column %q; the columns are %q", missing, in.Names())
	}
	return out, nil
}

// Select keeps the named columns, in this order.
func Select(columns ...string) Step {
	return newPlanned(func(in *record.Schema) (*plan, error) {
		keep, err := indices(in, columns)
		if err != nil {
			return nil, err
		}
		return pick(in, keep, fieldsAt(in, keep)), nil
	})
}

// Drop leaves the named columns out.
func Drop(columns ...string) Step {
	return newPlanned(func(in *record.Schema) (*plan, error) {
		gone, err := indices(in, columns)
		if err != nil {
			return nil, err
		}
		var keep []int
		for i := range in.Columns.NumFields() {
			if !slices.Contains(gone, i) {
				keep = append(keep, i)
			}
		}
		return pick(in, keep, fieldsAt(in, keep)), nil
	})
}

func fieldsAt(in *record.Schema, at []int) []arrow.Field {
	fields := make([]arrow.Field, len(at))
	for i, c := range at {
		fields[i] = in.Columns.Field(c)
	}
	return fields
}

// Rename gives columns new names: old to new.
func Rename(names map[string]string) Step {
	return newPlanned(func(in *record.Schema) (*plan, error) {
		if _, err := indices(in, sortedKeys(names)); err != nil {
			return nil, err
		}
		keep := make([]int, in.Columns.NumFields())
		seen := map[string]bool{}
		fields := slices.Clone(in.Columns.Fields())
		for i := range keep {
			keep[i] = i
			if to, ok := names[fields[i].Name]; ok {
				fields[i].Name = to
			}
			if seen[fields[i].Name] {
				return nil, fmt.Errorf("two columns would be named %q", fields[i].Name)
			}
			seen[fields[i].Name] = true
		}
		return pick(in, keep, fields), nil
	})
}

// Key makes the named columns the dataset's key.
func Key(columns ...string) Step {
	return newPlanned(func(in *record.Schema) (*plan, error) {
		out, err := in.WithKey(columns...)
		if err != nil {
			return nil, err
		}
		return withSchema(out), nil
	})
}

// Route gives datasets other names: old to new. Datasets that are not named keep theirs.
func Route(names map[string]string) Step {
	return newPlanned(func(in *record.Schema) (*plan, error) {
		out := *in
		if to, ok := names[in.Dataset]; ok {
			out.Dataset = to
		}
		return withSchema(&out), nil
	})
}

func withSchema(out *record.Schema) *plan {
	return &plan{out: out, apply: func(b *record.Batch) (*record.Batch, error) {
		c := *b
		c.Schema = out
		return &c, nil
	}}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

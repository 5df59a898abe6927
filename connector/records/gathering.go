package records

import (
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// gathering is the records that were polled and not handed out, sorted by dataset.
type gathering struct {
	list     []*building          // in order of their first record
	latest   map[string]*building // by dataset
	last     *building            // of the newest record; nil: none
	selected map[string]bool      // nil: all
	spare    map[*record.Schema]*building
	n        int
	bytes    int64
}

// only restricts what is gathered to a selection of datasets; empty: all.
func (g *gathering) only(datasets []string) {
	if len(datasets) == 0 {
		return
	}
	g.selected = map[string]bool{}
	for _, d := range datasets {
		g.selected[d] = true
	}
}

func (g *gathering) selects(dataset string) bool { return g.selected == nil || g.selected[dataset] }

// of returns where records of a schema are gathered. Another schema of the same dataset begins another batch, so that its rows keep
// their order.
func (g *gathering) of(s *record.Schema) *building {
	if g.last != nil && g.last.schema == s {
		return g.last
	}
	if b := g.latest[s.Dataset]; b != nil && b.schema == s {
		g.last = b
		return b
	}
	b := g.spare[s]
	if b == nil || b.used {
		b = newBuilding(g, s)
	}
	b.used = true
	if g.latest == nil {
		g.latest = map[string]*building{}
	}
	g.latest[s.Dataset], g.last = b, b
	g.list = append(g.list, b)
	return b
}

// take makes batches of all that was gathered. The builders of schemas that are in use are kept.
func (g *gathering) take() []*record.Batch {
	var out []*record.Batch
	for _, b := range g.list {
		batch := b.take()
		if g.selects(b.schema.Dataset) {
			out = append(out, batch)
		}
	}
	g.spare = make(map[*record.Schema]*building, len(g.latest))
	for _, b := range g.latest {
		b.used = false
		g.spare[b.schema] = b
	}
	clear(g.latest)
	g.list, g.last, g.n, g.bytes = g.list[:0], nil, 0, 0
	return out
}

// building is a batch of one dataset that grows.
type building struct {
	g        *gathering
	schema   *record.Schema
	used     bool
	done     []bool // of the record that is being appended: columns that are set
	rows     *array.RecordBuilder
	old      *array.RecordBuilder // nil: no record had an image before
	ops      []record.Op          // nil: all are inserts
	n        int                  // rows, those that are left out included
	unchange map[int][]uint64
	left     map[int]bool // rows that are left out: rejects
	rejects  []record.Reject
}

func newBuilding(g *gathering, s *record.Schema) *building {
	return &building{
		g: g, schema: s, rows: array.NewRecordBuilder(memory.DefaultAllocator, s.Columns), done: make([]bool, s.Columns.NumFields()),
	}
}

func (b *building) start(op record.Op) {
	clear(b.done)
	if op != record.Insert && b.ops == nil {
		b.ops = make([]record.Op, b.n, max(2*b.n, smallBatch))
	}
	if b.ops != nil {
		b.ops = append(b.ops, op)
	}
}

// before returns the builder of images before, as long as the rows that are complete.
func (b *building) before() *array.RecordBuilder {
	if b.old == nil {
		b.old = array.NewRecordBuilder(memory.DefaultAllocator, b.schema.Columns)
		for _, f := range b.old.Fields() {
			f.AppendNulls(b.n)
		}
	}
	return b.old
}

// unsent marks a value of the newest record.
func (b *building) unsent(col int) {
	const word = 64
	if b.unchange == nil {
		b.unchange = map[int][]uint64{}
	}
	for len(b.unchange[col]) <= b.n/word {
		b.unchange[col] = append(b.unchange[col], 0)
	}
	b.unchange[col][b.n/word] |= 1 << (b.n % word)
}

// finish completes the newest record; keep false: it is left out.
func (b *building) finish(r *Row, keep bool) {
	complete(b.rows, b.done)
	if b.old != nil {
		if r.old == nil {
			for _, f := range b.old.Fields() {
				f.AppendNull()
			}
		} else {
			complete(b.old, r.old.done)
			b.g.bytes += r.old.bytes
		}
	}
	if !keep {
		if b.left == nil {
			b.left = map[int]bool{}
		}
		b.left[b.n] = true
	}
	b.n++
	b.g.n++
	b.g.bytes += r.Values.bytes + rowOverhead
}

const (
	smallBatch  = 64
	rowOverhead = 8 // bytes of a row beside its values, about
)

// complete sets the columns that were left out to null.
func complete(rb *array.RecordBuilder, done []bool) {
	for i, set := range done {
		if !set {
			rb.Field(i).AppendNull()
		}
	}
}

func (b *building) reject(r record.Reject) { b.rejects = append(b.rejects, r) }

// take makes a batch of what was gathered.
func (b *building) take() *record.Batch {
	batch := &record.Batch{Schema: b.schema, Rows: b.rows.NewRecordBatch(), Ops: b.ops, Unchanged: b.unchange}
	if b.old != nil {
		batch.Old = b.old.NewRecordBatch()
	}
	for col, bits := range batch.Unchanged {
		const word = 64
		for len(bits) < (b.n+word-1)/word {
			bits = append(bits, 0)
		}
		batch.Unchanged[col] = bits
	}
	if len(b.left) > 0 {
		left := b.left
		kept, err := batch.Keep(func(i int) bool { return !left[i] })
		if err != nil {
			panic("records: leaving out rows: " + err.Error()) // of Arrow columns it always works
		}
		batch = kept
	}
	out := *batch
	out.Rejects = b.rejects
	if b.ops != nil {
		out.Changes = out.NumRows()
	}
	b.ops, b.old, b.unchange, b.left, b.rejects, b.n = nil, nil, nil, nil, nil, 0
	return &out
}

func emptyBatch(s *record.Schema) *record.Batch {
	return &record.Batch{Schema: s, Rows: array.NewRecordBuilder(memory.DefaultAllocator, s.Columns).NewRecordBatch()}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

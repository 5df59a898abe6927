package plain

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// Image says which state of a row a value belongs to.
type Image uint8

// The images.
const (
	Now Image = iota
	Before
	images
)

// Table collects the rows of one dataset.
type Table struct {
	Reading connect.Reading
	Tape    connect.Tape

	schema *record.Schema
	cols   []*column
	index  map[string]int
	guess  [][]byte
	// keyName is the column of a key that is no record.
	keyName string
	plans   map[*connect.Schema]*Plan

	turn      int64
	n         int
	old       int // rows that the builders of images before have
	size      int64
	truncate  bool
	ops       []record.Op
	changed   bool // ops has something else than inserts
	dropped   []int
	rejects   []record.Reject
	unchanged map[int][]uint64
}

// column is a column under way.
type column struct {
	field    arrow.Field
	t        record.Type
	builders [images]array.Builder
	dynamic  connect.Appender
	slots    [images]slot
}

// slot is where a value of the row under way was found.
type slot struct {
	turn int64
	cell connect.Cell
	add  connect.Appender
}

// NewTable returns a table that begins with a schema.
func NewTable(s *record.Schema, r connect.Reading) (*Table, error) {
	t := &Table{Reading: r, turn: 1}
	return t, t.bind(s)
}

// bind begins another schema; nothing is under way.
func (t *Table) bind(s *record.Schema) error {
	t.schema, t.cols, t.guess, t.index, t.plans = s, nil, nil, map[string]int{}, map[*connect.Schema]*Plan{}
	t.keyName = keyColumn
	for i, f := range s.Columns.Fields() {
		if isKey(f) {
			t.keyName = f.Name
		}
		rt, err := record.TypeOf(f.Type)
		if err != nil {
			return fmt.Errorf("dataset %s: column %q: %w", s.Dataset, f.Name, err)
		}
		c := &column{field: f, t: rt}
		if c.dynamic, err = connect.Compile(nil, rt); err != nil {
			return fmt.Errorf("dataset %s: column %q: %w", s.Dataset, f.Name, err)
		}
		c.builders[Now] = array.NewBuilder(memory.DefaultAllocator, f.Type)
		t.cols, t.index[f.Name] = append(t.cols, c), i
		key := record.AppendJSONString(nil, f.Name)
		if bytes.IndexByte(key, '\\') >= 0 {
			key = nil
		}
		t.guess = append(t.guess, key)
	}
	return nil
}

// Schema returns the schema of the next batch.
func (t *Table) Schema() *record.Schema { return t.schema }

// Rows returns how many rows and rejects are under way, and the truncation in front of them.
func (t *Table) Rows() int {
	n := t.n + len(t.rejects) - len(t.dropped)
	if t.truncate {
		n++
	}
	return n
}

// Kept returns how many rows are under way that the next batch has.
func (t *Table) Kept() int { return t.n - len(t.dropped) }

// maxBatch is how many bytes of messages a batch may be made of: the offsets of its columns are 32 bits wide.
const maxBatch = math.MaxInt32 / 8

// Full reports whether a message has no room in the batch under way.
func (t *Table) Full(m *message.Message) bool {
	return t.n > 0 && t.size+int64(len(m.Key)+len(m.Value)) > maxBatch
}

// Plan is how the fields of one schema become columns.
type Plan struct {
	cols []int
	adds []connect.Appender
}

// Plan returns how the fields of a struct become columns; nil: the columns have to change for it, see Extend.
func (t *Table) Plan(s *connect.Schema) *Plan {
	p, known := t.plans[s]
	if known {
		return p
	}
	p = &Plan{}
	for _, f := range s.Fields {
		i, ok := t.index[f.ColumnName()]
		dt, err := t.Reading.TypeOf(f.Schema)
		if !ok || err != nil || !t.keeps(i, dt) {
			return nil
		}
		add, err := connect.Compile(f.Schema, t.cols[i].t)
		if err != nil {
			return nil
		}
		p.cols, p.adds = append(p.cols, i), append(p.adds, add)
	}
	t.plans[s] = p
	return p
}

// keeps reports whether a column keeps all values of a type.
func (t *Table) keeps(i int, dt arrow.DataType) bool {
	return Declared(t.cols[i].field) || arrow.TypeEqual(connect.Join(t.cols[i].field.Type, dt), t.cols[i].field.Type)
}

// Extend changes the columns so that they keep the fields of a struct. Nothing may be under way.
func (t *Table) Extend(s *connect.Schema) error {
	next, err := Merge(t.schema, s, t.Reading)
	if err != nil {
		return err
	}
	return t.rebind(next)
}

func (t *Table) rebind(next *record.Schema) error {
	next.Version = t.schema.Version + 1
	return t.bind(next)
}

// Add adds columns at the end. Nothing may be under way.
func (t *Table) Add(fields []arrow.Field) error {
	next := *t.schema
	next.Columns = arrow.NewSchema(append(slices.Clone(t.schema.Columns.Fields()), fields...), nil)
	return t.rebind(&next)
}

// Merge returns a schema with the columns of both: new ones at the end, and types that keep what either had.
func Merge(s *record.Schema, c *connect.Schema, r connect.Reading) (*record.Schema, error) {
	fields := slices.Clone(s.Columns.Fields())
	for _, f := range c.Fields {
		dt, err := r.TypeOf(f.Schema)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", f.Name, err)
		}
		i := slices.IndexFunc(fields, func(x arrow.Field) bool { return x.Name == f.ColumnName() })
		switch {
		case i < 0:
			fields = append(fields, arrow.Field{Name: f.ColumnName(), Type: dt, Nullable: true})
		case !Declared(fields[i]):
			fields[i].Type = connect.Join(fields[i].Type, dt)
		}
	}
	next := *s
	next.Columns = arrow.NewSchema(fields, nil)
	return &next, nil
}

// metaDeclared marks columns whose type a person declared.
const metaDeclared = "leat:declared"

// Declared reports whether a person declared the type of a column.
func Declared(f arrow.Field) bool { return f.HasMetadata() && f.Metadata.FindKey(metaDeclared) >= 0 }

// declare marks a column.
func declare(f arrow.Field) arrow.Field {
	m := f.Metadata.ToMap()
	m[metaDeclared] = "true"
	f.Metadata = arrow.MetadataFrom(m)
	return f
}

// Put remembers a value of the row under way, from a field of a schema.
func (t *Table) Put(img Image, p *Plan, field int, c connect.Cell) {
	t.cols[p.cols[field]].slots[img] = slot{t.turn, c, p.adds[field]}
}

// PutAll remembers all fields of a struct.
func (t *Table) PutAll(img Image, p *Plan, cells []connect.Cell) {
	for i, c := range cells {
		if c.Kind != connect.Absent {
			t.Put(img, p, i, c)
		}
	}
}

// PutColumn remembers a value of a column that came without a schema, or with add.
func (t *Table) PutColumn(img Image, col int, c connect.Cell, add connect.Appender) {
	if add == nil {
		add = t.cols[col].dynamic
	}
	t.cols[col].slots[img] = slot{t.turn, c, add}
}

// Column finds a column by its name; -1: there is none.
func (t *Table) Column(name []byte) int {
	if i, ok := t.index[string(name)]; ok {
		return i
	}
	return -1
}

// Found returns what was put into a column for the row under way.
func (t *Table) Found(img Image, col int) (connect.Cell, bool) {
	s := t.cols[col].slots[img]
	return s.cell, s.turn == t.turn
}

// Type returns the type of a column.
func (t *Table) Type(col int) record.Type { return t.cols[col].t }

// Guess returns the names of the columns as they probably come in JSON.
func (t *Table) Guess() [][]byte { return t.guess }

// Forget leaves the row under way.
func (t *Table) Forget() { t.turn++ }

// Unchanged says that the source did not send the value of a column in the row under way.
func (t *Table) Unchanged(col int) {
	if t.unchanged == nil {
		t.unchanged = map[int][]uint64{}
	}
	bits := t.unchanged[col]
	for len(bits) <= t.n/64 {
		bits = append(bits, 0)
	}
	bits[t.n/64] |= 1 << (t.n % 64)
	t.unchanged[col] = bits
	t.cols[col].slots[Now].turn = 0
}

// Truncate says that the dataset was emptied. Nothing may be under way.
func (t *Table) Truncate() { t.truncate = true }

// Row appends what was put as one row; before: it has an image before. A value that can't be read sets the row aside.
func (t *Table) Row(m *message.Message, op record.Op, before bool) {
	t.size += int64(len(m.Key) + len(m.Value))
	bad := t.image(Now, m, false)
	if before {
		for _, c := range t.cols {
			if c.builders[Before] == nil {
				c.builders[Before] = array.NewBuilder(memory.DefaultAllocator, c.field.Type)
			}
			c.builders[Before].AppendNulls(t.n - t.old)
		}
		bad = t.image(Before, m, bad)
		t.old = t.n + 1
	}
	if bad {
		t.dropped = append(t.dropped, t.n)
	}
	t.ops = append(t.ops, op)
	t.changed = t.changed || op != record.Insert
	t.n++
	t.turn++
}

// image appends one image of the row; true: a value of it can't be read, and the row was set aside. bad: it was before.
func (t *Table) image(img Image, m *message.Message, bad bool) bool {
	for _, c := range t.cols {
		s := &c.slots[img]
		if bad || s.turn != t.turn {
			c.builders[img].AppendNull()
			continue
		}
		if err := s.add(&t.Tape, s.cell, c.builders[img]); err != nil {
			bad = true
			t.bad(m, c, s.cell, err)
		}
	}
	return bad
}

// bad sets a row aside whose row is appended all the same, and dropped later.
func (t *Table) bad(m *message.Message, c *column, cell connect.Cell, why error) {
	r := message.Reject(t.schema.Dataset, m, "bad_value", fmt.Sprintf("expected %s: %v", c.t, why))
	if !Declared(c.field) && cell.Kind == connect.Raw {
		r.Message += fmt.Sprintf("; to keep all values of the column say types=%s:json", c.field.Name)
	}
	r.Column, r.Value = c.field.Name, t.Tape.Value(cell)
	t.rejects = append(t.rejects, r)
}

// Reject sets a message aside of which nothing was appended.
func (t *Table) Reject(m *message.Message, class, why string) {
	t.rejects = append(t.rejects, message.Reject(t.schema.Dataset, m, class, why))
	t.turn++
}

// Batch hands out what was collected, nil where there is nothing.
func (t *Table) Batch() (*record.Batch, error) {
	if t.Rows() == 0 {
		return nil, nil //nolint:nilnil // as Decoder says
	}
	b := &record.Batch{Schema: t.schema, Truncate: t.truncate, Rejects: t.rejects, Size: t.size, Unchanged: t.unchanged}
	b.Rows = t.take(Now)
	if t.old > 0 {
		for _, c := range t.cols {
			c.builders[Before].AppendNulls(t.n - t.old)
		}
		b.Old = t.take(Before)
	}
	if t.changed {
		b.Ops = t.ops
	}
	b.Changes = t.n
	if t.truncate {
		b.Changes++
	}
	for col, bits := range b.Unchanged {
		for len(bits) < (t.n+63)/64 {
			bits = append(bits, 0)
		}
		b.Unchanged[col] = bits
	}
	dropped := t.dropped
	t.n, t.old, t.size, t.truncate, t.changed = 0, 0, 0, false, false
	t.ops, t.dropped, t.rejects, t.unchanged = nil, nil, nil, nil
	if len(dropped) == 0 {
		return b, nil
	}
	return b.Keep(func(i int) bool {
		_, found := slices.BinarySearch(dropped, i)
		return !found
	})
}

func (t *Table) take(img Image) arrow.RecordBatch {
	arrays := make([]arrow.Array, len(t.cols))
	for i, c := range t.cols {
		arrays[i] = c.builders[img].NewArray()
	}
	return array.NewRecordBatch(t.schema.Columns, arrays, int64(t.n))
}

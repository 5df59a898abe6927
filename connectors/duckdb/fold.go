//go:build cgo && duckdb_arrow

package duckdb

import (
	"errors"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// fold works out what many changes do to each key in all, so that they are applied with a few statements. It knows the table's rows by
// their keys only: an occupant says where the values of a row are, which may be the table.
//
// Inside a transaction of the source two rows may have one key for a moment. Then the one that came first is meant by what moves or
// deletes a row of the key, unless the image before the change is whole and tells; and what is written under the key concerns the one that
// came last. At the transaction's end the last one has the key.
type fold struct {
	set    *set
	in     []gathered
	slots  []slot
	index  map[string]int32
	rows   []occupant
	exists map[string]bool // of keys that rows move from or to: whether the table has a row
	shared []int32         // slots that may have several rows
	refuse []refusal
	buf    []byte
}

// gathered is a batch without the rows that were refused when it came.
type gathered struct {
	*record.Batch
	skip map[int]bool
}

// pick names a row of a batch, or the image before it. A batch of -1 means none.
type pick struct {
	batch, row int32
	old        bool
}

func none() pick { return pick{batch: -1} }

// slot is one key.
type slot struct {
	key  string
	at   pick  // an image that has the key
	own  bool  // the row that the table has under the key, if any, is untouched
	only int32 // the first other row of the key; -1: none
	more []int32
}

// occupant is a row as it will be.
type occupant struct {
	last   pick     // its newest row; none: it was parked
	part   *partial // nil: all its values are those of last
	base   int32    // the slot under whose key the table has it; -1: it is new
	parked int64    // its number among the parked rows; 0: it is not among them
}

// partial is where the values of a row are that was not sent whole.
type partial struct {
	cells []pick // by column; none: the table, or the parked row, has the value
	needs []pick // rows that lack a value which only the table has
}

// refusal is a row that can't be applied.
type refusal struct {
	pick
	column string
	err    error
}

var (
	errMissing = errors.New("the source did not send this unchanged value, and the table does not have the row")
	errNoImage = errors.New("the source did not send the row as it was before, and the dataset has no key")
	errNullKey = errors.New("the key is NULL")
	errNull    = errors.New("the table has NOT NULL here, and the value is NULL")
	errOldKey  = errors.New("only a part of the key before the change is known")
)

// keyText is the key of a row, comparable.
func (f *fold) keyText(rb arrow.RecordBatch, i int) string {
	f.buf = f.buf[:0]
	for _, k := range f.set.schema.Key {
		at := len(f.buf)
		f.buf = record.AppendText(f.buf, rb.Column(k), i)
		f.buf = append(strconv.AppendInt(append(f.buf, 0), int64(len(f.buf)-at), 10), 0)
	}
	return string(f.buf)
}

func newFold(x *set) *fold {
	f := &fold{set: x, in: slices.Clip(x.gathered), index: make(map[string]int32, x.rows), exists: map[string]bool{}}
	for _, p := range x.parked { // rows that wait since an earlier fold
		f.in = append(f.in, gathered{Batch: &record.Batch{Schema: x.schema, Rows: x.keyRow(p.keys)}})
		s := f.slot(p.key, pick{batch: int32(len(f.in) - 1)})
		f.exists[p.key] = true
		f.rows = append(f.rows, occupant{last: none(), part: f.asItIs(), base: -1, parked: p.number})
		f.push(s, int32(len(f.rows)-1))
	}
	return f
}

// keyRow makes a row of which only the key is known.
func (x *set) keyRow(keys []arrow.Array) arrow.RecordBatch {
	cols := make([]arrow.Array, len(x.columns))
	for c, f := range x.schema.Columns.Fields() {
		cols[c] = array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, 1)
	}
	for n, k := range x.schema.Key {
		cols[k] = keys[n]
	}
	return array.NewRecordBatch(x.schema.Columns, cols, 1)
}

// run folds every gathered row. ends: the source's transaction is complete.
func (f *fold) run(ends bool) {
	for n, g := range f.set.gathered {
		run, end := -1, 0
		for i := range g.NumRows() {
			for i >= end && run+1 < len(g.Txns) {
				run++
				end += g.Txns[run].Rows
				f.enter(g.Txns[run])
			}
			if !g.skip[i] {
				f.take(n, i)
			}
		}
		if !g.Position.Zero() {
			f.settle()
			f.set.txn = record.Position{}
		}
	}
	if ends {
		f.settle()
	}
}

// enter begins a transaction of the source, or goes on with it.
func (f *fold) enter(t record.Txn) {
	if t.Rows > 0 && !f.set.txn.Equal(t.Position) {
		f.settle()
		f.set.txn = t.Position
	}
}

func (f *fold) slot(key string, at pick) int32 {
	if i, ok := f.index[key]; ok {
		return i
	}
	i := int32(len(f.slots))
	f.slots = append(f.slots, slot{key: key, at: at, own: true, only: -1})
	f.index[key] = i
	return i
}

// last returns the newest row of a key besides the table's own, or -1.
func (s *slot) last() int32 {
	if n := len(s.more); n > 0 {
		return s.more[n-1]
	}
	return s.only
}

func (f *fold) push(at, o int32) {
	s := &f.slots[at]
	if s.only < 0 {
		s.only = o
	} else {
		s.more = append(s.more, o)
	}
	if s.own || len(s.more) > 0 {
		f.shared = append(f.shared, at)
	}
}

func (s *slot) remove(o int32) {
	if s.only != o {
		s.more = slices.DeleteFunc(s.more, func(m int32) bool { return m == o })
		return
	}
	s.only = -1
	if len(s.more) > 0 {
		s.only, s.more = s.more[0], s.more[1:]
	}
}

// hasOwn reports whether the table's own row is there; maybe where nobody asked.
func (f *fold) hasOwn(s *slot) (has, sure bool) {
	if !s.own {
		return false, true
	}
	has, sure = f.exists[s.key]
	return has || !sure, sure
}

// several reports whether two rows have the key now.
func (f *fold) several(s *slot) bool {
	if len(s.more) > 0 {
		return true
	}
	has, sure := f.hasOwn(s)
	return s.only >= 0 && has && sure
}

// take folds one row.
func (f *fold) take(n, i int) {
	b := f.in[n].Batch
	at := pick{batch: int32(n), row: int32(i)}
	s := f.slot(f.keyText(b.Rows, i), at)
	switch {
	case b.Op(i) == record.Delete:
		f.leave(s, b.Rows, i)
	case b.KeyMoved(i):
		f.move(s, at)
	default:
		f.put(s, at)
	}
}

// put writes a row under its key.
func (f *fold) put(at int32, p pick) {
	s := &f.slots[at]
	o := s.last()
	if o >= 0 && f.several(s) {
		o = f.addressed(s, p)
	}
	if o >= 0 {
		f.write(&f.rows[o], p)
		return
	}
	row := occupant{last: none(), base: -1}
	if has, _ := f.hasOwn(s); has {
		row.base = at
	}
	if !f.write(&row, p) {
		return
	}
	f.rows = append(f.rows, row)
	s.own = false
	o = int32(len(f.rows) - 1)
	if s.only >= 0 { // it is the oldest of several
		s.more = slices.Insert(s.more, 0, s.only)
	}
	s.only = o
}

// addressed returns which of several rows is written; -1: the table's own.
func (f *fold) addressed(s *slot, p pick) int32 {
	b := f.in[p.batch].Batch
	i := int(p.row)
	if b.Old == nil || b.Op(i) != record.Update || !f.whole(b.Old, i) {
		return s.last()
	}
	if o := f.match(s, b.Old, i); o >= 0 {
		return o
	}
	if s.own {
		return -1
	}
	return s.only
}

// whole reports whether an image has more than a key.
func (f *fold) whole(image arrow.RecordBatch, i int) bool {
	for c, col := range image.Columns() {
		if !slices.Contains(f.set.schema.Key, c) && !col.IsNull(i) {
			return true
		}
	}
	return false
}

// match returns the row of a key that equals a whole image, or -1.
func (f *fold) match(s *slot, image arrow.RecordBatch, i int) int32 {
	if s.only < 0 || !f.whole(image, i) {
		return -1
	}
	for _, o := range append([]int32{s.only}, s.more...) {
		equal := true
		for c, col := range image.Columns() {
			p := f.rows[o].cell(c)
			if p.batch < 0 {
				equal = false // only the table knows: such rows come without whole images
				break
			}
			own := f.column(p, c)
			equal = equal && array.SliceEqual(own, int64(p.row), int64(p.row)+1, col, int64(i), int64(i)+1)
		}
		if equal {
			return o
		}
	}
	return -1
}

// cell is where the value of a column is.
func (o *occupant) cell(c int) pick {
	if o.part != nil {
		return o.part.cells[c]
	}
	return o.last
}

// column is the column that a pick points into.
func (f *fold) column(p pick, c int) arrow.Array {
	if p.old {
		return f.in[p.batch].Old.Column(c)
	}
	return f.in[p.batch].Rows.Column(c)
}

// write puts the values of a row over those of an occupant; what was not sent stays. false: a value is known to nobody.
func (f *fold) write(o *occupant, p pick) bool {
	b := f.in[p.batch].Batch
	if !hasUnchanged(b, int(p.row)) {
		o.last, o.part = p, nil
		return true
	}
	cells := make([]pick, len(f.set.columns))
	lacking := -1
	for c := range cells {
		cells[c] = p
		if !b.IsUnchanged(c, int(p.row)) {
			continue
		}
		if b.Old != nil && !b.Old.Column(c).IsNull(int(p.row)) {
			cells[c].old = true
			continue
		}
		if cells[c] = o.cell(c); cells[c].batch < 0 && lacking < 0 {
			lacking = c
		}
	}
	if lacking >= 0 && o.base < 0 && o.parked == 0 {
		f.refuse = append(f.refuse, refusal{pick: p, column: b.Rows.ColumnName(lacking), err: errMissing})
		return false
	}
	part := &partial{cells: cells}
	if lacking >= 0 {
		if o.part != nil {
			part.needs = o.part.needs
		}
		part.needs = append(part.needs, p)
	}
	o.last, o.part = p, part
	return true
}

func hasUnchanged(b *record.Batch, i int) bool {
	for col := range b.Unchanged {
		if b.IsUnchanged(col, i) {
			return true
		}
	}
	return false
}

// leave takes the row that an image means out of its slot: one that the fold has, or the table's own; neither: there is none.
func (f *fold) leave(at int32, image arrow.RecordBatch, i int) (o int32, own bool) {
	s := &f.slots[at]
	if f.several(s) {
		if o = f.match(s, image, i); o >= 0 {
			s.remove(o)
			return o, false
		}
	}
	if has, _ := f.hasOwn(s); has {
		s.own = false
		return -1, true
	}
	s.own = false
	if o = s.only; o >= 0 {
		s.remove(o)
	}
	return o, false
}

// move takes a row from its old key to the new one.
func (f *fold) move(to int32, p pick) {
	b, i := f.in[p.batch].Batch, int(p.row)
	from := f.slot(f.keyText(b.Old, i), pick{batch: p.batch, row: p.row, old: true})
	o, own := f.leave(from, b.Old, i)
	switch {
	case own:
		f.rows = append(f.rows, occupant{last: none(), base: from, part: f.asItIs()})
		o = int32(len(f.rows) - 1)
	case o < 0: // what the new key has is an older state of the same row
		f.arriveNew(to, p)
		return
	}
	f.write(&f.rows[o], p)
	s := &f.slots[to]
	if has, _ := f.hasOwn(s); !has {
		s.own = false
	}
	f.push(to, o)
}

// asItIs says that all values are those of the table, or of the parked row.
func (f *fold) asItIs() *partial {
	return &partial{cells: slices.Repeat([]pick{none()}, len(f.set.columns))}
}

// arriveNew writes a row whose old key the table lacks under its new one.
func (f *fold) arriveNew(to int32, p pick) {
	b := f.in[p.batch].Batch
	for c := range f.set.columns {
		if b.IsUnchanged(c, int(p.row)) && b.Old.Column(c).IsNull(int(p.row)) {
			f.refuse = append(f.refuse, refusal{pick: p, column: b.Rows.ColumnName(c), err: errMissing})
			return
		}
	}
	f.put(to, p)
}

// settle ends a transaction of the source: the last row of each key is the one that has it.
func (f *fold) settle() {
	for _, at := range f.shared {
		s := &f.slots[at]
		if o := s.last(); o >= 0 && f.several(s) {
			s.own, s.only, s.more = false, o, nil
		}
	}
	f.shared = f.shared[:0]
}

// moves returns the keys that rows move from and to, each once.
func (f *fold) moves() ([]string, []pick) {
	var keys []string
	var at []pick
	seen := map[string]bool{}
	note := func(rb arrow.RecordBatch, p pick) {
		if key := f.keyText(rb, int(p.row)); !seen[key] {
			seen[key] = true
			keys, at = append(keys, key), append(at, p)
		}
	}
	for n, g := range f.set.gathered {
		if g.Old == nil {
			continue
		}
		for i := range g.NumRows() {
			if g.KeyMoved(i) && !g.skip[i] {
				p := pick{batch: int32(n), row: int32(i)}
				note(g.Rows, p)
				p.old = true
				note(g.Old, p)
			}
		}
	}
	return keys, at
}

// rowErrors are the refused rows of the batch that came last, and an error if there are others, which would be lost.
func (x *set) rowErrors(list []gathered, refused []refusal) (*connector.RowErrors, error) {
	out := &connector.RowErrors{}
	for _, r := range refused {
		b := list[r.batch].Batch
		e := connector.RowError{Index: int(r.row), Reject: record.Reject{
			Dataset: x.dataset, Key: b.KeyJSON(int(r.row)), Column: r.column, Class: "refused_by_sink", Message: r.err.Error(),
			Raw: b.RowJSON(int(r.row)),
		}}
		if int(r.batch) != len(list)-1 {
			return nil, &connector.Error{
				Class: connector.ClassPermanent, Code: "duckdb.row", Doing: "duckdb: writing rows", Dataset: x.dataset, Column: r.column,
				Err: e.Reject,
			}
		}
		out.Rows = append(out.Rows, e)
	}
	slices.SortFunc(out.Rows, func(a, b connector.RowError) int { return a.Index - b.Index })
	return out, nil
}

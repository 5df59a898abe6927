package pgoutput

import (
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// RowColumn says where a relation's column goes.
type RowColumn struct {
	Target int         // the schema's column; -1: it is left out
	Type   pgcopy.Type // the wire type, as for a COPY of the column
	// Binary says that Type describes the column's own send function, so that values may come in binary. Without it, as for types that
	// a COPY converts to text first, a binary value is an error: it would be taken for something else.
	Binary bool
}

// Options are the checks of a Rows.
type Options struct {
	CheckUTF8 bool // set rows aside whose text is not valid UTF-8: for servers that don't vouch for it
}

// Errors that Insert, Update and Delete return; the change was not added then, and what was collected before is still there.
var (
	// ErrColumns says that the tuple is not of the relation that the columns were made for.
	ErrColumns = errors.New("the tuple has another number of columns than the relation")
	// ErrBinary says that a value came in binary where only text is understood: read the stream with binary 'false'.
	ErrBinary = errors.New("a binary value of a type that is read only as text")
	// ErrKey says that the key is not, or not wholly, in what the server sends of the row before: REPLICA IDENTITY leaves it out.
	ErrKey = errors.New("the replica identity does not have the whole key")
)

// Rows collects changes of one relation into a record.Batch. It is not safe for concurrent use.
//
// A change with a value that its column can't hold, such as NaN in a decimal, is set aside as a record.Reject of the batch and adds no
// row. That is judged by the row after the change. Of the row before only the key counts, or all of it where the schema has no key:
// other values of it that their columns can't hold are left null, which says unknown there. So an update that repairs such a row, and a
// delete of it, go through.
type Rows struct {
	schema *record.Schema
	cols   []RowColumn
	slots  []slot // of each of cols
	isKey  []bool // by column of the schema

	now, before image // before is as long as its last row that is not null

	rows      int
	lastRows  int // of the batch before
	changes   int
	size      int64
	ops       []record.Op // nil: all Insert so far
	hasOld    bool
	unchanged [][]uint64 // by column of the schema
	touched   []int      // columns of the row under way whose value was not sent
	rejects   []record.Reject
}

// slot is what of a RowColumn is asked for each value.
type slot struct {
	target int32
	binary bool
}

// image is one side of the changes.
type image []*pgcopy.Builder

// NewRows makes a collector for a relation whose columns, in the order of the Relation message, go where columns says. Each column of
// the schema must have exactly one source. It is an error where a wire type has no exact way into its column.
func NewRows(schema *record.Schema, columns []RowColumn, o Options) (*Rows, error) {
	n := schema.Columns.NumFields()
	r := &Rows{schema: schema, cols: columns, slots: make([]slot, len(columns)), isKey: make([]bool, n), unchanged: make([][]uint64, n)}
	for i, c := range columns {
		r.slots[i] = slot{target: int32(c.Target), binary: c.Binary}
	}
	for _, k := range schema.Key {
		r.isKey[k] = true
	}
	var err error
	if r.now, err = r.image(schema.Columns, o.CheckUTF8); err != nil {
		return nil, err
	}
	if r.before, err = r.image(schema.Columns, o.CheckUTF8); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Rows) image(columns *arrow.Schema, checkUTF8 bool) (image, error) {
	im := make(image, len(r.isKey))
	for j, c := range r.cols {
		switch {
		case c.Target < 0:
			continue
		case c.Target >= len(im):
			return nil, fmt.Errorf("dataset %s has no column %d", r.schema.Dataset, c.Target)
		}
		f := columns.Field(c.Target)
		if im[c.Target] != nil {
			return nil, fmt.Errorf("dataset %s, column %q: two columns of the relation go there", r.schema.Dataset, f.Name)
		}
		b, err := pgcopy.NewBuilder(c.Type, f.Type, checkUTF8)
		if err != nil {
			return nil, fmt.Errorf("dataset %s, column %q: column %d of the relation: %w", r.schema.Dataset, f.Name, j+1, err)
		}
		im[c.Target] = b
	}
	if at := slices.Index(im, nil); at >= 0 {
		return nil, fmt.Errorf("dataset %s, column %q: no column of the relation goes there", r.schema.Dataset, columns.Field(at).Name)
	}
	return im, nil
}

// Insert adds a new row.
func (r *Rows) Insert(row Tuple) error {
	return r.add(record.Insert, 0, Tuple{}, row)
}

// Update adds a changed row; the arguments are the fields of the message. A value that was not sent because it is stored out of line
// and did not change is taken from the row before where that has it, and otherwise marked in Unchanged.
func (r *Rows) Update(oldKind byte, old, row Tuple) error {
	return r.add(record.Update, oldKind, old, row)
}

// Delete adds a deleted row; the arguments are the fields of the message. Columns that are not in it become null.
func (r *Rows) Delete(oldKind byte, old Tuple) error {
	return r.add(record.Delete, oldKind, Tuple{}, old)
}

// Len returns the number of rows collected, without those set aside.
func (r *Rows) Len() int { return r.rows }

// Size returns the bytes of the tuples collected, with those set aside.
func (r *Rows) Size() int64 { return r.size }

// add takes one change. For a delete, row is what is left of it.
func (r *Rows) add(op record.Op, oldKind byte, old, row Tuple) error {
	if row.n != len(r.cols) || (old.n != len(r.cols) && op == record.Update && oldKind != 0) {
		return fmt.Errorf("dataset %s: %w", r.schema.Dataset, ErrColumns)
	}
	r.touched = r.touched[:0]
	now := part{row: row, unsent: &r.touched}
	switch {
	case op == record.Delete:
		now = part{row: row, before: true, identity: oldKind == 'K'}
	case oldKind != 0:
		now.fill = old
	}
	err := r.put(r.now, &now)
	if err == nil && op == record.Update && oldKind != 0 {
		r.pad()
		if err = r.put(r.before, &part{row: old, before: true, identity: oldKind == 'K'}); err != nil {
			r.pop(r.now, len(r.cols))
		}
		r.hasOld = r.hasOld || err == nil
	}
	if err == nil {
		r.keep(op)
	} else if err = r.reject(now, err); err != nil {
		return fmt.Errorf("dataset %s: %w", r.schema.Dataset, err)
	}
	r.changes++
	r.size += int64(len(row.data) + len(old.data))
	return nil
}

// part is one side of a change on its way into an image.
type part struct {
	row      Tuple
	fill     Tuple  // the row before, where values that were not sent may be found
	before   bool   // the row is the one before: values that are no part of the key may be left out
	identity bool   // the row has only the columns of the replica identity, all others are null
	unsent   *[]int // gets the columns that were not sent
}

// refusal is a value that its column can't hold.
type refusal struct {
	target int
	part   part
	why    error
}

// Error implements error.
func (e *refusal) Error() string { return e.why.Error() }

// put adds a row to an image, wholly or not at all.
func (r *Rows) put(im image, p *part) error {
	row, fill, filled := cursor(p.row.data), cursor(p.fill.data), 0
	for j, c := range r.slots {
		kind, v := row.next()
		if kind == kindUnchanged && len(p.fill.data) > 0 {
			for ; filled < j; filled++ {
				fill.next()
			}
			if k, sent := fill.next(); sent != nil {
				kind, v = k, sent
			}
			filled++
		}
		if c.target < 0 {
			continue
		}
		var err error
		switch {
		case kind == kindBinary && c.binary:
			err = im[c.target].Append(v)
		case kind == kindText:
			err = im[c.target].AppendText(v)
		case kind == kindBinary:
			err = ErrBinary
		default:
			err = r.absent(im, int(c.target), kind, p)
		}
		if err != nil {
			if err = r.refuse(im, int(c.target), err, p); err != nil {
				r.pop(im, j)
				return err
			}
		}
	}
	return nil
}

// refuse leaves out a value that may be left out, and otherwise says what is wrong.
func (r *Rows) refuse(im image, target int, err error, p *part) error {
	switch {
	case !pgcopy.Refused(err):
		return fmt.Errorf("column %q: %w", r.schema.Columns.Field(target).Name, err)
	case p.before && len(r.schema.Key) > 0 && !r.isKey[target]:
		im[target].AppendNull()
		return nil
	default:
		return &refusal{target: target, part: *p, why: err}
	}
}

// absent adds a null for a value that is null, or that was not sent.
func (r *Rows) absent(im image, target int, kind byte, p *part) error {
	unsent := kind == kindUnchanged || p.identity
	if unsent && r.isKey[target] {
		return ErrKey
	}
	if unsent && p.unsent != nil {
		*p.unsent = append(*p.unsent, target)
	}
	im[target].AppendNull()
	return nil
}

// pop takes back the values of the first n columns of the relation.
func (r *Rows) pop(im image, n int) {
	for _, c := range r.slots[:n] {
		if c.target >= 0 {
			im[c.target].Pop()
		}
	}
}

// pad makes the rows before as many as there are rows.
func (r *Rows) pad() {
	for _, b := range r.before {
		for b.Len() < r.rows {
			b.AppendNull()
		}
	}
}

// keep counts the row that was put.
func (r *Rows) keep(op record.Op) {
	if r.ops == nil && op != record.Insert {
		r.ops = make([]record.Op, r.rows, max(r.rows+1, r.lastRows))
	}
	if r.ops != nil {
		r.ops = append(r.ops, op)
	}
	for _, c := range r.touched {
		r.unchanged[c] = widen(r.unchanged[c], r.rows+1)
		r.unchanged[c][r.rows/64] |= 1 << (r.rows % 64)
	}
	r.rows++
}

// widen makes a bitmap as long as the rows need.
func widen(bits []uint64, rows int) []uint64 {
	for len(bits) < (rows+63)/64 {
		bits = append(bits, 0)
	}
	return bits
}

// reject sets a change aside where why is a refusal. It is shown as the row after it; for a delete, as what is left of the row.
func (r *Rows) reject(now part, why error) error {
	refused, ok := errors.AsType[*refusal](why)
	if !ok {
		return why
	}
	b, err := r.show(now)
	if err != nil {
		return err
	}
	column := r.schema.Columns.Field(refused.target).Name
	out := pgcopy.RejectOf(b, 0, column, refused.why)
	if refused.part.before && !now.before {
		if b, err = r.show(refused.part); err != nil {
			return err
		}
		out.Value = pgcopy.RejectOf(b, 0, column, refused.why).Value
		out.Message = "in the row before the change: " + out.Message
	}
	r.rejects = append(r.rejects, out)
	return nil
}

// show returns a batch of one row, of the columns that were sent, in types that hold every value.
func (r *Rows) show(p part) (*record.Batch, error) {
	fields := r.schema.Columns.Fields()
	for i := range fields {
		fields[i].Type = pgcopy.Lenient(fields[i].Type)
	}
	im, err := r.image(arrow.NewSchema(fields, nil), false)
	if err != nil {
		return nil, err
	}
	var unsent []int
	p.unsent = &unsent
	if err := r.put(im, &p); err != nil {
		return nil, err
	}
	schema := &record.Schema{Dataset: r.schema.Dataset}
	var sent []arrow.Field
	var cols []arrow.Array
	at := make([]int, len(fields))
	for i, f := range fields {
		at[i] = len(sent)
		if !slices.Contains(unsent, i) {
			sent, cols = append(sent, f), append(cols, im[i].Take())
		}
	}
	for _, k := range r.schema.Key {
		schema.Key = append(schema.Key, at[k]) // put refuses rows whose key was not sent
	}
	schema.Columns = arrow.NewSchema(sent, nil)
	return &record.Batch{Schema: schema, Rows: array.NewRecordBatch(schema.Columns, cols, 1)}, nil
}

// Take returns what was collected and starts anew; nil where no change was. Ops is nil where all rows are inserts, Old where no row
// before is known, Unchanged where every value was sent. Changes and Size count what was set aside too. Position and Txns are the
// caller's to set.
func (r *Rows) Take() *record.Batch {
	if r.changes == 0 {
		return nil
	}
	b := &record.Batch{Schema: r.schema, Ops: r.ops, Rejects: r.rejects, Changes: r.changes, Size: r.size}
	b.Rows = r.now.take(r.schema, r.rows)
	if r.hasOld {
		r.pad()
		b.Old = r.before.take(r.schema, r.rows)
	}
	for _, old := range r.before { // nulls before a row that was set aside
		for old.Len() > 0 {
			old.Pop()
		}
	}
	for c, bits := range r.unchanged {
		if bits == nil {
			continue
		}
		if b.Unchanged == nil {
			b.Unchanged = map[int][]uint64{}
		}
		b.Unchanged[c], r.unchanged[c] = widen(bits, r.rows), nil
	}
	r.lastRows, r.rows, r.changes, r.size = r.rows, 0, 0, 0
	r.ops, r.rejects, r.hasOld = nil, nil, false
	return b
}

func (im image) take(schema *record.Schema, rows int) arrow.RecordBatch {
	cols := make([]arrow.Array, len(im))
	for i, b := range im {
		cols[i] = b.Take()
	}
	return array.NewRecordBatch(schema.Columns, cols, int64(rows))
}

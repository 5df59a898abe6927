package mysql

import (
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/format/mybinlog"
	"github.com/leatdata/leat/record"
)

// Errors of images; the change was not added then.
var (
	// errImageKey says that an image of a row does not tell which row it is.
	errImageKey = errors.New("the image of the row lacks a column of the key")
	// errImageInsert says that an inserted row came without a column that got its default.
	errImageInsert = errors.New("the image of an inserted row lacks a column, whose value is the server's to know")
	// errImageJSON says that a document came as changes to one that is not there.
	errImageJSON = errors.New("a JSON document came as changes to one that the image before lacks")
)

// logRows collects the changes of one table into a batch, from the images of rows that the log has. It is for one description of the
// table, and not safe for concurrent use.
//
// A change with a value that its column can't hold is set aside. Of the row before only the key counts, or all of it where the schema has
// no key: other values of it that can't be held are left null, which says unknown there.
type logRows struct {
	schema  *record.Schema
	columns []*mybinlog.MapColumn // by column of the schema: as the log has it
	from    []int                 // by column of the schema: in the log
	isKey   []bool
	now     []*cell
	before  []*cell
	values  []mybinlog.Value // of the image after, or the only one
	olds    []mybinlog.Value
	doc     []byte

	rows      int
	lastRows  int // of the batch before
	changes   int
	size      int64
	ops       []record.Op // nil: all Insert so far
	hasOld    bool
	unchanged [][]uint64 // by column of the schema
	bad       []badValue
	badOld    map[int]bool // of bad: it is of the row before
	zeros     int          // dates that became NULL
}

// newLogRows makes a collector for a description of the log; cols are the columns of the schema, with their places in the table.
func newLogRows(schema *record.Schema, cols []sourceColumn, m *mybinlog.TableMap, charsets map[string]*charset) (*logRows, error) {
	n := len(cols)
	r := &logRows{
		schema: schema, columns: make([]*mybinlog.MapColumn, n), from: make([]int, n), isKey: make([]bool, n), now: make([]*cell, n),
		before: make([]*cell, n), values: make([]mybinlog.Value, len(m.Columns)), olds: make([]mybinlog.Value, len(m.Columns)),
		unchanged: make([][]uint64, n), badOld: map[int]bool{},
	}
	for _, k := range schema.Key {
		r.isKey[k] = true
	}
	for i := range cols {
		c := &cols[i]
		r.from[i] = c.num - 1
		if r.from[i] < 0 || r.from[i] >= len(m.Columns) {
			return nil, fmt.Errorf("column %q: the log has %d columns", c.name, len(m.Columns))
		}
		r.columns[i] = &m.Columns[r.from[i]]
		cs := charsets[c.charset]
		r.now[i], r.before[i] = newCell(c, cs), newCell(c, cs)
	}
	return r, nil
}

// next adds the next change of an event; false: there is none left.
func (r *logRows) next(e *mybinlog.RowsEvent, m *mybinlog.TableMap) (more bool, err error) {
	if e.Action == mybinlog.Update {
		more, err = e.Image(m, false, r.olds)
		if err != nil || !more {
			return false, err //nolint:wrapcheck // callers say what was being done
		}
		more, err = e.Image(m, true, r.values)
		if err == nil && !more {
			err = mybinlog.ErrShort
		}
	} else {
		more, err = e.Image(m, false, r.values)
	}
	if err != nil || !more {
		return false, err //nolint:wrapcheck // callers say what was being done
	}
	if err := r.whole(e.Action); err != nil {
		return false, err
	}
	return true, r.add(e.Action)
}

// whole checks that nothing of a change is missing that must be there, before any of it is added.
func (r *logRows) whole(action mybinlog.Action) error {
	for i, at := range r.from {
		v := &r.values[at]
		switch {
		case action == mybinlog.Insert && v.State == mybinlog.Absent:
			return &columnError{r.columnName(i), errImageInsert}
		case action == mybinlog.Update && v.State == mybinlog.Patched && r.olds[at].State != mybinlog.Given:
			return &columnError{r.columnName(i), errImageJSON}
		case r.isKey[i] && v.State == mybinlog.Absent && (action == mybinlog.Delete || r.olds[at].State == mybinlog.Absent):
			return &columnError{r.columnName(i), errImageKey}
		case r.isKey[i] && action == mybinlog.Update && r.olds[at].State == mybinlog.Absent:
			return &columnError{r.columnName(i), errImageKey}
		case action == mybinlog.Delete && v.State == mybinlog.Absent && len(r.schema.Key) == 0:
			return &columnError{r.columnName(i), errImageKey}
		}
	}
	return nil
}

func (r *logRows) columnName(i int) string { return r.schema.Columns.Field(i).Name }

// columnError is an error about a column.
type columnError struct {
	column string
	err    error
}

func (e *columnError) Error() string { return fmt.Sprintf("column %q: %v", e.column, e.err) }
func (e *columnError) Unwrap() error { return e.err }

// add takes one change.
func (r *logRows) add(action mybinlog.Action) error {
	for i, at := range r.from {
		v := &r.values[at]
		if v.State == mybinlog.Absent && action == mybinlog.Update {
			if v = &r.olds[at]; v.State == mybinlog.Absent {
				r.unchanged[i] = widen(r.unchanged[i], r.rows+1)
				r.unchanged[i][r.rows/64] |= 1 << (r.rows % 64)
			}
		}
		if err := r.put(r.now[i], i, v, action == mybinlog.Delete); err != nil {
			return err
		}
	}
	op := [...]record.Op{mybinlog.Insert: record.Insert, mybinlog.Update: record.Update, mybinlog.Delete: record.Delete}[action]
	if action == mybinlog.Update {
		r.pad()
		for i, at := range r.from {
			if err := r.put(r.before[i], i, &r.olds[at], true); err != nil {
				return err
			}
		}
		r.hasOld = true
	}
	if r.ops == nil && op != record.Insert {
		r.ops = make([]record.Op, r.rows, max(r.rows+1, r.lastRows))
	}
	if r.ops != nil {
		r.ops = append(r.ops, op)
	}
	r.rows++
	r.changes++
	for i := range r.values {
		r.size += int64(len(r.values[i].Bytes))
	}
	return nil
}

// widen makes a bitmap as long as the rows need.
func widen(bits []uint64, rows int) []uint64 {
	for len(bits) < (rows+63)/64 {
		bits = append(bits, 0)
	}
	return bits
}

// pad makes the rows before as many as there are rows.
func (r *logRows) pad() {
	for _, c := range r.before {
		for c.b.Len() < r.rows {
			c.null()
		}
	}
}

// put appends one value. One that can't be held becomes NULL, and its row is set aside, if it counts.
func (r *logRows) put(c *cell, i int, v *mybinlog.Value, before bool) (err error) {
	switch v.State {
	case mybinlog.Given:
		err = c.logged(r.columns[i], v.Bytes)
	case mybinlog.Patched:
		if r.doc, err = mybinlog.AppendPatchedJSON(r.doc[:0], r.olds[r.from[i]].Bytes, v.Bytes); err == nil {
			err = c.json(r.doc)
		}
	default:
		c.null()
	}
	if err == nil {
		return nil
	}
	why, ok := errors.AsType[*refusal](err)
	if !ok {
		return &columnError{r.columnName(i), err}
	}
	c.null()
	if !before || len(r.schema.Key) == 0 || r.isKey[i] {
		if before {
			r.badOld[len(r.bad)] = true
		}
		r.bad = append(r.bad, badValue{row: r.rows, col: i, why: why})
	}
	return nil
}

// take returns what was collected and begins anew; nil where no change was. Position and Txns are the caller's to set: gone reports which
// of the rows were set aside, in order. zeros counts on.
func (r *logRows) take() (b *record.Batch, gone []int, err error) {
	if r.changes == 0 {
		return nil, nil, nil
	}
	b = &record.Batch{Schema: r.schema, Ops: r.ops, Changes: r.changes, Size: r.size}
	b.Rows = r.record(r.now)
	if r.hasOld {
		r.pad()
		b.Old = r.record(r.before)
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
	bad, badOld := r.bad, r.badOld
	r.lastRows, r.rows, r.changes, r.size = r.rows, 0, 0, 0
	r.ops, r.bad, r.hasOld = nil, nil, false
	if len(bad) == 0 {
		return b, nil, nil
	}
	r.badOld = map[int]bool{}
	rejects := make([]record.Reject, 0, len(bad))
	for i, v := range bad {
		if len(gone) > 0 && gone[len(gone)-1] == v.row {
			continue
		}
		gone = append(gone, v.row)
		rejects = append(rejects, rejectOfChange(b, bad[i:], badOld[i]))
	}
	kept, err := b.Keep(func(i int) bool { _, out := slices.BinarySearch(gone, i); return !out })
	if err != nil {
		return nil, nil, fmt.Errorf("setting rows aside: %w", err)
	}
	kept.Rejects = rejects
	return kept, gone, nil
}

func (r *logRows) record(image []*cell) arrow.RecordBatch {
	cols := make([]arrow.Array, len(image))
	for i, c := range image {
		cols[i] = c.take()
		r.zeros += c.zeros
		c.zeros = 0
	}
	return array.NewRecordBatch(r.schema.Columns, cols, int64(r.rows))
}

// rejectOfChange describes the change of the first of these values.
func rejectOfChange(b *record.Batch, bad []badValue, old bool) record.Reject {
	row := bad[0].row
	out := rejectOf(b, bad)
	out.Op = b.Op(row)
	if old {
		out.Message = "in the row before the change: " + out.Message
	}
	return out
}

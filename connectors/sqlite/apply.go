package sqlite

import (
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// writer applies one batch to its table, row by row, in the order of the source for each key.
type writer struct {
	db    *db
	t     *target
	b     *record.Batch
	rows  []binder // by column of the batch
	old   []binder // likewise, from the images before; nil: there are none
	found *found   // rows of a dataset without a key; nil: they are searched one by one

	query string // the statement that ran last
	last  *sqlite.Stmt
}

// rowError is the refusal of one row: others go on.
type rowError struct {
	column string
	value  string
	err    error
}

func (e *rowError) Error() string { return e.err.Error() }
func (e *rowError) Unwrap() error { return e.err }

func (s *sink) apply(t *target, b *record.Batch) error {
	if b.Truncate {
		clear(t.parked)
		if err := s.db.exec("DELETE FROM " + ident(t.physical)); err != nil {
			return err
		}
	}
	var refused []connector.RowError
	if b.NumRows() > 0 {
		w, err := newWriter(s.db, t, b)
		if err != nil {
			return err
		}
		if refused, err = w.all(); err != nil {
			return err
		}
	}
	if !b.Position.Zero() { // transactions are complete
		if err := t.settle(s.db); err != nil {
			return err
		}
		t.txn = record.Position{}
	}
	if len(refused) > 0 {
		slices.SortFunc(refused, func(a, b connector.RowError) int { return a.Index - b.Index })
		return &connector.RowErrors{Rows: refused}
	}
	return nil
}

func newWriter(d *db, t *target, b *record.Batch) (*writer, error) {
	w := &writer{db: d, t: t, b: b, rows: make([]binder, len(t.cols))}
	for _, c := range t.given {
		w.rows[c] = newBinder(b.Rows.Column(c), t.cols[c].how)
	}
	if b.Old != nil {
		w.old = make([]binder, len(t.cols))
		for _, c := range t.given {
			w.old[c] = newBinder(b.Old.Column(c), t.cols[c].how)
		}
	}
	return w, w.lookAhead()
}

// all applies every row, and returns those that were refused.
func (w *writer) all() ([]connector.RowError, error) {
	var refused []connector.RowError
	run, end := -1, 0 // the transaction of the row, and the number of the row behind it
	for n, i := range w.sequence() {
		for n >= end && run+1 < len(w.b.Txns) {
			run++
			end += w.b.Txns[run].Rows
			if err := w.t.enter(w.db, w.b.Txns[run]); err != nil {
				return nil, err
			}
		}
		err := w.row(i)
		var re *rowError
		switch {
		case err == nil:
		case errors.As(err, &re):
			refused = append(refused, connector.RowError{Index: i, Reject: record.Reject{
				Dataset: w.b.Schema.Dataset, Key: w.b.KeyJSON(i), Column: re.column, Value: re.value, Class: "refused_by_sink",
				Message: shorten(re.Error()), Raw: w.b.RowJSON(i),
			}})
		default:
			return nil, err
		}
	}
	return refused, nil
}

// row applies row i.
func (w *writer) row(i int) error {
	op := w.b.Op(i)
	if len(w.t.key) == 0 {
		return w.image(i, op)
	}
	for _, k := range w.t.key {
		if w.b.Rows.Column(k).IsNull(i) {
			return &rowError{column: w.t.cols[k].name, err: errors.New("the key is NULL")}
		}
	}
	moved, err := w.moved(i)
	switch {
	case err != nil:
		return err
	case op == record.Delete:
		return w.delete(i)
	case op == record.Insert && w.t.mode != connector.Upsert:
		return w.insert(i, w.t.sql.plain)
	case moved:
		return w.move(i)
	}
	if p := w.addressed(i); p != nil {
		return w.merge(p, i)
	}
	return w.upsert(i)
}

// moved reports whether row i is an update that changed the key.
func (w *writer) moved(i int) (bool, error) {
	if w.b.Old == nil || w.b.Op(i) != record.Update {
		return false, nil
	}
	unknown := ""
	known := 0
	for _, k := range w.t.key {
		if w.b.Old.Column(k).IsNull(i) {
			unknown = w.t.cols[k].name
		} else {
			known++
		}
	}
	if unknown != "" && known > 0 {
		return false, &rowError{column: unknown, err: errors.New("only a part of the key before the change is known")}
	}
	return w.b.KeyMoved(i), nil
}

// upsert writes a row by its key. Columns that the source did not send keep what the table has.
func (w *writer) upsert(i int) error {
	if kept := w.kept(i); len(kept) > 0 {
		n, err := w.update(i, kept, false)
		if err == nil && n == 0 {
			err = w.missing(kept)
		}
		return err
	}
	if w.t.unique {
		return w.insert(i, w.t.sql.onto)
	}
	n, err := w.update(i, nil, false)
	if err != nil || n > 0 {
		return err
	}
	return w.insert(i, w.t.sql.plain)
}

// missing is the error of a row whose value nobody knows.
func (w *writer) missing(kept []int) error {
	return &rowError{
		column: w.t.cols[kept[0]].name,
		err:    errors.New("the source did not send this unchanged value, and the table does not have the row"),
	}
}

// kept lists the columns whose value is known to the table only: the source did not send it, and the image before lacks it.
func (w *writer) kept(i int) []int {
	if w.b.Unchanged == nil {
		return nil
	}
	var out []int
	for _, c := range w.t.given {
		if w.b.IsUnchanged(c, i) && !w.before(c, i) {
			out = append(out, c)
		}
	}
	return out
}

// before reports whether the image before row i has a value of the column.
func (w *writer) before(c, i int) bool { return w.b.Old != nil && !w.b.Old.Column(c).IsNull(i) }

func (w *writer) insert(i int, query string) error {
	_, err := w.exec(query, func(st *sqlite.Stmt) error {
		return w.bindAll(st, w.t.given, i)
	})
	return err
}

// bindAll binds columns of row i to the first parameters.
func (w *writer) bindAll(st *sqlite.Stmt, cols []int, i int) error {
	for p, c := range cols {
		if err := w.bind(st, p+1, c, i); err != nil {
			return err
		}
	}
	return nil
}

// bind binds column c of row i: a value that was not sent is the one before.
func (w *writer) bind(st *sqlite.Stmt, param, c, i int) error {
	if w.b.IsUnchanged(c, i) && w.before(c, i) {
		return w.bindFrom(st, param, c, i, true)
	}
	return w.bindFrom(st, param, c, i, false)
}

// bindFrom binds column c of the image before or behind change i.
func (w *writer) bindFrom(st *sqlite.Stmt, param, c, i int, before bool) error {
	col, bind := w.b.Rows.Column(c), w.rows[c]
	if before {
		col, bind = w.b.Old.Column(c), w.old[c]
	}
	if col.IsNull(i) {
		st.BindNull(param)
		return nil
	}
	if err := bind(st, param, i); err != nil {
		return &rowError{column: w.t.cols[c].name, value: shorten(string(record.AppendText(nil, col, i))), err: err}
	}
	return nil
}

// update sets all columns but the kept ones where the key is that of row i, before or behind the change; it returns how many rows
// there were.
func (w *writer) update(i int, kept []int, before bool) (int, error) {
	q := w.t.updateSQL(kept, before)
	return w.exec(q.text, func(st *sqlite.Stmt) error {
		if err := w.bindAll(st, q.set, i); err != nil {
			return err
		}
		return w.bindKey(st, len(q.set), i, before)
	})
}

// bindKey binds the key behind offset parameters.
func (w *writer) bindKey(st *sqlite.Stmt, offset, i int, before bool) error {
	for j, k := range w.t.key {
		if err := w.bindFrom(st, offset+j+1, k, i, before); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) deleteKey(i int, before bool) error {
	_, err := w.exec(w.t.sql.deletion, func(st *sqlite.Stmt) error {
		return w.bindKey(st, 0, i, before)
	})
	return err
}

// statement returns a prepared statement, which is kept for the next row. It may have the values of the row before: bind all.
func (w *writer) statement(query string) (*sqlite.Stmt, error) {
	if w.last != nil && w.query == query {
		return w.last, nil
	}
	st, err := w.db.conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	w.query, w.last = query, st
	return st, nil
}

// exec runs one prepared statement, of which bind binds every parameter. A row that a constraint refuses is a *rowError; SQLite takes
// back what the statement did and the transaction goes on.
func (w *writer) exec(query string, bind func(*sqlite.Stmt) error) (changes int, err error) {
	st, err := w.statement(query)
	if err != nil {
		return 0, err
	}
	if err := bind(st); err != nil {
		return 0, err
	}
	if _, err := st.Step(); err != nil {
		if rowRefused(err) && !w.db.conn.AutocommitEnabled() {
			return 0, &rowError{err: err}
		}
		return 0, err
	}
	if err := st.Reset(); err != nil {
		return 0, err
	}
	return w.db.conn.Changes(), nil
}

// query runs one prepared statement and returns the columns of its first row; nil: there is none.
func (d *db) query(query string, columns int, bind func(*sqlite.Stmt) error) ([]value, error) {
	st, err := d.conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	if err := bind(st); err != nil {
		return nil, err
	}
	more, err := st.Step()
	if err != nil {
		return nil, err
	}
	var out []value
	if more {
		c := &cells{st: st, utf16: true} // whatever the encoding, text comes as UTF-8
		out = make([]value, columns)
		for i := range out {
			out[i] = valueOf(c, i)
		}
	}
	return out, st.Reset()
}

// keyText is the key of row i for maps.
func (w *writer) keyText(rows arrow.RecordBatch, i int) string {
	return rowText(rows, w.t.key, i)
}

// rowText is the text of some columns of row i; equal texts mean equal values.
func rowText(rows arrow.RecordBatch, cols []int, i int) string {
	var out []byte
	for _, c := range cols {
		out = append(record.AppendJSON(out, rows.Column(c), i), ',')
	}
	return string(out)
}

// changesRefused is the error of changes where only new rows can be written.
func changesRefused(t *target, op record.Op) error {
	e := configError("sqlite.key", "applying changes", fmt.Errorf("%s of a row, and the dataset has no key", op))
	e.Dataset, e.Hint = t.schema.Dataset, "name the key with --key, or use --mode upsert, which finds rows by all their columns"
	return e
}

package sqlite

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// writer applies one batch to its table, row by row, in the order of the source for each key.
type writer struct {
	db    *db
	t     *target
	b     *record.Batch
	rows  []binder // by column of the batch
	old   []binder // of the key, from the image before; nil: no such image
	given []int    // columns that are written

	plain    string // INSERT
	onto     string // INSERT … ON CONFLICT
	deletion string // DELETE by key
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
		w := newWriter(s.db, t, b)
		for _, i := range w.sequence() {
			err := w.row(i)
			var re *rowError
			switch {
			case err == nil:
			case errors.As(err, &re):
				refused = append(refused, connector.RowError{Index: i, Reject: record.Reject{
					Dataset: b.Schema.Dataset, Key: b.KeyJSON(i), Column: re.column, Value: re.value, Class: "refused_by_sink",
					Message: shorten(re.Error()), Raw: b.RowJSON(i),
				}})
			default:
				return err
			}
		}
	}
	if !b.Position.Zero() {
		if err := t.placeAll(s.db); err != nil {
			return err
		}
	}
	if len(refused) > 0 {
		slices.SortFunc(refused, func(a, b connector.RowError) int { return a.Index - b.Index })
		return &connector.RowErrors{Rows: refused}
	}
	return nil
}

func newWriter(d *db, t *target, b *record.Batch) *writer {
	w := &writer{db: d, t: t, b: b, rows: make([]binder, len(t.cols))}
	for c, col := range t.cols {
		if col.skip {
			continue
		}
		w.rows[c] = newBinder(b.Rows.Column(c), col.how)
		w.given = append(w.given, c)
	}
	w.plain = t.insertSQL(w.given, "")
	if len(t.key) > 0 {
		w.onto = t.insertSQL(w.given, t.onConflict(w.given))
		w.deletion = "DELETE FROM " + ident(t.physical) + " WHERE " + sqlgen.Equals(t.keyNames())
	}
	if b.Old != nil {
		w.old = make([]binder, len(t.cols))
		for _, k := range t.key {
			w.old[k] = newBinder(b.Old.Column(k), t.cols[k].how)
		}
	}
	return w
}

// row applies row i.
func (w *writer) row(i int) error {
	op := w.b.Op(i)
	if op != record.Insert && len(w.t.key) == 0 {
		e := configError("sqlite.key", "applying changes", fmt.Errorf("%s of a row, and the dataset has no key", op))
		e.Hint = "name the key with --key"
		return e
	}
	for _, k := range w.t.key {
		if w.b.Rows.Column(k).IsNull(i) {
			return &rowError{column: w.t.cols[k].name, err: errors.New("the key is NULL")}
		}
	}
	switch {
	case op == record.Delete:
		return w.delete(i)
	case op == record.Insert && w.t.mode != connector.Upsert:
		return w.insert(i, w.plain)
	case op == record.Update && w.moved(i):
		return w.move(i)
	}
	if err := w.t.placeIfParked(w.db, w.keyText(w.b.Rows, i)); err != nil {
		return err
	}
	return w.upsert(i)
}

// upsert writes a row by its key. Columns that the source did not send keep what the table has.
func (w *writer) upsert(i int) error {
	if kept := w.unchanged(i); len(kept) > 0 {
		n, err := w.update(i, kept, w.rows)
		if err == nil && n == 0 {
			err = &rowError{
				column: w.t.cols[kept[0]].name,
				err:    errors.New("the source did not send this unchanged value, and the table does not have the row"),
			}
		}
		return err
	}
	if w.t.unique {
		return w.insert(i, w.onto)
	}
	n, err := w.update(i, nil, w.rows)
	if err != nil || n > 0 {
		return err
	}
	return w.insert(i, w.plain)
}

// unchanged lists the columns whose value the source did not send.
func (w *writer) unchanged(i int) []int {
	if w.b.Unchanged == nil {
		return nil
	}
	var out []int
	for _, c := range w.given {
		if w.b.IsUnchanged(c, i) {
			out = append(out, c)
		}
	}
	return out
}

// onConflict is the part of an INSERT that makes it an upsert.
func (t *target) onConflict(given []int) string {
	var set []string
	for _, c := range given {
		if !t.cols[c].isKey {
			n := sqlgen.Ident(t.cols[c].name)
			set = append(set, n+" = excluded."+n)
		}
	}
	on := " ON CONFLICT (" + sqlgen.Idents(t.keyNames()) + ") DO "
	if len(set) == 0 {
		return on + "NOTHING"
	}
	return on + "UPDATE SET " + strings.Join(set, ", ")
}

func (t *target) keyNames() []string {
	names := make([]string, len(t.key))
	for i, k := range t.key {
		names[i] = t.cols[k].name
	}
	return names
}

func (t *target) insertSQL(given []int, tail string) string {
	names := make([]string, len(given))
	for i, c := range given {
		names[i] = t.cols[c].name
	}
	if len(names) == 0 {
		return "INSERT INTO " + ident(t.physical) + " DEFAULT VALUES"
	}
	return "INSERT INTO " + ident(t.physical) + " (" + sqlgen.Idents(names) + ") VALUES (" + sqlgen.Marks(len(names)) + ")" + tail
}

func (w *writer) insert(i int, query string) error {
	_, err := w.exec(query, func(st *sqlite.Stmt) error {
		return w.bindGiven(st, i)
	})
	return err
}

// bindGiven binds all written columns of row i.
func (w *writer) bindGiven(st *sqlite.Stmt, i int) error {
	for p, c := range w.given {
		if err := w.bind(st, p+1, c, i); err != nil {
			return err
		}
	}
	return nil
}

// bind binds column c of row i.
func (w *writer) bind(st *sqlite.Stmt, param, c, i int) error {
	if w.b.Rows.Column(c).IsNull(i) {
		st.BindNull(param)
		return nil
	}
	if err := w.rows[c](st, param, i); err != nil {
		return &rowError{column: w.t.cols[c].name, value: shorten(string(record.AppendText(nil, w.b.Rows.Column(c), i))), err: err}
	}
	return nil
}

// update sets all columns but the kept ones where the key is the one that where binds; it returns how many rows there were.
func (w *writer) update(i int, kept []int, where []binder) (int, error) {
	var set []int
	for _, c := range w.given {
		if !slices.Contains(kept, c) {
			set = append(set, c)
		}
	}
	names := make([]string, len(set))
	for j, c := range set {
		names[j] = sqlgen.Ident(w.t.cols[c].name) + " = ?"
	}
	q := "UPDATE " + ident(w.t.physical) + " SET " + strings.Join(names, ", ") + " WHERE " + sqlgen.Equals(w.t.keyNames())
	return w.exec(q, func(st *sqlite.Stmt) error {
		for p, c := range set {
			if err := w.bind(st, p+1, c, i); err != nil {
				return err
			}
		}
		return w.bindKey(st, len(set), where, i)
	})
}

// bindKey binds the key behind offset parameters.
func (w *writer) bindKey(st *sqlite.Stmt, offset int, from []binder, i int) error {
	for j, k := range w.t.key {
		if err := from[k](st, offset+j+1, i); err != nil {
			return &rowError{column: w.t.cols[k].name, err: err}
		}
	}
	return nil
}

func (w *writer) deleteKey(from []binder, i int) error {
	_, err := w.exec(w.deletion, func(st *sqlite.Stmt) error {
		return w.bindKey(st, 0, from, i)
	})
	return err
}

func (w *writer) delete(i int) error {
	if err := w.deleteKey(w.rows, i); err != nil {
		return err
	}
	return w.t.placeIfParked(w.db, w.keyText(w.b.Rows, i))
}

// exec runs one prepared statement, which is kept for the next row. A row that a constraint refuses is a *rowError; SQLite takes
// back what the statement did and the transaction goes on.
func (w *writer) exec(query string, bind func(*sqlite.Stmt) error) (changes int, err error) {
	st, err := w.db.conn.Prepare(query)
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

// keyText is the key of row i for maps.
func (w *writer) keyText(rows arrow.RecordBatch, i int) string {
	var out []byte
	for _, k := range w.t.key {
		out = append(record.AppendJSON(out, rows.Column(k), i), ',')
	}
	return string(out)
}

package sqlite

import (
	"errors"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector/sqlgen"
)

// parked is a row whose new key is still taken by another row. The source's transaction must move or delete that one too: only
// then, or at the transaction's end, the parked row takes its place. So two rows can swap their keys.
type parked struct {
	w    *writer
	row  int
	fill map[int]value // values that the source did not send, as the table had them under the old key
}

// moved reports whether an update changed the key.
func (w *writer) moved(i int) bool {
	if w.old == nil {
		return false
	}
	for _, k := range w.t.key {
		if w.b.Old.Column(k).IsNull(i) {
			return false
		}
	}
	return w.keyText(w.b.Old, i) != w.keyText(w.b.Rows, i)
}

// move applies an update that changed the key.
func (w *writer) move(i int) error {
	from, to := w.keyText(w.b.Old, i), w.keyText(w.b.Rows, i)
	taken, err := w.exists(i)
	if err != nil {
		return err
	}
	if taken || w.t.parked[to] != nil {
		if err := w.park(i, to); err != nil {
			return err
		}
		return w.t.placeIfParked(w.db, from)
	}
	kept := w.unchanged(i)
	n, err := w.update(i, kept, w.old)
	if err != nil {
		return err
	}
	if n == 0 && len(kept) > 0 {
		return &rowError{
			column: w.t.cols[kept[0]].name,
			err:    errors.New("the source did not send this unchanged value, and the table does not have the row"),
		}
	}
	if n == 0 {
		if err := w.insert(i, w.plain); err != nil {
			return err
		}
	}
	return w.t.placeIfParked(w.db, from)
}

// exists reports whether the table has a row under the new key.
func (w *writer) exists(i int) (bool, error) {
	st, err := w.db.conn.Prepare("SELECT 1 FROM " + ident(w.t.physical) + " WHERE " + sqlgen.Equals(w.t.keyNames()))
	if err != nil {
		return false, err
	}
	if err := w.bindKey(st, 0, w.rows, i); err != nil {
		return false, err
	}
	found, err := st.Step()
	if err != nil {
		return false, err
	}
	return found, st.Reset()
}

// park takes the row away from its old key and keeps it.
func (w *writer) park(i int, to string) error {
	p := &parked{w: w, row: i, fill: map[int]value{}}
	if kept := w.unchanged(i); len(kept) > 0 {
		if err := w.fetch(i, kept, p.fill); err != nil {
			return err
		}
	}
	if before := w.t.parked[to]; before != nil { // two rows wait for one key: the first was overwritten
		delete(w.t.parked, to)
	}
	if err := w.deleteKey(w.old, i); err != nil {
		return err
	}
	w.t.parked[to] = p
	return nil
}

// fetch reads columns of the row under its old key.
func (w *writer) fetch(i int, cols []int, into map[int]value) error {
	names := make([]string, len(cols))
	for j, c := range cols {
		names[j] = w.t.cols[c].name
	}
	where := " WHERE " + sqlgen.Equals(w.t.keyNames())
	st, err := w.db.conn.Prepare("SELECT " + sqlgen.Idents(names) + " FROM " + ident(w.t.physical) + where)
	if err != nil {
		return err
	}
	if err := w.bindKey(st, 0, w.old, i); err != nil {
		return err
	}
	found, err := st.Step()
	if err != nil {
		return err
	}
	if !found {
		return errors.Join(st.Reset(), &rowError{
			column: names[0], err: errors.New("the source did not send this unchanged value, and the table does not have the row"),
		})
	}
	c := &cells{st: st, utf16: true} // whatever the encoding, text comes as UTF-8
	for j, col := range cols {
		into[col] = valueOf(c, j)
	}
	return st.Reset()
}

// placeIfParked lets the row that waits for a key take its place, once the key is free.
func (t *target) placeIfParked(d *db, key string) error {
	p := t.parked[key]
	if p == nil {
		return nil
	}
	delete(t.parked, key)
	return p.place(d)
}

// placeAll places every row that still waits: what is under their keys is older.
func (t *target) placeAll(d *db) error {
	for key := range t.parked {
		if err := t.placeIfParked(d, key); err != nil {
			return err
		}
	}
	return nil
}

func (p *parked) place(d *db) error {
	w := *p.w
	w.db = d
	if err := w.deleteKey(w.rows, p.row); err != nil {
		return err
	}
	_, err := w.exec(w.plain, func(st *sqlite.Stmt) error {
		for param, c := range w.given {
			if v, ok := p.fill[c]; ok {
				v.bind(st, param+1)
				continue
			}
			if err := w.bind(st, param+1, c, p.row); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

package sqlite

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// parked is a row whose new key is still taken by another row, of which it holds all values by the names of the table's columns. The
// source's transaction must move or delete the other one too: only then, or at the transaction's end, the parked row takes its place.
// So rows can swap their keys.
type parked struct {
	values map[string]value
}

// move applies an update that changed the key.
func (w *writer) move(i int) error {
	from, to := w.keyText(w.b.Old, i), w.keyText(w.b.Rows, i)
	taken, err := w.taken(i, to)
	if err != nil {
		return err
	}
	p, err := w.match(w.t.parked[from], w.b.Old, i)
	switch {
	case err != nil:
		return err
	case p != nil:
		if err := w.merge(p, i); err != nil {
			return err
		}
		w.t.unpark(from, p)
		return w.arrive(p, to, taken)
	case taken:
		return w.park(i, from, to)
	}
	kept := w.kept(i)
	n, err := w.update(i, kept, true)
	if err != nil {
		return err
	}
	if n == 0 && len(kept) > 0 {
		return w.missing(kept)
	}
	if n == 0 {
		return w.insert(i, w.t.sql.plain)
	}
	return w.t.promote(w.db, from)
}

// taken reports whether another row is under the new key.
func (w *writer) taken(i int, to string) (bool, error) {
	if len(w.t.parked[to]) > 0 {
		return true, nil
	}
	found, err := w.db.query(w.t.sql.taken, 0, func(st *sqlite.Stmt) error {
		if err := w.bindKey(st, 0, i, false); err != nil {
			return err
		}
		return w.bindKey(st, len(w.t.key), i, true)
	})
	return found != nil, err
}

// park takes the row away from its old key and keeps it. A row that the table lacks can't be the second one under a key: what is
// under the new one is an older state of it.
func (w *writer) park(i int, from, to string) error {
	names := w.t.whole()
	row, err := w.db.query(w.t.sql.whole, len(names), func(st *sqlite.Stmt) error {
		return w.bindKey(st, 0, i, true)
	})
	if err != nil {
		return err
	}
	if row == nil {
		if kept := w.kept(i); len(kept) > 0 {
			return w.missing(kept)
		}
		if q := w.t.parked[to]; len(q) > 0 {
			return w.merge(q[len(q)-1], i)
		}
		return w.upsert(i)
	}
	p := &parked{values: make(map[string]value, len(names))}
	for j, n := range names {
		p.values[n] = row[j]
	}
	if err := w.merge(p, i); err != nil {
		return err
	}
	if err := w.deleteKey(i, true); err != nil {
		return err
	}
	w.t.parked[to] = append(w.t.parked[to], p)
	return w.t.promote(w.db, from)
}

// arrive puts a row that was parked under its key, or behind those that are there.
func (w *writer) arrive(p *parked, key string, taken bool) error {
	if taken {
		w.t.parked[key] = append(w.t.parked[key], p)
		return nil
	}
	return w.t.place(w.db, p)
}

// addressed returns the row that waits for the key of row i and is meant by it; nil: the one in the table is.
func (w *writer) addressed(i int) *parked {
	if len(w.t.parked) == 0 {
		return nil
	}
	q := w.t.parked[w.keyText(w.b.Rows, i)]
	if len(q) == 0 {
		return nil
	}
	if w.b.Old != nil && w.b.Op(i) == record.Update && w.whole(w.b.Old, i) {
		p, err := w.match(q, w.b.Old, i)
		if err == nil {
			return p
		}
	}
	return q[len(q)-1] // whatever comes behind a row that moved here concerns it
}

func (w *writer) delete(i int) error {
	if len(w.t.parked) == 0 {
		return w.deleteKey(i, false)
	}
	key := w.keyText(w.b.Rows, i)
	p, err := w.match(w.t.parked[key], w.b.Rows, i)
	if err != nil {
		return err
	}
	if p != nil {
		w.t.unpark(key, p)
		return nil
	}
	if err := w.deleteKey(i, false); err != nil {
		return err
	}
	return w.t.promote(w.db, key)
}

// whole reports whether an image has more than a key.
func (w *writer) whole(image arrow.RecordBatch, i int) bool {
	return slices.ContainsFunc(w.t.given, func(c int) bool { return !w.t.cols[c].isKey && !image.Column(c).IsNull(i) })
}

// match returns the one of the waiting rows that equals an image; nil: none does, or the image is a key only. Then the oldest row
// under the key is meant, which is the one in the table.
func (w *writer) match(q []*parked, image arrow.RecordBatch, i int) (*parked, error) {
	if len(q) == 0 || !w.whole(image, i) {
		return nil, nil //nolint:nilnil // none is an answer
	}
	before := image == w.b.Old
	vals, err := w.bound(w.t.given, func(st *sqlite.Stmt, param, c int) error { return w.bindFrom(st, param, c, i, before) })
	if err != nil {
		return nil, err
	}
	for _, p := range q {
		equal := true
		for n, c := range w.t.given {
			equal = equal && compareValues(vals[n], p.values[w.t.cols[c].name], "") == 0
		}
		if equal {
			return p, nil
		}
	}
	return nil, nil //nolint:nilnil // none is an answer
}

// bound returns columns as they are bound.
func (w *writer) bound(cols []int, bind func(st *sqlite.Stmt, param, c int) error) ([]value, error) {
	return w.db.query("SELECT "+sqlgen.Marks(len(cols)), len(cols), func(st *sqlite.Stmt) error {
		for n, c := range cols {
			if err := bind(st, n+1, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// merge writes row i over a row that waits. Columns that the source did not send stay.
func (w *writer) merge(p *parked, i int) error {
	kept := w.kept(i)
	sent := slices.DeleteFunc(slices.Clone(w.t.given), func(c int) bool { return slices.Contains(kept, c) })
	vals, err := w.bound(sent, func(st *sqlite.Stmt, param, c int) error { return w.bind(st, param, c, i) })
	if err != nil {
		return err
	}
	for n, c := range sent {
		p.values[w.t.cols[c].name] = vals[n]
	}
	return nil
}

// unpark forgets a row that waits for a key.
func (t *target) unpark(key string, p *parked) {
	q := slices.DeleteFunc(t.parked[key], func(o *parked) bool { return o == p })
	if len(q) == 0 {
		delete(t.parked, key)
		return
	}
	t.parked[key] = q
}

// promote lets the first row that waits for a key take its place, which has become free.
func (t *target) promote(d *db, key string) error {
	q := t.parked[key]
	if len(q) == 0 {
		return nil
	}
	p := q[0]
	t.unpark(key, p)
	return t.place(d, p)
}

// enter begins a transaction of the source, or goes on with it: at its end no two rows have one key any more.
func (t *target) enter(d *db, txn record.Txn) error {
	if txn.Rows == 0 || t.txn.Equal(txn.Position) {
		return nil
	}
	t.txn = txn.Position
	return t.settle(d)
}

// settle places every row that still waits: what is under their keys is older.
func (t *target) settle(d *db) error {
	for _, key := range slices.Sorted(maps.Keys(t.parked)) {
		q := t.parked[key]
		p := q[len(q)-1]
		_, err := d.query(t.sql.deletion, 0, func(st *sqlite.Stmt) error {
			for j, k := range t.key {
				p.values[t.cols[k].name].bind(st, j+1)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := t.place(d, p); err != nil {
			return err
		}
	}
	clear(t.parked)
	return nil
}

// place inserts a row that was parked.
func (t *target) place(d *db, p *parked) error {
	names := slices.Sorted(maps.Keys(p.values))
	_, err := d.query(t.insertSQL(names, ""), 0, func(st *sqlite.Stmt) error {
		for j, n := range names {
			p.values[n].bind(st, j+1)
		}
		return nil
	})
	if err != nil {
		keys := make([]string, len(t.key))
		for j, k := range t.key {
			keys[j] = p.values[t.cols[k].name].text()
		}
		return fmt.Errorf("placing the row that moved to key (%s): %w", strings.Join(keys, ", "), err)
	}
	return nil
}

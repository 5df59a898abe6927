package sqlite

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// image applies row i of a dataset without a key: an update or a delete concerns exactly one row that equals the image before it.
func (w *writer) image(i int, op record.Op) error {
	switch {
	case op == record.Insert:
		return w.insert(i, w.t.sql.plain)
	case op == record.Upsert || w.t.mode != connector.Upsert:
		return changesRefused(w.t, op)
	case op == record.Update && w.b.Old == nil:
		return &rowError{err: errors.New("the source did not send the row as it was before, and the dataset has no key")}
	}
	before := op == record.Update
	id, found, err := w.find(i, before)
	if err != nil {
		return err
	}
	if !found {
		return &rowError{err: fmt.Errorf("the table has no row %s", shorten(w.imageJSON(i, before)))}
	}
	if op == record.Delete {
		_, err = w.exec("DELETE FROM "+ident(w.t.physical)+w.byRowID(), func(st *sqlite.Stmt) error {
			st.BindInt64(1, id)
			return nil
		})
		return err
	}
	q := "UPDATE " + ident(w.t.physical) + " SET " + w.t.assignments(w.t.given) + w.byRowID()
	_, err = w.exec(q, func(st *sqlite.Stmt) error {
		for p, c := range w.t.given {
			if err := w.bindFrom(st, p+1, c, i, w.b.IsUnchanged(c, i)); err != nil {
				return err
			}
		}
		st.BindInt64(len(w.t.given)+1, id)
		return nil
	})
	return err
}

func (w *writer) byRowID() string { return " WHERE " + sqlgen.Ident(w.t.rowID) + " = ?" }

// imageJSON is the image that a row is looked for by, for people.
func (w *writer) imageJSON(i int, before bool) string {
	one := record.Batch{Schema: w.b.Schema, Rows: w.images(before)}
	return string(one.RowJSON(i))
}

func (w *writer) images(before bool) arrow.RecordBatch {
	if before {
		return w.b.Old
	}
	return w.b.Rows
}

// found are the row ids of images that were looked up together.
type found struct {
	ids map[string][]int64 // by the image's text
}

// find returns the id of a row that equals the image.
func (w *writer) find(i int, before bool) (id int64, ok bool, err error) {
	if w.found != nil {
		key := rowText(w.images(before), w.t.given, i)
		if ids := w.found.ids[key]; len(ids) > 0 {
			w.found.ids[key] = ids[1:]
			return ids[0], true, nil
		}
	}
	signed := w.signed()
	q := "SELECT " + strings.Join(w.t.ids("", signed), ", ") + " FROM " + ident(w.t.physical) + " WHERE " +
		sqlgen.Join(w.t.names(w.t.given), " AND ", func(n string) string { return sqlgen.Ident(n) + " COLLATE BINARY IS ?" })
	st, err := w.db.conn.Prepare(q)
	if err != nil {
		return 0, false, err
	}
	for p, c := range w.t.given {
		if err := w.bindFrom(st, p+1, c, i, before); err != nil {
			return 0, false, err
		}
	}
	for {
		more, err := st.Step()
		if err != nil || !more {
			return 0, false, errors.Join(err, st.Reset())
		}
		if w.sameSigns(st, signed, w.images(before), i) {
			id := st.ColumnInt64(0)
			return id, true, st.Reset()
		}
	}
}

// ids lists the row id and some columns, of a table with the given alias.
func (t *target) ids(alias string, cols []int) []string {
	out := []string{alias + sqlgen.Ident(t.rowID)}
	for _, c := range cols {
		out = append(out, alias+sqlgen.Ident(t.cols[c].name))
	}
	return out
}

// signed are the columns that keep the sign of -0, which equals 0 to SQLite.
func (w *writer) signed() []int {
	var out []int
	for _, c := range w.t.given {
		switch w.b.Rows.Column(c).(type) {
		case *array.Float32, *array.Float64:
			if w.t.cols[c].how == asNumber {
				out = append(out, c)
			}
		}
	}
	return out
}

// sameSigns compares the signs of stored numbers, in the columns behind the row id, with those of an image.
func (*writer) sameSigns(st *sqlite.Stmt, signed []int, image arrow.RecordBatch, i int) bool {
	for n, c := range signed {
		var f float64
		switch a := image.Column(c).(type) {
		case *array.Float32:
			f = float64(a.Value(i))
		case *array.Float64:
			f = a.Value(i)
		}
		if !image.Column(c).IsNull(i) && math.Signbit(st.ColumnFloat(n+1)) != math.Signbit(f) {
			return false
		}
	}
	return true
}

// worthTogether is the number of images from which on one walk through the table is better than a search for each.
const worthTogether = 4

// imageTable holds images while their rows are looked up.
const imageTable = "temp._leat_image"

// lookAhead looks up the rows that the batch's changes will need, of a dataset without a key. What is not found then may come with an
// earlier row of the batch.
func (w *writer) lookAhead() error {
	if len(w.t.key) > 0 || w.b.Ops == nil || w.t.mode != connector.Upsert {
		return nil
	}
	if w.t.rowID == "" {
		e := configError("sqlite.key", "applying changes",
			fmt.Errorf("the dataset has no key, and the rows of table %q have no id that could be read", w.t.physical))
		e.Dataset, e.Hint = w.t.schema.Dataset, "name the key with --key, or write to another table with table=NAME"
		return e
	}
	wanted := map[string]int{} // how often
	var first []int            // the row of each image
	for i, op := range w.b.Ops {
		if op != record.Delete && (op != record.Update || w.b.Old == nil) {
			continue
		}
		key := rowText(w.images(op == record.Update), w.t.given, i)
		if wanted[key]++; wanted[key] == 1 {
			first = append(first, i)
		}
	}
	if len(first) < worthTogether {
		return nil
	}
	return w.lookUp(first, wanted)
}

// lookUp fills found: all images are joined with the table, in one walk through it.
func (w *writer) lookUp(first []int, wanted map[string]int) error {
	names := w.t.names(w.t.given)
	err := w.db.exec("DROP TABLE IF EXISTS "+imageTable,
		"CREATE TEMP TABLE _leat_image AS SELECT 0 AS _leat_n, "+sqlgen.Idents(names)+" FROM "+ident(w.t.physical)+" LIMIT 0")
	if err != nil {
		return err
	}
	insert := "INSERT INTO " + imageTable + " VALUES (" + sqlgen.Marks(1+len(names)) + ")"
	var keys []string
	var rows []int
	for _, i := range first {
		before := w.b.Op(i) == record.Update
		_, err := w.db.query(insert, 0, func(st *sqlite.Stmt) error {
			st.BindInt64(1, int64(len(rows)))
			for p, c := range w.t.given {
				if err := w.bindFrom(st, p+2, c, i, before); err != nil {
					return err
				}
			}
			return nil
		})
		if _, bad := errors.AsType[*rowError](err); bad {
			continue // it can't be in the table: the row will be refused
		}
		if err != nil {
			return err
		}
		keys, rows = append(keys, rowText(w.images(before), w.t.given, i)), append(rows, i)
	}
	const indexed = 3 // columns; more would only make the index larger
	err = w.db.exec("CREATE INDEX temp._leat_image_index ON _leat_image (" + sqlgen.Idents(names[:min(len(names), indexed)]) + ")")
	if err != nil {
		return err
	}
	w.found = &found{ids: map[string][]int64{}}
	signed := w.signed()
	q := "SELECT " + strings.Join(append(w.t.ids("t.", signed), "i._leat_n"), ", ") + " FROM " + ident(w.t.physical) +
		" AS t CROSS JOIN " + imageTable + " AS i WHERE " + sqlgen.Join(names, " AND ", func(n string) string {
		return "i." + sqlgen.Ident(n) + " IS t." + sqlgen.Ident(n) + " COLLATE BINARY"
	})
	err = w.db.each(q, func(st *sqlite.Stmt) error {
		n := st.ColumnInt64(len(signed) + 1)
		key, i := keys[n], rows[n]
		if len(w.found.ids[key]) < wanted[key] && w.sameSigns(st, signed, w.images(w.b.Op(i) == record.Update), i) {
			w.found.ids[key] = append(w.found.ids[key], st.ColumnInt64(0))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.db.exec("DROP TABLE " + imageTable)
}

package sqlite

import (
	"fmt"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
)

// object is a table or view as the catalogue has it.
type object struct {
	name         string
	kind         string // table, view, virtual
	withoutRowID bool
	strict       bool
	columns      []catColumn
	key          []keyPart // of the primary key, in key order
	rowID        string    // a name under which the row id can be read; empty: none
	keyIsRowID   bool      // the only key column is another name of the row id
}

type catColumn struct {
	name      string
	declared  string
	notNull   bool
	generated bool
	fallback  bool   // a default, or the row id, stands in where no value is given
	def       string // the default's expression; empty: none
}

type keyPart struct {
	column    string
	collation string
}

// column returns the column of this name, without regard to case, as SQLite does.
func (o *object) column(name string) (catColumn, bool) {
	i := slices.IndexFunc(o.columns, func(c catColumn) bool { return strings.EqualFold(c.name, name) })
	if i < 0 {
		return catColumn{}, false
	}
	return o.columns[i], true
}

func (o *object) columnNames() []string {
	names := make([]string, len(o.columns))
	for i, c := range o.columns {
		names[i] = c.name
	}
	return names
}

// tableNames lists ordinary tables, without those of SQLite and of leat.
func (d *db) tableNames() ([]string, error) {
	var names []string
	err := d.each(`SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
		AND name NOT LIKE '\_leat\_%' ESCAPE '\' ORDER BY name`, func(st *sqlite.Stmt) error {
		names = append(names, st.ColumnText(0))
		return nil
	})
	return names, err
}

// describe reads the catalogue's entry of a table or view; false: there is none.
func (d *db) describe(name string) (*object, bool, error) {
	return d.describeIn("main", name)
}

func (d *db) describeIn(schema, name string) (*object, bool, error) {
	var o *object
	q := `SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = ? AND name = ? COLLATE NOCASE`
	err := d.each(q, func(st *sqlite.Stmt) error {
		o = &object{name: st.ColumnText(0), kind: st.ColumnText(1), withoutRowID: st.ColumnInt64(2) == 1, strict: st.ColumnInt64(3) == 1}
		return nil
	}, schema, name)
	if err != nil || o == nil {
		return nil, false, err
	}
	keyed := map[int64]string{}
	q = `SELECT name, type, "notnull", pk, hidden, dflt_value FROM pragma_table_xinfo(?, ?) ORDER BY cid`
	err = d.each(q, func(st *sqlite.Stmt) error {
		const virtual, stored = 2, 3
		hidden := st.ColumnInt64(4)
		if hidden != 0 && hidden != virtual && hidden != stored {
			return nil
		}
		o.columns = append(o.columns, catColumn{
			name: st.ColumnText(0), declared: st.ColumnText(1), notNull: st.ColumnInt64(2) == 1, generated: hidden != 0,
			fallback: !st.ColumnIsNull(5), def: st.ColumnText(5),
		})
		if pk := st.ColumnInt64(3); pk > 0 {
			keyed[pk] = st.ColumnText(0)
		}
		return nil
	}, o.name, schema)
	if err != nil {
		return nil, false, err
	}
	for i := range int64(len(keyed)) {
		o.key = append(o.key, keyPart{column: keyed[i+1], collation: "BINARY"})
	}
	if err := d.keyCollations(o); err != nil {
		return nil, false, err
	}
	o.findRowID()
	return o, true, nil
}

// keyCollations reads how the primary key orders text.
func (d *db) keyCollations(o *object) error {
	return d.each(`SELECT x.name, x.coll FROM pragma_index_list(?) AS l, pragma_index_xinfo(l.name) AS x
		WHERE l.origin = 'pk' AND x.key = 1`,
		func(st *sqlite.Stmt) error {
			for i := range o.key {
				if strings.EqualFold(o.key[i].column, st.ColumnText(0)) {
					o.key[i].collation = st.ColumnText(1)
				}
			}
			return nil
		}, o.name)
}

// findRowID finds a name of the row id that no column hides.
func (o *object) findRowID() {
	if o.kind != "table" || o.withoutRowID {
		return
	}
	if len(o.key) == 1 {
		c, _ := o.column(o.key[0].column)
		o.keyIsRowID = strings.EqualFold(c.declared, "INTEGER")
	}
	for _, name := range []string{"rowid", "_rowid_", "oid"} {
		if _, hidden := o.column(name); !hidden {
			o.rowID = name
			return
		}
	}
	if o.keyIsRowID {
		o.rowID = o.key[0].column
	}
}

// lookup describes a table or view that a person named; an unknown one is an error with the nearest name.
func (d *db) lookup(name string) (*object, error) {
	o, ok, err := d.describe(name)
	if err != nil || ok {
		return o, err
	}
	var names []string
	err = d.each(`SELECT name FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`,
		func(st *sqlite.Stmt) error {
			names = append(names, st.ColumnText(0))
			return nil
		})
	if err != nil {
		return nil, err
	}
	e := configError("sqlite.table", "reading the catalogue", connector.UnknownName("table", name, names))
	e.Hint = "name a table with table=NAME, or several with tables=PATTERN"
	return nil, e
}

// rowsAbout estimates the number of rows from the row ids, or -1.
func (d *db) rowsAbout(o *object) (int64, error) {
	n := int64(-1)
	if o.rowID == "" {
		return n, nil
	}
	id := sqlgen.Ident(o.rowID)
	q := fmt.Sprintf(`SELECT (SELECT max(%[1]s) FROM main.%[2]s), (SELECT min(%[1]s) FROM main.%[2]s)`, id, sqlgen.Ident(o.name))
	err := d.each(q, func(st *sqlite.Stmt) error {
		n = 0
		if !st.ColumnIsNull(0) {
			n = int64(min(float64(st.ColumnInt64(0))-float64(st.ColumnInt64(1))+1, 1<<53))
		}
		return nil
	})
	return n, err
}

// size is the size of the whole file in bytes.
func (d *db) size() (int64, error) {
	var n int64
	err := d.each(`SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`, func(st *sqlite.Stmt) error {
		n = st.ColumnInt64(0)
		return nil
	})
	return n, err
}

// utf16 reports whether text is stored as UTF-16.
func (d *db) utf16() (bool, error) {
	var enc string
	err := d.each(`PRAGMA encoding`, func(st *sqlite.Stmt) error {
		enc = st.ColumnText(0)
		return nil
	})
	return strings.HasPrefix(enc, "UTF-16"), err
}

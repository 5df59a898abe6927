package sqlite

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// columnsTable says which column of a table is which of the source's, so that a rename is recognised whenever it is seen.
const columnsTable = "_leat_columns"

// columnsDDL is a persisted format, see docs/formats/sqlite-progress.md.
const columnsDDL = `CREATE TABLE IF NOT EXISTS ` + columnsTable + ` (
	pipeline TEXT NOT NULL,
	lane TEXT NOT NULL,
	run TEXT NOT NULL,
	"table" TEXT NOT NULL,
	"column" TEXT NOT NULL,
	id TEXT NOT NULL,
	PRIMARY KEY (pipeline, lane, "table", "column")
) WITHOUT ROWID`

// forgetColumns forgets what another run knew: it may have read another database.
func (s *sink) forgetColumns() error {
	return s.db.each(`DELETE FROM `+columnsTable+` WHERE pipeline = ? AND lane = ? AND run <> ?`, nil,
		s.start.Pipeline, s.start.Lane, s.start.Run)
}

// held returns the columns of a table with the ids that are known: to this lane, or before it is known to any one of the pipeline.
func (s *sink) held(o *object) ([]sqlgen.Held, error) {
	ids := map[string]string{}
	args := []any{s.start.Pipeline, strings.ToLower(o.name), s.start.Lane}
	lane := " AND lane = ?"
	if !s.started {
		args, lane = []any{s.env.Pipeline, strings.ToLower(o.name)}, ""
	}
	err := s.db.each(`SELECT "column", id FROM `+columnsTable+` WHERE pipeline = ? AND "table" = ?`+lane,
		func(st *sqlite.Stmt) error {
			ids[strings.ToLower(st.ColumnText(0))] = st.ColumnText(1)
			return nil
		}, args...)
	out := make([]sqlgen.Held, len(o.columns))
	for i, c := range o.columns {
		out[i] = sqlgen.Held{Name: c.name, ID: ids[strings.ToLower(c.name)]}
	}
	return out, err
}

// saveColumns writes down the ids of a table's columns.
func (s *sink) saveColumns(table string, held []sqlgen.Held) error {
	table = strings.ToLower(table)
	err := s.db.each(`DELETE FROM `+columnsTable+` WHERE pipeline = ? AND lane = ? AND "table" = ?`, nil,
		s.start.Pipeline, s.start.Lane, table)
	for _, h := range held {
		if err != nil {
			return err
		}
		if h.ID != "" {
			err = s.db.each(`INSERT OR REPLACE INTO `+columnsTable+` VALUES (?, ?, ?, ?, ?, ?)`, nil,
				s.start.Pipeline, s.start.Lane, s.start.Run, table, h.Name, h.ID)
		}
	}
	return err
}

func hasID(h sqlgen.Held) bool { return h.ID != "" }

// columnFor returns the column of a table that a field is written to: the one that has its id, also under another name; else the one of
// its name, unless that is known to be another one.
func columnFor(o *object, held []sqlgen.Held, f arrow.Field) (catColumn, bool) {
	id := record.IDOf(f)
	for _, h := range held {
		if id != "" && h.ID == id {
			return o.column(h.Name)
		}
	}
	c, ok := o.column(f.Name)
	other := slices.ContainsFunc(held, func(h sqlgen.Held) bool { return h.Name == c.name && h.ID != "" && id != "" })
	return c, ok && !other
}

// follows reports whether the table follows the columns of the source and lacks some of a schema.
func (s *sink) follows(o *object, held []sqlgen.Held, schema *record.Schema) bool {
	return s.start.Mode == connector.Upsert && slices.ContainsFunc(held, hasID) &&
		slices.ContainsFunc(schema.Columns.Fields(), func(f arrow.Field) bool {
			_, ok := columnFor(o, held, f)
			return !ok
		})
}

// noteColumns writes down which column is which of a table that changes are written to for the first time.
func (s *sink) noteColumns(t *target, o *object, known []sqlgen.Held) error {
	if s.start.Mode != connector.Upsert || slices.ContainsFunc(known, hasID) {
		return nil
	}
	var held []sqlgen.Held
	for i, f := range t.schema.Columns.Fields() {
		held = append(held, sqlgen.Held{Name: t.cols[i].name, ID: record.IDOf(f)})
	}
	if !slices.ContainsFunc(held, hasID) {
		return nil
	}
	return s.saveColumns(o.name, held)
}

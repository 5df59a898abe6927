package sqlite

import (
	"slices"
	"strings"

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

// held returns the columns of a table with the ids that are known.
func (s *sink) held(o *object) ([]sqlgen.Held, error) {
	ids := map[string]string{}
	err := s.db.each(`SELECT "column", id FROM `+columnsTable+` WHERE pipeline = ? AND lane = ? AND "table" = ?`,
		func(st *sqlite.Stmt) error {
			ids[strings.ToLower(st.ColumnText(0))] = st.ColumnText(1)
			return nil
		}, s.start.Pipeline, s.start.Lane, strings.ToLower(o.name))
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

// noteColumns writes down which column is which of a table that changes are written to for the first time.
func (s *sink) noteColumns(t *target, o *object) error {
	hasID := func(h sqlgen.Held) bool { return h.ID != "" }
	fields := t.schema.Columns.Fields()
	var held []sqlgen.Held
	for i, f := range fields {
		held = append(held, sqlgen.Held{Name: t.cols[i].name, ID: record.IDOf(f)})
	}
	if s.start.Mode != connector.Upsert || !slices.ContainsFunc(held, hasID) {
		return nil
	}
	known, err := s.held(o)
	if err != nil || slices.ContainsFunc(known, hasID) {
		return err
	}
	return s.saveColumns(o.name, held)
}

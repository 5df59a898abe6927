//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// columnsTable says which column of a table is which of the source's, so that a rename is recognised whenever it is seen; its layout is
// a persisted format.
const columnsTable = `"main"."_leat_columns"`

// openColumns makes the table, and forgets what another run knew: it may have read another database.
func (s *sink) openColumns(ctx context.Context) error {
	err := s.db.exec(ctx, `CREATE TABLE IF NOT EXISTS `+columnsTable+
		` (pipeline VARCHAR, lane VARCHAR, run VARCHAR, "schema" VARCHAR, "table" VARCHAR, "column" VARCHAR, id VARCHAR)`)
	if err == nil {
		err = s.db.exec(ctx, `DELETE FROM `+columnsTable+` WHERE pipeline = $1 AND lane = $2 AND run <> $3`,
			s.start.Pipeline, s.start.Lane, s.start.Run)
	}
	return wrap(err, "opening the table _leat_columns", "", "")
}

func hasID(h sqlgen.Held) bool { return h.ID != "" }

// held returns the columns of a table with the ids that are known.
func (s *sink) held(ctx context.Context, t table, columns []existing) ([]sqlgen.Held, error) {
	rows, err := s.db.rows(ctx, `SELECT lower("column"), id FROM `+columnsTable+` WHERE pipeline = $1 AND lane = $2 AND
		"schema" = lower($3) AND "table" = lower($4)`, s.start.Pipeline, s.start.Lane, t.schema, t.name)
	return heldBy(columns, rows), wrap(err, "reading the table _leat_columns", "", "")
}

// heldOf returns the columns of a table with the ids that any lane of a pipeline knows.
func (d *db) heldOf(ctx context.Context, pipeline string, t table, columns []existing) ([]sqlgen.Held, error) {
	known, err := d.rows(ctx, `SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' AND table_name = '_leat_columns'`)
	if err != nil || len(known) == 0 {
		return heldBy(columns, nil), wrap(err, "reading the catalogue", "", "")
	}
	rows, err := d.rows(ctx, `SELECT lower("column"), id FROM `+columnsTable+` WHERE pipeline = $1 AND "schema" = lower($2) AND
		"table" = lower($3)`, pipeline, t.schema, t.name)
	return heldBy(columns, rows), wrap(err, "reading the table _leat_columns", "", "")
}

func heldBy(columns []existing, rows [][]string) []sqlgen.Held {
	ids := map[string]string{}
	for _, r := range rows {
		ids[r[0]] = r[1]
	}
	out := make([]sqlgen.Held, len(columns))
	for i, c := range columns {
		out[i] = sqlgen.Held{Name: c.name, ID: ids[strings.ToLower(c.name)]}
	}
	return out
}

// saveColumns writes down the ids of a table's columns.
func (s *sink) saveColumns(ctx context.Context, t table, held []sqlgen.Held) error {
	err := s.db.exec(ctx, `DELETE FROM `+columnsTable+` WHERE pipeline = $1 AND lane = $2 AND "schema" = lower($3) AND "table" = lower($4)`,
		s.start.Pipeline, s.start.Lane, t.schema, t.name)
	for _, h := range held {
		if err != nil {
			break
		}
		if h.ID != "" {
			err = s.db.exec(ctx, `INSERT INTO `+columnsTable+` VALUES ($1, $2, $3, lower($4), lower($5), $6, $7)`,
				s.start.Pipeline, s.start.Lane, s.start.Run, t.schema, t.name, h.Name, h.ID)
		}
	}
	return wrap(err, "writing the table _leat_columns", "", "")
}

// noteColumns writes down which column is which of a table that changes are written to for the first time.
func (s *sink) noteColumns(ctx context.Context, x *set, known []sqlgen.Held) error {
	if s.start.Mode != connector.Upsert || slices.ContainsFunc(known, hasID) {
		return nil
	}
	var held []sqlgen.Held
	for c, f := range x.schema.Columns.Fields() {
		held = append(held, sqlgen.Held{Name: x.at[c], ID: record.IDOf(f)})
	}
	if !slices.ContainsFunc(held, hasID) {
		return nil
	}
	return s.saveColumns(ctx, x.into, held)
}

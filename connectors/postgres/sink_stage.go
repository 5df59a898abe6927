package postgres

import (
	"fmt"
	"slices"
	"strings"
)

// stageExtra is how many columns of its own a stage has before the base keys: operation, pattern to fill in, row of the batch.
const stageExtra = 3

// stage is the temporary table that rows pass through on their way to a target, and the statements that work with it. Its data
// columns are called c0, c1 … in the order of the plan, so that no name of a target can clash with its own.
type stage struct {
	p    *plan
	into relation
	name string // quoted and qualified
}

func newStage(p *plan, into relation) *stage {
	shape := make([]string, 0, len(p.fits)+1)
	shape = append(shape, fmt.Sprint(p.key))
	for _, f := range p.fits {
		shape = append(shape, f.wireType)
	}
	return &stage{p: p, into: into, name: "pg_temp." + ident(helperName("_leat_stage_", append(shape, into.schema, into.name)...))}
}

// createSQL makes the stage where this connection (a pooler may have changed it) does not have it.
func (s *stage) createSQL() string {
	cols := make([]string, 0, len(s.p.fits)+stageExtra+len(s.p.key))
	for i, f := range s.p.fits {
		cols = append(cols, fmt.Sprintf("c%d %s", i, f.wireType))
	}
	cols = append(cols, "_op int4", "_fill int4", "_row int4")
	for n, k := range s.p.key {
		cols = append(cols, fmt.Sprintf("b%d %s", n, s.p.fits[k].wireType))
	}
	return fmt.Sprintf("CREATE TEMP TABLE IF NOT EXISTS %s (%s) ON COMMIT DELETE ROWS", s.name, strings.Join(cols, ", "))
}

// copySQL fills the stage.
func (s *stage) copySQL() string { return "COPY " + s.name + " FROM STDIN (FORMAT binary)" }

// value is the expression that turns a stage's column into the target's type. A cast never names a length: that would cut values
// off, where an assignment refuses them.
func (s *stage) value(prefix string, of, col int) string {
	expr := fmt.Sprintf("s.%s%d", prefix, of)
	f := s.p.fits[col]
	if f.direct {
		return expr
	}
	return expr + "::" + s.plain(col)
}

func (s *stage) plain(col int) string {
	c, _ := s.p.table.column(s.column(col))
	return c.Base.Plain
}

// column is the target's name of a sent column.
func (s *stage) column(col int) string { return s.p.schema.Columns.Field(s.p.send[col]).Name }

// match joins the target t and the stage s: by the row's own key (c), or by the base key (b).
func (s *stage) match(own bool) string {
	parts := make([]string, len(s.p.key))
	for n, k := range s.p.key {
		expr := s.value("b", n, k)
		if own {
			expr = s.value("c", k, k)
		}
		parts[n] = "t." + ident(s.column(k)) + " = " + expr
	}
	return strings.Join(parts, " AND ")
}

// settable reports whether an update may name the column: no part of the key, nothing that the server alone sets.
func (s *stage) settable(col int) bool {
	c, _ := s.p.table.column(s.column(col))
	return !slices.Contains(s.p.key, col) && c.Identity != "a"
}

// deleteSQL applies the deletes.
func (s *stage) deleteSQL() string {
	return fmt.Sprintf("DELETE FROM %s t USING %s s WHERE s._op = %d AND %s", s.into, s.name, stageDelete, s.match(true))
}

// updateSQL applies the rows of a pattern: the columns that are its own are set, the others stay.
func (s *stage) updateSQL(op int, own []bool) string {
	var sets []string
	for col, sent := range own {
		if sent && s.settable(col) {
			sets = append(sets, ident(s.column(col))+" = "+s.value("c", col, col))
		}
	}
	if len(sets) == 0 { // touches the row, so that a missing one is noticed
		k := s.p.key[0]
		sets = []string{ident(s.column(k)) + " = t." + ident(s.column(k))}
	}
	return fmt.Sprintf("UPDATE %s t SET %s FROM %s s WHERE s._op = %d AND %s",
		s.into, strings.Join(sets, ", "), s.name, op, s.match(true))
}

// fillSQL reads into the stage what rows that moved left behind under their old key.
func (s *stage) fillSQL(fill int, own []bool) string {
	var sets []string
	for col, sent := range own {
		if !sent {
			sets = append(sets, fmt.Sprintf("c%d = t.%s::%s", col, ident(s.column(col)), s.p.fits[col].wireType))
		}
	}
	return fmt.Sprintf("UPDATE %s s SET %s FROM %s t WHERE s._fill = %d AND %s",
		s.name, strings.Join(sets, ", "), s.into, fill, s.match(false))
}

// missingSQL lists the batch's rows of which the target holds no part.
func (s *stage) missingSQL() string {
	return fmt.Sprintf(`SELECT json_agg(s._row) FROM %[1]s s WHERE (s._op > 0 AND NOT EXISTS (SELECT FROM %[2]s t WHERE %[3]s))
OR (s._fill > 0 AND NOT EXISTS (SELECT FROM %[2]s t WHERE %[4]s))`, s.name, s.into, s.match(true), s.match(false))
}

// insertSQL is the beginning of both forms of insert.
func (s *stage) insertSQL() string {
	overriding := ""
	exprs := make([]string, len(s.p.send))
	for col := range s.p.send {
		exprs[col] = s.value("c", col, col)
		if c, _ := s.p.table.column(s.column(col)); c.Identity == "a" {
			overriding = " OVERRIDING SYSTEM VALUE"
		}
	}
	return fmt.Sprintf("INSERT INTO %s AS t (%s)%s SELECT %s FROM %s s", s.into, idents(s.p.names()), overriding,
		strings.Join(exprs, ", "), s.name)
}

// appendSQL adds all rows in their order.
func (s *stage) appendSQL() string { return s.insertSQL() + " ORDER BY s._row" }

// upsertSQL inserts or updates the complete rows, in key order: neighbours share pages of the index.
func (s *stage) upsertSQL() string {
	order := make([]string, len(s.p.key))
	names := make([]string, len(s.p.key))
	for n, k := range s.p.key {
		order[n], names[n] = s.value("c", k, k), s.column(k)
	}
	var sets []string
	for col := range s.p.send {
		if s.settable(col) {
			name := ident(s.column(col))
			sets = append(sets, name+" = EXCLUDED."+name)
		}
	}
	action := "NOTHING"
	if len(sets) > 0 {
		action = "UPDATE SET " + strings.Join(sets, ", ")
	}
	return fmt.Sprintf("%s WHERE s._op = %d ORDER BY %s ON CONFLICT (%s) DO %s", s.insertSQL(), stageUpsert, strings.Join(order, ", "),
		idents(names), action)
}

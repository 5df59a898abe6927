package postgres

import (
	"fmt"
	"slices"
	"strings"
)

// stageExtra is how many columns of its own a stage has before the base keys: operation, pattern to fill in, row of the batch.
const stageExtra = 3

// Operations of a stage's row; a positive number is a pattern of values that an update sets.
const (
	stageUpdate = -2 // of a row that the target should have, with all its values
	stageDelete = -1
	stageUpsert = 0
)

// stage is the temporary table that rows pass through on their way to a target, and the statements that work with it, or, where there
// are few rows, with arrays instead of it. Its data columns are called c0, c1 … in the order of the plan, the key (without a key: all
// columns) under which the target has the row b0, b1 …, and the target's columns that the dataset lacks x0, x1 …, so that no name of a
// target can clash with its own.
type stage struct {
	p    *plan
	into relation
	name string // quoted and qualified
	base []int  // the columns that the b columns are of
}

func newStage(p *plan, into relation) *stage {
	s := &stage{p: p, into: into, base: p.key}
	if len(p.schema.Key) == 0 {
		s.base = make([]int, len(p.send))
		for i := range s.base {
			s.base[i] = i
		}
	}
	s.name = "pg_temp." + ident(helperName("_leat_stage_", append(s.columns(), into.schema, into.name)...))
	return s
}

// columns returns the definitions of the stage's columns.
func (s *stage) columns() []string {
	cols := make([]string, 0, len(s.p.fits)+stageExtra+len(s.base)+len(s.p.extras))
	for i, f := range s.p.fits {
		cols = append(cols, fmt.Sprintf("c%d %s", i, f.wireType))
	}
	cols = append(cols, "_op int4", "_fill int4", "_row int4")
	for n, k := range s.base {
		cols = append(cols, fmt.Sprintf("b%d %s", n, s.p.fits[k].wireType))
	}
	for n, c := range s.p.extras {
		cols = append(cols, fmt.Sprintf("x%d %s", n, c.Base.Native))
	}
	return cols
}

// createSQL makes the stage where this connection (a pooler may have changed it) does not have it.
func (s *stage) createSQL() string {
	return fmt.Sprintf("CREATE TEMP TABLE IF NOT EXISTS %s (%s) ON COMMIT DELETE ROWS", s.name, strings.Join(s.columns(), ", "))
}

// copySQL fills the stage.
func (s *stage) copySQL() string {
	cols := s.columns()
	cols = cols[:len(cols)-len(s.p.extras)]
	for i, c := range cols {
		cols[i], _, _ = strings.Cut(c, " ")
	}
	return fmt.Sprintf("COPY %s (%s) FROM STDIN (FORMAT binary)", s.name, strings.Join(cols, ", "))
}

// rowSet are the rows that a statement works with.
type rowSet struct {
	from  string // an item of its FROM list, called s
	where string // which of its rows; empty: all
}

// staged are the stage's rows of one operation.
func (s *stage) staged(op int) rowSet {
	return rowSet{from: s.name + " s", where: fmt.Sprintf("s._op = %d", op)}
}

// and joins the condition with others.
func (r rowSet) and(conditions ...string) string {
	if r.where != "" {
		conditions = append([]string{r.where}, conditions...)
	}
	return strings.Join(conditions, " AND ")
}

// value is the expression that turns a stage's column into the target's type. A cast never names a length: that would cut values
// off, where an assignment refuses them.
func (s *stage) value(prefix string, of, col int) string {
	expr := fmt.Sprintf("s.%s%d", prefix, of)
	f := s.p.fits[col]
	if f.direct {
		return expr
	}
	return expr + "::" + s.target(col).Base.Plain
}

// target is the target's column of a sent one.
func (s *stage) target(col int) tableColumn {
	c, _ := s.p.table.column(s.column(col))
	return c
}

// column is the target's name of a sent column.
func (s *stage) column(col int) string { return s.p.schema.Columns.Field(s.p.send[col]).Name }

// match joins the target t and the rows s: by the row's own key (c), or by the key before (b).
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
	return !slices.Contains(s.p.key, col) && s.target(col).Identity != "a"
}

// sets reports whether an update has a column to set.
func (s *stage) sets() bool { return slices.ContainsFunc(s.p.all, s.settable) }

// replaces reports whether a row that comes again under its key has to be deleted first: an update would leave some of its columns.
func (s *stage) replaces() bool {
	if len(s.p.extras) > 0 {
		return true
	}
	for col := range s.p.send {
		if !slices.Contains(s.p.key, col) && !s.settable(col) {
			return true
		}
	}
	return false
}

// deleteSQL deletes the rows.
func (s *stage) deleteSQL(r rowSet) string {
	return fmt.Sprintf("DELETE FROM %s t USING %s WHERE %s", s.into, r.from, r.and(s.match(true)))
}

// updateSQL sets the columns that are the rows' own; the others stay.
func (s *stage) updateSQL(r rowSet, own []bool) string {
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
	return fmt.Sprintf("UPDATE %s t SET %s FROM %s WHERE %s", s.into, strings.Join(sets, ", "), r.from, r.and(s.match(true)))
}

// knownSQL updates complete rows that the target should have: that is faster than an insert that meets them.
func (s *stage) knownSQL(r rowSet) string {
	if !s.p.ordered {
		sorted := "SELECT * FROM " + r.from
		if r.where != "" {
			sorted += " WHERE " + r.where
		}
		r = rowSet{from: fmt.Sprintf("(%s ORDER BY %s) AS s", sorted, s.keyOrder())}
	}
	own := make([]bool, len(s.p.send))
	for i := range own {
		own[i] = true
	}
	return s.updateSQL(r, own)
}

// lackingSQL inserts those of the rows whose key the target does not have.
func (s *stage) lackingSQL(r rowSet) string {
	r.where = r.and(fmt.Sprintf("NOT EXISTS (SELECT FROM %s t WHERE %s)", s.into, s.match(true)))
	return s.upsertSQL(r, false)
}

// fillSQL reads into the stage what rows that moved left behind under their old key.
func (s *stage) fillSQL(fill int, own []bool) string {
	var sets []string
	for col, sent := range own {
		if !sent {
			sets = append(sets, fmt.Sprintf("c%d = t.%s::%s", col, ident(s.column(col)), s.p.fits[col].wireType))
		}
	}
	for n, c := range s.p.extras {
		sets = append(sets, fmt.Sprintf("x%d = t.%s", n, ident(c.Name)))
	}
	return fmt.Sprintf("UPDATE %s s SET %s FROM %s t WHERE s._fill = %d AND %s",
		s.name, strings.Join(sets, ", "), s.into, fill, s.match(false))
}

// missingSQL lists the batch's rows of which the target holds no part. whole are the patterns of rows that miss no value of the dataset.
func (s *stage) missingSQL(whole []int) string {
	part := "s._fill > 0"
	if len(whole) > 0 {
		part += " AND NOT " + inList("s._fill", whole)
	}
	return fmt.Sprintf(`SELECT s._row FROM %[1]s s WHERE (s._op > 0 AND NOT EXISTS (SELECT FROM %[2]s t WHERE %[3]s))
OR (%[5]s AND NOT EXISTS (SELECT FROM %[2]s t WHERE %[4]s))`, s.name, s.into, s.match(true), s.match(false), part)
}

// orphanedSQL makes plain rows of those that moved and miss no value of the dataset, where the target lacks what they were before.
func (s *stage) orphanedSQL() string {
	return fmt.Sprintf("UPDATE %s s SET _fill = 0 WHERE s._fill > 0 AND NOT EXISTS (SELECT FROM %s t WHERE %s)",
		s.name, s.into, s.match(false))
}

// arrivedSQL lists those of the rows whose key the target has.
func (s *stage) arrivedSQL(r rowSet) string {
	exists := fmt.Sprintf("EXISTS (SELECT FROM %s t WHERE %s)", s.into, s.match(true))
	return fmt.Sprintf("SELECT s._row FROM %s WHERE %s", r.from, r.and(exists))
}

func inList(expr string, numbers []int) string {
	return fmt.Sprintf("%s IN (%s)", expr, strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]"))
}

// insertSQL is the beginning of all forms of insert; filled: with the columns that the dataset lacks.
func (s *stage) insertSQL(r rowSet, filled bool) string {
	overriding := ""
	names, exprs := s.p.names(), make([]string, 0, len(s.p.send))
	for col := range s.p.send {
		exprs = append(exprs, s.value("c", col, col))
		if s.target(col).Identity == "a" {
			overriding = " OVERRIDING SYSTEM VALUE"
		}
	}
	if filled {
		for n, c := range s.p.extras {
			names, exprs = append(names, c.Name), append(exprs, fmt.Sprintf("s.x%d", n))
			if c.Identity == "a" {
				overriding = " OVERRIDING SYSTEM VALUE"
			}
		}
	}
	sql := fmt.Sprintf("INSERT INTO %s AS t (%s)%s SELECT %s FROM %s", s.into, idents(names), overriding, strings.Join(exprs, ", "), r.from)
	if r.where != "" {
		sql += " WHERE " + r.where
	}
	return sql
}

// appendSQL adds the rows in their order.
func (s *stage) appendSQL(r rowSet) string { return s.insertSQL(r, false) + " ORDER BY s._row" }

// keyOrder orders rows by their key, as the target does: neighbours share pages of the index.
func (s *stage) keyOrder() string {
	order := make([]string, len(s.p.key))
	for n, k := range s.p.key {
		order[n] = s.value("c", k, k)
	}
	return strings.Join(order, ", ")
}

// upsertSQL inserts or updates complete rows, in key order.
func (s *stage) upsertSQL(r rowSet, filled bool) string {
	names := make([]string, len(s.p.key))
	for n, k := range s.p.key {
		names[n] = s.column(k)
	}
	var sets []string
	set := func(name string) { sets = append(sets, ident(name)+" = EXCLUDED."+ident(name)) }
	for col := range s.p.send {
		if s.settable(col) {
			set(s.column(col))
		}
	}
	if filled {
		for _, c := range s.p.extras {
			if c.Identity != "a" {
				set(c.Name)
			}
		}
	}
	action := "NOTHING"
	if len(sets) > 0 {
		action = "UPDATE SET " + strings.Join(sets, ", ")
	}
	sql := s.insertSQL(r, filled)
	if !s.p.ordered { // else they are sent so
		sql += " ORDER BY " + s.keyOrder()
	}
	return fmt.Sprintf("%s ON CONFLICT (%s) DO %s", sql, idents(names), action)
}

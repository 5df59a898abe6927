package mysql

import (
	"fmt"
	"slices"
	"strings"
)

// Operations of a stage's row; a positive number is a pattern of values that an update sets.
const (
	stageDelete = -1
	stageUpsert = 0
)

// stage is the temporary table that rows pass through on their way to a target where a statement with the rows themselves does not do,
// and the statements that work with it. Its data columns are called c0, c1 … in the order of the plan, the key (without a key: all
// columns) under which the target has the row b0, b1 …, and the target's columns that the dataset lacks x0, x1 …, so that no name of a
// target can clash with its own. Each has the type of the target's column, so that nothing happens to values on the way between them.
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
	_, definitions := s.columns()
	s.name = relation{into.database, helperName("_leat_stage_", append(definitions, into.name)...)}.String()
	return s
}

// columns returns the names and the definitions of the stage's columns.
func (s *stage) columns() (names, definitions []string) {
	add := func(name, typ string) {
		names, definitions = append(names, name), append(definitions, name+" "+typ+" NULL")
	}
	for i, f := range s.p.fits {
		add(fmt.Sprintf("c%d", i), f.target.native())
	}
	for _, name := range []string{"_op", "_fill", "_row"} {
		add(name, "int")
	}
	for n, k := range s.base {
		add(fmt.Sprintf("b%d", n), s.p.fits[k].target.native())
	}
	for n, c := range s.p.extras {
		add(fmt.Sprintf("x%d", n), c.native())
	}
	return names, definitions
}

// createSQL makes the stage where this connection does not have it.
func (s *stage) createSQL() string {
	_, definitions := s.columns()
	return fmt.Sprintf("CREATE TEMPORARY TABLE IF NOT EXISTS %s (%s) ENGINE=InnoDB", s.name, strings.Join(definitions, ", "))
}

// fillHead is the beginning of the statements that fill the stage.
func (s *stage) fillHead() string {
	names, _ := s.columns()
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES ", s.name, strings.Join(names[:len(names)-len(s.p.extras)], ", "))
}

// target is the target's column of a sent one.
func (s *stage) target(col int) tableColumn { return s.p.fits[col].target }

// match joins the target t and the rows s: by the row's own key (c), or by the key before (b). Keys that the server takes for equal
// though they are not do not match.
func (s *stage) match(own bool) string {
	parts := make([]string, 0, len(s.p.key))
	for n, k := range s.p.key {
		expr := fmt.Sprintf("s.b%d", n)
		if own {
			expr = fmt.Sprintf("s.c%d", k)
		}
		c := s.target(k)
		parts = append(parts, fmt.Sprintf("t.%s = %s", ident(c.name), expr))
		if !c.exactText() {
			parts = append(parts, fmt.Sprintf("CAST(t.%s AS BINARY) = CAST(%s AS BINARY)", ident(c.name), expr))
		}
	}
	return strings.Join(parts, " AND ")
}

// settable reports whether an update may name the column: no part of the key.
func (s *stage) settable(col int) bool { return !slices.Contains(s.p.key, col) }

// deleteSQL deletes rows of the target.
func (s *stage) deleteSQL() string {
	return fmt.Sprintf("DELETE t FROM %s s JOIN %s t ON %s WHERE s._op = %d", s.name, s.into, s.match(true), stageDelete)
}

// updateSQL sets the columns that the rows' own values are known of; the others stay.
func (s *stage) updateSQL(where string, own []bool) string {
	var sets []string
	for col := range s.p.send {
		name := "t." + ident(s.target(col).name)
		switch {
		case !s.settable(col):
		case own == nil || own[col]:
			sets = append(sets, fmt.Sprintf("%s = s.c%d", name, col))
		case s.target(col).updates: // or it would change by itself
			sets = append(sets, name+" = "+name)
		}
	}
	if len(sets) == 0 { // finds the row, so that a missing one is noticed
		name := "t." + ident(s.target(s.p.key[0]).name)
		sets = []string{name + " = " + name}
	}
	return fmt.Sprintf("UPDATE %s s JOIN %s t ON %s SET %s WHERE %s", s.name, s.into, s.match(true), strings.Join(sets, ", "), where)
}

// fillSQL reads into the stage what rows that moved left behind under their old key.
func (s *stage) fillSQL(fill int, own []bool) string {
	var sets []string
	for col, sent := range own {
		if !sent {
			sets = append(sets, fmt.Sprintf("s.c%d = t.%s", col, ident(s.target(col).name)))
		}
	}
	for n, c := range s.p.extras {
		sets = append(sets, fmt.Sprintf("s.x%d = t.%s", n, ident(c.name)))
	}
	return fmt.Sprintf("UPDATE %s s JOIN %s t ON %s SET %s WHERE s._fill = %d",
		s.name, s.into, s.match(false), strings.Join(sets, ", "), fill)
}

// absent is a condition: the target does not have the row.
func (s *stage) absent() string { return "t." + ident(s.target(s.p.key[0]).name) + " IS NULL" }

// missingSQL lists the batch's rows of which the target holds no part. whole are the patterns of rows that miss no value of the dataset.
func (s *stage) missingSQL(whole []int) []string {
	part := "s._fill > 0"
	if len(whole) > 0 {
		part += " AND NOT " + inList("s._fill", whole)
	}
	const from = "SELECT s._row FROM %s s LEFT JOIN %s t ON %s WHERE %s AND %s"
	return []string{
		fmt.Sprintf(from, s.name, s.into, s.match(true), "s._op > 0", s.absent()),
		fmt.Sprintf(from, s.name, s.into, s.match(false), part, s.absent()),
	}
}

// orphanedSQL makes plain rows of those that moved and miss no value of the dataset, where the target lacks what they were before.
func (s *stage) orphanedSQL() string {
	return fmt.Sprintf("UPDATE %s s LEFT JOIN %s t ON %s SET s._fill = 0 WHERE s._fill > 0 AND %s",
		s.name, s.into, s.match(false), s.absent())
}

// arrivedSQL lists those of the rows whose key the target has.
func (s *stage) arrivedSQL(rows []int) string {
	return fmt.Sprintf("SELECT s._row FROM %s s JOIN %s t ON %s WHERE %s AND s._op >= 0",
		s.name, s.into, s.match(true), inList("s._row", rows))
}

// appendSQL inserts the rows that meet the condition; filled: with the columns that the dataset lacks.
func (s *stage) appendSQL(where, join string, filled bool) string {
	names, exprs := s.p.names(), make([]string, 0, len(s.p.send))
	for col := range s.p.send {
		exprs = append(exprs, fmt.Sprintf("s.c%d", col))
	}
	if filled {
		for n, c := range s.p.extras {
			names, exprs = append(names, c.name), append(exprs, fmt.Sprintf("s.x%d", n))
		}
	}
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s s%s WHERE %s",
		s.into, idents(names), strings.Join(exprs, ", "), s.name, join, where)
}

// upsertSQL inserts or updates complete rows. Only where the key's is the only unique index can a row meet no other row than its own; else
// rows that are there are updated by their key, and those that are not are inserted, so that one which has a value that another row
// has to itself is an error (case C058).
func (s *stage) upsertSQL(where string, filled bool) []string {
	if !s.p.sole {
		join := fmt.Sprintf(" LEFT JOIN %s t ON %s", s.into, s.match(true))
		return []string{s.replaceSQL(where, filled), s.appendSQL(where+" AND "+s.absent(), join, filled)}
	}
	var sets []string
	for col := range s.p.send {
		if s.settable(col) {
			sets = append(sets, fmt.Sprintf("%s = s.c%d", ident(s.target(col).name), col))
		}
	}
	if filled {
		for n, c := range s.p.extras {
			sets = append(sets, fmt.Sprintf("%s = s.x%d", ident(c.name), n))
		}
	}
	return []string{s.appendSQL(where, "", filled) + " ON DUPLICATE KEY UPDATE " + strings.Join(s.orItself(sets), ", ")}
}

// replaceSQL updates complete rows that are there.
func (s *stage) replaceSQL(where string, filled bool) string {
	sql := s.updateSQL(where, nil)
	if !filled {
		return sql
	}
	var sets []string
	for n, c := range s.p.extras {
		sets = append(sets, fmt.Sprintf("t.%s = s.x%d", ident(c.name), n))
	}
	return strings.Replace(sql, " SET ", " SET "+strings.Join(sets, ", ")+", ", 1)
}

// orItself is a list of assignments that is not empty: rows that have no more than a key stay as they are.
func (s *stage) orItself(sets []string) []string {
	if len(sets) > 0 {
		return sets
	}
	name := ident(s.target(s.p.key[0]).name)
	return []string{fmt.Sprintf("%s = %s.%[1]s", name, s.into)}
}

// directTail is the end of an insert of rows that are written over those that are there. mariadb: it knows no name for the new row.
func (s *stage) directTail(mariadb bool) string {
	var sets []string
	for col := range s.p.send {
		if !s.settable(col) {
			continue
		}
		name := ident(s.target(col).name)
		if mariadb {
			sets = append(sets, fmt.Sprintf("%s = VALUES(%[1]s)", name))
		} else {
			sets = append(sets, fmt.Sprintf("%s = _leat_new.%[1]s", name))
		}
	}
	tail := " ON DUPLICATE KEY UPDATE " + strings.Join(s.orItself(sets), ", ")
	if mariadb {
		return tail
	}
	return " AS _leat_new" + tail
}

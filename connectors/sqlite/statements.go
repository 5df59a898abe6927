package sqlite

import (
	"slices"
	"strings"

	"github.com/leatdata/leat/connector/sqlgen"
)

// statements are the texts of what is run for the rows of one schema; the connection keeps them prepared.
type statements struct {
	plain    string // INSERT
	onto     string // INSERT … ON CONFLICT
	deletion string // DELETE by key
	taken    string // looks for a row under one key that is not under another one
	whole    string // reads a row by its key: the columns given, and the rest
	updates  map[string]updating
}

// updating is an UPDATE: the columns that it sets are its first parameters, then comes the key.
type updating struct {
	text string
	set  []int
}

func (t *target) statements() statements {
	names := t.names(t.given)
	q := statements{plain: t.insertSQL(names, ""), updates: map[string]updating{}}
	if len(t.key) > 0 {
		byKey := " WHERE " + sqlgen.Equals(t.names(t.key))
		q.onto = t.insertSQL(names, t.onConflict())
		q.deletion = "DELETE FROM " + ident(t.physical) + byKey
		q.taken = "SELECT 1 FROM " + ident(t.physical) + byKey + " AND NOT (" + sqlgen.Equals(t.names(t.key)) + ")"
		q.whole = "SELECT " + sqlgen.Idents(t.whole()) + " FROM " + ident(t.physical) + byKey
	}
	return q
}

// names are the table's names of some columns of the batch.
func (t *target) names(cols []int) []string {
	names := make([]string, len(cols))
	for i, c := range cols {
		names[i] = t.cols[c].name
	}
	return names
}

// whole names the columns that make a row: those of the batch and the rest.
func (t *target) whole() []string { return slices.Concat(t.names(t.given), t.rest) }

func (t *target) insertSQL(names []string, tail string) string {
	if len(names) == 0 {
		return "INSERT INTO " + ident(t.physical) + " DEFAULT VALUES"
	}
	return "INSERT INTO " + ident(t.physical) + " (" + sqlgen.Idents(names) + ") VALUES (" + sqlgen.Marks(len(names)) + ")" + tail
}

// onConflict is the part of an INSERT that makes it an upsert.
func (t *target) onConflict() string {
	var set []string
	for _, c := range t.given {
		if !t.cols[c].isKey {
			n := sqlgen.Ident(t.cols[c].name)
			set = append(set, n+" = excluded."+n)
		}
	}
	on := " ON CONFLICT (" + sqlgen.Idents(t.names(t.key)) + ") DO "
	if len(set) == 0 {
		return on + "NOTHING"
	}
	return on + "UPDATE SET " + strings.Join(set, ", ")
}

// updateSQL is the statement that sets all columns but the kept ones; the key too where it moves.
func (t *target) updateSQL(kept []int, moves bool) updating {
	pattern := make([]byte, 1, 1+2*len(kept))
	if moves {
		pattern[0] = 1
	}
	for _, c := range kept {
		pattern = append(pattern, byte(c), byte(c>>8))
	}
	if q, ok := t.sql.updates[string(pattern)]; ok {
		return q
	}
	var q updating
	for _, c := range t.given {
		if (moves || !t.cols[c].isKey) && !slices.Contains(kept, c) {
			q.set = append(q.set, c)
		}
	}
	if len(q.set) == 0 { // nothing changes, but whether there is a row counts
		q.set = t.key
	}
	q.text = "UPDATE " + ident(t.physical) + " SET " + t.assignments(q.set) + " WHERE " + sqlgen.Equals(t.names(t.key))
	t.sql.updates[string(pattern)] = q
	return q
}

func (t *target) assignments(set []int) string {
	return sqlgen.Join(t.names(set), ", ", func(n string) string { return sqlgen.Ident(n) + " = ?" })
}

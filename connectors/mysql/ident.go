package mysql

import (
	"strings"

	"github.com/leatdata/leat/record"
)

// relation is a table's place: always both parts, as they are in the catalogue.
type relation struct {
	database, name string
}

// String returns the quoted, qualified name.
func (r relation) String() string { return ident(r.database) + "." + ident(r.name) }

// dataset returns the canonical dataset name of the relation.
func (r relation) dataset() string { return record.JoinName(r.database, r.name) }

// ident quotes one name. Names are quoted always, so that case, blanks and reserved words survive.
func ident(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// idents quotes names and joins them with commas.
func idents(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = ident(n)
	}
	return strings.Join(quoted, ", ")
}

// literal quotes a text constant for sessions of this package, in which a backslash escapes.
func literal(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''", "\x00", `\0`).Replace(s) + "'"
}

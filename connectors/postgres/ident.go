package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/record"
)

// maxIdentifier is how many bytes of a name the server keeps; it cuts longer ones silently, so none is ever sent.
const maxIdentifier = 63

// hashDigits is how much of a hash a generated name carries: 48 bits.
const hashDigits = 12

// relation is a table's place: always both parts, as they are in the catalogue.
type relation struct {
	schema, name string
}

// String returns the quoted, qualified name.
func (r relation) String() string { return pgx.Identifier{r.schema, r.name}.Sanitize() }

// dataset returns the canonical dataset name of the relation.
func (r relation) dataset() string { return record.JoinName(r.schema, r.name) }

// ident quotes one name. Names are quoted always, so that case, blanks and reserved words survive.
func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// idents quotes names and joins them with commas.
func idents(names []string) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(ident(n))
	}
	return b.String()
}

// literal quotes a text constant, whatever standard_conforming_strings says.
func literal(s string) string {
	quoted := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// shortName returns the name itself where the server keeps all of it, or else its beginning and a hash of the whole, so that two
// long names with the same beginning stay two. The same name gives the same result always.
func shortName(name string) string {
	if len(name) <= maxIdentifier {
		return name
	}
	head := name[:maxIdentifier-hashDigits-1]
	for head != "" && !utf8.ValidString(head) {
		head = head[:len(head)-1]
	}
	return head + "_" + nameHash(name)
}

// helperName is the name of an object that leat makes for its own use: a fixed prefix and a hash of what it is for.
func helperName(prefix string, of ...string) string { return prefix + nameHash(of...) }

func nameHash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))[:hashDigits]
}

// place says which relation a dataset is kept in: a name of two or more parts keeps its last two, one of a single part goes to
// the given schema. The table option overrides the name.
func place(dataset, schema, table string) relation {
	parts := record.SplitName(dataset)
	r := relation{schema: schema, name: parts[len(parts)-1]}
	if len(parts) > 1 {
		r.schema = parts[len(parts)-2]
	}
	if table != "" {
		parts = record.SplitName(table)
		r.name = parts[len(parts)-1]
		r.schema = schema
		if len(parts) > 1 {
			r.schema = parts[len(parts)-2]
		}
	}
	return relation{schema: shortName(r.schema), name: shortName(r.name)}
}

package mysql

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"

	"github.com/leatdata/leat/record"
)

// maxIdentifier is how many characters a name may have.
const maxIdentifier = 64

// hashDigits is how much of a hash a generated name carries: 48 bits.
const hashDigits = 12

// leatDatabase is where helper tables are kept if the configuration names no database.
const leatDatabase = "_leat"

// place says which table a dataset is kept in. The database is that of the configuration: a schema of the source is no database here.
// Where the configuration has none, it is the last but one part of the dataset's name. The table option overrides the name.
func (c *SinkConfig) place(dataset string) relation {
	parts := record.SplitName(dataset)
	if c.Table != "" {
		parts = record.SplitName(c.Table)
	}
	r := relation{database: c.Database, name: parts[len(parts)-1]}
	if len(parts) > 1 && (c.Database == "" || c.Table != "") {
		r.database = parts[len(parts)-2]
	}
	if r.database == "" {
		r.database = leatDatabase
	}
	return relation{database: shortName(r.database), name: shortName(r.name)}
}

// home is the database of the helper tables.
func (c *SinkConfig) home() string {
	if c.Database != "" {
		return c.Database
	}
	return leatDatabase
}

// shortName returns the name itself where the server takes it, or else its beginning and a hash of the whole, so that two
// long names with the same beginning stay two. The same name gives the same result always.
func shortName(name string) string {
	if utf8.RuneCountInString(name) <= maxIdentifier {
		return name
	}
	head := []rune(name)[:maxIdentifier-hashDigits-1]
	return string(head) + "_" + nameHash(name)
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

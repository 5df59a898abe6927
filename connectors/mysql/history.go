package mysql

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// definition is what a table is like at a place of the stream: what its rows in the log have to be read with.
type definition struct {
	rel     relation
	columns []sourceColumn // all, in the table's order
	key     []string       // the best key, as tableInfo has it; nil: none
	charset string         // what text columns have that say nothing else; empty: not known
	doubt   string         // why it may be wrong: a statement that is not understood here; empty: nothing

	// Of the statement that made it, for the stream's next schema alone.
	missing  map[string]string // by column: what rows have that are older
	computed []string          // columns whose values in older rows only the server knows
	renamed  map[string]string // columns by their names now: what they were called
}

// definitions are those of all tables that are followed, by their datasets: what a position keeps of them, so that a stream that is
// resumed reads old events with the columns that they were written with. A persisted format.
type definitions map[string]definitionDoc

// definitionDoc is a definition in a position.
type definitionDoc struct {
	Columns []columnDoc `json:"columns"`
	Key     []string    `json:"key,omitempty"`
	Charset string      `json:"charset,omitempty"`
	Doubt   string      `json:"doubt,omitempty"`
}

// columnDoc is a column in a position, by the words of the catalogue.
type columnDoc struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	Collation string `json:"collation,omitempty"`
	Charset   string `json:"charset,omitempty"` // where the collation's name does not begin with it
	NotNull   bool   `json:"notnull,omitempty"`
	Generated string `json:"generated,omitempty"`
	Checked   bool   `json:"json,omitempty"`
}

func (d *definition) doc() definitionDoc {
	out := definitionDoc{Key: d.key, Charset: d.charset, Doubt: d.doubt, Columns: make([]columnDoc, len(d.columns))}
	for i, c := range d.columns {
		out.Columns[i] = columnDoc{Name: c.name, Type: c.sql, Collation: c.collation, NotNull: c.notNull, Checked: c.checked}
		if charsetOf(c.collation) != c.charset {
			out.Columns[i].Charset = c.charset
		}
		if c.generated != 0 {
			out.Columns[i].Generated = string(rune(c.generated))
		}
	}
	return out
}

func (doc definitionDoc) definition(rel relation) *definition {
	d := &definition{rel: rel, key: doc.Key, charset: doc.Charset, doubt: doc.Doubt, columns: make([]sourceColumn, len(doc.Columns))}
	for i, c := range doc.Columns {
		col := declaredColumn(c.Name, c.Type)
		col.num, col.notNull, col.checked = i+1, c.NotNull, c.Checked
		col.collation, col.charset = c.Collation, c.Charset
		if col.charset == "" {
			col.charset = charsetOf(c.Collation)
		}
		if c.Generated != "" {
			col.generated = c.Generated[0]
		}
		d.columns[i] = col
	}
	return d
}

// charsetOf is the character set of a collation: its name begins with it. Newer names of MariaDB, such as uca1400_ai_ci, have none.
func charsetOf(collation string) string {
	set, _, _ := strings.Cut(collation, "_")
	if strings.HasPrefix(set, "uca") {
		return ""
	}
	return set
}

// declaredColumn makes a column of its type as SQL writes it, in the words of the catalogue or of a statement.
func declaredColumn(name, sql string) sourceColumn {
	c := sourceColumn{name: name, sql: sql}
	lower := strings.ToLower(sql)
	c.data = lower
	if at := strings.IndexAny(lower, " ("); at >= 0 {
		c.data = lower[:at]
	}
	c.unsigned = strings.Contains(afterParens(lower), "unsigned") || strings.Contains(afterParens(lower), "zerofill")
	var params []int
	if c.data != "enum" && c.data != "set" {
		if _, rest, ok := strings.Cut(lower, "("); ok {
			list, _, _ := strings.Cut(rest, ")")
			for p := range strings.SplitSeq(list, ",") {
				if n, err := strconv.Atoi(strings.TrimSpace(p)); err == nil {
					params = append(params, n)
				}
			}
		}
	}
	param := func(i, missing int) int {
		if i < len(params) {
			return params[i]
		}
		return missing
	}
	const defaultPrecision = 10
	switch c.data {
	case "decimal", "numeric":
		c.precision, c.scale = param(0, defaultPrecision), param(1, 0)
	case "bit", "char", "binary":
		c.length = param(0, 1)
	case "varchar", "varbinary":
		c.length = param(0, 0)
	case "time", "datetime", "timestamp":
		c.scale = param(0, 0)
	case "enum", "set":
		c.labels = parseLabels(sql)
	}
	return c
}

// clone returns a copy whose columns may be changed.
func (d *definition) clone() *definition {
	c := *d
	c.columns, c.key = slices.Clone(d.columns), slices.Clone(d.key)
	return &c
}

// column returns the index of a column, or -1. Names of columns have no case.
func (d *definition) column(name string) int {
	return slices.IndexFunc(d.columns, func(c sourceColumn) bool { return strings.EqualFold(c.name, name) })
}

// same reports whether rows are read the same with both definitions.
func (d *definition) same(e *definition) bool {
	a, errA := json.Marshal(d.plain())
	b, errB := json.Marshal(e.plain())
	return errA == nil && errB == nil && string(a) == string(b)
}

// plain is what of a definition decides how rows are read.
func (d *definition) plain() definitionDoc {
	doc := d.doc()
	doc.Charset, doc.Doubt = "", ""
	return doc
}

// history is what the tables that are followed are like at the present place of the stream.
type history struct {
	tables map[string]*definition // by dataset
}

func newHistory() *history { return &history{tables: map[string]*definition{}} }

// load takes what a position says.
func (h *history) load(defs *definitions, place func(dataset string) relation) {
	if defs == nil {
		return
	}
	for dataset, doc := range *defs {
		h.tables[dataset] = doc.definition(place(dataset))
	}
}

// definitions are what positions keep.
func (h *history) definitions() definitions {
	defs := make(definitions, len(h.tables))
	for name, d := range h.tables {
		defs[name] = d.doc()
	}
	return defs
}

// encode is what positions keep, in the order of the names.
func (h *history) encode() []byte {
	if len(h.tables) == 0 {
		return nil
	}
	doc, err := json.Marshal(h.definitions())
	if err != nil {
		panic(fmt.Sprintf("mysql: encoding definitions: %v", err)) // strings always marshal
	}
	return doc
}

package mysql

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// plan is how batches of one schema go into one table. It is made again when the schema or the table changes.
type plan struct {
	schema *record.Schema
	table  *table
	as     []string // what the schema's columns are called here; nil: what they are called there

	fits    []fitting     // of the columns that are sent
	send    []int         // their places in the schema
	missing []int         // columns of the schema that the table lacks
	extras  []tableColumn // columns of the target that the schema lacks, and that it does not compute
	key     []int         // the key's places in send, in key order; nil: the target computes a part of it

	file  bool // rows can go in a file: all texts are in the character set that files have
	exact bool // keys that are equal to the server are the same
	sole  bool // the key's index is the only unique one: no row can meet another one's value
}

// newPlan joins a schema with the table that it goes to, and reports everything that does not fit at once.
func newPlan(schema *record.Schema, t *table, w ways) (*plan, error) {
	p, err := joinPlan(schema, t, nil, w)
	if err != nil {
		return nil, err
	}
	return p, p.complain()
}

// joinPlan leaves out the columns that the table lacks.
func joinPlan(schema *record.Schema, t *table, as []string, w ways) (*plan, error) {
	p := &plan{schema: schema, table: t, as: as, file: true, exact: true}
	for i, f := range schema.Columns.Fields() {
		c, ok := t.column(p.name(i))
		if !ok {
			p.missing = append(p.missing, i)
			continue
		}
		fit, err := fit(f, c, w)
		if err != nil {
			return nil, err
		}
		if c.generated != 0 {
			continue
		}
		p.send, p.fits = append(p.send, i), append(p.fits, fit)
		p.file = p.file && fileable(c)
	}
	for _, c := range t.columns {
		if c.generated == 0 && !p.has(c.name) {
			p.extras = append(p.extras, c)
		}
	}
	for _, k := range schema.Key {
		at := slices.Index(p.send, k)
		if at < 0 {
			p.key = nil
			break
		}
		p.key = append(p.key, at)
		p.exact = p.exact && p.fits[at].target.exactText()
	}
	key, ok := t.keyOn(p.keyNames())
	p.sole = ok && len(t.keys) == 1 && key.flaw == "" && p.exact
	return p, nil
}

// fileable reports whether the bytes of a file mean for the column what a statement means.
func fileable(c tableColumn) bool {
	switch c.form {
	case formJSON:
		return c.checked && c.charset == "utf8mb4"
	case formText, formEnum, formSet:
		return c.charset == "utf8mb4" || c.charset == "ascii"
	case formGeometry, formUUID, formInet, formForeign, formVector:
		return false
	default:
		return true
	}
}

// name is what the schema's column i is called here.
func (p *plan) name(i int) string {
	if p.as != nil {
		return p.as[i]
	}
	return p.schema.Columns.Field(i).Name
}

// has reports whether the schema has a column of this name.
func (p *plan) has(name string) bool {
	for i := range p.schema.Columns.NumFields() {
		if strings.EqualFold(p.name(i), name) {
			return true
		}
	}
	return false
}

// keyNames are the names of the key's columns here.
func (p *plan) keyNames() []string {
	names := make([]string, len(p.schema.Key))
	for n, k := range p.schema.Key {
		names[n] = p.name(k)
	}
	return names
}

// names returns the names of the columns that are sent.
func (p *plan) names() []string {
	names := make([]string, len(p.send))
	for i := range p.send {
		names[i] = p.fits[i].target.name
	}
	return names
}

// refused is an error about the table.
func (t *table) refused(dataset string) *connector.Error {
	return &connector.Error{Class: connector.ClassConfig, Doing: "writing to " + t.at.String(), Dataset: dataset}
}

// complain reports columns that only one side has.
func (p *plan) complain() error {
	t, e := p.table, p.table.refused(p.schema.Dataset)
	e.Code = "mysql.columns"
	if len(p.missing) > 0 {
		names := make([]string, len(p.missing))
		for n, i := range p.missing {
			names[n] = fmt.Sprintf("%q", p.name(i))
		}
		e.Err = fmt.Errorf("the table has no column %s", strings.Join(names, ", "))
		e.Hint = fmt.Sprintf("ALTER TABLE %s %s; or leave the columns out (--columns)", t.at, strings.Join(p.additions(), ", "))
		return e
	}
	var needed, changes []string
	for _, c := range p.extras {
		if c.demanding() {
			needed = append(needed, c.name)
			changes = append(changes, fmt.Sprintf("MODIFY %s %s NULL", ident(c.name), c.declared()))
		}
	}
	switch {
	case len(needed) > 0:
		e.Code = "mysql.required"
		e.Err = fmt.Errorf("the table demands a value for %s, which the dataset does not have", idents(needed))
		e.Hint = fmt.Sprintf("ALTER TABLE %s %s; or give them a default", t.at, strings.Join(changes, ", "))
		return e
	case len(p.send) == 0 && p.schema.Columns.NumFields() > 0:
		e.Err, e.Hint = errors.New("the target computes every column"), "write to a table with ordinary columns"
		return e
	}
	return nil
}

// additions are what makes the missing columns, for a hint.
func (p *plan) additions() []string {
	s := &session{server: server{mariadb: true}}
	out := make([]string, 0, len(p.missing))
	for _, i := range p.missing {
		f := p.schema.Columns.Field(i)
		typ := record.NativeOf(f).Type
		if rt, err := record.TypeOf(f.Type); err == nil && record.NativeOf(f).System != systemName {
			c := s.chooseType(rt, instantsTimestamp, false, 0)
			typ = c.sql
		}
		out = append(out, fmt.Sprintf("ADD COLUMN %s %s", ident(p.name(i)), typ))
	}
	return out
}

// demanding reports whether rows can't be inserted without a value for the column.
func (c *tableColumn) demanding() bool {
	return c.notNull && !c.defaulted && !c.auto && c.generated == 0
}

// mergeable reports why rows can't be written by key, or nil.
func (p *plan) mergeable() error {
	names := p.keyNames()
	e := p.table.refused(p.schema.Dataset)
	e.Code, e.Doing = "mysql.key", "writing by key to "+p.table.at.String()
	switch {
	case len(names) == 0:
		e.Err, e.Hint = errors.New("the dataset has no key"), "name its key columns with --key, or use --mode append"
		return e
	case p.key == nil:
		e.Err, e.Hint = errors.New("the target computes a column of the key"), "use another key (--key)"
		return e
	}
	e.Code = "mysql.unique"
	key, ok := p.table.keyOn(names)
	if ok && key.flaw == "" {
		return nil
	}
	e.Err = fmt.Errorf("no unique index on exactly (%s)", idents(names))
	if ok {
		e.Err = fmt.Errorf("its unique index %q %s", key.name, key.flaw)
	}
	e.Hint = p.table.keyFix(names)
	return e
}

// keyFix is the statement that makes upserts by these columns possible.
func (t *table) keyFix(names []string) string {
	if slices.ContainsFunc(t.keys, func(k tableKey) bool { return k.primary }) {
		return fmt.Sprintf("ALTER TABLE %s ADD UNIQUE (%s)", t.at, idents(names))
	}
	return fmt.Sprintf("ALTER TABLE %s ADD PRIMARY KEY (%s)", t.at, idents(names))
}

// bind prepares writing the sent columns of rows. images: they need not be whole.
func (p *plan) bind(rb arrow.RecordBatch, image bool) (rowCells, error) {
	cells := make(rowCells, len(p.send))
	for n, col := range p.send {
		c, err := newOutCell(&p.fits[n], rb.Column(col))
		if err != nil {
			return nil, err
		}
		c.demanded = c.demanded && !image
		cells[n] = c
	}
	return cells, nil
}

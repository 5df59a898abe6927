package mysql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// alterStep is one thing that a statement does to the columns of a table.
type alterStep struct {
	kind    stepKind
	name    string       // of the column; of a key its columns are in key
	column  sourceColumn // as it is afterwards
	first   bool
	after   string // the column in front of it; empty: it stays, or comes last
	key     []string
	missing *string // added: what rows have that are older; nil: NULL
	unknown bool    // added: what rows have that are older is the server's to know
	maybe   bool    // IF EXISTS, IF NOT EXISTS
	charset string
	what    string // what is not understood
}

type stepKind uint8

const (
	stepAdd stepKind = iota + 1
	stepDrop
	stepChange // also of its type
	stepRename
	stepPrimary // key
	stepUnique  // key
	stepNoPrimary
	stepCharset // of what is added from here on
	stepConvert // of all columns with text
	stepDoubt
)

// unknownCharset stands for a character set that a statement does not tell.
const unknownCharset = "?"

// apply does the step to a definition. What does not fit casts doubt on it.
func (s *alterStep) apply(d *definition) { //nolint:cyclop // a case for each kind
	at := d.column(s.name)
	switch s.kind {
	case stepAdd:
		if at >= 0 {
			if !s.maybe {
				d.doubt = "it has a column " + s.name + " already"
			}
			return
		}
		s.put(d, s.fill(d))
	case stepChange:
		if at < 0 {
			if !s.maybe {
				d.doubt = "it has no column " + s.name
			}
			return
		}
		d.renameKey(d.columns[at].name, s.column.name)
		c := s.fill(d)
		if !s.first && s.after == "" {
			d.columns[at] = c
			return
		}
		d.columns = slices.Delete(d.columns, at, at+1)
		s.put(d, c)
	case stepDrop:
		if at < 0 {
			if !s.maybe {
				d.doubt = "it has no column " + s.name
			}
			return
		}
		d.key = slices.DeleteFunc(d.key, func(k string) bool { return strings.EqualFold(k, s.name) })
		d.columns = slices.Delete(d.columns, at, at+1)
	case stepRename:
		if at < 0 {
			d.doubt = "it has no column " + s.name
			return
		}
		d.renameKey(d.columns[at].name, s.column.name)
		d.columns[at].name = s.column.name
	case stepPrimary:
		d.key = d.named(s.key)
	case stepUnique:
		if d.key == nil {
			d.unique(s.key)
		}
	case stepNoPrimary:
		d.key = nil
	case stepCharset:
		d.charset = s.charset
	case stepConvert:
		d.charset = s.charset
		for i := range d.columns {
			if c := &d.columns[i]; c.charset != "" {
				c.setCharset(s.charset)
			}
		}
	case stepDoubt:
		d.doubt = s.what
	}
}

// setCharset sets the character set, by its name or by that of a collation.
func (c *sourceColumn) setCharset(name string) {
	if name == "" {
		name = unknownCharset
	}
	c.charset, c.collation = charsetOf(name), name
	if !strings.Contains(name, "_") {
		c.collation = ""
	}
}

// fill is the column with what the table decides.
func (s *alterStep) fill(d *definition) sourceColumn {
	c := s.column
	if c.charset == unknownCharset {
		c.setCharset(d.charset)
	}
	return c
}

// put puts a column in its place.
func (s *alterStep) put(d *definition, c sourceColumn) {
	where := len(d.columns)
	switch {
	case s.first:
		where = 0
	case s.after != "":
		at := d.column(s.after)
		if at < 0 {
			d.doubt = "it has no column " + s.after
			return
		}
		where = at + 1
	}
	d.columns = slices.Insert(d.columns, where, c)
	if s.missing != nil {
		if d.missing == nil {
			d.missing = map[string]string{}
		}
		d.missing[c.name] = *s.missing
	}
	if s.unknown {
		d.computed = append(d.computed, c.name)
	}
}

func (d *definition) renameKey(from, to string) {
	for i, k := range d.key {
		if k == from {
			d.key[i] = to
		}
	}
	if from != to {
		if d.renamed == nil {
			d.renamed = map[string]string{}
		}
		before := from
		if first, again := d.renamed[from]; again {
			before = first
			delete(d.renamed, from)
		}
		d.renamed[to] = before
	}
}

// named gives names the case that the columns have.
func (d *definition) named(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = n
		if at := d.column(n); at >= 0 {
			out[i] = d.columns[at].name
			d.columns[at].notNull = true
		}
	}
	return out
}

// unique makes a key of an index whose columns are never NULL.
func (d *definition) unique(names []string) {
	for _, n := range names {
		if at := d.column(n); at < 0 || !d.columns[at].notNull {
			return
		}
	}
	d.key = d.named(names)
}

// alterTable reads what follows ALTER TABLE.
func (p *ddl) alterTable() []change {
	p.ifExists()
	c := change{kind: altered, table: p.table()}
	if p.peek().is("WAIT") {
		p.at += 2
	}
	p.skip("NOWAIT")
	var out []change
	for !p.done() {
		begin := p.at
		steps, more := p.alteration(c.table)
		c.alter = append(c.alter, steps...)
		out = append(out, more...)
		p.clause()
		p.sign(",")
		if p.at == begin { // a parenthesis that closes nothing
			p.at++
		}
	}
	return append([]change{c}, out...)
}

// alteration reads one clause.
func (p *ddl) alteration(table relation) (steps []alterStep, more []change) {
	switch t := p.next(); {
	case t.is("ADD"):
		if p.peek().is("PARTITION") {
			return nil, nil
		}
		p.skip("COLUMN")
		p.ifExistsStep(&steps)
		maybe := len(steps) > 0
		steps = nil
		if p.sign("(") {
			for !p.done() && !p.isSign(")") {
				steps = append(steps, p.element()...)
				p.clause()
				p.sign(",")
			}
			p.sign(")")
		} else {
			steps = p.element()
		}
		for i := range steps {
			steps[i].maybe = maybe
		}
		return steps, nil
	case t.is("DROP"):
		return p.dropStep(), nil
	case t.is("MODIFY", "CHANGE"):
		p.skip("COLUMN")
		maybe := p.phrase("IF", "EXISTS")
		name := p.peek().text
		if t.is("CHANGE") {
			p.at++
		}
		s := p.columnStep()
		s.kind, s.name, s.maybe, s.missing, s.unknown = stepChange, name, maybe, nil, false
		return p.withKeys(s), nil
	case t.is("RENAME"):
		switch {
		case p.skip("COLUMN"):
			p.phrase("IF", "EXISTS")
			s := alterStep{kind: stepRename, name: p.next().text}
			p.skip("TO")
			s.column.name = p.next().text
			return []alterStep{s}, nil
		case p.skip("INDEX", "KEY"):
			return nil, nil
		}
		p.skip("TO", "AS")
		p.sign("=")
		return nil, []change{{kind: renamed, table: table, to: p.table()}}
	case t.is("CONVERT"):
		p.phrase("TO")
		if p.phrase("CHARACTER", "SET") || p.skip("CHARSET") {
			return []alterStep{{kind: stepConvert, charset: p.charsetName()}}, nil
		}
	case t.is("DEFAULT", "CHARACTER", "CHARSET", "COLLATE"):
		p.at--
		return []alterStep{{kind: stepCharset, charset: p.options()}}, nil
	case t.is("TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT"): // rows come or go that the log does not have
		if p.peek().is("PARTITION", "TABLESPACE") {
			return []alterStep{{kind: stepDoubt, what: "rows came or went that the log does not have: " + strings.ToUpper(t.text)}}, nil
		}
	}
	return nil, nil // indexes, constraints, partitions, options: nothing that changes how rows are read
}

// ifExistsStep notes IF NOT EXISTS.
func (p *ddl) ifExistsStep(steps *[]alterStep) {
	if p.phrase("IF", "NOT", "EXISTS") {
		*steps = append(*steps, alterStep{})
	}
}

func (p *ddl) charsetName() string {
	p.sign("=")
	name := strings.ToLower(p.next().text)
	if p.skip("COLLATE") {
		p.sign("=")
		name = strings.ToLower(p.next().text)
	}
	return name
}

func (p *ddl) dropStep() []alterStep {
	switch t := p.peek(); {
	case t.is("PRIMARY"):
		return []alterStep{{kind: stepNoPrimary}}
	case t.is("PARTITION"):
		return []alterStep{{kind: stepDoubt, what: "rows went that the log does not have: DROP PARTITION"}}
	case t.is("INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK", "SYSTEM", "PERIOD"):
		return nil
	}
	p.skip("COLUMN")
	maybe := p.phrase("IF", "EXISTS")
	return []alterStep{{kind: stepDrop, name: p.next().text, maybe: maybe}}
}

// element reads a part of the list of CREATE TABLE, or what follows ADD: a column, or a key.
func (p *ddl) element() []alterStep {
	if p.peek().kind == word {
		if p.skip("CONSTRAINT") {
			if !p.peek().is("PRIMARY", "UNIQUE", "FOREIGN", "CHECK") {
				p.at++ // its name
			}
		}
		switch t := p.peek(); {
		case t.is("PRIMARY"):
			p.at++
			p.skip("KEY")
			return []alterStep{{kind: stepPrimary, key: p.keyColumns()}}
		case t.is("UNIQUE"):
			p.at++
			return []alterStep{{kind: stepUnique, key: p.keyColumns()}}
		case t.is("INDEX", "KEY", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PERIOD", "VECTOR") && !p.startsColumn():
			return nil
		case t.is("SYSTEM"):
			return nil
		}
	}
	s := p.columnStep()
	s.kind, s.name = stepAdd, s.column.name
	return p.withKeys(s)
}

// startsColumn reports whether a word that may begin an index is the name of a column.
func (p *ddl) startsColumn() bool {
	if p.at+1 >= len(p.all) {
		return false
	}
	name, _ := canonicalType(p.all[p.at+1].text)
	return name != "" && p.all[p.at+1].kind == word && !p.peek().is("FOREIGN", "CHECK")
}

// keyColumns reads up to the columns of a key, and those. Of prefixes and expressions nothing is a key.
func (p *ddl) keyColumns() (names []string) {
	for !p.done() && !p.isSign("(") && !p.isSign(",") {
		p.at++
	}
	if !p.sign("(") {
		return nil
	}
	whole := true
	for !p.done() && !p.isSign(")") {
		switch t := p.next(); {
		case t.kind == word && t.is("ASC", "DESC"):
		case t.kind == word || t.kind == quoted:
			names = append(names, t.text)
		case t.text == "(":
			whole = false
			p.at--
			p.parens()
		}
	}
	p.sign(")")
	if !whole {
		return nil
	}
	return names
}

// withKeys adds what a column's own attributes say of keys, which columnStep left in key.
func (*ddl) withKeys(s alterStep) []alterStep {
	switch {
	case len(s.key) == 0:
		return []alterStep{s}
	case s.key[0] == "PRIMARY":
		s.key = nil
		return []alterStep{s, {kind: stepPrimary, key: []string{s.column.name}}}
	}
	s.key = nil
	return []alterStep{s, {kind: stepUnique, key: []string{s.column.name}}}
}

// columnStep reads a column: its name, its type, and what else is said of it.
func (p *ddl) columnStep() alterStep {
	var s alterStep
	name := p.next().text
	s.column = p.columnType(name)
	p.attributes(&s)
	return s
}

// canonicalType is what the servers call a type in their catalogues, and parameters that the name alone means; empty: it is none that is
// known here.
func canonicalType(name string) (canonical, params string) {
	switch lower := strings.ToLower(name); lower {
	case "int", "integer", "int4":
		return "int", ""
	case "tinyint", "int1":
		return "tinyint", ""
	case "smallint", "int2":
		return "smallint", ""
	case "mediumint", "int3", "middleint":
		return "mediumint", ""
	case "bigint", "int8", "serial":
		return "bigint", ""
	case "bool", "boolean":
		return "tinyint", "(1)"
	case "decimal", "dec", "fixed", "numeric":
		return "decimal", ""
	case "double", "real", "float8":
		return "double", ""
	case "float", "float4":
		return "float", ""
	case "char", "character", "nchar", "national":
		return "char", ""
	case "varchar", "nvarchar", "varcharacter":
		return "varchar", ""
	case "long":
		return "mediumtext", ""
	case "bit", "date", "time", "datetime", "timestamp", "year", "binary", "varbinary", "tinytext", "text", "mediumtext", "longtext",
		"tinyblob", "blob", "mediumblob", "longblob", "enum", "set", "json", "geometry", "point", "linestring", "polygon", "multipoint",
		"multilinestring", "multipolygon", "uuid", "inet4", "inet6", "vector":
		return lower, ""
	case "geometrycollection", "geomcollection":
		return "geomcollection", ""
	}
	return "", ""
}

// columnType reads a type, and writes it as the catalogue of the server does.
func (p *ddl) columnType(name string) sourceColumn {
	begin := p.next()
	data, params := canonicalType(begin.text)
	switch {
	case begin.is("DOUBLE"):
		p.skip("PRECISION")
	case begin.is("LONG"):
		if p.skip("VARBINARY") {
			data = "mediumblob"
		}
		p.skip("VARCHAR")
	case begin.is("NATIONAL"):
		if p.next().is("VARCHAR", "VARCHARACTER") {
			data = "varchar"
		}
	}
	if p.skip("VARYING") {
		data = "varchar"
	}
	if p.isSign("(") {
		params = p.typeParams()
	}
	c := sourceColumn{name: name, sql: strings.ToLower(begin.text) + params, data: "unknown"}
	if data == "" {
		return c
	}
	data, params = sizedType(data, params)
	unsigned, zerofill := begin.is("SERIAL"), false
	for {
		switch {
		case p.skip("UNSIGNED"):
			unsigned = true
		case p.skip("ZEROFILL"):
			unsigned, zerofill = true, true
		case p.skip("SIGNED"):
		default:
			sql := data + p.width(data, params, unsigned, zerofill)
			if unsigned {
				sql += " unsigned"
			}
			if zerofill {
				sql += " zerofill"
			}
			c = declaredColumn(name, sql)
			c.notNull = begin.is("SERIAL")
			if begin.is("JSON") && p.mariadb {
				c = declaredColumn(name, "longtext")
				c.checked = true
				c.setCharset("utf8mb4_bin")
			} else if textual(c.data) {
				c.charset = unknownCharset
				if begin.is("NCHAR", "NVARCHAR", "NATIONAL") {
					c.setCharset("utf8mb3")
				}
			}
			return c
		}
	}
}

// textual reports whether values of a type have a character set.
func textual(data string) bool {
	switch data {
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set":
		return true
	}
	return false
}

// typeParams reads parameters in parentheses, without blanks; labels are quoted as the catalogue has them.
func (p *ddl) typeParams() string {
	var b strings.Builder
	p.at++
	b.WriteByte('(')
	for !p.done() && !p.isSign(")") {
		switch t := p.next(); t.kind {
		case text:
			b.WriteString("'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(t.text) + "'")
		default:
			b.WriteString(t.text)
		}
	}
	p.sign(")")
	b.WriteByte(')')
	return b.String()
}

// sizedType is the type that a text or a blob of a declared size becomes.
func sizedType(data, params string) (string, string) {
	if data != "text" && data != "blob" || params == "" {
		return data, params
	}
	n, err := strconv.Atoi(strings.Trim(params, "()"))
	if err != nil {
		return data, ""
	}
	if data == "text" {
		n *= 4
	}
	switch {
	case n < 1<<8:
		return "tiny" + data, ""
	case n < 1<<16:
		return data, ""
	case n < 1<<24:
		return "medium" + data, ""
	}
	return "long" + data, ""
}

// width is the parameters of a type as the catalogue has them.
func (p *ddl) width(data, params string, unsigned, zerofill bool) string { //nolint:cyclop // a case for each sort of types
	digits := map[string][2]int{"tinyint": {4, 3}, "smallint": {6, 5}, "mediumint": {9, 8}, "int": {11, 10}, "bigint": {20, 20}}
	n, integer := digits[data]
	switch {
	case integer && params == "" && (p.mariadb || zerofill):
		return fmt.Sprintf("(%d)", n[map[bool]int{true: 1}[unsigned]])
	case integer && !p.mariadb && !zerofill && (data != "tinyint" || params != "(1)" || unsigned):
		return ""
	case data == "year":
		if p.mariadb {
			return "(4)"
		}
		return ""
	case data == "decimal" && params == "":
		return "(10,0)"
	case data == "decimal" && !strings.Contains(params, ","):
		return strings.TrimSuffix(params, ")") + ",0)"
	case (data == "bit" || data == "char" || data == "binary") && params == "":
		return "(1)"
	case (data == "float" || data == "double") && !strings.Contains(params, ","):
		return ""
	case (data == "datetime" || data == "timestamp" || data == "time") && params == "(0)":
		return ""
	}
	return params
}

// attributes reads what follows a type.
func (p *ddl) attributes(s *alterStep) { //nolint:cyclop // a case for each attribute
	c := &s.column
	hasDefault := false
	for !p.done() && !p.isSign(",") && !p.isSign(")") {
		switch {
		case p.phrase("CHARACTER", "SET"), p.skip("CHARSET"):
			c.setCharset(strings.ToLower(p.next().text))
		case p.skip("COLLATE"):
			name := strings.ToLower(p.next().text)
			if set := charsetOf(name); set != "" {
				c.charset = set
			}
			c.collation = name
		case p.skip("ASCII"):
			c.setCharset("latin1")
		case p.skip("UNICODE"):
			c.setCharset("ucs2")
		case p.phrase("NOT", "NULL"):
			c.notNull = true
		case p.skip("NULL"):
			c.notNull = false
		case p.skip("DEFAULT"):
			hasDefault = true
			p.defaultValue(s)
		case p.phrase("ON", "UPDATE"):
			p.at++
			p.parens()
		case p.phrase("PRIMARY", "KEY"):
			c.notNull = true
			s.key = []string{"PRIMARY"}
		case p.skip("UNIQUE"):
			p.skip("KEY")
			if s.key == nil {
				s.key = []string{"UNIQUE"}
			}
		case p.skip("AUTO_INCREMENT"):
			s.unknown = true
		case p.skip("AS"):
			s.unknown = true
			p.parens()
			if c.generated == 0 {
				c.generated = 'v'
			}
		case p.skip("STORED", "PERSISTENT"):
			if c.generated != 0 {
				c.generated = 's'
			}
		case p.skip("FIRST"):
			s.first = true
		case p.skip("AFTER"):
			s.after = p.next().text
		case p.skip("COMMENT"):
			p.at++
		default:
			if !p.parens() {
				p.at++
			}
		}
	}
	if !hasDefault && c.notNull && !s.unknown {
		s.implied()
	}
}

// defaultValue reads what rows get that say nothing: a constant, or what only the server can tell.
func (p *ddl) defaultValue(s *alterStep) {
	t := p.next()
	value := t.text
	switch {
	case t.kind == text:
	case t.kind == sign && t.text == "-", t.kind == sign && t.text == "+":
		value = strings.TrimPrefix(t.text, "+") + p.next().text
	case t.is("NULL"):
		return
	case t.is("TRUE"):
		value = "1"
	case t.is("FALSE"):
		value = "0"
	case t.kind == word && isNumber(t.text):
	case (t.is("B") || t.is("X") || t.is("N")) && p.peek().kind == text, t.kind == word, t.kind == sign:
		s.unknown = true
		if t.text == "(" {
			p.at--
		}
		p.parens()
		return
	}
	s.missing = &value
}

// implied is what older rows get in a column that must have a value and has no default.
func (s *alterStep) implied() {
	value := ""
	switch c := &s.column; c.data {
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
		if c.checked {
			s.unknown = true
			return
		}
	case "enum":
		if len(c.labels) > 0 {
			value = c.labels[0]
		}
	case "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year":
		value = "0"
	case "time":
		value = "00:00:00"
	default:
		s.unknown = true
		return
	}
	s.missing = &value
}

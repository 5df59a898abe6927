package mysql

import (
	"slices"
	"strings"

	"github.com/leatdata/leat/format/mybinlog"
)

// token is a piece of a statement.
type token struct {
	text  string // of a word as it is written; of names and texts what they mean
	kind  tokenKind
	begin int // in the statement
	end   int
}

type tokenKind uint8

const (
	word   tokenKind = iota + 1 // also of numbers
	quoted                      // a name
	text                        // a constant
	sign                        // any other character
)

// is reports whether the token is a word.
func (t token) is(words ...string) bool {
	return t.kind == word && slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(t.text, w) })
}

// tokens takes a statement apart. What stands in comments with a version is part of the statement, as the servers have it.
func tokens(sql string, mode uint64) (out []token) { //nolint:cyclop // a case for each sort of token
	for i := 0; i < len(sql); {
		c := sql[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == 0:
			i++
		case c == '#' || (c == '-' && strings.HasPrefix(sql[i:], "--") && (i+2 == len(sql) || sql[i+2] <= ' ')):
			end := strings.IndexByte(sql[i:], '\n')
			if end < 0 {
				return out
			}
			i += end + 1
		case strings.HasPrefix(sql[i:], "/*!"), strings.HasPrefix(sql[i:], "/*M!"):
			i += strings.IndexByte(sql[i:], '!') + 1
			for i < len(sql) && sql[i] >= '0' && sql[i] <= '9' {
				i++
			}
		case strings.HasPrefix(sql[i:], "/*"):
			end := strings.Index(sql[i+2:], "*/")
			if end < 0 {
				return out
			}
			i += end + 4
		case strings.HasPrefix(sql[i:], "*/"): // the end of a comment with a version
			i += 2
		case c == '`' || c == '\'' || c == '"':
			t := token{kind: text, begin: i}
			if c == '`' || (c == '"' && mode&mybinlog.ModeANSIQuotes != 0) {
				t.kind = quoted
			}
			t.text, i = unquote(sql, i, t.kind == text && mode&mybinlog.ModeNoBackslashEscapes == 0)
			t.end = i
			out = append(out, t)
		case wordByte(c):
			begin := i
			for i < len(sql) && (wordByte(sql[i]) || (sql[i] == '.' && digitsOnly(sql[begin:i]))) {
				i++
			}
			out = append(out, token{text: sql[begin:i], kind: word, begin: begin, end: i})
		default:
			out = append(out, token{text: sql[i : i+1], kind: sign, begin: i, end: i + 1})
			i++
		}
	}
	return out
}

func wordByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || (c >= '0' && c <= '9') || (c|0x20 >= 'a' && c|0x20 <= 'z')
}

func digitsOnly(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// unquote reads what stands in quotes; a quote in it is doubled.
func unquote(sql string, at int, escapes bool) (string, int) {
	quote := sql[at]
	var b strings.Builder
	for i := at + 1; i < len(sql); i++ {
		switch {
		case sql[i] == quote && i+1 < len(sql) && sql[i+1] == quote:
			b.WriteByte(quote)
			i++
		case sql[i] == quote:
			return b.String(), i + 1
		case sql[i] == '\\' && escapes && i+1 < len(sql):
			i++
			b.WriteByte(unescape(sql[i]))
		default:
			b.WriteByte(sql[i])
		}
	}
	return b.String(), len(sql)
}

// change is what a statement does to tables.
type change struct {
	kind  changeKind
	table relation
	to    relation    // of renamed
	alter []alterStep // of altered, in order
	made  *definition // of created; nil: its columns are not in the statement
	like  relation    // of created: the table that it is made like
	maybe bool        // of created: IF NOT EXISTS; the server logs it also where it did nothing
}

type changeKind uint8

const (
	created changeKind = iota + 1
	dropped
	truncated
	renamed
	altered
	databaseDropped // table has no name
)

// parseDDL says what a statement does to tables; nothing: it does nothing to their columns or rows.
func parseDDL(sql, database string, mode uint64, mariadb bool) []change {
	p := &ddl{sql: sql, all: tokens(sql, mode), database: database, mariadb: mariadb}
	switch first := p.next(); {
	case first.is("CREATE"):
		return p.create()
	case first.is("ALTER"):
		p.skip("ONLINE", "OFFLINE", "IGNORE")
		if p.skip("TABLE") {
			return p.alterTable()
		}
	case first.is("DROP"):
		return p.drop()
	case first.is("TRUNCATE"):
		p.skip("TABLE")
		return []change{{kind: truncated, table: p.table()}}
	case first.is("RENAME"):
		return p.rename()
	}
	return nil
}

// ddl reads a statement. Behind the end it reads empty tokens.
type ddl struct {
	sql      string
	all      []token
	at       int
	database string
	mariadb  bool
}

func (p *ddl) peek() token {
	if p.at < len(p.all) {
		return p.all[p.at]
	}
	return token{begin: len(p.sql), end: len(p.sql)}
}

func (p *ddl) next() token {
	t := p.peek()
	p.at++
	return t
}

func (p *ddl) done() bool { return p.at >= len(p.all) || p.isSign(";") }

func (p *ddl) isSign(s string) bool { t := p.peek(); return t.kind == sign && t.text == s }

func (p *ddl) sign(s string) bool {
	if p.isSign(s) {
		p.at++
		return true
	}
	return false
}

// skip reads on behind these words, any of them, as often as they come. It returns false where none came.
func (p *ddl) skip(words ...string) (some bool) {
	for p.peek().is(words...) {
		p.at++
		some = true
	}
	return some
}

// phrase reads on behind these words if exactly they come, in order.
func (p *ddl) phrase(words ...string) bool {
	for i, w := range words {
		if p.at+i >= len(p.all) || !p.all[p.at+i].is(w) {
			return false
		}
	}
	p.at += len(words)
	return true
}

func (p *ddl) ifExists() bool { return p.phrase("IF", "NOT", "EXISTS") || p.phrase("IF", "EXISTS") }

func (p *ddl) table() relation {
	r := relation{database: p.database, name: p.next().text}
	if p.sign(".") {
		r = relation{database: r.name, name: p.next().text}
	}
	return r
}

// parens reads on behind a pair of parentheses, if one comes.
func (p *ddl) parens() bool {
	if !p.sign("(") {
		return false
	}
	for depth := 1; depth > 0 && p.at < len(p.all); p.at++ {
		switch {
		case p.isSign("("):
			depth++
		case p.isSign(")"):
			depth--
		}
	}
	return true
}

// clause reads on to the comma or the closing parenthesis that ends a part of a list.
func (p *ddl) clause() {
	for !p.done() && !p.isSign(",") && !p.isSign(")") {
		if !p.parens() {
			p.at++
		}
	}
}

func (p *ddl) drop() []change {
	if p.skip("TEMPORARY") {
		return nil
	}
	switch t := p.next(); {
	case t.is("DATABASE", "SCHEMA"):
		p.ifExists()
		return []change{{kind: databaseDropped, table: relation{database: p.next().text}}}
	case !t.is("TABLE", "TABLES"):
		return nil
	}
	p.ifExists()
	var out []change
	for {
		out = append(out, change{kind: dropped, table: p.table()})
		if !p.sign(",") {
			return out
		}
	}
}

func (p *ddl) rename() []change {
	if !p.skip("TABLE", "TABLES") {
		return nil
	}
	p.ifExists()
	var out []change
	for {
		c := change{kind: renamed, table: p.table()}
		if p.peek().is("WAIT") {
			p.at += 2
		}
		p.skip("NOWAIT", "TO")
		c.to = p.table()
		out = append(out, c)
		if !p.sign(",") {
			return out
		}
	}
}

// create reads CREATE TABLE. Where the statement does not tell the columns, only that there is a table now is known.
func (p *ddl) create() []change {
	p.phrase("OR", "REPLACE")
	if p.skip("TEMPORARY") || !p.skip("TABLE") {
		return nil
	}
	maybe := p.ifExists()
	c := change{kind: created, maybe: maybe, table: p.table()}
	if p.skip("LIKE") {
		c.like = p.table()
		return []change{c}
	}
	if !p.sign("(") {
		return []change{c}
	}
	if p.skip("LIKE") {
		c.like = p.table()
		return []change{c}
	}
	d := &definition{rel: c.table}
	var steps []alterStep
	for !p.done() && !p.isSign(")") {
		steps = append(steps, p.element()...)
		p.clause()
		p.sign(",")
	}
	p.sign(")")
	d.charset = p.options()
	for !p.done() {
		if p.peek().is("SELECT", "AS", "UNION", "WITH") { // more columns come from there
			return []change{c}
		}
		p.at++
	}
	for _, s := range steps {
		s.apply(d)
	}
	c.made = d
	return []change{c}
}

// options reads the options of a table up to what is none, and returns the character set that its columns have, with the collation where
// it says one.
func (p *ddl) options() (charset string) {
	start := p.at
	for ; !p.done() && !p.peek().is("SELECT", "AS", "UNION"); p.at++ {
		switch {
		case p.phrase("CHARACTER", "SET"), p.skip("CHARSET"):
			p.sign("=")
			charset = strings.ToLower(p.peek().text)
		case p.skip("COLLATE"):
			p.sign("=")
			charset = strings.ToLower(p.peek().text)
		}
	}
	p.at = start
	return charset
}

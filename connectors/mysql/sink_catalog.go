package mysql

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// table is what the catalogue says about a table that rows go to.
type table struct {
	at      relation
	kind    string // BASE TABLE, VIEW …
	engine  string
	comment string
	columns []tableColumn
	keys    []tableKey
	shape   string // the statement that would make it
}

// tableColumn is a column of a target table.
type tableColumn struct {
	sourceColumn
	auto      bool // AUTO_INCREMENT
	updates   bool // ON UPDATE CURRENT_TIMESTAMP
	defaulted bool
}

// tableKey is a unique index.
type tableKey struct {
	name    string
	columns []string // empty names stand for expressions
	primary bool
	flaw    string // why rows can't be found by it
}

// column returns the column of this name. Names that differ only in case are one to the server.
func (t *table) column(name string) (tableColumn, bool) {
	i := slices.IndexFunc(t.columns, func(c tableColumn) bool { return strings.EqualFold(c.name, name) })
	if i < 0 {
		return tableColumn{}, false
	}
	return t.columns[i], true
}

// keyOn returns the unique index on exactly these columns; one with a flaw only where there is none without.
func (t *table) keyOn(columns []string) (tableKey, bool) {
	lower := func(names []string) []string {
		out := make([]string, len(names))
		for i, n := range names {
			out[i] = strings.ToLower(n)
		}
		slices.Sort(out)
		return out
	}
	var found tableKey
	ok := false
	for _, k := range t.keys {
		if slices.Equal(lower(k.columns), lower(columns)) && (!ok || found.flaw != "") {
			found, ok = k, true
		}
	}
	return found, ok
}

// exactText reports whether only equal values of the column are equal to the server: no case, accents or blanks are ignored.
func (c *tableColumn) exactText() bool {
	if c.charset == "" {
		return true
	}
	if c.data == "enum" || c.data == "set" {
		return strings.HasSuffix(c.collation, "_bin")
	}
	return c.collation == "utf8mb4_0900_bin" || strings.HasSuffix(c.collation, "_nopad_bin")
}

// transactional refuses what can't be written to together with progress.
func (t *table) transactional(dataset string) error {
	e := t.refused(dataset)
	switch {
	case !strings.Contains(t.kind, "TABLE") && t.kind != "SYSTEM VERSIONED":
		e.Code, e.Err, e.Hint = "mysql.kind", fmt.Errorf("it is a %s", strings.ToLower(t.kind)), "name a table"
	case !strings.EqualFold(t.engine, "InnoDB"):
		e.Code = "mysql.engine"
		e.Err = fmt.Errorf("its engine is %s, which has no transactions: rows and progress could not be one", t.engine)
		e.Hint = fmt.Sprintf("ALTER TABLE %s ENGINE = InnoDB", t.at)
	default:
		return nil
	}
	return e
}

// counter is the next value of an auto-increment column, in the statement that makes a table.
var counter = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

// shapeOf is the result of SHOW CREATE TABLE without what changes with every row.
func shapeOf(r result) string {
	if len(r) == 0 || len(r[0]) < 2 {
		return ""
	}
	return string(counter.ReplaceAll(r[0][1], nil))
}

// describe reads the catalogue; nil: there is no such table.
func (s *session) describe(ctx context.Context, at relation) (*table, error) {
	s.env.Roundtrip("catalogue")
	rows, err := ask(ctx, s.conn, fmt.Sprintf("SELECT TABLE_TYPE, ENGINE, TABLE_COMMENT FROM information_schema.TABLES"+
		" WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s", literal(at.database), literal(at.name)))
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	t := &table{at: at, kind: string(rows[0][0]), engine: string(rows[0][1]), comment: string(rows[0][2])}
	if t.kind == "VIEW" {
		return t, nil
	}
	shown, err := s.run(ctx, "catalogue", "SHOW CREATE TABLE "+at.String())
	if e, ok := serverErrorOf(err); ok && e.number == errNoTable {
		return nil, nil //nolint:nilnil // dropped in between
	}
	if err != nil {
		return nil, err
	}
	t.shape = shapeOf(shown[0])
	if err := s.readTargetColumns(ctx, t); err != nil {
		return nil, err
	}
	return t, s.readTargetKeys(ctx, t)
}

func (s *session) readTargetColumns(ctx context.Context, t *table) error {
	columns, err := readColumns(ctx, s.conn, s.server, t.at)
	if err != nil {
		return err
	}
	rows, err := ask(ctx, s.conn, fmt.Sprintf("SELECT EXTRA, COLUMN_DEFAULT FROM information_schema.COLUMNS"+
		" WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION", literal(t.at.database), literal(t.at.name)))
	if err != nil {
		return err
	}
	if len(rows) != len(columns) {
		return fmt.Errorf("%s is altered all the time", t.at)
	}
	for i, c := range columns {
		extra := strings.ToLower(string(rows[i][0]))
		_ = c.carry(readOptions{zero: zeroText}) // without options it can't fail
		t.columns = append(t.columns, tableColumn{
			sourceColumn: c, auto: strings.Contains(extra, "auto_increment"), updates: strings.Contains(extra, "on update"),
			defaulted: rows[i][1] != nil || strings.Contains(extra, "default_generated"),
		})
	}
	return nil
}

func (s *session) readTargetKeys(ctx context.Context, t *table) error {
	rows, err := ask(ctx, s.conn, fmt.Sprintf("SELECT INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE FROM information_schema.STATISTICS"+
		" WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX",
		literal(t.at.database), literal(t.at.name)))
	if err != nil {
		return err
	}
	for _, r := range rows {
		name := string(r[0])
		if n := len(t.keys); n == 0 || t.keys[n-1].name != name {
			t.keys = append(t.keys, tableKey{name: name, primary: name == "PRIMARY"})
		}
		k := &t.keys[len(t.keys)-1]
		k.columns = append(k.columns, string(r[1]))
		if r[2] != nil {
			k.flaw = "covers only the beginning of a value"
		}
	}
	return nil
}

// fixedFloat reports whether a float or double has a number of digits, to which it rounds.
func (c *tableColumn) fixedFloat() bool {
	return (c.data == "float" || c.data == "double") && strings.Contains(c.sql, ",")
}

package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// table is one dataset as it will be read.
type table struct {
	name    string // as positions name it
	from    string // what stands behind FROM
	object  *object
	columns []column
	schema  *record.Schema
	order   []orderPart // what rows are ordered by; empty: nothing
	unique  bool        // order identifies a row
	paged   bool        // each page is a statement of its own; else one statement reads all
	rows    int64       // estimate; -1: unknown
	key     []string
}

type column struct {
	name     string
	declared string
	shapes   []shape // ways to read it
	shape    shape   // the one chosen
	notNull  bool
	readOnly bool
	inferred bool // nothing was declared
}

// orderPart is an expression that rows are ordered by.
type orderPart struct {
	expr      string
	name      string // the column's own name, for people
	collation string // of the expression; empty: by bytes
}

// queryView is the temporary view that stands for the option query, so that a query has a catalogue entry like any other view.
const queryView = "_leat_query"

// plan finds the datasets that the configuration selects, and how to read each.
func (s *source) plan(ctx context.Context) ([]*table, error) {
	objects, err := s.objects()
	if err != nil {
		return nil, err
	}
	tables := make([]*table, 0, len(objects))
	for _, o := range objects {
		t, err := s.planTable(o)
		if err != nil {
			return nil, err
		}
		if err := s.chooseShapes(ctx, t); err != nil {
			return nil, err
		}
		if err := t.finish(); err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	slices.SortFunc(tables, func(a, b *table) int { return strings.Compare(a.name, b.name) })
	return tables, nil
}

func (s *source) objects() ([]*object, error) {
	switch {
	case s.cfg.Query != "":
		o, err := s.queryObject()
		return []*object{o}, err
	case s.cfg.Table != "":
		o, err := s.db.lookup(s.cfg.Table)
		return []*object{o}, err
	}
	names, err := s.db.tableNames()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		e := configError("sqlite.empty", "looking for tables", fmt.Errorf("%s has no tables", s.cfg.Path))
		e.Hint = "check that this is the right file"
		return nil, e
	}
	picked, err := sqlgen.Select(names, s.cfg.Tables)
	if err != nil {
		e := configError("sqlite.table", "selecting tables", err)
		e.Hint = "tables=* reads all of them"
		return nil, e
	}
	objects := make([]*object, len(picked))
	for i, n := range picked {
		if objects[i], err = s.db.lookup(n); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// queryObject makes the query a temporary view and describes it. Temporary objects live beside the file, which is not changed.
func (s *source) queryObject() (*object, error) {
	query := strings.TrimRight(strings.TrimSpace(s.cfg.Query), "; \n\t")
	err := s.db.exec(`DROP VIEW IF EXISTS temp.`+queryView, `CREATE TEMP VIEW `+queryView+` AS `+query)
	if err == nil {
		var o *object
		if o, _, err = s.db.describeIn("temp", queryView); err == nil {
			return o, nil
		}
	}
	e := configError("sqlite.query", "reading the query", err)
	e.Hint = "the option query takes one SELECT, as the sqlite3 shell runs it"
	return nil, e
}

func (s *source) planTable(o *object) (*table, error) {
	t := &table{name: o.name, object: o, from: "main." + sqlgen.Ident(o.name), rows: -1}
	if s.cfg.Query != "" {
		t.name, t.from = "query", "temp."+queryView
	}
	if s.cfg.Name != "" {
		t.name = s.cfg.Name
	}
	if err := s.planColumns(t); err != nil {
		return nil, err
	}
	if err := s.planKey(t); err != nil {
		return nil, err
	}
	if err := s.planOrder(t); err != nil {
		return nil, err
	}
	var err error
	t.rows, err = s.db.rowsAbout(o)
	return t, err
}

func (s *source) planColumns(t *table) error {
	names := t.object.columnNames()
	if want := compact(s.cfg.Columns); len(want) > 0 {
		names = want
	}
	for _, n := range names {
		c, ok := t.object.column(strings.TrimSpace(n))
		if !ok {
			return t.noColumn(n, "columns")
		}
		col := column{name: c.name, declared: c.declared, shapes: shapesFor(c.declared), readOnly: c.generated}
		col.inferred = undeclared(c.declared)
		col.notNull = c.notNull || (t.object.keyIsRowID && strings.EqualFold(t.object.key[0].column, c.name))
		if t.object.strict && !strings.EqualFold(c.declared, "ANY") {
			col.shapes = col.shapes[:1]
		}
		if err := s.forceType(t, &col); err != nil {
			return err
		}
		t.columns = append(t.columns, col)
	}
	return nil
}

// forceType applies the option types.
func (s *source) forceType(t *table, col *column) error {
	for _, k := range []string{t.name + "." + col.name, col.name, "*"} {
		name, ok := s.cfg.Types[k]
		if !ok {
			continue
		}
		sh, err := forced(name)
		if err != nil {
			return configError("sqlite.config", "reading the option types", err)
		}
		col.shapes, col.inferred = []shape{sh}, false
		return nil
	}
	return nil
}

func (t *table) noColumn(name, option string) error {
	e := configError("sqlite.column", "reading the option "+option, connector.UnknownName("column", name, t.object.columnNames()))
	e.Dataset = t.name
	e.Hint = "names are those of the table, without quotes"
	return e
}

// planKey decides which columns identify a row for the target. SQLite lets NULL into most primary keys: a table that has one has
// no key.
func (s *source) planKey(t *table) error {
	if want := compact(s.cfg.Key); len(want) > 0 {
		for _, n := range want {
			c, ok := t.object.column(n)
			if !ok {
				return t.noColumn(n, "key")
			}
			t.key = append(t.key, c.name)
		}
		return nil
	}
	for _, k := range t.object.key {
		if !slices.ContainsFunc(t.columns, func(c column) bool { return c.name == k.column }) {
			t.key = nil
			return nil
		}
		t.key = append(t.key, k.column)
	}
	if len(t.key) == 0 || t.object.withoutRowID || t.object.keyIsRowID {
		return nil
	}
	isNull := sqlgen.Join(t.key, " OR ", func(n string) string { return sqlgen.Ident(n) + " IS NULL" })
	found, err := s.db.exists(`SELECT 1 FROM ` + t.from + ` WHERE ` + isNull + ` LIMIT 1`)
	if found {
		s.env.Log.Warn("the primary key has NULLs: the table is read as one without a key", slogTable(t.name))
		t.key = nil
	}
	return err
}

// planOrder decides in which order rows are read.
func (s *source) planOrder(t *table) error {
	o := t.object
	switch {
	case o.rowID != "":
		t.order, t.unique, t.paged = []orderPart{{expr: sqlgen.Ident(o.rowID), name: "rowid"}}, true, true
	case o.withoutRowID && o.kind == "table":
		for _, k := range o.key {
			part := orderPart{expr: sqlgen.Ident(k.column), name: k.column}
			if k.collation != "BINARY" {
				part.collation = k.collation
			}
			t.order = append(t.order, part)
		}
		t.unique, t.paged = true, true
	default:
		for _, k := range t.key {
			t.order = append(t.order, orderPart{expr: sqlgen.Ident(k) + " COLLATE BINARY", name: k})
		}
	}
	if s.cfg.Cursor == "" {
		return nil
	}
	c, ok := o.column(s.cfg.Cursor)
	if !ok {
		return t.noColumn(s.cfg.Cursor, "cursor")
	}
	if len(t.order) == 0 {
		err := fmt.Errorf("%s has no key to tell rows with the same cursor value apart", t.name)
		e := configError("sqlite.key", "reading the option cursor", err)
		e.Hint = "name its key with key=COLUMN"
		return e
	}
	t.order = append([]orderPart{{expr: sqlgen.Ident(c.name) + " COLLATE BINARY", name: c.name}}, t.order...)
	t.paged = false
	return nil
}

// finish makes the schema of the chosen shapes.
func (t *table) finish() error {
	fields := make([]arrow.Field, len(t.columns))
	for i, c := range t.columns {
		f := arrow.Field{Name: c.name, Type: c.shape.typ, Nullable: !c.notNull && !slices.Contains(t.key, c.name)}
		fields[i] = record.WithNative(f, record.Native{System: system, Type: c.declared, ReadOnly: c.readOnly})
	}
	s := &record.Schema{Dataset: record.JoinName(t.name), Columns: arrow.NewSchema(fields, nil), Version: 1}
	if err := s.Validate(); err != nil {
		return fmt.Errorf("reading the catalogue: %w", err)
	}
	var err error
	t.schema, err = s.WithKey(t.key...)
	if err != nil {
		return configError("sqlite.key", "reading the option key", err)
	}
	return nil
}

// collations are those of the order, or nil where all are by bytes.
func (t *table) collations() []string {
	if !slices.ContainsFunc(t.order, func(p orderPart) bool { return p.collation != "" }) {
		return nil
	}
	out := make([]string, len(t.order))
	for i, p := range t.order {
		out[i] = p.collation
	}
	return out
}

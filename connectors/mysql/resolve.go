package mysql

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// sourceTable is a table, view or query that is read.
type sourceTable struct {
	dataset  string
	rel      relation // zero: a query
	query    bool
	view     bool
	engine   string
	from     string // the FROM item
	where    string
	key      []sourceColumn // what chunks are cut by; not every one need be read; none: it is one chunk
	index    string         // the key's index; empty: none
	nulls    bool           // the key may be NULL
	schema   *record.Schema
	cols     []sourceColumn
	texts    map[uint16]collation // the server's collations by number
	charsets map[string]*charset  // decoders of columns and key
	rows     int64
	bytes    int64
}

// resolved returns the selected tables, in the order of their names. The catalogue is read once.
func (s *Source) resolved(ctx context.Context) ([]*sourceTable, error) {
	s.mu.Lock()
	tables := s.tables
	s.mu.Unlock()
	if tables != nil {
		return tables, nil
	}
	tables, err := s.resolve(ctx, "")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables == nil { // or somebody else was faster: all use the same schemas
		s.tables = tables
	}
	return s.tables, nil
}

// resolve reads the catalogue. only is one dataset; empty: all that are selected.
func (s *Source) resolve(ctx context.Context, only string) ([]*sourceTable, error) {
	db, srv, err := s.server(ctx)
	if err != nil {
		return nil, err
	}
	s.env.Roundtrip("catalogue")
	texts, err := readCollations(ctx, db, srv)
	if err != nil {
		return nil, s.cfg.wrap("reading the catalogue", err)
	}
	if s.cfg.Query != "" {
		t, err := s.resolveQuery(ctx, db, texts)
		if err != nil {
			return nil, s.cfg.wrap("reading the catalogue", err)
		}
		return []*sourceTable{t}, nil
	}
	tables, err := s.resolveTables(ctx, db, srv, only)
	if err != nil {
		return nil, s.cfg.wrap("reading the catalogue", err)
	}
	for _, t := range tables {
		t.texts = texts
	}
	slices.SortFunc(tables, func(a, b *sourceTable) int { return strings.Compare(a.dataset, b.dataset) })
	return tables, nil
}

func (s *Source) resolveTables(ctx context.Context, q querier, srv server, only string) ([]*sourceTable, error) {
	all, err := readTables(ctx, q, s.cfg.soleDatabase())
	if err != nil {
		return nil, err
	}
	selected, err := s.cfg.choose(all, only)
	if err != nil {
		return nil, err
	}
	tables := make([]*sourceTable, len(selected))
	for i := range selected {
		if err := describe(ctx, q, srv, &selected[i]); err != nil {
			return nil, err
		}
		if tables[i], err = s.table(ctx, q, selected[i]); err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// table puts together what the catalogue says about one table.
func (s *Source) table(ctx context.Context, q querier, info tableInfo) (*sourceTable, error) {
	t := &sourceTable{
		dataset: info.rel.dataset(), rel: info.rel, view: info.view, engine: info.engine, from: info.rel.String(), where: s.cfg.Where,
		rows: info.rows, bytes: info.bytes, index: info.index,
	}
	return t, s.finish(ctx, q, t, info.columns, info.key)
}

func (s *Source) resolveQuery(ctx context.Context, q querier, texts map[uint16]collation) (*sourceTable, error) {
	name := s.cfg.Name
	if name == "" {
		name = "query"
	}
	query := strings.TrimRight(strings.TrimSpace(s.cfg.Query), "; \n\t")
	t := &sourceTable{dataset: name, query: true, from: "(" + query + "\n) AS q", rows: -1, bytes: -1, texts: texts}
	var found []wireColumn
	err := s.borrow(ctx, func(w *wire) (err error) {
		found, _, err = w.describe(ctx, "SELECT * FROM "+t.from)
		return err
	})
	if err != nil {
		return nil, err
	}
	cols := make([]sourceColumn, len(found))
	for i, c := range found {
		if slices.ContainsFunc(cols[:i], func(o sourceColumn) bool { return o.name == c.name }) {
			return nil, &connector.Error{
				Class: connector.ClassConfig, Code: "mysql.column", Doing: "reading the query", Dataset: name,
				Err: fmt.Errorf("two columns are named %q", c.name), Hint: "name each: SELECT … AS other_name",
			}
		}
		cols[i] = c.column(texts)
	}
	return t, s.finish(ctx, q, t, cols, nil)
}

// finish chooses columns and key, maps the types, and loads what decodes text.
func (s *Source) finish(ctx context.Context, q querier, t *sourceTable, all []sourceColumn, key []string) error {
	o := s.cfg.readOptions()
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
		if err := all[i].carry(o); err != nil {
			return s.columnError(t, "", err)
		}
	}
	find := func(option, name string) (sourceColumn, error) {
		i := slices.Index(names, name)
		if i < 0 {
			return sourceColumn{}, s.columnError(t, name, fmt.Errorf("option %s: %w", option, connector.UnknownName("column", name, names)))
		}
		return all[i], nil
	}
	t.cols = all
	if len(s.cfg.Columns) > 0 {
		t.cols = nil
		for _, name := range s.cfg.Columns {
			c, err := find("columns", name)
			if err != nil {
				return err
			}
			t.cols = append(t.cols, c)
		}
	}
	if len(s.cfg.Key) > 0 {
		key, t.index = s.cfg.Key, ""
	}
	for _, name := range key {
		c, err := find("key", name)
		if err != nil {
			return err
		}
		c.zero, c.arrow = keyZero(c)
		t.key = append(t.key, c)
		t.nulls = t.nulls || !c.notNull
	}
	if s.cfg.Table != "" || s.cfg.Query != "" {
		for name := range s.cfg.Types {
			if _, err := find("types", name); err != nil {
				return err
			}
		}
	}
	t.charsets = map[string]*charset{}
	if err := charsetsOf(ctx, q, t.charsets, all); err != nil {
		return err
	}
	return t.buildSchema()
}

func (*Source) columnError(t *sourceTable, column string, err error) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "mysql.column", Doing: "reading the catalogue", Dataset: t.dataset, Column: column, Err: err,
		Hint: "leat check shows the columns of each dataset",
	}
}

func (t *sourceTable) buildSchema() error {
	fields := make([]arrow.Field, len(t.cols))
	for i := range t.cols {
		fields[i] = t.cols[i].field()
	}
	t.schema = &record.Schema{Dataset: t.dataset, Columns: arrow.NewSchema(fields, nil)}
	for _, k := range t.key {
		at := t.schema.Column(k.name)
		if at < 0 {
			t.schema.Key = nil
			break
		}
		t.schema.Key = append(t.schema.Key, at)
	}
	if err := t.schema.Validate(); err != nil {
		return fmt.Errorf("reading the catalogue: %w", err)
	}
	return nil
}

// soleDatabase is the database that all selected tables are in; empty: there may be several.
func (c *SourceConfig) soleDatabase() string {
	names := append(c.patterns(), c.Table)
	for _, n := range names {
		if n != "" && len(record.SplitName(strings.TrimPrefix(n, "!"))) > 1 {
			return ""
		}
	}
	return c.Database
}

// place is the table that a name of the configuration means.
func (c *SourceConfig) place(name string) relation {
	parts := record.SplitName(name)
	r := relation{database: c.Database, name: parts[len(parts)-1]}
	if len(parts) > 1 {
		r.database = parts[len(parts)-2]
	}
	return r
}

// choose picks the tables that the configuration names: all, or only the one dataset, whatever became of the others.
func (c *SourceConfig) choose(all []tableInfo, only string) ([]tableInfo, error) {
	if c.Follow {
		all = slices.DeleteFunc(slices.Clone(all), func(t tableInfo) bool { return t.view })
	}
	selected, err := c.pick(all, only == "")
	if err != nil {
		return nil, err
	}
	if only != "" {
		selected = slices.DeleteFunc(selected, func(t tableInfo) bool { return t.rel.dataset() != only })
	}
	switch {
	case len(selected) == 0 && only != "":
		return nil, c.noTable(only, all)
	case len(selected) == 0:
		return nil, c.noTable(strings.Join(c.patterns(), ","), all)
	}
	return selected, nil
}

// ownDatabase is where sinks keep their progress.
const ownDatabase = "_leat"

// pick picks tables. strict: each that is named must be there.
func (c *SourceConfig) pick(all []tableInfo, strict bool) ([]tableInfo, error) {
	if c.Table != "" {
		want := c.place(c.Table)
		for _, t := range all {
			if t.rel == want {
				return []tableInfo{t}, nil
			}
		}
		return nil, c.noTable(want.dataset(), all)
	}
	var with, without []*regexp.Regexp
	for _, p := range c.patterns() {
		if not, ok := strings.CutPrefix(p, "!"); ok {
			without = append(without, c.glob(not))
			continue
		}
		with = append(with, c.glob(p))
		named := func(t tableInfo) bool { return t.rel == c.place(p) }
		if strict && !strings.ContainsAny(p, "*?") && !slices.ContainsFunc(all, named) {
			return nil, c.noTable(c.place(p).dataset(), all)
		}
	}
	matches := func(list []*regexp.Regexp, name string) bool {
		return slices.ContainsFunc(list, func(r *regexp.Regexp) bool { return r.MatchString(name) })
	}
	var out []tableInfo
	for _, t := range all {
		name := t.rel.dataset()
		exact := slices.ContainsFunc(c.patterns(), func(p string) bool { return !strings.ContainsAny(p, "*?") && c.place(p) == t.rel })
		ordinary := !t.view && t.rel.database != ownDatabase
		if (exact || (ordinary && (len(with) == 0 || matches(with, name)))) && !matches(without, name) {
			out = append(out, t)
		}
	}
	return out, nil
}

// glob is a pattern over dataset names: * is any text, ? one character. A pattern without a database means the one of the connection.
func (c *SourceConfig) glob(pattern string) *regexp.Regexp {
	if len(record.SplitName(pattern)) == 1 && c.Database != "" {
		pattern = record.JoinName(c.Database) + "." + pattern
	}
	quoted := regexp.QuoteMeta(pattern)
	quoted = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(quoted)
	return regexp.MustCompile("(?s)^" + quoted + "$")
}

func (*SourceConfig) noTable(name string, all []tableInfo) error {
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.rel.dataset()
	}
	err := fmt.Errorf("there is no table %q, and none that this user could see", name)
	if name == "" {
		err = errors.New("there is no table that this user could see")
	}
	hint := "GRANT SELECT on the database, or check its name"
	if len(names) > 0 {
		err = connector.UnknownName("table", name, names)
		hint = "names are taken in the case that SHOW TABLES shows; a table needs its database unless that is the connection's"
	}
	return &connector.Error{Class: connector.ClassConfig, Code: "mysql.table", Doing: "selecting tables", Err: err, Hint: hint}
}

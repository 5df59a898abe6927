package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// chunkMode is how a dataset is cut into chunks.
type chunkMode uint8

const (
	asWhole chunkMode = iota // not at all
	byKey                    // ranges of the key
	byBlock                  // ranges of the table's blocks, all under one snapshot
)

// sourceTable is a table, view or query that is read.
type sourceTable struct {
	dataset string
	rel     relation // zero: a query
	kind    byte     // pg_class.relkind; q: a query
	from    string   // the FROM item
	lock    string   // what LOCK TABLE takes; empty: it can't be locked
	where   string
	mode    chunkMode
	key     []sourceColumn // what chunks are cut by; not every one need be read
	nulls   bool           // the key may be NULL
	schema  *record.Schema
	cols    []sourceColumn
	shape   string // of the columns, as shapeSQL gives it
	types   []pgcopy.Type
	rows    int64
	bytes   int64
	pages   int64
	utf8    bool   // the server does not vouch for UTF-8
	format  string // of rows as the server sends them; empty: they have to be decoded
	decoded string // why

	identity byte     // of a table that is followed: pg_class.relreplident
	asOf     uint64   // how new what is known of a table is that is followed
	left     []string // columns that are left out because the stream does not send them
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
	slices.SortFunc(tables, func(a, b *sourceTable) int { return strings.Compare(a.dataset, b.dataset) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables == nil { // or somebody else was faster: all use the same schemas
		s.tables = tables
		for _, t := range tables {
			s.noteLeft(ctx, t)
		}
	}
	return s.tables, nil
}

// resolve reads the catalogue. only is one dataset; empty: all that are selected.
func (s *Source) resolve(ctx context.Context, only string) ([]*sourceTable, error) {
	conn, err := s.pool.take(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { s.pool.put(ctx, conn) }()
	pg := conn.PgConn()
	s.env.Roundtrip("catalogue")
	if err := s.begin(ctx, pg, ""); err != nil {
		return nil, s.cfg.wrap("reading the catalogue", err)
	}
	var tables []*sourceTable
	if s.cfg.Query != "" {
		var t *sourceTable
		if t, err = s.resolveQuery(ctx, pg); t != nil {
			tables = []*sourceTable{t}
		}
	} else {
		tables, err = s.resolveTables(ctx, pg, only)
	}
	if err != nil {
		s.pool.discard(ctx, conn)
		return nil, s.cfg.wrap("reading the catalogue", err)
	}
	for _, t := range tables {
		t.utf8 = unchecked(pg)
		t.format, t.decoded = t.encoding(majorVersion(pg.ParameterStatus("server_version")))
		if t.mode == byBlock && !hasTIDRanges(pg.ParameterStatus("server_version")) {
			t.mode = asWhole
		}
	}
	if err := command(ctx, pg, "COMMIT"); err != nil {
		return nil, s.cfg.wrap("reading the catalogue", err)
	}
	return tables, nil
}

// hasTIDRanges reports whether the server reads a range of blocks without scanning the whole table.
func hasTIDRanges(version string) bool { return majorVersion(version) >= tidRangeVersion/10_000 }

// majorVersion reads the server's parameter server_version; one that is unknown is a new one.
func majorVersion(version string) int {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return math.MaxInt
	}
	return n
}

// catalogPath makes the catalogue print type names with their schema.
const catalogPath = "SET LOCAL search_path = pg_catalog"

func (s *Source) resolveTables(ctx context.Context, pg *pgconn.PgConn, only string) ([]*sourceTable, error) {
	if err := command(ctx, pg, catalogPath); err != nil {
		return nil, err
	}
	all, err := readRelations(ctx, pg)
	if err != nil {
		return nil, err
	}
	selected, err := s.cfg.choose(all, only)
	if err != nil {
		return nil, err
	}
	oids := make([]string, len(selected))
	for i, r := range selected {
		oids[i] = strconv.FormatUint(uint64(r.oid), 10)
	}
	if err := readSizes(ctx, pg, selected, oids); err != nil {
		return nil, err
	}
	columns, err := readColumns(ctx, pg, oids)
	if err != nil {
		return nil, err
	}
	if s.cfg.Follow {
		return s.resolveFollowed(ctx, pg, selected, columns)
	}
	keys, err := readKeys(ctx, pg, oids)
	if err != nil {
		return nil, err
	}
	var flat []sourceColumn
	for _, r := range selected {
		for _, c := range columns[r.oid] {
			flat = append(flat, c.sourceColumn)
		}
	}
	types, err := readTypes(ctx, pg, flat)
	if err != nil {
		return nil, err
	}
	tables := make([]*sourceTable, len(selected))
	for i, r := range selected {
		cols := make([]sourceColumn, len(columns[r.oid]))
		for j, c := range columns[r.oid] {
			cols[j] = c.sourceColumn
		}
		if tables[i], err = s.table(r, cols, keys[r.oid], types); err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// table puts together what the catalogue says about one relation.
func (s *Source) table(r relationInfo, cols []sourceColumn, key []string, types serverTypes) (*sourceTable, error) {
	t := &sourceTable{
		dataset: r.rel.dataset(), rel: r.rel, kind: r.kind, from: r.rel.String(), where: s.cfg.Where,
		rows: r.rows, bytes: r.bytes, pages: r.pages,
	}
	switch {
	case r.kind == 'r' && !r.inherited:
		t.from, t.lock, t.mode = "ONLY "+t.from, "ONLY "+t.from, byBlock
	case r.kind == 'r':
		t.lock = t.from
	case r.kind == 'p', r.kind == 'v':
		t.lock = t.from
	case r.kind == 'm':
		t.mode = byBlock
	}
	if r.inherited {
		key = nil // an index of the parent says nothing about the rows of its children
	}
	return t, s.finish(t, cols, key, types)
}

func (s *Source) resolveQuery(ctx context.Context, pg *pgconn.PgConn) (*sourceTable, error) {
	name := s.cfg.Name
	if name == "" {
		name = "query"
	}
	query := strings.TrimRight(strings.TrimSpace(s.cfg.Query), "; \n\t")
	t := &sourceTable{dataset: name, kind: 'q', from: "(" + query + "\n) AS q", rows: -1, bytes: -1}
	d, err := pg.Prepare(ctx, "", "SELECT * FROM "+t.from, nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says what was being done
	}
	cols := make([]sourceColumn, len(d.Fields))
	oids, mods := make([]string, len(cols)), make([]string, len(cols))
	for i, f := range d.Fields {
		cols[i] = sourceColumn{name: f.Name, typ: f.DataTypeOID, mod: f.TypeModifier}
		oids[i], mods[i] = strconv.FormatUint(uint64(f.DataTypeOID), 10), strconv.Itoa(int(f.TypeModifier))
		if slices.ContainsFunc(cols[:i], func(c sourceColumn) bool { return c.name == f.Name }) {
			return nil, &connector.Error{
				Class: connector.ClassConfig, Code: "postgres.column", Doing: "reading the query", Dataset: name,
				Err: fmt.Errorf("two columns are named %q", f.Name), Hint: "name each: SELECT … AS other_name",
			}
		}
	}
	if err := command(ctx, pg, catalogPath); err != nil {
		return nil, err
	}
	names, err := ask(ctx, pg, `SELECT pg_catalog.format_type(u.o, u.m)
		FROM ROWS FROM (pg_catalog.unnest($1::oid[]), pg_catalog.unnest($2::int4[])) WITH ORDINALITY u(o, m, n) ORDER BY u.n`,
		"{"+strings.Join(oids, ",")+"}", "{"+strings.Join(mods, ",")+"}")
	if err != nil {
		return nil, err
	}
	for i := range cols {
		cols[i].sql = string(names[i][0])
	}
	types, err := readTypes(ctx, pg, cols)
	if err != nil {
		return nil, err
	}
	return t, s.finish(t, cols, nil, types)
}

// finish chooses columns and key, and maps the types.
func (s *Source) finish(t *sourceTable, all []sourceColumn, key []string, types serverTypes) error {
	o := readOptions{exactNumeric: s.cfg.Numeric == "numeric", as: s.cfg.Types}
	for i := range all {
		if err := types.carry(&all[i], o); err != nil {
			return s.columnError(t, "", err)
		}
	}
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
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
		key = s.cfg.Key
	}
	for _, name := range key {
		c, err := find("key", name)
		if err != nil {
			return err
		}
		t.key = append(t.key, c)
		t.nulls = t.nulls || !c.notNull
	}
	for name := range s.cfg.Types {
		if _, err := find("types", name); err != nil && (s.cfg.Table != "" || s.cfg.Query != "") {
			return err
		}
	}
	if len(t.key) > 0 && s.cfg.Chunks == chunksByKey {
		t.mode = byKey
	}
	t.shape = shapeOf(t.cols)
	return t.buildSchema()
}

func (*Source) columnError(t *sourceTable, column string, err error) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "postgres.column", Doing: "reading the catalogue", Dataset: t.dataset, Column: column, Err: err,
		Hint: "leat check shows the columns of each dataset",
	}
}

func (t *sourceTable) buildSchema() error {
	fields := make([]arrow.Field, len(t.cols))
	t.types = make([]pgcopy.Type, len(t.cols))
	for i, c := range t.cols {
		fields[i], t.types[i] = c.field(), c.wire
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

// selectRelations picks the relations that the configuration names.
func (c *SourceConfig) selectRelations(all []relationInfo) ([]relationInfo, error) {
	return c.choose(all, "")
}

// choose picks the relations that the configuration names: all, or only the one dataset, whatever became of the others.
func (c *SourceConfig) choose(all []relationInfo, only string) ([]relationInfo, error) {
	if c.Follow {
		var err error
		if all, err = c.followable(all); err != nil {
			return nil, err
		}
	}
	selected, err := c.pick(all, only == "")
	if err != nil {
		return nil, err
	}
	if only != "" {
		selected = slices.DeleteFunc(selected, func(r relationInfo) bool { return r.rel.dataset() != only })
	}
	switch {
	case len(selected) == 0 && only != "":
		return nil, c.noTable(only, all)
	case len(selected) == 0:
		return nil, c.noTable(strings.Join(c.patterns(), ","), all)
	}
	return selected, nil
}

// pick picks relations. strict: each that is named must be there.
func (c *SourceConfig) pick(all []relationInfo, strict bool) ([]relationInfo, error) {
	if c.Table != "" {
		want := c.place(c.Table)
		for _, r := range all {
			if r.rel == want {
				return []relationInfo{r}, nil
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
		named := func(r relationInfo) bool { return r.rel == c.place(p) }
		if strict && !strings.ContainsAny(p, "*?") && !slices.ContainsFunc(all, named) {
			return nil, c.noTable(c.place(p).dataset(), all)
		}
	}
	matches := func(list []*regexp.Regexp, name string) bool {
		return slices.ContainsFunc(list, func(r *regexp.Regexp) bool { return r.MatchString(name) })
	}
	out := map[uint32]relationInfo{}
	for _, r := range all {
		name := r.rel.dataset()
		own := r.rel.schema == ownSchema || strings.HasPrefix(r.rel.name, shadowPrefix)
		exact := slices.ContainsFunc(c.patterns(), func(p string) bool { return !strings.ContainsAny(p, "*?") && c.place(p) == r.rel })
		ordinary := (r.kind == 'r' || r.kind == 'p') && !own
		if (exact || (ordinary && (len(with) == 0 || matches(with, name)))) && !matches(without, name) {
			out[r.oid] = r
		}
	}
	return withoutChildren(all, out, c.Follow), nil
}

// ownSchema is where sinks keep their progress.
const ownSchema = "_leat"

// withoutChildren leaves out partitions and inheriting tables whose parent is selected too: its rows include theirs. In a stream only
// partitions are part of their root.
func withoutChildren(all []relationInfo, selected map[uint32]relationInfo, follow bool) []relationInfo {
	byOID := make(map[uint32]relationInfo, len(all))
	for _, r := range all {
		byOID[r.oid] = r
	}
	var covered func(r relationInfo) bool
	covered = func(r relationInfo) bool {
		if follow && !r.partition {
			return false
		}
		return slices.ContainsFunc(r.parents, func(p uint32) bool {
			_, ok := selected[p]
			return ok || covered(byOID[p])
		})
	}
	var out []relationInfo
	for _, r := range all {
		if _, ok := selected[r.oid]; ok && !covered(r) {
			out = append(out, r)
		}
	}
	return out
}

// patterns are the patterns of the option tables, without blanks.
func (c *SourceConfig) patterns() []string {
	var out []string
	for _, p := range c.Tables {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// glob is a pattern over dataset names: * is any text, ? one character. A pattern without a schema means the configured one.
func (c *SourceConfig) glob(pattern string) *regexp.Regexp {
	if len(record.SplitName(pattern)) == 1 {
		pattern = record.JoinName(c.place("x").schema) + "." + pattern
	}
	quoted := regexp.QuoteMeta(pattern)
	quoted = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(quoted)
	return regexp.MustCompile("(?s)^" + quoted + "$")
}

func (c *SourceConfig) noTable(name string, all []relationInfo) error {
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.rel.dataset()
	}
	err := fmt.Errorf("there is no table %q, and none that this role could see", name)
	if name == "" {
		err = errors.New("there is no table that this role could see")
	}
	hint := "grant USAGE on the schema, or check the database"
	if len(names) > 0 {
		err = connector.UnknownName("table", name, names)
		hint = "names are taken in the case that psql shows; a table needs its schema unless that is " + c.place("x").schema
	}
	return &connector.Error{Class: connector.ClassConfig, Code: "postgres.table", Doing: "selecting tables", Err: err, Hint: hint}
}

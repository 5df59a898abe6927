package mysql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/mybinlog"
	"github.com/leatdata/leat/record"
)

// streamDataset is a dataset of the stream, with its columns as they are at this place of it.
type streamDataset struct {
	name      string
	rel       relation
	schema    *record.Schema
	table     *sourceTable // that the schema is of
	of        *definition  // that table was made of; nil: it has to be made anew
	rows      *logRows
	described []byte // what the log says of the table, that rows is made for
	part      *part  // of the present group
	fresh     bool   // the position does not know it: it was made behind that, or is selected since
}

// logTable is what the number of a table in the log stands for.
type logTable struct {
	dataset   *streamDataset // nil: nobody wants its rows
	described []byte         // without number and flags
	table     *mybinlog.TableMap
}

// tableMap takes note of a table's description. What it means is found out with the first row.
func (f *stream) tableMap(ctx context.Context, h mybinlog.Header, body []byte) (used bool, err error) {
	named, err := mybinlog.ParseTableMapName(body)
	if err != nil {
		return false, err //nolint:wrapcheck // callers say what was being done
	}
	const head = 6 + 2 // number and flags
	id := named.ID
	if t := f.maps[id]; t != nil && bytes.Equal(t.described, body[head:]) && (t.dataset == nil || f.datasets[t.dataset.name] == t.dataset) {
		if t.dataset != nil && f.xa != nil {
			return true, f.xa.keep(h.Append(nil, body))
		}
		return true, nil
	}
	rel := relation{database: string(named.Database), name: string(named.Table)}
	d, err := f.meet(ctx, rel)
	if err != nil {
		return false, err
	}
	t := &logTable{dataset: d, described: bytes.Clone(body[head:])}
	if d != nil {
		if t.table, err = mybinlog.ParseTableMap(f.code.flavor, body); err != nil {
			return false, f.tableError(d, err)
		}
		if f.xa != nil {
			if err := f.xa.keep(h.Append(nil, body)); err != nil {
				return false, err
			}
		}
	}
	f.maps[id] = t
	return true, nil
}

// meet finds the dataset of a table; nil: it is not followed. One that is selected and not known yet joins at this place.
func (f *stream) meet(ctx context.Context, rel relation) (*streamDataset, error) {
	name := rel.dataset()
	if d := f.datasets[name]; d != nil {
		return d, nil
	}
	if f.only || f.excluded[name] || !f.s.cfg.means(rel) {
		return nil, nil //nolint:nilnil // it is not followed
	}
	def, err := f.lookUp(ctx, rel)
	if err != nil || def == nil {
		return nil, err
	}
	return f.join(ctx, rel, def)
}

// join lets a table join: an empty batch says so.
func (f *stream) join(ctx context.Context, rel relation, def *definition) (*streamDataset, error) {
	d := &streamDataset{name: rel.dataset(), rel: rel}
	if err := f.define(ctx, d.name, def); err != nil {
		return nil, err
	}
	if err := f.reshape(ctx, d, def); err != nil {
		return nil, err
	}
	f.datasets[d.name] = d
	f.group.part(d)
	return d, nil
}

// define changes what is known of a table. Positions that are handed over from here on have it.
func (f *stream) define(ctx context.Context, dataset string, def *definition) error {
	if def == nil {
		delete(f.history.tables, dataset)
	} else {
		if err := f.defaults(ctx, def); err != nil {
			return err
		}
		for i := range def.columns {
			def.columns[i].num = i + 1
		}
		f.history.tables[dataset] = def
	}
	f.code.tables = f.history.encode()
	return nil
}

// defaults finds the character sets that no statement said: that of the table, or of its database.
func (f *stream) defaults(ctx context.Context, def *definition) error {
	unknown := func(c sourceColumn) bool { return c.charset == unknownCharset }
	if def.charset == "" {
		const sql = "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?"
		rows, err := ask(ctx, f.db, sql, def.rel.database)
		if err != nil {
			return f.s.cfg.wrap("reading the catalogue", err)
		}
		if len(rows) > 0 {
			def.charset = string(rows[0][0])
		}
	}
	if !slices.ContainsFunc(def.columns, unknown) && !strings.Contains(def.charset, "_") && def.charset != "" {
		return nil
	}
	for i := range def.columns {
		if c := &def.columns[i]; unknown(*c) {
			c.setCharset(def.charset)
		}
	}
	return nil
}

// lookUp reads what the catalogue says of a table now; nil: there is none.
func (f *stream) lookUp(ctx context.Context, rel relation) (*definition, error) {
	f.s.env.Roundtrip("catalogue")
	info := tableInfo{rel: rel}
	if err := describe(ctx, f.db, f.srv, &info); err != nil {
		return nil, f.s.cfg.wrap("reading the catalogue", err)
	}
	if len(info.columns) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	d := &definition{rel: rel, columns: info.columns, key: info.key}
	rows, err := ask(ctx, f.db, "SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?",
		rel.database, rel.name)
	if err != nil {
		return nil, f.s.cfg.wrap("reading the catalogue", err)
	}
	if len(rows) > 0 {
		d.charset = string(rows[0][0])
	}
	return d, nil
}

// means reports whether the selection may mean a table of this name.
func (c *SourceConfig) means(r relation) bool {
	if slices.Contains(ownDatabases(), r.database) {
		return false
	}
	if c.Table != "" {
		return c.place(c.Table) == r
	}
	if only := c.soleDatabase(); (only != "" && r.database != only) || r.database == ownDatabase {
		return false
	}
	some, found := false, false
	for _, p := range c.patterns() {
		if not, ok := strings.CutPrefix(p, "!"); ok {
			if c.glob(not).MatchString(r.dataset()) {
				return false
			}
			continue
		}
		some, found = true, found || c.glob(p).MatchString(r.dataset())
	}
	return found || !some
}

// adopt fits a dataset to what the log says of its table: the columns of the rows from here on.
func (f *stream) adopt(ctx context.Context, t *logTable) error {
	d := t.dataset
	if d.rows != nil && d.of == f.history.tables[d.name] && bytes.Equal(d.described, t.described) {
		return nil
	}
	def, err := f.fitted(ctx, d, t.table)
	if err != nil {
		return f.tableError(d, err)
	}
	d.fresh = false
	was := f.history.tables[d.name]
	if was == nil || was.doubt != "" || !was.same(def) {
		if err := f.define(ctx, d.name, def); err != nil {
			return err
		}
		was = def
	}
	if d.of != was {
		if err := f.reshape(ctx, d, was); err != nil {
			return err
		}
	}
	if err := f.seal(d); err != nil {
		return f.tableError(d, err)
	}
	if d.rows, err = newLogRows(d.schema, d.table.cols, t.table, d.table.charsets); err != nil {
		return f.tableError(d, err)
	}
	d.described = t.described
	return nil
}

// fitted returns the definition that the log's rows are of.
func (f *stream) fitted(ctx context.Context, d *streamDataset, m *mybinlog.TableMap) (*definition, error) {
	def := f.history.tables[d.name]
	why := errors.New("it is not known what the table was like")
	if def != nil {
		fit, err := def.fit(m, f.collations)
		if err == nil && (def.doubt == "" || m.Named) {
			fit.doubt = ""
			return fit, nil
		}
		if why = err; err == nil {
			why = errors.New(def.doubt)
		}
	}
	if m.Named {
		if err := f.labelCharsets(ctx, m); err != nil {
			return nil, err
		}
		return definitionOf(d.rel, m, def, f.collations, f.charsets)
	}
	now, err := f.lookUp(ctx, d.rel)
	if err != nil {
		return nil, err
	}
	if now != nil {
		fit, err := now.fit(m, f.collations)
		if err == nil && (def == nil || (def.doubt != "" && now.same(def))) {
			return fit, nil
		}
	}
	return nil, why
}

// labelCharsets loads what decodes the labels of a description.
func (f *stream) labelCharsets(ctx context.Context, m *mybinlog.TableMap) error {
	var cols []sourceColumn
	for i := range m.Columns {
		if m.Columns[i].Labels != nil {
			cols = append(cols, sourceColumn{charset: f.collations[m.Columns[i].Charset].charset})
		}
	}
	return f.s.cfg.wrap("reading the character sets of the server", charsetsOf(ctx, f.db, f.charsets, cols))
}

// reshape gives a dataset the schema of a definition. What changed is told by schemas of empty batches.
func (f *stream) reshape(ctx context.Context, d *streamDataset, def *definition) error {
	t := &sourceTable{dataset: d.name, rel: d.rel, from: d.rel.String()}
	cols := slices.Clone(def.columns)
	if err := f.s.finish(ctx, f.db, t, cols, def.key); err != nil {
		return f.tableError(d, err)
	}
	was := d.schema
	d.of, d.table, d.rows, d.described = def, t, nil, nil
	if was == nil {
		d.schema = f.s.known(t).schema
		return nil
	}
	if was.Columns.Equal(t.schema.Columns) && slices.Equal(was.Key, t.schema.Key) {
		t.schema = was
		return nil
	}
	if err := f.seal(d); err != nil {
		return f.tableError(d, err)
	}
	f.s.env.Log.InfoContext(ctx, "the stream has other columns from here on", slog.String("dataset", d.name),
		slog.String("columns", strings.Join(t.schema.Names(), ", ")), slog.String("position", f.now.String()))
	f.explain(ctx, d, was, def)
	if d.schema == was || d.schema == nil {
		d.schema = f.s.known(t).schema
	}
	return nil
}

// explain tells of a change what the two schemas don't: which columns are the same under another name, and what rows have that are older
// than a column. Both stand in the schemas of empty batches, as columns of this server have no lasting numbers.
func (f *stream) explain(ctx context.Context, d *streamDataset, was *record.Schema, def *definition) {
	defer func() { def.renamed, def.missing, def.computed = nil, nil, nil }()
	version := was.Version
	announce := func(s *record.Schema, change func(f arrow.Field) arrow.Field) {
		fields := s.Columns.Fields()
		for i := range fields {
			fields[i] = change(fields[i])
		}
		version++
		told := &record.Schema{Dataset: d.name, Columns: arrow.NewSchema(fields, nil), Key: s.Key, Version: version}
		f.group.parts = append(f.group.parts, &part{dataset: d, schema: told})
	}
	if len(def.renamed) > 0 {
		announce(was, func(f arrow.Field) arrow.Field { return record.WithID(f, f.Name) })
	}
	if len(def.renamed) > 0 || len(def.missing) > 0 {
		announce(d.table.schema, def.told)
	}
	d.table.schema.Version = version + 1
	if len(def.computed) > 0 {
		f.s.env.Log.WarnContext(ctx, "new columns may have values in older rows that no change tells of; --resnapshot copies them",
			slog.String("dataset", d.name), slog.String("columns", strings.Join(def.computed, ", ")))
	}
}

// told adds to a column what it was called, and what rows have that are older.
func (d *definition) told(f arrow.Field) arrow.Field {
	name := f.Name
	if len(d.renamed) > 0 {
		id := name
		if before, ok := d.renamed[name]; ok {
			id = before
		}
		f = record.WithID(f, id)
	}
	value, ok := d.missing[name]
	if !ok {
		return f
	}
	text, ok := canonical(f.Type, value)
	if !ok {
		d.computed = append(d.computed, name)
		return f
	}
	return record.WithMissing(f, text)
}

// canonical is the canonical text of a constant of a statement; false: it can't be told here.
func canonical(dt arrow.DataType, value string) (text string, ok bool) {
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	if err := record.ParseText(b, value); err != nil {
		return "", false
	}
	return string(record.AppendText(nil, b.NewArray(), 0)), true
}

// known puts a table into the place of what the source knows of it, unless that is the same: then that one is kept, with its schema.
func (s *Source) known(t *sourceTable) *sourceTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.tables {
		if o.dataset == t.dataset && o.schema.Columns.Equal(t.schema.Columns) && slices.Equal(o.schema.Key, t.schema.Key) &&
			o.schema.Version >= t.schema.Version {
			return o
		}
	}
	return t
}

// tableError explains what is wrong with a table of the log.
func (f *stream) tableError(d *streamDataset, err error) error {
	if _, done := errors.AsType[*connector.Error](err); done {
		return err
	}
	return &connector.Error{
		Class: connector.ClassPosition, Code: "mysql.schema", Doing: "reading the stream of changes", Dataset: d.name,
		Err: fmt.Errorf("its rows at %s can't be told apart: %w", f.now, err),
		Hint: "SET GLOBAL binlog_row_metadata = 'FULL' makes the server write the columns with the rows, from then on; " +
			"start over with --restart",
	}
}

// changePatience bounds the lookups that a changed table takes.
const changePatience = time.Minute

// statement uses a statement that is neither the beginning nor the end of a transaction.
func (f *stream) statement(ctx context.Context, q mybinlog.Query, first string) error {
	switch first {
	case "CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME":
	case "INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL":
		return f.written(q)
	default:
		return nil
	}
	sql := string(q.SQL)
	if cs := f.collations[q.Charset].charset; cs != "" && !isUTF8(cs) {
		if err := charsetsOf(ctx, f.db, f.charsets, []sourceColumn{{charset: cs}}); err != nil {
			return f.s.cfg.wrap("reading the character sets of the server", err)
		}
		if text, ok := f.charsets[cs].decode(nil, q.SQL); ok {
			sql = string(text)
		}
	}
	changes := parseDDL(sql, q.Database, q.Mode, f.srv.mariadb)
	concerned := slices.ContainsFunc(changes, func(c change) bool { return f.concerns(c) })
	if !concerned {
		return nil
	}
	if f.group.whole || len(f.group.parts) > 0 { // positions in front of the change know the tables as they were
		tell := f.emit
		if f.txn.at >= 0 || f.partial {
			tell = func(context.Context) error { return f.flush() }
		}
		if err := tell(ctx); err != nil {
			return err
		}
	}
	// It is done wholly or not at all: the half of it, and then all once more, would be something else.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), changePatience)
	defer cancel()
	for _, c := range changes {
		if err := f.change(whole, c); err != nil {
			return err
		}
	}
	return f.lost(changes)
}

// written checks a statement that changes rows: those of tables that are followed are lost.
func (f *stream) written(q mybinlog.Query) error {
	for _, t := range tokens(string(q.SQL), q.Mode) {
		if t.kind != word && t.kind != quoted {
			continue
		}
		for _, d := range f.datasets {
			if strings.EqualFold(d.rel.name, t.text) {
				return f.statementLogged(shorten(string(q.SQL)))
			}
		}
	}
	return nil
}

// concerns reports whether a change is about a table that is followed, or will be.
func (f *stream) concerns(c change) bool {
	if c.kind == databaseDropped {
		return slices.ContainsFunc(f.names(), func(d *streamDataset) bool { return d.rel.database == c.table.database })
	}
	wanted := func(r relation) bool {
		name := r.dataset()
		return r.name != "" && (f.datasets[name] != nil || (!f.only && !f.excluded[name] && f.s.cfg.means(r)))
	}
	return wanted(c.table) || wanted(c.to)
}

// names are the datasets, in the order of their names.
func (f *stream) names() []*streamDataset {
	out := make([]*streamDataset, 0, len(f.datasets))
	for _, d := range f.datasets {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b *streamDataset) int { return strings.Compare(a.name, b.name) })
	return out
}

// change uses what a statement does to one table.
func (f *stream) change(ctx context.Context, c change) error {
	name := c.table.dataset()
	d := f.datasets[name]
	switch c.kind {
	case created:
		return f.create(ctx, c)
	case truncated:
		if d != nil {
			return f.empty(d)
		}
	case dropped:
		if d != nil {
			return f.dropTable(ctx, d)
		}
	case databaseDropped:
		for _, d := range f.names() {
			if d.rel.database == c.table.database {
				if err := f.dropTable(ctx, d); err != nil {
					return err
				}
			}
		}
	case renamed:
		return f.renameTable(ctx, c)
	case altered:
		def := f.history.tables[name]
		if d == nil || def == nil {
			return nil
		}
		now := def.clone()
		for i := range c.alter {
			c.alter[i].apply(now)
		}
		if now.same(def) && now.charset == def.charset && now.doubt == def.doubt {
			return nil
		}
		if err := f.define(ctx, name, now); err != nil {
			return err
		}
		if now.doubt != "" {
			f.s.env.Log.WarnContext(ctx, "a table was changed in a way that may not be followed", slog.String("dataset", name),
				slog.String("why", now.doubt))
			return nil
		}
		if err := f.reshape(ctx, d, now); err != nil {
			return err
		}
		f.group.part(d) // it tells the schema
	}
	return nil
}

// empty empties a dataset: what was collected of it comes before.
func (f *stream) empty(d *streamDataset) error {
	if err := f.seal(d); err != nil {
		return f.tableError(d, err)
	}
	p := f.group.part(d)
	p.truncate = true
	f.group.touch(p, f.txn)
	return nil
}

func (f *stream) dropTable(ctx context.Context, d *streamDataset) error {
	if f.history.tables[d.name] == nil {
		return nil
	}
	f.s.env.Log.InfoContext(ctx, "a table was dropped; what was copied of it stays", slog.String("dataset", d.name))
	return f.define(ctx, d.name, nil)
}

// create lets a new table join, or begins anew with one that was dropped before.
func (f *stream) create(ctx context.Context, c change) error {
	name := c.table.dataset()
	d := f.datasets[name]
	if (c.maybe && f.history.tables[name] != nil) || !f.concerns(change{kind: created, table: c.table}) {
		return nil
	}
	def := c.made
	if def == nil && c.like.name != "" {
		if like := f.history.tables[c.like.dataset()]; like != nil {
			def = like.clone()
		}
	}
	var err error
	if def == nil {
		if def, err = f.lookUp(ctx, c.table); err != nil {
			return err
		}
	}
	if def == nil {
		return nil // it was dropped since; if it has rows, the log describes them
	}
	def.rel = c.table
	if d == nil {
		_, err = f.join(ctx, c.table, def)
		return err
	}
	if !d.fresh { // there was one of that name
		if err := f.empty(d); err != nil {
			return err
		}
	}
	d.fresh = false
	if err := f.define(ctx, name, def); err != nil {
		return err
	}
	if err := f.reshape(ctx, d, def); err != nil {
		return err
	}
	f.group.part(d)
	return nil
}

// renameTable lets a definition follow its table.
func (f *stream) renameTable(ctx context.Context, c change) error {
	from, to := c.table.dataset(), c.to.dataset()
	def := f.history.tables[from]
	if def != nil {
		if err := f.define(ctx, from, nil); err != nil {
			return err
		}
		def = def.clone()
	}
	if !f.concerns(change{kind: created, table: c.to}) {
		return nil
	}
	if def == nil {
		var err error
		if def, err = f.lookUp(ctx, c.to); err != nil || def == nil {
			return err
		}
	}
	def.rel = c.to
	d := f.datasets[to]
	if d == nil {
		_, err := f.join(ctx, c.to, def)
		return err
	}
	f.s.env.Log.WarnContext(ctx, "a table took the name of one that is followed; if its rows are other ones, --resnapshot copies them",
		slog.String("dataset", to), slog.String("was", from))
	if err := f.define(ctx, to, def); err != nil {
		return err
	}
	if err := f.reshape(ctx, d, def); err != nil {
		return err
	}
	f.group.part(d)
	return nil
}

// lost is the error for a table that is called otherwise after a statement, and is not selected by that name.
func (f *stream) lost(changes []change) error {
	for _, c := range changes {
		if c.kind != renamed || f.datasets[c.table.dataset()] == nil || f.history.tables[c.table.dataset()] != nil {
			continue
		}
		if f.datasets[c.to.dataset()] != nil {
			continue
		}
		return &connector.Error{
			Class: connector.ClassConfig, Code: "mysql.table.renamed", Doing: "reading the stream of changes", Dataset: c.table.dataset(),
			Err:  fmt.Errorf("the table is called %s from here on, which the selection does not mean", c.to.dataset()),
			Hint: "select it by its new name, or rename it back",
		}
	}
	return nil
}

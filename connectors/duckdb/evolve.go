//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// Evolve implements connector.Evolver, in the open transaction. Columns are dropped (with the indexes on them), renamed, widened and added;
// which one is which is known by the ids that were written down, or else by names. With from nil nothing is dropped but a column whose
// name another one took.
//
// DuckDB changes neither a table with indexes nor one of which the open transaction deleted rows: such a table is copied. Rows that were
// gathered are brought to the new columns first, so that this is rare.
func (s *sink) Evolve(ctx context.Context, from, to *record.Schema) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	x := s.sets[to.Dataset]
	if x != nil && x.evolved == to {
		return nil
	}
	at, err := s.place(to.Dataset)
	if err != nil {
		return err
	}
	if x != nil {
		at = x.into
		if err := s.poison(s.settleBefore(ctx, x, from, to)); err != nil {
			return err
		}
	}
	columns, err := s.db.columns(ctx, at)
	if err != nil {
		return s.poison(err)
	}
	if columns != nil {
		c := &change{s: s, at: at, columns: columns, to: to, set: x}
		if err := s.poison(c.run(ctx, from)); err != nil {
			return err
		}
	}
	if x == nil {
		return nil
	}
	x.evolved = to
	return s.poison(s.prepare(ctx, x, to))
}

// place is the table that rows of a dataset go to.
func (s *sink) place(dataset string) (table, error) {
	t, err := s.tableOf(dataset)
	if s.start.Mode == connector.Replace {
		t.name = s.shadowPrefix() + short(t.schema+"\x00"+t.name)
	}
	return t, err
}

// settleBefore brings what was gathered to the new columns; where that can't be, it is written.
func (s *sink) settleBefore(ctx context.Context, x *set, from, to *record.Schema) error {
	if len(x.parked) == 0 && (from == nil || x.schema == from || x.schema.Columns.Equal(from.Columns)) {
		adapted := make([]gathered, len(x.gathered))
		var err error
		for i, g := range x.gathered {
			adapted[i].skip = g.skip
			if adapted[i].Batch, err = adapt(g.Batch, to); err != nil {
				break
			}
		}
		if err == nil {
			x.gathered = adapted
			return nil
		}
	}
	return s.storeSet(ctx, x, true)
}

// change is what becomes of one table.
type change struct {
	sqlgen.Alteration
	s       *sink
	at      table
	columns []existing
	held    []sqlgen.Held
	to      *record.Schema
	set     *set // nil: nothing was written yet
}

func (c *change) run(ctx context.Context, from *record.Schema) error {
	var err error
	if c.held, err = c.s.held(ctx, c.at, c.columns); err != nil {
		return err
	}
	if c.Alteration, err = sqlgen.Alter(c.held, from, c.to); err != nil {
		return c.error("renaming a column", "", err, "rename or drop that column of the table, then run again")
	}
	retype, err := c.retyped(ctx, from)
	if err != nil {
		return err
	}
	nullable := c.nullable(ctx)
	again, err := c.free(ctx, len(c.Drop)+len(c.Rename)+len(retype)+len(nullable) > 0, len(c.Add) > 0)
	if err != nil {
		return err
	}
	steps := []func(context.Context) error{
		c.drop,
		func(ctx context.Context) error { return c.alterEach(ctx, nullable, " DROP NOT NULL") },
		c.rename,
		func(ctx context.Context) error { return c.retype(ctx, retype) },
		c.add,
		func(ctx context.Context) error { return c.index(ctx, again) },
		func(ctx context.Context) error { return c.rekey(ctx, from) },
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return c.s.saveColumns(ctx, c.at, c.Holds(c.held, c.to))
}

func (c *change) error(doing, column string, err error, hint string) error {
	return &connector.Error{
		Class: connector.ClassConfig, Code: "duckdb.columns", Doing: "duckdb: " + doing, Dataset: c.to.Dataset, Column: column,
		Err: err, Hint: hint,
	}
}

// again is what to type where nothing else helps.
func (c *change) again() string {
	return "DROP TABLE " + c.at.sql() + ", then copy it again with --resnapshot " + c.to.Dataset
}

func (c *change) alter(ctx context.Context, sql string) error {
	return c.s.db.exec(ctx, "ALTER TABLE "+c.at.sql()+" "+sql)
}

func (c *change) drop(ctx context.Context) error {
	for _, name := range c.Drop {
		if err := c.alter(ctx, "DROP COLUMN "+sqlgen.Ident(name)); err != nil {
			return c.error("dropping a column that the source dropped", name, err,
				"drop the constraint on the column, then run again; --schema "+c.to.Dataset+"=ignore keeps it")
		}
	}
	return nil
}

func (c *change) rename(ctx context.Context) error {
	for _, r := range c.Rename {
		if err := c.alter(ctx, "RENAME COLUMN "+sqlgen.Ident(r.From)+" TO "+sqlgen.Ident(r.To)); err != nil {
			return wrap(err, "renaming column "+r.From, c.to.Dataset, "")
		}
	}
	return nil
}

// alterEach changes columns, which have their old names.
func (c *change) alterEach(ctx context.Context, names []string, what string) error {
	for _, n := range names {
		if err := c.alter(ctx, "ALTER COLUMN "+sqlgen.Ident(n)+what); err != nil {
			return wrap(err, "changing column "+n, c.to.Dataset, "")
		}
	}
	return nil
}

// column returns the table's column.
func (c *change) column(name string) existing {
	return c.columns[slices.IndexFunc(c.columns, func(e existing) bool { return e.name == name })]
}

// retyped are the columns of the new schema whose type is another one now, and would not hold the new values as it is. What somebody else
// declared stays.
func (c *change) retyped(ctx context.Context, from *record.Schema) ([]int, error) {
	var diff record.Difference
	if from != nil {
		diff = record.Diff(from, c.to)
	}
	var out []int
	for i, f := range c.to.Columns.Fields() {
		if c.Held[i] == "" {
			continue
		}
		h := c.held[slices.IndexFunc(c.held, func(h sqlgen.Held) bool { return h.Name == c.Held[i] })]
		if (h.ID == "" || h.ID != record.IDOf(f)) && !slices.Contains(diff.Retyped, f.Name) {
			continue
		}
		col, err := columnOf(f)
		if err != nil {
			return nil, err
		}
		was := c.column(h.Name)
		if strings.EqualFold(was.native, col.native) || sameType(was.native, col.native) || widens(col.native, was.native) {
			continue
		}
		bad, err := c.s.db.rows(ctx, "SELECT "+sqlgen.Ident(h.Name)+"::VARCHAR FROM "+c.at.sql()+" WHERE "+sqlgen.Ident(h.Name)+
			" IS NOT NULL AND TRY_CAST("+sqlgen.Ident(h.Name)+" AS "+col.native+") IS NULL LIMIT 1")
		switch {
		case err != nil:
			return nil, wrap(err, "changing the type of column "+h.Name, c.to.Dataset, c.again())
		case len(bad) == 0:
			out = append(out, i)
		case was.native == "VARCHAR":
			c.s.env.Log.Warn("the type of a column changed, and the table keeps text: there are values which are none of the new type",
				slog.String("dataset", c.to.Dataset), slog.String("column", h.Name))
		default:
			err := fmt.Errorf("the table has the value %.100s, which is no %s", bad[0][0], col.native)
			return nil, c.error("changing a column's type", h.Name, err, c.again())
		}
	}
	return out, nil
}

// retype changes types of columns, which have their new names.
func (c *change) retype(ctx context.Context, columns []int) error {
	for _, i := range columns {
		f := c.to.Columns.Field(i)
		col, err := columnOf(f)
		if err != nil {
			return err
		}
		if c.column(c.Held[i]).fallback != "" { // the value of older rows, of the old type
			if err := c.alterEach(ctx, []string{f.Name}, " DROP DEFAULT"); err != nil {
				return err
			}
		}
		if err := c.alter(ctx, "ALTER COLUMN "+sqlgen.Ident(f.Name)+" SET DATA TYPE "+col.native); err != nil {
			return c.error("changing a column's type", f.Name, err, c.again())
		}
		if err := c.s.noteType(ctx, c.at, f, col); err != nil {
			return err
		}
	}
	return nil
}

// nullable are the columns that may be null from now on: the source says so, or rows come without them.
func (c *change) nullable(ctx context.Context) []string {
	var out []string
	made := c.s.ours(ctx, c.at)
	for _, e := range c.columns {
		if e.nullable || !made || slices.Contains(c.Drop, e.name) {
			continue
		}
		i := slices.Index(c.Held, e.name)
		if i < 0 || (c.to.Columns.Field(i).Nullable && !slices.Contains(c.to.Key, i)) {
			out = append(out, e.name)
		}
	}
	return out
}

// free makes the table one that ALTER TABLE can change: a table with indexes, or with rows that this transaction deleted, is copied. It
// returns the indexes that have to be made again.
func (c *change) free(ctx context.Context, changes, adds bool) ([]index, error) {
	if !changes && !adds {
		return nil, nil
	}
	indexes, err := c.s.db.indexes(ctx, c.at)
	if err != nil {
		return nil, err
	}
	dirty := c.set != nil && c.set.dirty
	if !dirty && (len(indexes) == 0 || !changes) {
		return nil, nil
	}
	if err := c.copyTable(ctx); err != nil {
		return nil, c.error("copying the table, to change its columns", "", err, c.again())
	}
	if c.set != nil {
		c.set.dirty, c.set.made = false, true
	}
	return indexes, nil
}

// copyTable puts a copy, which this transaction made, in the place of the table; it has no indexes.
func (c *change) copyTable(ctx context.Context) error {
	d := c.s.db
	ddl, err := d.rows(ctx, `SELECT sql, coalesce(comment, '') FROM duckdb_tables() WHERE lower(schema_name) = lower($1) AND
		lower(table_name) = lower($2)`, c.at.schema, c.at.name)
	if err != nil || len(ddl) != 1 {
		return errors.Join(err, errors.New("its definition can't be read"))
	}
	if strings.Contains(ddl[0][0], "GENERATED ALWAYS AS") {
		return errors.New("it has columns that it computes")
	}
	comments, err := d.rows(ctx, `SELECT column_name, comment FROM duckdb_columns() WHERE lower(schema_name) = lower($1) AND
		lower(table_name) = lower($2) AND comment IS NOT NULL`, c.at.schema, c.at.name)
	if err != nil {
		return err
	}
	copied := table{c.at.schema, ownPrefix + "copy_" + short(c.at.schema+"\x00"+c.at.name)}
	script := []string{
		"CREATE TABLE " + copied.sql() + definition(ddl[0][0]),
		"INSERT INTO " + copied.sql() + " SELECT * FROM " + c.at.sql(),
		"DROP TABLE " + c.at.sql(),
		"ALTER TABLE " + copied.sql() + " RENAME TO " + sqlgen.Ident(c.at.name),
	}
	if ddl[0][1] != "" {
		script = append(script, "COMMENT ON TABLE "+c.at.sql()+" IS "+sqlgen.Literal(ddl[0][1]))
	}
	for _, r := range comments {
		script = append(script, "COMMENT ON COLUMN "+c.at.sql()+"."+sqlgen.Ident(r[0])+" IS "+sqlgen.Literal(r[1]))
	}
	for _, sql := range script {
		if err := d.exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// definition is what stands behind the name in a CREATE statement, as DuckDB prints it.
func definition(sql string) string {
	quoted := false
	for i, r := range sql {
		switch {
		case r == '"':
			quoted = !quoted
		case r == '(' && !quoted:
			return strings.TrimSuffix(strings.TrimSpace(sql[i:]), ";")
		}
	}
	return sql
}

// index is an index that CREATE INDEX made.
type index struct {
	name, sql string
}

func (d *db) indexes(ctx context.Context, t table) ([]index, error) {
	rows, err := d.rows(ctx, `SELECT index_name, sql FROM duckdb_indexes() WHERE lower(schema_name) = lower($1) AND
		lower(table_name) = lower($2) AND sql IS NOT NULL ORDER BY index_name`, t.schema, t.name)
	var out []index
	for _, r := range rows {
		out = append(out, index{name: r[0], sql: r[1]})
	}
	return out, wrap(err, "reading the indexes", t.name, "")
}

// index makes the indexes of the old table again, under the new names of their columns; those on dropped columns are gone.
func (c *change) index(ctx context.Context, indexes []index) error {
	for _, ix := range indexes {
		open, closed := strings.LastIndex(ix.sql, c.at.name), strings.LastIndex(ix.sql, ")")
		if i := strings.Index(ix.sql[max(open, 0):], "("); open >= 0 && i >= 0 {
			open += i
		}
		if open < 0 || closed < open {
			err := fmt.Errorf("%q can't be read", ix.sql)
			return c.error("making index "+ix.name+" again", "", err, "DROP INDEX "+sqlgen.Ident(ix.name)+", then run again")
		}
		list, gone := splitTop(ix.sql[open+1:closed]), false
		for i, part := range list {
			name, rest := cutName(strings.TrimSpace(part))
			gone = gone || rest == "" && slices.Contains(c.Drop, name)
			if at := slices.Index(c.Held, name); rest == "" && at >= 0 {
				list[i] = sqlgen.Ident(c.to.Columns.Field(at).Name)
			}
		}
		if gone {
			c.s.env.Log.Warn("an index on a column that the source dropped is dropped", slog.String("dataset", c.to.Dataset),
				slog.String("index", ix.name))
			continue
		}
		if err := c.s.db.exec(ctx, ix.sql[:open+1]+strings.Join(list, ", ")+")"); err != nil {
			return c.error("making index "+ix.name+" again", "", err, "DROP INDEX "+sqlgen.Ident(ix.name)+", then run again")
		}
	}
	return nil
}

// add adds the columns that the table lacks; rows that are there, and rows that come without them, have the values that they have at the
// source.
func (c *change) add(ctx context.Context) error {
	for _, i := range c.Add {
		f := c.to.Columns.Field(i)
		col, err := columnOf(f)
		if err != nil {
			return err
		}
		sql := "ADD COLUMN " + sqlgen.Ident(f.Name) + " " + col.native
		fallback, err := c.s.fallback(ctx, f, col)
		if err != nil {
			return c.error("adding a column with the value of older rows", f.Name, err, "")
		}
		if fallback != "" {
			sql += " DEFAULT " + fallback
		}
		if err := c.alter(ctx, sql); err != nil {
			return wrap(err, "adding column "+f.Name, c.to.Dataset, "")
		}
		if err := c.s.noteType(ctx, c.at, f, col); err != nil {
			return err
		}
	}
	return nil
}

// fallback is the value of rows that are older than a column, as SQL; empty: NULL.
func (s *sink) fallback(ctx context.Context, f arrow.Field, col column) (string, error) {
	text, ok := record.MissingOf(f)
	if !ok {
		return "", nil
	}
	b := array.NewBuilder(memory.DefaultAllocator, f.Type)
	if err := record.ParseText(b, text); err != nil {
		return "", err
	}
	a, err := toDuck(b.NewArray(), col.transfer)
	if err != nil {
		return "", err
	}
	rb := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c", Type: col.transfer, Nullable: true}}, nil), []arrow.Array{a}, 1)
	const name = "_leat_fallback"
	value := "CAST(v.c AS " + col.native + ")"
	if err := s.db.stage(ctx, name, []arrow.RecordBatch{rb}, "CAST("+value+" AS VARCHAR) AS t, "+value+" AS c"); err != nil {
		return "", err
	}
	rows, err := s.db.rows(ctx, "SELECT t FROM "+name+" WHERE CAST(t AS "+col.native+") IS NOT DISTINCT FROM c")
	if err != nil || len(rows) != 1 {
		return "", errors.Join(err, fmt.Errorf("%.100q has no literal of type %s", text, col.native))
	}
	return sqlgen.Literal(rows[0][0]), nil // a literal: DuckDB fills a column by any other expression as by an UPDATE
}

// noteType writes down what a column of text stands for, or that it stands for nothing else.
func (s *sink) noteType(ctx context.Context, t table, f arrow.Field, col column) error {
	note := "NULL"
	if col.native == "VARCHAR" && f.Type.ID() != arrow.STRING {
		note = sqlgen.Literal(typePrefix + record.FormatType(f.Type))
	}
	err := s.db.exec(ctx, "COMMENT ON COLUMN "+t.sql()+"."+sqlgen.Ident(f.Name)+" IS "+note)
	return wrap(err, "writing down the type of column "+f.Name, t.name, "")
}

// rekey writes down the key, where it consists of other columns.
func (c *change) rekey(ctx context.Context, from *record.Schema) error {
	if from == nil || slices.Equal(from.KeyNames(), c.to.KeyNames()) || !c.s.ours(ctx, c.at) {
		return nil
	}
	m := remark{Key: c.to.KeyNames()}
	if c.set != nil && c.set.into != c.set.target {
		m.For = []string{c.set.target.schema, c.set.target.name}
	}
	err := c.s.db.exec(ctx, "COMMENT ON TABLE "+c.at.sql()+" IS "+sqlgen.Literal(m.String()))
	return wrap(err, "writing down the key", c.to.Dataset, "")
}

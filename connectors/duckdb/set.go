//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// set is one dataset of a sink: its table, and the rows that were gathered for it.
type set struct {
	dataset string
	schema  *record.Schema
	columns []column
	target  table // what the dataset is called in the end
	into    table // where rows go: the target, or what will replace it
	unique  bool  // the table has a primary key or unique constraint on exactly the dataset's key
	batches []*record.Batch
	rows    int
}

// tableOf says where a dataset goes.
func (s *sink) tableOf(dataset string) (table, error) {
	parts := record.SplitName(dataset)
	t := table{schema: mainSchema, name: parts[len(parts)-1]}
	if len(parts) > 2 {
		return t, configError(fmt.Errorf("dataset %q has %d parts, a DuckDB table has a schema and a name", dataset,
			len(parts)), "give it another name with a route")
	}
	if len(parts) == 2 && parts[0] != "public" {
		t.schema = parts[0]
	}
	if s.cfg.Schema != "" {
		t.schema = s.cfg.Schema
	}
	if s.cfg.Table != "" {
		own := record.SplitName(s.cfg.Table)
		if t.name = own[len(own)-1]; len(own) == 2 {
			t.schema = own[0]
		}
	}
	return t, nil
}

// set returns the dataset's set, making its table exist.
func (s *sink) set(ctx context.Context, schema *record.Schema) (*set, error) {
	if x, ok := s.sets[schema.Dataset]; ok {
		if x.schema == schema {
			return x, nil
		}
		if err := x.store(ctx, s.db, s.start.Mode); err != nil {
			return nil, err
		}
		return x, s.prepare(ctx, x, schema)
	}
	t, err := s.tableOf(schema.Dataset)
	if err != nil {
		return nil, err
	}
	for _, o := range s.order {
		if strings.EqualFold(o.target.schema, t.schema) && strings.EqualFold(o.target.name, t.name) {
			return nil, configError(fmt.Errorf("datasets %q and %q would both be the table %s, whose name has no case",
				o.dataset, schema.Dataset, t.sql()),
				"give one of them another name with a route")
		}
	}
	x := &set{dataset: schema.Dataset, target: t, into: t}
	if s.start.Mode == connector.Replace {
		x.into = table{t.schema, s.shadowPrefix() + short(t.schema+"\x00"+t.name)}
	}
	if err := s.prepare(ctx, x, schema); err != nil {
		return nil, err
	}
	s.sets[schema.Dataset] = x
	s.order = append(s.order, x)
	return x, nil
}

// prepare creates the table if it is missing, and fits the columns to it.
func (s *sink) prepare(ctx context.Context, x *set, schema *record.Schema) error {
	if s.start.Mode == connector.Upsert && len(schema.Key) == 0 {
		return configError(fmt.Errorf("dataset %s has no key to upsert by", schema.Dataset), "name one with --key")
	}
	x.schema, x.columns = schema, nil
	for _, f := range schema.Columns.Fields() {
		c, err := columnOf(f)
		if err != nil {
			return err
		}
		x.columns = append(x.columns, c)
	}
	if x.into.schema != mainSchema {
		if err := s.db.exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+sqlgen.Ident(x.into.schema)); err != nil {
			return wrap(err, "creating the schema", x.dataset, "")
		}
	}
	existing, err := s.db.columns(ctx, x.into)
	if err != nil {
		return err
	}
	if existing == nil {
		return s.create(ctx, x)
	}
	mappings, err := fitAll(schema, x.columns, existing)
	if err != nil {
		return err
	}
	for i := range x.columns {
		x.columns[i].native = mappings[i].Native
	}
	x.unique, err = s.db.unique(ctx, x.into, schema.KeyNames())
	return err
}

func (s *sink) create(ctx context.Context, x *set) error {
	defs := make([]string, len(x.columns))
	for i, c := range x.columns {
		f := x.schema.Columns.Field(i)
		defs[i] = sqlgen.Ident(f.Name) + " " + c.native
		if !f.Nullable || slices.Contains(x.schema.Key, i) {
			defs[i] += " NOT NULL"
		}
	}
	if err := s.db.exec(ctx, "CREATE TABLE "+x.into.sql()+" ("+strings.Join(defs, ", ")+")"); err != nil {
		return wrap(err, "creating the table", x.dataset, "")
	}
	m := remark{Key: x.schema.KeyNames()}
	if x.into != x.target {
		m.For = []string{x.target.schema, x.target.name}
	}
	if err := s.db.exec(ctx, "COMMENT ON TABLE "+x.into.sql()+" IS "+sqlgen.Literal(m.String())); err != nil {
		return wrap(err, "writing down the key", x.dataset, "")
	}
	for i, c := range x.columns {
		f := x.schema.Columns.Field(i)
		if c.native != "VARCHAR" || f.Type.ID() == arrow.STRING {
			continue
		}
		if err := s.db.exec(ctx, "COMMENT ON COLUMN "+x.into.sql()+"."+sqlgen.Ident(f.Name)+" IS "+
			sqlgen.Literal(typePrefix+record.FormatType(f.Type))); err != nil {
			return wrap(err, "writing down the type of column "+f.Name, x.dataset, "")
		}
	}
	return nil
}

// columns returns the columns of a table and their types; nil: there is no such table.
func (d *db) columns(ctx context.Context, t table) ([][]string, error) {
	rows, err := d.rows(ctx, `SELECT column_name, data_type FROM duckdb_columns() WHERE lower(schema_name) = lower($1) AND
		lower(table_name) = lower($2)
		ORDER BY column_index`, t.schema, t.name)
	return rows, wrap(err, "reading the columns", t.name, "")
}

// unique reports whether a constraint of the table is on exactly these columns.
func (d *db) unique(ctx context.Context, t table, key []string) (bool, error) {
	rows, err := d.rows(ctx, `SELECT array_to_string(list_sort(constraint_column_names), chr(31)) FROM duckdb_constraints()
		WHERE constraint_type IN ('PRIMARY KEY', 'UNIQUE') AND
		lower(schema_name) = lower($1) AND lower(table_name) = lower($2)`, t.schema, t.name)
	if err != nil {
		return false, wrap(err, "reading the constraints", t.name, "")
	}
	want := strings.Join(slices.Sorted(slices.Values(key)), "\x1f")
	return slices.ContainsFunc(rows, func(r []string) bool { return r[0] == want }), nil
}

// peek opens the file if it is there, changing nothing.
func (s *sink) peek(ctx context.Context) (d *db, exists bool, err error) {
	if _, err := os.Stat(s.cfg.Path); err != nil {
		if os.IsNotExist(err) {
			return nil, false, nil
		}
		return nil, false, wrap(err, "looking at "+s.cfg.Path, "", "")
	}
	d, err = open(ctx, s.cfg.Database, "READ_ONLY", s.env)
	return d, err == nil, err
}

// Map implements connector.Mapper.
func (s *sink) Map(ctx context.Context, schema *record.Schema) (ms []connector.Mapping, err error) {
	columns := make([]column, schema.Columns.NumFields())
	for i, f := range schema.Columns.Fields() {
		if columns[i], err = columnOf(f); err != nil {
			return nil, err
		}
		ms = append(ms, columns[i].mapping)
	}
	t, err := s.tableOf(schema.Dataset)
	if err != nil {
		return nil, err
	}
	d, exists, err := s.peek(ctx)
	if err != nil || !exists {
		return ms, err
	}
	existing, err := d.columns(ctx, t)
	if cerr := d.close(); err == nil {
		err = cerr
	}
	if err != nil || existing == nil {
		return ms, err
	}
	return fitAll(schema, columns, existing)
}

// fitAll fits all columns to those of an existing table; columns that it lacks are named all at once.
func fitAll(schema *record.Schema, columns []column, existing [][]string) ([]connector.Mapping, error) {
	ms := make([]connector.Mapping, len(columns))
	var missing []string
	for i, c := range columns {
		name := schema.Columns.Field(i).Name
		at := slices.IndexFunc(existing, func(e []string) bool { return strings.EqualFold(e[0], name) })
		if at < 0 {
			missing = append(missing, sqlgen.Ident(name)+" "+c.native)
			continue
		}
		ms[i] = fit(c, existing[at][1])
	}
	if missing != nil {
		return nil, &connector.Error{
			Class: connector.ClassConfig, Code: "duckdb.columns", Doing: "duckdb: fitting the table", Dataset: schema.Dataset,
			Err:  fmt.Errorf("the table lacks the columns %s", strings.Join(missing, ", ")),
			Hint: "ALTER TABLE … ADD COLUMN " + missing[0] + ", leave them out with the transform drop, or drop the table first",
		}
	}
	return ms, nil
}

// fit says how values of a column are stored in an existing one of another type.
func fit(c column, native string) connector.Mapping {
	m := c.mapping
	m.Native = native
	if strings.EqualFold(native, c.native) || sameType(native, c.native) {
		return m
	}
	if strings.EqualFold(native, "VARCHAR") {
		m.Fidelity, m.Limits, m.Why = connector.Exact, connector.Limits{}, "the table has text: the canonical text form"
		return m
	}
	if widens(c.native, native) {
		return m
	}
	m.Fidelity, m.Policies = connector.Inexact, nil
	m.Why = fmt.Sprintf("the table has %s where %s is needed: cast the column, or drop the table first", native, c.native)
	return m
}

// sameType compares types whose text may differ in quotes and blanks.
func sameType(a, b string) bool {
	squeeze := func(s string) string { return strings.NewReplacer(" ", "", `"`, "").Replace(strings.ToUpper(s)) }
	return squeeze(a) == squeeze(b)
}

// widens reports whether every value of the first integer or float type is one of the second.
func widens(from, to string) bool {
	order := []string{"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"}
	unsigned := []string{"UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
	f, t := slices.Index(order, from), slices.Index(order, strings.ToUpper(to))
	if f >= 0 && t >= f {
		return true
	}
	uf, ut := slices.Index(unsigned, from), slices.Index(unsigned, strings.ToUpper(to))
	return uf >= 0 && (ut >= uf || t > uf) || from == "FLOAT" && strings.EqualFold(to, "DOUBLE")
}

// Evolve implements connector.Evolver: it adds columns.
func (s *sink) Evolve(ctx context.Context, _, to *record.Schema) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	x, ok := s.sets[to.Dataset]
	if !ok {
		return nil // the first batch makes the table
	}
	if err := s.poison(x.store(ctx, s.db, s.start.Mode)); err != nil {
		return err
	}
	for _, f := range to.Columns.Fields() {
		c, err := columnOf(f)
		if err != nil {
			return err
		}
		if err := s.db.exec(ctx, "ALTER TABLE "+x.into.sql()+" ADD COLUMN IF NOT EXISTS "+sqlgen.Ident(f.Name)+" "+c.native); err != nil {
			return s.poison(wrap(err, "adding column "+f.Name, to.Dataset, ""))
		}
	}
	return s.poison(s.prepare(ctx, x, to))
}

// accept gathers a batch.
func (x *set) accept(b *record.Batch, mode connector.WriteMode) error {
	if mode != connector.Upsert {
		for _, op := range b.Ops {
			if op == record.Update || op == record.Delete {
				return configError(fmt.Errorf("dataset %s: mode %s takes only new rows, and there is an %s", x.dataset, mode,
					op), "use --mode upsert")
			}
		}
	}
	x.batches = append(x.batches, b)
	x.rows += b.NumRows()
	return nil
}

func (x *set) drop(bytes *int64) {
	for _, b := range x.batches {
		*bytes -= b.Bytes()
	}
	x.batches, x.rows = nil, 0
}

// transferField is the field under which column c travels.
func transferField(i int, c column) arrow.Field {
	return arrow.Field{Name: fmt.Sprintf("c%d", i), Type: c.transfer, Nullable: true}
}

// handOver makes the record batch that DuckDB reads of some columns.
func (x *set) handOver(rb arrow.RecordBatch, cols []int) (arrow.RecordBatch, error) {
	fields := make([]arrow.Field, len(cols))
	arrays := make([]arrow.Array, len(cols))
	for n, i := range cols {
		fields[n] = transferField(i, x.columns[i])
		a, err := toDuck(rb.Column(i), x.columns[i].transfer)
		if err != nil {
			return nil, &connector.Error{
				Class: connector.ClassPermanent, Code: "duckdb.value", Doing: "duckdb: writing rows", Dataset: x.dataset,
				Column: rb.ColumnName(i), Err: err,
			}
		}
		arrays[n] = a
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rb.NumRows()), nil
}

func (x *set) all() []int {
	cols := make([]int, len(x.columns))
	for i := range cols {
		cols[i] = i
	}
	return cols
}

// names lists the table's names of some columns.
func (x *set) names(cols []int) string {
	parts := make([]string, len(cols))
	for n, i := range cols {
		parts[n] = sqlgen.Ident(x.schema.Columns.Field(i).Name)
	}
	return strings.Join(parts, ", ")
}

// casts lists what stands for some columns in a SELECT from the view.
func (x *set) casts(cols []int) string {
	parts := make([]string, len(cols))
	for n, i := range cols {
		parts[n] = fmt.Sprintf("CAST(v.c%d AS %s)", i, x.columns[i].native)
	}
	return strings.Join(parts, ", ")
}

// viewName is the name under which batches are handed over.
const viewName = "_leat_batch"

// withView runs a statement that reads the batches as the view v, once.
func (d *db) withView(ctx context.Context, rbs []arrow.RecordBatch, sql string) error {
	rd, err := array.NewRecordReader(rbs[0].Schema(), rbs)
	if err != nil {
		return err
	}
	defer rd.Release()
	release, err := d.arrow.RegisterView(rd, viewName)
	if err != nil {
		return err
	}
	defer release()
	return d.exec(ctx, sql)
}

// store writes what was gathered.
func (x *set) store(ctx context.Context, d *db, mode connector.WriteMode) error {
	if len(x.batches) == 0 {
		return nil
	}
	batches := x.batches
	x.batches, x.rows = nil, 0
	if mode == connector.Upsert {
		return x.merge(ctx, d, batches)
	}
	var rbs []arrow.RecordBatch
	for _, b := range batches {
		rb, err := x.handOver(b.Rows, x.all())
		if err != nil {
			return err
		}
		rbs = append(rbs, rb)
	}
	sql := "INSERT INTO " + x.into.sql() + " (" + x.names(x.all()) + ") SELECT " + x.casts(x.all()) + " FROM " + viewName + " v"
	return wrap(d.withView(ctx, rbs, sql), "inserting rows", x.dataset, "")
}

// emptyLike is a record batch without rows.
func emptyLike(schema *arrow.Schema) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	return b.NewRecordBatch()
}

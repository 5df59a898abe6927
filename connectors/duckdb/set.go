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

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// set is one dataset of a sink: its table, and the rows that were gathered for it.
type set struct {
	dataset string
	schema  *record.Schema
	columns []column
	target  table                   // what the dataset is called in the end
	into    table                   // where rows go: the target, or what will replace it
	at      []string                // what the columns are called in the table
	extras  []string                // columns of the table that the batches do not have
	notNull []int                   // columns of the batches that may not be null
	labels  map[int]map[string]bool // of columns that take only these
	evolved *record.Schema

	gathered []gathered
	rows     int

	txn      record.Position // whose rows were folded last
	parked   []parked        // rows that wait for a key
	parkings int64           // how many there were
	dirty    bool            // the open transaction deleted rows that were there before it
	made     bool            // the open transaction made the table
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
		if err := s.storeSet(ctx, x, false); err != nil {
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
	x.schema, x.columns, x.extras, x.notNull = schema, nil, nil, nil
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
	var held []sqlgen.Held
	if existing == nil {
		x.at = schema.Names()
		err = s.create(ctx, x)
	} else {
		held, err = s.fitTable(ctx, x, existing)
	}
	if err != nil {
		return err
	}
	x.labels = map[int]map[string]bool{}
	for c, col := range x.columns {
		if d, err := parseDuck(col.native); err == nil && d.base == "ENUM" {
			x.labels[c] = map[string]bool{}
			for _, l := range labels(d.params) {
				x.labels[c][l] = true
			}
		}
	}
	return s.noteColumns(ctx, x, held)
}

// fitTable fits the columns of the batches to those of the table, and looks at what it has besides.
func (s *sink) fitTable(ctx context.Context, x *set, there []existing) ([]sqlgen.Held, error) {
	held, err := s.held(ctx, x.into, there)
	if err != nil {
		return nil, err
	}
	places := placesFor(x.schema, there, held)
	if slices.Contains(places, -1) && s.start.Mode == connector.Upsert && slices.ContainsFunc(held, hasID) {
		// It follows the columns of the source, and what was changed before was rolled back.
		c := &change{s: s, at: x.into, columns: there, to: x.schema, set: x}
		if err := c.run(ctx, nil); err != nil {
			return nil, err
		}
		if there, err = s.db.columns(ctx, x.into); err != nil {
			return nil, err
		}
		if held, err = s.held(ctx, x.into, there); err != nil {
			return nil, err
		}
		places = placesFor(x.schema, there, held)
	}
	if err := lacking(x.schema, x.columns, places); err != nil {
		return nil, err
	}
	x.at = make([]string, len(places))
	for c, at := range places {
		x.at[c], x.columns[c].native = there[at].name, there[at].native
	}
	return held, s.fitRest(ctx, x, there)
}

// fitRest looks at what the table has besides the columns of the batches, and at what may be null.
func (s *sink) fitRest(ctx context.Context, x *set, there []existing) error {
	for _, e := range there {
		c := slices.Index(x.at, e.name)
		if c < 0 {
			x.extras = append(x.extras, e.name)
		}
		switch {
		case e.nullable || e.fallback != "":
		case c >= 0:
			x.notNull = append(x.notNull, c)
		case s.start.Mode == connector.Upsert && s.ours(ctx, x.into):
			if err := s.db.exec(ctx, "ALTER TABLE "+x.into.sql()+" ALTER COLUMN "+sqlgen.Ident(e.name)+" DROP NOT NULL"); err != nil {
				return wrap(err, "taking rows without column "+e.name, x.dataset, "")
			}
		}
	}
	return nil
}

func (s *sink) create(ctx context.Context, x *set) error {
	defs := make([]string, len(x.columns))
	for i, c := range x.columns {
		f := x.schema.Columns.Field(i)
		defs[i] = sqlgen.Ident(f.Name) + " " + c.native
		if !f.Nullable || slices.Contains(x.schema.Key, i) {
			defs[i] += " NOT NULL"
		}
		fallback, err := s.fallback(ctx, f, c)
		if err != nil {
			return wrap(err, "reading the value of older rows in column "+f.Name, x.dataset, "")
		}
		if fallback != "" {
			defs[i] += " DEFAULT " + fallback
		}
	}
	if err := s.db.exec(ctx, "CREATE TABLE "+x.into.sql()+" ("+strings.Join(defs, ", ")+")"); err != nil {
		return wrap(err, "creating the table", x.dataset, "")
	}
	x.made = true
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
		if err := s.noteType(ctx, x.into, f, c); err != nil {
			return err
		}
	}
	return nil
}

// existing is a column that a table has.
type existing struct {
	name, native string
	nullable     bool
	fallback     string // its default, as SQL; empty: none
}

// columns returns the columns of a table; nil: there is no such table.
func (d *db) columns(ctx context.Context, t table) ([]existing, error) {
	rows, err := d.rows(ctx, `SELECT column_name, data_type, is_nullable::VARCHAR, coalesce(column_default, '') FROM duckdb_columns()
		WHERE lower(schema_name) = lower($1) AND lower(table_name) = lower($2) ORDER BY column_index`, t.schema, t.name)
	if err != nil {
		return nil, wrap(err, "reading the columns", t.name, "")
	}
	var out []existing
	for _, r := range rows {
		out = append(out, existing{name: r[0], native: r[1], nullable: r[2] == "true", fallback: r[3]})
	}
	return out, nil
}

// ours reports whether leat made the table.
func (s *sink) ours(ctx context.Context, t table) bool {
	rows, err := s.db.rows(ctx, `SELECT comment FROM duckdb_tables() WHERE lower(schema_name) = lower($1) AND lower(table_name) = lower($2)
		AND starts_with(comment, '`+remarkPrefix+`')`, t.schema, t.name)
	return err == nil && len(rows) > 0
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
	if err != nil && strings.Contains(err.Error(), "different configuration") { // a sink of this process writes to it
		d, err = open(ctx, s.cfg.Database, "READ_WRITE", s.env)
	}
	return d, err == nil, err
}

// Map implements connector.Mapper. Columns that the table lacks would be made; a column of ours is changed where its type is another one,
// see Evolve.
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
	there, err := d.columns(ctx, t)
	var held []sqlgen.Held
	if err == nil {
		held, err = d.heldOf(ctx, s.env.Pipeline, t, there)
	}
	if cerr := d.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return ms, err
	}
	for i, at := range placesFor(schema, there, held) {
		if at >= 0 && held[at].ID == "" {
			ms[i] = fit(columns[i], there[at].native)
		}
	}
	return ms, nil
}

// placesFor says which column of a table each column of a schema is written to: the one that has its id, also under another name; else the
// one of its name, unless that is known to be another one; -1: none.
func placesFor(schema *record.Schema, there []existing, held []sqlgen.Held) []int {
	out := make([]int, schema.Columns.NumFields())
	for i, f := range schema.Columns.Fields() {
		id := record.IDOf(f)
		out[i] = slices.IndexFunc(held, func(h sqlgen.Held) bool { return id != "" && h.ID == id })
		if out[i] >= 0 {
			continue
		}
		out[i] = slices.IndexFunc(there, func(e existing) bool { return strings.EqualFold(e.name, f.Name) })
		if at := out[i]; at >= 0 && id != "" && held[at].ID != "" {
			out[i] = -1
		}
	}
	return out
}

// lacking is the error of columns that the table lacks: they are named all at once.
func lacking(schema *record.Schema, columns []column, places []int) error {
	var missing []string
	for i, at := range places {
		if at < 0 {
			missing = append(missing, sqlgen.Ident(schema.Columns.Field(i).Name)+" "+columns[i].native)
		}
	}
	if missing == nil {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassConfig, Code: "duckdb.columns", Doing: "duckdb: fitting the table", Dataset: schema.Dataset,
		Err:  fmt.Errorf("the table lacks the columns %s", strings.Join(missing, ", ")),
		Hint: "ALTER TABLE … ADD COLUMN " + missing[0] + ", leave them out with the transform drop, or drop the table first",
	}
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

// accept gathers a batch; rows that the table would refuse are left out, and returned. now: some of its rows need the table, so that
// only applying them shows whether they can be.
func (x *set) accept(b *record.Batch, mode connector.WriteMode) (refused []refusal, now bool, err error) {
	for _, op := range b.Ops {
		switch {
		case op == record.Insert || (op == record.Upsert && (len(x.schema.Key) > 0 || mode != connector.Upsert)):
		case mode == connector.Upsert && op != record.Upsert:
		default:
			hint := "use --mode upsert"
			if mode == connector.Upsert {
				hint = "name the key with --key"
			}
			return nil, false, configError(fmt.Errorf("dataset %s has %d key columns: mode %s takes no %s of its rows", x.dataset,
				len(x.schema.Key), mode, op), hint)
		}
	}
	n := int32(len(x.gathered))
	refused = x.check(b, n, mode == connector.Upsert)
	g := gathered{Batch: b}
	for _, r := range refused {
		if g.skip == nil {
			g.skip = map[int]bool{}
		}
		g.skip[int(r.row)] = true
	}
	x.gathered = append(x.gathered, g)
	x.rows += b.NumRows()
	if mode != connector.Upsert {
		return refused, false, nil
	}
	if len(x.schema.Key) == 0 {
		return refused, changes(b), nil
	}
	return refused, len(b.Unchanged) > 0, nil
}

// changes reports whether a batch has anything but inserts.
func changes(b *record.Batch) bool {
	return slices.ContainsFunc(b.Ops, func(op record.Op) bool { return op != record.Insert })
}

// check finds rows that the table would refuse: with nulls where there may be none, or labels that it does not have.
func (x *set) check(b *record.Batch, n int32, upsert bool) []refusal {
	var out []refusal
	must := x.notNull
	if upsert {
		must = slices.Concat(x.schema.Key, x.notNull)
	}
	images := upsert && b.Old != nil && len(x.schema.Key) > 1
	if !images && len(x.labels) == 0 && !slices.ContainsFunc(must, func(c int) bool { return b.Rows.Column(c).NullN() > 0 }) {
		return nil
	}
	for i := range b.NumRows() {
		c, err := x.checkRow(b, i, must, images)
		if err != nil {
			out = append(out, refusal{pick: pick{batch: n, row: int32(i)}, column: x.name(c), err: err})
		}
	}
	return out
}

// checkRow returns what is wrong with a row, and in which column.
func (x *set) checkRow(b *record.Batch, i int, must []int, images bool) (int, error) {
	for _, c := range must {
		isKey := slices.Contains(x.schema.Key, c)
		switch {
		case !b.Rows.Column(c).IsNull(i) || b.IsUnchanged(c, i):
		case isKey:
			return c, errNullKey
		case b.Op(i) != record.Delete:
			return c, errNull
		}
	}
	if images && b.Op(i) == record.Update {
		if c := x.unknownKey(b, i); c >= 0 {
			return c, errOldKey
		}
	}
	for c, known := range x.labels {
		if label, ok := x.unknownLabel(b, i, c, known); ok {
			return c, fmt.Errorf("the column has no label %q", label)
		}
	}
	return -1, nil
}

// unknownLabel finds a label that a column does not have, in row i or in the image before it, where that is used.
func (x *set) unknownLabel(b *record.Batch, i, c int, known map[string]bool) (string, bool) {
	finds := slices.Contains(x.schema.Key, c) || len(x.schema.Key) == 0 // rows are looked for by it
	unsent := b.IsUnchanged(c, i)
	for _, use := range []struct {
		image arrow.RecordBatch
		used  bool
	}{{b.Rows, !unsent && (finds || b.Op(i) != record.Delete)}, {b.Old, b.Op(i) == record.Update && (finds || unsent)}} {
		if use.image == nil || !use.used || use.image.Column(c).IsNull(i) {
			continue
		}
		if label := string(record.AppendText(nil, use.image.Column(c), i)); !known[label] {
			return label, true
		}
	}
	return "", false
}

// unknownKey returns a column of the key before a change that is not known while others are, or -1.
func (x *set) unknownKey(b *record.Batch, i int) int {
	unknown, known := -1, false
	for _, k := range x.schema.Key {
		if b.Old.Column(k).IsNull(i) {
			unknown = k
		} else {
			known = true
		}
	}
	if known {
		return unknown
	}
	return -1
}

func (x *set) drop(bytes *int64) {
	for _, g := range x.gathered {
		*bytes -= g.Bytes()
	}
	x.gathered, x.rows, x.parked = nil, 0, nil
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
			return nil, x.badValue(i, err)
		}
		arrays[n] = a
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rb.NumRows()), nil
}

func (x *set) badValue(c int, err error) error {
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "duckdb.value", Doing: "duckdb: writing rows", Dataset: x.dataset, Column: x.name(c),
		Err: err,
	}
}

// name is the name of a column in the batches.
func (x *set) name(c int) string { return x.schema.Columns.Field(c).Name }

// ident is its name in the table.
func (x *set) ident(c int) string { return sqlgen.Ident(x.at[c]) }

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
		parts[n] = x.ident(i)
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
	if err := d.settle(ctx); err != nil {
		return err
	}
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

// store writes what was gathered, and returns the rows that could not be applied. ends: the source's transaction is complete.
func (x *set) store(ctx context.Context, d *db, mode connector.WriteMode, ends bool) ([]refusal, error) {
	if len(x.gathered) == 0 && (len(x.parked) == 0 || !ends) {
		return nil, nil
	}
	defer func() { x.gathered, x.rows = nil, 0 }()
	switch {
	case mode == connector.Upsert && len(x.schema.Key) > 0:
		return x.merge(ctx, d, ends)
	case mode == connector.Upsert && changes(x.gathered[len(x.gathered)-1].Batch):
		last := len(x.gathered) - 1 // only the last one has changes, see accept
		if err := x.append(ctx, d, x.gathered[:last]); err != nil {
			return nil, err
		}
		return x.mergeImages(ctx, d, last)
	}
	return nil, x.append(ctx, d, x.gathered)
}

// insertSQL is the statement that inserts all that the view has.
func (x *set) insertSQL() string {
	return "INSERT INTO " + x.into.sql() + " (" + x.names(x.all()) + ") SELECT " + x.casts(x.all()) + " FROM " + viewName + " v"
}

// append inserts all rows.
func (x *set) append(ctx context.Context, d *db, batches []gathered) error {
	for _, g := range batches {
		b, err := g.Keep(func(i int) bool { return !g.skip[i] })
		if err != nil {
			return fmt.Errorf("duckdb: leaving rows out: %w", err)
		}
		rb, err := x.handOver(b.Rows, x.all())
		if err != nil {
			return err
		}
		if rb.NumRows() == 0 {
			continue
		}
		if err := d.pour(ctx, x, rb, b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

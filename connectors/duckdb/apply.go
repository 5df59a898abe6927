//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector/sqlgen"
)

// Temporary tables of one application.
const (
	goneTable = "_leat_gone" // keys whose rows leave the table
	inTable   = "_leat_in"   // rows that are completed with what the table has
	idTable   = "_leat_id"   // the ids of their rows in the table
	baseTable = "_leat_base" // what the table has of them
)

// parked is a row that waits for its key: at the end of a fold, inside a transaction of the source, another row still had it. Its values
// are in a temporary table.
type parked struct {
	key    string
	keys   []arrow.Array // its columns, one row each
	number int64         // in the table
}

// outcome is a row as it will be, under a key.
type outcome struct {
	at     int32 // the slot
	row    *occupant
	parked int64 // what its number among the parked rows will be; 0: it goes into the table
}

// merge applies the gathered changes by key. ends: the source's transaction is complete.
func (x *set) merge(ctx context.Context, d *db, ends bool) ([]refusal, error) {
	f := newFold(x)
	if err := f.lookUp(ctx, d); err != nil {
		return nil, err
	}
	f.run(ends)
	return f.refuse, f.apply(ctx, d)
}

// lookUp asks the table which of the keys it has that rows move from and to.
func (f *fold) lookUp(ctx context.Context, d *db) error {
	keys, at := f.moves()
	if len(keys) == 0 {
		return nil
	}
	rb, err := f.record(f.set.schema.Key, at, func(i, _ int) pick { return at[i] })
	if err != nil {
		return err
	}
	if rb, err = numbered(rb, nil); err != nil {
		return err
	}
	x := f.set
	if err := d.stage(ctx, goneTable, []arrow.RecordBatch{rb}, x.keyCasts("c")+", v.n"); err != nil {
		return wrap(err, "looking up keys that moved", x.dataset, "")
	}
	rows, err := d.rows(ctx, "SELECT g.n::VARCHAR FROM "+goneTable+" g SEMI JOIN "+x.into.sql()+" t ON "+x.matchKey("t", "g"))
	if err != nil {
		return wrap(err, "looking up keys that moved", x.dataset, "")
	}
	for _, key := range keys {
		if !f.exists[key] { // a key that rows wait for is there
			f.exists[key] = false
		}
	}
	for _, r := range rows {
		n, err := strconv.Atoi(r[0])
		if err != nil {
			return err
		}
		f.exists[keys[n]] = true
	}
	return nil
}

// apply writes the outcome of every key.
func (f *fold) apply(ctx context.Context, d *db) error {
	var gone []pick
	var plain, filled []outcome
	x := f.set
	was := x.parked
	x.parked = nil
	for i := range f.slots {
		s := &f.slots[i]
		if !s.own && !f.absent(s.key) {
			gone = append(gone, s.at)
		}
		waiting := s.more
		switch {
		case s.only < 0:
			continue
		case s.own:
			waiting = append([]int32{s.only}, waiting...)
		default:
			o := &f.rows[s.only]
			if o.complete() && (o.base < 0 || len(x.extras) == 0) {
				plain = append(plain, outcome{at: int32(i), row: o})
			} else {
				filled = append(filled, outcome{at: int32(i), row: o})
			}
		}
		for _, o := range waiting {
			x.parkings++
			x.parked = append(x.parked, parked{key: s.key, keys: f.keyOf(s.at), number: x.parkings})
			filled = append(filled, outcome{at: int32(i), row: &f.rows[o], parked: x.parkings})
		}
	}
	order := func(a, b outcome) int { return compare(a.row.last, b.row.last) }
	slices.SortFunc(plain, order)
	slices.SortFunc(filled, order)
	if err := f.complete(ctx, d, filled, len(was) > 0); err != nil {
		return err
	}
	if err := f.remove(ctx, d, gone); err != nil {
		return err
	}
	if err := f.insert(ctx, d, plain); err != nil {
		return err
	}
	return f.insertCompleted(ctx, d, filled, len(was) > 0)
}

// keyOf returns the columns of a key.
func (f *fold) keyOf(p pick) []arrow.Array {
	out := make([]arrow.Array, len(f.set.schema.Key))
	for n, k := range f.set.schema.Key {
		out[n] = array.NewSlice(f.column(p, k), int64(p.row), int64(p.row)+1)
	}
	return out
}

// absent reports whether the table surely has no row of the key.
func (f *fold) absent(key string) bool {
	has, sure := f.exists[key]
	return sure && !has
}

// complete reports whether the batches have all values.
func (o *occupant) complete() bool {
	return o.part == nil || !slices.ContainsFunc(o.part.cells, func(p pick) bool { return p.batch < 0 })
}

func compare(a, b pick) int {
	if a.batch != b.batch {
		return int(a.batch - b.batch)
	}
	return int(a.row - b.row)
}

// record gathers columns of picked rows as they are handed over; where a pick is none, the value is null.
func (f *fold) record(cols []int, rows []pick, at func(i, c int) pick) (arrow.RecordBatch, error) {
	fields := make([]arrow.Field, len(cols))
	arrays := make([]arrow.Array, len(cols))
	for n, c := range cols {
		fields[n] = transferField(c, f.set.columns[c])
		col, err := f.gather(c, len(rows), at)
		if err != nil {
			return nil, err
		}
		if arrays[n], err = toDuck(col, f.set.columns[c].transfer); err != nil {
			return nil, f.set.badValue(c, err)
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, int64(len(rows))), nil
}

// gather makes one array of picked values: neighbours stay together.
func (f *fold) gather(c, n int, at func(i, c int) pick) (arrow.Array, error) {
	var parts []arrow.Array
	for i := 0; i < n; {
		p := at(i, c)
		k := 1
		for i+k < n {
			q := at(i+k, c)
			if q.batch != p.batch || (p.batch >= 0 && (q.old != p.old || q.row != p.row+int32(k))) {
				break
			}
			k++
		}
		if p.batch < 0 {
			parts = append(parts, array.MakeArrayOfNull(memory.DefaultAllocator, f.set.schema.Columns.Field(c).Type, k))
		} else {
			parts = append(parts, array.NewSlice(f.column(p, c), int64(p.row), int64(p.row)+int64(k)))
		}
		i += k
	}
	switch len(parts) {
	case 0:
		return array.MakeArrayOfNull(memory.DefaultAllocator, f.set.schema.Columns.Field(c).Type, 0), nil
	case 1:
		return parts[0], nil
	}
	joined, err := array.Concatenate(parts, memory.DefaultAllocator)
	if err != nil {
		return nil, fmt.Errorf("duckdb: joining values of column %d: %w", c, err)
	}
	return joined, nil
}

// numbered adds the column n, which counts the rows from 0, and others.
func numbered(rb arrow.RecordBatch, more map[string]arrow.Array) (arrow.RecordBatch, error) {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	for i := range rb.NumRows() {
		b.Append(i)
	}
	if more == nil {
		more = map[string]arrow.Array{}
	}
	more["n"] = b.NewArray()
	return extended(rb, more)
}

// extended adds columns. A statement must use every column of what is handed over: DuckDB leaves the others out, and the driver does not
// know of it.
func extended(rb arrow.RecordBatch, more map[string]arrow.Array) (arrow.RecordBatch, error) {
	fields, arrays := rb.Schema().Fields(), slices.Clone(rb.Columns())
	for _, name := range slices.Sorted(maps.Keys(more)) {
		a := more[name]
		if int64(a.Len()) != rb.NumRows() {
			return nil, fmt.Errorf("duckdb: column %s has %d values for %d rows", name, a.Len(), rb.NumRows())
		}
		fields, arrays = append(fields, arrow.Field{Name: name, Type: a.DataType(), Nullable: true}), append(arrays, a)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rb.NumRows()), nil
}

// stage makes a temporary table of batches that are handed over as v.
func (d *db) stage(ctx context.Context, name string, rbs []arrow.RecordBatch, list string) error {
	return d.withView(ctx, rbs, "CREATE OR REPLACE TEMP TABLE "+name+" AS SELECT "+list+" FROM "+viewName+" v")
}

// keyCasts lists the key columns that are handed over under a prefix, by the table's names.
func (x *set) keyCasts(prefix string) string {
	parts := make([]string, len(x.schema.Key))
	for n, k := range x.schema.Key {
		parts[n] = fmt.Sprintf("CAST(v.%s%d AS %s) AS %s", prefix, k, x.columns[k].native, x.ident(k))
	}
	return strings.Join(parts, ", ")
}

func (x *set) matchKey(a, b string) string {
	parts := make([]string, len(x.schema.Key))
	for n, k := range x.schema.Key {
		col := x.ident(k)
		parts[n] = a + "." + col + " = " + b + "." + col
	}
	return strings.Join(parts, " AND ")
}

// remove deletes the rows of keys. What replaces them is inserted: DuckDB is quick at both, while an update of a few rows far apart makes
// its next checkpoint write whole columns.
func (f *fold) remove(ctx context.Context, d *db, gone []pick) error {
	if len(gone) == 0 {
		return nil
	}
	x := f.set
	slices.SortFunc(gone, compare)
	rb, err := f.record(x.schema.Key, gone, func(i, _ int) pick { return gone[i] })
	if err != nil {
		return err
	}
	if err := d.stage(ctx, goneTable, []arrow.RecordBatch{rb}, x.keyCasts("c")); err != nil {
		return wrap(err, "staging keys", x.dataset, "")
	}
	n, err := d.affected(ctx, "DELETE FROM "+x.into.sql()+" t USING "+goneTable+" g WHERE "+x.matchKey("t", "g"))
	x.dirty = x.dirty || n > 0 && !x.made
	return wrap(err, "deleting rows", x.dataset, "")
}

// insert writes rows of which everything is known.
func (f *fold) insert(ctx context.Context, d *db, rows []outcome) error {
	if len(rows) == 0 {
		return nil
	}
	x := f.set
	rb, err := f.record(x.all(), make([]pick, len(rows)), func(i, c int) pick { return rows[i].row.cell(c) })
	if err != nil {
		return err
	}
	return wrap(d.withView(ctx, []arrow.RecordBatch{rb}, x.insertSQL()), "inserting rows", x.dataset, "")
}

// complete stages rows that need values of the table, and reads those from it; rows that it lacks are refused.
func (f *fold) complete(ctx context.Context, d *db, rows []outcome, waited bool) error {
	if len(rows) == 0 {
		return nil
	}
	x := f.set
	rb, lacking, err := f.incomplete(rows)
	if err != nil {
		return err
	}
	list := []string{"v.n", "v.p", "v.q"}
	for _, c := range x.all() {
		list = append(list, fmt.Sprintf("CAST(v.c%d AS %s) AS c%d", c, x.columns[c].native, c))
	}
	for _, c := range lacking {
		list = append(list, fmt.Sprintf("v.u%d", c))
	}
	for _, k := range x.schema.Key {
		list = append(list, fmt.Sprintf("CAST(v.k%d AS %s) AS k%d", k, x.columns[k].native, k))
	}
	if err := d.stage(ctx, inTable, []arrow.RecordBatch{rb}, strings.Join(list, ", ")); err != nil {
		return wrap(err, "staging rows", x.dataset, "")
	}
	if err := f.readBase(ctx, d, lacking, waited); err != nil {
		return err
	}
	return f.refuseLacking(ctx, d, rows, lacking)
}

// incomplete hands over rows: c the values that are known, u whether it is one that only the table has, k the key under which the table
// has the row, p its number where it was parked, q the number that it gets.
func (f *fold) incomplete(rows []outcome) (arrow.RecordBatch, []int, error) {
	x := f.set
	rb, err := f.record(x.all(), make([]pick, len(rows)), func(i, c int) pick { return rows[i].row.cell(c) })
	if err != nil {
		return nil, nil, err
	}
	more := map[string]arrow.Array{}
	var lacking []int
	for c := range x.columns {
		b := array.NewBooleanBuilder(memory.DefaultAllocator)
		some := false
		for _, r := range rows {
			lacks := r.row.cell(c).batch < 0
			some = some || lacks
			b.Append(lacks)
		}
		if some {
			lacking = append(lacking, c)
			more[fmt.Sprintf("u%d", c)] = b.NewArray()
		}
	}
	base := func(i, _ int) pick {
		if o := rows[i].row; o.base >= 0 {
			return f.slots[o.base].at
		}
		return none()
	}
	for _, k := range x.schema.Key {
		col, err := f.gather(k, len(rows), base)
		if err != nil {
			return nil, nil, err
		}
		if more[fmt.Sprintf("k%d", k)], err = toDuck(col, x.columns[k].transfer); err != nil {
			return nil, nil, x.badValue(k, err)
		}
	}
	was, is := array.NewInt64Builder(memory.DefaultAllocator), array.NewInt64Builder(memory.DefaultAllocator)
	for _, r := range rows {
		was.Append(r.row.parked)
		is.Append(r.parked)
	}
	more["p"], more["q"] = was.NewArray(), is.NewArray()
	out, err := numbered(rb, more)
	return out, lacking, err
}

// readBase reads what rows lack, and the columns that the batches do not have.
func (f *fold) readBase(ctx context.Context, d *db, lacking []int, waited bool) error {
	x := f.set
	var on []string
	for _, k := range x.schema.Key {
		on = append(on, fmt.Sprintf("t.%s = i.k%d", x.ident(k), k))
	}
	columns := func(alias string) string {
		list := []string{"i.n"}
		for _, c := range lacking {
			list = append(list, fmt.Sprintf("%s.%s AS b%d", alias, x.ident(c), c))
		}
		for e, name := range x.extras {
			list = append(list, fmt.Sprintf("%s.%s AS e%d", alias, sqlgen.Ident(name), e))
		}
		return strings.Join(list, ", ")
	}
	from := x.into.sql() + " t JOIN " + inTable + " i ON " + strings.Join(on, " AND ")
	if !x.hidesIDs() { // the key is looked for in the key's columns alone, then the rows are read by their ids
		err := d.exec(ctx, "CREATE OR REPLACE TEMP TABLE "+idTable+" AS SELECT i.n, t.rowid AS id FROM "+from)
		if err != nil {
			return wrap(err, "looking for rows", x.dataset, "")
		}
		from = x.into.sql() + " t JOIN " + idTable + " i ON t.rowid = i.id"
	}
	sql := "CREATE OR REPLACE TEMP TABLE " + baseTable + " AS SELECT " + columns("t") + " FROM " + from
	if waited {
		sql += " UNION ALL SELECT " + columns("p") + " FROM " + x.parkedTable() + " p JOIN " + inTable + " i ON p._leat_n = i.p"
	}
	return wrap(d.exec(ctx, sql), "reading unchanged values", x.dataset, "")
}

// hidesIDs reports whether a column of the table has the name of the row ids.
func (x *set) hidesIDs() bool {
	return slices.ContainsFunc(slices.Concat(x.at, x.extras), func(n string) bool { return strings.EqualFold(n, "rowid") })
}

// refuseLacking takes rows out of the stage whose values the table does not have.
func (f *fold) refuseLacking(ctx context.Context, d *db, rows []outcome, lacking []int) error {
	if len(lacking) == 0 {
		return nil
	}
	x := f.set
	lacks := make([]string, len(lacking))
	for n, c := range lacking {
		lacks[n] = fmt.Sprintf("i.u%d", c)
	}
	missing := inTable + " i WHERE (" + strings.Join(lacks, " OR ") + ") AND NOT EXISTS (FROM " + baseTable + " b WHERE b.n = i.n)"
	found, err := d.rows(ctx, "SELECT i.n::VARCHAR FROM "+missing)
	if err == nil && len(found) > 0 {
		err = d.exec(ctx, "DELETE FROM "+missing)
	}
	if err != nil {
		return wrap(err, "looking for missing rows", x.dataset, "")
	}
	for _, r := range found {
		n, err := strconv.Atoi(r[0])
		if err != nil {
			return err
		}
		o := rows[n].row
		for _, p := range o.part.needs {
			b := f.in[p.batch].Batch
			c := slices.IndexFunc(x.all(), func(c int) bool {
				return b.IsUnchanged(c, int(p.row)) && (b.Old == nil || b.Old.Column(c).IsNull(int(p.row)))
			})
			f.refuse = append(f.refuse, refusal{pick: p, column: x.name(max(c, 0)), err: errMissing})
		}
	}
	return nil
}

// insertCompleted writes the staged rows, with what the table had of them.
func (f *fold) insertCompleted(ctx context.Context, d *db, rows []outcome, waited bool) error {
	x := f.set
	if len(rows) == 0 {
		if waited {
			return wrap(d.exec(ctx, "DROP TABLE IF EXISTS "+x.parkedTable()), "dropping rows that waited", x.dataset, "")
		}
		return nil
	}
	values := make([]string, len(x.columns))
	for c := range values {
		values[c] = fmt.Sprintf("i.c%d", c)
		if slices.ContainsFunc(rows, func(r outcome) bool { return r.row.cell(c).batch < 0 }) {
			values[c] = fmt.Sprintf("CASE WHEN i.u%d THEN b.b%d ELSE i.c%d END", c, c, c)
		}
	}
	names, all := x.names(x.all()), strings.Join(values, ", ")
	extraNames, extras := "", ""
	for e, name := range x.extras {
		extraNames += ", " + sqlgen.Ident(name)
		extras += fmt.Sprintf(", b.e%d", e)
	}
	from := " FROM " + inTable + " i LEFT JOIN " + baseTable + " b ON b.n = i.n WHERE i.q = 0"
	insert := "INSERT INTO " + x.into.sql() + " (" + names
	var script []string
	if extras == "" {
		script = append(script, insert+") SELECT "+all+from)
	} else { // where the table has no row, its defaults stand
		script = append(script, insert+extraNames+") SELECT "+all+extras+from+" AND b.n IS NOT NULL",
			insert+") SELECT "+all+from+" AND b.n IS NULL")
	}
	if len(x.parked) > 0 {
		script = append(script, "CREATE OR REPLACE TEMP TABLE "+x.parkedTable()+" AS SELECT i.q AS _leat_n, "+
			x.aliased(values, extras != "")+" FROM "+inTable+" i LEFT JOIN "+baseTable+" b ON b.n = i.n WHERE i.q > 0")
	} else if waited {
		script = append(script, "DROP TABLE IF EXISTS "+x.parkedTable())
	}
	for _, sql := range script {
		if err := d.exec(ctx, sql); err != nil {
			return wrap(err, "inserting rows", x.dataset, "")
		}
	}
	return nil
}

// aliased lists values under the names of their columns.
func (x *set) aliased(values []string, extras bool) string {
	var list []string
	for c, v := range values {
		list = append(list, v+" AS "+x.ident(c))
	}
	if extras {
		for e, name := range x.extras {
			list = append(list, fmt.Sprintf("b.e%d AS %s", e, sqlgen.Ident(name)))
		}
	}
	return strings.Join(list, ", ")
}

// parkedTable is where the rows are that wait for a key.
func (x *set) parkedTable() string {
	return sqlgen.Ident("_leat_parked_" + short(x.into.schema+"\x00"+x.into.name))
}

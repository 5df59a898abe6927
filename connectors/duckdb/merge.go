//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// merge applies changes by key. Batches are cut into stretches in which every key has one outcome: its last one. A row whose source
// left values out ends the stretch before it, because it needs what the table then holds.
func (x *set) merge(ctx context.Context, d *db, batches []*record.Batch) error {
	st := &stretch{set: x, last: map[string]outcome{}}
	for n, b := range batches {
		for i := range b.NumRows() {
			if err := st.take(ctx, d, n, b, i); err != nil {
				return err
			}
		}
	}
	return st.apply(ctx, d)
}

// outcome is what becomes of a key at the end of a stretch.
type outcome struct {
	batch, row int
	gone       bool
	moved      bool // gone because another key took its place: the key is in Old
}

type stretch struct {
	set     *set
	batches []*record.Batch // by number
	first   int
	last    map[string]outcome
	partial bool // its rows have left-out values
}

// keyText is the key of a row, comparable; null keys are refused.
func (x *set) keyText(rb arrow.RecordBatch, i int) (string, error) {
	var b []byte
	for _, k := range x.schema.Key {
		if rb.Column(k).IsNull(i) {
			return "", &connector.Error{
				Class: connector.ClassPermanent, Code: "duckdb.null_key", Doing: "duckdb: writing rows", Dataset: x.dataset,
				Column: rb.ColumnName(k),
				Err:    errors.New("a row has no value in the key"),
				Hint:   "choose a key whose columns are never null, or filter such rows out",
			}
		}
		at := len(b)
		b = record.AppendText(b, rb.Column(k), i)
		b = fmt.Appendf(b, "\x00%d\x00", len(b)-at)
	}
	return string(b), nil
}

func (st *stretch) take(ctx context.Context, d *db, n int, b *record.Batch, i int) error {
	key, err := st.set.keyText(b.Rows, i)
	if err != nil {
		return err
	}
	old, moved, err := st.oldKey(b, i, key)
	if err != nil {
		return err
	}
	partial := hasUnchanged(b, i)
	_, again := st.last[key]
	_, againOld := st.last[old]
	if len(st.last) > 0 && (partial != st.partial || partial && (again || moved && againOld)) {
		if err := st.apply(ctx, d); err != nil {
			return err
		}
	}
	st.partial = partial
	if len(st.batches) == 0 {
		st.first = n
	}
	for len(st.batches) <= n-st.first {
		st.batches = append(st.batches, nil)
	}
	st.batches[n-st.first] = b
	if moved {
		st.last[old] = outcome{batch: n, row: i, gone: true, moved: true}
	}
	st.last[key] = outcome{batch: n, row: i, gone: b.Op(i) == record.Delete}
	return nil
}

// oldKey returns the key before a change that moved it.
func (st *stretch) oldKey(b *record.Batch, i int, key string) (old string, moved bool, err error) {
	if b.Old == nil || b.Op(i) == record.Insert || b.Op(i) == record.Delete {
		return "", false, nil
	}
	for _, k := range st.set.schema.Key {
		if b.Old.Column(k).IsNull(i) {
			return "", false, nil // no image before
		}
	}
	old, err = st.set.keyText(b.Old, i)
	return old, err == nil && old != key, err
}

func hasUnchanged(b *record.Batch, i int) bool {
	for col := range b.Unchanged {
		if b.IsUnchanged(col, i) {
			return true
		}
	}
	return false
}

// apply writes the stretch and begins another one.
func (st *stretch) apply(ctx context.Context, d *db) error {
	if len(st.last) == 0 {
		return nil
	}
	var gone, put []outcome
	for _, o := range st.last {
		if o.gone {
			gone = append(gone, o)
		} else {
			put = append(put, o)
		}
	}
	order := func(a, b outcome) int {
		if a.batch != b.batch {
			return a.batch - b.batch
		}
		return a.row - b.row
	}
	slices.SortFunc(gone, order)
	slices.SortFunc(put, order)
	if err := st.fillIn(ctx, d, put); err != nil {
		return err
	}
	if err := st.remove(ctx, d, gone); err != nil {
		return err
	}
	if err := st.upsert(ctx, d, put); err != nil {
		return err
	}
	st.last, st.batches = map[string]outcome{}, nil
	return nil
}

// stage puts rows of some columns into a temporary table of the target's types.
func (st *stretch) stage(ctx context.Context, d *db, name string, rows []outcome, cols []int) error {
	x := st.set
	byBatch := map[int][]outcome{}
	var order []int
	for _, o := range rows {
		if byBatch[o.batch] == nil {
			order = append(order, o.batch)
		}
		byBatch[o.batch] = append(byBatch[o.batch], o)
	}
	var rbs []arrow.RecordBatch
	for _, n := range order {
		for _, moved := range []bool{false, true} {
			rb, err := x.pickRows(st.batches[n-st.first], byBatch[n], cols, moved)
			if err != nil {
				return err
			}
			if rb != nil {
				rbs = append(rbs, rb)
			}
		}
	}
	if len(rbs) == 0 {
		fields := make([]arrow.Field, len(cols))
		for n, i := range cols {
			fields[n] = transferField(i, x.columns[i])
		}
		rbs = append(rbs, emptyLike(arrow.NewSchema(fields, nil)))
	}
	as := make([]string, len(cols))
	for n, i := range cols {
		as[n] = fmt.Sprintf("CAST(v.c%d AS %s) AS %s", i, x.columns[i].native, sqlgen.Ident(x.schema.Columns.Field(i).Name))
	}
	sql := "CREATE OR REPLACE TEMP TABLE " + name + " AS SELECT " + strings.Join(as, ", ") + " FROM " + viewName + " v"
	return wrap(d.withView(ctx, rbs, sql), "staging rows", x.dataset, "")
}

// pickRows hands over the chosen rows of a batch, from the image after the change or, for keys that moved, from the one before.
func (x *set) pickRows(b *record.Batch, rows []outcome, cols []int, moved bool) (arrow.RecordBatch, error) {
	wanted := map[int]bool{}
	for _, o := range rows {
		if o.moved == moved {
			wanted[o.row] = true
		}
	}
	if len(wanted) == 0 {
		return nil, nil //nolint:nilnil // none of this kind
	}
	from := record.Batch{Schema: b.Schema, Rows: b.Rows}
	if moved {
		from.Rows = b.Old
	}
	kept, err := from.Keep(func(i int) bool { return wanted[i] })
	if err != nil {
		return nil, err
	}
	return x.handOver(kept.Rows, cols)
}

func (x *set) matchKey(a, b string) string {
	parts := make([]string, len(x.schema.Key))
	for n, k := range x.schema.Key {
		col := sqlgen.Ident(x.schema.Columns.Field(k).Name)
		parts[n] = a + "." + col + " = " + b + "." + col
	}
	return strings.Join(parts, " AND ")
}

// remove deletes keys that are gone.
func (st *stretch) remove(ctx context.Context, d *db, gone []outcome) error {
	if len(gone) == 0 {
		return nil
	}
	if err := st.stage(ctx, d, "_leat_gone", gone, st.set.schema.Key); err != nil {
		return err
	}
	sql := "DELETE FROM " + st.set.into.sql() + " t USING _leat_gone g WHERE " + st.set.matchKey("t", "g")
	return wrap(d.exec(ctx, sql), "deleting rows", st.set.dataset, "")
}

// upsert writes the rows that are there in the end. A table with a unique constraint is written by ON CONFLICT; without one, the keys
// are deleted first, which needs no index.
func (st *stretch) upsert(ctx context.Context, d *db, put []outcome) error {
	if len(put) == 0 {
		return nil
	}
	x := st.set
	if err := st.stage(ctx, d, "_leat_put", put, x.all()); err != nil {
		return err
	}
	names := x.names(x.all())
	insert := "INSERT INTO " + x.into.sql() + " (" + names + ") SELECT " + names + " FROM _leat_put"
	if !x.unique {
		sql := "DELETE FROM " + x.into.sql() + " t USING _leat_put p WHERE " + x.matchKey("t", "p")
		if err := d.exec(ctx, sql); err != nil {
			return wrap(err, "replacing rows", x.dataset, "")
		}
		return wrap(d.exec(ctx, insert), "inserting rows", x.dataset, "")
	}
	var sets []string
	for i := range x.columns {
		if !slices.Contains(x.schema.Key, i) {
			col := sqlgen.Ident(x.schema.Columns.Field(i).Name)
			sets = append(sets, col+" = excluded."+col)
		}
	}
	act := " DO NOTHING"
	if len(sets) > 0 {
		act = " DO UPDATE SET " + strings.Join(sets, ", ")
	}
	return wrap(d.exec(ctx, insert+" ON CONFLICT ("+x.names(x.schema.Key)+")"+act), "upserting rows", x.dataset, "")
}

// fillIn replaces rows that left values out by rows that have them: the values that the table holds under the key, or under the key
// before the change.
func (st *stretch) fillIn(ctx context.Context, d *db, put []outcome) error {
	if !st.partial || len(put) == 0 {
		return nil
	}
	x := st.set
	for n, o := range put {
		b := st.batches[o.batch-st.first]
		one := record.Batch{Schema: b.Schema, Rows: b.Rows.NewSlice(int64(o.row), int64(o.row)+1)}
		key := one.Rows
		if b.Old != nil && !b.Old.Column(x.schema.Key[0]).IsNull(o.row) {
			key = b.Old.NewSlice(int64(o.row), int64(o.row)+1)
		}
		held, err := x.lookUp(ctx, d, key)
		if err != nil {
			return err
		}
		filled := record.Batch{Schema: b.Schema, Rows: one.Rows, Ops: []record.Op{b.Op(o.row)}}
		if held != nil {
			cols := slices.Clone(one.Rows.Columns())
			for c := range cols {
				if b.IsUnchanged(c, o.row) {
					cols[c] = held[c]
				}
			}
			filled.Rows = array.NewRecordBatch(b.Schema.Columns, cols, 1)
		}
		st.batches = append(st.batches, &filled)
		put[n] = outcome{batch: st.first + len(st.batches) - 1}
	}
	return nil
}

// lookUp reads the row under a key; nil: there is none.
func (x *set) lookUp(ctx context.Context, d *db, key arrow.RecordBatch) ([]arrow.Array, error) {
	rb, err := x.handOver(key, x.schema.Key)
	if err != nil {
		return nil, err
	}
	conds := make([]string, len(x.schema.Key))
	for n, k := range x.schema.Key {
		conds[n] = fmt.Sprintf("t.%s = CAST(v.c%d AS %s)", sqlgen.Ident(x.schema.Columns.Field(k).Name), k, x.columns[k].native)
	}
	casts := make([]string, len(x.columns))
	for i, c := range x.columns {
		_, transfer, err := fieldOf("", c.native, true)
		if err != nil {
			return nil, err
		}
		casts[i] = "CAST(t." + sqlgen.Ident(x.schema.Columns.Field(i).Name) + " AS " + transfer + ") AS c" + strconv.Itoa(i)
	}
	sql := "CREATE OR REPLACE TEMP TABLE _leat_held AS SELECT " + strings.Join(casts, ", ") + " FROM " + x.into.sql() + " t, " + viewName +
		" v WHERE " + strings.Join(conds, " AND ")
	if err := d.withView(ctx, []arrow.RecordBatch{rb}, sql); err != nil {
		return nil, wrap(err, "looking up unchanged values", x.dataset, "")
	}
	d.roundtrip("query")
	rd, err := d.arrow.QueryContext(ctx, "SELECT * FROM _leat_held LIMIT 1")
	if err != nil {
		return nil, wrap(err, "looking up unchanged values", x.dataset, "")
	}
	defer rd.Release()
	if !rd.Next() || rd.RecordBatch().NumRows() == 0 {
		return nil, rd.Err()
	}
	out := make([]arrow.Array, len(x.columns))
	for i := range out {
		b := array.NewBuilder(memory.DefaultAllocator, x.schema.Columns.Field(i).Type)
		if err := readValue(b, rd.RecordBatch().Column(i), 0); err != nil {
			return nil, err
		}
		out[i] = b.NewArray()
	}
	return out, nil
}

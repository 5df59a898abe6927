//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// Temporary tables of changes to a dataset without a key.
const (
	imageTable = "_leat_image" // images that rows are looked for by
	foundTable = "_leat_found" // the ids of rows that equal them, counted
)

// images are the changes of one batch of a dataset without a key: an update or a delete concerns exactly one row that equals the image
// before it, in the table or among the rows that earlier changes of the batch brought.
type images struct {
	set    *set
	f      *fold // for gathering values
	b      *record.Batch
	batch  int32
	index  map[string]int // by the image's text
	list   []image
	rows   []imageRow // that are inserted, in order
	refuse []refusal
}

type image struct {
	at     pick
	wanted int64 // rows that may be needed of the table
	has    int64 // rows that the table has of them
	taken  int64
	fresh  []int // rows that the batch brought, by number in rows
}

// imageRow is a row that an insert or an update brought.
type imageRow struct {
	row  int
	gone bool
	was  int   // the image of the table's row that it is an update of; -1: it is new
	nth  int64 // which one of its rows
}

// mergeImages applies the changes of the last gathered batch.
func (x *set) mergeImages(ctx context.Context, d *db, n int) ([]refusal, error) {
	m := &images{set: x, f: &fold{set: x, in: x.gathered}, b: x.gathered[n].Batch, batch: int32(n), index: map[string]int{}}
	if err := m.lookUp(ctx, d); err != nil {
		return nil, err
	}
	for i := range m.b.NumRows() {
		if !x.gathered[n].skip[i] {
			m.take(i)
		}
	}
	if err := m.remove(ctx, d); err != nil {
		return nil, err
	}
	return m.refuse, m.insert(ctx, d)
}

// text is an image of row i, comparable.
func (m *images) text(column func(c int) arrow.Array, i int) string {
	var out []byte
	for c := range m.set.columns {
		out = append(record.AppendJSON(out, column(c), i), ',')
	}
	return string(out)
}

// of returns the number of the image that is there.
func (m *images) of(p pick) int { return m.note(m.text(m.image(p).Column, int(p.row)), p) }

func (m *images) note(text string, p pick) int {
	n, ok := m.index[text]
	if !ok {
		n = len(m.list)
		m.index[text] = n
		m.list = append(m.list, image{at: p})
	}
	return n
}

// before is the image that change i looks for; none: it looks for no row.
func (m *images) before(i int) pick {
	p := pick{batch: m.batch, row: int32(i)}
	switch {
	case m.b.Op(i) == record.Delete:
		return p
	case m.b.Op(i) == record.Update && m.b.Old != nil:
		p.old = true
		return p
	}
	return none()
}

// lookUp finds out which rows the table has of all images that are looked for, as many of each as may be needed.
func (m *images) lookUp(ctx context.Context, d *db) error {
	for i := range m.b.NumRows() {
		if p := m.before(i); p.batch >= 0 && !m.set.gathered[m.batch].skip[i] {
			m.list[m.of(p)].wanted++
		}
	}
	x := m.set
	if len(m.list) == 0 {
		return nil
	}
	if x.hidesIDs() {
		return configError(fmt.Errorf("dataset %s has no key, and its column rowid hides the ids of the rows", x.dataset),
			"name the key with --key, or rename the column with a transform")
	}
	at := make([]pick, len(m.list))
	wanted := array.NewInt64Builder(memory.DefaultAllocator)
	for n, im := range m.list {
		at[n] = im.at
		wanted.Append(im.wanted)
	}
	rb, err := m.f.record(x.all(), at, func(i, _ int) pick { return at[i] })
	if err != nil {
		return err
	}
	if rb, err = numbered(rb, map[string]arrow.Array{"w": wanted.NewArray()}); err != nil {
		return err
	}
	list := []string{"v.n", "v.w"}
	for c := range x.columns {
		list = append(list, fmt.Sprintf("CAST(v.c%d AS %s) AS c%d", c, x.columns[c].native, c))
	}
	if err := d.stage(ctx, imageTable, []arrow.RecordBatch{rb}, strings.Join(list, ", ")); err != nil {
		return wrap(err, "staging rows", x.dataset, "")
	}
	list = []string{"i.n", "i.w", "t.rowid AS id", "row_number() OVER (PARTITION BY i.n ORDER BY t.rowid) AS k"}
	for e, name := range x.extras {
		list = append(list, fmt.Sprintf("t.%s AS e%d", sqlgen.Ident(name), e))
	}
	err = d.exec(ctx, "CREATE OR REPLACE TEMP TABLE "+foundTable+" AS SELECT * FROM (SELECT "+strings.Join(list, ", ")+" FROM "+
		x.into.sql()+" t JOIN "+imageTable+" i ON "+x.sameImage()+") WHERE k <= w")
	if err != nil {
		return wrap(err, "looking for rows", x.dataset, "")
	}
	counts, err := d.rows(ctx, "SELECT n::VARCHAR, count(*)::VARCHAR FROM "+foundTable+" GROUP BY n")
	for _, r := range counts {
		n, errN := strconv.Atoi(r[0])
		has, errHas := strconv.ParseInt(r[1], 10, 64)
		if errN != nil || errHas != nil {
			return errors.Join(errN, errHas)
		}
		m.list[n].has = has
	}
	return wrap(err, "looking for rows", x.dataset, "")
}

// sameImage is the condition that a row equals an image exactly: nulls equal nulls, zeros have signs, and a month is not thirty days.
func (x *set) sameImage() string {
	var conds []string
	for c, col := range x.columns {
		t, i := "t."+x.ident(c), fmt.Sprintf("i.c%d", c)
		same := func(form string) {
			conds = append(conds, fmt.Sprintf(form, t)+" IS NOT DISTINCT FROM "+fmt.Sprintf(form, i))
		}
		same("%s")
		d, err := parseDuck(col.native)
		switch {
		case err != nil:
		case d.base == "FLOAT" || d.base == "DOUBLE":
			same("signbit(%s)")
		case d.base == "LIST" || d.base == "STRUCT" || d.base == "MAP" || d.base == "INTERVAL":
			same("CAST(%s AS VARCHAR)")
		}
	}
	return strings.Join(conds, " AND ")
}

// take applies change i to what is known.
func (m *images) take(i int) {
	p := pick{batch: m.batch, row: int32(i)}
	before := m.before(i)
	if m.b.Op(i) == record.Update && before.batch < 0 {
		m.refuse = append(m.refuse, refusal{pick: p, err: errNoImage})
		return
	}
	row := imageRow{row: i, was: -1}
	if before.batch >= 0 {
		n := m.of(before)
		im := &m.list[n]
		switch {
		case len(im.fresh) > 0:
			last := len(im.fresh) - 1
			old := &m.rows[im.fresh[last]]
			row.was, row.nth, old.gone = old.was, old.nth, true
			im.fresh = im.fresh[:last]
		case im.taken < im.has:
			im.taken++
			row.was, row.nth = n, im.taken
		default:
			doc := (&record.Batch{Schema: m.b.Schema, Rows: m.image(before)}).RowJSON(i)
			m.refuse = append(m.refuse, refusal{pick: p, err: fmt.Errorf("the table has no row %.200s", doc)})
			return
		}
	}
	if m.b.Op(i) == record.Delete {
		return
	}
	m.rows = append(m.rows, row)
	n := m.note(m.text(func(c int) arrow.Array { return m.image(m.cell(i, c)).Column(c) }, i), p)
	m.list[n].fresh = append(m.list[n].fresh, len(m.rows)-1)
}

func (m *images) image(p pick) arrow.RecordBatch {
	if p.old {
		return m.b.Old
	}
	return m.b.Rows
}

// cell is where the value of a column of row i is.
func (m *images) cell(i, c int) pick {
	return pick{batch: m.batch, row: int32(i), old: m.b.Op(i) == record.Update && m.b.IsUnchanged(c, i)}
}

// remove deletes the rows that changes took from the table.
func (m *images) remove(ctx context.Context, d *db) error {
	x := m.set
	n, taken := array.NewInt64Builder(memory.DefaultAllocator), array.NewInt64Builder(memory.DefaultAllocator)
	count := int64(0)
	for i, im := range m.list {
		if im.taken > 0 {
			n.Append(int64(i))
			taken.Append(im.taken)
			count++
		}
	}
	if count == 0 {
		return nil
	}
	integer := arrow.PrimitiveTypes.Int64
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: integer}, {Name: "taken", Type: integer}}, nil)
	rb := array.NewRecordBatch(schema, []arrow.Array{n.NewArray(), taken.NewArray()}, count)
	if err := d.stage(ctx, goneTable, []arrow.RecordBatch{rb}, "v.n, v.taken"); err != nil {
		return wrap(err, "staging rows", x.dataset, "")
	}
	gone, err := d.affected(ctx, "DELETE FROM "+x.into.sql()+" WHERE rowid IN (SELECT f.id FROM "+foundTable+" f JOIN "+goneTable+
		" g ON f.n = g.n AND f.k <= g.taken)")
	x.dirty = x.dirty || gone > 0 && !x.made
	return wrap(err, "deleting rows", x.dataset, "")
}

// insert writes the rows that are left. Columns that the batch does not have stay as they were in the row that was updated.
func (m *images) insert(ctx context.Context, d *db) error {
	x := m.set
	var fresh, updated []imageRow
	for _, r := range m.rows {
		switch {
		case r.gone:
		case r.was < 0 || len(x.extras) == 0:
			fresh = append(fresh, r)
		default:
			updated = append(updated, r)
		}
	}
	into := "INSERT INTO " + x.into.sql() + " (" + x.names(x.all())
	if len(fresh) > 0 {
		rb, err := m.record(fresh)
		if err != nil {
			return err
		}
		sql := into + ") SELECT " + x.casts(x.all()) + " FROM " + viewName + " v"
		if err := d.withView(ctx, []arrow.RecordBatch{rb}, sql); err != nil {
			return wrap(err, "inserting rows", x.dataset, "")
		}
	}
	if len(updated) == 0 {
		return nil
	}
	rb, err := m.record(updated)
	if err != nil {
		return err
	}
	was, nth := array.NewInt64Builder(memory.DefaultAllocator), array.NewInt64Builder(memory.DefaultAllocator)
	for _, r := range updated {
		was.Append(int64(r.was))
		nth.Append(r.nth)
	}
	if rb, err = extended(rb, map[string]arrow.Array{"was": was.NewArray(), "nth": nth.NewArray()}); err != nil {
		return err
	}
	extras := make([]string, len(x.extras))
	for e := range extras {
		extras[e] = fmt.Sprintf("f.e%d", e)
	}
	sql := into + ", " + sqlgen.Idents(x.extras) + ") SELECT " + x.casts(x.all()) + ", " + strings.Join(extras, ", ") + " FROM " +
		viewName + " v JOIN " + foundTable + " f ON f.n = v.was AND f.k = v.nth"
	return wrap(d.withView(ctx, []arrow.RecordBatch{rb}, sql), "inserting rows", x.dataset, "")
}

func (m *images) record(rows []imageRow) (arrow.RecordBatch, error) {
	return m.f.record(m.set.all(), make([]pick, len(rows)), func(i, c int) pick { return m.cell(rows[i].row, c) })
}

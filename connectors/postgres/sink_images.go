package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// imaged is a row of a dataset without a key: what it was at the target, and what becomes of it. Both are encoded rows. Equal rows
// can't be told apart, so it does not matter which of them is meant.
type imaged struct {
	was  []byte // nil: it is new
	is   []byte // nil: it is gone
	last int    // the row of the batch that decided it
}

// imageFold folds the rows of a batch to what becomes of rows of the target.
type imageFold struct {
	p      *plan
	b      *record.Batch
	rows   *pgcopy.Rows
	before *pgcopy.Rows // nil: no images before
	all    []*imaged
	live   map[string][]*imaged // those that are there now, by their image
}

var errNoImages = errors.New("updates and deletes of a dataset without a key need the full image before them")

// newImages refuses batches that do not say enough.
func newImages(l load) (*imageFold, error) {
	m := &imageFold{p: l.d.plan, b: l.b}
	for i := range l.b.NumRows() {
		if op := l.b.Op(i); op == record.Upsert || op == record.Update && l.b.Old == nil {
			return nil, &connector.Error{
				Class: connector.ClassConfig, Code: "postgres.key", Doing: "writing to " + l.d.target.String(), Dataset: l.d.name,
				Err:  errNoImages,
				Hint: "give the table a primary key, or name its key with --key, or, at the source: ALTER TABLE … REPLICA IDENTITY FULL",
			}
		}
	}
	var err error
	if m.rows, err = m.p.enc.Bind(m.p.pick(l.b.Rows)); err != nil {
		return nil, fmt.Errorf("reading the rows: %w", err)
	}
	if l.b.Old != nil {
		if m.before, err = m.p.enc.Bind(m.p.pick(l.b.Old)); err != nil {
			return nil, fmt.Errorf("reading the images before: %w", err)
		}
	}
	return m, nil
}

// fold takes rows from to to in their order. Rows that can't be encoded are added to skip.
func (m *imageFold) fold(from, to int, skip rejects) {
	m.all, m.live = nil, map[string][]*imaged{}
	for i := from; i < to; i++ {
		if skip.has(i) {
			continue
		}
		if err := m.apply(i); err != nil {
			skip.add(m.b, i, err)
		}
	}
}

func (m *imageFold) apply(i int) error {
	is, err := m.rows.AppendRow(nil, i)
	if err != nil {
		return err //nolint:wrapcheck // a *pgcopy.ValueError names row and column
	}
	op, was := m.b.Op(i), is
	if op == record.Update {
		if was, err = m.before.AppendRow(nil, i); err != nil {
			return err //nolint:wrapcheck // a *pgcopy.ValueError names row and column
		}
		is = m.complete(i, is, was)
	}
	row := &imaged{}
	if op == record.Insert {
		m.all = append(m.all, row)
	} else {
		row = m.find(was)
	}
	row.last = i
	if op == record.Delete {
		row.is = nil
		return nil
	}
	row.is = is
	m.live[string(is)] = append(m.live[string(is)], row)
	return nil
}

// complete fills in what was not sent, from the image before.
func (m *imageFold) complete(i int, is, was []byte) []byte {
	if m.b.Unchanged == nil {
		return is
	}
	cols, old := fields(is), fields(was)
	for n, col := range m.p.send {
		if m.b.IsUnchanged(col, i) {
			cols[n] = old[n]
		}
	}
	return append(slices.Clone(is[:2]), bytes.Join(cols, nil)...)
}

// find takes a row that is equal to the image out of those that are there: one of the batch, or else the target's.
func (m *imageFold) find(was []byte) *imaged {
	if live := m.live[string(was)]; len(live) > 0 {
		m.live[string(was)] = live[1:]
		return live[0]
	}
	row := &imaged{was: was}
	m.all = append(m.all, row)
	return row
}

// imageStage is what the stage is filled with.
type imageStage struct {
	buf     []byte
	nulls   [][]bool       // which columns of an image are null: patterns, from 1
	pattern map[string]int // their numbers
	image   map[string]int // numbers of images, from 1
	deletes []int          // rows of each pattern, by its number - 1
	updates []int
	inserts int
}

// add encodes a row for the stage: -pattern as operation deletes it, pattern changes it.
func (e *imageStage) add(p *plan, row *imaged) {
	if row.was == nil && row.is == nil {
		return // it came and went
	}
	null := bytes.Repeat(nullField(), len(p.send))
	is, was, op, image := null, null, stageUpsert, 0
	if row.is != nil {
		is = row.is[2:]
	}
	if row.was != nil {
		was = row.was[2:]
		op, image = e.number(row.was)
	}
	switch {
	case row.was == nil:
		e.inserts++
	case row.is == nil:
		e.deletes[op-1]++
		op = -op
	default:
		e.updates[op-1]++
	}
	e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(2*len(p.send)+stageExtra))
	e.buf = append(e.buf, is...)
	e.buf = appendInt4(appendInt4(appendInt4(e.buf, op), image), row.last)
	e.buf = append(e.buf, was...)
}

// number returns the numbers of an image's pattern of nulls, and of the image.
func (e *imageStage) number(was []byte) (pattern, image int) {
	cols := fields(was)
	null, name := make([]bool, len(cols)), make([]byte, len(cols))
	for n, f := range cols {
		if null[n] = binary.BigEndian.Uint32(f) == 1<<32-1; null[n] {
			name[n] = 1
		}
	}
	pattern, ok := e.pattern[string(name)]
	if !ok {
		e.nulls = append(e.nulls, null)
		e.deletes, e.updates = append(e.deletes, 0), append(e.updates, 0)
		pattern = len(e.nulls)
		e.pattern[string(name)] = pattern
	}
	image, ok = e.image[string(was)]
	if !ok {
		image = len(e.image) + 1
		e.image[string(was)] = image
	}
	return pattern, image
}

// writeImages writes rows of a dataset without a key: what updates and deletes mean is found by the whole row.
func (s *Sink) writeImages(ctx context.Context, l load) error {
	return s.isolate(ctx, l, span{to: l.b.NumRows(), try: func(ctx context.Context, l load, from, to int) error {
		m, err := newImages(l)
		if err != nil {
			return err
		}
		m.fold(from, to, l.bad)
		return s.applyImages(ctx, l, m)
	}})
}

// noImageError is an attempt that did not find a row for each of its images.
type noImageError struct{ rows int64 }

func (noImageError) Error() string {
	return "the target has no row that is equal to the image before"
}

// applyImages brings the rows to the target, or fails as a whole.
func (s *Sink) applyImages(ctx context.Context, l load, m *imageFold) error {
	e := &imageStage{buf: pgcopy.AppendHeader(s.buf[:0]), pattern: map[string]int{}, image: map[string]int{}}
	for _, row := range m.all {
		e.add(m.p, row)
	}
	e.buf = pgcopy.AppendTrailer(e.buf)
	s.buf = e.buf
	if e.inserts == 0 && len(e.nulls) == 0 {
		return nil
	}
	st := l.d.stage
	copying := append(s.lead(l.d), s.stageReady(l.d)...)
	if err := s.db.copyFrom(ctx, strings.Join(append(copying, st.copySQL()), ";\n"), bytes.NewReader(e.buf)); err != nil {
		return err
	}
	l.d.stageFilled = true
	x := new(script)
	var want []int
	for n, null := range e.nulls {
		if e.deletes[n] > 0 {
			x.add(st.deleteImagesSQL(st.staged(-n-1), null))
			want = append(want, e.deletes[n])
		}
		if e.updates[n] > 0 {
			x.add(st.updateImagesSQL(st.staged(n+1), null))
			want = append(want, e.updates[n])
		}
	}
	if e.inserts > 0 {
		x.add(st.appendSQL(st.staged(stageUpsert)))
	}
	results, err := s.db.run(ctx, "merge", x)
	if err != nil {
		return err
	}
	for i, n := range want {
		if done := results[i].CommandTag.RowsAffected(); done != int64(n) {
			return noImageError{rows: int64(n) - done}
		}
	}
	return nil
}

// deleteImagesSQL deletes as many rows of the target that are equal to an image as there are rows with that image.
func (s *stage) deleteImagesSQL(r rowSet, null []bool) string {
	return fmt.Sprintf(`WITH i AS (SELECT DISTINCT ON (s._fill) s.* FROM %[1]s WHERE %[2]s ORDER BY s._fill),
n AS (SELECT s._fill, count(*) AS n FROM %[1]s WHERE %[2]s GROUP BY s._fill),
m AS (SELECT s._fill, t.tableoid AS rel, t.ctid AS at, row_number() OVER (PARTITION BY s._fill) AS k
	FROM i s JOIN %[3]s t ON %[4]s)
DELETE FROM %[3]s t USING m JOIN n ON n._fill = m._fill WHERE t.ctid = m.at AND t.tableoid = m.rel AND m.k <= n.n`,
		r.from, r.where, s.into, s.matchImage(null))
}

// updateImagesSQL changes as many rows of the target that are equal to an image.
func (s *stage) updateImagesSQL(r rowSet, null []bool) string {
	var sets []string
	for col := range s.p.send {
		if s.settable(col) {
			sets = append(sets, ident(s.column(col))+" = "+s.value("c", col, col))
		}
	}
	change := fmt.Sprintf("UPDATE %s t SET %s FROM m", s.into, strings.Join(sets, ", "))
	if len(sets) == 0 {
		change = fmt.Sprintf("SELECT FROM %s t, m", s.into) // the server alone sets every column
	}
	return fmt.Sprintf(`WITH u AS (SELECT s.*, row_number() OVER (PARTITION BY s._fill ORDER BY s._row) AS k FROM %[1]s WHERE %[2]s),
m AS (SELECT s._fill, t.tableoid AS rel, t.ctid AS at, row_number() OVER (PARTITION BY s._fill) AS k
	FROM u s JOIN %[3]s t ON %[4]s WHERE s.k = 1)
%[5]s JOIN u s ON s._fill = m._fill AND s.k = m.k WHERE t.ctid = m.at AND t.tableoid = m.rel`,
		r.from, r.where, s.into, s.matchImage(null), change)
}

// matchImage joins the target t and images s whose null columns are known, by all columns. The conditions are such that the server can
// use an index or a hash.
func (s *stage) matchImage(null []bool) string {
	parts := make([]string, len(null))
	for col, isNull := range null {
		c := s.target(col)
		name, value := "t."+ident(c.Name), s.value("b", col, col)
		exact := exactlyEqual(c)
		if c.Base.Mod >= 0 && c.Base.Name != "varchar" {
			value = fmt.Sprintf("(%s)::%s", value, c.Base.Native) // rounded as an assignment does
		}
		switch {
		case isNull:
			parts[col] = name + " IS NULL"
		case exact:
			parts[col] = fmt.Sprintf("%s = %s", name, value)
		default:
			parts[col] = fmt.Sprintf(`%s::text COLLATE "C" = (%s)::text COLLATE "C"`, name, value)
		}
	}
	return strings.Join(parts, " AND ")
}

// exactlyEqual reports whether values of the column that are equal to the server are the same: 1.0 and 1.00 are not, nor 0 and -0, and
// some types have no equality at all. Those are compared by their text.
func exactlyEqual(c tableColumn) bool {
	if c.Base.Kind == "e" {
		return true
	}
	switch c.Base.Name {
	case "bool", "int2", "int4", "int8", "bytea", "uuid", "date", "time", "timestamp", "timestamptz", "bit", "varbit",
		"macaddr", "macaddr8":
		return c.Base.Schema == "pg_catalog"
	case "text", "varchar":
		return c.Base.Schema == "pg_catalog" && c.Bytewise
	}
	return false
}

package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// imaged is a row of a dataset without a key: what it was at the target, and what becomes of it, as literals. Equal rows can't be told
// apart, so it does not matter which of them is meant.
type imaged struct {
	was  []string // nil: it is new
	is   []string // nil: it is gone
	last int      // the row of the batch that decided it
}

// imageFold folds the rows of a batch to what becomes of rows of the target.
type imageFold struct {
	p      *plan
	b      *record.Batch
	rows   rowCells
	before rowCells // nil: no images before
	all    []*imaged
	live   map[string][]*imaged // those that are there now, by their image
}

var errNoImages = errors.New("updates and deletes of a dataset without a key need the full image before them")

// newImages refuses batches that do not say enough.
func newImages(l load) (*imageFold, error) {
	m := &imageFold{p: l.d.plan, b: l.b}
	for i := range l.b.NumRows() {
		if op := l.b.Op(i); op == record.Upsert || (op == record.Update && l.b.Old == nil) {
			return nil, &connector.Error{
				Class: connector.ClassConfig, Code: "mysql.key", Doing: "writing to " + l.d.target.String(), Dataset: l.d.name,
				Err: errNoImages, Hint: "give the table a primary key, or name its key with --key",
			}
		}
	}
	var err error
	if m.rows, err = m.p.bind(l.b.Rows, false); err != nil {
		return nil, err
	}
	if l.b.Old != nil {
		m.before, err = m.p.bind(l.b.Old, true)
	}
	return m, err
}

// fold takes rows from to to in their order. Rows that can't be written are added to skip.
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

// literals are the values of a row.
func (r rowCells) literals(i int) ([]string, error) {
	out := make([]string, len(r))
	for n, c := range r {
		v, err := c.loose(nil, i)
		if err != nil {
			return nil, err
		}
		out[n] = string(v)
	}
	return out, nil
}

func (m *imageFold) apply(i int) error {
	is, err := m.rows.literals(i)
	if err != nil {
		return err
	}
	op, was := m.b.Op(i), is
	if op == record.Update {
		if was, err = m.before.literals(i); err != nil {
			return err
		}
		for n, col := range m.p.send {
			if m.b.IsUnchanged(col, i) {
				is[n] = was[n]
			}
		}
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
	id := strings.Join(is, ",")
	m.live[id] = append(m.live[id], row)
	return nil
}

// find takes a row that is equal to the image out of those that are there: one of the batch, or else the target's.
func (m *imageFold) find(was []string) *imaged {
	id := strings.Join(was, ",")
	if live := m.live[id]; len(live) > 0 {
		m.live[id] = live[1:]
		return live[0]
	}
	row := &imaged{was: was}
	m.all = append(m.all, row)
	return row
}

// errNoImage is an attempt that did not find a row for each of its images.
var errNoImage = errors.New("the target has no row that is equal to the image before")

// writeImages writes rows of a dataset without a key: what updates and deletes mean is found by the whole row.
func (s *Sink) writeImages(ctx context.Context, l load) error {
	return s.isolate(ctx, l, rowSpan{to: l.b.NumRows(), try: func(ctx context.Context, l load, lead []string, from, to int) error {
		m, err := newImages(l)
		if err != nil {
			return err
		}
		m.fold(from, to, l.bad)
		return s.applyImages(ctx, l, lead, m)
	}})
}

// imageChange is what is done to as many rows that are equal to an image.
type imageChange struct {
	sql  string
	rows int64
}

// applyImages brings the rows to the target, or fails as a whole. What goes away goes first, what is new comes last.
func (s *Sink) applyImages(ctx context.Context, l load, lead []string, m *imageFold) error {
	if err := s.only(ctx, lead); err != nil {
		return err
	}
	changes := append(m.changes(l.d.stage, true), m.changes(l.d.stage, false)...)
	const together = 100 // in one message
	for part := range slices.Chunk(changes, together) {
		if err := s.changeImages(ctx, part); err != nil {
			return err
		}
	}
	x := s.inserting("insert", nil, l.d.plan.insertSQL(l.d.target)+" VALUES ", "")
	defer func() { s.buf = x.buf }()
	for _, row := range m.all {
		if row.was != nil || row.is == nil {
			continue
		}
		x.row = append(append(append(x.row[:0], '('), strings.Join(row.is, ",")...), ')')
		if err := s.send(ctx, x, row.last); err != nil {
			return err
		}
	}
	return s.flush(ctx, x)
}

// changeImages changes rows, and makes sure that each was there.
func (s *Sink) changeImages(ctx context.Context, part []imageChange) error {
	var statements []string
	for _, c := range part {
		statements = append(statements, c.sql, countedSQL)
	}
	results, err := s.db.run(ctx, "images", statements...)
	if err != nil {
		return err
	}
	for i, c := range part {
		if results[i].number() != c.rows {
			return errNoImage
		}
		if string(results[i][0][1]) != "0" {
			return &alteredError{message: "the server gave a warning for a row without a key"}
		}
	}
	return nil
}

// changes are the statements that delete, or update, rows of the target; equal ones are one.
func (m *imageFold) changes(st *stage, gone bool) []imageChange {
	var out []imageChange
	at := map[string]int{}
	for _, row := range m.all {
		if row.was == nil || (row.is == nil) != gone {
			continue
		}
		id := strings.Join(row.was, ",") + ";" + strings.Join(row.is, ",")
		n, ok := at[id]
		if !ok {
			n = len(out)
			at[id] = n
			out = append(out, imageChange{sql: st.imageSQL(row.was, row.is)})
		}
		out[n].rows++
	}
	for i := range out {
		out[i].sql += fmt.Sprintf(" LIMIT %d", out[i].rows)
	}
	return out
}

// imageSQL deletes or changes rows that are equal to an image in every column.
func (s *stage) imageSQL(was, is []string) string {
	where := make([]string, len(was))
	for col, v := range was {
		where[col] = s.sameSQL(col, v)
	}
	if is == nil {
		return fmt.Sprintf("DELETE FROM %s WHERE %s", s.into, strings.Join(where, " AND "))
	}
	sets := make([]string, len(is))
	for col, v := range is {
		sets[col] = ident(s.target(col).name) + " = " + v
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE %s", s.into, strings.Join(sets, ", "), strings.Join(where, " AND "))
}

// sameSQL is the condition that a column has exactly this value.
func (s *stage) sameSQL(col int, v string) string {
	c := s.target(col)
	name := ident(c.name)
	switch {
	case v == "NULL":
		return name + " IS NULL"
	case c.form == formJSON && !c.checked:
		return fmt.Sprintf("%s = CAST(%s AS JSON)", name, v)
	case c.charset == "":
		return fmt.Sprintf("%s = %s", name, v)
	case c.charset == "utf8mb4":
		return fmt.Sprintf("%s = %s AND CAST(%[1]s AS BINARY) = CAST(%[2]s AS BINARY)", name, v)
	}
	return fmt.Sprintf("CAST(CONVERT(%s USING utf8mb4) AS BINARY) = CAST(%s AS BINARY)", name, v)
}

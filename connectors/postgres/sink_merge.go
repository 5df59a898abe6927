package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// patterns numbers the sets of columns that rows have values of their own for.
type patterns struct {
	number map[string]int
	own    [][]bool // by number - 1
}

func (p *patterns) of(ch *change) int {
	key := make([]byte, len(ch.values))
	own := make([]bool, len(ch.values))
	for i, v := range ch.values {
		own[i] = v != ownValue
		if own[i] {
			key[i] = 1
		}
	}
	n, ok := p.number[string(key)]
	if !ok {
		p.own = append(p.own, own)
		n = len(p.own)
		p.number[string(key)] = n
	}
	return n
}

// merge is one attempt to apply a run of rows by key.
type merge struct {
	st      *stage
	c       *compactor
	from    int
	buf     []byte
	updates patterns // of rows that stay under their key
	fills   patterns // of rows that moved
	deletes int
	upserts int
	partial int // rows that the target holds a part of
}

// encodeMerge folds rows from to to and encodes the changes for the stage. Rows that can't be encoded are added to bad and the rest
// is folded again without them, so that an earlier row of the same key still counts.
func encodeMerge(l load, from, to int, buf []byte) (*merge, error) {
	d, b, bad := l.d, l.b, l.bad
	c, err := newCompactor(d.plan, b)
	if err != nil {
		return nil, err
	}
	rows, err := d.plan.enc.Bind(d.plan.pick(b.Rows))
	if err != nil {
		return nil, fmt.Errorf("reading the rows: %w", err)
	}
	for {
		changes := c.fold(from, to, bad)
		e := tupleEncoder{c: c, rows: rows, scratch: map[int][][]byte{}}
		m := &merge{
			st: d.stage, c: c, from: from, buf: pgcopy.AppendHeader(buf[:0]),
			updates: patterns{number: map[string]int{}}, fills: patterns{number: map[string]int{}},
		}
		known := len(bad)
		for i := range changes {
			if err := m.add(&e, &changes[i]); err != nil {
				row := changes[i].last
				if value, ok := errors.AsType[*pgcopy.ValueError](err); ok {
					row = value.Row
				}
				bad.add(b, row, err)
			}
		}
		if len(bad) == known {
			m.buf = pgcopy.AppendTrailer(m.buf)
			return m, nil
		}
	}
}

func (m *merge) add(e *tupleEncoder, ch *change) error {
	op, fill := stageUpsert, 0
	switch {
	case ch.gone:
		op = stageDelete
	case ch.values != nil && ch.partial() && ch.base != nil:
		fill = m.fills.of(ch)
	case ch.values != nil && ch.partial():
		op = m.updates.of(ch)
	}
	var err error
	if m.buf, err = e.appendChange(m.buf, ch, op, fill); err != nil {
		return err
	}
	switch {
	case op == stageDelete:
		m.deletes++
	case op > 0 || fill > 0:
		m.partial++
	}
	if op == stageUpsert {
		m.upserts++
	}
	return nil
}

// applyMerge writes rows from to to by key, or fails as a whole.
func (s *Sink) applyMerge(ctx context.Context, l load, from, to int) error {
	m, err := encodeMerge(l, from, to, s.buf)
	if err != nil {
		return err
	}
	s.buf = m.buf
	if m.deletes+m.upserts+m.partial == 0 {
		return nil
	}
	prefix := s.savepoint() + s.stageReady(l.d)
	if err := s.db.copyFrom(ctx, "copy", prefix+m.st.copySQL(), bytes.NewReader(m.buf)); err != nil {
		return err
	}
	l.d.stageFilled = true
	if m.partial > 0 {
		if err := s.applyPartial(ctx, m, l.b, l.bad); err != nil {
			return err
		}
	}
	var script []string
	if m.deletes > 0 {
		script = append(script, m.st.deleteSQL())
	}
	for i, own := range m.updates.own {
		script = append(script, m.st.updateSQL(i+1, own))
	}
	if m.upserts > 0 {
		script = append(script, m.st.upsertSQL())
	}
	err = s.db.exec(ctx, "merge", strings.Join(script, ";\n"))
	return err
}

var errNoRow = errors.New("the source sent only what changed, and the target does not have the row")

// applyPartial refuses rows that the target lacks and fills in those that moved.
func (s *Sink) applyPartial(ctx context.Context, m *merge, b *record.Batch, bad rejects) error {
	var missing []int
	if _, err := s.db.query(ctx, "merge", m.st.missingSQL(), &missing); err != nil {
		return err
	}
	var script []string
	if len(missing) > 0 {
		for _, last := range missing {
			for _, i := range m.c.partsOf(m.from, last) {
				bad.add(b, i, errNoRow)
			}
		}
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(missing), " ", ","), "[]")
		script = append(script, fmt.Sprintf("DELETE FROM %s WHERE _op >= 0 AND _row IN (%s)", m.st.name, list))
	}
	for i, own := range m.fills.own {
		script = append(script, m.st.fillSQL(i+1, own))
	}
	if len(script) == 0 {
		return nil
	}
	err := s.db.exec(ctx, "merge", strings.Join(script, ";\n"))
	return err
}

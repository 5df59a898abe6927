package mysql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector/fold"
)

// tuple is what is done to one row of the target. Its literals stand in the buffer of the merge.
type tuple struct {
	at, end  int
	op, fill int
	row      int    // of the batch, that decided it
	key      string // literals of its key; of a delete
	base     string // literals of the key under which the target has it; where fill is not 0
}

// merge is one attempt to apply a run of rows by key: what they come to.
type merge struct {
	st      *stage
	p       *plan
	rows    rowCells // of all columns
	fold    *fold.Fold
	buf     []byte
	tuples  []tuple
	updates fold.Patterns // of rows that stay under their key, and of which a part was not sent
	fills   fold.Patterns // of rows that moved
	whole   []int         // those patterns of fills that miss no value of the dataset
	counts  map[int]int
}

// foldRoom is what merges work with; the next one takes it over.
type foldRoom struct {
	fold.Room

	tuples []tuple
}

// encodeMerge folds rows from to to and writes down the changes. Rows that can't be written are added to bad and the rest is folded again
// without them, so that an earlier row of the same key still counts.
func (s *Sink) encodeMerge(l load, from, to int) (*merge, error) {
	p := l.d.plan
	images, err := newKeyedRows(p, l.b)
	if err != nil {
		return nil, err
	}
	f := fold.New(l.b, fold.Columns{Send: p.send, Key: p.key}, images, l.d.displaced, &s.folds.Room)
	for {
		changes := f.Rows(from, to, l, images.prefix())
		m := &merge{
			st: l.d.stage, p: p, rows: images.rows, fold: f, buf: s.values[:0], tuples: s.folds.tuples[:0], counts: map[int]int{},
		}
		known := len(l.bad)
		for _, ch := range changes {
			if err := m.add(ch); err != nil {
				row := ch.Last
				if value, ok := errors.AsType[*valueError](err); ok {
					row = value.row
				}
				l.bad.add(l.b, row, err)
			}
		}
		s.folds.tuples, s.values = m.tuples, m.buf
		if len(l.bad) == known {
			return m, nil
		}
	}
}

func (m *merge) add(ch *fold.Change) error {
	p := m.p
	if ch.Gone {
		m.gone(ch)
		return nil
	}
	if ch.Again && len(p.extras) > 0 { // an update would leave what the old row had in other columns
		m.gone(ch)
	}
	switch {
	case ch.Partial() && ch.Own:
		return m.encode(ch, m.updates.Of(ch, len(p.send)), 0)
	case ch.Origin != nil && !ch.Own && (ch.Partial() || len(p.extras) > 0):
		fill := m.fills.Of(ch, len(p.send))
		if !ch.Partial() && !slices.Contains(m.whole, fill) {
			m.whole = append(m.whole, fill)
		}
		return m.encode(ch, stageUpsert, fill)
	}
	return m.encode(ch, stageUpsert, 0)
}

func (m *merge) gone(ch *fold.Change) {
	m.tuples = append(m.tuples, tuple{op: stageDelete, row: ch.Last, key: ch.ID})
	m.counts[stageDelete]++
}

// encode writes down a change; op and fill are columns of the stage.
func (m *merge) encode(ch *fold.Change, op, fill int) error {
	at := len(m.buf)
	dst, err := m.literals(m.buf, ch)
	if err != nil {
		return err
	}
	t := tuple{at: at, end: len(dst), op: op, fill: fill, row: ch.Last}
	if fill > 0 {
		t.base = ch.From
	}
	m.buf, m.tuples = dst, append(m.tuples, t)
	m.counts[op]++
	return nil
}

// literals appends the values of a row; those that only the target has are null.
func (m *merge) literals(dst []byte, ch *fold.Change) ([]byte, error) {
	at := len(dst)
	if ch.Values == nil {
		dst, err := m.rows.tuple(dst, ch.Last)
		if err != nil {
			return dst, err
		}
		dst = append(dst[:at], dst[at+1:]...) // without parentheses
		return dst[:len(dst)-1], nil
	}
	for i, place := range ch.Values {
		if i > 0 {
			dst = append(dst, ',')
		}
		if place == fold.OwnValue {
			dst = append(dst, "NULL"...)
			continue
		}
		parts, err := m.fold.Fields(place)
		if err != nil {
			return dst[:at], err //nolint:wrapcheck // of keyedRows
		}
		dst = append(dst, parts[i]...)
	}
	return dst, nil
}

// plain reports whether the changes can go without a stage: no row can meet another one's values, and all values are known.
func (m *merge) plain() bool {
	return m.p.sole && len(m.updates.Own) == 0 && len(m.fills.Own) == 0 && len(m.fold.Open()) == 0
}

// applyMerge writes rows from to to by key, or fails as a whole.
func (s *Sink) applyMerge(ctx context.Context, l load, lead []string, from, to int) error {
	m, err := s.encodeMerge(l, from, to)
	if err != nil {
		return err
	}
	if len(m.tuples) == 0 {
		return s.only(ctx, lead)
	}
	if !m.plain() {
		return s.mergeStage(ctx, l, lead, m)
	}
	if lead, err = s.deleteDirect(ctx, lead, m); err != nil {
		return err
	}
	m.fold.Displace(nil)
	if m.counts[stageUpsert] == 0 {
		return s.only(ctx, lead)
	}
	x := s.inserting("upsert", lead, m.p.insertSQL(m.st.into)+" VALUES ", m.st.directTail(s.db.server.mariadb))
	defer func() { s.buf = x.buf }()
	for _, t := range m.tuples {
		if t.op == stageDelete {
			continue
		}
		x.row = append(append(append(x.row[:0], '('), m.buf[t.at:t.end]...), ')')
		if err = s.send(ctx, x, t.row); err != nil {
			return err
		}
	}
	return s.flush(ctx, x)
}

// send adds x.row to the statement, and sends what it had before where it is full.
func (s *Sink) send(ctx context.Context, x *inserting, row int) error {
	if err := x.tooLarge(len(x.row)); err != nil {
		return &valueError{row: row, err: err}
	}
	if x.add(x.row, row) {
		return nil
	}
	if err := s.flush(ctx, x); err != nil {
		return err
	}
	x.add(x.row, row)
	return nil
}

// only sends statements that stand in front of others, if there are none of those.
func (s *Sink) only(ctx context.Context, lead []string) error {
	if len(lead) == 0 {
		return nil
	}
	_, err := s.db.run(ctx, "begin", lead...)
	return err
}

// deletesTogether is how many keys one statement deletes: the server plans each of them.
const deletesTogether = 500

// deleteDirect deletes rows by the literals of their keys. The first statements, lead included, are returned if there is room for
// others behind them in the same message.
func (s *Sink) deleteDirect(ctx context.Context, lead []string, m *merge) ([]string, error) {
	if m.counts[stageDelete] == 0 {
		return lead, nil
	}
	var keys []string
	out := lead
	size := 0
	for _, t := range m.tuples {
		if t.op != stageDelete {
			continue
		}
		keys, size = append(keys, t.key), size+len(t.key)
		if len(keys) == deletesTogether || size > statementBytes/2 {
			if err := s.only(ctx, append(out, m.st.deleteKeysSQL(keys))); err != nil {
				return nil, err
			}
			out, keys, size = nil, nil, 0
		}
	}
	if len(keys) > 0 {
		out = append(out, m.st.deleteKeysSQL(keys))
	}
	return out, nil
}

// deleteKeysSQL deletes the rows of keys, each of them the literals of its columns.
func (s *stage) deleteKeysSQL(keys []string) string {
	if len(s.p.key) == 1 {
		return fmt.Sprintf("DELETE FROM %s WHERE %s IN (%s)", s.into, ident(s.target(s.p.key[0]).name), strings.Join(keys, ","))
	}
	names := make([]string, len(s.p.key))
	for n, k := range s.p.key {
		names[n] = ident(s.target(k).name)
	}
	return fmt.Sprintf("DELETE FROM %s WHERE (%s) IN ((%s))", s.into, strings.Join(names, ","), strings.Join(keys, "),("))
}

// stageReady returns the statements that make the stage exist and empty it.
func (l load) stageReady() []string {
	empty := "DELETE FROM " + l.d.stage.name
	if l.d.staged {
		return []string{empty}
	}
	return []string{l.d.stage.createSQL(), empty}
}

// fillStage puts the changes into the stage.
func (s *Sink) fillStage(ctx context.Context, l load, lead []string, m *merge) error {
	if err := s.only(ctx, append(lead, l.stageReady()...)); err != nil {
		return err
	}
	l.d.staged = true
	x := s.inserting("stage", nil, m.st.fillHead(), "")
	defer func() { s.buf = x.buf }()
	nulls := strings.Repeat(",NULL", len(m.st.base))
	for _, t := range m.tuples {
		x.row = append(x.row[:0], '(')
		if t.op == stageDelete {
			x.row = m.keyOnly(x.row, t.key)
		} else {
			x.row = append(x.row, m.buf[t.at:t.end]...)
		}
		for _, n := range []int{t.op, t.fill, t.row} {
			x.row = strconv.AppendInt(append(x.row, ','), int64(n), 10)
		}
		if t.fill > 0 {
			x.row = append(append(x.row, ','), t.base...)
		} else {
			x.row = append(x.row, nulls...)
		}
		x.row = append(x.row, ')')
		if err := s.send(ctx, x, t.row); err != nil {
			return err
		}
	}
	return s.flush(ctx, x)
}

// keyOnly appends the literals of a row of which only the key is known.
func (m *merge) keyOnly(dst []byte, key string) []byte {
	parts := splitLiterals(key)
	for col := range m.p.send {
		if col > 0 {
			dst = append(dst, ',')
		}
		if n := slices.Index(m.p.key, col); n >= 0 {
			dst = append(dst, parts[n]...)
		} else {
			dst = append(dst, "NULL"...)
		}
	}
	return dst
}

// splitLiterals takes a list of literals apart.
func splitLiterals(list string) []string {
	var out []string
	from, inside := 0, false
	for i := 0; i < len(list); i++ {
		switch b := list[i]; {
		case inside && b == '\\':
			i++
		case b == '\'':
			inside = !inside
		case b == ',' && !inside:
			out, from = append(out, list[from:i]), i+1
		}
	}
	return append(out, list[from:])
}

// mergeStage sends changes through the stage.
func (s *Sink) mergeStage(ctx context.Context, l load, lead []string, m *merge) error {
	if err := s.fillStage(ctx, l, lead, m); err != nil {
		return err
	}
	var asks []string
	partial := len(m.updates.Own) > 0 || len(m.fills.Own) > 0
	if partial {
		asks = append(asks, m.st.missingSQL(m.whole)...)
	}
	open := m.fold.Open()
	if len(open) > 0 {
		asks = append(asks, m.st.arrivedSQL(slices.Sorted(maps.Keys(open))))
	}
	var missing, arrived []int
	if len(asks) > 0 {
		results, err := s.db.run(ctx, "missing", asks...)
		if err != nil {
			return err
		}
		if len(open) > 0 {
			arrived = rowNumbers(results[len(results)-1])
		}
		if partial {
			missing = append(rowNumbers(results[0]), rowNumbers(results[1])...)
		}
	}
	for _, sql := range append(m.preparations(missing), m.statements()...) {
		if err := s.db.write(ctx, "merge", sql); err != nil {
			return err
		}
	}
	m.fold.RefuseMissing(missing, l)
	m.fold.Displace(arrived)
	return nil
}

// rowNumbers reads a result of one column of rows of the batch.
func rowNumbers(r result) []int {
	out := make([]int, len(r))
	for i, row := range r {
		out[i] = int(toInt(row[0]))
	}
	return out
}

// preparations complete what the stage has.
func (m *merge) preparations(missing []int) []string {
	var out []string
	if len(missing) > 0 {
		out = append(out, fmt.Sprintf("DELETE FROM %s WHERE _op >= 0 AND %s", m.st.name, inList("_row", missing)))
	}
	for i, own := range m.fills.Own {
		if len(m.p.extras) > 0 || slices.Contains(own, false) {
			out = append(out, m.st.fillSQL(i+1, own))
		}
	}
	if len(m.whole) > 0 {
		out = append(out, m.st.orphanedSQL())
	}
	return out
}

// statements bring what the stage has into the target.
func (m *merge) statements() []string {
	var out []string
	if m.counts[stageDelete] > 0 {
		out = append(out, m.st.deleteSQL())
	}
	for n, own := range m.updates.Own {
		out = append(out, m.st.updateSQL(fmt.Sprintf("s._op = %d", n+1), own))
	}
	if m.counts[stageUpsert] == 0 {
		return out
	}
	plain := fmt.Sprintf("s._op = %d", stageUpsert)
	if len(m.fills.Own) > 0 && len(m.p.extras) > 0 {
		out = append(out, m.st.upsertSQL(plain+" AND s._fill > 0", true)...)
		plain += " AND s._fill = 0"
	}
	return append(out, m.st.upsertSQL(plain, false)...)
}

package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector/fold"
	"github.com/leatdata/leat/format/pgcopy"
)

// Up to these sizes changes go to the target in arrays, in the same message as all else; larger ones go through a stage.
const (
	maxArrayRows  = 1000
	maxArrayBytes = 1 << 20
)

// tuple is a row of the stage.
type tuple struct {
	at  int // where it begins in the buffer
	op  int
	row int // of the batch, that decided it
}

// merge is one attempt to apply a run of rows by key: what they come to, encoded as rows of the stage.
type merge struct {
	st      *stage
	p       *plan
	images  *keyedRows
	fold    *fold.Fold
	buf     []byte
	tuples  []tuple
	known   bool          // rows that the target should have are updated, not inserted or else updated
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

// encodeMerge folds rows from to to and encodes the changes for the stage. Rows that can't be encoded are added to bad and the rest
// is folded again without them, so that an earlier row of the same key still counts.
func encodeMerge(l load, from, to int, buf []byte, room *foldRoom) (*merge, error) {
	p := l.d.plan
	images, err := newKeyedRows(p, l.b)
	if err != nil {
		return nil, err
	}
	var order func(*fold.Change) uint64
	if p.ordered {
		order = prefix
	}
	f := fold.New(l.b, fold.Columns{Send: p.send, Key: p.key}, images, l.d.displaced, &room.Room)
	for {
		changes := f.Rows(from, to, l, order)
		m := &merge{
			st: l.d.stage, p: p, images: images, fold: f, buf: pgcopy.AppendHeader(buf[:0]), tuples: room.tuples[:0], counts: map[int]int{},
			known: p.bytewise && !l.d.lacks && l.d.stage.sets(),
		}
		known := len(l.bad)
		for _, ch := range changes {
			if err := m.add(ch); err != nil {
				row := ch.Last
				if value, ok := errors.AsType[*pgcopy.ValueError](err); ok {
					row = value.Row
				}
				l.bad.add(l.b, row, err)
			}
		}
		room.tuples = m.tuples
		if len(l.bad) == known {
			m.buf = pgcopy.AppendTrailer(m.buf)
			return m, nil
		}
	}
}

func (m *merge) add(ch *fold.Change) error {
	p := m.p
	if ch.Gone {
		return m.encode(ch, stageDelete, 0)
	}
	if ch.Again && m.st.replaces() {
		if err := m.encode(&fold.Change{Key: ch.Key, Last: ch.Last, Gone: true}, stageDelete, 0); err != nil {
			return err
		}
	}
	switch {
	case ch.Partial() && ch.Own:
		return m.encode(ch, m.updates.Of(ch, len(p.send)), 0)
	case m.known && ch.Own && ch.There:
		return m.encode(ch, stageUpdate, 0)
	case ch.Origin != nil && !ch.Own && (ch.Partial() || len(p.extras) > 0):
		fill := m.fills.Of(ch, len(p.send))
		if !ch.Partial() && !slices.Contains(m.whole, fill) {
			m.whole = append(m.whole, fill)
		}
		return m.encode(ch, stageUpsert, fill)
	}
	return m.encode(ch, stageUpsert, 0)
}

// encode appends a change as a row of the stage; op and fill are columns of its own.
func (m *merge) encode(ch *fold.Change, op, fill int) error {
	p := m.p
	at := len(m.buf)
	dst, err := m.columns(m.buf, ch)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint16(dst[at:], uint16(len(p.send)+stageExtra+len(m.st.base)))
	dst = appendInt4(appendInt4(appendInt4(dst, op), fill), ch.Last)
	if fill == 0 {
		for range m.st.base {
			dst = append(dst, nullField()...)
		}
	} else {
		key, err := m.images.appendKey(nil, *ch.Origin)
		if err != nil {
			return err
		}
		dst = append(dst, key[2:]...)
	}
	m.buf, m.tuples = dst, append(m.tuples, tuple{at: at, op: op, row: ch.Last})
	m.counts[op]++
	return nil
}

// columns appends a row's count and its data columns: of a delete only the key.
func (m *merge) columns(dst []byte, ch *fold.Change) ([]byte, error) {
	if !ch.Gone && ch.Values == nil {
		return m.images.rows.AppendRow(dst, ch.Last) //nolint:wrapcheck // a *pgcopy.ValueError names row and column
	}
	cols := make([][]byte, len(m.p.send))
	for i := range cols {
		cols[i] = nullField()
	}
	if ch.Gone {
		key, err := m.images.appendKey(nil, ch.Key)
		if err != nil {
			return nil, err
		}
		for i, f := range fields(key) {
			cols[m.p.key[i]] = f
		}
	}
	for i, at := range ch.Values {
		if at == fold.OwnValue || ch.Gone {
			continue
		}
		parts, err := m.fold.Fields(at)
		if err != nil {
			return nil, err //nolint:wrapcheck // of images
		}
		cols[i] = parts[i]
	}
	dst = append(dst, 0, 0)
	return append(dst, bytes.Join(cols, nil)...), nil
}

// nullField is a null on the wire.
func nullField() []byte { return []byte{0xff, 0xff, 0xff, 0xff} }

func appendInt4(dst []byte, v int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, 4), uint32(int32(v)))
}

// fields takes an encoded row apart; each field keeps its length in front.
func fields(row []byte) [][]byte {
	return appendFields(make([][]byte, 0, binary.BigEndian.Uint16(row)), row)
}

func appendFields(dst [][]byte, row []byte) [][]byte {
	n := int(binary.BigEndian.Uint16(row))
	row = row[2:]
	for range n {
		size := 4
		if l := int32(binary.BigEndian.Uint32(row)); l > 0 {
			size += int(l)
		}
		dst, row = append(dst, row[:size]), row[size:]
	}
	return dst
}

// small reports whether the changes can go in arrays.
func (m *merge) small() bool {
	return m.p.arrays && len(m.fills.Own) == 0 && len(m.tuples) <= maxArrayRows && len(m.buf) <= maxArrayBytes
}

// applyMerge writes rows from to to by key, or fails as a whole.
func (s *Sink) applyMerge(ctx context.Context, l load, from, to int) error {
	m, err := encodeMerge(l, from, to, s.buf, &s.folds)
	if err != nil {
		return err
	}
	s.buf = m.buf
	if len(m.tuples) == 0 {
		return nil
	}
	if m.small() {
		x := &script{again: true}
		x.add(s.lead(l.d)...)
		return s.mergeArrays(ctx, l, x, m)
	}
	return s.mergeStage(ctx, l, s.lead(l.d), m)
}

// applyEach writes rows from to to by key one by one, where only the server can tell which keys are equal, or fails as a whole.
func (s *Sink) applyEach(ctx context.Context, l load, from, to int) error {
	x, lead := new(script), s.lead(l.d)
	x.add(lead...)
	var waiting []*merge
	send := func() error {
		if len(x.statements) == 0 && len(waiting) == 0 {
			return nil
		}
		err := s.mergeArrays(ctx, l, x, waiting...)
		x, waiting = new(script), nil
		return err
	}
	for i := from; i < to; i++ {
		if l.bad.has(i) {
			continue
		}
		m, err := encodeMerge(l, i, i+1, nil, &foldRoom{})
		switch {
		case err != nil:
			return err
		case m.small():
			waiting = append(waiting, m)
			if len(m.fold.Open()) == 0 {
				continue // the next one need not know what became of it
			}
			err = send()
		default:
			if err = send(); err == nil {
				err = s.mergeStage(ctx, l, nil, m)
			}
		}
		if err != nil {
			return err
		}
	}
	return send()
}

// mergeArrays sends a script with the statements of merges behind what it has already.
func (s *Sink) mergeArrays(ctx context.Context, l load, x *script, ms ...*merge) error {
	answers := make([]mergeAnswer, len(ms))
	for i, m := range ms {
		answers[i] = s.bindMerge(x, m)
	}
	results, err := s.db.run(ctx, "merge", x)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.known >= 0 && results[a.known].CommandTag.RowsAffected() < int64(a.m.counts[stageUpdate]) {
			if err := s.insertLacking(ctx, l, a.m); err != nil {
				return err
			}
		}
		updated := map[int]bool{}
		for _, n := range a.updated {
			for _, row := range rowNumbers(results[n]) {
				updated[row] = true
			}
		}
		var missing []int
		for _, t := range a.m.tuples {
			if t.op > 0 && !updated[t.row] {
				missing = append(missing, t.row)
			}
		}
		a.m.fold.RefuseMissing(missing, l)
		var arrived []int
		if a.arrived >= 0 {
			arrived = rowNumbers(results[a.arrived])
		}
		a.m.fold.Displace(arrived)
	}
	return nil
}

// mergeAnswer says which statements of a script answer for a merge.
type mergeAnswer struct {
	m       *merge
	updated []int // return the rows that they updated
	known   int   // updates rows that the target should have; -1: none
	arrived int   // returns the rows whose key is taken at the target; -1: none
}

// bindMerge adds the statements of a merge, in the order in which they have to be done.
func (s *Sink) bindMerge(x *script, m *merge) mergeAnswer {
	a := mergeAnswer{m: m, arrived: -1, known: -1}
	p := m.p
	if open := m.fold.Open(); len(open) > 0 {
		arrived := func(t tuple) bool { return t.op >= 0 && open[t.row] != "" }
		a.arrived = s.bindRows(x, m, boundRows{"arrived", p.key, arrived, m.st.arrivedSQL})
	}
	if m.counts[stageDelete] > 0 {
		s.bindRows(x, m, boundRows{"delete", p.key, func(t tuple) bool { return t.op == stageDelete }, m.st.deleteSQL})
	}
	for n, own := range m.updates.Own {
		cols := slices.Clone(p.key)
		name := []byte("update ")
		for col, sent := range own {
			if sent && !slices.Contains(p.key, col) {
				cols = append(cols, col)
			}
			name = strconv.AppendBool(name, sent)
		}
		updated := func(t tuple) bool { return t.op == n+1 }
		a.updated = append(a.updated, s.bindRows(x, m, boundRows{string(name), cols, updated, func(r rowSet) string {
			return m.st.updateSQL(r, own) + " RETURNING s._row"
		}}))
	}
	if m.counts[stageUpdate] > 0 {
		a.known = s.bindRows(x, m, boundRows{"known", p.all, func(t tuple) bool { return t.op == stageUpdate }, m.st.knownSQL})
	}
	if m.counts[stageUpsert] > 0 {
		upsert := func(r rowSet) string { return m.st.upsertSQL(r, false) }
		s.bindRows(x, m, boundRows{"upsert", p.all, func(t tuple) bool { return t.op == stageUpsert }, upsert})
	}
	return a
}

// insertLacking inserts the rows that the target should have and does not have. From now on it is taken for one that lacks rows.
func (s *Sink) insertLacking(ctx context.Context, l load, m *merge) error {
	l.d.lacks = true
	x := new(script)
	s.bindRows(x, m, boundRows{"lacking", m.p.all, func(t tuple) bool { return t.op == stageUpdate }, m.st.lackingSQL})
	_, err := s.db.run(ctx, "merge", x)
	return err
}

// boundRows is a statement that works with rows of a merge in arrays.
type boundRows struct {
	name  string // of the statement, in the plan
	cols  []int  // the data columns that it needs; the number of the row comes with them
	keep  func(t tuple) bool
	build func(rowSet) string
}

// bindRows adds a statement to a script, and returns its number.
func (s *Sink) bindRows(x *script, m *merge, of boundRows) int {
	p, a, cols := m.p, &s.arrays, of.cols
	a.reset()
	for _, col := range cols {
		a.column(fmt.Sprintf("c%d", col), p.fits[col].wireType, p.fits[col].wireOID)
	}
	const int4 = 23
	a.column("_row", "int4", int4)
	for _, t := range m.tuples {
		if !of.keep(t) {
			continue
		}
		s.fields = appendFields(s.fields[:0], m.buf[t.at:])
		f := s.fields
		for n, col := range cols {
			a.put(n, f[col])
		}
		a.put(len(cols), f[len(p.send)+stageExtra-1])
		a.rows++
	}
	sql, ok := p.sql[of.name]
	if !ok {
		sql = of.build(rowSet{from: a.from()})
		p.sql[of.name] = sql
	}
	return x.bind(statement{sql: sql, values: a.values()})
}

// rowNumbers reads a result of one column of rows of the batch.
func rowNumbers(r *pgconn.Result) []int {
	out := make([]int, 0, len(r.Rows))
	for _, row := range r.Rows {
		if n, err := strconv.Atoi(string(row[0])); err == nil { // the server answers with what it was given
			out = append(out, n)
		}
	}
	return out
}

// mergeStage sends changes through the stage; lead stands in front of all.
func (s *Sink) mergeStage(ctx context.Context, l load, lead []string, m *merge) error {
	before := append(lead, s.stageReady(l.d)...)
	copying := strings.Join(append(before, m.st.copySQL()), ";\n")
	open := m.fold.Open()
	asks := len(open) > 0 || len(m.updates.Own) > 0 || len(m.fills.Own) > 0
	// The COPY and what is behind it answer with the number of rows of the last statement.
	together := !asks && (m.counts[stageUpdate] == 0 || m.counts[stageUpsert] == 0)
	if together {
		copying += ";\n" + strings.Join(m.statements(), ";\n")
	}
	done, err := s.db.copyInto(ctx, copying, bytes.NewReader(m.buf))
	if err != nil {
		return err
	}
	l.d.stageFilled = true
	switch {
	case together && m.counts[stageUpdate] > 0:
		return s.insertLackingStaged(ctx, l, m, done)
	case together:
		return nil
	case !asks:
		return s.mergeStaged(ctx, l, m, nil)
	}
	return s.mergeAsking(ctx, l, m, open)
}

// mergeStaged merges what the stage has, behind other statements.
func (s *Sink) mergeStaged(ctx context.Context, l load, m *merge, first []string) error {
	x := new(script)
	x.add(first...)
	statements := m.statements()
	x.add(statements...)
	results, err := s.db.run(ctx, "merge", x)
	if err != nil || m.counts[stageUpdate] == 0 {
		return err
	}
	n := len(first) + slices.Index(statements, m.st.knownSQL(m.st.staged(stageUpdate)))
	return s.insertLackingStaged(ctx, l, m, results[n].CommandTag)
}

// insertLackingStaged inserts the rows that the target should have and does not have, where fewer were updated.
func (s *Sink) insertLackingStaged(ctx context.Context, l load, m *merge, updated pgconn.CommandTag) error {
	if updated.RowsAffected() == int64(m.counts[stageUpdate]) {
		return nil
	}
	l.d.lacks = true
	return s.db.exec(ctx, "merge", m.st.lackingSQL(m.st.staged(stageUpdate)))
}

// mergeAsking merges what the stage has, and finds out which rows the target lacks that it should have a part of.
func (s *Sink) mergeAsking(ctx context.Context, l load, m *merge, open map[int]string) error {
	x := new(script)
	x.add(m.st.missingSQL(m.whole))
	if len(open) > 0 {
		x.add(m.st.arrivedSQL(rowSet{from: m.st.name + " s", where: inList("s._row", slices.Sorted(maps.Keys(open))) + " AND s._op >= 0"}))
	}
	results, err := s.db.run(ctx, "missing", x)
	if err != nil {
		return err
	}
	missing := rowNumbers(results[0])
	var first []string
	if len(missing) > 0 {
		first = append(first, fmt.Sprintf("DELETE FROM %s s WHERE s._op >= 0 AND %s", m.st.name, inList("s._row", missing)))
	}
	for i, own := range m.fills.Own {
		first = append(first, m.st.fillSQL(i+1, own))
	}
	if len(m.whole) > 0 {
		first = append(first, m.st.orphanedSQL())
	}
	if err := s.mergeStaged(ctx, l, m, first); err != nil {
		return err
	}
	m.fold.RefuseMissing(missing, l)
	var arrived []int
	if len(open) > 0 {
		arrived = rowNumbers(results[1])
	}
	m.fold.Displace(arrived)
	return nil
}

// statements bring what the stage has into the target.
func (m *merge) statements() []string {
	var out []string
	if m.counts[stageDelete] > 0 {
		out = append(out, m.st.deleteSQL(m.st.staged(stageDelete)))
	}
	for n, own := range m.updates.Own {
		out = append(out, m.st.updateSQL(m.st.staged(n+1), own))
	}
	if m.counts[stageUpdate] > 0 {
		out = append(out, m.st.knownSQL(m.st.staged(stageUpdate)))
	}
	if m.counts[stageUpsert] == 0 {
		return out
	}
	plain := m.st.staged(stageUpsert)
	if len(m.fills.Own) > 0 && len(m.p.extras) > 0 {
		filled := plain
		plain.where, filled.where = plain.and("s._fill = 0"), filled.and("s._fill > 0")
		out = append(out, m.st.upsertSQL(filled, true))
	}
	return append(out, m.st.upsertSQL(plain, false))
}

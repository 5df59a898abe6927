package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// cursor is where the table being read stands.
type cursor struct {
	opened bool
	after  []value      // key of the last row that was delivered
	stmt   *sqlite.Stmt // open statement; nil: none
	cut    *position    // where the open statement ends; nil: at the table's end
	limit  int          // rows that the open statement returns at most; 0: no limit
	ahead  bool         // the statement stands on a row that was not delivered yet

	now       *mark // incremental: the pass's mark so far
	seen      map[string]bool
	seenNulls map[string]bool
}

func (s *source) endStatement() {
	if s.cur.stmt != nil {
		_ = s.cur.stmt.Finalize() // repeats the error of the last step
		s.cur.stmt, s.cur.ahead = nil, false
	}
}

// nextTable begins the next table.
func (s *source) nextTable() {
	s.reading = s.reading[1:]
	s.cur = cursor{}
}

func (s *source) readTable(t *table, want connector.Limit) (*record.Batch, error) {
	if !s.cur.opened {
		if err := s.openTable(t); err != nil {
			return nil, err
		}
		s.cur.opened = true
	}
	if s.cur.stmt == nil {
		if err := s.openStatement(t, want.Rows); err != nil {
			return nil, err
		}
	}
	p := newPage(s, t, want)
	for {
		more, err := s.step()
		if err != nil {
			return nil, err
		}
		if !more {
			return s.endOfStatement(t, p)
		}
		if p.full() && !t.paged {
			s.cur.ahead = true
			return p.batch(s.inside(t, p))
		}
		p.add()
		if p.full() && t.paged {
			if s.cur.limit == p.read && s.cur.limit > 0 {
				continue // the statement ends here by itself: its end says whether a cut was met
			}
			s.endStatement()
			return p.batch(s.at(t))
		}
	}
}

// step moves to the next row, unless the statement stands on one already.
func (s *source) step() (bool, error) {
	if s.cur.ahead {
		s.cur.ahead = false
		return true, nil
	}
	return s.cur.stmt.Step()
}

// inside is the position of a batch that ends before the statement does: none in the middle of rows with the same key.
func (s *source) inside(t *table, p *page) record.Position {
	if len(t.order) == 0 || (!t.unique && p.sameKey()) {
		return record.Position{}
	}
	return s.at(t)
}

// at is the position behind the last row.
func (s *source) at(t *table) record.Position {
	return s.position(position{Table: t.name, After: s.cur.after, Collate: t.collations(), Now: s.cur.now})
}

func (s *source) position(p position) record.Position {
	if s.cfg.Cursor != "" {
		p.Pass, p.Marks = s.pass, s.marks
	}
	return p.encode()
}

// endOfStatement ends the batch where a page, a cut or the table ends.
func (s *source) endOfStatement(t *table, p *page) (*record.Batch, error) {
	cut, limit := s.cur.cut, s.cur.limit
	s.endStatement()
	switch {
	case limit > 0 && p.read == limit:
		return p.batch(s.at(t))
	case cut != nil:
		s.cur.after = slices.Clone(cut.After)
		return p.batch(s.at(t))
	}
	if s.cur.now != nil {
		marks := make(map[string]mark, len(s.marks)+1)
		maps.Copy(marks, s.marks)
		marks[t.name] = *s.cur.now
		s.marks = marks
	}
	b, err := p.batch(s.position(position{Table: t.name, Done: true}))
	s.nextTable()
	return b, err
}

// openStatement selects what follows the last row, up to the next cut.
func (s *source) openStatement(t *table, rows int) error {
	var where []string
	var args []value
	cond := func(sql string, vals []value) {
		where = append(where, sql)
		args = append(args, vals...)
	}
	if s.cfg.Where != "" {
		cond("("+s.cfg.Where+"\n)", nil)
	}
	if s.cfg.Cursor != "" {
		cond(s.window(t))
	}
	if s.cur.after != nil {
		cond(t.beyond(s.cur.after, false))
	}
	s.cur.cut = s.nextCut(t)
	if s.cur.cut != nil {
		cond(t.beyond(s.cur.cut.After, true))
	}
	q := strings.Builder{}
	q.WriteString("SELECT ")
	for _, o := range t.order {
		q.WriteString(o.expr + ", ")
	}
	for i, c := range t.columns {
		if i > 0 {
			q.WriteString(", ")
		}
		q.WriteString(sqlgen.Ident(c.name))
	}
	q.WriteString(" FROM " + t.from)
	if len(where) > 0 {
		q.WriteString(" WHERE " + strings.Join(where, " AND "))
	}
	for i, o := range t.order {
		q.WriteString([]string{", ", " ORDER BY "}[b2i(i == 0)] + o.expr)
	}
	s.cur.limit = 0
	if t.paged && rows > 0 {
		s.cur.limit = rows
		fmt.Fprintf(&q, " LIMIT %d", rows)
	}
	s.db.roundtrip("page")
	st, _, err := s.db.conn.PrepareTransient(q.String())
	if err != nil {
		return err
	}
	for i, a := range args {
		a.bind(st, i+1)
	}
	s.cur.stmt = st
	return nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// beyond is the condition that a row sorts behind the given key; negated: that it does not. NULL sorts first, as SQLite has it.
func (t *table) beyond(key []value, negated bool) (string, []value) {
	var alternatives []string
	var args []value
	for i, v := range key {
		var parts []string
		for j := range i {
			parts = append(parts, t.order[j].expr+" IS ?")
			args = append(args, key[j])
		}
		if v.null() {
			parts = append(parts, t.order[i].expr+" IS NOT NULL")
		} else {
			parts = append(parts, t.order[i].expr+" > ?")
			args = append(args, v)
		}
		alternatives = append(alternatives, strings.Join(parts, " AND "))
	}
	sql := "(" + strings.Join(alternatives, " OR ") + ")"
	if len(key) > 1 && t.paged && !negated { // a key without NULLs: the form that an index serves
		exprs := make([]string, len(t.order))
		for i, o := range t.order {
			exprs[i] = o.expr
		}
		return "(" + strings.Join(exprs, ", ") + ") > (" + sqlgen.Marks(len(key)) + ")", key
	}
	if negated {
		sql = "coalesce(NOT " + sql + ", 1)"
	}
	return sql, args
}

// nextCut is the next cut inside the table that lies ahead.
func (s *source) nextCut(t *table) *position {
	here := position{Pass: s.pass, Table: t.name, After: s.cur.after, Collate: t.collations()}
	for i := range s.cuts {
		c := &s.cuts[i]
		if c.Table != t.name || c.Done || c.Pass != s.pass || len(c.After) != len(t.order) {
			continue
		}
		if s.cur.after == nil {
			return c
		}
		if order, ok := comparePositions(here, *c); ok && order < 0 {
			return c
		}
	}
	return nil
}

// page builds one batch.
type page struct {
	s       *source
	t       *table
	want    connector.Limit
	cells   cells
	builder *array.RecordBuilder
	read    int   // rows of the statement, skipped ones included
	rows    int   // rows in the builder
	bytes   int64 // of values
	bad     []int
	rejects []record.Reject
}

func newPage(s *source, t *table, want connector.Limit) *page {
	p := &page{s: s, t: t, want: want, cells: cells{st: s.cur.stmt, utf16: s.utf16}}
	p.builder = array.NewRecordBuilder(memory.DefaultAllocator, t.schema.Columns)
	const reserve = 8_192
	if want.Rows > 0 {
		p.builder.Reserve(min(want.Rows, reserve))
	}
	return p
}

func (p *page) full() bool {
	return p.read > 0 && ((p.want.Rows > 0 && p.read >= p.want.Rows) || (p.want.Bytes > 0 && p.bytes >= p.want.Bytes))
}

// sameKey reports whether the current row has the key of the last one that was added.
func (p *page) sameKey() bool {
	for i := range p.t.order {
		if compareValues(p.s.cur.after[i], valueOf(&p.cells, i), "") != 0 {
			return false
		}
	}
	return true
}

// add takes the current row.
func (p *page) add() {
	if len(p.t.order) > 0 {
		if p.s.cur.after == nil {
			p.s.cur.after = make([]value, len(p.t.order))
		}
		for i := range p.s.cur.after {
			p.s.cur.after[i] = valueOf(&p.cells, i)
		}
	}
	p.read++
	const rowOverhead = 16
	p.bytes += rowOverhead
	if p.s.cfg.Cursor != "" && p.s.remember(p) {
		return
	}
	for i := range p.t.columns {
		if err := p.put(i); err != nil {
			p.reject(i, err)
			return
		}
	}
	p.rows++
}

func (p *page) put(i int) error {
	b, col := p.builder.Field(i), len(p.t.order)+i
	c := &p.t.columns[i]
	class := p.cells.class(col)
	if class == sqlite.TypeNull {
		if !p.t.schema.Columns.Field(i).Nullable {
			return errors.New("NULL in a column of the key, or one that is declared NOT NULL")
		}
		b.AppendNull()
		return nil
	}
	if !c.shape.classes.has(class) {
		return misfit(&p.cells, col, c.shape.kind.String())
	}
	const fixed = 8
	p.bytes += fixed
	if class == sqlite.TypeText || class == sqlite.TypeBlob {
		p.bytes += int64(p.cells.st.ColumnLen(col))
	}
	return c.shape.put(b, &p.cells, col)
}

// reject sets the current row aside: column i has a value that is none of its type. The row's place in the builder is filled up,
// and taken out at the end.
func (p *page) reject(i int, cause error) {
	p.rejects = append(p.rejects, p.rejected(i, cause))
	p.bad = append(p.bad, p.rows)
	for ; i < len(p.t.columns); i++ {
		p.builder.Field(i).AppendNull()
	}
	p.rows++
}

// rejected describes the current row for a person.
func (p *page) rejected(i int, cause error) record.Reject {
	c := &p.t.columns[i]
	r := record.Reject{Dataset: p.t.schema.Dataset, Class: "bad_value", Column: c.name}
	v := valueOf(&p.cells, len(p.t.order)+i)
	r.Value = shorten(v.text())
	r.Message = fmt.Sprintf("%v; types=%s:%s reads it", shorten(cause.Error()), c.name, v.remedy())
	names := make([]string, len(p.t.order))
	vals := make([]value, len(p.t.order))
	for i, o := range p.t.order {
		names[i], vals[i] = o.name, valueOf(&p.cells, i)
	}
	r.Key = objectJSON(names, vals)
	names, vals = make([]string, len(p.t.columns)), make([]value, len(p.t.columns))
	for i, c := range p.t.columns {
		names[i], vals[i] = c.name, valueOf(&p.cells, len(p.t.order)+i)
	}
	r.Raw = objectJSON(names, vals)
	return r
}

func objectJSON(names []string, vals []value) json.RawMessage {
	out := []byte{'{'}
	for i, n := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(record.AppendJSONString(out, n), ':')
		doc, err := vals[i].MarshalJSON()
		if err != nil {
			panic(fmt.Sprintf("sqlite: value of %s: %v", n, err)) // values always marshal
		}
		out = append(out, doc...)
	}
	return append(out, '}')
}

// shorten keeps messages readable.
func shorten(s string) string {
	const longest = 200
	if len(s) <= longest {
		return s
	}
	cut := longest
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// batch hands over what was read.
func (p *page) batch(at record.Position) (*record.Batch, error) {
	b := &record.Batch{
		Schema: p.t.schema, Rows: p.builder.NewRecordBatch(), Rejects: p.rejects, Size: p.bytes, Position: at,
	}
	if len(p.bad) == 0 {
		return b, nil
	}
	p.s.env.Log.Debug("rows were rejected", slogTable(p.t.name), slog.Int("rows", len(p.bad)))
	bad := p.bad
	return b.Keep(func(i int) bool {
		if len(bad) > 0 && bad[0] == i {
			bad = bad[1:]
			return false
		}
		return true
	})
}

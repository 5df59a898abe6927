package sqlite

import (
	"fmt"
	"log/slog"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
)

// openTable fixes what a pass over an incremental table reads: everything from the last pass's highest cursor value, that value
// included, up to the highest value there is now. Rows that come later are the next pass's. Where the row with the highest value is gone,
// or has a lower one now, the mark stays: it never goes back over what was delivered.
func (s *source) openTable(t *table) error {
	if s.cfg.Cursor == "" {
		return nil
	}
	prev := s.marks[t.name]
	if !prev.Many {
		s.cur.seen, s.cur.seenNulls = prev.Seen.set(), prev.Nulls.set()
	}
	if s.cur.now != nil { // in the middle of a pass
		return nil
	}
	if err := s.checkNulls(t); err != nil {
		return err
	}
	s.cur.now = &mark{Cursor: value{class: sqlite.TypeNull}}
	c := &cells{utf16: s.utf16}
	return s.db.each(`SELECT max(`+t.order[0].expr+`) FROM `+t.from+s.whereClause(), func(st *sqlite.Stmt) error {
		c.st = st
		s.cur.now.Cursor = valueOf(c, 0)
		if !prev.Cursor.null() && (s.cur.now.Cursor.null() || compareValues(s.cur.now.Cursor, prev.Cursor, "") < 0) {
			s.cur.now.Cursor = prev.Cursor
		}
		return nil
	})
}

func (s *source) whereClause() string {
	if s.cfg.Where == "" {
		return ""
	}
	return " WHERE (" + s.cfg.Where + "\n)"
}

// checkNulls applies the policy for rows without a cursor value.
func (s *source) checkNulls(t *table) error {
	if s.cfg.Nulls == nullsInclude {
		return nil
	}
	n := int64(0)
	where := strings.TrimPrefix(s.whereClause(), " WHERE ")
	if where != "" {
		where += " AND "
	}
	err := s.db.each(`SELECT count(*) FROM `+t.from+` WHERE `+where+t.order[0].expr+` IS NULL`, func(st *sqlite.Stmt) error {
		n = st.ColumnInt64(0)
		return nil
	})
	if err != nil || n == 0 {
		return err
	}
	if s.cfg.Nulls == nullsSkip {
		s.env.Log.Warn("rows without a cursor value are left out", slogTable(t.name), slog.Int64("rows", n))
		return nil
	}
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "sqlite.null_cursor", Doing: "reading incrementally",
		Dataset: t.name, Column: t.order[0].name,
		Err:  fmt.Errorf("%d rows have no cursor value", n),
		Hint: "read them with nulls=include, or leave them out with nulls=skip",
	}
}

// window is the condition of a pass.
func (s *source) window(t *table) (string, []value) {
	c := t.order[0].expr
	var parts []string
	var args []value
	if prev, ok := s.marks[t.name]; ok && !prev.Cursor.null() {
		parts, args = append(parts, c+" >= ?"), append(args, prev.Cursor)
	}
	if high := s.cur.now.Cursor; !high.null() {
		parts, args = append(parts, c+" <= ?"), append(args, high)
	} else {
		parts = append(parts, "0")
	}
	sql := "(" + strings.Join(parts, " AND ")
	if s.cfg.Nulls == nullsInclude {
		sql += " OR " + c + " IS NULL"
	}
	return sql + ")", args
}

// remember notes a row at the boundary, and reports whether an earlier pass delivered exactly this row.
func (s *source) remember(p *page) (known bool) {
	at := s.cur.after[0]
	prev, had := s.marks[p.t.name]
	low := had && !prev.Cursor.null() && compareValues(at, prev.Cursor, "") == 0
	high := compareValues(at, s.cur.now.Cursor, "") == 0
	if !at.null() && !low && !high {
		return false
	}
	sum := digestRow(&p.cells, len(p.t.order)+len(p.t.columns))
	now := s.cur.now
	switch {
	case at.null():
		known = s.cur.seenNulls[sum]
		now.Many = !now.Nulls.add(sum) || now.Many
	case high:
		now.Many = !now.Seen.add(sum) || now.Many
	}
	if low {
		known = s.cur.seen[sum]
	}
	return known
}

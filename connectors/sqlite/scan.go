package sqlite

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector/sqlgen"
)

func slogTable(name string) slog.Attr { return slog.String("table", name) }

// chooseShapes decides how each column is read, by looking at up to Scan rows. A column is read as its declaration says wherever
// its values allow; else as the first wider type that takes all of them; where none does, as the one that takes most. What does not
// fit is rejected row by row when it is read. Types that are narrower than the declaration need every row to be checked.
func (s *source) chooseShapes(ctx context.Context, t *table) error {
	open := make([]int, 0, len(t.columns))
	for i := range t.columns {
		t.columns[i].shape = t.columns[i].shapes[0]
		if len(t.columns[i].shapes) > 1 {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return nil
	}
	first := &scan{limit: s.cfg.Scan, utf16: s.utf16, firstOnly: true}
	if err := first.run(ctx, s.db, t, open); err != nil {
		return err
	}
	complete := first.rows <= s.cfg.Scan
	if complete {
		t.rows = first.rows
	}
	var misfits []int
	for k, i := range open {
		if first.tests[k].failed[0] > 0 {
			misfits = append(misfits, i)
			continue
		}
		settle(&t.columns[i], first.tests[k].values, complete)
	}
	if len(misfits) == 0 {
		return nil
	}
	second := &scan{limit: s.cfg.Scan, utf16: s.utf16}
	if err := second.run(ctx, s.db, t, misfits); err != nil {
		return err
	}
	for k, i := range misfits {
		s.widen(t, &t.columns[i], second.tests[k].failed, complete)
	}
	return nil
}

// settle takes the first shape, or the next one that is not tight where rows were left unchecked. A column without any value and
// declaration is text.
func settle(c *column, values int64, complete bool) {
	if c.inferred && values == 0 {
		c.shape = stringShape()
		return
	}
	c.shape = firstShape(c.shapes, complete)
}

func firstShape(shapes []shape, complete bool) shape {
	i := slices.IndexFunc(shapes, func(sh shape) bool { return complete || !sh.tight })
	return shapes[max(i, 0)]
}

// widen takes the shape with the fewest misfits.
func (s *source) widen(t *table, c *column, failed []int64, complete bool) {
	if s.cfg.Mixed == mixedReject && !c.inferred {
		c.shape = firstShape(c.shapes, complete)
		return
	}
	best := -1
	for i, n := range failed {
		if c.shapes[i].tight && !complete {
			continue
		}
		if best < 0 || n < failed[best] {
			best = i
		}
	}
	c.shape = c.shapes[best]
	if c.inferred && failed[best] == 0 {
		return
	}
	s.env.Log.Warn("a column holds other values than it declares", slogTable(t.name), slog.String("column", c.name),
		slog.String("declared", c.declared), slog.String("read_as", c.shape.kind.String()), slog.Int64("misfits", failed[best]))
}

// scan looks at rows.
type scan struct {
	limit     int64
	utf16     bool
	firstOnly bool // test only the first shape of each column
	rows      int64
	tests     []shapeTest
}

// shapeTest counts the values of one column that do not fit each of its shapes.
type shapeTest struct {
	shapes   []shape
	builders []array.Builder
	failed   []int64
	values   int64
}

const scanFlush = 4_096

func (n *scan) run(ctx context.Context, d *db, t *table, open []int) error {
	names := make([]string, len(open))
	n.tests = make([]shapeTest, len(open))
	for k, i := range open {
		names[k] = t.columns[i].name
		shapes := t.columns[i].shapes
		if n.firstOnly {
			shapes = shapes[:1]
		}
		n.tests[k] = shapeTest{shapes: shapes, builders: make([]array.Builder, len(shapes)), failed: make([]int64, len(shapes))}
		for j, sh := range shapes {
			n.tests[k].builders[j] = array.NewBuilder(memory.DefaultAllocator, sh.typ)
		}
	}
	c := &cells{utf16: n.utf16}
	q := fmt.Sprintf(`SELECT %s FROM %s LIMIT %d`, sqlgen.Idents(names), t.from, n.limit+1)
	err := d.each(q, func(st *sqlite.Stmt) error {
		if n.rows++; n.rows > n.limit {
			return nil
		}
		c.st = st
		for k := range n.tests {
			n.tests[k].look(c, k)
		}
		if n.rows%scanFlush == 0 {
			n.flush()
			return ctx.Err()
		}
		return nil
	})
	n.flush()
	return err
}

// flush throws away what the tests built.
func (n *scan) flush() {
	for k := range n.tests {
		for _, b := range n.tests[k].builders {
			b.NewArray().Release()
		}
	}
}

func (t *shapeTest) look(c *cells, col int) {
	class := c.class(col)
	if class == sqlite.TypeNull {
		return
	}
	t.values++
	for j := range t.shapes {
		sh := &t.shapes[j]
		switch {
		case !sh.classes.has(class):
			t.failed[j]++
		case sh.all:
		case sh.put(t.builders[j], c, col) != nil:
			t.failed[j]++
		}
	}
}

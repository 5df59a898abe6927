package sqlite

import (
	"cmp"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/record"
)

// worthSorting is the number of rows from which on sorted keys pay: the b-tree is then walked from one end to the other.
const worthSorting = 64

// sequence is the order in which rows are applied: by key where that is cheap to tell, and the source's order among rows of one
// key. Changes of different keys commute, but for key moves, and where the table has more to say than its key: then the source's order
// stays.
func (w *writer) sequence() []int {
	n := w.b.NumRows()
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if len(w.t.key) == 0 || !w.t.commute || n < worthSorting || w.old != nil || len(w.t.parked) > 0 {
		return order
	}
	less := comparer(w.b.Rows.Column(w.t.key[0]))
	if less == nil {
		return order
	}
	for _, k := range w.t.key[1:] {
		next := comparer(w.b.Rows.Column(k))
		if next == nil {
			break
		}
		first := less
		less = func(a, b int) int {
			if c := first(a, b); c != 0 {
				return c
			}
			return next(a, b)
		}
	}
	if !slices.IsSortedFunc(order, less) {
		slices.SortStableFunc(order, less)
	}
	return order
}

// comparer orders the rows of a column; nil: it is not worth it. Null values are ordered by whatever their slot holds.
func comparer(col arrow.Array) func(a, b int) int {
	if e, ok := col.(array.ExtensionArray); ok {
		if _, isJSON := e.ExtensionType().(*record.ExtType); isJSON {
			return nil
		}
		col = e.Storage()
	}
	switch c := col.(type) {
	case *array.Int64:
		v := c.Int64Values()
		return func(a, b int) int { return cmp.Compare(v[a], v[b]) }
	case *array.Int32:
		v := c.Int32Values()
		return func(a, b int) int { return cmp.Compare(v[a], v[b]) }
	case *array.String:
		return func(a, b int) int { return cmp.Compare(c.Value(a), c.Value(b)) }
	case *array.FixedSizeBinary:
		return func(a, b int) int { return slices.Compare(c.Value(a), c.Value(b)) }
	default:
		return nil
	}
}

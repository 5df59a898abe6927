package arrowtype

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Guard runs f and turns a panic in it into an error of the code: the library panics on broken input.
func Guard(code, doing string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = Damaged(code, doing, fmt.Errorf("%v", p))
		}
	}()
	return f()
}

// Damaged is the error for input that breaks its format.
func Damaged(code, doing string, err error) error {
	return &connector.Error{
		Class: connector.ClassPermanent, Code: code, Doing: doing, Err: err,
		Hint: "the file may be cut off or damaged: compare its size with the original, and copy it again",
	}
}

// Rows makes a batch of converted columns: rows with values that no column may hold become rejects. first is the number of the first
// row, from 1.
func Rows(s *record.Schema, cols []arrow.Array, n int, first int64) (*record.Batch, error) {
	b := &record.Batch{Schema: s, Rows: array.NewRecordBatch(s.Columns, cols, int64(n))}
	bad := map[int]record.Reject{}
	for c, col := range cols {
		for i, why := range Bad(col) {
			if _, seen := bad[i]; !seen {
				bad[i] = record.Reject{
					Dataset: s.Dataset, Line: first + int64(i), Column: s.Columns.Field(c).Name, Class: "bad_value", Message: why,
				}
			}
		}
	}
	if len(bad) == 0 {
		return b, nil
	}
	kept, err := b.Keep(func(i int) bool { _, is := bad[i]; return !is })
	if err != nil {
		return nil, fmt.Errorf("setting rows aside: %w", err)
	}
	for i := range n {
		if r, is := bad[i]; is {
			kept.Rejects = append(kept.Rejects, r)
		}
	}
	return kept, nil
}

package mysql

import (
	"context"
	"errors"

	"github.com/leatdata/leat/connector/chunked"
)

// cursorStep is how far Step grows with a batch; it leaves room for batches between two that an earlier attempt numbered.
const cursorStep = 1 << 20

// maxTies bounds how many keys of equal cursor are remembered.
const maxTies = 1000

// cursorPosition is the position of a source that reads by cursor. All values are exact, see keyText.
type cursorPosition = chunked.CursorPosition[cursorState]

// cursorState is how far a dataset was read.
type cursorState struct {
	Cursor *string    `json:"cursor,omitempty"` // the greatest value that was delivered; nil: no row yet
	Key    []string   `json:"key,omitempty"`    // the greatest key among the rows of that value
	Ties   [][]string `json:"ties,omitempty"`   // keys that were delivered with exactly Cursor
}

// incremental reads what is new behind a cursor, each dataset in one transaction.
type incremental struct {
	chunked.Cursors[cursorState]

	src *Source
}

func newIncremental(s *Source, tables []*sourceTable) *incremental {
	in := &incremental{src: s}
	in.Env, in.Datasets = s.env, make([]string, len(tables))
	for i, t := range tables {
		in.Datasets[i] = t.dataset
	}
	in.Dataset = func(ctx context.Context, i int, next string) error {
		if err := in.dataset(ctx, tables[i], next); err != nil {
			return s.tableError("reading by cursor", tables[i], err)
		}
		return nil
	}
	return in
}

var errNoCursor = errors.New("the cursor is not among the columns that are read")

package deadletter

import (
	"context"
	"encoding/json"
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/leatdata/leat/state"
)

// Ask notes that the rows of letters are to be read again by a backfill. A letter that comes again after that is no longer asked for.
func (s *Store) Ask(ctx context.Context, letters []int64, backfill uint64) error {
	numbers, err := json.Marshal(letters)
	if err != nil {
		return fmt.Errorf("asking for rows: %w", err)
	}
	return s.use(ctx, false, func(in *session) error {
		return exec(in.conn, "update letter set asked = ? where number in (select value from json_each(?))",
			int64(backfill), string(numbers))
	})
}

// Settle looks what became of the backfills that letters of a pipeline wait for: where one was run its letters go, where one failed, or
// nothing is known of it, they are no longer asked for.
func (s *Store) Settle(ctx context.Context, pipeline string, o state.Orders) error {
	asked := map[uint64]bool{}
	err := s.use(ctx, false, func(in *session) error {
		return sqlitex.Execute(in.conn, "select distinct asked from letter where pipeline = ? and asked > 0", &sqlitex.ExecOptions{
			Args: []any{pipeline}, ResultFunc: func(stmt *sqlite.Stmt) error {
				asked[uint64(stmt.ColumnInt64(0))] = true
				return nil
			},
		})
	})
	if err != nil {
		return err
	}
	for _, b := range o.Backfills {
		delete(asked, b.ID) // still to be run
	}
	change := func(query string, id uint64) error {
		return s.use(ctx, false, func(in *session) error {
			return exec(in.conn, query, pipeline, int64(id))
		})
	}
	failed := map[uint64]bool{}
	for _, f := range o.Failed {
		failed[f.ID] = true
	}
	for id := range asked {
		query := "delete from letter where pipeline = ? and asked = ?"
		if failed[id] || id > o.Last {
			query = "update letter set asked = 0 where pipeline = ? and asked = ?"
		}
		if err := change(query, id); err != nil {
			return err
		}
	}
	return nil
}

// Waiting are the pipelines with letters whose rows are to be read again.
func (s *Store) Waiting(ctx context.Context) (names []string, err error) {
	err = s.use(ctx, false, func(in *session) error {
		return sqlitex.Execute(in.conn, "select distinct pipeline from letter where asked > 0 order by 1",
			&sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
				names = append(names, stmt.ColumnText(0))
				return nil
			}})
	})
	return names, err
}

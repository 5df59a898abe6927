package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// defaultRowBytes is what a row is taken for where the catalogue knows nothing.
const defaultRowBytes = 128

// PlanChunks implements connector.Snapshotter. Boundaries are found by walking the key's index, never by arithmetic: any type that
// the server can order will do, however sparse.
func (s *Source) PlanChunks(ctx context.Context, dataset string, after []byte, target int64) connector.ChunkSeq {
	return s.PlanChunksTo(ctx, dataset, after, nil, target)
}

// PlanChunksTo implements chunked.BoundedPlanner.
func (s *Source) PlanChunksTo(ctx context.Context, dataset string, after, to []byte, target int64) connector.ChunkSeq {
	if target <= 0 {
		target = s.cfg.ChunkBytes
	}
	return func(yield func(record.Chunk, error) bool) {
		t, err := s.find(ctx, dataset)
		if err == nil {
			switch t.mode {
			case byKey:
				err = s.planKeys(ctx, t, record.Chunk{Dataset: dataset, From: after, To: to}, target, yield)
			case byBlock:
				err = s.planBlocks(ctx, t, record.Chunk{Dataset: dataset, From: after, To: to}, target, yield)
			default:
				yield(record.Chunk{Dataset: dataset, From: after, To: to}, nil)
			}
		}
		if err != nil {
			yield(record.Chunk{}, err)
		}
	}
}

// firstRows is how many rows the first chunk of a table has at most: the walk to its end is what the first row waits for.
const firstRows = 4096

// planKeys yields the chunks of whole.
func (s *Source) planKeys(
	ctx context.Context, t *sourceTable, whole record.Chunk, target int64, yield func(record.Chunk, error) bool,
) error {
	rows := t.chunkRows(target)
	from, count := whole.From, rows
	if from == nil {
		count = min(rows, firstRows)
	}
	for again := s.cfg.Follow; ; {
		next, err := s.boundary(ctx, t, record.Chunk{From: from, To: whole.To}, count)
		if again && renamed(err) { // a column of the key: whoever reads the chunk finds out the same
			again = false
			if t, err = s.refresh(ctx, t.dataset); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return s.tableError("planning chunks", t, err)
		}
		c := record.Chunk{Dataset: t.dataset, From: from, To: whole.To}
		if next != nil {
			c.To = bound{Key: next, Of: keyIDs(t.key)}.encode()
		}
		if !yield(c, nil) || next == nil || string(c.To) == string(whole.To) {
			return nil
		}
		from, count = c.To, rows
	}
}

// renamed reports whether an error says that a table or a column is not there under its name.
func renamed(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (server.Code == "42703" || server.Code == "42P01")
}

// chunkRows is how many rows make target bytes.
func (t *sourceTable) chunkRows(target int64) int64 {
	width := int64(defaultRowBytes)
	if t.rows > 0 && t.bytes > 0 {
		width = max(1, t.bytes/t.rows)
	}
	return max(1, target/width)
}

// boundary returns the key of the n-th row of a range; nil: it has no more than that.
func (s *Source) boundary(ctx context.Context, t *sourceTable, c record.Chunk, n int64) ([]string, error) {
	r, err := t.between(c.From, c.To)
	if err != nil {
		return nil, err
	}
	if t.nulls {
		r.where = append(r.where, "NOT "+t.nullSQL()) // they come last, all in one chunk
	}
	var rows [][][]byte
	err = s.borrow(ctx, func(pg *pgconn.PgConn) (err error) {
		s.env.Roundtrip("plan")
		rows, err = s.walk(ctx, pg, t, r, n)
		return err
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	key := make([]string, len(t.key))
	for i, v := range rows[0] {
		key[i] = string(v)
	}
	return key, nil
}

// walk counts n rows along the index. Without the two settings the server may prefer to sort the whole table for each boundary.
func (s *Source) walk(ctx context.Context, pg *pgconn.PgConn, t *sourceTable, r keyRange, n int64) ([][][]byte, error) {
	if err := s.begin(ctx, pg, ""); err != nil {
		return nil, err
	}
	if err := command(ctx, pg, "SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SELECT "+t.pathSQL()); err != nil {
		return nil, err
	}
	where := t.whereSQL(r.where)
	for i := range slices.Backward(r.values) {
		where = strings.ReplaceAll(where, fmt.Sprintf("pg_catalog.current_setting('leat.v%d')", i), fmt.Sprintf("$%d", i+1))
	}
	sql := fmt.Sprintf("SELECT %s FROM %s%s ORDER BY %s OFFSET %d LIMIT 1", t.keyList(), t.from, where, t.keyList(), n-1)
	rows, err := ask(ctx, pg, sql, r.values...)
	if err != nil {
		return nil, err
	}
	return rows, command(ctx, pg, "COMMIT")
}

// planBlocks yields ranges of blocks, all under one exported snapshot, so that no row moves from a range that was read to one that
// is still to come, or back.
func (s *Source) planBlocks(
	ctx context.Context, t *sourceTable, whole record.Chunk, target int64, yield func(record.Chunk, error) bool,
) error {
	after, err := decodeBound(whole.From)
	if err != nil {
		return err
	}
	s.env.Roundtrip("plan")
	id, err := s.hold(ctx)
	if err != nil {
		return s.tableError("planning chunks", t, err)
	}
	defer s.release(ctx, id, func(h *holder) { h.planned = true })
	per := max(1, target/blockSize)
	if t.pages > 0 && t.bytes > 0 {
		per = max(1, target*t.pages/t.bytes)
	}
	from, start := whole.From, int64(0)
	if after.Block != nil {
		start = *after.Block
	}
	for {
		start += per
		c := record.Chunk{Dataset: t.dataset, From: from, Snapshot: snapshotPosition(id)}
		if start <= t.pages {
			c.To = bound{Block: &start}.encode()
		}
		s.mu.Lock()
		if h := s.holders[id]; h != nil {
			h.left++
		}
		s.mu.Unlock()
		if !yield(c, nil) || c.To == nil {
			return nil
		}
		from = c.To
	}
}

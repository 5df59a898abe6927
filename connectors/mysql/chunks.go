package mysql

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

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
			whole := record.Chunk{Dataset: dataset, From: after, To: to}
			if len(t.key) == 0 {
				yield(whole, nil)
				return
			}
			err = s.planKeys(ctx, t, whole, target, yield)
		}
		if err != nil {
			yield(record.Chunk{}, err)
		}
	}
}

// firstShare is the part of a chunk that the first one of a table gets: the walk to its end is what the first row waits for.
const firstShare = 64

// planKeys yields the chunks of whole.
func (s *Source) planKeys(
	ctx context.Context, t *sourceTable, whole record.Chunk, target int64, yield func(record.Chunk, error) bool,
) error {
	rows := t.chunkRows(target)
	from, count := whole.From, rows
	if from == nil {
		count = max(1, rows/firstShare)
	}
	for again := s.cfg.Follow; ; {
		next, err := s.boundary(ctx, t, record.Chunk{From: from, To: whole.To}, count)
		if again && changed(err) { // whoever reads the chunk finds out the same
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
			c.To = bound{Key: next}.encode()
		}
		if !yield(c, nil) || next == nil || string(c.To) == string(whole.To) {
			return nil
		}
		from, count = c.To, rows
	}
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
	where, err := t.between(c.From, c.To)
	if err != nil {
		return nil, err
	}
	if t.nulls {
		where = append(where, "NOT "+t.nullSQL()) // they are all in one chunk
	}
	index := ""
	if t.index != "" && !t.view {
		index = " FORCE INDEX (" + ident(t.index) + ")"
	}
	sql := fmt.Sprintf("SELECT %s FROM %s%s%s ORDER BY %s LIMIT 1 OFFSET %d",
		t.keyList(), t.from, index, t.whereSQL(where), t.keyList(), n-1)
	var key []string
	err = s.borrow(ctx, func(w *wire) error {
		s.env.Roundtrip("plan")
		var err error
		key, err = t.readKey(ctx, w, sql)
		return err
	})
	return key, err
}

// readKey reads the key of the first row of a SELECT of the key's columns; nil: there is none.
func (t *sourceTable) readKey(ctx context.Context, w *wire, sql string) ([]string, error) {
	fields := make([]arrow.Field, len(t.key))
	for i, k := range t.key {
		fields[i] = arrow.Field{Name: k.name, Type: k.arrow, Nullable: true}
	}
	to := newCollector(&record.Schema{Dataset: t.dataset, Columns: arrow.NewSchema(fields, nil)}, t.key, t.charsets)
	d := &rowDecoder{to: to, texts: t.texts}
	if err := w.query(ctx, sql, d.describes, d.row); err != nil {
		return nil, err
	}
	b, _, err := to.take()
	switch {
	case err != nil:
		return nil, err
	case len(b.Rejects) > 0:
		return nil, fmt.Errorf("the key of a row can't be read: %w", b.Rejects[0])
	case b.NumRows() == 0:
		return nil, nil
	}
	key := make([]string, len(t.key))
	for i := range key {
		key[i] = keyText(&t.key[i], b.Rows.Column(i), 0)
	}
	return key, nil
}

package mysql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Sizes of batches.
const (
	batchRows  = 8192
	batchBytes = 4 << 20
)

// beginSQL opens a transaction that sees one state of all tables. It takes no lock that a writer would have to wait for.
const beginSQL = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"

// isolationSQL makes transactions see one state, whatever the server's default is.
const isolationSQL = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"

// begin opens the transaction of a chunk. Of a source that is followed it says what the transaction sees.
func (s *Source) begin(ctx context.Context, w *wire, t *sourceTable) (record.Position, error) {
	s.env.Roundtrip("begin")
	if err := w.exec(ctx, isolationSQL); err != nil {
		return record.Position{}, err
	}
	if s.cfg.Follow {
		return s.enter(ctx, w, t)
	}
	return snapshotPosition(), w.exec(ctx, beginSQL)
}

// snapshotPosition stands for a snapshot that nobody compares.
func snapshotPosition() record.Position {
	return record.Position{Shape: 1, Data: []byte(`"consistent"`)}
}

// ReadChunk implements connector.Snapshotter: one short transaction, one SELECT. A table that is followed is looked up once more where its
// columns changed.
func (s *Source) ReadChunk(ctx context.Context, c record.Chunk, emit func(*record.Batch) error) error {
	t, err := s.find(ctx, c.Dataset)
	if err != nil {
		return err
	}
	err = s.borrow(ctx, func(w *wire) error { return s.readChunk(ctx, w, t, c, emit) })
	if changed(err) && s.cfg.Follow {
		if t, err = s.refresh(ctx, c.Dataset); err != nil {
			return err
		}
		err = s.borrow(ctx, func(w *wire) error { return s.readChunk(ctx, w, t, c, emit) })
	}
	if err != nil {
		return s.tableError("reading from MySQL", t, err)
	}
	return nil
}

// changed reports whether an error says that the table is not what it was.
func changed(err error) bool {
	if errors.Is(err, errShape) {
		return true
	}
	e, ok := serverErrorOf(err)
	return ok && (e.number == errNoColumn || e.number == errNoTable || e.number == errDefinition)
}

// tableError adds the dataset.
func (s *Source) tableError(doing string, t *sourceTable, err error) error {
	if errors.Is(err, errShape) {
		return &connector.Error{
			Class: connector.ClassTransient, Code: "mysql.schema_changed", Doing: doing, Dataset: t.dataset, Err: err,
			Hint: "run again: the columns are looked up at the start",
		}
	}
	wrapped := s.cfg.wrap(doing, err)
	var e *connector.Error
	if errors.As(wrapped, &e) && e.Dataset == "" {
		e.Dataset = t.dataset
	}
	return wrapped
}

// find returns what is known of a dataset.
func (s *Source) find(ctx context.Context, dataset string) (*sourceTable, error) {
	tables, err := s.resolved(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	i := slices.IndexFunc(s.tables, func(t *sourceTable) bool { return t.dataset == dataset })
	if i >= 0 {
		defer s.mu.Unlock()
		return s.tables[i], nil
	}
	s.mu.Unlock()
	if s.cfg.Follow {
		return s.refresh(ctx, dataset)
	}
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.dataset
	}
	return nil, fmt.Errorf("dataset %s is not selected: %w", dataset, connector.UnknownName("dataset", dataset, names))
}

// refresh looks one dataset up again, and remembers what it found.
func (s *Source) refresh(ctx context.Context, dataset string) (*sourceTable, error) {
	found, err := s.resolve(ctx, dataset)
	if err != nil {
		return nil, err
	}
	t := found[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	tables := slices.DeleteFunc(slices.Clone(s.tables), func(o *sourceTable) bool { return o.dataset == dataset })
	tables = append(tables, t)
	slices.SortFunc(tables, func(a, b *sourceTable) int { return strings.Compare(a.dataset, b.dataset) })
	s.tables = tables
	return t, nil
}

func (s *Source) readChunk(ctx context.Context, w *wire, t *sourceTable, c record.Chunk, emit func(*record.Batch) error) error {
	where, err := t.rangeOf(c)
	if err != nil {
		return err
	}
	if c.Where != "" {
		if err := s.checkCondition(ctx, w, t, c.Where); err != nil {
			return err
		}
		where = append(where, conditionSQL(c.Where))
	}
	if c.Snapshot, err = s.begin(ctx, w, t); err != nil {
		return err
	}
	empty := true
	err = s.readRows(ctx, w, t, t.selectSQL(where, t.order()), func(b *record.Batch) error {
		b.Chunk, empty = &c, false
		return emit(b)
	})
	if err != nil {
		return s.conditionFailed(t, c.Where, err)
	}
	s.env.Roundtrip("commit")
	if err := w.exec(ctx, "COMMIT"); err != nil {
		return err
	}
	if empty {
		return emit(&record.Batch{Schema: t.schema, Chunk: &c}) // it tells snapshot and schema
	}
	return nil
}

// readRows reads the rows of a SELECT of the table's columns, in batches.
func (s *Source) readRows(ctx context.Context, w *wire, t *sourceTable, sql string, emit func(*record.Batch) error) error {
	to := newCollector(t.schema, t.cols, t.charsets)
	d := &rowDecoder{to: to, texts: t.texts}
	sent, zeros := int64(0), 0
	flush := func() error {
		b, n, err := to.take()
		if err != nil {
			return err
		}
		b.Size, sent = w.read-sent, w.read
		zeros += n
		return emit(b)
	}
	s.env.Roundtrip("select")
	err := w.query(ctx, sql, d.describes, func(p []byte) error {
		if err := d.row(p); err != nil {
			return err
		}
		if to.rows >= batchRows || w.read-sent >= batchBytes {
			return flush()
		}
		return nil
	})
	if err == nil && to.rows > 0 {
		err = flush()
	}
	if zeros > 0 {
		s.env.Log.WarnContext(ctx, "dates that no calendar has were read as NULL",
			slog.String("dataset", t.dataset), slog.Int("values", zeros))
	}
	return err
}

// rangeOf is the part of the table that a chunk is.
func (t *sourceTable) rangeOf(c record.Chunk) ([]string, error) {
	if len(c.Keys) > 0 {
		sql, err := t.keysIn(c.Keys)
		return []string{sql}, err
	}
	return t.between(c.From, c.To)
}

// selectSQL reads the table's columns.
func (t *sourceTable) selectSQL(where []string, order string) string {
	exprs := make([]string, len(t.cols))
	for i := range t.cols {
		exprs[i] = t.cols[i].expr()
	}
	return "SELECT " + strings.Join(exprs, ", ") + " FROM " + t.from + t.whereSQL(where) + order
}

// expr is what the SELECT list has for a column.
func (c *sourceColumn) expr() string {
	if c.form == formForeign {
		return "CAST(" + ident(c.name) + " AS CHAR) AS " + ident(c.name)
	}
	return ident(c.name)
}

func (t *sourceTable) whereSQL(conditions []string) string {
	if t.where != "" {
		conditions = append([]string{conditionSQL(t.where)}, conditions...)
	}
	if len(conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(conditions, " AND ")
}

// order makes rows come in the order of the key, where there is one.
func (t *sourceTable) order() string {
	if len(t.key) == 0 {
		return ""
	}
	return " ORDER BY " + t.keyList()
}

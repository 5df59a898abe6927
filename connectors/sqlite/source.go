package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// source reads tables one after the other, in the order of their names, and each in the order of its row id or key.
type source struct {
	cfg   SourceConfig
	env   connector.Env
	db    *db
	utf16 bool

	tables  []*table // all that the configuration selects; nil: not looked yet
	reading []*table // those of this run, still to be read; the first one is being read
	cuts    []position
	started bool
	closed  bool

	cur   cursor          // where the table being read stands
	pass  uint64          // incremental: the run's number
	marks map[string]mark // incremental: where each table's last pass ended
}

var (
	_ connector.Source     = (*source)(nil)
	_ connector.Discoverer = (*source)(nil)
	_ connector.Positions  = (*source)(nil)
)

// look opens the file and plans, once.
func (s *source) look(ctx context.Context) error {
	if s.closed {
		return errors.New("the source is closed")
	}
	doing := "opening " + s.cfg.Path
	if s.db == nil {
		d, err := openDB(s.cfg.Path, sqlite.OpenReadOnly, s.cfg.BusyTimeout, s.env)
		if err != nil {
			return wrap(ctx, doing, err)
		}
		s.db = d
	}
	if s.tables != nil {
		return nil
	}
	release := s.db.bound(ctx)
	defer release()
	var err error
	if s.utf16, err = s.db.utf16(); err != nil {
		return wrap(ctx, doing, err)
	}
	tables, err := s.plan(ctx)
	if err != nil {
		return wrap(ctx, "reading the tables of "+s.cfg.Path, err)
	}
	s.tables = tables
	return nil
}

// Discover implements connector.Discoverer. It looks at up to the option scan's rows of each table to find exact types.
func (s *source) Discover(ctx context.Context) ([]connector.Dataset, error) {
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	size, err := s.db.size()
	if err != nil {
		return nil, wrap(ctx, "reading the size of "+s.cfg.Path, err)
	}
	all := int64(0)
	for _, t := range s.tables {
		all += max(t.rows, 1)
	}
	out := make([]connector.Dataset, len(s.tables))
	for i, t := range s.tables {
		patch := map[string]string{"table": t.object.name, "tables": ""}
		if s.cfg.Query != "" {
			patch = map[string]string{}
		}
		out[i] = connector.Dataset{
			Name: t.schema.Dataset, Schema: t.schema, Rows: t.rows, Patch: patch,
			Bytes: int64(float64(size) * float64(max(t.rows, 1)) / float64(all)),
		}
	}
	return out, nil
}

// Start implements connector.Source.
func (s *source) Start(ctx context.Context, req connector.SourceStart) error {
	if err := req.Validate(); err != nil {
		return err
	}
	var from position
	if !req.From.Position.Zero() {
		var err error
		if from, err = decodePosition(req.From.Position); err != nil {
			return err
		}
	}
	for _, c := range req.Cuts {
		p, err := decodePosition(c)
		if err != nil {
			return err
		}
		s.cuts = append(s.cuts, p)
	}
	if len(req.Splits) > 0 {
		return configError("sqlite.splits", "starting an SQLite source", errors.New("it can't be split"))
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	slices.SortStableFunc(s.cuts, func(a, b position) int { c, _ := comparePositions(a, b); return c })
	if s.cfg.Snapshot == snapshotRun {
		if err := s.db.exec("BEGIN"); err != nil {
			return wrap(ctx, "beginning a transaction", err)
		}
	}
	if err := s.selectTables(req.Datasets); err != nil {
		return err
	}
	if err := s.resume(from); err != nil {
		return err
	}
	s.started = true
	return nil
}

// selectTables narrows the tables to a resolved selection.
func (s *source) selectTables(datasets []string) error {
	s.reading = slices.Clone(s.tables)
	if len(datasets) == 0 {
		return nil
	}
	known := make([]string, len(s.tables))
	for i, t := range s.tables {
		known[i] = t.schema.Dataset
	}
	for _, d := range datasets {
		if !slices.Contains(known, d) {
			e := configError("sqlite.table", "starting an SQLite source", connector.UnknownName("dataset", d, known))
			e.Hint = "leat preview shows which datasets there are"
			return e
		}
	}
	s.reading = slices.DeleteFunc(s.reading, func(t *table) bool { return !slices.Contains(datasets, t.schema.Dataset) })
	return nil
}

// resume skips what a position covers. With a cursor a position that covers everything begins the next pass.
func (s *source) resume(from position) error {
	s.pass, s.marks = from.Pass, from.Marks
	if s.cfg.Cursor == "" {
		s.pass = 0
	} else if s.pass == 0 {
		s.pass = 1
	}
	if from.Table == "" {
		return nil
	}
	if s.cfg.Cursor != "" && from.Pass == 0 {
		return positionError(errors.New("it is of a run without a cursor"))
	}
	if s.cfg.Cursor == "" && from.Pass > 0 {
		return positionError(errors.New("it is of an incremental run, and no cursor is configured"))
	}
	whole := s.reading
	s.reading = slices.DeleteFunc(slices.Clone(whole), func(t *table) bool {
		c := strings.Compare(t.name, from.Table)
		return c < 0 || (c == 0 && from.Done)
	})
	if len(s.reading) == 0 && s.cfg.Cursor != "" {
		s.pass++
		s.reading = whole
		return nil
	}
	if len(s.reading) > 0 && s.reading[0].name == from.Table {
		t := s.reading[0]
		if len(from.After) != len(t.order) {
			have, want := len(from.After), len(t.order)
			return positionError(fmt.Errorf("table %s is ordered by %d columns now, the position has %d", t.name, want, have))
		}
		s.cur.after, s.cur.now = from.After, from.Now
	}
	return nil
}

// Read implements connector.Source. Each page of a table is one statement, and so one snapshot of its own; views, queries and
// incremental tables are read by one statement, which holds its snapshot until it ends.
func (s *source) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	switch {
	case s.closed:
		return nil, errors.New("the source is closed")
	case !s.started:
		return nil, errors.New("the source is not started")
	case ctx.Err() != nil:
		return nil, fmt.Errorf("reading %s: %w", s.cfg.Path, context.Cause(ctx))
	case len(s.reading) == 0:
		return nil, io.EOF
	}
	release := s.db.bound(ctx)
	defer release()
	t := s.reading[0]
	b, err := s.readTable(t, want)
	if err != nil {
		s.endStatement()
		return nil, wrap(ctx, fmt.Sprintf("reading table %s of %s", t.name, s.cfg.Path), err)
	}
	return b, nil
}

// Close implements connector.Source.
func (s *source) Close(context.Context) error {
	s.closed = true
	s.endStatement()
	if err := s.db.close(); err != nil {
		return fmt.Errorf("closing %s: %w", s.cfg.Path, err)
	}
	return nil
}

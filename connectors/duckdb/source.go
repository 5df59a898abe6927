//go:build cgo && duckdb_arrow

package duckdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/sqlgen"
	"github.com/leatdata/leat/record"
)

// positionShape is the version of mark's layout.
const positionShape = 1

// mark is a position: behind the row with this id of a dataset; everything of the datasets before it is done.
type mark struct {
	DuckDB  string `json:"duckdb"` // the dataset; the name of the member says whose position it is
	Row     int64  `json:"row"`    // -1: none yet
	Rows    int64  `json:"rows"`   // of the whole table when it was begun: a table that changed since can't be resumed
	AllDone bool   `json:"done,omitempty"`
}

type source struct {
	cfg *SourceConfig
	env connector.Env
	db  *db

	rels    []*relation
	at      int // which relation is being read
	began   bool
	row     int64 // last row id that was delivered
	last    int64 // largest row id of the table
	count   int64 // its rows
	emitted bool  // a batch of it was returned
	span    int64 // row ids in the next page
	cuts    []mark
	open    array.RecordReader // of a view or query
}

var (
	_ connector.Source     = (*source)(nil)
	_ connector.Discoverer = (*source)(nil)
	_ connector.Positions  = (*source)(nil)
	_ connector.Checker    = (*source)(nil)
	_ connector.Named      = (*source)(nil)
)

// Open implements connector.SourceConfig.
func (c *SourceConfig) Open(env connector.Env) (connector.Source, error) {
	if _, err := c.Contract(); err != nil {
		return nil, err
	}
	cfg := *c
	sql := sqlgen.Dialect{Text: sqlgen.QuoteText, Bytes: func(hex string) string { return "from_hex('" + hex + "')" }}
	err := connector.ResolveParent(&cfg, env.Parent, map[string]connector.ParentText{
		"path": connector.ParentPath, "query": sql.Parent, "where": sql.Parent,
	})
	if err != nil {
		return nil, err
	}
	return &source{cfg: &cfg, env: env}, nil
}

func (s *source) connect(ctx context.Context) error {
	if s.db == nil {
		d, err := open(ctx, s.cfg.Database, "READ_ONLY", s.env)
		if err != nil {
			return err
		}
		s.db = d
	}
	if s.rels == nil {
		rels, err := s.db.relations(ctx, s.cfg)
		if err != nil {
			return err
		}
		s.rels = rels
	}
	return nil
}

// Discover implements connector.Discoverer.
func (s *source) Discover(ctx context.Context) ([]connector.Dataset, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	out := make([]connector.Dataset, len(s.rels))
	for i, r := range s.rels {
		out[i] = connector.Dataset{Name: r.dataset, Schema: r.schema, Rows: r.rows, Bytes: -1, Patch: map[string]string{"table": r.dataset}}
		if r.query != "" {
			out[i].Patch = map[string]string{"query": r.query, "dataset": r.dataset}
		}
	}
	return out, nil
}

// Start implements connector.Source.
func (s *source) Start(ctx context.Context, st connector.SourceStart) error {
	if err := st.Validate(); err != nil {
		return err
	}
	from := mark{Row: -1}
	if !st.From.Position.Zero() {
		var err error
		if from, err = readMark(st.From.Position); err != nil {
			return err
		}
	}
	for _, c := range st.Cuts {
		m, err := readMark(c)
		if err != nil {
			return err
		}
		s.cuts = append(s.cuts, m)
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	if len(st.Datasets) > 0 {
		s.rels = slices.DeleteFunc(slices.Clone(s.rels), func(r *relation) bool { return !slices.Contains(st.Datasets, r.dataset) })
	}
	return s.seek(ctx, from)
}

// seek installs a position.
func (s *source) seek(ctx context.Context, from mark) error {
	s.at, s.row = 0, -1
	if from.AllDone {
		s.at = len(s.rels)
		return nil
	}
	if from.DuckDB == "" {
		return nil
	}
	s.at = slices.IndexFunc(s.rels, func(r *relation) bool { return r.dataset == from.DuckDB })
	if s.at < 0 {
		return positionError(fmt.Errorf("it stands in dataset %q, which is not there", from.DuckDB))
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	if s.rels[s.at].stored && s.count != from.Rows {
		return positionError(fmt.Errorf("dataset %s had %d rows when it was begun and has %d now, so that row ids may mean "+
			"other rows", from.DuckDB, from.Rows, s.count))
	}
	if s.row, s.emitted = from.Row, true; !s.rels[s.at].stored {
		s.next()
	}
	return nil
}

func positionError(err error) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "duckdb.position", Doing: "duckdb: resuming at a saved position", Err: err,
		Hint: "start over with --restart, or leat state reset",
	}
}

func readMark(p record.Position) (mark, error) {
	var m mark
	if p.Shape != positionShape {
		return m, positionError(fmt.Errorf("it has shape %d, this version reads shape %d", p.Shape, positionShape))
	}
	dec := json.NewDecoder(strings.NewReader(string(p.Data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil || (m.DuckDB == "" && !m.AllDone) {
		return m, positionError(fmt.Errorf("it is not of this source: %s", p.Data))
	}
	return m, nil
}

// Compare implements connector.Positions.
func (*source) Compare(a, b record.Position) (int, bool) {
	x, errX := readMark(a)
	y, errY := readMark(b)
	switch {
	case errX != nil || errY != nil:
		return 0, false
	case x.AllDone || y.AllDone:
		return boolInt(x.AllDone) - boolInt(y.AllDone), true
	case x.DuckDB != y.DuckDB: // datasets are read in the order of their names
		return strings.Compare(x.DuckDB, y.DuckDB), true
	case x.Row < y.Row:
		return -1, true
	case x.Row > y.Row:
		return 1, true
	}
	return 0, true
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Migrate implements connector.Positions.
func (*source) Migrate(p record.Position) (record.Position, error) {
	_, err := readMark(p)
	return p, err
}

// begin looks at the relation that is read next.
func (s *source) begin(ctx context.Context) error {
	r := s.rels[s.at]
	s.began, s.row, s.emitted = true, -1, false
	if !r.stored {
		return nil
	}
	v, err := s.db.rows(ctx, "SELECT coalesce(max(rowid), -1)::VARCHAR, count(*)::VARCHAR FROM "+r.table.sql())
	if err != nil {
		return wrap(err, "counting the rows", r.dataset, "")
	}
	if _, err := fmt.Sscan(v[0][0], &s.last); err != nil {
		return err
	}
	_, err = fmt.Sscan(v[0][1], &s.count)
	return err
}

func (s *source) next() {
	s.at++
	s.began = false
}

func (s *source) position(row int64) (record.Position, error) {
	m := mark{DuckDB: s.rels[s.at].dataset, Row: row, Rows: s.count}
	data, err := json.Marshal(m)
	return record.Position{Shape: positionShape, Data: data}, err
}

// Read implements connector.Source.
func (s *source) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if s.db == nil {
		return nil, errors.New("duckdb: read before start")
	}
	for s.at < len(s.rels) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !s.began {
			if err := s.begin(ctx); err != nil {
				return nil, err
			}
		}
		read := s.readStored
		if !s.rels[s.at].stored {
			read = s.readWhole
		}
		b, err := read(ctx, want)
		if b != nil || err != nil {
			return b, err
		}
	}
	return nil, io.EOF
}

// readStored reads the next page of a table; nil: there was nothing in it.
func (s *source) readStored(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	r := s.rels[s.at]
	if s.row >= s.last {
		if !s.emitted {
			return s.empty()
		}
		s.next()
		return nil, nil //nolint:nilnil // nothing in this page
	}
	to := s.pageEnd(want)
	sql := "SELECT rowid, " + strings.Join(r.casts, ", ") + " FROM " + r.table.sql() + " WHERE rowid > $1 AND rowid <= $2"
	if s.cfg.Where != "" {
		sql += " AND (" + s.cfg.Where + ")"
	}
	s.env.Roundtrip("query")
	rd, err := s.db.arrow.QueryContext(ctx, sql, s.row, to)
	if err != nil {
		return nil, wrap(err, "reading rows", r.dataset, "")
	}
	defer rd.Release()
	b, err := s.collect(rd, r, 0, 1)
	if err != nil {
		return nil, err
	}
	s.row = to
	if b.NumRows() == 0 {
		return nil, nil //nolint:nilnil // nothing in this page
	}
	s.adapt(b, want)
	s.emitted = true
	b.Position, err = s.position(to)
	return b, err
}

// pageEnd is the last row id of the next page: the wanted size, but no further than a cut.
func (s *source) pageEnd(want connector.Limit) int64 {
	span := int64(want.Rows)
	if want.Rows == 0 {
		span = s.last + 1
	} else if s.span > 0 && s.span < span {
		span = s.span
	}
	to := min(s.row+span, s.last)
	for _, c := range s.cuts {
		if c.DuckDB == s.rels[s.at].dataset && c.Row > s.row && c.Row < to {
			to = c.Row
		}
	}
	return to
}

// adapt makes pages of wide rows shorter.
func (s *source) adapt(b *record.Batch, want connector.Limit) {
	if want.Bytes <= 0 {
		return
	}
	perRow := max(b.Bytes()/int64(b.NumRows()), 1)
	s.span = max(want.Bytes/perRow, 1)
}

// readWhole reads the next batch of a view or query, which is one replay unit.
func (s *source) readWhole(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	r := s.rels[s.at]
	if s.open == nil {
		sql := "SELECT " + strings.Join(r.casts, ", ") + " FROM " + r.from()
		if s.cfg.Where != "" {
			sql += " WHERE (" + s.cfg.Where + ")"
		}
		s.env.Roundtrip("query")
		rd, err := s.db.arrow.QueryContext(ctx, sql)
		if err != nil {
			return nil, wrap(err, "reading rows", r.dataset, "")
		}
		s.open = rd
	}
	b, err := s.collect(s.open, r, want.Rows, 0)
	if err != nil {
		return nil, err
	}
	if b.NumRows() > 0 {
		s.emitted = true
		return b, nil
	}
	s.open.Release()
	s.open = nil
	if b.Position, err = s.position(0); err != nil { // the end of the unit
		return nil, err
	}
	s.next()
	return b, nil
}

func (s *source) empty() (*record.Batch, error) {
	p, err := s.position(s.last)
	if err != nil {
		return nil, err
	}
	s.emitted = true
	return &record.Batch{Schema: s.rels[s.at].schema, Position: p}, nil
}

// collect gathers up to rows rows (0: all) of a result whose first skip columns are row ids, and copies them to the Go heap: what
// DuckDB hands out is its own memory. Row ids must grow: that is what positions stand on.
func (s *source) collect(rd array.RecordReader, r *relation, rows, skip int) (*record.Batch, error) {
	n := 0
	parts := make([][]arrow.Array, len(r.casts))
	var held []arrow.RecordBatch
	defer func() {
		for _, rb := range held {
			rb.Release()
		}
	}()
	before := s.row
	for (rows == 0 || n < rows) && rd.Next() {
		rb := rd.RecordBatch()
		rb.Retain()
		held = append(held, rb)
		n += int(rb.NumRows())
		if skip == 1 {
			ids, ok := rb.Column(0).(*array.Int64)
			if !ok {
				return nil, fmt.Errorf("duckdb: %s: row ids are %s", r.dataset, rb.Column(0).DataType())
			}
			for _, id := range ids.Int64Values() {
				if id <= before {
					return nil, fmt.Errorf("duckdb: %s: rows came out of order (%d after %d)", r.dataset, id, before)
				}
				before = id
			}
		}
		for c := range parts {
			parts[c] = append(parts[c], rb.Column(c+skip))
		}
	}
	if err := rd.Err(); err != nil {
		return nil, wrap(err, "reading rows", r.dataset, "")
	}
	b := &record.Batch{Schema: r.schema}
	if n == 0 {
		return b, nil
	}
	cols := make([]arrow.Array, len(parts))
	for c, p := range parts {
		f := r.schema.Columns.Field(c)
		var err error
		if plainCopy(p[0].DataType(), f.Type) {
			cols[c], err = copied(p, f.Type)
		} else {
			cols[c], err = fromDuck(p, f.Type)
		}
		if err != nil {
			return nil, &connector.Error{
				Class: connector.ClassPermanent, Code: "duckdb.value", Doing: "duckdb: reading rows", Dataset: r.dataset,
				Column: f.Name, Err: err,
				Hint: "leave the column out with columns=, or cast it in a query",
			}
		}
	}
	b.Rows = array.NewRecordBatch(r.schema.Columns, cols, int64(n))
	return b, nil
}

// Check implements connector.Checker.
func (s *source) Check(ctx context.Context) ([]connector.Probe, error) {
	if err := s.connect(ctx); err != nil {
		return []connector.Probe{{Name: "open " + s.cfg.Path, Status: connector.Fail, Detail: err.Error(), Fix: connector.HintOf(err)}}, nil
	}
	return []connector.Probe{{Name: "open " + s.cfg.Path, Detail: fmt.Sprintf("%d datasets", len(s.rels))}}, nil
}

// URI implements connector.Named.
func (s *source) URI(dataset string) string { return connector.FileURI(s.cfg.Path, dataset) }

// Close implements connector.Source.
func (s *source) Close(context.Context) error {
	if s.open != nil {
		s.open.Release()
		s.open = nil
	}
	if s.db == nil {
		return nil
	}
	d := s.db
	s.db = nil
	return d.close()
}

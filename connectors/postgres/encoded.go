package postgres

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// formatName begins the names of formats. Rows whose columns have the very same types on both servers need not be decoded: what COPY … TO
// sends is what COPY … FROM takes. Behind it are the numbers of these types, which every server has in common for those that come with it.
const formatName = "pgcopy:"

// lastFixedOID is behind the numbers that are the same in every database; others are given out when a type is made.
const lastFixedOID = 10_000

// Intervals can be infinite since version 17: what stands for infinity is a finite value for older servers.
const (
	infiniteIntervals = 17
	intervalOID       = 1186
	intervalArrayOID  = 1187
)

// wireName names what a server sends and takes for a column of a type; why is set where another server may mean something else by it.
func wireName(oid uint32, major int) (name, why string) {
	switch {
	case oid == 0 || oid >= lastFixedOID:
		return "", "has a type that is another one in each database"
	case (oid == intervalOID || oid == intervalArrayOID) && major >= infiniteIntervals:
		return strconv.Itoa(int(oid)) + "-infinite", ""
	}
	return strconv.Itoa(int(oid)), ""
}

// encoding is the format of the table's rows; empty: why they have to be decoded.
func (t *sourceTable) encoding(major int) (format, why string) {
	if t.utf8 {
		return "", "the source's encoding is SQL_ASCII: its text has to be looked at"
	}
	names := make([]string, len(t.cols))
	for i, c := range t.cols {
		if names[i], why = wireName(c.sent, major); c.expr != ident(c.name) {
			why = "travels as text"
		}
		if why != "" {
			return "", fmt.Sprintf("column %q of the source %s", c.name, why)
		}
	}
	return formatName + strings.Join(names, ","), ""
}

// Encoding implements connector.EncodedSource: tables that are read as a whole.
func (s *Source) Encoding(ctx context.Context, dataset string) (format, why string, err error) {
	if s.cfg.Follow || s.cfg.Cursor != "" {
		return "", "the source looks at the rows to know how far it came", nil
	}
	t, err := s.find(ctx, dataset)
	if err != nil {
		return "", "", err
	}
	return t.format, t.decoded, nil
}

// copyTaker takes a COPY that is written to it.
type copyTaker interface {
	io.Writer
	Finish() error
}

// rowsOf makes batches of a COPY, decoded or not.
func (s *Source) rowsOf(t *sourceTable, emit func(*record.Batch) error) (copyTaker, error) {
	if t.format == "" || !slices.Contains(s.coded, t.dataset) {
		return pgcopy.NewDecoder(t.schema, t.types, pgcopy.DecoderOptions{CheckUTF8: t.utf8}, emit) //nolint:wrapcheck // the caller does
	}
	decode := func(rows []byte) (*record.Batch, error) {
		b, err := pgcopy.DecodeRows(t.schema, t.types, rows)
		if err == nil {
			s.advise(b)
		}
		return b, err //nolint:wrapcheck // record.Batch.Decoded does
	}
	return pgcopy.NewCutter(len(t.cols), pgcopy.DecoderOptions{}, func(rows []byte, ends []int) error {
		e := &record.Encoded{Format: t.format, Data: rows, Ends: ends, Decode: decode}
		return emit(&record.Batch{Schema: t.schema, Encoded: e, Size: int64(len(rows))})
	}), nil
}

// TakesEncoding implements connector.EncodedSink. Where there is no table yet, the one that would be made decides.
func (s *Sink) TakesEncoding(ctx context.Context, schema *record.Schema, format string) (why string, err error) {
	if !strings.HasPrefix(format, formatName) {
		return "the source is no PostgreSQL", nil
	}
	if err := s.connect(ctx); err != nil {
		return "", err
	}
	at, err := s.own(schema.Dataset)
	if err != nil {
		return "", err
	}
	t, err := s.db.describe(ctx, at)
	if err == nil && t == nil {
		t, err = s.db.newlyMade(ctx, schema, at)
	}
	if err != nil {
		return "", s.cfg.wrap("reading the catalogue", err)
	}
	p, err := joinPlan(schema, t)
	if err != nil {
		return "", err
	}
	return p.differs(format, s.db.version()), nil
}

// newlyMade describes a table that is to be made, as far as the types of its columns go.
func (s *session) newlyMade(ctx context.Context, schema *record.Schema, at relation) (*table, error) {
	d, err := s.design(ctx, schema, at)
	if err != nil {
		return nil, err
	}
	types := make([]string, len(d.columns))
	for i, c := range d.columns {
		types[i] = "(" + typeSQL(c.typ) + ")"
	}
	t := &table{at: at, Columns: make([]tableColumn, len(types))}
	var bases []*baseType
	if _, err := s.query(ctx, "types", "SELECT json_build_array("+strings.Join(types, ", ")+")", &bases); err != nil {
		return nil, fmt.Errorf("reading the target's types: %w", err)
	}
	for i, c := range d.columns {
		t.Columns[i] = tableColumn{Name: c.name, Type: c.typ, NotNull: c.notNull}
		if bases[i] != nil { // nil: the type, too, is to be made
			t.Columns[i].Base = *bases[i]
		}
	}
	return t, nil
}

// differs says why rows of the format can't go into the table as they are; empty: they can.
func (p *plan) differs(format string, major int) string {
	names := strings.Split(strings.TrimPrefix(format, formatName), ",")
	if len(names) != p.schema.Columns.NumFields() {
		return "the source sends other columns"
	}
	for i, f := range p.schema.Columns.Fields() {
		at := slices.Index(p.send, i)
		if at < 0 {
			return fmt.Sprintf("the target does not take column %q", f.Name)
		}
		fit := p.fits[at]
		name, _ := wireName(fit.wireOID, major)
		if !fit.direct || name != names[i] {
			return fmt.Sprintf("column %q is %s at the source and %s at the target", f.Name, record.NativeOf(f).Type, fit.Native)
		}
	}
	return ""
}

// writeEncoded appends rows as they came, all of them or none.
func (s *Sink) writeEncoded(ctx context.Context, l load) error {
	if s.start.Mode == connector.Upsert {
		return connector.ErrNeedsRows
	}
	err := s.try(ctx, l, span{to: l.b.NumRows(), try: s.applyEncoded})
	const misread = "08P01" // a value of another length than the server's own
	if e, ok := serverError(err); !oneRow(err) && (!ok || e.Code != misread) {
		return err
	}
	if err := s.undo(ctx, l.d); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", connector.ErrNeedsRows, err)
}

// applyEncoded is the attempt.
func (s *Sink) applyEncoded(ctx context.Context, l load, _, _ int) error {
	d, e := l.d, l.b.Encoded
	if why := d.plan.differs(e.Format, s.db.version()); why != "" {
		return fmt.Errorf("%w: %s", connector.ErrNeedsRows, why)
	}
	rows := io.MultiReader(bytes.NewReader(pgcopy.AppendHeader(nil)), bytes.NewReader(e.Data), bytes.NewReader(pgcopy.AppendTrailer(nil)))
	return s.db.copyFrom(ctx, strings.Join(append(s.lead(d), d.plan.copySQL(d.target)), ";\n"), rows)
}

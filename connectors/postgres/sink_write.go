package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// savepointName is the savepoint in front of each attempt to write rows.
const savepointName = "_leat"

// savepoint is the beginning of an attempt's statements: what was written before it stays, whatever becomes of the attempt.
func (s *Sink) savepoint() string {
	sql := "SAVEPOINT " + savepointName + "; "
	if s.saved {
		sql = "RELEASE SAVEPOINT " + savepointName + "; " + sql
	}
	s.saved = true
	return sql
}

// stageReady makes the stage exist and empties it.
func (s *Sink) stageReady(d *dataset) string {
	sql := ""
	if d.stageTxn != s.txn {
		sql, d.stageTxn = d.stage.createSQL()+"; ", s.txn
	}
	if d.stageFilled {
		sql += "TRUNCATE " + d.stage.name + "; "
	}
	return sql
}

// rowsReader encodes rows while a COPY reads them. Rows that can't be encoded are left out and noted.
type rowsReader struct {
	rows     *pgcopy.Rows
	b        *record.Batch
	at, to   int
	bad      rejects
	buf      []byte
	off      int
	finished bool
}

// chunkBytes is about how much is encoded at a time: what one message of the COPY carries.
const chunkBytes = 64 << 10

// Read implements io.Reader.
func (r *rowsReader) Read(p []byte) (int, error) {
	if r.off == len(r.buf) {
		if r.finished {
			return 0, io.EOF
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buf[r.off:])
	r.off += n
	return n, nil
}

func (r *rowsReader) fill() error {
	first := len(r.buf) == 0
	r.buf, r.off = r.buf[:0], 0
	if first {
		r.buf = pgcopy.AppendHeader(r.buf)
	}
	for len(r.buf) < chunkBytes && r.at < r.to {
		i := r.at
		r.at++
		if r.bad.has(i) {
			continue
		}
		var err error
		if r.buf, err = r.rows.AppendRow(r.buf, i); err != nil {
			if _, ok := errors.AsType[*pgcopy.ValueError](err); !ok {
				return err //nolint:wrapcheck // read by applyCopy alone
			}
			r.bad.add(r.b, i, err)
		}
	}
	if r.at == r.to {
		r.finished = true
		r.buf = pgcopy.AppendTrailer(r.buf)
	}
	return nil
}

// applyCopy appends rows from to to, or fails as a whole.
func (s *Sink) applyCopy(ctx context.Context, l load, from, to int) error {
	d, b, bad := l.d, l.b, l.bad
	rows, err := d.plan.enc.Bind(d.plan.pick(b.Rows))
	if err != nil {
		return fmt.Errorf("reading the rows: %w", err)
	}
	r := &rowsReader{rows: rows, b: b, at: from, to: to, bad: bad, buf: s.buf[:0]}
	defer func() { s.buf = r.buf }()
	sql := fmt.Sprintf("%sCOPY %s (%s) FROM STDIN (FORMAT binary)", s.savepoint(), d.target, idents(d.plan.names()))
	err = s.db.copyFrom(ctx, "copy", sql, r)
	return err
}

// applyStaged appends rows from to to through the stage, where the server casts them, or fails as a whole.
func (s *Sink) applyStaged(ctx context.Context, l load, from, to int) error {
	d, b, bad := l.d, l.b, l.bad
	rows, err := d.plan.enc.Bind(d.plan.pick(b.Rows))
	if err != nil {
		return fmt.Errorf("reading the rows: %w", err)
	}
	e := tupleEncoder{c: &compactor{p: d.plan, b: b}, rows: rows}
	s.buf = pgcopy.AppendHeader(s.buf[:0])
	for i := from; i < to; i++ {
		if bad.has(i) {
			continue
		}
		if s.buf, err = e.appendChange(s.buf, &change{last: i}, stageUpsert, 0); err != nil {
			bad.add(b, i, err)
		}
	}
	s.buf = pgcopy.AppendTrailer(s.buf)
	sql := s.savepoint() + s.stageReady(d) + d.stage.copySQL()
	if err := s.db.copyFrom(ctx, "copy", sql, bytes.NewReader(s.buf)); err != nil {
		return err
	}
	d.stageFilled = true
	err = s.db.exec(ctx, "insert", d.stage.appendSQL())
	return err
}

// load is a batch on its way into its dataset's table.
type load struct {
	d   *dataset
	b   *record.Batch
	bad rejects // what was refused so far
}

// attempt writes a run of rows as a whole or not at all.
type attempt func(ctx context.Context, l load, from, to int) error

// isolate writes rows from to to; where the server refuses one, it finds it and writes the others. lines: the number that a COPY's
// error gives counts the batch's own rows.
func (s *Sink) isolate(ctx context.Context, l load, span span) error {
	d, b, bad := l.d, l.b, l.bad
	for !span.empty() {
		err := span.try(ctx, l, span.from, span.to)
		if err == nil {
			return nil
		}
		refused, ok := rowRefused(err)
		if !ok {
			return err
		}
		if err := s.db.exec(ctx, "rollback", "ROLLBACK TO SAVEPOINT "+savepointName); err != nil {
			return err
		}
		d.stageFilled, d.stageTxn = true, 0 // nobody knows: it is made and emptied again
		if len(bad) >= maxRejects {
			return tooMany(b, bad)
		}
		if span.to-span.from == 1 {
			if bad[span.from], err = s.refuse(ctx, d, b, span.from, refused); err != nil {
				return err
			}
			return nil
		}
		first, row := span, -1
		if line, ok := copyLine(refused); ok && span.lines {
			row = nthRow(span.from, span.to, line, bad)
		}
		if row < 0 {
			first.to = span.from + (span.to-span.from)/2
			span.from = first.to
		} else {
			first.to, span.from = row, row+1
		}
		if err := s.isolate(ctx, l, first); err != nil {
			return err
		}
		if row >= 0 {
			if bad[row], err = s.refuse(ctx, d, b, row, refused); err != nil {
				return err
			}
		}
	}
	return nil
}

// span is a run of rows and the way to write them.
type span struct {
	from, to int
	lines    bool
	try      attempt
}

func (s span) empty() bool { return s.from >= s.to }

// nthRow returns the row that was sent as number n, or -1.
func nthRow(from, to, n int, skipped rejects) int {
	for i := from; i < to; i++ {
		if skipped.has(i) {
			continue
		}
		if n--; n == 0 {
			return i
		}
	}
	return -1
}

// writeRows chooses the way for a batch, and returns the rows that were refused.
func (s *Sink) writeRows(ctx context.Context, d *dataset, b *record.Batch) (rejects, error) {
	bad := rejects{}
	l := load{d: d, b: b, bad: bad}
	all := span{to: b.NumRows()}
	switch {
	case s.start.Mode == connector.Upsert || b.Ops != nil && !onlyInserts(b):
		if s.start.Mode == connector.Append {
			return nil, &connector.Error{
				Class: connector.ClassConfig, Code: "postgres.append", Dataset: b.Schema.Dataset,
				Doing: "appending to " + d.target.String(), Err: errors.New("the batch has updates or deletes"), Hint: "use --mode upsert",
			}
		}
		if err := d.plan.mergeable(); err != nil {
			return nil, err
		}
		all.try = s.applyMerge
		if !d.plan.bytewise {
			return bad, s.oneByOne(ctx, l)
		}
	case d.plan.direct:
		all.try, all.lines = s.applyCopy, true
	default:
		all.try = s.applyStaged
	}
	return bad, s.isolate(ctx, l, all)
}

// oneByOne writes each row on its own, where only the server can tell which keys are equal (1.0 and 1.00, A and a).
func (s *Sink) oneByOne(ctx context.Context, l load) error {
	for i := range l.b.NumRows() {
		if err := s.isolate(ctx, l, span{from: i, to: i + 1, try: s.applyMerge}); err != nil {
			return err
		}
	}
	return nil
}

func onlyInserts(b *record.Batch) bool {
	for _, op := range b.Ops {
		if op != record.Insert {
			return false
		}
	}
	return true
}

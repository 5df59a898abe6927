package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/fold"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/record"
)

// stageReady are the statements that make the stage exist and empty it.
func (s *Sink) stageReady(d *dataset) []string {
	var out []string
	if d.stageTxn != s.txn {
		out, d.stageTxn = append(out, d.stage.createSQL()), s.txn
	}
	if d.stageFilled {
		out = append(out, "TRUNCATE "+d.stage.name)
	}
	return out
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
	return s.db.copyFrom(ctx, strings.Join(append(s.lead(d), d.plan.copySQL(d.target)), ";\n"), r)
}

// copySQL appends the columns that are sent to a table.
func (p *plan) copySQL(into relation) string {
	return fmt.Sprintf("COPY %s (%s) FROM STDIN (FORMAT binary)", into, idents(p.names()))
}

// applyStaged appends rows from to to through the stage, where the server casts them, or fails as a whole.
func (s *Sink) applyStaged(ctx context.Context, l load, from, to int) error {
	d, b, bad := l.d, l.b, l.bad
	rows, err := d.plan.enc.Bind(d.plan.pick(b.Rows))
	if err != nil {
		return fmt.Errorf("reading the rows: %w", err)
	}
	m := &merge{st: d.stage, p: d.plan, images: &keyedRows{rows: rows}, buf: pgcopy.AppendHeader(s.buf[:0]), counts: map[int]int{}}
	for i := from; i < to; i++ {
		if bad.has(i) {
			continue
		}
		if err := m.encode(&fold.Change{Last: i}, stageUpsert, 0); err != nil {
			bad.add(b, i, err)
		}
	}
	s.buf = pgcopy.AppendTrailer(m.buf)
	if len(m.tuples) == 0 {
		return nil
	}
	statements := append(s.lead(d), s.stageReady(d)...)
	statements = append(statements, d.stage.copySQL(), d.stage.appendSQL(d.stage.staged(stageUpsert)))
	if err := s.db.copyFrom(ctx, strings.Join(statements, ";\n"), bytes.NewReader(s.buf)); err != nil {
		return err
	}
	d.stageFilled = true
	return nil
}

// load is a batch on its way into its dataset's table.
type load struct {
	d   *dataset
	b   *record.Batch
	bad rejects // what was refused so far
}

// attempt writes a run of rows as a whole or not at all.
type attempt func(ctx context.Context, l load, from, to int) error

// isolate writes rows from to to; where the server refuses one, it finds it and writes the others.
func (s *Sink) isolate(ctx context.Context, l load, span span) error {
	for !span.empty() {
		err := s.try(ctx, l, span)
		if err == nil {
			return nil
		}
		if !oneRow(err) {
			return err
		}
		if err := s.undo(ctx, l.d); err != nil {
			return err
		}
		if len(l.bad) >= maxRejects {
			return tooMany(l.b, l.bad)
		}
		if span.to-span.from == 1 {
			return s.setAside(ctx, l, span.from, err)
		}
		first, row := span, span.culprit(err, l.bad)
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
			if err := s.setAside(ctx, l, row, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// oneRow reports whether an attempt failed for one of its rows: another one may well be taken.
func oneRow(err error) bool {
	_, refused := rowRefused(err)
	_, noImage := errors.AsType[noImageError](err)
	return refused || noImage
}

// setAside notes why row i can't be written.
func (s *Sink) setAside(ctx context.Context, l load, i int, why error) error {
	refused, ok := rowRefused(why)
	switch {
	case !ok:
		l.bad.add(l.b, i, why)
	case refused.Code == foreignKeyViolation && s.start.Mode == connector.Upsert:
		return why // another row is missing, and setting this one aside would only hide it
	default:
		row, err := s.refuse(ctx, l.d, l.b, i, refused)
		if err != nil {
			return err
		}
		l.bad[i] = row
	}
	return nil
}

// span is a run of rows and the way to write them.
type span struct {
	from, to int
	lines    bool // the number that a COPY's error gives counts the batch's own rows
	try      attempt
}

// culprit returns the row that an error names, or -1.
func (s span) culprit(err error, skipped rejects) int {
	if refused, ok := rowRefused(err); ok && s.lines {
		if line, ok := copyLine(refused); ok {
			return nthRow(s.from, s.to, line, skipped)
		}
	}
	return -1
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
	if b.Encoded != nil {
		return nil, s.writeEncoded(ctx, l)
	}
	all := span{to: b.NumRows()}
	keyless := len(b.Schema.Key) == 0
	switch {
	case onlyInserts(b) && (s.start.Mode != connector.Upsert || keyless):
		all.try, all.lines = s.applyStaged, false
		if d.plan.direct {
			all.try, all.lines = s.applyCopy, true
		}
	case s.start.Mode == connector.Append:
		return nil, appendOnly(d)
	case keyless:
		return bad, s.writeImages(ctx, l)
	default:
		if err := d.plan.mergeable(); err != nil {
			return nil, err
		}
		if done, err := s.writeFresh(ctx, l); done || err != nil {
			return bad, err
		}
		all.try = s.applyMerge
		if !d.plan.bytewise {
			return bad, s.oneByOne(ctx, l)
		}
	}
	return bad, s.isolate(ctx, l, all)
}

// writeFresh appends rows of a snapshot, which the target does not have as a rule: that is several times as fast as writing them by
// key. Where it has one of them, nothing is written, and the dataset's rows go by key from then on.
func (s *Sink) writeFresh(ctx context.Context, l load) (done bool, err error) {
	d := l.d
	if l.b.Chunk == nil || d.contested || !d.plan.direct || !onlyInserts(l.b) {
		return false, nil
	}
	if err = s.try(ctx, l, span{to: l.b.NumRows(), try: s.applyCopy}); err == nil {
		return true, nil
	}
	refused, ok := rowRefused(err)
	if !ok {
		return false, err
	}
	if err := s.undo(ctx, d); err != nil {
		return false, err
	}
	clear(l.bad)
	d.contested = refused.Code == uniqueViolation
	return false, nil
}

// oneByOne writes each row on its own, where only the server can tell which keys are equal (A and a).
func (s *Sink) oneByOne(ctx context.Context, l load) error {
	const together = 200 // in one message
	for from := 0; from < l.b.NumRows(); from += together {
		err := s.isolate(ctx, l, span{from: from, to: min(from+together, l.b.NumRows()), try: s.applyEach})
		if err != nil {
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

package mysql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	gosql "github.com/go-sql-driver/mysql"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Sizes of what is sent at a time.
const (
	statementBytes = 1 << 20 // about; a statement is parsed as a whole
	fileRows       = 1_000   // from here on rows go in a file where that is allowed
	fileChunk      = 64 << 10
)

// load is a batch on its way into its dataset's table.
type load struct {
	d   *dataset
	b   *record.Batch
	bad rejects // what was refused so far
}

// rowSpan is a run of rows and the way to write them, as a whole or not at all. lead stands in front of the first statement.
type rowSpan struct {
	from, to int
	try      func(ctx context.Context, l load, lead []string, from, to int) error
}

func (s rowSpan) empty() bool { return s.from >= s.to }

// writeRows chooses the way for a batch, and adds the rows that were refused to l.bad.
func (s *Sink) writeRows(ctx context.Context, l load) error {
	d, b := l.d, l.b
	all := rowSpan{to: b.NumRows()}
	keyless := len(b.Schema.Key) == 0
	switch {
	case onlyInserts(b) && (s.start.Mode != connector.Upsert || keyless):
		return s.appendRows(ctx, l)
	case s.start.Mode == connector.Append:
		return appendOnly(d)
	case keyless:
		return s.writeImages(ctx, l)
	}
	if err := d.plan.mergeable(); err != nil {
		return err
	}
	if done, err := s.writeFresh(ctx, l); done || err != nil {
		return err
	}
	all.try = s.applyMerge
	return s.isolate(ctx, l, all)
}

func onlyInserts(b *record.Batch) bool {
	for _, op := range b.Ops {
		if op != record.Insert {
			return false
		}
	}
	return true
}

// appendRows adds rows: many in a file where the server allows that, else in statements. What a file is refused for goes in statements
// too, since the server goes on behind a line that it can't take.
func (s *Sink) appendRows(ctx context.Context, l load) error {
	all := rowSpan{to: l.b.NumRows(), try: s.applyFile}
	if s.db.load && l.d.plan.file && all.to >= fileRows {
		err := s.try(ctx, l, all)
		if err == nil || !oneRow(err) {
			return err
		}
		if err := s.undo(ctx, l.d); err != nil {
			return err
		}
	}
	all.try = s.applyInsert
	return s.isolate(ctx, l, all)
}

// writeFresh appends rows of a snapshot, which the target does not have as a rule: that is faster than writing them by key. Where it has
// one of them, nothing is written, and the dataset's rows go by key from then on.
func (s *Sink) writeFresh(ctx context.Context, l load) (done bool, err error) {
	if l.b.Chunk == nil || l.d.contested || !onlyInserts(l.b) {
		return false, nil
	}
	all := rowSpan{to: l.b.NumRows(), try: s.applyInsert}
	if s.db.load && l.d.plan.file && all.to >= fileRows {
		all.try = s.applyFile
	}
	if err = s.try(ctx, l, all); err == nil {
		return true, nil
	}
	if !oneRow(err) {
		return false, err
	}
	if err := s.undo(ctx, l.d); err != nil {
		return false, err
	}
	l.d.contested = duplicate(err)
	return false, nil
}

// isolate writes a run of rows; where the server refuses one, it finds it and writes the others.
func (s *Sink) isolate(ctx context.Context, l load, span rowSpan) error {
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
			return s.setAside(l, span.from, err)
		}
		first, row := span, culprit(err)
		if row < span.from || row >= span.to {
			first.to = span.from + (span.to-span.from)/2
			span.from, row = first.to, -1
		} else {
			first.to, span.from = row, row+1
		}
		if err := s.isolate(ctx, l, first); err != nil {
			return err
		}
		if row >= 0 {
			if err := s.setAside(l, row, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowsError is an error of a statement with several rows.
type rowsError struct {
	rows []int // of the batch, in the order of the statement
	err  error
}

func (e *rowsError) Error() string { return e.err.Error() }
func (e *rowsError) Unwrap() error { return e.err }

// inserting builds statements that write rows, each about so large.
type inserting struct {
	op         string
	lead       []string // stands in front of the first one
	head, tail string
	limit      int // most bytes of a statement
	buf        []byte
	rows       []int
	row        []byte
}

// add appends a row; false: the statement is full, and has to be sent first.
func (x *inserting) add(row []byte, i int) bool {
	if len(x.rows) > 0 && (len(x.buf)+len(row)+len(x.tail)+1 > x.limit || len(x.buf) > statementBytes) {
		return false
	}
	if len(x.rows) == 0 {
		x.buf = append(x.buf[:0], x.head...)
	} else {
		x.buf = append(x.buf, ',')
	}
	x.buf, x.rows = append(x.buf, row...), append(x.rows, i)
	return true
}

// flush sends what was added.
func (s *Sink) flush(ctx context.Context, x *inserting) error {
	if len(x.rows) == 0 {
		return nil
	}
	x.buf = append(x.buf, x.tail...)
	if err := s.db.write(ctx, x.op, append(x.lead, string(x.buf))...); err != nil {
		return &rowsError{rows: x.rows, err: err}
	}
	x.lead, x.rows = nil, x.rows[:0]
	return nil
}

// reserve is what a message has besides its largest statement.
const reserve = 4 << 10

func (s *Sink) inserting(op string, lead []string, head, tail string) *inserting {
	return &inserting{op: op, lead: lead, head: head, tail: tail, limit: s.db.packet - reserve, buf: s.buf}
}

// tooLarge reports why a row can't be sent, or nil.
func (x *inserting) tooLarge(size int) error {
	if size+len(x.head)+len(x.tail) <= x.limit {
		return nil
	}
	return fmt.Errorf("the row has %d bytes, and a message to the server at most %d: raise max_allowed_packet there", size, x.limit+reserve)
}

// applyInsert appends rows from to to by statements.
func (s *Sink) applyInsert(ctx context.Context, l load, lead []string, from, to int) error {
	cells, err := l.d.plan.bind(l.b.Rows, false)
	if err != nil {
		return err
	}
	x := s.inserting("insert", lead, l.d.plan.insertSQL(l.d.target)+" VALUES ", "")
	defer func() { s.buf = x.buf }()
	for i := from; i < to; i++ {
		if l.bad.has(i) {
			continue
		}
		x.row, err = cells.tuple(x.row[:0], i)
		if err == nil {
			err = x.tooLarge(len(x.row))
		}
		if err != nil {
			l.bad.add(l.b, i, err)
			continue
		}
		if err := s.send(ctx, x, i); err != nil {
			return err
		}
	}
	return s.flush(ctx, x)
}

// insertSQL is the beginning of an insert.
func (p *plan) insertSQL(into relation) string {
	return "INSERT INTO " + into.String() + " (" + idents(p.names()) + ")"
}

// rowsReader writes rows while the driver reads them as a file. Rows that can't be written are left out and noted.
type rowsReader struct {
	cells  rowCells
	l      load
	at, to int
	sent   int
	buf    []byte
	off    int
}

// Read implements io.Reader.
func (r *rowsReader) Read(p []byte) (int, error) {
	if r.off == len(r.buf) {
		if r.at == r.to {
			return 0, io.EOF
		}
		r.fill()
	}
	n := copy(p, r.buf[r.off:])
	r.off += n
	return n, nil
}

func (r *rowsReader) fill() {
	r.buf, r.off = r.buf[:0], 0
	for len(r.buf) < fileChunk && r.at < r.to {
		i := r.at
		r.at++
		if r.l.bad.has(i) {
			continue
		}
		line, err := r.cells.line(r.buf, i)
		r.buf = line
		if err != nil {
			r.l.bad.add(r.l.b, i, err)
			continue
		}
		r.sent++
	}
}

// errFile is a file of which lines were not taken as they are.
var errFile = errors.New("the server did not take every line of a file")

// applyFile appends rows from to to as a file, or fails as a whole. The server turns errors of lines into warnings.
func (s *Sink) applyFile(ctx context.Context, l load, lead []string, from, to int) error {
	cells, err := l.d.plan.bind(l.b.Rows, false)
	if err != nil {
		return err
	}
	r := &rowsReader{cells: cells, l: l, at: from, to: to, buf: s.buf[:0]}
	r.buf, r.off = r.buf[:0], 0
	defer func() { s.buf, s.file = r.buf[:0], nil }()
	s.file = r
	if s.reader == "" {
		s.reader = fmt.Sprintf("leat-%p", s)
		gosql.RegisterReaderHandler(s.reader, func() io.Reader { return s.file })
	}
	if len(lead) > 0 {
		if _, err := s.db.run(ctx, "begin", lead...); err != nil {
			return err
		}
	}
	sql := strings.Join([]string{
		"LOAD DATA LOCAL INFILE 'Reader::" + s.reader + "' INTO TABLE", l.d.target.String(), "CHARACTER SET binary",
		`FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n'`, "(" + idents(l.d.plan.names()) + ")",
	}, " ")
	s.env.Roundtrip("load")
	done, err := s.db.conn.ExecContext(ctx, sql)
	if err != nil {
		return err //nolint:wrapcheck // callers say what was being done
	}
	taken, err := done.RowsAffected()
	if err != nil {
		return err //nolint:wrapcheck // likewise
	}
	results, err := s.db.run(ctx, "warnings", "SELECT @@warning_count")
	if err != nil {
		return err
	}
	if taken != int64(r.sent) || results[0].number() != 0 {
		return errFile
	}
	return nil
}

// forgetReader takes the reader of files out of the driver's own table.
func (s *Sink) forgetReader() {
	if s.reader != "" {
		gosql.DeregisterReaderHandler(s.reader)
	}
}

// inList is a condition on a column of numbers.
func inList(expr string, numbers []int) string {
	return fmt.Sprintf("%s IN (%s)", expr, strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]"))
}

package records

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/leatdata/leat/record"
)

// Row is where Poll puts one record: Begin says which dataset it is of, the setters of Values append its columns. What is not set is null.
//
// A value that its column can't hold makes the record a reject, with column, value and reason: it is set aside, or stops the run, as the
// pipeline says. So setters return nothing. A mistake of the program (no such column, a column set twice, the wrong setter) is an
// error that ends the run.
type Row struct {
	Values

	rows *gathering
	to   *building // nil: Begin was not called
	old  *Values   // nil: no image before
	more bool
	raw  []byte
	line int64
	off  int64
	why  *record.Reject // given by Reject
}

// Begin starts the record: it is of the schema's dataset, and op says what happened. A source uses one *record.Schema for a dataset for as
// long as its columns don't change. Of a delete, the key columns are enough.
func (r *Row) Begin(s *record.Schema, op record.Op) {
	if r.to != nil {
		r.mistake(errors.New("a record was begun twice"))
		return
	}
	r.to = r.rows.of(s)
	r.to.start(op)
	r.Values = Values{to: r.to.rows, schema: s, done: r.to.done}
}

// Old returns the setters for the image before the record; columns that are not set are not known.
func (r *Row) Old() *Values {
	if r.to == nil {
		r.mistake(errors.New("an image before was begun before its record"))
		return &r.Values
	}
	if r.old == nil {
		r.old = &Values{to: r.to.before(), schema: r.to.schema, done: make([]bool, r.to.schema.Columns.NumFields())}
	}
	return r.old
}

// Unchanged says that the source did not send the value of a column, which stays what it was at the target. It is not null.
func (r *Row) Unchanged(col int) {
	if b := r.take(col); b != nil {
		b.AppendNull()
		r.to.unsent(col)
	}
}

// More says that the unit goes on with the next record: a transaction, a message of many records. No position lies between them.
func (r *Row) More() { r.more = true }

// Raw notes the record as the source has it, and where it stood (0: not known), for people who look at it once it was rejected. The bytes
// are copied only then.
func (r *Row) Raw(raw []byte, line, offset int64) { r.raw, r.line, r.off = raw, line, offset }

// Reject says that the record can't be read: class is such as bad_syntax, message says why. Begin was called, so that its dataset is known.
func (r *Row) Reject(class, message string) {
	if r.to == nil {
		r.mistake(errors.New("a record was rejected before it was begun"))
		return
	}
	r.why = &record.Reject{Class: class, Message: message}
}

// begin prepares the row for one Poll.
func (r *Row) begin(g *gathering) { *r = Row{rows: g} }

// drop takes back what a Poll that found nothing has begun. The error is a mistake of the source.
func (r *Row) drop() error {
	if r.to != nil {
		r.to.finish(r, false)
		return errors.New("a poll found nothing, and has begun a record")
	}
	return r.wrong
}

// end completes the record.
func (r *Row) end() error {
	if r.to == nil {
		r.mistake(errors.New("a poll found a record, and has not begun it"))
		return r.wrong
	}
	if r.old != nil && r.wrong == nil {
		r.wrong = r.old.wrong
	}
	if r.wrong != nil {
		err := fmt.Errorf("dataset %s: %w", r.to.schema.Dataset, r.wrong)
		r.to.finish(r, false)
		return err
	}
	if r.why == nil {
		if r.why = r.bad; r.why == nil && r.old != nil {
			r.why = r.old.bad
		}
	}
	r.to.finish(r, r.why == nil)
	if r.why != nil {
		r.to.reject(r.reject())
	}
	return nil
}

func (r *Row) reject() record.Reject {
	bad := *r.why
	bad.Dataset, bad.Line, bad.Offset, bad.Raw = r.to.schema.Dataset, r.line, r.off, bytes.Clone(r.raw)
	return bad
}

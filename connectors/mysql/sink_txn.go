package mysql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/leatdata/leat/connector"
)

// savepointName is the savepoint in front of an attempt to write rows, where the transaction holds something already.
const savepointName = "_leat"

// opening returns the statements that make sure of a transaction. Whoever sends them sets kept where what was done stays, and calls
// undo, or gives up the value, after an error.
func (s *Sink) opening() []string {
	if s.open {
		return nil
	}
	s.open, s.kept, s.saved = true, false, false
	s.txn++
	return []string{"START TRANSACTION"}
}

// explain wraps an error of the server, and adds what is known of a sink's errors alone.
func (s *Sink) explain(doing string, err error) error {
	if e, ok := serverErrorOf(err); ok && foreignKey(e) {
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "mysql.foreign_key", Doing: doing, Err: e,
			Hint: "the changes of a stream come table by table: write without constraints, constraints=off, or drop the foreign key",
		}
	}
	return s.cfg.wrap(doing, err)
}

// foreignKey reports whether a row refers to one that is not there, or the other way round.
func foreignKey(e *serverError) bool {
	switch e.number {
	case 1216, 1217, 1451, 1452:
		return true
	}
	return false
}

// changedError is a table that is no longer what the plan says.
type changedError struct{ at relation }

func (e changedError) Error() string { return fmt.Sprintf("%s was altered", e.at) }

// lead returns the statements that an attempt to write rows begins with: a transaction, or a savepoint in front of what it holds. In a
// transaction's first attempt it locks the definition of the table, for as long as the transaction is open, and proves that it still is
// what the plan says: a column that meanwhile has another type could take values in that are not what was sent.
func (s *Sink) lead(ctx context.Context, d *dataset) ([]string, error) {
	out := s.opening()
	if len(out) == 0 && s.kept {
		if s.saved {
			out = append(out, "RELEASE SAVEPOINT "+savepointName)
		}
		s.saved = true
		out = append(out, "SAVEPOINT "+savepointName)
	}
	if d.checked == s.txn {
		return out, nil
	}
	d.checked = s.txn
	out = append(out, fmt.Sprintf("SELECT 1 FROM %s LIMIT 0", d.target), "SHOW CREATE TABLE "+d.target.String())
	results, err := s.db.run(ctx, "begin", out...)
	if err != nil {
		return nil, err
	}
	if shapeOf(results[len(results)-1]) != d.plan.table.shape {
		return nil, changedError{d.target}
	}
	return nil, nil
}

// undo takes back what an attempt did, and nothing of what was there before it.
func (s *Sink) undo(ctx context.Context, d *dataset) error {
	if s.kept {
		_, err := s.db.run(ctx, "rollback", "ROLLBACK TO SAVEPOINT "+savepointName)
		return err
	}
	d.checked = 0
	return s.rollback(ctx)
}

func (s *Sink) rollback(ctx context.Context) error {
	s.open = false
	_, err := s.db.run(ctx, "rollback", "ROLLBACK")
	return err
}

// maxReplans bounds how often a table may change between a look at it and the write.
const maxReplans = 5

// try makes an attempt, again where the table turned out to be another one than the plan says. Where it fails it did nothing, and undo
// was not called yet.
func (s *Sink) try(ctx context.Context, l load, span rowSpan) error {
	for range maxReplans {
		err := s.attempt(ctx, l, span)
		if err == nil {
			s.kept = true
			return nil
		}
		if _, changed := errors.AsType[changedError](err); !changed && !droppedTable(err) {
			return err
		}
		if err := s.undo(ctx, l.d); err != nil {
			return err
		}
		l.d.checked = 0
		if gone := s.look(ctx, l.d); gone != nil {
			return errors.Join(gone, err)
		}
		if err := s.replan(l.d, l.b.Schema); err != nil {
			return err
		}
	}
	return &connector.Error{
		Class: connector.ClassTransient, Code: "mysql.schema_changed", Doing: "writing to " + l.d.target.String(), Dataset: l.d.name,
		Err: errors.New("the table is altered all the time"),
	}
}

func (s *Sink) attempt(ctx context.Context, l load, span rowSpan) error {
	lead, err := s.lead(ctx, l.d)
	if err != nil {
		return err
	}
	return span.try(ctx, l, lead, span.from, span.to)
}

func droppedTable(err error) bool {
	e, ok := serverErrorOf(err)
	return ok && (e.number == errNoTable || e.number == errDefinition)
}

// commit ends the transaction behind the given statements.
func (s *Sink) commit(ctx context.Context, last ...string) error {
	_, err := s.db.run(ctx, "commit", append(append(s.opening(), last...), "COMMIT")...)
	if err == nil {
		s.open = false
		s.settled(ctx)
		return nil
	}
	if notSo(err) {
		return s.poison(ctx, fenced("committing"))
	}
	if _, aborted := serverErrorOf(err); aborted {
		return s.poison(ctx, s.explain("committing", err))
	}
	return s.poison(ctx, &connector.Error{
		Class: connector.ClassOutcome, Code: "mysql.outcome", Doing: "committing", Err: s.cfg.redact(err),
		Hint: "whether the transaction was committed is read back on the next start",
	})
}

// settled forgets what the transaction held, and changes tables that had to wait for its end. A default that stays behind does no harm.
func (s *Sink) settled(ctx context.Context) {
	clear(s.redo)
	s.redo = s.redo[:0]
	if len(s.after) == 0 {
		return
	}
	if err := s.define(ctx, s.after...); err != nil {
		s.env.Log.WarnContext(ctx, "a default of a column stays", slog.Any("error", err))
	}
	for _, d := range s.datasets {
		d.checked, d.table = 0, nil // it is looked at again
	}
	s.after = nil
}

// again rolls the open transaction back, calls f, which changes a table that the transaction is in the way of, and writes what the
// transaction held once more.
func (s *Sink) again(ctx context.Context, f func() error) error {
	held := s.redo
	s.redo = nil
	if s.open {
		if err := s.rollback(ctx); err != nil {
			return err
		}
	}
	for _, d := range s.datasets {
		clear(d.displaced)
	}
	if err := f(); err != nil {
		return err
	}
	for _, w := range held {
		if err := s.rewrite(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// rewrite writes a batch once more. Its columns may be called something else by now, and some may be gone.
func (s *Sink) rewrite(ctx context.Context, w written) error {
	if err := s.replanOlder(ctx, w.d, w.b.Schema); err != nil {
		return err
	}
	refused := len(w.bad)
	bad, err := s.apply(ctx, w.d, w.b, w.bad)
	if err != nil {
		return err
	}
	if len(bad) > refused { // whoever gave the batch knows nothing of it
		return &connector.Error{
			Class: connector.ClassTransient, Code: "mysql.rewrite", Doing: "writing to " + w.d.target.String(), Dataset: w.d.name,
			Err: errors.New("rows that were taken are refused since the table was changed"),
		}
	}
	s.redo = append(s.redo, w)
	return nil
}

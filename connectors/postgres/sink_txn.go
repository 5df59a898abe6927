package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leatdata/leat/connector"
)

// savepointName is the savepoint in front of an attempt to write rows, where the transaction holds something already.
const savepointName = "_leat"

// settings decide how values are cast to and from text, and that a commit survives loss of power. They are made once, where the session
// is this sink's alone, or else in each transaction, so that a pooler's next user does not see them.
func (s *Sink) settings(set string) []string {
	out := []string{
		"client_min_messages = warning", "bytea_output = hex", "DateStyle = 'ISO, YMD'", "TimeZone = 'UTC'", "IntervalStyle = postgres",
		"extra_float_digits = 3", "statement_timeout = 0", "idle_in_transaction_session_timeout = 0",
		"synchronous_commit = " + s.synchronous,
	}
	const transactionTimeouts = 17
	if s.db.version() >= transactionTimeouts {
		out = append(out, "transaction_timeout = 0")
	}
	for i, setting := range out {
		out[i] = set + " " + setting
	}
	return out
}

// beginStatements open a transaction.
func (s *Sink) beginStatements() []string {
	out := []string{"BEGIN ISOLATION LEVEL READ COMMITTED"}
	if !s.db.direct {
		out = append(out, s.settings("SET LOCAL")...)
	}
	out = append(out, "SET CONSTRAINTS ALL DEFERRED")
	if s.cfg.Constraints == constraintsOff {
		out = append(out, "SET LOCAL session_replication_role = replica")
	}
	return out
}

// opening returns the statements that make sure of a transaction. Whoever sends them sets kept where what was done stays, and calls
// undo, or gives up the value, after an error.
func (s *Sink) opening() []string {
	if s.open {
		return nil
	}
	s.open, s.kept, s.saved = true, false, false
	s.txn++
	for _, d := range s.datasets {
		d.stageFilled = false // ON COMMIT DELETE ROWS
	}
	return s.beginStatements()
}

// begin opens a transaction where none is open.
func (s *Sink) begin(ctx context.Context) error {
	statements := s.opening()
	if len(statements) == 0 {
		return nil
	}
	if err := s.db.exec(ctx, "begin", strings.Join(statements, ";\n")); err != nil {
		return s.explain("opening a transaction", err)
	}
	return nil
}

// explain wraps an error of the server, and adds what is known of a sink's errors alone.
func (s *Sink) explain(doing string, err error) error {
	if e, ok := serverError(err); ok {
		known := &connector.Error{Doing: doing, Err: serverMessage(e)}
		switch {
		case e.Code == "42501" && strings.Contains(e.Message, "session_replication_role"):
			known.Class, known.Code, known.Hint = connector.ClassConfig, "postgres.privilege", replicaGrant("<the sink's user>")
			return known
		case e.Code == foreignKeyViolation:
			known.Class, known.Code, known.Hint = connector.ClassPermanent, "postgres.foreign_key", foreignKeyHint(e.ConstraintName)
			return known
		}
	}
	return s.cfg.wrap(doing, err)
}

// SQLSTATEs of a row without the row that it refers to, and of a second row of one key.
const (
	foreignKeyViolation = "23503"
	uniqueViolation     = "23505"
)

// replicaGrant is what an administrator types for the option constraints=off.
func replicaGrant(user string) string {
	return fmt.Sprintf("as an administrator, PostgreSQL 15 and newer: GRANT SET ON PARAMETER session_replication_role TO %s; "+
		"before: ALTER ROLE %[1]s SUPERUSER; or leave the option out: constraints=hold", user)
}

// foreignKeyHint says how rows can be written that break a foreign key for a moment.
func foreignKeyHint(constraint string) string {
	return fmt.Sprintf("have it checked at the commit only: ALTER TABLE … ALTER CONSTRAINT %s DEFERRABLE; or write without constraints: "+
		"constraints=off", ident(constraint))
}

// lead returns the statements that an attempt to write rows begins with: a transaction, or a savepoint in front of what it holds, and
// the proof that the table still is what the plan says.
func (s *Sink) lead(d *dataset) []string {
	out := s.opening()
	if len(out) == 0 && s.kept {
		if s.saved {
			out = append(out, "RELEASE SAVEPOINT "+savepointName)
		}
		s.saved = true
		out = append(out, "SAVEPOINT "+savepointName)
	}
	if d.checked != s.txn {
		d.checked = s.txn
		const foreignTable = "f" // can't be locked
		if d.table.Kind != foreignTable {
			out = append(out, "LOCK TABLE ONLY "+d.target.String()+" IN ROW EXCLUSIVE MODE")
		}
		out = append(out, d.plan.table.sameSQL())
	}
	return out
}

// undo takes back what an attempt did, and nothing of what was there before it.
func (s *Sink) undo(ctx context.Context, d *dataset) error {
	d.stageFilled, d.stageTxn, d.checked = true, 0, 0 // made, emptied and proven again
	if s.kept {
		return s.db.exec(ctx, "rollback", "ROLLBACK TO SAVEPOINT "+savepointName)
	}
	s.open = false
	return s.db.exec(ctx, "rollback", "ROLLBACK")
}

// maxReplans bounds how often a table may change between a look at it and the write.
const maxReplans = 5

// try makes an attempt, again where the table turned out to be another one than the plan says. Where it fails it did nothing, and undo
// was not called yet.
func (s *Sink) try(ctx context.Context, l load, span span) error {
	for range maxReplans {
		err := span.try(ctx, l, span.from, span.to)
		if err == nil {
			s.kept = true
			return nil
		}
		dropped := false
		if e, ok := serverError(err); ok {
			dropped = e.Code == "42P01"
		}
		if !dropped && !tableChanged(err) {
			return err
		}
		if err := s.undo(ctx, l.d); err != nil {
			return err
		}
		if gone := s.look(ctx, l.d); gone != nil || dropped {
			return errors.Join(gone, err)
		}
		if err := l.d.replan(l.b.Schema); err != nil {
			return err
		}
	}
	return &connector.Error{
		Class: connector.ClassTransient, Code: "postgres.schema_changed", Doing: "writing to " + l.d.target.String(), Dataset: l.d.name,
		Err: errors.New("the table is altered all the time"),
	}
}

// commit ends the transaction behind the given statement.
func (s *Sink) commit(ctx context.Context, last statement) error {
	x := &script{again: true}
	x.add(s.opening()...)
	x.bind(last)
	x.add("COMMIT")
	_, err := s.db.run(ctx, "commit", x)
	if err == nil {
		s.open = false
		return nil
	}
	if fencedError(err) {
		return s.poison(ctx, fenced("committing"))
	}
	if _, aborted := serverError(err); aborted {
		return s.poison(ctx, s.explain("committing", err))
	}
	return s.poison(ctx, &connector.Error{
		Class: connector.ClassOutcome, Code: "postgres.outcome", Doing: "committing", Err: err,
		Hint: "whether the transaction was committed is read back on the next start",
	})
}

package records

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Sink takes records one by one. Methods are never called concurrently, and a value is used for one generation: after an error it is closed
// and replaced.
//
// It may have any capability of a sink of package connector: connector.Mapper, connector.Evolver, connector.Checker, connector.Named and
// so on. One whose rows show only as a whole (connector.Finisher, connector.TwoPhase) is written against package connector.
type Sink interface {
	// Start makes the sink ready. One that keeps a position under a fence refuses an older one with class ClassFenced.
	Start(ctx context.Context, s connector.SinkStart) error
	// Put takes one record, and may buffer it. The record is valid only during the call. A record.Reject, in the tree of what it returns,
	// says that the target refused this record, and that all others, before it and behind it, are not concerned: it is set aside, or
	// stops the run, as the pipeline says. Any other error ends the generation.
	Put(ctx context.Context, r Record) error
	// Flush returns when all that was put survives loss of power. A Transactor is asked for Commit instead.
	Flush(ctx context.Context) error
	// Close releases everything. It is called once, also after a failed Start.
	Close(ctx context.Context) error
}

// Transactor is a Sink whose records become visible with a position, or not at all: each record is there once, whatever happens. Its
// contract says connector.PositionInTransaction.
type Transactor interface {
	Sink
	// Begin begins a transaction: all Puts up to Commit belong to it.
	Begin(ctx context.Context) error
	// Commit makes visible, at once, what was put since Begin, and p as the progress of the lane that Start named; both survive loss of
	// power. A lost answer is an error of class ClassOutcome: the next value is asked for Committed.
	Commit(ctx context.Context, p record.Progress) error
	// Abort takes back what was put since Begin.
	Abort(ctx context.Context) error
	// Committed reads back the progress of the newest commit; false: none. A read error is never "none".
	Committed(ctx context.Context) (p record.Progress, ok bool, err error)
}

// Capabilities of a sink of records.
type (
	// Definer hears of a dataset's schema before its first record, again where it has changed, and also where no record follows.
	Definer interface {
		Define(ctx context.Context, s *record.Schema) error
	}
	// Truncater empties a dataset, in the order of the records. Without it a TRUNCATE of the source is an error.
	Truncater interface {
		Truncate(ctx context.Context, s *record.Schema) error
	}
)

// ToRecords makes a connector.Sink of a sink of single records. If it is a Transactor, the result is a connector.PositionStore: a
// transaction begins with the first record, a commit without records begins one too, and what fails or is closed is taken back.
func ToRecords(snk Sink) connector.Sink {
	s := &sink{snk: snk, defined: map[string]*record.Schema{}}
	s.tx, _ = snk.(Transactor)
	if s.tx != nil {
		return &committing{s}
	}
	return s
}

// sink is one generation of a sink of records.
type sink struct {
	snk     Sink
	tx      Transactor // nil: it has no transactions
	defined map[string]*record.Schema
	began   bool // a transaction is open
	started bool
	closed  bool
	failed  error // poisons the value
}

// committing is a sink with transactions.
type committing struct{ *sink }

var (
	_ connector.Sink          = (*sink)(nil)
	_ connector.RowRejecter   = (*sink)(nil)
	_ connector.PositionStore = (*committing)(nil)
)

// Unwrap lets the sink's own capabilities be found.
func (s *sink) Unwrap() any { return s.snk }

// RejectsRows implements connector.RowRejecter.
func (*sink) RejectsRows() {}

// Start implements connector.Sink.
func (s *sink) Start(ctx context.Context, req connector.SinkStart) error {
	if err := s.snk.Start(ctx, req); err != nil {
		return err //nolint:wrapcheck // the sink's own words
	}
	s.started = true
	return nil
}

// usable refuses calls on a value that is not open, or that has failed.
func (s *sink) usable() error {
	switch {
	case s.failed != nil:
		return fmt.Errorf("the sink has failed before: %w", s.failed)
	case !s.started || s.closed:
		return errors.New("writing to a sink that is not open")
	}
	return nil
}

// poison notes an error after which nothing may become durable any more.
func (s *sink) poison(err error) error {
	if err != nil && s.failed == nil {
		s.failed = err
	}
	return err
}

// begin begins a transaction where the sink has them and none is open.
func (s *sink) begin(ctx context.Context) error {
	if s.tx == nil || s.began {
		return nil
	}
	if err := s.tx.Begin(ctx); err != nil {
		return err //nolint:wrapcheck // the sink's own words
	}
	s.began = true
	return nil
}

// Write implements connector.Sink.
func (s *sink) Write(ctx context.Context, b *record.Batch) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.prepare(ctx, b); err != nil {
		return s.poison(err)
	}
	var refused []connector.RowError
	r := Record{batch: b, rows: b.Rows}
	for i := range b.NumRows() {
		if err := ctx.Err(); err != nil {
			return s.poison(fmt.Errorf("putting records: %w", err))
		}
		r.row = i
		err := s.snk.Put(ctx, r)
		if err == nil {
			continue
		}
		why, ok := errors.AsType[record.Reject](err)
		if !ok {
			return s.poison(err) //nolint:wrapcheck // the sink's own words
		}
		why.Dataset = b.Schema.Dataset
		if why.Class == "" {
			why.Class = "refused_by_sink"
		}
		refused = append(refused, connector.RowError{Index: i, Reject: why})
	}
	if len(refused) > 0 {
		return &connector.RowErrors{Rows: refused}
	}
	return nil
}

// prepare does what comes before the records of a batch.
func (s *sink) prepare(ctx context.Context, b *record.Batch) error {
	if b.Encoded != nil {
		return connector.ErrNeedsRows
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	if name := b.Schema.Dataset; s.defined[name] != b.Schema {
		if d, ok := s.snk.(Definer); ok {
			if err := d.Define(ctx, b.Schema); err != nil {
				return err //nolint:wrapcheck // the sink's own words
			}
		}
		s.defined[name] = b.Schema
	}
	if !b.Truncate {
		return nil
	}
	t, ok := s.snk.(Truncater)
	if !ok {
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "records.truncate", Doing: "emptying a dataset", Dataset: b.Schema.Dataset,
			Err: errors.New("the source emptied it, and this sink can't"), Hint: "leave the dataset out, or choose another sink",
		}
	}
	return t.Truncate(ctx, b.Schema) //nolint:wrapcheck // the sink's own words
}

// Flush implements connector.Sink.
func (s *sink) Flush(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	return s.poison(s.snk.Flush(ctx)) //nolint:wrapcheck // the sink's own words
}

// Commit implements connector.PositionStore.
func (c *committing) Commit(ctx context.Context, p record.Progress) error {
	err := c.usable()
	if err == nil {
		err = c.begin(ctx)
	}
	if err != nil {
		return c.poison(err)
	}
	if err := c.tx.Commit(ctx, p); err != nil {
		return c.poison(err) //nolint:wrapcheck // the sink's own words
	}
	c.began = false
	return nil
}

// Committed implements connector.PositionStore.
func (c *committing) Committed(ctx context.Context) (record.Progress, bool, error) {
	if err := c.usable(); err != nil {
		return record.Progress{}, false, err
	}
	return c.tx.Committed(ctx) //nolint:wrapcheck // the sink's own words
}

const abortTime = 10 * time.Second

// Close implements connector.Sink.
func (s *sink) Close(ctx context.Context) error {
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if s.began {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
		err = s.tx.Abort(bounded)
		cancel()
		if s.failed != nil {
			err = nil // what has failed may have ended the transaction, too
		}
	}
	return errors.Join(err, s.snk.Close(ctx))
}

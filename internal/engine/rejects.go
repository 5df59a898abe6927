package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Rejected is one row that was set aside: a dead letter.
type Rejected struct { //nolint:errname // it is a row that can say what is wrong with it, and is never returned as an error
	Pipeline string `json:"pipeline"`
	Run      string `json:"run"`
	Attempt  uint64 `json:"attempt,omitempty"`
	Sink     string `json:"sink,omitempty"` // empty: the source could not read the row, or a transform could not take it
	// Epoch is the sink's epoch that the row would have been committed with; 0: there is no such thing.
	Epoch    uint64          `json:"epoch,omitempty"`
	Position record.Position `json:"position"` // of the replay unit; zero where the row stood inside of one
	Time     time.Time       `json:"time"`
	record.Reject
}

// RejectStore keeps the rows that were set aside. All methods may be called concurrently. After a crash a row may be appended twice:
// where it has an epoch the first one is forgotten before, else the store has to tell by what the row is.
type RejectStore interface {
	Append(ctx context.Context, r []Rejected) error // may buffer
	Flush(ctx context.Context) error                // everything appended survives loss of power; cheap when there is nothing
	// Forget removes what a sink set aside in the run under epochs behind this one: they were not committed, and their rows come again.
	Forget(ctx context.Context, pipeline, run, sink string, epoch uint64) error
	Close() error // flushes
}

// badCounter applies one policy for bad rows. It may be used by several goroutines.
type badCounter struct {
	BadRows
	mu       sync.Mutex
	n        int64
	datasets map[string]int64
	epoch    uint64           // that open is for; 0: the sink counts no commits
	open     map[string]int64 // rows of that epoch, by dataset: they come again where it is not committed
}

// add counts a row that was set aside, and returns what was passed with it: the limit, and the dataset it is of, if any.
func (c *badCounter) add(dataset string, epoch uint64) (limit int64, of string, passed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.datasets == nil {
		c.datasets = map[string]int64{}
	}
	if epoch != c.epoch || c.open == nil {
		c.epoch, c.open = epoch, map[string]int64{}
	}
	c.n++
	c.datasets[dataset]++
	c.open[dataset]++
	switch {
	case c.PerDataset > 0 && c.datasets[dataset] > c.PerDataset:
		return c.PerDataset, dataset, true
	case c.Limit > 0 && c.n > c.Limit:
		return c.Limit, "", true
	}
	return 0, "", false
}

// forget takes back the rows of epochs behind this one.
func (c *badCounter) forget(epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch <= epoch {
		return
	}
	for dataset, n := range c.open {
		c.n -= n
		c.datasets[dataset] -= n
	}
	c.open = nil
}

// refuser is who could not take rows, and when.
type refuser struct {
	sink  string          // empty: the source, or a shared transform
	epoch uint64          // that the sink commits next; 0: it has none
	at    record.Position // of the batch
}

// setAside keeps rejected rows, or stops at the first one, as the policy says. The second error is for later: the limit was
// passed, and the run ends once the good rows are durable.
func (r *runner) setAside(ctx context.Context, c *badCounter, by refuser, rows []record.Reject) (now, later error) {
	if len(rows) == 0 {
		return nil, nil
	}
	if c.Action == Stop {
		return badRowError(by.sink, rows[0], "mend the row, or set such rows aside with --set-aside"), nil
	}
	if r.deps.Rejects == nil {
		return badRowError(by.sink, rows[0], "there is no place for bad rows: give one"), nil
	}
	letters := make([]Rejected, len(rows))
	for i, row := range rows {
		letters[i] = Rejected{
			Pipeline: r.plan.Name, Run: r.runName, Attempt: r.attempt, Sink: by.sink, Epoch: by.epoch, Position: by.at,
			Time: r.now().UTC(), Reject: row,
		}
	}
	if err := r.deps.Rejects.Append(ctx, letters); err != nil {
		return fmt.Errorf("setting bad rows aside: %w", err), nil
	}
	for _, row := range rows {
		if limit, of, passed := c.add(row.Dataset, by.epoch); passed && later == nil {
			later = tooManyError(r.plan.Name, row, limit, of)
		}
	}
	return nil, later
}

// tooManyError says that a limit was passed with this row; of is the dataset that the limit is for, if it is for one.
func tooManyError(pipeline string, row record.Reject, limit int64, of string) error {
	if of != "" {
		of = " of " + of
	}
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "engine.too_many_bad_rows", Doing: "setting bad rows aside",
		Dataset: row.Dataset, Column: row.Column,
		Err:  fmt.Errorf("more than %d rows%s were bad; the last one: %w", limit, of, rejectError(row)),
		Hint: "leat dlq show " + pipeline + " shows them; raise the limit to go on",
	}
}

func badRowError(sink string, r record.Reject, hint string) error {
	doing := "reading"
	if sink != "" {
		doing = fmt.Sprintf("writing to sink %q", sink)
	}
	return &connector.Error{Class: connector.ClassPermanent, Code: "engine.bad_row", Doing: doing, Err: rejectError(r), Hint: hint}
}

func rejectError(r record.Reject) error { return errors.New(r.Error()) }

// forgetRejects removes what a sink set aside and did not commit: the rows come again.
func (r *runner) forgetRejects(ctx context.Context, sink string, epoch uint64) error {
	if r.deps.Rejects == nil {
		return nil
	}
	for i, s := range r.plan.Sinks {
		if s.Name == sink {
			r.sinkBad[i].forget(epoch)
		}
	}
	if err := r.deps.Rejects.Forget(ctx, r.plan.Name, r.runName, sink, epoch); err != nil {
		return fmt.Errorf("letting go of rows that come again: %w", err)
	}
	return nil
}

// flushRejects makes durable what was set aside; it comes before anything that moves a position (E13).
func (r *runner) flushRejects(ctx context.Context) error {
	if r.deps.Rejects == nil {
		return nil
	}
	if err := r.deps.Rejects.Flush(ctx); err != nil {
		return fmt.Errorf("keeping the rows that were set aside: %w", err)
	}
	return nil
}

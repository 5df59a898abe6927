package engine

import (
	"context"
	"time"

	"github.com/leatdata/leat/record"
)

// Rejected is one row that was set aside: a dead letter.
type Rejected struct {
	Pipeline string          `json:"pipeline"`
	Run      string          `json:"run"`
	Sink     string          `json:"sink,omitempty"` // empty: the source could not read the row, or a transform could not take it
	Position record.Position `json:"position"`       // of the replay unit; zero where the row stood inside of one
	Time     time.Time       `json:"time"`
	record.Reject
}

// RejectStore keeps the rows that were set aside. All methods may be called concurrently. After a crash a row may be kept twice: a
// row that stands in the source is told by run, dataset and line or key.
type RejectStore interface {
	Append(ctx context.Context, r []Rejected) error // may buffer
	Flush(ctx context.Context) error                // everything appended survives loss of power; cheap when there is nothing
	Close() error                                   // flushes
}

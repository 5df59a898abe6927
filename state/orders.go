package state

import (
	"context"
	"encoding/json"
	"time"
)

// Orders are what people want of a pipeline besides its configuration. A process that runs it looks at them about once a second, the
// next one does at its start.
type Orders struct {
	Paused    bool       `json:"paused,omitempty"`    // the whole pipeline
	Sinks     []string   `json:"sinks,omitempty"`     // paused ones, sorted
	Datasets  []string   `json:"datasets,omitempty"`  // paused ones, as the source calls them, sorted
	Backfills []Backfill `json:"backfills,omitempty"` // that are not complete, in the order in which they were asked for
	Last      uint64     `json:"last,omitempty"`      // id of the newest backfill there was
}

// Backfill asks for rows to be read from the source once more. It is removed by the process that ran it, once the mark of its completion
// was published to the lanes that it is for: a crash before that runs it again.
type Backfill struct {
	ID       uint64            `json:"id"`                 // from 1, never used again
	Sinks    []string          `json:"sinks,omitempty"`    // empty: all
	Datasets []string          `json:"datasets,omitempty"` // as the source calls them; empty: all
	Where    string            `json:"where,omitempty"`    // only rows that meet this condition of the source's language; others stay as they are
	Keys     []json.RawMessage `json:"keys,omitempty"`     // instead: only these keys (JSON objects of the key columns) of the one dataset
	Asked    time.Time         `json:"asked"`
}

// OrderStore keeps orders, beside the record of the pipeline.
type OrderStore interface {
	// Orders returns what people want of the pipeline, and its version; the zero value and 0 where nobody said anything.
	Orders(ctx context.Context, pipeline string) (Orders, Version, error)
	// SaveOrders replaces the orders of version prev, with the outcomes of Save. Orders outlive Save and Record.Reset; Delete forgets
	// them, too.
	SaveOrders(ctx context.Context, pipeline string, o Orders, prev Version) (Version, error)
}

// Empty reports whether nobody wants anything.
func (o Orders) Empty() bool {
	return !o.Paused && len(o.Sinks) == 0 && len(o.Datasets) == 0 && len(o.Backfills) == 0
}

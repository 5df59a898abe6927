package record

import (
	"bytes"
	"encoding/json"
)

// Position is where a source stands. Only the source that made it can read it or order it against another one.
type Position struct {
	Shape uint32          `json:"shape"`          // version of Data's layout
	Data  json.RawMessage `json:"data,omitempty"` // opaque to everyone else, readable by a person
}

// Zero reports whether there is no position: the batch ends inside a replay unit.
func (p Position) Zero() bool { return len(p.Data) == 0 }

// Equal reports whether both positions are the same bytes of the same shape. It says nothing about order.
func (p Position) Equal(q Position) bool { return p.Shape == q.Shape && bytes.Equal(p.Data, q.Data) }

// String returns the position's data, for people.
func (p Position) String() string {
	if p.Zero() {
		return "none"
	}
	return string(p.Data)
}

// Progress is how far one lane got: what a position store commits with its rows and what the state store saves. It is always
// saved whole, never the position alone.
type Progress struct {
	Run      string          `json:"run"`              // one pass from the beginning of the source to its end; never reused
	Position Position        `json:"position"`         // zero: nothing is durable yet
	Ledger   json.RawMessage `json:"ledger,omitempty"` // chunks of an open backfill
	Done     bool            `json:"done,omitempty"`   // the run reached the end of a bounded source
}

package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
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

// String returns the position's data, for people: of a long one (an offset for each of many partitions) the beginning.
func (p Position) String() string {
	const most = 300
	switch n := len(p.Data); {
	case p.Zero():
		return "none"
	case n > most:
		return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(string(p.Data[:most]), ""), n)
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
	Epoch    uint64          `json:"epoch,omitempty"`  // counts the commits of the lane in this run, from 1; 0: not counted
	Item     uint64          `json:"item,omitempty"`   // number of the last item of a durable lane that it covers; 0: none
}

// Append appends the canonical form of the progress to b: one JSON object, fields in fixed order, and what is opaque (the data of the
// position, the ledger) byte for byte, so that it equals itself when it is read back with encoding/json. The error names what is no JSON.
func (p Progress) Append(b []byte) ([]byte, error) {
	for _, raw := range []json.RawMessage{p.Position.Data, p.Ledger} {
		if len(raw) > 0 && !json.Valid(raw) {
			return nil, fmt.Errorf("encoding progress: %.100q is no JSON", raw)
		}
	}
	b = AppendJSONString(append(b, `{"run":`...), p.Run)
	b = p.Position.append(append(b, `,"position":`...))
	if len(p.Ledger) > 0 {
		b = append(append(b, `,"ledger":`...), p.Ledger...)
	}
	if p.Done {
		b = append(b, `,"done":true`...)
	}
	if p.Epoch > 0 {
		b = strconv.AppendUint(append(b, `,"epoch":`...), p.Epoch, 10)
	}
	if p.Item > 0 {
		b = strconv.AppendUint(append(b, `,"item":`...), p.Item, 10)
	}
	return append(b, '}'), nil
}

// Append appends the canonical form of the position to b: a JSON object with its data byte for byte. The error says that it is no JSON.
func (p Position) Append(b []byte) ([]byte, error) {
	if len(p.Data) > 0 && !json.Valid(p.Data) {
		return nil, fmt.Errorf("encoding a position: %.100q is no JSON", p.Data)
	}
	return p.append(b), nil
}

func (p Position) append(b []byte) []byte {
	b = strconv.AppendUint(append(b, `{"shape":`...), uint64(p.Shape), 10)
	if len(p.Data) > 0 {
		b = append(append(b, `,"data":`...), p.Data...)
	}
	return append(b, '}')
}

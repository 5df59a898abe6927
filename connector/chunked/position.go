package chunked

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// shape is the version of position's layout.
const shape = 1

// step is how far At grows with a chunk. It leaves room for more chunks between two that an earlier attempt has numbered.
const step = 1 << 20

// position is what a record.Position holds: all datasets before Dataset are done, and of Dataset either everything or what is not
// behind After. A persisted format.
type position struct {
	Dataset string          `json:"dataset"`
	After   json.RawMessage `json:"after,omitempty"`
	At      int64           `json:"at,omitempty"` // grows with After within a dataset: keys are compared only by the server
	Done    bool            `json:"done,omitempty"`
}

func (p position) encode() record.Position {
	doc, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("chunked: a chunk's key is no JSON: %v", err)) // broken invariant: keys were decoded or made by the Snapshotter
	}
	return record.Position{Shape: shape, Data: doc}
}

func decode(p record.Position) (position, error) {
	var out position
	bad := func(why string) (position, error) {
		return position{}, &connector.Error{
			Class: connector.ClassPosition, Code: "position.unknown", Doing: "resuming from a saved position", Err: errors.New(why),
			Hint: "reset the pipeline's state to read everything again",
		}
	}
	if p.Shape > shape || p.Shape == 0 {
		return bad(fmt.Sprintf("the position has shape %d, this version knows up to %d", p.Shape, shape))
	}
	d := json.NewDecoder(bytes.NewReader(p.Data))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil || out.Dataset == "" || out.Done == (len(out.After) > 0) {
		return bad("the position is not one of this source")
	}
	return out, nil
}

// Migrate checks a position, see connector.Positions.
func Migrate(p record.Position) (record.Position, error) {
	_, err := decode(p)
	return p, err
}

// Compare orders two positions, see connector.Positions.
func Compare(a, b record.Position) (int, bool) {
	p, errA := decode(a)
	q, errB := decode(b)
	if errA != nil || errB != nil {
		return 0, false
	}
	if c := strings.Compare(p.Dataset, q.Dataset); c != 0 {
		return c, true
	}
	switch {
	case p.Done && q.Done:
		return 0, true
	case p.Done:
		return 1, true
	case q.Done:
		return -1, true
	}
	return cmp.Compare(p.At, q.At), true
}

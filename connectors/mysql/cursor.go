package mysql

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// cursorShape is the version of cursorPosition's layout.
const cursorShape = 1

// cursorStep is how far Step grows with a batch; it leaves room for batches between two that an earlier attempt numbered.
const cursorStep = 1 << 20

// maxTies bounds how many keys of equal cursor are remembered.
const maxTies = 1000

// cursorPosition is the position of a source that reads by cursor: how far each dataset was read by complete rounds, and how far
// the open one got. A persisted format. All values are exact, see keyText.
type cursorPosition struct {
	Round   int64                  `json:"round"`             // complete rounds over all datasets
	Cursors map[string]cursorState `json:"cursors"`           // of each dataset, as its last read left it
	Dataset string                 `json:"dataset,omitempty"` // being read; those before it are done in this round
	Open    *cursorState           `json:"open,omitempty"`    // how far Dataset is read
	Step    int64                  `json:"step,omitempty"`    // grows with Open: cursors are compared only by the server
}

// cursorState is how far a dataset was read.
type cursorState struct {
	Cursor *string    `json:"cursor,omitempty"` // the greatest value that was delivered; nil: no row yet
	Key    []string   `json:"key,omitempty"`    // the greatest key among the rows of that value
	Ties   [][]string `json:"ties,omitempty"`   // keys that were delivered with exactly Cursor
}

func (p cursorPosition) encode() record.Position {
	doc, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("mysql: encoding a cursor position: %v", err)) // strings and numbers always marshal
	}
	return record.Position{Shape: cursorShape, Data: doc}
}

func decodeCursors(p record.Position) (cursorPosition, error) {
	var out cursorPosition
	d := json.NewDecoder(bytes.NewReader(p.Data))
	d.DisallowUnknownFields()
	err := d.Decode(&out)
	switch {
	case p.Shape != cursorShape:
		err = fmt.Errorf("the position has shape %d, this version knows shape %d", p.Shape, cursorShape)
	case err != nil || out.Cursors == nil:
		err = errors.New("the position is not one of this source")
	default:
		return out, nil
	}
	return cursorPosition{}, &connector.Error{
		Class: connector.ClassPosition, Code: "position.unknown", Doing: "resuming from a saved position", Err: err,
		Hint: "reset the pipeline's state to read everything again",
	}
}

// compareCursors orders positions by round, dataset and step. Between two rounds the dataset is empty, which comes first.
func compareCursors(a, b record.Position) (int, bool) {
	p, errA := decodeCursors(a)
	q, errB := decodeCursors(b)
	if errA != nil || errB != nil {
		return 0, false
	}
	return cmp.Or(cmp.Compare(p.Round, q.Round), strings.Compare(p.Dataset, q.Dataset), cmp.Compare(p.Step, q.Step)), true
}

// with returns a position whose dataset is read up to state.
func (p cursorPosition) with(dataset string, open cursorState, step int64) cursorPosition {
	p.Dataset, p.Open, p.Step = dataset, &open, step
	return p
}

// finished returns a position behind a dataset: next is the one that follows, empty at the end of the round.
func (p cursorPosition) finished(dataset string, state cursorState, next string) cursorPosition {
	p.Cursors = maps.Clone(p.Cursors)
	p.Cursors[dataset] = state
	p.Dataset, p.Open, p.Step = next, nil, 0
	if next == "" {
		p.Round++
	}
	return p
}

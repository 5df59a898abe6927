package sqlite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// positionShape is the version of the layout below.
const positionShape = 1

// position is where a source stands: every table that sorts before Table is delivered whole, and of Table the rows up to After.
type position struct {
	Table   string   `json:"table"`
	After   []value  `json:"after,omitempty"`   // row id or key of the last row; with a cursor its value in front
	Collate []string `json:"collate,omitempty"` // how the engine orders After; empty: by bytes
	Done    bool     `json:"done,omitempty"`    // Table is delivered whole

	// Of an incremental source.
	Pass  uint64          `json:"pass,omitempty"`  // runs, counted from 1
	Now   *mark           `json:"now,omitempty"`   // Table's mark, as far as it got
	Marks map[string]mark `json:"marks,omitempty"` // where each table's last finished pass ended
}

// mark is the end of a pass over one table: the highest cursor value, and which rows at exactly this value (and without one) were
// delivered, so that rows that come later with the same value are read and no row is read twice.
type mark struct {
	Cursor value    `json:"cursor"`
	Seen   digests  `json:"seen,omitempty"`
	Nulls  digests  `json:"nulls,omitempty"`
	Many   bool     `json:"many,omitempty"` // more rows than are remembered: the next pass reads them all again
	_      struct{} // keyed literals only
}

func (p position) encode() record.Position {
	doc, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("sqlite: encoding a position: %v", err)) // strings, numbers and values always marshal
	}
	return record.Position{Shape: positionShape, Data: doc}
}

func positionError(err error) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "sqlite.position", Doing: "reading a saved position", Err: err,
		Hint: "leat state reset PIPELINE starts again from the beginning",
	}
}

func decodePosition(p record.Position) (position, error) {
	var out position
	if p.Shape != positionShape {
		return out, positionError(fmt.Errorf("its layout is version %d, this build knows %d", p.Shape, positionShape))
	}
	dec := json.NewDecoder(bytes.NewReader(p.Data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		return out, positionError(fmt.Errorf("it is not from an SQLite source: %w", err))
	}
	if out.Table == "" || (len(out.After) == 0 && !out.Done) {
		return out, positionError(errors.New("it is not from an SQLite source: it names no table and row"))
	}
	return out, nil
}

// comparePositions orders two positions of one source: by pass, table, and key.
func comparePositions(a, b position) (int, bool) {
	switch {
	case a.Pass != b.Pass:
		if a.Pass < b.Pass {
			return -1, true
		}
		return 1, true
	case a.Table != b.Table:
		return strings.Compare(a.Table, b.Table), true
	case a.Done || b.Done:
		switch {
		case a.Done && b.Done:
			return 0, true
		case a.Done:
			return 1, true
		}
		return -1, true
	}
	if len(a.After) != len(b.After) {
		return 0, false
	}
	for i := range a.After {
		if c := compareValues(a.After[i], b.After[i], a.collation(i)); c != 0 {
			return c, true
		}
	}
	return 0, true
}

func (p position) collation(i int) string {
	if i < len(p.Collate) {
		return p.Collate[i]
	}
	return ""
}

// Compare implements connector.Positions.
func (*source) Compare(a, b record.Position) (int, bool) {
	pa, errA := decodePosition(a)
	pb, errB := decodePosition(b)
	if errA != nil || errB != nil {
		return 0, false
	}
	return comparePositions(pa, pb)
}

// Migrate implements connector.Positions: there is one layout so far.
func (*source) Migrate(p record.Position) (record.Position, error) {
	if _, err := decodePosition(p); err != nil {
		return record.Position{}, err
	}
	return p, nil
}

package file

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/record"
)

// positionShape is the version of the layout below: a persisted format.
const positionShape = 1

// position is behind Rows rows of file number File of the frozen list.
type position struct {
	Files []entry `json:"files"`
	At    place   `json:"at"`
}

type place struct {
	File int `json:"file"`
	format.Offset

	Late    []lateColumn `json:"late,omitempty"`    // columns of the file's dataset that were found while reading
	Version uint64       `json:"version,omitempty"` // of its schema, where there are late columns
}

// lateColumn is a column with its type, see record.FormatType.
type lateColumn struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

func decodePosition(p record.Position) (position, error) {
	var out position
	if p.Shape != positionShape {
		return out, positionError("file.position", "the position has shape %d; this version of leat reads shape %d", p.Shape, positionShape)
	}
	dec := json.NewDecoder(bytes.NewReader(p.Data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		return out, positionError("file.position", "the position is not one of files: %w", err)
	}
	if len(out.Files) == 0 || out.At.File < 0 || out.At.File > len(out.Files) || out.At.Rows < 0 || out.At.Bytes < 0 {
		return out, positionError("file.position", "the position is not one of files")
	}
	return out, nil
}

// encodePosition puts the frozen list, which is encoded once, and the place together.
func encodePosition(files json.RawMessage, at place) (record.Position, error) {
	doc, err := json.Marshal(at)
	if err != nil {
		return record.Position{}, fmt.Errorf("encoding the position: %w", err)
	}
	data := make([]byte, 0, len(files)+len(doc)+16)
	data = append(append(data, `{"files":`...), files...)
	data = append(append(data, `,"at":`...), doc...)
	return record.Position{Shape: positionShape, Data: append(data, '}')}, nil
}

// comparePositions orders two positions over the same list.
func comparePositions(a, b record.Position) (order int, ok bool) {
	p, errP := decodePosition(a)
	q, errQ := decodePosition(b)
	if errP != nil || errQ != nil || !slices.Equal(p.Files, q.Files) {
		return 0, false
	}
	return cmp.Or(cmp.Compare(p.At.File, q.At.File), cmp.Compare(p.At.Rows, q.At.Rows)), true
}

// lateColumns lists the columns of a schema behind the first base ones.
func lateColumns(s *record.Schema, base int) []lateColumn {
	var out []lateColumn
	for _, f := range s.Columns.Fields()[base:] {
		out = append(out, lateColumn{Name: f.Name, Type: record.FormatType(f.Type)})
	}
	return out
}

// withLate is the schema with late columns behind its own.
func withLate(s *record.Schema, at place) (*record.Schema, error) {
	if len(at.Late) == 0 {
		return s, nil
	}
	fields := slices.Clone(s.Columns.Fields())
	for _, c := range at.Late {
		dt, err := record.ParseType(c.Type)
		if err != nil {
			return nil, positionError("file.position", "the position names column %q: %w", c.Name, err)
		}
		fields = append(fields, arrow.Field{Name: c.Name, Type: dt, Nullable: true})
	}
	out := *s
	out.Columns, out.Version = arrow.NewSchema(fields, nil), at.Version
	return &out, nil
}

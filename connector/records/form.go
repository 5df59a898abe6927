package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Form is how a source writes its positions: a JSON object whose one member is named by the system and holds a value of a struct of the
// source. A position of another source, or of a newer version of this one, is refused by name.
type Form struct {
	System string // such as orders-feed; never changed
	Shape  uint32 // version of the struct, from 1; it grows with every change that an older program could not read
}

// Encode returns the position of v.
func (f Form) Encode(v any) (record.Position, error) {
	data, err := json.Marshal(map[string]any{f.System: v})
	if err != nil {
		return record.Position{}, fmt.Errorf("writing a position of %s: %w", f.System, err)
	}
	return record.Position{Shape: f.Shape, Data: data}, nil
}

// Decode reads a position that Encode made of a value of the same type. The error has class ClassPosition.
func (f Form) Decode(p record.Position, v any) error {
	var all map[string]json.RawMessage
	switch err := json.Unmarshal(p.Data, &all); {
	case p.Shape > f.Shape:
		return f.refuse(fmt.Errorf("it was written by a newer version (shape %d, and %d is known)", p.Shape, f.Shape))
	case p.Shape != f.Shape:
		return f.refuse(fmt.Errorf("it has shape %d, and %d is known", p.Shape, f.Shape))
	case err != nil || len(all) != 1 || all[f.System] == nil:
		return f.refuse(fmt.Errorf("%s is no position of this source", p))
	}
	d := json.NewDecoder(bytes.NewReader(all[f.System]))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return f.refuse(fmt.Errorf("%s: %w", p, err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return f.refuse(fmt.Errorf("%s: something follows it", p))
	}
	return nil
}

func (f Form) refuse(err error) error {
	return &connector.Error{
		Class: connector.ClassPosition, Code: "records.position", Doing: "reading a position of " + f.System, Err: err,
		Hint: "copy everything again with --restart; or use the version of the program that saved it",
	}
}

package state

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Format is the number of the persisted form that Encode writes. Decode reads this one and every earlier one.
const Format = 1

// recordJSON is format 1; docs/formats/state.md describes it.
type recordJSON struct {
	Format   int               `json:"format"`
	Pipeline string            `json:"pipeline"`
	Identity map[string]string `json:"identity"`
	Attempt  uint64            `json:"attempt"`
	Origin   *record.Position  `json:"origin"`
	Progress *record.Progress  `json:"progress"`
	Rows     int64             `json:"rows"`
	Rejected int64             `json:"rejected"`
	Updated  time.Time         `json:"updated"`
}

// Encode returns the canonical form of a record: one JSON object, one line, fields in fixed order, keys sorted, and what is opaque
// (the data of positions, the ledger) byte for byte as it was given, so that a position equals itself after a restart.
func Encode(r Record) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	b := fmt.Appendf(nil, `{"format":%d,"pipeline":`, Format)
	b = record.AppendJSONString(b, r.Pipeline)
	b = append(b, `,"identity":{`...)
	for i, k := range slices.Sorted(maps.Keys(r.Identity)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(record.AppendJSONString(b, k), ':')
		b = record.AppendJSONString(b, r.Identity[k])
	}
	b = fmt.Appendf(b, `},"attempt":%d`, r.Attempt)
	if !r.Origin.Zero() {
		var err error
		if b, err = r.Origin.Append(append(b, `,"origin":`...)); err != nil {
			return nil, fmt.Errorf("saving the state of %s: %w", r.Pipeline, err)
		}
	}
	if r.Progress.Run != "" {
		var err error
		if b, err = r.Progress.Append(append(b, `,"progress":`...)); err != nil {
			return nil, fmt.Errorf("saving the state of %s: %w", r.Pipeline, err)
		}
	}
	b = fmt.Appendf(b, `,"rows":%d,"rejected":%d,"updated":"`, r.Rows, r.Rejected)
	return append(r.Updated.UTC().AppendFormat(b, time.RFC3339Nano), `"}`...), nil
}

// Decode reads what Encode wrote. It refuses, with class ClassPosition, a format or a field that it does not know, a record of
// another pipeline than the one it was looked up under, and anything else that Encode can't have written.
func Decode(data []byte, pipeline string) (Record, error) {
	r, err := decode(data)
	if err == nil && r.Pipeline != pipeline {
		err = fmt.Errorf("it belongs to pipeline %q", r.Pipeline)
	}
	if err != nil {
		return Record{}, &connector.Error{
			Class: connector.ClassPosition, Code: "state.format", Doing: "reading the saved state of " + pipeline, Err: err,
			Hint: "use the version of leat that saved it, or start over with: leat state reset " + pipeline,
		}
	}
	return r, nil
}

func decode(data []byte) (Record, error) {
	if err := checkFormat(data, Format); err != nil {
		return Record{}, err
	}
	var j recordJSON
	if err := decodeStrictly(data, &j); err != nil {
		return Record{}, err
	}
	r := Record{
		Pipeline: j.Pipeline, Identity: j.Identity, Attempt: j.Attempt, Rows: j.Rows, Rejected: j.Rejected, Updated: j.Updated,
	}
	if j.Origin != nil {
		r.Origin = *j.Origin
	}
	if j.Progress != nil {
		r.Progress = *j.Progress
	}
	return r, r.Validate()
}

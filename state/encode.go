package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Format is the number of the persisted form that Encode writes. Decode reads this one and every earlier one.
const Format = 2

// recordJSON1 is format 1; docs/formats/state.md describes it.
type recordJSON1 struct {
	Format   int               `json:"format"`
	Pipeline string            `json:"pipeline"`
	Identity map[string]string `json:"identity"`
	Attempt  uint64            `json:"attempt"`
	Origin   *record.Position  `json:"origin"`
	Progress *progressJSON1    `json:"progress"`
	Rows     int64             `json:"rows"`
	Rejected int64             `json:"rejected"`
	Updated  time.Time         `json:"updated"`
}

// progressJSON1 is the progress of format 1, which counted no epochs.
type progressJSON1 struct {
	Run      string          `json:"run"`
	Position record.Position `json:"position"`
	Ledger   json.RawMessage `json:"ledger"`
	Done     bool            `json:"done"`
}

// recordJSON is format 2, likewise.
type recordJSON struct {
	Format   int                 `json:"format"`
	Pipeline string              `json:"pipeline"`
	Identity map[string]string   `json:"identity"`
	Attempt  uint64              `json:"attempt"`
	Origin   *record.Position    `json:"origin"`
	Stream   string              `json:"stream"`
	Progress *record.Progress    `json:"progress"`
	Lanes    map[string]laneJSON `json:"lanes"`
	Rows     int64               `json:"rows"`
	Rejected int64               `json:"rejected"`
	Updated  time.Time           `json:"updated"`
}

type laneJSON struct {
	Progress *record.Progress `json:"progress"`
	State    string           `json:"state"`
	Held     int64            `json:"held"`
	Items    int64            `json:"items"`
	Oldest   time.Time        `json:"oldest"`
	Error    string           `json:"error"`
	Epoch    *epochJSON       `json:"epoch"`
}

type epochJSON struct {
	Number   uint64           `json:"number"`
	Decided  bool             `json:"decided"`
	Progress *record.Progress `json:"progress"`
	Staged   json.RawMessage  `json:"staged"`
}

// Encode returns the canonical form of a record: one JSON object, one line, fields in fixed order, keys sorted, and what is opaque
// (the data of positions, ledgers, what epochs have staged) byte for byte as it was given, so that it equals itself after a restart.
func Encode(r Record) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	b, err := appendRecord(nil, r)
	if err != nil {
		return nil, fmt.Errorf("saving the state of %s: %w", r.Pipeline, err)
	}
	return b, nil
}

func appendRecord(b []byte, r Record) (_ []byte, err error) {
	b = fmt.Appendf(b, `{"format":%d,"pipeline":`, Format)
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
		if b, err = r.Origin.Append(append(b, `,"origin":`...)); err != nil {
			return nil, err
		}
	}
	if r.Stream != "" {
		b = record.AppendJSONString(append(b, `,"stream":`...), r.Stream)
	}
	if b, err = appendProgress(b, `,"progress":`, r.Progress); err != nil {
		return nil, err
	}
	if b, err = appendLanes(b, r.Lanes); err != nil {
		return nil, err
	}
	b = fmt.Appendf(b, `,"rows":%d,"rejected":%d,"updated":"`, r.Rows, r.Rejected)
	return append(r.Updated.UTC().AppendFormat(b, time.RFC3339Nano), `"}`...), nil
}

// appendProgress appends a field with progress; one that has not begun is left out.
func appendProgress(b []byte, field string, p record.Progress) ([]byte, error) {
	if p.Run == "" {
		return b, nil
	}
	return p.Append(append(b, field...))
}

// appendLanes appends the field of the lanes; it is left out where there is none.
func appendLanes(b []byte, lanes map[string]Lane) (_ []byte, err error) {
	for i, name := range slices.Sorted(maps.Keys(lanes)) {
		if i == 0 {
			b = append(b, `,"lanes":{`...)
		} else {
			b = append(b, ',')
		}
		b = append(record.AppendJSONString(b, name), ':')
		if b, err = lanes[name].append(b); err != nil {
			return nil, fmt.Errorf("lane %q: %w", name, err)
		}
	}
	if len(lanes) > 0 {
		b = append(b, '}')
	}
	return b, nil
}

func (l Lane) append(b []byte) (_ []byte, err error) {
	b = record.AppendJSONString(append(b, `{"state":`...), l.State)
	if b, err = appendProgress(b, `,"progress":`, l.Progress); err != nil {
		return nil, err
	}
	if l.Held != 0 {
		b = fmt.Appendf(b, `,"held":%d`, l.Held)
	}
	if l.Items != 0 {
		b = fmt.Appendf(b, `,"items":%d`, l.Items)
	}
	if !l.Oldest.IsZero() {
		b = l.Oldest.UTC().AppendFormat(append(b, `,"oldest":"`...), time.RFC3339Nano)
		b = append(b, '"')
	}
	if l.Error != "" {
		b = record.AppendJSONString(append(b, `,"error":`...), l.Error)
	}
	if l.Epoch != nil {
		if b, err = l.Epoch.append(append(b, `,"epoch":`...)); err != nil {
			return nil, fmt.Errorf("epoch %d: %w", l.Epoch.Number, err)
		}
	}
	return append(b, '}'), nil
}

func (e Epoch) append(b []byte) (_ []byte, err error) {
	b = fmt.Appendf(b, `{"number":%d,"decided":%t`, e.Number, e.Decided)
	if b, err = appendProgress(b, `,"progress":`, e.Progress); err != nil {
		return nil, err
	}
	if len(e.Staged) > 0 {
		if !json.Valid(e.Staged) {
			return nil, fmt.Errorf("what was staged, %.100q, is no JSON", e.Staged)
		}
		b = append(append(b, `,"staged":`...), e.Staged...)
	}
	return append(b, '}'), nil
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
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return Record{}, err
	}
	var j recordJSON
	if head.Format == 1 {
		var err error
		if j, err = decode1(data); err != nil {
			return Record{}, err
		}
	} else if err := decodeStrictly(data, &j); err != nil {
		return Record{}, err
	}
	r := Record{
		Pipeline: j.Pipeline, Identity: j.Identity, Attempt: j.Attempt, Origin: deref(j.Origin), Stream: j.Stream,
		Progress: deref(j.Progress), Rows: j.Rows, Rejected: j.Rejected, Updated: j.Updated,
	}
	for name, l := range j.Lanes {
		if r.Lanes == nil {
			r.Lanes = make(map[string]Lane, len(j.Lanes))
		}
		r.Lanes[name] = l.lane()
	}
	return r, r.Validate()
}

// decode1 reads format 1, which is format 2 without streams, lanes and epochs.
func decode1(data []byte) (recordJSON, error) {
	var j recordJSON1
	if err := decodeStrictly(data, &j); err != nil {
		return recordJSON{}, err
	}
	r := recordJSON{
		Pipeline: j.Pipeline, Identity: j.Identity, Attempt: j.Attempt, Origin: j.Origin,
		Rows: j.Rows, Rejected: j.Rejected, Updated: j.Updated,
	}
	if p := j.Progress; p != nil {
		r.Progress = &record.Progress{Run: p.Run, Position: p.Position, Ledger: p.Ledger, Done: p.Done}
	}
	return r, nil
}

func (j laneJSON) lane() Lane {
	l := Lane{Progress: deref(j.Progress), State: j.State, Held: j.Held, Items: j.Items, Oldest: j.Oldest, Error: j.Error}
	if e := j.Epoch; e != nil {
		l.Epoch = &Epoch{Number: e.Number, Decided: e.Decided, Progress: deref(e.Progress), Staged: e.Staged}
	}
	return l
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// OrdersFormat is the number of the persisted form that EncodeOrders writes. DecodeOrders reads this one and every earlier one.
const OrdersFormat = 1

// Orders are what people want of a pipeline besides its configuration. A process that runs it looks at them about once a second, the
// next one does at its start.
type Orders struct {
	Paused    bool       `json:"paused,omitempty"`    // the whole pipeline
	Sinks     []string   `json:"sinks,omitempty"`     // paused ones, sorted
	Datasets  []string   `json:"datasets,omitempty"`  // paused ones, as the source calls them, sorted
	Backfills []Backfill `json:"backfills,omitempty"` // that are not complete, in the order in which they were asked for
	Failed    []Failure  `json:"failed,omitempty"`    // the last backfills that ended without being run to their end, oldest first
	Last      uint64     `json:"last,omitempty"`      // id of the newest backfill there was
}

// Backfill asks for rows to be read from the source once more. It is removed by the process that ran it, once the mark of its completion
// was published to the lanes that it is for: a crash before that runs it again.
type Backfill struct {
	ID       uint64            `json:"id"`                 // from 1, never used again
	Sinks    []string          `json:"sinks,omitempty"`    // empty: all
	Datasets []string          `json:"datasets,omitempty"` // as the source calls them; empty: all
	Where    string            `json:"where,omitempty"`    // only rows that meet this condition, in the source's language
	Keys     []json.RawMessage `json:"keys,omitempty"`     // instead: only these keys (JSON objects of the key columns) of the one dataset
	Asked    time.Time         `json:"asked"`
}

// Failure says why a backfill was not run to its end: it is not possible, or somebody cancelled it.
type Failure struct {
	ID  uint64 `json:"id"`
	Why string `json:"why"` // without secrets
}

// OrderStore keeps orders, beside the record of the pipeline.
type OrderStore interface {
	// Orders returns what people want of the pipeline, and its version; the zero value and 0 where nobody said anything. A pipeline
	// may have orders before it has a record. Error: class ClassPosition, with the version, for orders that this program can't read.
	Orders(ctx context.Context, pipeline string) (Orders, Version, error)
	// SaveOrders replaces the orders of version prev (0: creates them), with the outcomes of Save. Orders outlive Save and
	// Record.Reset; Delete forgets them, too.
	SaveOrders(ctx context.Context, pipeline string, o Orders, prev Version) (Version, error)
}

// Empty reports whether nobody wants anything.
func (o Orders) Empty() bool {
	return !o.Paused && len(o.Sinks) == 0 && len(o.Datasets) == 0 && len(o.Backfills) == 0
}

// maxFailed is how many failures are kept, for those who wait for them.
const maxFailed = 16

// Fail returns the orders without a backfill that is not run to its end, and with the reason. Where it is not on the list they are the
// same.
func (o Orders) Fail(id uint64, why string) Orders {
	i := slices.IndexFunc(o.Backfills, func(b Backfill) bool { return b.ID == id })
	if i < 0 {
		return o
	}
	o.Backfills = slices.Delete(slices.Clone(o.Backfills), i, i+1)
	o.Failed = append(slices.Clone(o.Failed), Failure{ID: id, Why: why})
	o.Failed = o.Failed[max(0, len(o.Failed)-maxFailed):]
	return o
}

// UpdateOrders changes the orders of a pipeline, anew where another process was faster, and returns them as they were saved. Where the
// change leaves them as they were nothing is saved. It may call change several times, each time with orders that change may keep.
func UpdateOrders(ctx context.Context, s OrderStore, pipeline string, change func(*Orders) error) (Orders, error) {
	for {
		o, version, err := s.Orders(ctx, pipeline)
		if err != nil {
			return Orders{}, err
		}
		before, err := EncodeOrders(o, pipeline)
		if err != nil {
			return Orders{}, err
		}
		if err := change(&o); err != nil {
			return Orders{}, err
		}
		after, err := EncodeOrders(o, pipeline)
		if err != nil {
			return Orders{}, err
		}
		if bytes.Equal(before, after) {
			return o, nil
		}
		if _, err := s.SaveOrders(ctx, pipeline, o, version); !errors.Is(err, ErrConflict) {
			return o, err
		}
	}
}

// Validate checks what every store must refuse to save.
func (o Orders) Validate() error {
	if err := validateNames("sinks", o.Sinks); err != nil {
		return err
	}
	if err := validateNames("datasets", o.Datasets); err != nil {
		return err
	}
	last := uint64(0)
	for _, b := range o.Backfills {
		if b.ID <= last || b.ID > o.Last {
			return fmt.Errorf("backfill %d does not fit behind %d, the newest there was being %d", b.ID, last, o.Last)
		}
		last = b.ID
		if err := b.validate(); err != nil {
			return fmt.Errorf("backfill %d: %w", b.ID, err)
		}
	}
	for _, f := range o.Failed {
		if f.ID == 0 || f.ID > o.Last || !utf8.ValidString(f.Why) {
			return fmt.Errorf("the failure of backfill %d, where the newest was %d: %q", f.ID, o.Last, f.Why)
		}
	}
	return nil
}

func (b Backfill) validate() error {
	if err := validateNames("sinks", b.Sinks); err != nil {
		return err
	}
	if err := validateNames("datasets", b.Datasets); err != nil {
		return err
	}
	switch {
	case !utf8.ValidString(b.Where):
		return errors.New("its condition is no valid UTF-8")
	case b.Where != "" && len(b.Keys) > 0:
		return errors.New("it has a condition and keys: only one of them is possible")
	case (b.Where != "" || len(b.Keys) > 0) && len(b.Datasets) != 1:
		return fmt.Errorf("a condition or keys belong to one dataset, not to %d", len(b.Datasets))
	}
	for _, k := range b.Keys {
		if !json.Valid(k) || bytes.TrimLeft(k, " \t\r\n")[0] != '{' {
			return fmt.Errorf("key %.100q is no JSON object", k)
		}
	}
	return nil
}

// validateNames checks a list of names: sorted, each once, none of them empty.
func validateNames(what string, names []string) error {
	for i, n := range names {
		switch {
		case n == "":
			return fmt.Errorf("%s: an empty name", what)
		case !utf8.ValidString(n):
			return fmt.Errorf("%s: %q is no valid UTF-8", what, n)
		case i > 0 && names[i-1] >= n:
			return fmt.Errorf("%s: %q does not belong behind %q, they have to be sorted and unique", what, n, names[i-1])
		}
	}
	return nil
}

// EncodeOrders returns the canonical form of a pipeline's orders: one JSON object, one line, fields in fixed order, keys byte for byte
// as they were given.
func EncodeOrders(o Orders, pipeline string) ([]byte, error) {
	err := ValidateName(pipeline)
	if err == nil {
		err = o.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("saving the orders of %s: %w", pipeline, err)
	}
	b := fmt.Appendf(nil, `{"format":%d,"pipeline":`, OrdersFormat)
	b = record.AppendJSONString(b, pipeline)
	if o.Paused {
		b = append(b, `,"paused":true`...)
	}
	b = appendNames(b, `,"sinks":`, o.Sinks)
	b = appendNames(b, `,"datasets":`, o.Datasets)
	for i, f := range o.Backfills {
		if i == 0 {
			b = append(b, `,"backfills":[`...)
		} else {
			b = append(b, ',')
		}
		b = f.append(b)
	}
	if len(o.Backfills) > 0 {
		b = append(b, ']')
	}
	for i, f := range o.Failed {
		if i == 0 {
			b = append(b, `,"failed":[`...)
		} else {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(b, `{"id":`...), f.ID, 10)
		b = append(record.AppendJSONString(append(b, `,"why":`...), f.Why), '}')
	}
	if len(o.Failed) > 0 {
		b = append(b, ']')
	}
	return append(strconv.AppendUint(append(b, `,"last":`...), o.Last, 10), '}'), nil
}

func (b Backfill) append(dst []byte) []byte {
	dst = strconv.AppendUint(append(dst, `{"id":`...), b.ID, 10)
	dst = appendNames(dst, `,"sinks":`, b.Sinks)
	dst = appendNames(dst, `,"datasets":`, b.Datasets)
	if b.Where != "" {
		dst = record.AppendJSONString(append(dst, `,"where":`...), b.Where)
	}
	for i, k := range b.Keys {
		if i == 0 {
			dst = append(dst, `,"keys":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, bytes.Trim(k, " \t\r\n")...)
	}
	if len(b.Keys) > 0 {
		dst = append(dst, ']')
	}
	dst = b.Asked.UTC().AppendFormat(append(dst, `,"asked":"`...), time.RFC3339Nano)
	return append(dst, `"}`...)
}

// appendNames appends a field that is a list; an empty one is left out.
func appendNames(b []byte, field string, names []string) []byte {
	if len(names) == 0 {
		return b
	}
	b = append(b, field...)
	for i, n := range names {
		sep := byte(',')
		if i == 0 {
			sep = '['
		}
		b = record.AppendJSONString(append(b, sep), n)
	}
	return append(b, ']')
}

// ordersJSON is format 1 of orders; docs/formats/state.md describes it.
type ordersJSON struct {
	Format   int    `json:"format"`
	Pipeline string `json:"pipeline"`
	Orders
}

// DecodeOrders reads what EncodeOrders wrote. It refuses, with class ClassPosition, a format or a field that it does not know, orders
// of another pipeline, and anything else that EncodeOrders can't have written.
func DecodeOrders(data []byte, pipeline string) (Orders, error) {
	o, err := decodeOrders(data, pipeline)
	if err != nil {
		return Orders{}, &connector.Error{
			Class: connector.ClassPosition, Code: "state.format", Doing: "reading the orders for " + pipeline, Err: err,
			Hint: "use the version of leat that saved them, or forget them with: leat state reset " + pipeline + " --orders",
		}
	}
	return o, nil
}

func decodeOrders(data []byte, pipeline string) (Orders, error) {
	if err := checkFormat(data, OrdersFormat); err != nil {
		return Orders{}, err
	}
	var j ordersJSON
	if err := decodeStrictly(data, &j); err != nil {
		return Orders{}, err
	}
	if j.Pipeline != pipeline {
		return Orders{}, fmt.Errorf("they belong to pipeline %q", j.Pipeline)
	}
	return j.Orders, j.Validate()
}

// checkFormat refuses what was written by a program of another time.
func checkFormat(data []byte, newest int) error {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	switch {
	case head.Format >= 1 && head.Format <= newest:
		return nil
	case newest == 1:
		return fmt.Errorf("it has format %d, and this program reads format 1", head.Format)
	}
	return fmt.Errorf("it has format %d, and this program reads formats 1 to %d", head.Format, newest)
}

// decodeStrictly decodes one JSON value that has no other fields than into, and behind which nothing follows.
func decodeStrictly(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}

// Clone returns a copy that shares nothing with o.
func (o Orders) Clone() Orders {
	o.Sinks, o.Datasets = slices.Clone(o.Sinks), slices.Clone(o.Datasets)
	o.Backfills, o.Failed = slices.Clone(o.Backfills), slices.Clone(o.Failed)
	for i := range o.Backfills {
		b := &o.Backfills[i]
		b.Sinks, b.Datasets, b.Keys = slices.Clone(b.Sinks), slices.Clone(b.Datasets), slices.Clone(b.Keys)
	}
	return o
}

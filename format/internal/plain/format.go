package plain

import (
	"context"
	"errors"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/format/message"
	"github.com/leatdata/leat/record"
)

// Format is a message format of plain rows.
type Format struct {
	Wire Wire
	// Packer returns what writes the values, or the keys, of a topic; nil: the format is only read.
	Packer  func(t message.Topic, key bool) (Packer, error)
	Mapping func(*record.Schema) []connector.Mapping
}

var _ message.Format = (*Format)(nil)

// NewJSON is the format of JSON texts: objects whose members are columns.
func NewJSON() *Format {
	return &Format{
		Wire: JSON{}, Mapping: jsonl.Mapping,
		Packer: func(message.Topic, bool) (Packer, error) { return &JSONPacker{}, nil },
	}
}

// Input implements message.Format.
func (*Format) Input(t message.Topic) connector.Input {
	if t.Keyed {
		return connector.Keyed
	}
	return connector.AppendOnly
}

// Learn implements message.Format.
func (f *Format) Learn(ctx context.Context, t message.Topic, sample []message.Message) (*record.Schema, error) {
	return Learn(ctx, f.Wire, t, sample)
}

// NewDecoder implements message.Format.
func (f *Format) NewDecoder(t message.Topic, s *record.Schema) (message.Decoder, error) {
	return NewDecoder(f.Wire, t, s)
}

// Map implements message.Format.
func (f *Format) Map(_ message.Topic, s *record.Schema) []connector.Mapping {
	if f.Mapping != nil {
		return f.Mapping(s)
	}
	out := make([]connector.Mapping, s.Columns.NumFields())
	for i, c := range s.Columns.Fields() {
		out[i] = connector.Mapping{Column: c.Name, Why: errReadOnly.Error()}
	}
	return out
}

var errReadOnly = errors.New("the format is only read: say format=json, avro or json-schema to write")

// NewEncoder implements message.Format.
func (f *Format) NewEncoder(t message.Topic) (message.Encoder, error) {
	if f.Packer == nil {
		return nil, errReadOnly
	}
	value, err := f.Packer(t, false)
	if err != nil {
		return nil, err
	}
	own, err := f.Packer(t, true)
	if err != nil {
		return nil, err
	}
	key, err := KeyPacker(t, own)
	if err != nil {
		return nil, err
	}
	return NewEncoder(key, value), nil
}

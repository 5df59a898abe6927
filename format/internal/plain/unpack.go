package plain

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/leatdata/leat/format/internal/connect"
	"github.com/leatdata/leat/format/internal/jsontext"
	"github.com/leatdata/leat/format/message"
)

// Unpacker finds the value in the bytes of a key or of a message. It is used by one goroutine at a time.
type Unpacker interface {
	// Unpack returns the value and its schema: the same pointer as long as it is the same; nil for JSON that comes without one. An error
	// that wraps ErrRegistry is one of a registry that may pass; any other says that the bytes can't be read.
	Unpack(ctx context.Context, data []byte, headers []message.Header, t *connect.Tape) (*connect.Schema, connect.Cell, error)
}

// ErrRegistry says that a registry could not be asked.
var ErrRegistry = errors.New("the schema registry did not answer")

// Wire makes the unpackers of one topic.
type Wire interface {
	// Unpacker returns what reads the keys, or the values, of a topic.
	Unpacker(topic string, key bool) Unpacker
	// Known returns the newest schema that is registered for keys, or values, of a topic; nil: none is, or there is no registry.
	Known(ctx context.Context, topic string, key bool) (*connect.Schema, error)
	// Mine reports whether bytes begin as the wire format does; used for keys, which are often plain text.
	Mine(data []byte) bool
}

// The plain forms of keys.
const (
	KeyJSON   = "json"
	KeyText   = "text"
	KeyBinary = "binary"
	KeyNone   = "none"
	keyWire   = "wire"
)

type textUnpacker struct{}

var ( // never changed
	textSchema  = &connect.Schema{Type: connect.String} //nolint:gochecknoglobals // constant
	bytesSchema = &connect.Schema{Type: connect.Bytes}  //nolint:gochecknoglobals // constant
)

func (textUnpacker) Unpack(_ context.Context, data []byte, _ []message.Header, _ *connect.Tape) (*connect.Schema, connect.Cell, error) {
	if !utf8.Valid(data) {
		return nil, connect.Cell{}, errors.New("it is not valid UTF-8; say key=binary to keep bytes")
	}
	return textSchema, connect.Cell{Kind: connect.Text, Bytes: data}, nil
}

type binaryUnpacker struct{}

func (binaryUnpacker) Unpack(_ context.Context, data []byte, _ []message.Header, _ *connect.Tape) (*connect.Schema, connect.Cell, error) {
	return bytesSchema, connect.Cell{Kind: connect.Blob, Bytes: data}, nil
}

// JSON is the wire format of JSON texts, with Connect's schemas or without.
type JSON struct{}

// Unpacker implements Wire.
func (JSON) Unpacker(string, bool) Unpacker { return &jsonUnpacker{} }

// Known implements Wire.
func (JSON) Known(context.Context, string, bool) (*connect.Schema, error) { return nil, nil } //nolint:nilnil // there is none

// Mine implements Wire.
func (JSON) Mine(data []byte) bool {
	_, err := connect.Parse(data)
	return err == nil
}

// jsonUnpacker reads JSON texts. The last schema is remembered: every message of Connect's converter carries the same again.
type jsonUnpacker struct {
	text   []byte
	schema *connect.Schema
}

func (u *jsonUnpacker) Unpack(
	_ context.Context, data []byte, _ []message.Header, _ *connect.Tape,
) (*connect.Schema, connect.Cell, error) {
	c, err := connect.Parse(data)
	if err != nil {
		return nil, c, fmt.Errorf("it is no JSON: %w", err)
	}
	schema, payload, ok := connect.SchemaAndPayload(c)
	if !ok {
		return nil, c, nil
	}
	if schema.JSONKind() != jsontext.Object {
		return nil, payload, nil
	}
	if u.schema == nil || string(schema.Bytes) != string(u.text) {
		s, err := connect.ParseJSON(schema.Bytes)
		if err != nil {
			return nil, c, fmt.Errorf("its schema: %w", err)
		}
		u.schema, u.text = s, append([]byte(nil), schema.Bytes...)
	}
	return u.schema, payload, nil
}

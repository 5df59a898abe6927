package message

import (
	"context"
	"time"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/record"
)

// Message is one message of a topic, to decode or just encoded.
type Message struct {
	Topic     string
	Partition int32
	Offset    int64
	Time      time.Time // zero: none
	Key       []byte    // nil: none, which is not the same as an empty one
	Value     []byte    // nil: none, a tombstone
	Headers   []Header
	Logged    bool // Time is when the log took the message; otherwise it is the producer's
}

// Header is one header; names may repeat, and their order counts.
type Header struct {
	Name  string
	Value []byte // nil: none
}

// Topic is what a format is told of the messages of one topic.
type Topic struct {
	Name    string
	Dataset string // empty: Name
	// Keyed says that a message holds what the row of its key is from now on: it is an upsert, and without a value a deletion. Otherwise
	// every message is a row of its own. Formats whose messages say themselves what happened don't ask.
	Keyed bool
	// SkipTombstones passes over messages without a value. Otherwise one is the deletion of its key, and where rows have no keys, a row
	// that can't be read.
	SkipTombstones bool
	// Types are declared types by column, see record.ParseType; formats that know the types of their columns refuse other ones.
	Types map[string]string
	// Key says how keys are written: json, text, binary, none (keys are neither read nor written), or empty: as the format likes best, and
	// for reading, as the sample shows.
	Key string
}

// dataset is the name of the dataset.
func (t Topic) dataset() string {
	if t.Dataset == "" {
		return t.Name
	}
	return t.Dataset
}

// Format is a way to write rows as messages. All methods may be called concurrently.
type Format interface {
	// Learn works out the schema of a topic: from the registry where the format has one, else from a sample of its messages, in any
	// order. Messages of the sample that can't be read are passed over: decoding tells of them. Without any message the schema may have
	// no columns; they then come with the messages.
	Learn(ctx context.Context, t Topic, sample []Message) (*record.Schema, error)
	// NewDecoder returns a decoder that begins with a schema that Learn returned, perhaps in another process.
	NewDecoder(t Topic, s *record.Schema) (Decoder, error)
	// Map says how the columns of a dataset are written. Pure.
	Map(t Topic, s *record.Schema) []connector.Mapping
	// NewEncoder returns an encoder of batches of one dataset.
	NewEncoder(t Topic) (Encoder, error)
	// Input is the strongest kind of rows that messages can tell of, to read and to write: AppendOnly has only inserts, Keyed upserts and
	// deletions by key, Changelog every change.
	Input(t Topic) connector.Input
}

// Decoder turns the messages of one topic into batches of one dataset. Methods are never called concurrently.
type Decoder interface {
	// Schema returns the schema of the next batch.
	Schema() *record.Schema
	// Append adds a message to the batch under way, as rows (none, one or several), as a reject, or as a truncation. False and no error:
	// the batch is complete as it stands (the schema changes with this message, or the batch is as large as it may be), nothing of the
	// message was taken; call Batch and append the same message again, which then succeeds. An error is one of a registry: the message
	// was not taken and may be appended again. Nothing of the message is kept.
	Append(ctx context.Context, m *Message) (bool, error)
	// Rows returns how many rows and rejects were appended since the last Batch.
	Rows() int
	// Kept returns how many rows the next Batch has so far: Rows without rejects and truncations.
	Kept() int
	// Batch hands out what was appended since the last call, in order, without positions and transactions, and begins another batch. Nil:
	// no message was appended that says anything. The caller owns the batch.
	Batch() (*record.Batch, error)
}

// Encoder turns batches of one dataset into messages. Methods are never called concurrently.
type Encoder interface {
	// Bind prepares for batches of a schema: with a registry it registers the schema, or finds out that it is registered. Encode calls it
	// where the schema is another one than before, so calling it early only brings errors earlier.
	Bind(ctx context.Context, s *record.Schema) error
	// Encode calls emit for every message of the batch, in order; row is the row that it belongs to, -1 for a truncation. Key, Value and
	// Headers are valid until emit returns; Topic, Partition, Offset and Time are the connector's to fill, but for formats that have
	// them as columns. Rows that can't be encoded are left out whole and returned with the others written. An error of emit ends it
	// and is returned as it is.
	Encode(ctx context.Context, b *record.Batch, emit func(row int, m *Message) error) ([]connector.RowError, error)
}

// Reject describes a message that can't be decoded: all but the reason.
func Reject(dataset string, m *Message, class, why string) record.Reject {
	return record.Reject{
		Dataset: dataset, Offset: m.Offset, Key: keyText(m.Key), Class: class, Message: place(m) + why, Raw: append([]byte{}, m.Value...),
	}
}

package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/arrowipc"
	"github.com/leatdata/leat/record"
)

// Schema is a schema in its persisted form. Equal ones are one value, and one *record.Schema, for all that goes through the same
// Schemas: who asks whether a schema has changed compares pointers.
type Schema struct {
	blob   []byte
	record *record.Schema

	mu   sync.Mutex
	rows *arrowipc.Records
}

// schemaHead is the part of a schema that is JSON; the message of its columns follows.
type schemaHead struct {
	Dataset string `json:"dataset,omitempty"`
	Key     []int  `json:"key,omitzero"`
	Version uint64 `json:"version,omitempty"`
	Columns bool   `json:"columns,omitempty"` // only columns: there is no dataset that they belong to
}

// maxSchemas is how many schemas are kept; beyond that they are learned anew.
const maxSchemas = 4096

// Schemas knows the schemas of one stream of items. It is safe for concurrent use.
type Schemas struct {
	mu     sync.Mutex
	byBlob map[string]*Schema
	byRef  map[*record.Schema]*Schema
	byCols map[*arrow.Schema]*Schema
}

// NewSchemas returns an empty one.
func NewSchemas() *Schemas {
	return &Schemas{byBlob: map[string]*Schema{}, byRef: map[*record.Schema]*Schema{}, byCols: map[*arrow.Schema]*Schema{}}
}

// of returns the persisted form of a schema.
func (s *Schemas) of(r *record.Schema) (*Schema, error) {
	s.mu.Lock()
	known := s.byRef[r]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	blob, err := encodeSchema(schemaHead{Dataset: r.Dataset, Key: r.Key, Version: r.Version}, r.Columns)
	if err != nil {
		return nil, fmt.Errorf("encoding the schema of %s: %w", r.Dataset, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known = s.keep(&Schema{blob: blob, record: r})
	s.byRef[r] = known
	return known, nil
}

// ofRows returns the persisted form of the columns of rows: that of the batch's own schema where they are the same.
func (s *Schemas) ofRows(r *record.Schema, cols *arrow.Schema) (*Schema, error) {
	if r != nil && r.Columns != nil && (r.Columns == cols || same(r.Columns, cols)) {
		return s.of(r)
	}
	s.mu.Lock()
	known := s.byCols[cols]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	blob, err := encodeSchema(schemaHead{Columns: true}, cols)
	if err != nil {
		return nil, fmt.Errorf("encoding columns: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known = s.keep(&Schema{blob: blob, record: &record.Schema{Columns: cols}})
	s.byCols[cols] = known
	return known, nil
}

// same compares with all metadata.
func same(a, b *arrow.Schema) bool {
	return a.Equal(b) && a.Metadata().Equal(b.Metadata())
}

// keep returns the one value for these bytes; the mutex is held.
func (s *Schemas) keep(n *Schema) *Schema {
	if known := s.byBlob[string(n.blob)]; known != nil {
		return known
	}
	if len(s.byBlob) >= maxSchemas || len(s.byRef) >= maxSchemas || len(s.byCols) >= maxSchemas {
		clear(s.byBlob)
		clear(s.byRef)
		clear(s.byCols)
	}
	s.byBlob[string(n.blob)] = n
	return n
}

func encodeSchema(h schemaHead, cols *arrow.Schema) ([]byte, error) {
	head, err := json.Marshal(&h)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says it
	}
	b := append(binary.AppendUvarint(nil, uint64(len(head))), head...)
	if cols == nil {
		return b, nil
	}
	return arrowipc.AppendSchema(b, cols) //nolint:wrapcheck // the caller says it
}

// decode returns the schema of these bytes.
func (s *Schemas) decode(blob []byte) (*Schema, error) {
	s.mu.Lock()
	known := s.byBlob[string(blob)]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	n := &Schema{blob: append([]byte(nil), blob...)}
	rest := n.blob
	head, rest, err := cut(rest)
	if err != nil {
		return nil, err
	}
	var h schemaHead
	if err := json.Unmarshal(head, &h); err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it read
	}
	n.record = &record.Schema{Dataset: h.Dataset, Key: h.Key, Version: h.Version}
	if len(rest) > 0 {
		if n.rows, err = arrowipc.NewRecords(rest); err != nil {
			return nil, err //nolint:wrapcheck // says it all
		}
		n.record.Columns = n.rows.Schema()
		for _, k := range h.Key {
			if k < 0 || k >= n.record.Columns.NumFields() {
				return nil, fmt.Errorf("key column %d does not exist", k)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep(n), nil
}

// read returns the rows of a message.
func (s *Schema) read(data []byte) (arrow.RecordBatch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows == nil {
		_, message, err := cut(s.blob)
		if err != nil {
			return nil, err
		}
		if len(message) == 0 {
			return nil, errors.New("rows of a schema without columns")
		}
		if s.rows, err = arrowipc.NewRecords(message); err != nil {
			return nil, err //nolint:wrapcheck // says it all
		}
	}
	rec, err := s.rows.Read(data)
	if err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	return withSchema(rec, s.record.Columns), nil
}

// cut splits off what is preceded by its length.
func cut(b []byte) (head, rest []byte, err error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, errors.New("it is cut off")
	}
	return b[w : w+int(n)], b[w+int(n):], nil
}

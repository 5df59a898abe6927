package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// encodedSchema is a schema as it is kept, once for all letters that have it.
type encodedSchema struct {
	id      []byte // of all else
	key     string // JSON list of columns
	columns []byte // a schema message of Arrow's IPC format, with all metadata
}

func encodeSchema(s *record.Schema) (encodedSchema, error) {
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(s.Columns))
	if err := w.Close(); err != nil {
		return encodedSchema{}, fmt.Errorf("encoding the columns of %s: %w", s.Dataset, err)
	}
	key, err := json.Marshal(append([]int{}, s.Key...))
	if err != nil {
		return encodedSchema{}, fmt.Errorf("encoding the key of %s: %w", s.Dataset, err)
	}
	out := encodedSchema{key: string(key), columns: buf.Bytes()}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(s.Dataset), key, out.columns} {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write(part)
	}
	out.id = h.Sum(nil)[:idBytes]
	return out, nil
}

func (e encodedSchema) decode(dataset string) (*record.Schema, error) {
	fail := func(err error) (*record.Schema, error) {
		return nil, fmt.Errorf("reading the kept columns of %s: %w", dataset, err)
	}
	if err := record.Register(); err != nil {
		return fail(err)
	}
	r, err := ipc.NewReader(bytes.NewReader(e.columns))
	if err != nil {
		return fail(err)
	}
	defer r.Release()
	s := &record.Schema{Dataset: dataset, Columns: r.Schema()}
	if err := json.Unmarshal([]byte(e.key), &s.Key); err != nil {
		return fail(err)
	}
	if len(s.Key) == 0 {
		s.Key = nil
	}
	if err := s.Validate(); err != nil {
		return fail(err)
	}
	return s, nil
}

// rowOf makes one row of a JSON object of the columns: exactly the one that the object was made of. Columns that the object lacks are
// null.
func rowOf(s *record.Schema, doc []byte) (arrow.RecordBatch, error) {
	if err := record.CheckJSON(doc); err != nil {
		return nil, fmt.Errorf("the kept row of %s: %w", s.Dataset, err)
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(doc, &values); err != nil {
		return nil, fmt.Errorf("the kept row of %s: %w", s.Dataset, err)
	}
	cols := make([]arrow.Array, s.Columns.NumFields())
	for i, f := range s.Columns.Fields() {
		b := array.NewBuilder(memory.DefaultAllocator, f.Type)
		raw, ok := values[f.Name]
		if !ok {
			b.AppendNull()
		} else if err := record.ParseJSON(b, raw); err != nil {
			return nil, fmt.Errorf("the kept row of %s: column %q: %w", s.Dataset, f.Name, err)
		}
		cols[i] = b.NewArray()
	}
	return array.NewRecordBatch(s.Columns, cols, 1), nil
}

// Batch is the letter's row as a batch. It fails for a letter that has only the source's own form of the row, see record.Reject.
func (l Letter) Batch() (*record.Batch, error) {
	if l.Schema == nil {
		return nil, fmt.Errorf("%s: letter %.12s has no row of columns, only the source's own text", l.Dataset, l.ID)
	}
	rows, err := rowOf(l.Schema, l.Raw)
	if err != nil {
		return nil, err
	}
	b := &record.Batch{Schema: l.Schema, Rows: rows}
	if l.Op != record.Insert {
		b.Ops = []record.Op{l.Op}
	}
	if len(l.Before) > 0 {
		if b.Old, err = rowOf(l.Schema, l.Before); err != nil {
			return nil, err
		}
	}
	return b, nil
}

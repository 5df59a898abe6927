package arrowipc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/format/internal/arrowtype"
	"github.com/leatdata/leat/record"
)

// AppendSchema appends a schema to b as one message of the stream form: with all metadata, of the schema and of its columns.
func AppendSchema(b []byte, s *arrow.Schema) ([]byte, error) {
	if err := record.Register(); err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	p := ipc.GetSchemaPayload(s, memory.DefaultAllocator)
	defer p.Release()
	return appendPayload(b, &p)
}

// AppendRecord appends rows to b as one message of the stream form. Of slices only the rows that they show are written.
func AppendRecord(b []byte, rec arrow.RecordBatch) ([]byte, error) {
	p, err := ipc.GetRecordBatchPayload(rec)
	if err != nil {
		return nil, fmt.Errorf("writing Arrow IPC: %w", err)
	}
	defer p.Release()
	return appendPayload(b, &p)
}

// appendPayload grows b once: what a payload takes is counted before, which copies nothing.
func appendPayload(b []byte, p *ipc.Payload) ([]byte, error) {
	var size counter
	if _, err := p.WritePayload(&size); err != nil {
		return nil, fmt.Errorf("writing Arrow IPC: %w", err)
	}
	buf := bytes.NewBuffer(slices.Grow(b, int(size)))
	if _, err := p.WritePayload(buf); err != nil {
		return nil, fmt.Errorf("writing Arrow IPC: %w", err)
	}
	return buf.Bytes(), nil
}

// counter is a writer that keeps only how many bytes there were.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// Records reads single messages of one schema, in any order, exactly as they were written: unlike a Reader it converts no type. It is
// for bytes that this program wrote; damage gives errors all the same. One goroutine at a time uses it.
type Records struct {
	schema []byte
	in     *messages
	rd     *ipc.Reader
}

// NewRecords reads what AppendSchema wrote.
func NewRecords(schema []byte) (*Records, error) {
	r := &Records{schema: schema}
	if err := r.reset(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Records) reset() error {
	return guard("reading a schema", func() (err error) {
		if err = record.Register(); err != nil {
			return err //nolint:wrapcheck // says it all
		}
		r.in = &messages{r: bytes.NewReader(r.schema)}
		r.rd, err = ipc.NewReaderFromMessageReader(r.in, ipc.WithAllocator(allocator{memory.DefaultAllocator}))
		return err //nolint:wrapcheck // guard says what was being done
	})
}

// Schema returns the schema.
func (r *Records) Schema() *arrow.Schema { return r.rd.Schema() }

// Read returns the rows of one message that AppendRecord wrote; the result shares no memory with it.
func (r *Records) Read(message []byte) (arrow.RecordBatch, error) {
	var out arrow.RecordBatch
	err := guard("reading rows", func() (err error) {
		r.in.r = bytes.NewReader(message)
		out, err = nextRecord(r.rd)
		if err == io.EOF { //nolint:errorlint // the bare one is the end
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if err != nil {
		// The library's reader is of no use after an error.
		return nil, errors.Join(arrowtype.Damaged(codeDamaged, "reading rows", err), r.reset())
	}
	return out, nil
}

package record

import (
	"errors"
	"fmt"
)

// Encoded is a run of whole rows in a source's own encoding, for a sink that takes exactly that encoding: nobody in between looks at
// them. It is immutable, like all of a batch.
type Encoded struct {
	// Format names encoding and columns: a sink that takes a format takes the bytes as they are.
	Format string
	Data   []byte // the rows, one behind the other
	Ends   []int  // where each of them ends in Data
	// Decode makes columns of the rows, for whoever needs them after all: Rows and Rejects of the batch that it returns count. It changes
	// nothing and may be called concurrently.
	Decode func(data []byte) (*Batch, error)
}

// errEncoded is what asks for single rows of a batch whose rows are in a source's own encoding.
var errEncoded = errors.New("the rows are in the source's own encoding")

// NumRows returns the number of rows.
func (e *Encoded) NumRows() int { return len(e.Ends) }

// bytes is how much memory the rows keep alive.
func (e *Encoded) bytes() int64 { return int64(len(e.Data)) + 8*int64(len(e.Ends)) }

// Slice returns rows from (inclusive) to (exclusive), without copying them.
func (e *Encoded) Slice(from, to int) *Encoded {
	start, end := 0, 0
	if from > 0 {
		start = e.Ends[from-1]
	}
	if to > 0 {
		end = e.Ends[to-1]
	}
	out := &Encoded{Format: e.Format, Data: e.Data[start:end:end], Ends: make([]int, to-from), Decode: e.Decode}
	for i := range out.Ends {
		out.Ends[i] = e.Ends[from+i] - start
	}
	return out
}

// Decoded returns the batch with its rows as columns; b itself where they are that already.
func (b *Batch) Decoded() (*Batch, error) {
	if b.Encoded == nil {
		return b, nil
	}
	d, err := b.Encoded.Decode(b.Encoded.Data)
	if err != nil {
		return nil, fmt.Errorf("decoding rows of %s: %w", b.Schema.Dataset, err)
	}
	out := *b
	out.Encoded, out.Rows, out.Rejects = nil, d.Rows, d.Rejects
	return &out, nil
}

// JoinEncoded makes one run of rows of several of one format, at least one.
func JoinEncoded(parts []*Encoded) *Encoded {
	size, rows := 0, 0
	for _, p := range parts {
		size, rows = size+len(p.Data), rows+len(p.Ends)
	}
	out := &Encoded{Format: parts[0].Format, Data: make([]byte, 0, size), Ends: make([]int, 0, rows), Decode: parts[0].Decode}
	for _, p := range parts {
		for _, end := range p.Ends {
			out.Ends = append(out.Ends, len(out.Data)+end)
		}
		out.Data = append(out.Data, p.Data...)
	}
	return out
}

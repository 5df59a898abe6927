package record

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Txn is a run of rows that came from one source transaction.
type Txn struct {
	Rows     int
	Position Position  // of the transaction's end
	Time     time.Time // of its commit, on the source's clock
}

// Batch is an immutable run of rows of one dataset. Every lane shares it; nobody changes it.
type Batch struct {
	Schema    *Schema
	Truncate  bool              // empty the dataset before the rows
	Rows      arrow.RecordBatch // one row per change: the image after it (Delete: before it); nil: no rows
	Encoded   *Encoded          // the rows in the source's own encoding, instead of Rows: all are inserts; nil: they are in Rows
	Ops       []Op              // nil: all Insert
	Old       arrow.RecordBatch // nil, or same row count: the image before, null where unknown
	Unchanged map[int][]uint64  // column -> bitmap of rows whose value the source did not send
	Txns      []Txn             // nil for plain reads
	Rejects   []Reject          // rows of this stretch of input that could not be read
	Changes   int               // source changes this was built from; 0 for snapshot rows
	Size      int64             // bytes of the source that were read for it; 0: unknown
	Chunk     *Chunk            // set on snapshot rows
	Position  Position          // zero inside a replay unit
}

// Chunk says which part of a dataset's snapshot rows are, and which transactions they already include.
type Chunk struct {
	Dataset string          `json:"dataset"`
	From    json.RawMessage `json:"from,omitempty"` // key range, From exclusive, To inclusive; nil: open end
	To      json.RawMessage `json:"to,omitempty"`
	// Keys, instead of a range, are exactly these keys, in the source's own form.
	Keys []json.RawMessage `json:"keys,omitempty"`
	// Where is a condition in the source's own language that rows have to meet besides; empty: none.
	Where    string   `json:"where,omitempty"`
	Snapshot Position `json:"snapshot"`
}

// Reject is one row that could not be carried, with all that a person needs to find it and to replay it.
type Reject struct { //nolint:errname // it is a row first, and an error where a run stops at it
	Dataset string          `json:"dataset"`
	Line    int64           `json:"line,omitempty"`   // 1-based line or row number in a file; 0: none
	Offset  int64           `json:"offset,omitempty"` // byte offset in a file; meaningful with Line
	Key     json.RawMessage `json:"key,omitempty"`    // JSON object of the key columns
	Column  string          `json:"column,omitempty"`
	Value   string          `json:"value,omitempty"` // text form, shortened
	Class   string          `json:"class"`           // bad_syntax, bad_value, not_representable, refused_by_sink …
	Code    string          `json:"code,omitempty"`  // of the system that refused it, such as an SQLSTATE
	Message string          `json:"message"`
	Raw     []byte          `json:"raw,omitempty"` // the original row: the file's bytes, or a JSON object of the columns
	// Schema types the columns of Raw and Before, so that the row can be had again exactly, see AppendJSON; nil: Raw is the source's own
	// form of the row.
	Schema *Schema         `json:"-"`
	Op     Op              `json:"op,omitempty"`
	Before json.RawMessage `json:"before,omitempty"` // JSON object of the image before
	Step   int             `json:"step,omitempty"`   // 1-based transform, of the source or the sink, that could not take the row; 0: none
}

// Error makes the reject readable as one line: where, which column, which value, and why.
func (r Reject) Error() string {
	s := r.Dataset
	if r.Line > 0 {
		s += fmt.Sprintf(", line %d (byte %d)", r.Line, r.Offset)
	}
	if len(r.Key) > 0 {
		s += ", key " + string(r.Key)
	}
	if r.Column != "" {
		s += fmt.Sprintf(", column %q", r.Column)
	}
	if r.Value != "" {
		s += fmt.Sprintf(", value %q", r.Value)
	}
	return s + ": " + r.Message
}

// NumRows returns the number of rows; a batch without rows has 0.
func (b *Batch) NumRows() int {
	if b.Encoded != nil {
		return b.Encoded.NumRows()
	}
	if b.Rows == nil {
		return 0
	}
	return int(b.Rows.NumRows())
}

// Op returns what happened to row i.
func (b *Batch) Op(i int) Op {
	if b.Ops == nil {
		return Insert
	}
	return b.Ops[i]
}

// Bytes returns how much memory the rows keep alive, in bytes: what queues are bounded by.
func (b *Batch) Bytes() int64 {
	n := int64(256)
	if b.Encoded != nil {
		n += b.Encoded.bytes()
	}
	for _, rb := range []arrow.RecordBatch{b.Rows, b.Old} {
		if rb == nil {
			continue
		}
		for _, c := range rb.Columns() {
			n += int64(c.Data().SizeInBytes())
		}
	}
	for _, r := range b.Rejects {
		n += int64(len(r.Raw) + len(r.Message) + len(r.Value))
	}
	return n + int64(len(b.Ops))
}

// Keep returns a batch with only the rows i for which keep(i) is true, in order; all else stays. It returns b itself where every
// row is kept. Rows in a source's own encoding are an error: see Decoded.
func (b *Batch) Keep(keep func(i int) bool) (*Batch, error) {
	if b.Encoded != nil {
		return nil, errEncoded
	}
	var kept runs
	n := b.NumRows()
	for i := range n {
		switch last := len(kept) - 1; {
		case !keep(i):
		case last >= 0 && kept[last][1] == int64(i):
			kept[last][1]++
		default:
			kept = append(kept, [2]int64{int64(i), int64(i) + 1})
		}
	}
	left := kept.rows()
	if left == n {
		return b, nil
	}
	out := *b
	var err error
	if out.Rows, err = takeRuns(b.Rows, kept); err != nil {
		return nil, err
	}
	if b.Old != nil {
		if out.Old, err = takeRuns(b.Old, kept); err != nil {
			return nil, err
		}
	}
	out.Ops = nil
	if b.Ops != nil {
		out.Ops = make([]Op, 0, left)
		for _, r := range kept {
			out.Ops = append(out.Ops, b.Ops[r[0]:r[1]]...)
		}
	}
	out.Unchanged = takeBitmaps(b.Unchanged, kept)
	out.Txns = takeTxns(b.Txns, kept)
	return &out, nil
}

func takeRuns(rb arrow.RecordBatch, kept runs) (arrow.RecordBatch, error) {
	switch len(kept) {
	case 0:
		return rb.NewSlice(0, 0), nil
	case 1:
		return rb.NewSlice(kept[0][0], kept[0][1]), nil
	}
	cols := make([]arrow.Array, rb.NumCols())
	for c := range cols {
		var err error
		if cols[c], err = gather(rb.Column(c), kept); err != nil {
			return nil, fmt.Errorf("joining rows of column %q: %w", rb.ColumnName(c), err)
		}
	}
	return array.NewRecordBatch(rb.Schema(), cols, int64(kept.rows())), nil
}

func takeBitmaps(in map[int][]uint64, kept runs) map[int][]uint64 {
	if in == nil {
		return nil
	}
	out := make(map[int][]uint64, len(in))
	for col, bits := range in {
		dst, at := make([]uint64, (kept.rows()+63)/64), 0
		for _, r := range kept {
			for i := r[0]; i < r[1]; i++ {
				if bits[i/64]>>(i%64)&1 == 1 {
					dst[at/64] |= 1 << (at % 64)
				}
				at++
			}
		}
		out[col] = dst
	}
	return out
}

// takeTxns keeps every transaction, also one that lost all its rows: its end is still a fact of the stream.
func takeTxns(in []Txn, kept runs) []Txn {
	if in == nil {
		return nil
	}
	out := make([]Txn, len(in))
	from := int64(0)
	for i, t := range in {
		to := from + int64(t.Rows)
		out[i] = t
		out[i].Rows = 0
		for len(kept) > 0 && kept[0][0] < to {
			out[i].Rows += int(min(to, kept[0][1]) - max(from, kept[0][0]))
			if kept[0][1] > to {
				break // the rest of it is the next one's
			}
			kept = kept[1:]
		}
		from = to
	}
	return out
}

// IsUnchanged reports whether the source did not send the value of column col in row i.
func (b *Batch) IsUnchanged(col, i int) bool {
	bits, ok := b.Unchanged[col]
	return ok && bits[i/64]>>(i%64)&1 == 1
}

// KeyJSON returns the key of row i as a JSON object, or nil where the dataset has no key.
func (b *Batch) KeyJSON(i int) json.RawMessage {
	if len(b.Schema.Key) == 0 || b.Rows == nil {
		return nil
	}
	return rowJSON(b.Rows, b.Schema.Key, i)
}

// RowJSON returns row i as a JSON object of all columns: the original that a dead letter keeps.
func (b *Batch) RowJSON(i int) json.RawMessage {
	cols := make([]int, b.Rows.NumCols())
	for c := range cols {
		cols[c] = c
	}
	return rowJSON(b.Rows, cols, i)
}

// Reject describes row i as one that can't be carried: all but the reason.
func (b *Batch) Reject(i int) Reject {
	r := Reject{Dataset: b.Schema.Dataset, Key: b.KeyJSON(i), Raw: b.RowJSON(i), Schema: b.Schema, Op: b.Op(i)}
	if b.Old != nil && b.Op(i) != Insert {
		r.Before = (&Batch{Rows: b.Old}).RowJSON(i)
	}
	return r
}

func rowJSON(rb arrow.RecordBatch, cols []int, i int) json.RawMessage {
	out := []byte{'{'}
	for n, c := range cols {
		if n > 0 {
			out = append(out, ',')
		}
		out = AppendJSONString(out, rb.ColumnName(c))
		out = append(out, ':')
		out = AppendJSON(out, rb.Column(c), i)
	}
	return append(out, '}')
}

// KeyMoved reports whether row i is an update that changed its key: the image before has a key, and another one.
func (b *Batch) KeyMoved(i int) bool {
	if b.Old == nil || b.Op(i) != Update {
		return false
	}
	moved := false
	for _, k := range b.Schema.Key {
		before := b.Old.Column(k)
		if before.IsNull(i) {
			return false
		}
		moved = moved || !sameValue(before, b.Rows.Column(k), i)
	}
	return moved
}

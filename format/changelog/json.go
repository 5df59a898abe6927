package changelog

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/internal/value"
	"github.com/leatdata/leat/record"
)

// JSON writes JSON Lines: an object for each change. It implements Writer; the schema may change from batch to batch.
type JSON struct {
	w      io.Writer
	schema *record.Schema
	head   []byte // between the operation and what belongs to the row
	rows   image
	old    image
	buf    []byte
	failed error

	txn  *record.Txn // whose text tail holds
	tail []byte      // what is the same in all changes of a transaction
}

var _ Writer = (*JSON)(nil)

// NewJSON begins a file; a file without changes has no bytes.
func NewJSON(w io.Writer) *JSON { return &JSON{w: w} }

// flushSize is how many bytes are collected before they are written.
const flushSize = 64 << 10

// Write implements Writer.
func (w *JSON) Write(b *record.Batch, seq int64) error {
	if w.failed != nil {
		return w.failed
	}
	b, err := Complete(b)
	if err != nil {
		return err
	}
	if err := Check(b); err != nil {
		return err
	}
	w.bind(b)
	for c := range Changes(b) {
		w.change(c, seq)
		seq++
		if len(w.buf) >= flushSize {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	w.rows.printers, w.old.printers, w.txn = w.rows.printers[:0], w.old.printers[:0], nil
	return nil
}

// bind prepares what is the same for all changes of a batch.
func (w *JSON) bind(b *record.Batch) {
	if b.Schema != w.schema {
		w.schema = b.Schema
		w.rows.names = names(b.Schema)
		w.old.names = w.rows.names
		w.head = record.AppendJSONString([]byte(`","dataset":`), b.Schema.Dataset)
	}
	w.rows.printers = printers(w.rows.printers[:0], b.Rows)
	w.old.printers = printers(w.old.printers[:0], b.Old)
	w.txn = nil
}

func printers(dst []value.Printer, rows arrow.RecordBatch) []value.Printer {
	if rows == nil {
		return dst
	}
	for _, c := range rows.Columns() {
		dst = append(dst, value.Bind(c))
	}
	return dst
}

func (w *JSON) change(c Change, seq int64) {
	out := append(append(w.buf, `{"op":"`...), byte(c.Op))
	out = append(out, w.head...)
	if key := c.Batch.Schema.Key; len(key) > 0 && c.Row >= 0 {
		out = w.rows.object(append(out, `,"key":`...), key, c.Row, nil)
	}
	out = w.before(out, c)
	out = w.after(out, c)
	out = append(out, w.transaction(c.Txn)...)
	out = strconv.AppendInt(append(out, `,"seq":`...), seq, 10)
	w.buf = append(out, '}', '\n')
}

// before appends what is known of the row before.
func (w *JSON) before(out []byte, c Change) []byte {
	rows, extent := c.Before()
	if extent == Nothing {
		return out
	}
	from := &w.old
	if rows == c.Batch.Rows {
		from = &w.rows
	}
	var cols []int
	if extent == Key {
		cols = c.Batch.Schema.Key
	}
	return from.object(append(out, `,"before":`...), cols, c.Row, nil)
}

// after appends the row after the change, without values that the source did not send, and the names of those.
func (w *JSON) after(out []byte, c Change) []byte {
	if c.After() == nil {
		return out
	}
	out = append(out, `,"after":`...)
	missing := 0
	var skip func(int) bool
	if len(c.Batch.Unchanged) > 0 {
		skip = func(col int) bool {
			if !c.Batch.IsUnchanged(col, c.Row) {
				return false
			}
			missing++
			return true
		}
	}
	out = w.rows.object(out, nil, c.Row, skip)
	if missing == 0 {
		return out
	}
	out = append(out, `,"unchanged":`...)
	lead := byte('[')
	for col, name := range w.rows.names {
		if c.Batch.IsUnchanged(col, c.Row) {
			out = append(append(out, lead), name[:len(name)-1]...)
			lead = ','
		}
	}
	return append(out, ']')
}

// transaction is the text about a transaction.
func (w *JSON) transaction(t *record.Txn) []byte {
	if t == nil {
		return nil
	}
	if t == w.txn {
		return w.tail
	}
	w.txn, w.tail = t, w.tail[:0]
	if !t.Time.IsZero() {
		w.tail = t.Time.UTC().AppendFormat(append(w.tail, `,"commit_time":"`...), time.RFC3339Nano)
		w.tail = append(w.tail, '"')
	}
	if !t.Position.Zero() {
		w.tail = oneLine(append(w.tail, `,"position":`...), t.Position.Data)
	}
	return w.tail
}

// Flush hands what is buffered to the io.Writer.
func (w *JSON) Flush() error {
	if w.failed != nil || len(w.buf) == 0 {
		return w.failed
	}
	if _, err := w.w.Write(w.buf); err != nil {
		w.failed = fmt.Errorf("writing changes: %w", err)
		return w.failed
	}
	w.buf = w.buf[:0]
	return nil
}

// Close implements Writer.
func (w *JSON) Close() error { return w.Flush() }

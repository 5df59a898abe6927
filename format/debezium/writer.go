package debezium

import (
	"fmt"
	"io"

	"github.com/leatdata/leat/format/changelog"
	"github.com/leatdata/leat/record"
)

// Writer writes the values of events as JSON Lines. It implements changelog.Writer; the schema may change from batch to batch. Events
// have no numbers: their order is that of the lines.
type Writer struct {
	w      io.Writer
	enc    *Encoder
	buf    []byte
	failed error
}

var _ changelog.Writer = (*Writer)(nil)

// NewWriter begins a file; a file without events has no bytes.
func NewWriter(w io.Writer, o Options) *Writer { return &Writer{w: w, enc: New(o)} }

// flushSize is how many bytes are collected before they are written.
const flushSize = 64 << 10

// Write implements changelog.Writer.
func (w *Writer) Write(b *record.Batch, _ int64) error {
	if w.failed != nil {
		return w.failed
	}
	b, err := changelog.Complete(b)
	if err != nil {
		return err
	}
	if err := changelog.Check(b); err != nil {
		return err
	}
	for ev := range w.enc.Events(b) {
		w.buf = append(w.enc.AppendValue(w.buf, ev), '\n')
		if len(w.buf) >= flushSize {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if _, err := w.w.Write(w.buf); err != nil {
		w.failed = fmt.Errorf("writing events: %w", err)
		return w.failed
	}
	w.buf = w.buf[:0]
	return nil
}

// Close implements changelog.Writer.
func (w *Writer) Close() error {
	if w.failed != nil {
		return w.failed
	}
	return w.flush()
}

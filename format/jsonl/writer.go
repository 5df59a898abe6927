package jsonl

import (
	"fmt"
	"io"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/internal/value"
	"github.com/leatdata/leat/record"
)

// Writer writes JSON Lines. It implements format.Writer; a batch of a later schema is written with its own columns.
type Writer struct {
	w        io.Writer
	schema   *record.Schema
	keys     [][]byte // with the bracket or comma in front and the colon behind
	printers []value.Printer
	buf      []byte
	failed   error
}

var _ format.Writer = (*Writer)(nil)

// NewWriter begins a file; a file without rows has no bytes.
func NewWriter(w io.Writer, s *record.Schema) *Writer {
	x := &Writer{w: w}
	x.bind(s)
	return x
}

func (w *Writer) bind(s *record.Schema) {
	w.schema, w.keys = s, nil
	for i, n := range s.Names() {
		lead := byte(',')
		if i == 0 {
			lead = '{'
		}
		w.keys = append(w.keys, append(record.AppendJSONString([]byte{lead}, n), ':'))
	}
}

// flushSize is how many bytes are collected before they are written.
const flushSize = 256 << 10

// Write appends the rows of a batch, see format.Writer.
func (w *Writer) Write(b *record.Batch) error {
	if w.failed != nil || b.Rows == nil {
		return w.failed
	}
	if b.Schema != w.schema {
		w.bind(b.Schema)
	}
	w.printers = w.printers[:0]
	for _, c := range b.Rows.Columns() {
		w.printers = append(w.printers, value.Bind(c))
	}
	for i := range b.NumRows() {
		w.row(i)
		if len(w.buf) >= flushSize {
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Writer) row(i int) {
	if len(w.printers) == 0 {
		w.buf = append(w.buf, "{}\n"...)
		return
	}
	out := w.buf
	for c := range w.printers {
		p := &w.printers[c]
		out = append(out, w.keys[c]...)
		if p.Null(i) {
			out = append(out, "null"...)
			continue
		}
		out = p.JSON(out, i)
	}
	w.buf = append(out, '}', '\n')
}

// Flush hands what is buffered to the io.Writer.
func (w *Writer) Flush() error {
	if w.failed != nil || len(w.buf) == 0 {
		return w.failed
	}
	if _, err := w.w.Write(w.buf); err != nil {
		w.failed = fmt.Errorf("writing rows: %w", err)
		return w.failed
	}
	w.buf = w.buf[:0]
	return nil
}

// Close writes what is left, see format.Writer.
func (w *Writer) Close() error { return w.Flush() }

package csv

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/internal/value"
	"github.com/leatdata/leat/record"
)

// WriterOptions say how a dataset is written.
type WriterOptions struct {
	Dialect         // Escape and Comment are not used; Quote may not be none
	NoHeader bool   // the column names are not written
	Null     string // what stands for NULL, without quotes
}

// Writer writes CSV. It implements format.Writer.
type Writer struct {
	w        io.Writer
	o        WriterOptions
	d        dialect
	schema   *record.Schema
	begun    bool
	failed   error
	buf      []byte
	special  [256]bool // bytes that need quotes
	numerals bool      // values that are not textual need no look for special bytes
	printers []value.Printer
}

var _ format.Writer = (*Writer)(nil)

// NewWriter begins a file; nothing is written before the first Write or Close.
func NewWriter(w io.Writer, s *record.Schema, o WriterOptions) (*Writer, error) {
	d, err := o.check()
	switch {
	case err != nil:
		return nil, err
	case d.quote == 0:
		return nil, refused("quote=none is for reading: text with delimiters or line ends can't be written without quotes")
	case strings.Contains(o.Null, string(d.quote)) || strings.Contains(o.Null, d.delimiter) || strings.ContainsAny(o.Null, "\r\n"):
		return nil, refused("null token %q has a quote, a delimiter or a line end in it", o.Null)
	case s.Columns.NumFields() == 0:
		return nil, refused("dataset %s has no columns: a CSV file needs at least one", s.Dataset)
	}
	x := &Writer{w: w, o: o, d: d, schema: s}
	for _, c := range []byte(d.delimiter + string(d.quote) + "\r\n") {
		x.special[c] = true
	}
	// Numbers, dates and truth values have none of these delimiters, and are no null token that is empty or \N.
	x.numerals = strings.Trim(d.delimiter, ",;\t|") == "" && d.quote == '"' && (o.Null == "" || o.Null == `\N`)
	return x, nil
}

// flushSize is how many bytes are collected before they are written.
const flushSize = 256 << 10

func (w *Writer) begin() {
	if w.begun {
		return
	}
	w.begun = true
	if w.o.NoHeader {
		return
	}
	for i, n := range w.schema.Names() {
		if i > 0 {
			w.buf = append(w.buf, w.d.delimiter...)
		}
		w.field([]byte(n))
	}
	w.buf = append(w.buf, '\n')
}

// Write appends the rows of a batch, see format.Writer.
func (w *Writer) Write(b *record.Batch) error {
	if w.failed != nil {
		return w.failed
	}
	w.begin()
	if b.Rows == nil {
		return nil
	}
	w.printers = w.printers[:0]
	for _, c := range b.Rows.Columns() {
		w.printers = append(w.printers, value.Bind(c))
	}
	for i := range b.NumRows() {
		w.row(i)
		if len(w.buf) >= flushSize {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Writer) row(i int) {
	for c := range w.printers {
		p := &w.printers[c]
		if c > 0 {
			w.buf = append(w.buf, w.d.delimiter...)
		}
		if p.Null(i) {
			w.buf = append(w.buf, w.o.Null...)
			continue
		}
		if b, ok := p.Bytes(i); ok {
			w.field(b)
			continue
		}
		from := len(w.buf)
		w.buf = p.Text(w.buf, i)
		if w.numerals && !p.Textual() {
			continue
		}
		if w.quoted(w.buf[from:]) {
			text := bytes.Clone(w.buf[from:])
			w.buf = w.buf[:from]
			w.field(text)
		}
	}
	w.buf = append(w.buf, '\n')
}

// field appends text, in quotes where it needs them.
func (w *Writer) field(b []byte) {
	if !w.quoted(b) {
		w.buf = append(w.buf, b...)
		return
	}
	w.buf = append(w.buf, w.d.quote)
	for {
		i := bytes.IndexByte(b, w.d.quote)
		if i < 0 {
			break
		}
		w.buf = append(append(w.buf, b[:i+1]...), w.d.quote)
		b = b[i+1:]
	}
	w.buf = append(append(w.buf, b...), w.d.quote)
}

// quoted reports whether text could be read as something else without quotes.
func (w *Writer) quoted(b []byte) bool {
	if len(b) == 0 || string(b) == w.o.Null {
		return true
	}
	switch b[0] {
	case ' ', '\t', '#', '\\', 0xef: // trimmed, a comment, \. and \N, the first byte of a byte order mark
		return true
	}
	if last := b[len(b)-1]; last == ' ' || last == '\t' {
		return true
	}
	for _, c := range b {
		if w.special[c] {
			return true
		}
	}
	return false
}

func (w *Writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if _, err := w.w.Write(w.buf); err != nil {
		w.failed = fmt.Errorf("writing rows: %w", err)
		return w.failed
	}
	w.buf = w.buf[:0]
	return nil
}

// Flush hands what is buffered to the io.Writer.
func (w *Writer) Flush() error {
	if w.failed != nil {
		return w.failed
	}
	w.begin()
	return w.flush()
}

// Close writes what is left, at least the header, see format.Writer.
func (w *Writer) Close() error { return w.Flush() }

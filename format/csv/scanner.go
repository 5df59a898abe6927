package csv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/leatdata/leat/connector"
)

// field is where a field stands, in bytes behind the row's first, without its quotes.
type field struct {
	start, end int
	quoted     bool
	escaped    bool // has doubled quotes or escapes
}

// scanner cuts an input into rows and fields. It is a state machine on bytes that stops where the buffer ends and goes on there, so
// that its outcome does not depend on how the input arrives, and a huge field is looked at once.
type scanner struct {
	src  io.Reader
	d    dialect
	stop [256]bool // first byte of the delimiter, and line ends

	buf     []byte
	pos     int   // the row's first byte
	end     int   // behind what was read
	base    int64 // offset of buf[0] in the input
	eof     bool
	err     error // of src, once everything before it was handed out
	checked int   // valid UTF-8 up to here
	bad     int   // first byte that is no UTF-8; -1: none found

	lines     int64 // line ends in front of pos
	fields    []field
	size      int   // of the row with its line end
	rowLines  int64 // line ends in the row
	open      bool  // the row ended with the input, not with a line end
	problem   string
	problemAt int
	skipBlank bool
	scratch   []byte
}

// bufferSize is how much is read at once.
const bufferSize = 256 << 10

func newScanner(src io.Reader, d dialect) *scanner {
	s := &scanner{src: src, d: d, bad: -1, skipBlank: true, buf: make([]byte, bufferSize)}
	s.stop['\n'], s.stop['\r'], s.stop[d.delimiter[0]] = true, true, true
	return s
}

// reset forgets what was read and goes on with src at the given place.
func (s *scanner) reset(offset, lines int64) {
	s.pos, s.end, s.base, s.lines = 0, 0, offset, lines
	s.eof, s.err, s.checked, s.bad = false, nil, 0, -1
}

// bom is a byte order mark in UTF-8.
const bom = "\xef\xbb\xbf"

// skipBOM goes over a byte order mark at the very beginning.
func (s *scanner) skipBOM() {
	for s.end < len(bom) && s.more() {
	}
	if bytes.HasPrefix(s.buf[:s.end], []byte(bom)) {
		s.pos = len(bom)
	}
}

// offset returns where the current row begins.
func (s *scanner) offset() int64 { return s.base + int64(s.pos) }

// line returns the number of the row's first line, from 1.
func (s *scanner) line() int64 { return s.lines + 1 }

// row returns the current row with its line end.
func (s *scanner) row() []byte { return s.buf[s.pos : s.pos+s.size] }

// consume goes behind the current row.
func (s *scanner) consume() {
	s.pos += s.size
	s.lines += s.rowLines
	s.size = 0
	if s.bad >= 0 && s.bad < s.pos {
		s.bad, s.checked = -1, s.pos
		s.validate()
	}
}

// more reads on. It is false at the end of the input and after an error. The row moves to the front of the buffer.
func (s *scanner) more() bool {
	if s.eof || s.err != nil {
		return false
	}
	if s.pos > 0 {
		copy(s.buf, s.buf[s.pos:s.end])
		s.base += int64(s.pos)
		s.end -= s.pos
		s.checked -= s.pos
		if s.bad >= 0 {
			s.bad -= s.pos
		}
		s.pos = 0
	}
	if int64(s.end) >= s.d.maxRow {
		s.err = s.failure("csv.row_too_long", fmt.Errorf("the row is longer than %d bytes", s.d.maxRow),
			"a quote that was never closed makes such rows; if they are right, raise max_line")
		return false
	}
	if s.end == len(s.buf) {
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	}
	for range maxEmptyReads {
		n, err := s.src.Read(s.buf[s.end:])
		s.end += n
		s.eof = errors.Is(err, io.EOF)
		if err != nil && !s.eof {
			s.err = err
		}
		if n > 0 || err != nil {
			s.validate()
			return n > 0
		}
	}
	s.err = io.ErrNoProgress
	return false
}

const maxEmptyReads = 100

// validate looks for bytes that are no UTF-8 up to the end of the buffer or the first of them. A character that may go on behind the
// buffer is left for later.
func (s *scanner) validate() {
	if s.bad >= 0 {
		return
	}
	end := s.end
	if !s.eof {
		end -= incomplete(s.buf[s.checked:s.end])
	}
	rest := s.buf[s.checked:end]
	if utf8.Valid(rest) {
		s.checked = end
		return
	}
	for i := 0; i < len(rest); {
		if rest[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(rest[i:])
		if r == utf8.RuneError && n == 1 {
			s.bad = s.checked + i
			return
		}
		i += n
	}
}

// incomplete returns how many bytes at the end are the beginning of a longer character.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if utf8.RuneStart(b[len(b)-n]) {
			if utf8.FullRune(b[len(b)-n:]) {
				return 0
			}
			return n
		}
	}
	return 0
}

// next finds the next row; false: there is none, or an error.
func (s *scanner) next() (bool, error) {
	for {
		if s.pos == s.end && !s.more() {
			return false, s.err
		}
		switch {
		case s.skipBlank && (s.buf[s.pos] == '\n' || s.buf[s.pos] == '\r'):
			s.fields = s.fields[:0]
			s.lineEnd(0)
		case s.d.comment != "" && s.comment():
		default:
			return s.scan()
		}
		if s.err != nil && s.size == 0 {
			return false, s.err
		}
		s.consume()
	}
}

// comment goes over a comment line, as a row without fields.
func (s *scanner) comment() bool {
	for s.end-s.pos < len(s.d.comment) && s.more() {
	}
	if !bytes.HasPrefix(s.buf[s.pos:s.end], []byte(s.d.comment)) {
		return false
	}
	p := 0
	for {
		rest := s.buf[s.pos+p : s.end]
		if i := bytes.IndexAny(rest, "\r\n"); i >= 0 {
			s.lineEnd(p + i)
			return true
		}
		p += len(rest)
		if !s.more() {
			s.size, s.rowLines = p, 0
			return true
		}
	}
}

// lineEnd ends the row with the line end at p.
func (s *scanner) lineEnd(p int) {
	s.size, s.rowLines = p+1, s.rowLinesInside()+1
	if s.buf[s.pos+p] == '\n' {
		return
	}
	if s.pos+p+1 == s.end && !s.more() {
		return
	}
	if s.buf[s.pos+p+1] == '\n' {
		s.size++
	}
}

// rowLinesInside counts the line ends in quoted fields.
func (s *scanner) rowLinesInside() (n int64) {
	for _, f := range s.fields {
		if f.quoted {
			n += countLines(s.buf[s.pos+f.start : s.pos+f.end])
		}
	}
	return n
}

// countLines counts LF, CRLF and CR.
func countLines(b []byte) int64 {
	n := bytes.Count(b, []byte{'\n'})
	for {
		i := bytes.IndexByte(b, '\r')
		if i < 0 {
			return int64(n)
		}
		if i+1 == len(b) || b[i+1] != '\n' {
			n++
		}
		b = b[i+1:]
	}
}

// scan reads the fields of a row that has at least one byte.
func (s *scanner) scan() (bool, error) {
	s.fields, s.problem, s.open = s.fields[:0], "", false
	p := 0
	for {
		var ok bool
		if p, ok = s.field(p); !ok {
			return false, s.err
		}
		if s.pos+p == s.end { // the input ends with the row
			s.size, s.rowLines, s.open = p, s.rowLinesInside(), true
			return true, nil
		}
		if c := s.buf[s.pos+p]; c == '\n' || c == '\r' {
			s.lineEnd(p)
			return true, nil
		}
		p += len(s.d.delimiter)
	}
}

// field reads the field at p and returns where it ends: at a delimiter, a line end or the end of the input.
func (s *scanner) field(p int) (int, bool) {
	if s.pos+p == s.end && !s.more() && s.err != nil {
		return p, false
	}
	f := field{start: p}
	if s.d.quote != 0 && s.pos+p < s.end && s.buf[s.pos+p] == s.d.quote {
		var ok bool
		if f, p, ok = s.quoted(p); !ok {
			return p, false
		}
		after := p
		if p, ok = s.bare(p); !ok {
			return p, false
		}
		if p > after && s.problem == "" {
			s.problem, s.problemAt = "text behind a closing quote", after
		}
	} else {
		var ok bool
		if p, ok = s.bare(p); !ok {
			return p, false
		}
		f.end = p
	}
	s.fields = append(s.fields, f)
	return p, true
}

// bare goes to the next delimiter, line end or the end of the input.
func (s *scanner) bare(p int) (int, bool) {
	for {
		b := s.buf[s.pos:s.end]
		for p < len(b) && !s.stop[b[p]] {
			p++
		}
		switch {
		case p == len(b):
			if !s.more() {
				return p, s.err == nil
			}
		case len(s.d.delimiter) == 1 || b[p] == '\n' || b[p] == '\r' || bytes.HasPrefix(b[p:], []byte(s.d.delimiter)):
			return p, true
		case len(b)-p >= len(s.d.delimiter) || !s.more():
			if s.err != nil {
				return p, false
			}
			p++ // no delimiter, it only begins like one
		}
	}
}

// quoted reads a field whose opening quote is at p; next is behind the closing one.
func (s *scanner) quoted(p int) (f field, next int, ok bool) {
	f = field{start: p + 1, quoted: true}
	opened := p
	p++
	for {
		b := s.buf[s.pos:s.end]
		i := s.indexQuote(b[p:])
		if i < 0 || (p+i+1 == len(b) && !s.eof) { // the byte behind a quote says what it means
			if i < 0 {
				p = len(b)
			} else {
				p += i
			}
			if s.more() {
				continue
			}
			if s.err != nil {
				return f, p, false
			}
			if i < 0 {
				s.unclosed(opened)
				return f, p, false
			}
			b, i = s.buf[s.pos:s.end], 0
		}
		p += i
		hasNext := p+1 < len(b)
		switch {
		case b[p] == s.d.escape && s.d.escape != 0:
			if !hasNext {
				s.unclosed(opened)
				return f, p, false
			}
			f.escaped = true
			p += 2
		case hasNext && b[p+1] == s.d.quote:
			f.escaped = true
			p += 2
		default:
			f.end = p
			return f, p + 1, true
		}
	}
}

func (s *scanner) indexQuote(b []byte) int {
	if s.d.escape == 0 {
		return bytes.IndexByte(b, s.d.quote)
	}
	for i, c := range b {
		if c == s.d.quote || c == s.d.escape {
			return i
		}
	}
	return -1
}

func (s *scanner) unclosed(opened int) {
	line := s.line() + s.rowLinesInside()
	s.err = &connector.Error{
		Class: connector.ClassPermanent, Code: "csv.unclosed_quote",
		Err:  fmt.Errorf("line %d (byte %d): the quote that opens here is never closed", line, s.offset()+int64(opened)),
		Hint: "correct that line, or say quote=none if quotes have no meaning in this file",
	}
}

// failure is an error at the current row.
func (s *scanner) failure(code string, err error, hint string) error {
	return &connector.Error{
		Class: connector.ClassPermanent, Code: code, Hint: hint,
		Err: fmt.Errorf("line %d (byte %d): %w", s.line(), s.offset(), err),
	}
}

// value returns the text of a field. It is valid until the next call that scans or unescapes.
func (s *scanner) value(f field) []byte {
	b := s.buf[s.pos+f.start : s.pos+f.end]
	if !f.escaped {
		return b
	}
	out := s.scratch[:0]
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == s.d.quote:
			i++ // the second one of two
		case b[i] == s.d.escape && s.d.escape != 0 && (b[i+1] == s.d.quote || b[i+1] == s.d.escape):
			i++
		}
		out = append(out, b[i])
	}
	s.scratch = out
	return out
}

// invalid returns the place of the first byte in the row that is no UTF-8; -1: none.
func (s *scanner) invalid() int {
	if s.bad >= 0 && s.bad < s.pos+s.size {
		return s.bad - s.pos
	}
	return -1
}

package csv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/internal/input"
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
	input.Window

	d    dialect
	stop [256]bool // first byte of the delimiter, and line ends

	lines     int64 // line ends in front of pos
	fields    []field
	size      int   // of the row with its line end
	rowLines  int64 // line ends in the row
	open      bool  // the row ended with the input, not with a line end
	quotes    bool  // the row may have line ends inside of quotes
	problem   string
	problemAt int
	skipBlank bool
	scratch   []byte
}

func newScanner(src io.Reader, d dialect) *scanner {
	s := &scanner{Window: input.New(src, d.maxRow), d: d, skipBlank: true}
	s.stop['\n'], s.stop['\r'], s.stop[d.delimiter[0]] = true, true, true
	return s
}

// line returns the number of the row's first line, from 1.
func (s *scanner) line() int64 { return s.lines + 1 }

// row returns the current row with its line end.
func (s *scanner) row() []byte { return s.Buf[s.Pos : s.Pos+s.size] }

// consume goes behind the current row.
func (s *scanner) consume() {
	s.Advance(s.size)
	s.lines += s.rowLines
	s.size = 0
}

// fault is why there is no next row: nil at the end of the input.
func (s *scanner) fault() error {
	if errors.Is(s.Err, input.ErrTooLong) {
		return s.failure("csv.row_too_long", fmt.Errorf("the row is longer than %d bytes", s.d.maxRow),
			"a quote that was never closed makes such rows; if they are right, raise max_line")
	}
	var known *connector.Error
	if s.Err == nil || (errors.As(s.Err, &known) && known.Code == codeUnclosed) {
		return s.Err
	}
	return fmt.Errorf("line %d: %w", s.line(), s.Err)
}

const codeUnclosed = "csv.unclosed_quote"

// next finds the next row; false: there is none, or an error.
func (s *scanner) next() (bool, error) {
	for {
		if s.Pos == s.End && !s.More() {
			return false, s.fault()
		}
		switch {
		case s.skipBlank && (s.Buf[s.Pos] == '\n' || s.Buf[s.Pos] == '\r'):
			s.fields, s.quotes = s.fields[:0], false
			s.lineEnd(0)
		case s.d.comment != "" && s.comment():
		default:
			return s.scan()
		}
		if s.Err != nil && s.size == 0 {
			return false, s.fault()
		}
		s.consume()
	}
}

// comment goes over a comment line, as a row without fields.
func (s *scanner) comment() bool {
	for s.End-s.Pos < len(s.d.comment) {
		if !s.More() {
			return false
		}
	}
	if !bytes.HasPrefix(s.Buf[s.Pos:s.End], []byte(s.d.comment)) {
		return false
	}
	p := 0
	for {
		rest := s.Buf[s.Pos+p : s.End]
		if i := bytes.IndexAny(rest, "\r\n"); i >= 0 {
			s.quotes = false
			s.lineEnd(p + i)
			return true
		}
		p += len(rest)
		if !s.More() {
			s.size, s.rowLines = p, 0
			return true
		}
	}
}

// lineEnd ends the row with the line end at p.
func (s *scanner) lineEnd(p int) {
	s.size, s.rowLines = p+1, s.rowLinesInside(p)+1
	if s.Buf[s.Pos+p] == '\n' {
		return
	}
	if s.Pos+p+1 == s.End && !s.More() {
		return
	}
	if s.Buf[s.Pos+p+1] == '\n' {
		s.size++
	}
}

// rowLinesInside counts the line ends in quoted fields of the row up to p.
func (s *scanner) rowLinesInside(p int) int64 {
	if !s.quotes {
		return 0
	}
	return countLines(s.Buf[s.Pos : s.Pos+p])
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
	s.fields, s.problem, s.open, s.quotes = s.fields[:0], "", false, false
	p := 0
	for {
		var ended, ok bool
		if p, ended = s.plainFields(p); ended {
			s.lineEnd(p)
			return true, nil
		}
		if p, ok = s.field(p); !ok {
			return false, s.fault()
		}
		if s.Pos+p == s.End { // the input ends with the row
			s.size, s.rowLines, s.open = p, s.rowLinesInside(p), true
			return true, nil
		}
		if c := s.Buf[s.Pos+p]; c == '\n' || c == '\r' {
			s.lineEnd(p)
			return true, nil
		}
		p += len(s.d.delimiter)
	}
}

// plainFields is the hot path: it reads fields from p on that stand in the buffer as a whole with the byte behind them, as most do. It
// returns where the line ends, or false and where the field begins that needs a closer look.
func (s *scanner) plainFields(p int) (next int, ended bool) {
	if len(s.d.delimiter) != 1 || s.d.escape != 0 {
		return p, false
	}
	b, fields, delimiter, quote := s.Buf[s.Pos:s.End], s.fields, s.d.delimiter[0], s.d.quote
	delimiters, quotes := eachByte*uint64(delimiter), eachByte*uint64(quote)
	for p < len(b) {
		var f field
		var at int
		if b[p] == quote && quote != 0 {
			f, at = s.closed(b, p, quotes)
		} else {
			at = s.bareEnd(b, p, delimiters)
			f.start, f.end = p, at
		}
		if at >= len(b) || !s.stop[b[at]] {
			break
		}
		fields = append(fields, f)
		if p = at; b[p] != delimiter {
			s.fields = fields
			return p, true
		}
		p++
	}
	s.fields = fields
	return p, false
}

// bareEnd goes from p to the next delimiter or line end in b; len(b): there is none. delimiters is the delimiter in each byte.
func (s *scanner) bareEnd(b []byte, p int, delimiters uint64) int {
	for p+8 <= len(b) {
		marks := find(binary.LittleEndian.Uint64(b[p:]), delimiters)
		if marks == 0 {
			p += 8
			continue
		}
		if p += bits.TrailingZeros64(marks) >> 3; s.stop[b[p]] {
			return p
		}
		p++
	}
	for p < len(b) && !s.stop[b[p]] {
		p++
	}
	return p
}

// closed reads a field whose opening quote is at p; next is behind the closing one. len(b): the field or the byte behind it, which says
// what a quote means, is not in b as a whole. quotes is the quote in each byte.
func (s *scanner) closed(b []byte, p int, quotes uint64) (f field, next int) {
	f = field{start: p + 1, quoted: true}
	for p++; ; p += 2 {
		if p = s.closing(b, p, quotes); p+1 >= len(b) {
			return f, len(b)
		}
		if b[p+1] != byte(quotes) {
			f.end = p
			return f, p + 1
		}
		f.escaped = true
	}
}

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
)

// find looks at eight bytes at a time, the first one lowest: the lowest bit that is set is in the first byte that equals what each byte
// of same is, or is less than 0x0e, as line ends are. A borrow may set bits behind it.
func find(x, same uint64) uint64 {
	s := x ^ same
	return ((s-eachByte)&^s | (x-eachByte*0x0e)&^x) & highBits
}

// closing goes to the next quote, from p on; len(b): there is none. It notes line ends on the way.
func (s *scanner) closing(b []byte, p int, quotes uint64) int {
	for {
		for p+8 <= len(b) {
			marks := find(binary.LittleEndian.Uint64(b[p:]), quotes)
			if marks == 0 {
				p += 8
				continue
			}
			p += bits.TrailingZeros64(marks) >> 3
			break
		}
		switch {
		case p >= len(b):
			return len(b)
		case b[p] == byte(quotes):
			return p
		case b[p] == '\n' || b[p] == '\r':
			s.quotes = true
		}
		p++
	}
}

// field reads the field at p and returns where it ends: at a delimiter, a line end or the end of the input.
func (s *scanner) field(p int) (next int, ok bool) {
	if s.Pos+p == s.End && !s.More() && s.Err != nil {
		return p, false
	}
	f := field{start: p}
	quoted := s.d.quote != 0 && s.Pos+p < s.End && s.Buf[s.Pos+p] == s.d.quote
	if quoted {
		if f, p, ok = s.quoted(p); !ok {
			return p, false
		}
	}
	if next, ok = s.bare(p); !ok {
		return next, false
	}
	switch {
	case !quoted:
		f.end = next
	case next > p && s.problem == "":
		s.problem, s.problemAt = "text behind a closing quote", p
	}
	s.fields = append(s.fields, f)
	return next, true
}

// bare goes to the next delimiter, line end or the end of the input.
func (s *scanner) bare(p int) (int, bool) {
	for {
		b := s.Buf[s.Pos:s.End]
		for p < len(b) && !s.stop[b[p]] {
			p++
		}
		switch {
		case p == len(b):
			if !s.More() {
				return p, s.Err == nil
			}
		case len(s.d.delimiter) == 1 || b[p] == '\n' || b[p] == '\r' || bytes.HasPrefix(b[p:], []byte(s.d.delimiter)):
			return p, true
		case len(b)-p >= len(s.d.delimiter) || !s.More():
			if s.Err != nil {
				return p, false
			}
			p++ // no delimiter, it only begins like one
		}
	}
}

// quoted reads a field whose opening quote is at p; next is behind the closing one.
func (s *scanner) quoted(p int) (f field, next int, ok bool) {
	opened := p
	f, s.quotes = field{start: p + 1, quoted: true}, true
	for p++; ; p += 2 {
		if p, ok = s.mark(p); !ok {
			s.unclosed(opened)
			return f, p, false
		}
		b := s.Buf[s.Pos:s.End]
		last := p+1 == len(b)
		switch {
		case b[p] == s.d.escape && s.d.escape != 0:
			if last {
				s.unclosed(opened)
				return f, p, false
			}
		case last || b[p+1] != s.d.quote:
			f.end = p
			return f, p + 1, true
		}
		f.escaped = true
	}
}

// mark goes to the next quote or escape, and sees to it that the byte behind it, which says what it means, is in the buffer if there is
// one.
func (s *scanner) mark(p int) (next int, ok bool) {
	for {
		b := s.Buf[s.Pos:s.End]
		i := s.indexQuote(b[p:])
		if i >= 0 && (p+i+1 < len(b) || s.EOF) {
			return p + i, true
		}
		if p = len(b); i >= 0 {
			p--
		}
		if !s.More() && (i < 0 || s.Err != nil) {
			return p, false
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

// unclosed is the error of a quote without an end, unless the input broke off.
func (s *scanner) unclosed(opened int) {
	if s.Err != nil {
		return
	}
	line := s.line() + s.rowLinesInside(opened)
	s.Err = &connector.Error{
		Class: connector.ClassPermanent, Code: codeUnclosed,
		Err:  fmt.Errorf("line %d (byte %d): the quote that opens here is never closed", line, s.Offset()+int64(opened)),
		Hint: "correct that line, or say quote=none if quotes have no meaning in this file",
	}
}

// failure is an error at the current row.
func (s *scanner) failure(code string, err error, hint string) error {
	return &connector.Error{
		Class: connector.ClassPermanent, Code: code, Hint: hint,
		Err: fmt.Errorf("line %d (byte %d): %w", s.line(), s.Offset(), err),
	}
}

// value returns the text of a field. It is valid until the next call that scans or unescapes.
func (s *scanner) value(f *field) []byte {
	b := s.Buf[s.Pos+f.start : s.Pos+f.end]
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
func (s *scanner) invalid() int { return s.Invalid(s.size) }

package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format/internal/input"
)

// DefaultMaxLine is the longest line where nothing is said.
const DefaultMaxLine = 256 << 20

// lines cuts an input at LF. Lines with nothing but blanks are none.
type lines struct {
	input.Window

	max   int64
	lines int64 // line ends in front of the current line
	size  int   // of the current line with its line end
	open  bool  // the line ended with the input
	begun bool
}

func newLines(r io.Reader, limit int64) *lines {
	if limit <= 0 {
		limit = DefaultMaxLine
	}
	return &lines{Window: input.New(r, limit), max: limit}
}

// next finds the next line that is not blank; false: there is none, or an error.
func (l *lines) next() (bool, error) {
	if !l.begun {
		l.SkipBOM()
		l.begun = true
	}
	for {
		at := 0
		for {
			b := l.Buf[l.Pos:l.End]
			if i := bytes.IndexByte(b[at:], '\n'); i >= 0 {
				l.size, l.open = at+i+1, false
				break
			}
			if at = len(b); l.More() {
				continue
			}
			if l.Err != nil {
				return false, l.fault()
			}
			if at == 0 {
				return false, nil
			}
			l.size, l.open = at, true
			break
		}
		if !blank(l.row()) {
			return true, nil
		}
		l.consume()
	}
}

func blank(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return false
		}
	}
	return true
}

func (l *lines) row() []byte { return l.Buf[l.Pos : l.Pos+l.size] }

func (l *lines) consume() {
	l.Advance(l.size)
	if !l.open {
		l.lines++
	}
	l.size = 0
}

func (l *lines) fault() error {
	if !errors.Is(l.Err, input.ErrTooLong) {
		return fmt.Errorf("line %d: %w", l.lines+1, l.Err)
	}
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "jsonl.line_too_long",
		Err:  fmt.Errorf("line %d (byte %d): the line is longer than %d bytes", l.lines+1, l.Offset(), l.max),
		Hint: "if it is right, raise max_line",
	}
}

// array is the error for a file that is one JSON array.
func (l *lines) array() error {
	if l.lines > 0 || bytes.TrimLeft(l.row(), " \t\r\n")[0] != '[' {
		return nil
	}
	return &connector.Error{
		Class: connector.ClassPermanent, Code: "jsonl.array", Err: errors.New("the file is a JSON array, not one JSON object on each line"),
		Hint: "jq -c '.[]' FILE > FILE.jsonl makes lines of it",
	}
}

package input

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"
)

// ErrTooLong is Window.Err where a row exceeds the limit.
var ErrTooLong = errors.New("the row is too long")

// Window is the part of an input that is in memory. Buf[Pos:End] is what was read and not consumed: the current row begins at Pos.
type Window struct {
	Buf []byte
	Pos int
	End int
	EOF bool
	Err error // of the source, once everything before it is in the window; or ErrTooLong

	src     io.Reader
	max     int64
	base    int64 // offset of Buf[0] in the input
	checked int   // valid UTF-8 up to here
	bad     int   // first byte that is no UTF-8; -1: none found
}

const (
	size          = 256 << 10
	maxEmptyReads = 100
)

// New returns an empty window on src, for rows of at most limit bytes.
func New(src io.Reader, limit int64) Window {
	return Window{src: src, max: limit, bad: -1, Buf: make([]byte, size)}
}

// SeekTo goes to an offset of the input, if the source can; false: it can't.
func (w *Window) SeekTo(offset int64) (bool, error) {
	s, ok := w.src.(io.Seeker)
	if !ok {
		return false, nil
	}
	if _, err := s.Seek(offset, io.SeekStart); err != nil {
		return false, err
	}
	w.Pos, w.End, w.base, w.checked, w.bad = 0, 0, offset, 0, -1
	w.EOF, w.Err = false, nil
	return true, nil
}

// bom is a byte order mark in UTF-8.
const bom = "\xef\xbb\xbf"

// SkipBOM goes over a byte order mark; at the beginning of the input only.
func (w *Window) SkipBOM() {
	for w.End < len(bom) {
		if !w.More() {
			break
		}
	}
	if bytes.HasPrefix(w.Buf[:w.End], []byte(bom)) {
		w.Pos = len(bom)
	}
}

// Offset returns the offset of the current row in the input.
func (w *Window) Offset() int64 { return w.base + int64(w.Pos) }

// Advance consumes n bytes.
func (w *Window) Advance(n int) {
	w.Pos += n
	if w.bad >= 0 && w.bad < w.Pos {
		w.bad, w.checked = -1, w.Pos
		w.validate()
	}
}

// Invalid returns where the first byte that is no UTF-8 stands in the first n bytes of the row; -1: nowhere.
func (w *Window) Invalid(n int) int {
	if w.bad >= 0 && w.bad < w.Pos+n {
		return w.bad - w.Pos
	}
	return -1
}

// More reads on; it is false at the end of the input and after an error. It moves the row to the front of the buffer: Pos changes, what
// is relative to it does not.
func (w *Window) More() bool {
	if w.EOF || w.Err != nil {
		return false
	}
	if w.Pos > 0 {
		copy(w.Buf, w.Buf[w.Pos:w.End])
		w.base += int64(w.Pos)
		w.End -= w.Pos
		w.checked -= w.Pos
		if w.bad >= 0 {
			w.bad -= w.Pos
		}
		w.Pos = 0
	}
	if int64(w.End) >= w.max {
		w.Err = ErrTooLong
		return false
	}
	if w.End == len(w.Buf) {
		w.Buf = append(w.Buf, make([]byte, len(w.Buf))...)
	}
	for range maxEmptyReads {
		n, err := w.src.Read(w.Buf[w.End:])
		w.End += n
		w.EOF = errors.Is(err, io.EOF)
		if err != nil && !w.EOF {
			w.Err = err
		}
		if n > 0 || err != nil {
			w.validate()
			return n > 0
		}
	}
	w.Err = io.ErrNoProgress
	return false
}

// validate looks for bytes that are no UTF-8 up to the end of the buffer or the first of them. A character that may go on behind the
// buffer is left for later.
func (w *Window) validate() {
	if w.bad >= 0 {
		return
	}
	end := w.End
	if !w.EOF {
		end -= incomplete(w.Buf[w.checked:w.End])
	}
	rest := w.Buf[w.checked:end]
	if utf8.Valid(rest) {
		w.checked = end
		return
	}
	for i := 0; i < len(rest); {
		if rest[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(rest[i:])
		if r == utf8.RuneError && n == 1 {
			w.bad = w.checked + i
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

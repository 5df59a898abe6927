package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/leatdata/leat/connector"
)

const utf8Name = "utf-8"

// charset is a text encoding; the zero value is UTF-8.
type charset struct {
	encoding.Encoding

	name string
	mark int // bytes of the byte order mark in front of the text
}

// charsetOf finds the encoding of a text: a byte order mark wins over what was said. The mark of UTF-8 is left to the formats.
func charsetOf(said string, head []byte) (charset, error) {
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		return charset{}, nil
	case bytes.HasPrefix(head, []byte("\xff\xfe")):
		return charset{unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), "utf-16le", 2}, nil
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		return charset{unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM), "utf-16be", 2}, nil
	case said == "":
		return charset{}, nil
	}
	e, err := htmlindex.Get(said)
	if err != nil {
		return charset{}, fmt.Errorf("encoding %q: %w", said, err)
	}
	name, err := htmlindex.Name(e)
	if err != nil {
		name = said
	}
	if name == utf8Name {
		return charset{}, nil
	}
	return charset{Encoding: e, name: name}, nil
}

const (
	encodedSize = 64 << 10
	replacement = "\ufffd"
)

// decoder turns text into UTF-8. Where a decoder of the library puts a replacement character, this one stops: the byte is named.
type decoder struct {
	r       io.Reader
	c       charset
	t       transform.Transformer
	in      []byte // read and not decoded
	out     []byte // decoded and not handed out
	buf     []byte // out's memory
	offset  int64  // of in
	eof     bool
	failure error
}

// newDecoder decodes r, whose byte order mark was read.
func newDecoder(r io.Reader, c charset) *decoder {
	return &decoder{r: r, c: c, t: c.NewDecoder().Transformer, buf: make([]byte, 4*encodedSize), offset: int64(c.mark)}
}

// Read implements io.Reader.
func (d *decoder) Read(p []byte) (int, error) {
	for len(d.out) == 0 {
		if d.failure != nil {
			return 0, d.failure
		}
		d.fill()
	}
	n := copy(p, d.out)
	d.out = d.out[n:]
	return n, nil
}

// fill decodes what comes next.
func (d *decoder) fill() {
	if !d.eof && len(d.in) < encodedSize {
		chunk := make([]byte, encodedSize)
		n, err := d.r.Read(chunk)
		d.in = append(d.in, chunk[:n]...)
		d.eof = errors.Is(err, io.EOF)
		if err != nil && !d.eof {
			d.failure = err
			return
		}
	}
	nDst, nSrc, err := d.t.Transform(d.buf, d.in, d.eof)
	d.out = d.buf[:nDst]
	if at := d.replaced(d.in[:nSrc]); at >= 0 {
		d.failure = &connector.Error{
			Class: connector.ClassPermanent, Code: "file.encoding",
			Err:  fmt.Errorf("byte %d is not valid %s", d.offset+int64(at), d.c.name),
			Hint: "say the right encoding, such as encoding=windows-1252",
		}
	}
	d.in = d.in[nSrc:]
	d.offset += int64(nSrc)
	switch {
	case d.failure != nil:
	case err != nil && !errors.Is(err, transform.ErrShortDst) && !errors.Is(err, transform.ErrShortSrc):
		d.failure = fmt.Errorf("decoding %s: %w", d.c.name, err)
	case d.eof && len(d.in) == 0:
		d.failure = io.EOF
	}
}

// replaced looks for a replacement character that stands for invalid bytes, cuts what was decoded in front of it, and returns where in
// src the bytes are; -1: there is none. A replacement character of the text itself comes from bytes that mean it.
func (d *decoder) replaced(src []byte) int {
	from := 0
	for {
		i := bytes.Index(d.out[from:], []byte(replacement))
		if i < 0 {
			return -1
		}
		at := from + i
		front, err := d.c.NewEncoder().Bytes(d.out[:at])
		own, errOwn := d.c.NewEncoder().Bytes([]byte(replacement))
		if err == nil && errOwn == nil && len(front) <= len(src) && bytes.HasPrefix(src[len(front):], own) {
			from = at + len(replacement)
			continue
		}
		d.out = d.out[:at]
		return min(len(front), len(src))
	}
}

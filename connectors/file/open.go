package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/leatdata/leat/connector"
)

// opened is a file that is read.
type opened struct {
	entry entry
	f     io.Closer // nil: standard input
	raw   *counter  // the bytes as they are stored
	text  io.Reader // the bytes as they are meant: not compressed, in UTF-8 where they are text; an io.Seeker where nothing is in between
	at    io.ReaderAt
	close func() // releases the decompressor
}

// counter counts what was read of the stored bytes.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// Close releases everything.
func (o *opened) Close() {
	if o.close != nil {
		o.close()
		o.close = nil
	}
	if o.f != nil {
		o.f.Close() //nolint:errcheck // it was only read
		o.f = nil
	}
}

const headSize = 4

// open opens a file of the list, exactly as much of it as the list says.
func (c *SourceConfig) open(e entry) (*opened, error) {
	if c.std() {
		in := c.Stdin
		if in == nil {
			in = os.Stdin
		}
		return c.layers(&opened{entry: e, raw: &counter{r: in}})
	}
	f, err := os.Open(e.Path)
	if err != nil {
		return nil, wrap(err, "opening "+e.Path)
	}
	o := &opened{entry: e, f: f, raw: &counter{r: f}}
	if !e.stream() {
		section := io.NewSectionReader(f, 0, e.Size)
		o.raw.r, o.at = section, section
	}
	o, err = c.layers(o)
	if err != nil {
		f.Close() //nolint:errcheck // it was only read
		return nil, err
	}
	return o, nil
}

// layers puts the decompressor and the decoder in front of the stored bytes.
func (c *SourceConfig) layers(o *opened) (*opened, error) {
	doing := "opening " + o.entry.Path
	head, rest, err := peek(o.raw)
	if err != nil {
		return nil, wrap(err, doing)
	}
	compression := c.compressionOf(o.entry.Path, head)
	o.text = rest
	if err := o.decompress(compression, len(head) == 0); err != nil {
		return nil, wrap(err, doing)
	}
	if f := c.format(o.entry.Path); f != formatCSV && f != formatJSONL {
		if compression != compressNone {
			o.at = nil
		} else if o.at != nil {
			section, _ := o.at.(*io.SectionReader)
			if _, err := section.Seek(0, io.SeekStart); err != nil {
				return nil, wrap(err, doing)
			}
			o.text = section
		}
		return o, nil
	}
	if compression != compressNone {
		if head, o.text, err = peek(o.text); err != nil {
			o.Close()
			return nil, wrap(err, doing)
		}
	}
	cs, err := charsetOf(c.Encoding, head)
	if err != nil {
		o.Close()
		return nil, configError(err, "")
	}
	section, direct := o.at.(*io.SectionReader)
	switch {
	case cs.Encoding != nil:
		if _, err := io.CopyN(io.Discard, o.text, int64(cs.mark)); err != nil {
			o.Close()
			return nil, wrap(err, doing)
		}
		o.text = newDecoder(o.text, cs)
	case direct && compression == compressNone:
		if _, err := section.Seek(0, io.SeekStart); err != nil {
			return nil, wrap(err, doing)
		}
		o.text = section
	}
	return o, nil
}

// peek returns the first bytes and a reader that begins with them again.
func peek(r io.Reader) (head []byte, all io.Reader, err error) {
	head = make([]byte, headSize)
	n, err := io.ReadFull(r, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return head[:n], io.MultiReader(bytes.NewReader(head[:n]), r), err
}

// compressionOf says how a file is compressed: as was declared, or as its first bytes say. An empty file whose name says that it is
// compressed is one that breaks off.
func (c *SourceConfig) compressionOf(name string, head []byte) string {
	if c.Compression != compressAuto && c.Compression != "" {
		return c.Compression
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return compressGzip
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}), skippable(head):
		return compressZstd
	case len(head) == 0:
		_, _, said := named(name)
		return said
	}
	return compressNone
}

// skippable reports whether a zstd frame begins that holds no data.
func skippable(head []byte) bool {
	return len(head) == headSize && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], []byte{0x2a, 0x4d, 0x18})
}

// zstdMemory bounds what a zstd file may ask for.
const zstdMemory = 256 << 20

func (o *opened) decompress(compression string, empty bool) error {
	switch compression {
	case compressGzip:
		z, err := gzip.NewReader(o.text)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("reading gzip: %w", err)
		}
		o.text, o.close = damaged{z, "gzip"}, func() { z.Close() } //nolint:errcheck // it was only read
	case compressZstd:
		if empty {
			return fmt.Errorf("reading zstd: %w", io.ErrUnexpectedEOF)
		}
		z, err := zstd.NewReader(o.text, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(zstdMemory))
		if err != nil {
			return fmt.Errorf("reading zstd: %w", err)
		}
		o.text, o.close = damaged{z, "zstd"}, z.Close
	default:
	}
	return nil
}

// damaged names what a decompressor refuses.
type damaged struct {
	r    io.Reader
	what string
}

func (d damaged) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return n, &connector.Error{
			Class: connector.ClassPermanent, Code: "file.truncated", Err: fmt.Errorf("the %s data breaks off: %w", d.what, err),
			Hint: "the file is not complete: copy it again, and compare its size with the original",
		}
	}
	return n, &connector.Error{
		Class: connector.ClassPermanent, Code: "file.damaged", Err: fmt.Errorf("the %s data is damaged: %w", d.what, err),
		Hint: "copy the file again; if its end is to be left out on purpose, decompress it first",
	}
}

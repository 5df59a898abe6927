package arrowipc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Limits of one message: more is damage, not data.
const (
	maxMetadata = 64 << 20
	maxBody     = 2 << 30
	bodyStep    = 8 << 20 // a body is read in steps, so that a length that is damaged costs no more memory than there is input
)

// continuation precedes the length of a message's metadata since version 0.15 of the format.
const continuation = 0xFFFFFFFF

// messages reads the messages of a stream, and of a file from its beginning: each one's metadata is verified before the library looks
// at it. The end of the input in the middle of a message is never taken for the end of the data.
type messages struct {
	r     io.Reader
	file  bool // the file form: a footer must follow the last message
	ended bool
	// records counts the record batches that were read.
	records int
	skipped func(rows int64) bool // decides whether a record batch is left out; nil: none is
}

var _ ipc.MessageReader = (*messages)(nil)

// Retain implements ipc.MessageReader.
func (*messages) Retain() {}

// Release implements ipc.MessageReader.
func (*messages) Release() {}

// Message implements ipc.MessageReader.
func (m *messages) Message() (*ipc.Message, error) {
	for {
		meta, err := m.metadata()
		if err != nil {
			return nil, err
		}
		header, err := verifyMessage(meta)
		if err != nil {
			return nil, fmt.Errorf("message metadata: %w", err)
		}
		if header.body < 0 || header.body > maxBody {
			return nil, fmt.Errorf("a message of %d bytes", header.body)
		}
		if header.record {
			m.records++
		}
		if header.record && m.skipped != nil && m.skipped(header.rows) {
			if err := m.discard(header.body); err != nil {
				return nil, err
			}
			continue
		}
		body, err := m.body(header.body)
		if err != nil {
			return nil, err
		}
		return ipc.NewMessage(memory.NewBufferBytes(meta), memory.NewBufferBytes(body)), nil
	}
}

// metadata returns the next message's metadata; io.EOF at the end of the data.
func (m *messages) metadata() ([]byte, error) {
	if m.ended {
		return nil, io.EOF
	}
	length, err := m.word()
	if errors.Is(err, io.EOF) && !m.file {
		m.ended = true
		return nil, io.EOF // a stream may end without a mark
	}
	if err == nil && length == continuation {
		length, err = m.word()
	}
	if err != nil {
		return nil, unexpected(err)
	}
	if length == 0 {
		m.ended = true
		if m.file {
			if err := m.footer(); err != nil {
				return nil, err
			}
		}
		return nil, io.EOF
	}
	if length > maxMetadata {
		return nil, fmt.Errorf("a message with %d bytes of metadata", length)
	}
	return m.body(int64(length))
}

func (m *messages) word() (uint32, error) {
	var b [4]byte
	if _, err := io.ReadFull(m.r, b[:]); err != nil {
		return 0, err //nolint:wrapcheck // io.EOF is looked for
	}
	return binary.LittleEndian.Uint32(b[:]), nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("the input ends in the middle: %w", err)
}

// body reads n bytes.
func (m *messages) body(n int64) ([]byte, error) {
	buf := make([]byte, 0, min(n, bodyStep))
	for int64(len(buf)) < n {
		step := min(n-int64(len(buf)), bodyStep)
		if int64(cap(buf)) < int64(len(buf))+step {
			buf = append(make([]byte, 0, min(n, 2*int64(cap(buf)))), buf...)
			step = min(step, int64(cap(buf)-len(buf)))
		}
		at := len(buf)
		buf = buf[:at+int(step)]
		if _, err := io.ReadFull(m.r, buf[at:]); err != nil {
			return nil, unexpected(err)
		}
	}
	return buf, nil
}

// discard goes over n bytes, without reading them where the input can.
func (m *messages) discard(n int64) error {
	if s, ok := m.r.(io.Seeker); ok {
		if _, err := s.Seek(n, io.SeekCurrent); err != nil {
			return fmt.Errorf("going forward: %w", err)
		}
		return nil
	}
	if _, err := io.CopyN(io.Discard, m.r, n); err != nil {
		return unexpected(err)
	}
	return nil
}

// footer reads to the end of the file and checks that it ends as a file does, with as many record batches as were read.
func (m *messages) footer() error {
	rest, err := io.ReadAll(io.LimitReader(m.r, maxMetadata))
	if err != nil {
		return fmt.Errorf("reading the footer: %w", err)
	}
	head, ok := bytes.CutSuffix(rest, magic)
	if !ok || len(head) < 4 {
		return errors.New("the file ends without its footer: rows may be missing")
	}
	head, length := head[:len(head)-4], binary.LittleEndian.Uint32(head[len(head)-4:])
	if int64(length) != int64(len(head)) {
		return fmt.Errorf("the footer has %d bytes and says %d", len(head), length)
	}
	n, err := recordsOfFooter(head)
	if err != nil {
		return fmt.Errorf("footer: %w", err)
	}
	if n != m.records {
		return fmt.Errorf("the footer lists %d batches, the file has %d", n, m.records)
	}
	return nil
}

// allocator refuses sizes that only damage explains; a panic of it is an error of the reader.
type allocator struct{ memory.Allocator }

func (a allocator) Allocate(size int) []byte {
	if size > maxBody {
		panic(fmt.Sprintf("a buffer of %d bytes", size))
	}
	return a.Allocator.Allocate(size)
}

func (a allocator) Reallocate(size int, b []byte) []byte {
	if size > maxBody {
		panic(fmt.Sprintf("a buffer of %d bytes", size))
	}
	return a.Allocator.Reallocate(size, b)
}

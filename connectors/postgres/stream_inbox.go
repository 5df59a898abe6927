package postgres

import (
	"context"
	"errors"
	"io"
	"sync"
)

// Sizes of the inbox, in bytes.
const (
	blockBytes = 256 << 10
	inboxBytes = 8 << 20
	leastRead  = 4 << 10 // a block with less room is not read into any more
	maxSpare   = 4       // blocks that are kept for later
)

// errEnded says that the server ended the stream by itself.
var errEnded = errors.New("the server ended the stream")

// inbox holds the messages that were read from the server and not yet used, bounded by bytes. One goroutine fills it, one takes from it.
type inbox struct {
	ready chan struct{} // capacity 1: there may be something to take
	space chan struct{} // capacity 1: a block was given back

	mu     sync.Mutex // guards what follows
	blocks []*block   // in order; the last one may still be filled
	bytes  int        // memory of the blocks
	spare  [][]byte
	came   int64 // bytes of whole messages
	taken  int64 // of these; behind by what was skipped since the taker looked for more
	ended  bool
	err    error

	now  *block // of the taker: what it reads from
	at   int    // of the taker: the next message
	upto int    // of the taker: as far as it knows that there are whole messages
	from int    // of the taker: where the message was when it looked for more
}

// block is a piece of the stream. Bytes up to whole are never written again.
type block struct {
	buf    []byte
	whole  int  // behind the last whole message; guarded by the inbox
	sealed bool // nothing more comes; guarded by the inbox
}

func newInbox(ready chan struct{}) *inbox {
	return &inbox{ready: ready, space: make(chan struct{}, 1)}
}

// fill reads messages until the reader fails or ctx is over. see looks at each message before it can be taken; its error ends the
// filling with the messages before.
func (in *inbox) fill(ctx context.Context, r io.Reader, see func(frame []byte) error) error {
	b, err := in.grow(ctx, blockBytes)
	if err != nil {
		return err
	}
	lo, hi := 0, 0 // of the bytes that are no whole message yet
	for ctx.Err() == nil {
		n, err := r.Read(b.buf[hi:])
		hi += n
		size, bad := frameHeader, error(nil)
		for hi-lo >= frameHeader && bad == nil {
			if size, bad = frameSize(b.buf[lo:]); bad != nil || hi-lo < size {
				break
			}
			if bad = see(b.buf[lo : lo+size]); bad == nil {
				lo += size
			}
			size = frameHeader
		}
		in.publish(b, lo)
		if bad != nil {
			return bad
		}
		if err != nil {
			return err //nolint:wrapcheck // callers say what was being done
		}
		if lo+size <= len(b.buf) && len(b.buf)-hi >= leastRead {
			continue
		}
		rest := append([]byte(nil), b.buf[lo:hi]...)
		in.seal(b)
		if b, err = in.grow(ctx, max(blockBytes, size)); err != nil {
			return err
		}
		lo, hi = 0, copy(b.buf, rest)
	}
	return ctx.Err() //nolint:wrapcheck // callers say what was being done
}

// grow appends a block of at least size bytes, once there is room.
func (in *inbox) grow(ctx context.Context, size int) (*block, error) {
	for {
		in.mu.Lock()
		if in.bytes+size <= inboxBytes || len(in.blocks) <= 1 {
			b := &block{}
			if n := len(in.spare); size == blockBytes && n > 0 {
				b.buf, in.spare = in.spare[n-1], in.spare[:n-1]
			} else {
				b.buf = make([]byte, size)
			}
			in.blocks = append(in.blocks, b)
			in.bytes += len(b.buf)
			in.mu.Unlock()
			return b, nil
		}
		in.mu.Unlock()
		select {
		case <-in.space:
		case <-ctx.Done():
			return nil, ctx.Err() //nolint:wrapcheck // callers say what was being done
		}
	}
}

// publish lets the taker have all up to whole.
func (in *inbox) publish(b *block, whole int) {
	in.mu.Lock()
	more := whole > b.whole
	in.came += int64(whole - b.whole)
	b.whole = whole
	in.mu.Unlock()
	if more {
		wake(in.ready)
	}
}

func (in *inbox) seal(b *block) {
	in.mu.Lock()
	b.sealed = true
	in.mu.Unlock()
	wake(in.ready) // an empty one is given back by the taker
}

// end says that nothing more comes, and why. The first reason counts.
func (in *inbox) end(err error) {
	in.mu.Lock()
	if !in.ended {
		in.ended, in.err = true, err
	}
	in.mu.Unlock()
	wake(in.ready)
}

// wake signals without waiting.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// peek returns the next message, valid until skip; nil: none has come yet. The reason of the end comes behind the last message.
func (in *inbox) peek() ([]byte, error) {
	for {
		if in.at < in.upto {
			size, err := frameSize(in.now.buf[in.at:])
			if err != nil {
				return nil, err
			}
			return in.now.buf[in.at : in.at+size], nil
		}
		if more, err := in.turn(); err != nil || !more {
			return nil, err
		}
	}
}

// turn looks for messages behind those that the taker knows of.
func (in *inbox) turn() (more bool, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.taken += int64(in.at - in.from)
	in.from = in.at
	if in.now != nil && in.now.whole > in.upto {
		in.upto = in.now.whole
		return true, nil
	}
	if in.now != nil && in.now.sealed {
		in.blocks = in.blocks[1:]
		in.bytes -= len(in.now.buf)
		if len(in.now.buf) == blockBytes && len(in.spare) < maxSpare {
			in.spare = append(in.spare, in.now.buf)
		}
		in.now = nil
		wake(in.space)
	}
	if in.now == nil && len(in.blocks) > 0 {
		in.now, in.at, in.upto, in.from = in.blocks[0], 0, 0, 0
		return true, nil
	}
	if in.ended {
		return false, in.err
	}
	return false, nil
}

// empty reports whether everything was taken.
func (in *inbox) empty() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.taken == in.came
}

// skip moves on behind the message that peek returned.
func (in *inbox) skip(frame []byte) { in.at += len(frame) }

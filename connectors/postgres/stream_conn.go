package postgres

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// The server sends every change by itself, and waking up for each costs more than decoding it. Where many come, the kernel is asked to
// wake the reader only once there is more, and no later than in a moment.
const (
	manyReads   = 16                   // reads that say that many come
	manyWithin  = 4 * time.Millisecond // of each other
	heapBytes   = 64 << 10             // that are waited for
	heapPatient = 5 * time.Millisecond
	readBuffer  = 64 << 10
)

// patientConn is a TCP connection that is read in large pieces, whatever lies above it. One goroutine reads.
type patientConn struct {
	net.Conn

	tcp   *net.TCPConn // the same one
	buf   []byte
	rest  []byte // of buf: read, and not taken yet
	busy  bool   // the kernel waits for more
	reads int
	since time.Time

	mu    sync.Mutex // guards what follows
	until time.Time  // when a read has to end; zero: never
}

// patiently lets the connections of a dialer be read in large pieces.
func patiently(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			return &patientConn{Conn: tcp, tcp: tcp, buf: make([]byte, readBuffer)}, nil
		}
		return conn, err
	}
}

// Read implements net.Conn.
func (c *patientConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 && len(p) >= len(c.buf) {
		return c.fetch(p)
	}
	if len(c.rest) == 0 {
		n, err := c.fetch(c.buf)
		if n == 0 {
			return 0, err
		}
		c.rest = c.buf[:n] // an error comes again with the next read
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// fetch reads from the kernel.
func (c *patientConn) fetch(p []byte) (n int, err error) {
	if c.busy {
		n, err = c.heap(p)
	} else {
		n, err = c.tcp.Read(p)
	}
	if c.reads++; c.reads >= manyReads {
		now := time.Now()
		if !c.busy && now.Sub(c.since) < manyWithin {
			c.busy = waitForBytes(c.tcp, heapBytes) == nil
		}
		c.reads, c.since = 0, now
	}
	return n, err //nolint:wrapcheck // io.EOF must stay
}

// heap reads once many bytes came, or what came in a moment.
func (c *patientConn) heap(p []byte) (int, error) {
	c.setDeadline(time.Now().Add(heapPatient))
	n, err := c.tcp.Read(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err //nolint:wrapcheck // io.EOF must stay
	}
	c.busy = false
	if err := waitForBytes(c.tcp, 1); err != nil {
		return 0, err
	}
	c.setDeadline(time.Time{})
	return c.tcp.Read(p) //nolint:wrapcheck // io.EOF must stay
}

// setDeadline sets when a read ends; the zero time: never. It ends no later than it has to.
func (c *patientConn) setDeadline(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.IsZero() || (!c.until.IsZero() && c.until.Before(at)) {
		at = c.until
	}
	_ = c.tcp.SetReadDeadline(at)
}

// SetReadDeadline implements net.Conn.
func (c *patientConn) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = at
	return c.tcp.SetReadDeadline(at) //nolint:wrapcheck // it is that one's
}

// SetDeadline implements net.Conn.
func (c *patientConn) SetDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = at
	return c.tcp.SetDeadline(at) //nolint:wrapcheck // it is that one's
}

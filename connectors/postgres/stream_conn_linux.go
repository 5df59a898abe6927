package postgres

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How a connection is read from which many messages come. A reader sleeps between two reads for less than it takes to fill the sender's
// buffer: that of a unix socket holds some 280 messages.
const (
	manyReads  = 16 // reads within manyWithin say that many come
	manyWithin = manyReads * 100 * time.Microsecond
	nap        = time.Millisecond       // between two reads then
	socketNap  = 300 * time.Microsecond // of a unix socket
	fewBytes   = 512                    // that came meanwhile say that it is over
	readBuffer = 64 << 10
)

// patientConn is a connection that is read and written with system calls of its own. The runtime's poller would be woken, and the sender
// be held up by waking it, for every single message, whether or not anybody waits for it; here the reader sleeps for a moment where many
// messages come, and takes all that came meanwhile. One goroutine may read while another one writes; everything else may be called
// concurrently with both.
type patientConn struct {
	local, remote net.Addr

	buf   []byte
	rest  []byte // of buf: read, and not taken yet
	nap   time.Duration
	many  bool // messages come so fast that it is better to sleep between two reads
	full  bool // the last read took all that it could: more waits
	reads int
	since time.Time

	reader, writer side

	open   sync.RWMutex // held for reading while fd is used
	fd     int          // -1: closed
	closed chan struct{}
	once   sync.Once
}

// side is one direction of the connection.
type side struct {
	name  string
	call  func(fd int, p []byte) (int, error)
	event int16 // that says that a call gets further
	wake  int   // an event: the time limit is another one, or the connection is closed

	mu    sync.Mutex
	until time.Time // when waiting has to end; zero: never
}

// patient takes a connection over. One that it can't take over stays as it is.
func patient(conn net.Conn) net.Conn {
	own, err := takeOver(conn)
	if err != nil {
		return conn
	}
	return own
}

func takeOver(conn net.Conn) (*patientConn, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err //nolint:wrapcheck // nobody sees it
	}
	c := &patientConn{
		local: conn.LocalAddr(), remote: conn.RemoteAddr(), buf: make([]byte, readBuffer), fd: -1, closed: make(chan struct{}),
		reader: side{name: "read", call: unix.Read, event: unix.POLLIN, wake: -1},
		writer: side{name: "write", call: unix.Write, event: unix.POLLOUT, wake: -1},
	}
	if c.nap = nap; c.remote.Network() == "unix" {
		c.nap = socketNap
	}
	if err := c.setUp(raw); err != nil {
		c.release()
		return nil, err
	}
	_ = conn.Close() // of its own descriptor: the connection lives on with c's
	return c, nil
}

// setUp makes the descriptors.
func (c *patientConn) setUp(raw syscall.RawConn) (err error) {
	for _, s := range []*side{&c.reader, &c.writer} {
		if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return err //nolint:wrapcheck // nobody sees it
		}
	}
	failed := raw.Control(func(fd uintptr) { c.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	return errors.Join(failed, err)
}

// release closes the descriptors that there are.
func (c *patientConn) release() {
	for _, fd := range []*int{&c.fd, &c.reader.wake, &c.writer.wake} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
		}
		*fd = -1
	}
}

// Read implements net.Conn.
func (c *patientConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.open.RLock()
	defer c.open.RUnlock()
	if len(c.rest) == 0 && len(p) >= len(c.buf) {
		return c.fetch(p)
	}
	if len(c.rest) == 0 {
		n, err := c.fetch(c.buf)
		if n == 0 {
			return 0, err
		}
		c.rest = c.buf[:n]
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// fetch reads from the kernel.
func (c *patientConn) fetch(p []byte) (int, error) {
	if c.many && !c.full {
		pause(c.nap)
	}
	n, err := c.transfer(&c.reader, p)
	c.full = n == len(p)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if c.many {
		c.many = n >= fewBytes
		return n, err
	}
	if c.reads++; c.reads == manyReads {
		now := time.Now()
		c.many = now.Sub(c.since) < manyWithin
		c.reads, c.since = 0, now
	}
	return n, err
}

// pause sleeps more exactly than the runtime's timers do.
func pause(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil)
}

// Write implements net.Conn.
func (c *patientConn) Write(p []byte) (n int, err error) {
	c.open.RLock()
	defer c.open.RUnlock()
	for n < len(p) && err == nil {
		var some int
		some, err = c.transfer(&c.writer, p[n:])
		n += some
	}
	return n, err
}

// transfer reads or writes once that is possible.
func (c *patientConn) transfer(s *side, p []byte) (int, error) {
	for {
		left, err := c.left(s)
		if err != nil {
			return 0, c.fault(s, err)
		}
		n, err := s.call(c.fd, p)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EAGAIN):
			return 0, c.fault(s, os.NewSyscallError(s.name, err))
		}
		if err := s.wait(c.fd, left); err != nil {
			return 0, c.fault(s, err)
		}
	}
}

// fault is an error as package net makes it.
func (c *patientConn) fault(s *side, err error) error {
	return &net.OpError{Op: s.name, Net: c.remote.Network(), Source: c.local, Addr: c.remote, Err: err}
}

// left is how long one may wait; below 0: without end.
func (c *patientConn) left(s *side) (time.Duration, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	s.mu.Lock()
	until := s.until
	s.mu.Unlock()
	if until.IsZero() {
		return -1, nil
	}
	left := time.Until(until)
	if left <= 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return left, nil
}

// wait returns after an event, a change of the time limit, or the time.
func (s *side) wait(fd int, left time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(fd), Events: s.event}, {Fd: int32(s.wake), Events: unix.POLLIN}}
	var limit *unix.Timespec
	if left >= 0 {
		t := unix.NsecToTimespec(int64(left))
		limit = &t
	}
	if _, err := unix.Ppoll(fds, limit, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("ppoll", err)
	}
	if fds[1].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(s.wake, count[:])
	}
	return nil
}

// rouse lets whoever waits look again.
func (s *side) rouse() {
	_, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// Close implements net.Conn.
func (c *patientConn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		c.reader.rouse()
		c.writer.rouse()
		c.open.Lock()
		defer c.open.Unlock()
		c.release()
		err = nil
	})
	return err
}

// LocalAddr implements net.Conn.
func (c *patientConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *patientConn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *patientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *patientConn) SetReadDeadline(t time.Time) error { return c.limit(&c.reader, t) }

// SetWriteDeadline implements net.Conn.
func (c *patientConn) SetWriteDeadline(t time.Time) error { return c.limit(&c.writer, t) }

func (c *patientConn) limit(s *side, t time.Time) error {
	c.open.RLock()
	defer c.open.RUnlock()
	if c.fd < 0 {
		return net.ErrClosed
	}
	s.mu.Lock()
	s.until = t
	s.mu.Unlock()
	s.rouse()
	return nil
}

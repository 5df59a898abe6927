package postgres

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// pair is a connection that was taken over, and its other end.
func pair(t testing.TB, network string) (*patientConn, net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	var cfg net.ListenConfig
	l, err := cfg.Listen(t.Context(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dial := patiently((&net.Dialer{}).DialContext)
	conn, err := dial(t.Context(), network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = conn.Close(), other.Close() })
	own, ok := conn.(*patientConn)
	if !ok {
		t.Fatalf("it is a %T", conn)
	}
	return own, other
}

func networks() []string { return []string{"unix", "tcp"} }

// Whatever is sent in whatever pieces arrives as it was, in both directions at once, whether it comes fast or not.
func TestPatientConnCarriesEverything(t *testing.T) {
	for _, network := range networks() {
		t.Run(network, func(t *testing.T) {
			c, other := pair(t, network)
			const size = 8 << 20
			data := make([]byte, size)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			send := func(w io.Writer, most int) {
				r := rand.New(rand.NewPCG(3, uint64(most)))
				for rest := data; len(rest) > 0; {
					n := min(1+r.IntN(most), len(rest))
					if _, err := w.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
			}
			receive := func(from io.Reader, most int) {
				r := rand.New(rand.NewPCG(5, uint64(most)))
				got := make([]byte, size)
				for at := 0; at < size; {
					n, err := from.Read(got[at:min(size, at+1+r.IntN(most))])
					if err != nil {
						t.Errorf("at %d: %v", at, err)
						return
					}
					at += n
				}
				if !bytes.Equal(got, data) {
					t.Error("it is not what was sent")
				}
			}
			var work sync.WaitGroup
			work.Go(func() { send(other, 300) })
			work.Go(func() { receive(c, 200_000) })
			work.Go(func() { send(c, 100_000) })
			work.Go(func() { receive(other, 50_000) })
			work.Wait()
		})
	}
}

// A message is handed over without anything behind it: the other end sends the next one only once it is answered. So it is also right after
// many messages came so fast that the reader began to sleep between two reads, and it stops that.
func TestPatientConnWaitsForNothingMore(t *testing.T) {
	for _, network := range networks() {
		t.Run(network, func(t *testing.T) {
			c, other := pair(t, network)
			c.many = true
			var work sync.WaitGroup
			work.Go(func() {
				answer := make([]byte, 1)
				for range 100 {
					if _, err := other.Write([]byte{1}); err != nil {
						t.Error(err)
					}
					if _, err := io.ReadFull(other, answer); err != nil {
						t.Error(err)
					}
				}
			})
			buf := make([]byte, readBuffer)
			for range 100 {
				n, err := c.Read(buf)
				if n != 1 || err != nil {
					t.Fatalf("%d bytes, %v", n, err)
				}
				c.since = time.Time{} // the test is not slow enough itself
				if _, err := c.Write(buf[:1]); err != nil {
					t.Fatal(err)
				}
			}
			work.Wait()
			if c.many {
				t.Error("it sleeps still")
			}
		})
	}
}

// The reader sleeps between two reads once many messages come fast.
func TestPatientConnSleeps(t *testing.T) {
	c, other := pair(t, "unix")
	buf := make([]byte, readBuffer)
	c.since = time.Now().Add(time.Hour) // however long this test takes
	for range manyReads {
		if _, err := other.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	if !c.many {
		t.Error("it does not")
	}
	if _, err := other.Write(make([]byte, fewBytes)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(buf); n != fewBytes || err != nil || !c.many {
		t.Errorf("%d bytes, %v, it sleeps: %v", n, err, c.many)
	}
}

// A time limit ends a read that waits, and every later one until it is taken away; nothing is lost.
func TestPatientConnLimits(t *testing.T) {
	for _, network := range networks() {
		t.Run(network, func(t *testing.T) {
			c, other := pair(t, network)
			buf := make([]byte, 10)
			read := make(chan error, 1)
			go func() {
				_, err := c.Read(buf)
				read <- err
			}()
			isLimit := func(err error) {
				t.Helper()
				var e net.Error
				if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &e) || !e.Timeout() {
					t.Fatalf("the error is %v", err)
				}
			}
			if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			isLimit(<-read)
			if _, err := other.Write([]byte("abc")); err != nil {
				t.Fatal(err)
			}
			_, err := c.Read(buf)
			isLimit(err)
			if err := c.SetDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(buf); string(buf[:n]) != "abc" || err != nil {
				t.Fatalf("%q, %v", buf[:n], err)
			}
			if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			_, err = c.Read(buf)
			isLimit(err)
			if err := c.SetWriteDeadline(time.Now().Add(time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			for err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
				if _, err = c.Write(make([]byte, 1<<20)); err == nil { // until the buffers are full
					continue
				}
				isLimit(err)
			}
		})
	}
}

// Whoever waits hears of the end, and no descriptor is left.
func TestPatientConnEnds(t *testing.T) {
	before := descriptors(t)
	for _, network := range networks() {
		t.Run(network, func(t *testing.T) {
			c, other := pair(t, network)
			_ = other.Close()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("the other end is closed: %v", err)
			}
		})
	}
	for _, network := range networks() {
		t.Run(network, func(t *testing.T) {
			c, _ := pair(t, network)
			read := make(chan error, 1)
			go func() {
				_, err := c.Read(make([]byte, 1))
				read <- err
			}()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err := <-read; !errors.Is(err, net.ErrClosed) {
				t.Errorf("it is closed: %v", err)
			}
			_, err := c.Write([]byte{1})
			for _, err := range []error{err, c.Close(), c.SetDeadline(time.Now())} {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("after the end: %v", err)
				}
			}
		})
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are left", after-before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// A connection of another kind stays what it is, and one that can't be made is none.
func TestPatientlyLeavesOthers(t *testing.T) {
	own, _ := net.Pipe()
	if conn := patient(own); conn != own {
		t.Errorf("it is a %T", conn)
	}
	no := errors.New("no")
	conn, err := patiently(func(context.Context, string, string) (net.Conn, error) { return nil, no })(t.Context(), "", "")
	if conn != nil || !errors.Is(err, no) {
		t.Errorf("%v, %v", conn, err)
	}
}

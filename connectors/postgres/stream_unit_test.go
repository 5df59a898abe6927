package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/record"
)

// Positions that are made quickly have the bytes of those that are made slowly.
func TestPositionCode(t *testing.T) {
	for _, o := range []origin{
		{System: "7713699208756099233", Timeline: 1, Slot: "leat_x", Created: 0xE26CE818, Publication: 49718},
		{System: `a"b`, Slot: "s"},
	} {
		code := newPositionCode(o)
		var places []txnEnd
		var want []record.Position
		for _, p := range []txnEnd{{lsn: 1, xid: 7}, {lsn: 0}, {lsn: 0xF_0000_0000}, {lsn: 0xFFFF_FFFF_FFFF_FFFF, xid: 1<<64 - 1}, {lsn: 0x1A0}} {
			places = append(places, p)
			want = append(want, streamPosition{LSN: p.lsn, XID: p.xid, origin: o}.encode())
		}
		if diff := cmp.Diff(want, code.encodeAll(places)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Numbers of transactions are 32 bits wide in the stream, and wrap around.
func TestWiden(t *testing.T) {
	for _, c := range []struct {
		newest uint64
		xid    uint32
		want   uint64
	}{
		{100, 90, 90},
		{100, 110, 110},
		{1<<32 + 5, 1<<32 - 3, 1<<32 - 3},
		{1<<32 - 3, 5, 1<<32 + 5},
		{7<<32 + 5, 1<<32 - 3, 7<<32 - 3},
		{7<<32 + 1<<31, 1, 7<<32 + 1},
		{10, 1<<32 - 3, 1<<32 - 3}, // there was nothing before the first epoch
	} {
		f := &stream{newest: c.newest}
		if got := f.widen(c.xid); got != c.want {
			t.Errorf("%d beside %d is %d, want %d", c.xid, c.newest, got, c.want)
		}
	}
}

func frame(kind byte, body []byte) []byte {
	out := append([]byte{kind, 0, 0, 0, 0}, body...)
	binary.BigEndian.PutUint32(out[1:], uint32(len(out)-1))
	return out
}

// Whatever pieces the messages arrive in, they come out whole and in order, also those larger than a block; the filler never holds much
// more than the bound, and the reason of the end comes last.
func TestInbox(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var wire bytes.Buffer
	var want [][]byte
	for i := range 3000 {
		size := r.IntN(60)
		switch {
		case i%500 == 0:
			size = blockBytes + r.IntN(2*blockBytes)
		case i%10 == 0:
			size = r.IntN(60_000)
		}
		body := make([]byte, size)
		for j := range body {
			body[j] = byte(i + j)
		}
		want = append(want, frame(frameCopyData, body))
		wire.Write(want[i])
	}
	in := newInbox(make(chan struct{}, 1))
	most := 0
	go func() {
		in.end(in.fill(t.Context(), iotest.HalfReader(&wire), func([]byte) error {
			in.mu.Lock()
			most = max(most, in.bytes)
			in.mu.Unlock()
			return nil
		}))
	}()
	for i := 0; ; {
		got, err := in.peek()
		if err != nil {
			if !errors.Is(err, io.EOF) || i != len(want) {
				t.Fatalf("after %d of %d messages: %v", i, len(want), err)
			}
			break
		}
		if got == nil {
			<-in.ready
			continue
		}
		if !bytes.Equal(got, want[i]) {
			t.Fatalf("message %d differs: %d bytes, want %d", i, len(got), len(want[i]))
		}
		in.skip(got)
		i++
	}
	if most > inboxBytes+4*blockBytes {
		t.Errorf("%d bytes were held", most)
	}
}

// Nothing is read ahead beyond the bound while nobody takes anything, and the filler ends with its context.
func TestInboxIsBounded(t *testing.T) {
	in := newInbox(make(chan struct{}, 1))
	ctx, cancel := context.WithCancel(t.Context())
	endless := endlessFrames(frame(frameCopyData, make([]byte, 1000)))
	done := make(chan error, 1)
	go func() { done <- in.fill(ctx, &endless, func([]byte) error { return nil }) }()
	for full := false; !full; {
		in.mu.Lock()
		full = in.bytes+blockBytes > inboxBytes && in.blocks[len(in.blocks)-1].sealed
		in.mu.Unlock()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the filler ended with %v", err)
	}
	if in.bytes > inboxBytes {
		t.Errorf("%d bytes are held", in.bytes)
	}
}

type endlessFrames []byte

func (e *endlessFrames) Read(p []byte) (int, error) {
	n := copy(p, *e)
	*e = append((*e)[n:len(*e):len(*e)], (*e)[:n]...)
	return n, nil
}

// Bytes that are not the protocol end the stream.
func TestInboxRefuses(t *testing.T) {
	in := newInbox(make(chan struct{}, 1))
	good := frame(frameCopyData, []byte("x"))
	err := in.fill(t.Context(), bytes.NewReader(append(append([]byte{}, good...), 'd', 0, 0, 0, 1, 0)), func([]byte) error { return nil })
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the error is %v", err)
	}
	if got, err := in.peek(); !bytes.Equal(got, good) || err != nil {
		t.Errorf("the message before is %q, %v", got, err)
	}
}

// Open transactions come back message by message, in memory as from files, without what was taken back.
func TestSpools(t *testing.T) {
	for _, budget := range []int64{0, 64 << 20} {
		t.Run(strconv.FormatInt(budget, 10), func(t *testing.T) {
			s := newSpools(t.TempDir(), "leat-open-x-", budget)
			r := rand.New(rand.NewPCG(3, 4))
			want := map[uint32][]string{}
			for i := range 4000 {
				xid := uint32(1 + r.IntN(3))
				sp, err := s.begin(xid, s.open[xid] == nil)
				if err != nil {
					t.Fatal(err)
				}
				sub := xid*10 + uint32(r.IntN(3))
				size := r.IntN(2000)
				if i%1000 == 0 {
					size = spoolBuffer + r.IntN(spoolBuffer)
				}
				message := binary.BigEndian.AppendUint32([]byte{'I'}, sub)
				message = append(message, bytes.Repeat([]byte{byte(i)}, size)...)
				if err := sp.append(message); err != nil {
					t.Fatal(err)
				}
				if s.used > s.budget {
					t.Fatalf("%d bytes are used of %d", s.used, s.budget)
				}
				if sub%10 != 1 {
					want[xid] = append(want[xid], string(message))
				}
			}
			for xid := range uint32(3) {
				sp := s.open[xid+1]
				sp.undo(sp.xid*10 + 1)
				var got []string
				for p := sp.replay(); ; {
					m, err := p.peek()
					if err != nil {
						t.Fatal(err)
					}
					if m == nil {
						break
					}
					got = append(got, string(m))
					if err := p.skip(); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(len(want[sp.xid]), len(got)); diff != "" || !cmp.Equal(want[sp.xid], got) {
					t.Errorf("transaction %d comes back otherwise: %s", sp.xid, diff)
				}
				sp.drop()
			}
			if s.used != 0 || len(s.open) != 0 {
				t.Errorf("%d bytes and %d transactions are left", s.used, len(s.open))
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Which of the table's columns those of an older description are.
func TestNumberColumns(t *testing.T) {
	const integer, text = 23, 25
	live := func(num int, name string, typ uint32) attribute { return attribute{num: num, name: name, typ: typ} }
	gone := func(num int) attribute {
		return attribute{num: num, name: fmt.Sprintf("........pg.dropped.%d........", num), dropped: true}
	}
	column := func(num int, name string, typ uint32) sourceColumn {
		return sourceColumn{num: num, name: name, typ: typ}
	}
	for name, c := range map[string]struct {
		cols   []sourceColumn
		now    []attribute
		before []sourceColumn
		want   []int
	}{
		"the same": {
			[]sourceColumn{column(0, "a", integer), column(0, "b", text)},
			[]attribute{live(1, "a", integer), live(2, "b", text)},
			nil,
			[]int{1, 2},
		},
		"renamed since": {
			[]sourceColumn{column(0, "a", integer), column(0, "b", text)},
			[]attribute{live(1, "x", integer), live(2, "y", text), live(3, "a", text)},
			nil,
			[]int{1, 2},
		},
		"dropped and made anew since": {
			[]sourceColumn{column(0, "id", integer), column(0, "a", integer), column(0, "b", text)},
			[]attribute{live(1, "id", integer), live(2, "z", 20), gone(3), live(4, "c", integer), live(5, "b", text)},
			nil,
			[]int{1, 2, 3},
		},
		"dropped before": {
			[]sourceColumn{column(0, "id", integer), column(0, "b", text)},
			[]attribute{live(1, "id", integer), gone(2), live(3, "b", text), live(4, "c", text)},
			nil,
			[]int{1, 3},
		},
		"two that took each other's name": {
			[]sourceColumn{column(0, "a", integer), column(0, "b", integer)},
			[]attribute{live(1, "b", integer), live(2, "a", integer)},
			nil,
			[]int{1, 2},
		},
		"dropped since, known from before": {
			[]sourceColumn{column(0, "id", integer), column(0, "b", text), column(0, "c", text)},
			[]attribute{live(1, "id", integer), gone(2), gone(3), live(4, "c", text)},
			[]sourceColumn{column(1, "id", integer), column(2, "a", text), column(3, "b", text)},
			[]int{1, 3, 4},
		},
		"the table is gone": {[]sourceColumn{column(0, "a", integer)}, nil, nil, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			numberColumns(c.cols, c.now, nil, c.before)
			var got []int
			for _, c := range c.cols {
				got = append(got, c.num)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

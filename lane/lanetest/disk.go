package lanetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/leatdata/leat/lane"
)

// Disk is what is left of a storage when its owner is gone. Handles on it are opened as often as a test wants; one that was killed
// changes nothing any more. It is safe for concurrent use, and may live in a bubble of testing/synctest.
type Disk struct {
	// Size is the limit of an entry; 0: 1 MiB.
	Size int
	// Fault is asked at each call: append, save, trim, drop, read, load, bounds. It may be nil. It is set before the first handle is
	// opened.
	Fault func(op string) Fault
	// Wait is called in front of each call, and may hold it; nil: it does not. It is set before the first handle is opened.
	Wait func(op string)

	mu      sync.Mutex
	first   uint64 // 0: nothing was ever written
	last    uint64
	entries map[uint64][]byte
	note    []byte
	version uint64
}

// Fault is what happens to one call.
type Fault uint8

// The faults.
const (
	None   Fault = iota
	Before       // it fails without an effect
	After        // it takes effect, and fails
)

// ErrFault is the error of a call that a Fault lets fail.
var ErrFault = errors.New("lanetest: a fault")

var errKilled = errors.New("lanetest: the handle was killed")

// NewDisk returns an empty one.
func NewDisk() *Disk { return &Disk{entries: map[uint64][]byte{}} }

// Clone returns a disk with the same content and no faults: what a crash at this moment would leave.
func (d *Disk) Clone() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Disk{Size: d.Size, first: d.first, last: d.last, entries: maps.Clone(d.entries), note: d.note, version: d.version}
}

// Entries returns how many entries the disk has.
func (d *Disk) Entries() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.entries)
}

// Remove takes entries away, as damage would; the last stays known.
func (d *Disk) Remove(from, to uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := from; n <= to; n++ {
		delete(d.entries, n)
	}
	d.settleFirst()
}

// Forget takes the note away, as damage would.
func (d *Disk) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note, d.version = nil, 0
}

// Restore brings back the log of an earlier clone, and leaves the note as it is, as an old backup would.
func (d *Disk) Restore(backup *Disk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first, d.last, d.entries = backup.first, backup.last, maps.Clone(backup.entries)
}

// Damage changes one byte of an entry.
func (d *Disk) Damage(number uint64, at int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := bytes.Clone(d.entries[number])
	e[at%len(e)] ^= 1
	d.entries[number] = e
}

func (d *Disk) settleFirst() {
	for d.first <= d.last && d.entries[d.first] == nil {
		d.first++
	}
}

// Open returns a handle.
func (d *Disk) Open() *Handle { return &Handle{disk: d} }

// Handle implements lane.Storage on a Disk.
type Handle struct {
	disk *Disk

	killed atomic.Bool
	mu     sync.Mutex
	before chan struct{} // closed when the append before is done
	work   sync.WaitGroup
}

var _ lane.Storage = (*Handle)(nil)

// Kill ends the handle in the middle of whatever it does.
func (h *Handle) Kill() { h.killed.Store(true) }

// do runs a call on the disk, with its fault.
func (h *Handle) do(op string, f func(d *Disk) error) error {
	if h.disk.Wait != nil {
		h.disk.Wait(op)
	}
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if h.killed.Load() {
		return errKilled
	}
	fault := None
	if h.disk.Fault != nil {
		fault = h.disk.Fault(op)
	}
	if fault == Before {
		return fmt.Errorf("%s: %w", op, ErrFault)
	}
	if h.killed.Load() { // the fault is a crash
		return errKilled
	}
	err := f(h.disk)
	if fault == After {
		return fmt.Errorf("%s: %w", op, ErrFault)
	}
	return err
}

// Limit implements lane.Storage.
func (h *Handle) Limit() int {
	if h.disk.Size > 0 {
		return h.disk.Size
	}
	return 1 << 20
}

// Bounds implements lane.Log.
func (h *Handle) Bounds(context.Context) (first, last uint64, err error) {
	err = h.do("bounds", func(d *Disk) error {
		first, last = max(d.first, 1), d.last
		return nil
	})
	return first, last, err
}

// Append implements lane.Log.
func (h *Handle) Append(number uint64, data []byte, done func(error)) {
	h.mu.Lock()
	before, mine := h.before, make(chan struct{})
	h.before = mine
	h.mu.Unlock()
	h.work.Go(func() {
		if before != nil {
			<-before
		}
		defer close(mine)
		done(h.do("append", func(d *Disk) error {
			if number != d.last+1 {
				return lane.ErrTaken
			}
			d.entries[number], d.last, d.first = bytes.Clone(data), number, max(d.first, 1)
			return nil
		}))
	})
}

// Read implements lane.Log.
func (h *Handle) Read(_ context.Context, number uint64) (b []byte, err error) {
	err = h.do("read", func(d *Disk) error {
		b = d.entries[number]
		if b == nil {
			return fmt.Errorf("%w: %d", lane.ErrMissing, number)
		}
		return nil
	})
	return b, err
}

// Trim implements lane.Log.
func (h *Handle) Trim(_ context.Context, number uint64) error {
	return h.do("trim", func(d *Disk) error {
		for n := d.first; n < min(number, d.last); n++ {
			delete(d.entries, n)
		}
		d.first = max(d.first, min(number, d.last))
		return nil
	})
}

// Drop implements lane.Log.
func (h *Handle) Drop(_ context.Context, from, to uint64) error {
	return h.do("drop", func(d *Disk) error {
		for n := from; n <= to; n++ {
			delete(d.entries, n)
		}
		d.settleFirst()
		return nil
	})
}

// Load implements lane.Note.
func (h *Handle) Load(context.Context) (b []byte, version uint64, err error) {
	err = h.do("load", func(d *Disk) error {
		b, version = d.note, d.version
		return nil
	})
	return b, version, err
}

// Save implements lane.Note.
func (h *Handle) Save(_ context.Context, value []byte, prev uint64) (version uint64, err error) {
	err = h.do("save", func(d *Disk) error {
		if prev != d.version {
			return lane.ErrTaken
		}
		d.note, d.version = bytes.Clone(value), d.version+1
		version = d.version
		return nil
	})
	return version, err
}

// Close implements lane.Storage.
func (h *Handle) Close() error {
	h.Kill()
	h.work.Wait()
	return nil
}

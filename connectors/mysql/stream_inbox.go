package mysql

import (
	"context"
	"sync"
)

// Sizes of the inbox, in bytes.
const (
	slabBytes  = 256 << 10
	inboxBytes = 8 << 20
)

// inbox holds the events that came from the server and were not used yet, bounded by bytes. One goroutine fills it, one takes from it.
type inbox struct {
	ready chan struct{} // capacity 1: there may be something to take
	space chan struct{} // capacity 1: something was taken

	slab []byte // of the filler: what is behind its length is free

	mu    sync.Mutex // guards what follows
	queue [][]byte
	bytes int
	ended bool
	err   error

	now [][]byte // of the taker: events that it took together
}

func newInbox(ready chan struct{}) *inbox { return &inbox{ready: ready, space: make(chan struct{}, 1)} }

// put adds a copy of an event, once there is room. One that is larger than all the room waits until it is alone.
func (in *inbox) put(ctx context.Context, event []byte) error {
	for {
		in.mu.Lock()
		if room := in.bytes == 0 || in.bytes+len(event) <= inboxBytes; room {
			in.queue = append(in.queue, in.copy(event))
			in.bytes += len(event)
			first := len(in.queue) == 1
			in.mu.Unlock()
			if first {
				wake(in.ready)
			}
			return nil
		}
		in.mu.Unlock()
		select {
		case <-in.space:
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // callers say what was being done
		}
	}
}

// copy keeps an event; many small ones share one piece of memory.
func (in *inbox) copy(event []byte) []byte {
	if len(event) > slabBytes/4 {
		return append([]byte(nil), event...)
	}
	if cap(in.slab)-len(in.slab) < len(event) {
		in.slab = make([]byte, 0, slabBytes)
	}
	from := len(in.slab)
	in.slab = append(in.slab, event...)
	return in.slab[from:len(in.slab):len(in.slab)]
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

// peek returns the next event; nil: none has come yet. The reason of the end comes behind the last event.
func (in *inbox) peek() ([]byte, error) {
	if len(in.now) == 0 {
		in.mu.Lock()
		in.now, in.queue = in.queue, nil
		in.bytes = 0
		ended, err := in.ended, in.err
		in.mu.Unlock()
		if len(in.now) == 0 {
			if ended {
				return nil, err
			}
			return nil, nil
		}
		wake(in.space)
	}
	return in.now[0], nil
}

// skip moves on behind the event that peek returned.
func (in *inbox) skip() {
	in.now[0] = nil
	in.now = in.now[1:]
}

// empty reports whether everything was taken, as the taker knows it.
func (in *inbox) empty() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.queue) == 0
}

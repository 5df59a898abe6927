package lane

import (
	"context"
	"errors"
	"io"
	"sync"
)

// queue is a ledger with the one consumer that is attached to it. The mutex is the stream's, shared by all its queues, so that what
// is said about all of them is true at one moment (W8).
type queue[T any] struct {
	mu       *sync.Mutex
	ledger   ledger[T]
	consumer *consumer[T] // nil: none is attached
	closed   bool
	refused  error  // why nobody receives anything; nil: nothing is wrong
	settled  func() // called with the mutex held after anything left the queue or was acknowledged
}

// consumer implements Consumer.
type consumer[T any] struct {
	q    *queue[T]
	wake chan struct{} // capacity 1
	end  error         // why it receives nothing more: ErrFenced or ErrClosed; nil: it is attached
}

// delivery implements Delivery.
type delivery[T any] struct {
	c     *consumer[T]
	entry *entry[T]
	turn  uint64
	item  T
	acked bool
}

var (
	_ Consumer[Item] = (*consumer[Item])(nil)
	_ Delivery[Item] = (*delivery[Item])(nil)
)

// attach makes a new consumer the only one.
func (q *queue[T]) attach() *consumer[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.detach(ErrFenced)
	c := &consumer[T]{q: q, wake: make(chan struct{}, 1), end: q.refused}
	if c.end == nil {
		q.consumer = c
	}
	q.settled()
	return c
}

// refuse ends the consumer and those that come; the mutex is held.
func (q *queue[T]) refuse(why error) {
	q.refused = why
	q.detach(why)
}

// detach ends the consumer, if there is one, and takes back what it holds; the mutex is held.
func (q *queue[T]) detach(why error) {
	c := q.consumer
	if c == nil {
		return
	}
	q.ledger.takeBack(0)
	q.consumer, c.end = nil, why
	signal(c.wake)
}

// notify wakes a consumer that waits; the mutex is held.
func (q *queue[T]) notify() {
	if q.consumer != nil {
		signal(q.consumer.wake)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Receive implements Consumer.
func (c *consumer[T]) Receive(ctx context.Context) (Delivery[T], error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, err := c.poll()
		if err != nil {
			return nil, err
		}
		if d != nil {
			return d, nil
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
		}
	}
}

// poll takes the next item, if there is one.
func (c *consumer[T]) poll() (*delivery[T], error) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.end != nil {
		return nil, c.end
	}
	e := c.q.ledger.take()
	if e == nil {
		if c.q.closed && c.q.ledger.away.Items == 0 {
			return nil, io.EOF
		}
		return nil, nil //nolint:nilnil // nothing now
	}
	c.q.settled()
	return &delivery[T]{c: c, entry: e, turn: e.turn, item: e.item}, nil
}

// CaughtUp implements Consumer.
func (c *consumer[T]) CaughtUp() bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return c.q.ledger.stats.Queued.Items == 0
}

// Close implements Consumer.
func (c *consumer[T]) Close() error {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.end == nil {
		c.q.detach(ErrClosed)
	}
	return nil
}

// Item implements Delivery.
func (d *delivery[T]) Item() T { return d.item }

// Number implements Delivery.
func (d *delivery[T]) Number() uint64 { return d.entry.number }

// Ack implements Delivery.
func (d *delivery[T]) Ack() error {
	d.c.q.mu.Lock()
	defer d.c.q.mu.Unlock()
	switch {
	case d.acked:
		return nil
	case d.entry.valid(d.turn):
		d.acked = true
		d.c.q.ledger.ack(d.entry)
		d.c.q.settled()
		return nil
	case errors.Is(d.c.end, ErrFenced):
		return ErrFenced
	default:
		return ErrRevoked
	}
}

// Nack implements Delivery.
func (d *delivery[T]) Nack() error {
	d.c.q.mu.Lock()
	defer d.c.q.mu.Unlock()
	if d.entry.valid(d.turn) {
		d.c.q.ledger.takeBack(d.entry.number)
		d.c.q.notify()
	}
	return nil
}

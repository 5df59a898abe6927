package lane

import (
	"slices"
	"time"
)

// entryState is where an entry of a ledger is.
type entryState uint8

const (
	queued   entryState = iota
	inFlight            // handed out; valid only for the delivery of the entry's turn
	acked               // waits for everything before it to be acknowledged
)

// entry is one item of one lane.
type entry[T any] struct {
	number uint64 // of the publication
	item   T      // zeroed once acknowledged, so that it can be freed
	count  Count
	at     Mark
	state  entryState
	turn   uint64 // counts the hand-outs
	stored stored // of a durable lane
}

// stored is what a durable lane knows of an entry besides.
type stored struct {
	size  int64     // bytes in the log
	entry uint64    // the log's entry that it is read from
	since time.Time // when it was published
}

// mark is a position with the number of the publication that carried it.
type mark struct {
	number uint64 // 0: none
	entry  uint64 // of the log, in a durable lane
	Mark
}

// passed is all that left a ledger at its front: the contiguous acknowledged part.
type passed struct {
	number uint64 // of the last one; 0: none
	count  Count
	size   int64
}

// ledger is the state of one lane, without locks and without waiting: the unacknowledged suffix of what was published into it.
//
// Invariant: entries are ordered by number; entries[0] is not acknowledged; entries before next are in flight or acknowledged, those
// from next on are queued or acknowledged. So the unacknowledged suffix always comes back in order (W3), and the frontier, which
// moves only as entries leave at the front, has no gap (W5).
type ledger[T any] struct {
	entries  []*entry[T]
	next     int
	frontier mark
	passed   passed
	stats    Stats
	away     Count // what is queued and has no entry yet: a durable lane reads it when it is wanted
	size     int64 // bytes in the log of what is not acknowledged
}

func (l *ledger[T]) publish(e *entry[T]) {
	l.announce(e.count, e.stored.size)
	l.enter(e)
}

// announce counts something that was published and that enters later.
func (l *ledger[T]) announce(c Count, size int64) {
	l.stats.Published = l.stats.Published.plus(c)
	l.stats.Queued = l.stats.Queued.plus(c)
	l.away = l.away.plus(c)
	l.size += size
}

// enter appends an entry that was announced.
func (l *ledger[T]) enter(e *entry[T]) {
	l.entries = append(l.entries, e)
	l.away = l.away.minus(e.count)
}

// skip counts as acknowledged what was announced and never entered.
func (l *ledger[T]) skip(c Count, size int64) {
	l.stats.Queued = l.stats.Queued.minus(c)
	l.stats.Acked = l.stats.Acked.plus(c)
	l.away = l.away.minus(c)
	l.size -= size
}

// drop forgets everything that is not acknowledged, as if it had never been published. Nothing is in flight.
func (l *ledger[T]) drop() {
	l.entries, l.next, l.away, l.size = nil, 0, Count{}, 0
	l.stats = Stats{Published: l.stats.Acked, Acked: l.stats.Acked}
}

// take hands out the next queued entry, or nil.
func (l *ledger[T]) take() *entry[T] {
	for l.next < len(l.entries) && l.entries[l.next].state == acked {
		l.next++
	}
	if l.next == len(l.entries) {
		return nil
	}
	e := l.entries[l.next]
	l.next++
	e.state = inFlight
	e.turn++
	l.stats.Queued = l.stats.Queued.minus(e.count)
	l.stats.InFlight = l.stats.InFlight.plus(e.count)
	return e
}

// valid reports whether the hand-out of this turn still holds the entry.
func (e *entry[T]) valid(turn uint64) bool { return e.state == inFlight && e.turn == turn }

// ack acknowledges an entry that is in flight.
func (l *ledger[T]) ack(e *entry[T]) {
	var none T
	e.state, e.item = acked, none
	l.stats.InFlight = l.stats.InFlight.minus(e.count)
	l.stats.Acked = l.stats.Acked.plus(e.count)
	l.size -= e.stored.size
	l.pass()
}

// pass lets what is acknowledged leave at the front.
func (l *ledger[T]) pass() {
	for len(l.entries) > 0 && l.entries[0].state == acked {
		first := l.entries[0]
		if !first.at.Position.Zero() {
			l.frontier = mark{first.number, first.stored.entry, first.at}
		}
		l.passed = passed{first.number, l.passed.count.plus(first.count), l.passed.size + first.stored.size}
		l.entries[0] = nil
		l.entries = l.entries[1:]
		l.next = max(0, l.next-1)
	}
}

// cover acknowledges every entry up to this number, in flight or not.
func (l *ledger[T]) cover(number uint64) {
	l.takeBack(0)
	var none T
	for _, e := range l.entries {
		if e.number > number {
			break
		}
		if e.state == queued {
			e.state, e.item = acked, none
			l.stats.Queued = l.stats.Queued.minus(e.count)
			l.stats.Acked = l.stats.Acked.plus(e.count)
			l.size -= e.stored.size
		}
	}
	l.pass()
}

// takeBack returns to the queue the entry of this number and everything later that is in flight; number 0 means all.
func (l *ledger[T]) takeBack(number uint64) {
	from, _ := slices.BinarySearchFunc(l.entries, number, func(e *entry[T], n uint64) int {
		switch {
		case e.number < n:
			return -1
		case e.number > n:
			return 1
		}
		return 0
	})
	if from >= l.next {
		return
	}
	for _, e := range l.entries[from:l.next] {
		if e.state != inFlight {
			continue
		}
		e.state = queued
		l.stats.InFlight = l.stats.InFlight.minus(e.count)
		l.stats.Queued = l.stats.Queued.plus(e.count)
	}
	l.next = from
}

// idle reports whether nothing is queued and nothing in flight.
func (l *ledger[T]) idle() bool { return len(l.entries) == 0 && l.away.Items == 0 }

// lowest is the minimum of frontiers; without number while one of them has none, or there are none.
func lowest(fronts []mark) mark {
	var low mark
	for _, f := range fronts {
		if f.number == 0 {
			return mark{}
		}
		if low.number == 0 || f.number < low.number {
			low = f
		}
	}
	return low
}

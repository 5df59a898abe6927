package lane

import (
	"slices"
)

// asked is the queue of requests.
type asked struct {
	*queue[Request]

	number uint64
}

// ask queues a request, or merges it into one that is queued; the mutex is held.
func (a *asked) ask(r Request) error {
	if a.closed {
		return ErrClosed
	}
	for _, e := range a.ledger.entries {
		if e.state == queued && e.item.Sink == r.Sink {
			e.item.Datasets = union(e.item.Datasets, r.Datasets)
			return nil
		}
	}
	a.number++
	r.Datasets = union(r.Datasets, nil)
	a.ledger.publish(&entry[Request]{number: a.number, item: r, count: Count{Items: 1}})
	a.notify()
	return nil
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// close ends the queue once it is drained; the mutex is held.
func (q *queue[T]) close() {
	q.closed = true
	q.notify()
}

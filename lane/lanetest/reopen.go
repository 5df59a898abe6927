package lanetest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/leatdata/leat/lane"
)

// Save lets time pass, so that what was acknowledged is saved.
func (m *machine) Save(t *rapid.T) {
	m.settle(t)
	time.Sleep(time.Second)
	m.settle(t)
	for _, l := range m.lanes {
		l.saved = l.low()
	}
}

// low is the newest item up to which everything is acknowledged.
func (l *modelLane) low() int {
	id := 0
	for _, e := range l.log {
		if e.state != "acked" {
			break
		}
		id = e.id
	}
	return id
}

// Reopen ends the stream and opens it again: what was published behind the newest position is gone, and nothing that was acknowledged
// without a gap comes again, but for what was acknowledged shortly before a crash.
func (m *machine) Reopen(t *rapid.T, crash bool) {
	m.settle(t)
	for _, p := range m.waiting {
		p.call.cancel()
	}
	m.settle(t)
	for _, l := range m.lanes {
		if c := l.consumer; c != nil && c.pending != nil {
			c.pending.cancel()
			must(t, m.returns(c.pending), "%s: a cancelled receive waits", l.sink)
		}
		l.consumer = nil
	}
	d := m.kit.Reopen(t, m.real, m.spec, crash)
	m.real, m.closed, m.waiting, m.deliveries = d, false, nil, nil
	m.checkStored(t, d)
	for _, l := range m.lanes {
		m.reopenLane(t, d, l, crash)
	}
	m.watermark = m.lowest()
	m.idle = !slices.ContainsFunc(m.lanes, func(l *modelLane) bool { return l.firstQueued() != nil })
	select {
	case <-d.Moved():
	default:
	}
}

func (m *machine) checkStored(t *rapid.T, d lane.Durable) {
	t.Helper()
	at, ok := d.Stored()
	want := m.last
	must(t, ok == (want != nil), "stored: %v, want %v", ok, want)
	if want != nil {
		must(t, at.Position.Equal(want.position) && at.Ledger == ledgerAt(want.position.String()), "stored %v, want %s", at, want.position)
	}
}

func (m *machine) reopenLane(t *rapid.T, d lane.Durable, l *modelLane, crash bool) {
	found, err := d.Found(l.sink)
	must(t, err == nil && found == lane.Kept, "%s: found %v, %v", l.sink, found, err)
	h, err := d.Holds(l.sink)
	must(t, err == nil && !h.Detached, "%s: %+v, %v", l.sink, h, err)
	cut := 0 // everything behind this item comes again from the source
	if m.last != nil {
		cut = m.last.id
	}
	low, kept := l.low(), 0 // kept: acknowledged up to this item, says the stream
	for it, n := range m.numbers {
		if n <= h.Acked {
			kept = max(kept, it.id)
		}
	}
	must(t, kept <= max(low, l.gone), "%s: acknowledged up to item %d, but the stream says %d", l.sink, low, kept)
	if low > 0 && low <= cut {
		least := l.saved
		if !crash {
			least = low
		}
		must(t, kept >= min(least, cut), "%s: %d was acknowledged and saved, the stream says %d", l.sink, least, kept)
	}
	covered := kept
	if crash && rapid.Bool().Draw(t, "covered") { // the sink knows better
		covered = m.cover(t, d, l, kept, cut)
	}
	var log []*modelEntry
	for _, e := range l.log {
		switch {
		case e.id <= kept:
			if !e.position.Zero() {
				l.base = modelMark{e.id, e.position.String()}
			}
			l.gone = e.id
		case e.id <= covered:
			log = append(log, &modelEntry{modelItem: e.modelItem, state: "acked"})
		case e.id <= cut:
			log = append(log, &modelEntry{modelItem: e.modelItem, state: "queued"})
		}
	}
	l.log, l.saved = log, 0
}

// cover tells the stream what the sink has: any item that was delivered to it.
func (m *machine) cover(t *rapid.T, d lane.Durable, l *modelLane, kept, cut int) int {
	low := min(l.low(), cut)
	if low <= kept {
		return kept
	}
	var between []*modelItem
	for _, e := range l.log {
		if e.id > kept && e.id <= low {
			between = append(between, e.modelItem)
		}
	}
	if len(between) == 0 {
		return kept
	}
	i := rapid.IntRange(0, len(between)-1).Draw(t, "sink has")
	ok, err := d.Covered(l.sink, m.numbers[between[i]])
	must(t, ok && err == nil, "%s has item %d: %v, %v", l.sink, between[i].id, ok, err)
	if i > 0 {
		ok, err := d.Covered(l.sink, m.numbers[between[0]])
		must(t, !ok && err == nil, "%s has less than it acknowledged, item %d: %v, %v", l.sink, between[0].id, ok, err)
	}
	return between[i].id
}

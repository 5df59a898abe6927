package lanetest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/lane"
	"github.com/leatdata/leat/record"
)

// The model: each lane is the log of all that was ever published into it, and every question is answered by walking the log.
type (
	modelItem struct {
		id       int
		order    int // in which it entered
		item     lane.Item
		digest   [sha256.Size]byte
		position record.Position
		count    lane.Count
	}
	modelEntry struct {
		*modelItem
		state  string // queued, flying, acked
		holder *modelDelivery
	}
	modelDelivery struct {
		real     lane.Delivery[lane.Item]
		entry    *modelEntry
		lane     *modelLane
		consumer *modelConsumer
		acked    bool
	}
	modelConsumer struct {
		real    lane.Consumer[lane.Item]
		end     error
		pending *call[lane.Delivery[lane.Item]]
	}
	modelLane struct {
		sink     string
		tracked  bool
		log      []*modelEntry
		consumer *modelConsumer
		base     modelMark // the frontier before the log
		gone     int       // the newest item that was acknowledged before the log
		saved    int       // what is acknowledged up to this item is known to be durable
	}
	modelMark struct {
		id       int
		position string
	}
	modelPublication struct {
		*modelItem
		lanes []*modelLane
		call  *call[struct{}]
	}
)

// call is a call that may block, on a goroutine of its own.
type call[T any] struct {
	cancel context.CancelFunc
	result T
	err    error
	done   chan struct{}
}

func start[T any](f func(context.Context) (T, error)) *call[T] {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // whoever has the call may end it
	c := &call[T]{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.result, c.err = f(ctx)
	}()
	return c
}

// returned reports whether the call is over; all goroutines have come to rest before.
func (c *call[T]) returned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

type machine struct {
	kit        Kit
	real       lane.Stream
	spec       lane.Spec
	lanes      []*modelLane
	waiting    []*modelPublication
	deliveries []*modelDelivery
	published  int
	closed     bool
	watermark  string
	idle       bool
	entered    int
	numbers    map[*modelItem]uint64 // that items were delivered with
	last       *modelItem            // the newest one with a position that entered
}

func (l *modelLane) sum(state string) (c lane.Count) {
	for _, e := range l.log {
		if state == "" || e.state == state {
			c.Items += e.count.Items
			c.Rows += e.count.Rows
			c.Changes += e.count.Changes
			c.Bytes += e.count.Bytes
		}
	}
	return c
}

// frontier is the index in the log behind which everything is acknowledged: position and the item's id.
func (l *modelLane) frontier() (id int, position string) {
	id, position = l.base.id, l.base.position
	for _, e := range l.log {
		if e.state != "acked" {
			break
		}
		if !e.position.Zero() {
			id, position = e.id, e.position.String()
		}
	}
	return id, position
}

func (l *modelLane) firstQueued() *modelEntry {
	i := slices.IndexFunc(l.log, func(e *modelEntry) bool { return e.state == "queued" })
	if i < 0 {
		return nil
	}
	return l.log[i]
}

func (l *modelLane) takeBack(from *modelEntry) {
	for _, e := range l.log[slices.Index(l.log, from):] {
		if e.state == "flying" {
			e.state, e.holder = "queued", nil
		}
	}
}

func (m *machine) lowest() string {
	low, position, tracked := 0, "", 0
	for _, l := range m.lanes {
		if !l.tracked {
			continue
		}
		tracked++
		id, p := l.frontier()
		if id == 0 {
			return ""
		}
		if low == 0 || id < low {
			low, position = id, p
		}
	}
	return position
}

// hasRoom knows the bounds of a stream in memory; a durable one has none here.
func (m *machine) hasRoom(l *modelLane, c lane.Count) bool {
	if m.kit.Durable {
		return true
	}
	q := l.sum("queued")
	return q.Items == 0 || (q.Items+1 <= int64(m.spec.Items) && q.Bytes+c.Bytes <= m.spec.Bytes)
}

// serve lets the first publication enter that may, and reports whether there was one.
func (m *machine) serve() *modelPublication {
	for i, p := range m.waiting {
		overtakes := slices.ContainsFunc(m.waiting[:i], func(q *modelPublication) bool {
			return slices.ContainsFunc(q.lanes, func(l *modelLane) bool { return slices.Contains(p.lanes, l) })
		})
		if overtakes || slices.ContainsFunc(p.lanes, func(l *modelLane) bool { return !m.hasRoom(l, p.count) }) {
			continue
		}
		for _, l := range p.lanes {
			l.log = append(l.log, &modelEntry{modelItem: p.modelItem, state: "queued"})
		}
		m.entered++
		p.order = m.entered
		if !p.position.Zero() {
			m.last = p.modelItem
		}
		m.waiting = slices.Delete(m.waiting, i, i+1)
		return p
	}
	return nil
}

func must(t *rapid.T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// settle brings the model to rest, checking every call that must have returned by now.
func (m *machine) settle(t *rapid.T) {
	m.kit.rest()
	for progress := true; progress; {
		progress = false
		if m.closed {
			for _, p := range m.waiting {
				must(t, m.returns(p.call) && errors.Is(p.call.err, lane.ErrClosed), "publication %d after close: %v", p.id, p.call.err)
			}
			m.waiting = nil
		}
		if p := m.serve(); p != nil {
			must(t, m.returns(p.call) && p.call.err == nil, "publication %d: room, but error %v", p.id, p.call.err)
			progress = true
		}
		for _, l := range m.lanes {
			if l.consumer != nil && m.settleReceive(t, l, l.consumer) {
				progress = true
			}
		}
	}
	for _, p := range m.waiting {
		must(t, !p.call.returned(), "publication %d entered without room: %v", p.id, p.call.err)
	}
	for _, l := range m.lanes {
		if c := l.consumer; c != nil && c.pending != nil {
			must(t, !c.pending.returned(), "%s: received with an empty queue: %v", l.sink, c.pending.err)
		}
	}
}

// returns reports whether a call that must return does.
func (m *machine) returns(c interface{ returned() bool }) bool { return m.kit.eventually(c.returned) }

// settleReceive checks a receive that is pending, and reports whether it took an item.
func (m *machine) settleReceive(t *rapid.T, l *modelLane, c *modelConsumer) bool {
	call, next := c.pending, l.firstQueued()
	switch {
	case call == nil:
		return false
	case next == nil && m.closed:
		must(t, m.returns(call) && errors.Is(call.err, io.EOF), "%s: drained, but error %v", l.sink, call.err)
		c.pending = nil
		return false
	case next == nil:
		return false
	}
	must(t, m.returns(call) && call.err == nil, "%s: item %d is queued, but was not received: %v", l.sink, next.id, call.err)
	got := call.result
	if !m.kit.Durable {
		must(t, got.Item() == next.item, "%s: received %v, want item %d", l.sink, got.Item(), next.id)
	}
	must(t, digest(got.Item()) == next.digest, "%s: not item %d, or it has changed: %v", l.sink, next.id, got.Item())
	m.number(t, next.modelItem, got.Number())
	d := &modelDelivery{real: got, entry: next, lane: l, consumer: c}
	next.state, next.holder, c.pending = "flying", d, nil
	m.deliveries = append(m.deliveries, d)
	return true
}

// number checks that an item keeps its number, and that numbers grow in the order of publication.
func (m *machine) number(t *rapid.T, it *modelItem, number uint64) {
	if known, ok := m.numbers[it]; ok {
		must(t, known == number, "item %d had number %d, and comes again as %d", it.id, known, number)
	}
	m.numbers[it] = number
	for other, n := range m.numbers {
		must(t, (other.order < it.order) == (n < number) && (other == it) == (n == number),
			"item %d has number %d, item %d has %d", it.id, number, other.id, n)
	}
}

func (m *machine) check(t *rapid.T) {
	m.settle(t)
	idle := true
	for _, l := range m.lanes {
		got, err := m.real.Stats(l.sink)
		must(t, err == nil, "stats of %s: %v", l.sink, err)
		want := lane.Stats{Published: l.sum(""), Acked: l.sum("acked"), InFlight: l.sum("flying"), Queued: l.sum("queued")}
		must(t, got == want, "stats of %s (-want +got)\n%s", l.sink, cmp.Diff(want, got))
		idle = idle && want.Queued.Items == 0 && want.InFlight.Items == 0
		if c := l.consumer; c != nil {
			must(t, c.real.CaughtUp() == (want.Queued.Items == 0), "%s: caught up: %v", l.sink, c.real.CaughtUp())
		}
	}
	must(t, m.real.Idle() == idle, "idle: %v, want %v", m.real.Idle(), idle)
	at, ok := m.real.Watermark()
	p := at.Position
	want := m.lowest()
	must(t, ok == (want != ""), "watermark %s, want %q", p, want)
	must(t, !ok || p.String() == want, "watermark %s, want %s", p, want)
	must(t, at.Ledger == ledgerAt(want), "ledger %q at %q", at.Ledger, want)
	if want != m.watermark || (idle && !m.idle) {
		select {
		case <-m.real.Moved():
		default:
			t.Fatalf("no word of watermark %s, idle %v", want, idle)
		}
	}
	m.watermark, m.idle = want, idle
}

// ledgerAt is the ledger that rides on the item of a position.
func ledgerAt(position string) string {
	if position == "" {
		return ""
	}
	return `{"at":` + position + "}"
}

func batchOf(rows, id int) *record.Batch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	for i := range rows {
		b.Append(int64(id*1000 + i))
	}
	numbers := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	return &record.Batch{Rows: array.NewRecordBatch(numbers, []arrow.Array{b.NewArray()}, int64(rows))}
}

func digest(it lane.Item) [sha256.Size]byte {
	b, ok := it.(lane.Batch)
	if !ok {
		return sha256.Sum256(fmt.Append(nil, it))
	}
	text := fmt.Append(nil, b.Position, b.Changes, b.Ops, b.Ledger)
	for i := range b.NumRows() {
		text = append(text, b.RowJSON(i)...)
	}
	return sha256.Sum256(text)
}

func (m *machine) publish(t *rapid.T, lanes []*modelLane, b *record.Batch) {
	p := &modelPublication{lanes: lanes, modelItem: &modelItem{id: m.published, position: b.Position}}
	p.item = lane.Batch{Batch: b, Ledger: ledgerAt(positionText(b))}
	p.count = lane.Count{Items: 1, Rows: int64(b.NumRows()), Changes: int64(b.Changes), Bytes: b.Bytes()}
	p.digest = digest(p.item)
	var to []string
	if len(lanes) < len(m.lanes) || rapid.Bool().Draw(t, "by name") {
		for _, l := range lanes {
			to = append(to, l.sink)
		}
	}
	p.call = start(func(ctx context.Context) (struct{}, error) { return struct{}{}, m.real.Publish(ctx, p.item, to...) })
	m.waiting = append(m.waiting, p)
}

func positionText(b *record.Batch) string { return string(b.Position.Data) }

func (m *machine) nextID() int {
	m.published++
	return m.published
}

// Publish is a batch for all lanes, with or without a position, with or without rows.
func (m *machine) Publish(t *rapid.T) {
	id := m.nextID()
	b := batchOf(rapid.IntRange(0, 40).Draw(t, "rows"), id)
	b.Changes = rapid.IntRange(0, 50).Draw(t, "changes")
	if rapid.Bool().Draw(t, "positioned") {
		b.Position = record.Position{Shape: 1, Data: json.RawMessage(strconv.Itoa(id))}
	}
	m.publish(t, m.lanes, b)
}

// PublishTo is a chunk of a snapshot for some lanes.
func (m *machine) PublishTo(t *rapid.T) {
	name := func(l *modelLane) string { return l.sink }
	lanes := rapid.SliceOfNDistinct(rapid.SampledFrom(m.lanes), 1, len(m.lanes), name).Draw(t, "lanes")
	id := m.nextID()
	m.publish(t, lanes, batchOf(rapid.IntRange(1, 40).Draw(t, "rows"), id))
}

// CancelPublish ends a publication that waits: it must leave nothing.
func (m *machine) CancelPublish(t *rapid.T) {
	m.settle(t)
	if len(m.waiting) == 0 {
		t.Skip("none waits")
	}
	i := rapid.IntRange(0, len(m.waiting)-1).Draw(t, "publication")
	p := m.waiting[i]
	p.call.cancel()
	must(t, m.returns(p.call) && errors.Is(p.call.err, context.Canceled), "cancelled publication: %v", p.call.err)
	m.waiting = slices.Delete(m.waiting, i, i+1)
}

func (m *machine) drawLane(t *rapid.T) *modelLane { return rapid.SampledFrom(m.lanes).Draw(t, "lane") }

// Receive starts to receive on a lane.
func (m *machine) Receive(t *rapid.T) {
	c := m.drawLane(t).consumer
	if c == nil || c.pending != nil {
		t.Skip("no consumer, or it waits already")
	}
	c.pending = start(c.real.Receive)
}

// CancelReceive ends a receive that waits: it must lose nothing.
func (m *machine) CancelReceive(t *rapid.T) {
	m.settle(t)
	l := m.drawLane(t)
	if l.consumer == nil || l.consumer.pending == nil {
		t.Skip("nobody waits")
	}
	call := l.consumer.pending
	call.cancel()
	must(t, m.returns(call) && errors.Is(call.err, context.Canceled), "cancelled receive: %v", call.err)
	l.consumer.pending = nil
}

// Ack acknowledges any delivery there ever was, also a second time, also a stale one.
func (m *machine) Ack(t *rapid.T) {
	d := m.drawDelivery(t)
	var want error
	switch {
	case d.acked:
	case d.entry.holder == d:
		d.acked, d.entry.state, d.entry.holder = true, "acked", nil
	case errors.Is(d.consumer.end, lane.ErrFenced):
		want = lane.ErrFenced
	default:
		want = lane.ErrRevoked
	}
	err := d.real.Ack()
	must(t, errors.Is(err, want), "ack of item %d: %v, want %v", d.entry.id, err, want)
}

// Nack gives back any delivery there ever was.
func (m *machine) Nack(t *rapid.T) {
	d := m.drawDelivery(t)
	if d.entry.holder == d {
		d.lane.takeBack(d.entry)
	}
	must(t, d.real.Nack() == nil, "nack of item %d", d.entry.id)
}

func (m *machine) drawDelivery(t *rapid.T) *modelDelivery {
	m.settle(t)
	if len(m.deliveries) == 0 {
		t.Skip("no deliveries")
	}
	// Mostly one of the last, so that not all of them are stale.
	back := rapid.IntRange(1, len(m.deliveries)).Draw(t, "delivery")
	return m.deliveries[len(m.deliveries)-back]
}

// Attach makes a new consumer, whether there is one or not.
func (m *machine) Attach(t *rapid.T) {
	m.settle(t)
	m.attach(t, m.drawLane(t))
}

func (m *machine) attach(t *rapid.T, l *modelLane) {
	fresh, err := m.real.Lane(l.sink)
	must(t, err == nil, "attaching %s: %v", l.sink, err)
	m.detach(t, l, lane.ErrFenced)
	l.consumer = &modelConsumer{real: fresh}
}

// CloseConsumer detaches a consumer.
func (m *machine) CloseConsumer(t *rapid.T) {
	m.settle(t)
	l := m.drawLane(t)
	if l.consumer == nil {
		t.Skip("no consumer")
	}
	must(t, l.consumer.real.Close() == nil, "closing the consumer of %s", l.sink)
	m.detach(t, l, lane.ErrClosed)
}

func (m *machine) detach(t *rapid.T, l *modelLane, why error) {
	c := l.consumer
	if c == nil {
		return
	}
	c.end, l.consumer = why, nil
	if len(l.log) > 0 {
		l.takeBack(l.log[0])
	}
	if c.pending == nil {
		c.pending = start(c.real.Receive)
	}
	must(t, m.returns(c.pending) && errors.Is(c.pending.err, why), "receive on a detached consumer: %v, want %v", c.pending.err, why)
}

// Close ends publication; seldom, since little happens afterwards.
func (m *machine) Close(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "dice") > 0 {
		t.Skip("not now")
	}
	m.settle(t)
	must(t, m.real.Close() == nil, "closing")
	m.closed = true
}

// Model draws random commands and compares the stream with a model after each.
//
// clauses W1, W2, W3, W4, W5, W6, W7, W8, W9, W10, W11, W12, W16; of a durable stream W14, too.
func Model(t *testing.T, k Kit) {
	t.Helper()
	k.run(t, func(t *rapid.T) {
		m := &machine{kit: k, idle: true, numbers: map[*modelItem]uint64{}, spec: lane.Spec{Pipeline: "p", Run: "r", Options: lane.Options{
			Items: rapid.IntRange(1, 4).Draw(t, "items"),
			Bytes: rapid.Int64Range(1, 2000).Draw(t, "bytes"),
		}}}
		for _, s := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "sinks")] {
			m.spec.Sinks = append(m.spec.Sinks, s)
			l := &modelLane{sink: s, tracked: s != "b" || rapid.Bool().Draw(t, "b tracked")}
			if !l.tracked {
				m.spec.Untracked = append(m.spec.Untracked, s)
			}
			m.lanes = append(m.lanes, l)
		}
		var finish func()
		m.real, finish = k.Open(t, m.spec)
		defer func() { m.stop(); finish() }()
		for _, l := range m.lanes {
			if rapid.IntRange(0, 3).Draw(t, "late") > 0 {
				m.attach(t, l)
			}
		}
		actions := map[string]func(*rapid.T){
			"":              m.check,
			"Publish":       m.Publish,
			"PublishMore":   m.Publish, // as often as all else needs something to work on
			"PublishTo":     m.PublishTo,
			"CancelPublish": m.CancelPublish,
			"Receive":       m.Receive,
			"ReceiveMore":   m.Receive,
			"CancelReceive": m.CancelReceive,
			"Ack":           m.Ack,
			"AckMore":       m.Ack,
			"Nack":          m.Nack,
			"Attach":        m.Attach,
			"CloseConsumer": m.CloseConsumer,
			"Close":         m.Close,
		}
		if k.Reopen != nil {
			if !k.Real { // outside of a bubble nobody knows what a crash leaves
				actions["Crash"] = func(t *rapid.T) { m.Reopen(t, true) }
			}
			actions["Release"] = func(t *rapid.T) { m.Reopen(t, false) }
			actions["Save"] = m.Save
		}
		t.Repeat(actions)
		m.drain(t)
	})
}

// drain acknowledges everything there is: in the end published = acknowledged, on every lane, and the stream is idle.
func (m *machine) drain(t *rapid.T) {
	m.settle(t)
	must(t, m.real.Close() == nil, "closing")
	m.closed = true
	m.settle(t)
	for _, l := range m.lanes {
		m.attach(t, l)
		for l.firstQueued() != nil {
			l.consumer.pending = start(l.consumer.real.Receive)
			m.settle(t)
			d := m.deliveries[len(m.deliveries)-1]
			must(t, d.real.Ack() == nil, "last ack")
			d.acked, d.entry.state, d.entry.holder = true, "acked", nil
		}
	}
	m.check(t)
	must(t, m.real.Idle(), "everything is acknowledged, but not idle")
}

// stop ends all goroutines, also after a failure.
func (m *machine) stop() {
	for _, p := range m.waiting {
		p.call.cancel()
	}
	for _, l := range m.lanes {
		if l.consumer != nil && l.consumer.pending != nil {
			l.consumer.pending.cancel()
		}
	}
	_ = m.real.Close()
	m.kit.rest()
}

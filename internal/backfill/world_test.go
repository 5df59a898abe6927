package backfill

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// row is a row of the simulated table; big is a value that updates may leave unsent.
type row struct {
	v, big int64
}

// change is one change of a transaction.
type change struct {
	op       record.Op
	key, was int64 // was: the key before, of an update
	before   row
	after    row
	unsent   bool // big did not change and is not sent
	truncate bool
}

// txn is a transaction in the order of the log; its place is its index plus one.
type txn struct {
	xid     int
	visible bool
	changes []change
}

// world is a database whose transactions become visible in another order than they are logged, as far as locks allow.
type world struct {
	r     *rand.Rand
	log   []*txn
	xid   int
	state map[int64]row // all of the log applied
	last  map[int64]int // key -> index of the last transaction that touched it
	next  int64

	snapshots  []snapshot
	byLog      bool // mutation: inclusion is judged by places in the log
	forgetful  bool // mutation: snapshots are forgotten at once
	blind      bool // mutation: what was held is not judged
	publishing bool // while blind
	rash       bool // mutation: everything is taken to be visible
}

type snapshot struct {
	sees map[int]bool // xids
	log  int          // its length
}

func newWorld(r *rand.Rand) *world {
	return &world{r: r, state: map[int64]row{}, last: map[int64]int{}, next: 1}
}

// free reports whether nobody holds a lock on the key.
func (w *world) free(key int64) bool {
	i, ok := w.last[key]
	return !ok || w.log[i].visible
}

// commit logs a random transaction. It becomes visible later.
func (w *world) commit() {
	t := &txn{xid: w.xid}
	w.xid++
	state := maps.Clone(w.state)
	touched := map[int64]bool{}
	usable := func(key int64) bool { return w.free(key) || touched[key] }
	for range 1 + w.r.IntN(4) {
		c := change{op: record.Op(0)}
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(state)), func(k int64) bool { return !usable(k) })
		pick := func() int64 { return keys[w.r.IntN(len(keys))] }
		fresh := func() (int64, bool) {
			k := w.r.Int64N(40)
			_, taken := state[k]
			return k, !taken && usable(k)
		}
		w.next++
		switch n := w.r.IntN(10); {
		case n < 4 || len(keys) == 0:
			k, ok := fresh()
			if !ok {
				continue
			}
			c = change{op: record.Insert, key: k, was: k, after: row{w.next, w.next}}
		case n < 7:
			k := pick()
			c = change{op: record.Update, key: k, was: k, before: state[k], after: row{w.next, state[k].big}, unsent: true}
			if w.r.IntN(3) == 0 {
				c.after.big, c.unsent = w.next, false
			}
		case n < 9:
			k := pick()
			to, ok := fresh()
			if !ok {
				continue
			}
			c = change{op: record.Update, key: to, was: k, before: state[k], after: row{w.next, state[k].big}, unsent: w.r.IntN(2) == 0}
			delete(state, k)
		default:
			k := pick()
			c = change{op: record.Delete, key: k, was: k, before: state[k]}
		}
		touched[c.key], touched[c.was] = true, true
		if c.op == record.Delete {
			delete(state, c.key)
		} else {
			state[c.key] = c.after
		}
		t.changes = append(t.changes, c)
	}
	if len(t.changes) == 0 {
		return
	}
	w.state = state
	for k := range touched {
		w.last[k] = len(w.log)
	}
	w.log = append(w.log, t)
}

// truncate empties the table; it waits for everybody and is visible at once.
func (w *world) truncate() {
	w.settle()
	w.log = append(w.log, &txn{xid: w.xid, visible: true, changes: []change{{truncate: true}}})
	w.xid++
	w.state = map[int64]row{}
}

func (w *world) settle() {
	for _, t := range w.log {
		t.visible = true
	}
}

// show makes one transaction visible.
func (w *world) show() {
	var hidden []*txn
	for _, t := range w.log {
		if !t.visible {
			hidden = append(hidden, t)
		}
	}
	if len(hidden) > 0 {
		hidden[w.r.IntN(len(hidden))].visible = true
	}
}

// snap takes a snapshot.
func (w *world) snap() record.Position {
	s := snapshot{sees: map[int]bool{}, log: len(w.log)}
	for _, t := range w.log {
		if t.visible {
			s.sees[t.xid] = true
		}
	}
	w.snapshots = append(w.snapshots, s)
	return number(len(w.snapshots))
}

// rows is what a snapshot sees.
func (w *world) rows(at record.Position) map[int64]row {
	s := w.snapshots[value(at)-1]
	state := map[int64]row{}
	for _, t := range w.log {
		if !s.sees[t.xid] {
			continue
		}
		for _, c := range t.changes {
			c.apply(state)
		}
	}
	return state
}

func (c change) apply(state map[int64]row) {
	switch {
	case c.truncate:
		clear(state)
	case c.op == record.Delete:
		delete(state, c.key)
	default:
		delete(state, c.was)
		state[c.key] = c.after
	}
}

func number(n int) record.Position {
	return record.Position{Shape: 1, Data: json.RawMessage(fmt.Sprint(n))}
}

func value(p record.Position) int {
	var n int
	if !p.Zero() {
		if err := json.Unmarshal(p.Data, &n); err != nil {
			panic(err)
		}
	}
	return n
}

func compare(a, b record.Position) (int, bool) { return value(a) - value(b), true }

// Now implements connector.Merger. Somebody becomes visible meanwhile.
func (w *world) Now(context.Context) (record.Position, error) {
	w.show()
	if w.rash {
		s := snapshot{sees: map[int]bool{}, log: len(w.log)}
		for _, t := range w.log {
			s.sees[t.xid] = true
		}
		w.snapshots = append(w.snapshots, s)
		return number(len(w.snapshots)), nil
	}
	return w.snap(), nil
}

// Includes implements connector.Merger: the position of a transaction is its place in the log.
func (w *world) Includes(at, place record.Position) bool {
	s := w.snapshots[value(at)-1]
	if w.publishing {
		return false
	}
	if w.byLog {
		return value(place) <= s.log
	}
	return s.sees[w.log[value(place)-1].xid]
}

// Outlived implements connector.Merger.
func (w *world) Outlived(at, stream record.Position) bool {
	return w.forgetful || value(stream) >= w.snapshots[value(at)-1].log
}

// Locate implements connector.Merger.
func (*world) Locate(_ context.Context, _ *record.Schema, rows arrow.RecordBatch, bounds []json.RawMessage) ([]int, error) {
	at := make([]int, rows.NumRows())
	for i := range at {
		key := rows.Column(0).(*array.Int64)
		for _, b := range bounds {
			if key.IsValid(i) && key.Value(i) > bound(b) {
				at[i]++
			}
		}
	}
	return at, nil
}

func bound(b json.RawMessage) int64 {
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		panic(err)
	}
	return n
}

// KeyOf implements connector.Merger.
func (*world) KeyOf(_ *record.Schema, rows arrow.RecordBatch, i int) json.RawMessage {
	return json.RawMessage(fmt.Sprint(rows.Column(0).(*array.Int64).Value(i)))
}

// table is the schema of the simulated table.
func table(dataset string) *record.Schema {
	field := func(name string) arrow.Field {
		return arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	}
	return &record.Schema{Dataset: dataset, Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{field("id"), field("v"), field("big")}, nil)}
}

// cells are the values of one image: id, v, big; nil: null.
type cells [3]*int64

func image(key int64, r row) cells { return cells{&key, &r.v, &r.big} }

// batch makes one batch of transactions of the log, the first of which is at place from; it has no position. A truncation must be the
// first change.
func batch(s *record.Schema, from int, txns []*txn) *record.Batch {
	b := &record.Batch{Schema: s}
	var rows, old []cells
	unsent := []uint64{0}
	for i, t := range txns {
		run := record.Txn{Position: number(from + i)}
		for _, c := range t.changes {
			if c.truncate {
				b.Truncate = true
				continue
			}
			run.Rows++
			n := len(rows)
			now, was := image(c.key, c.after), cells{}
			if c.op == record.Delete {
				now = cells{now[0], nil, nil}
			}
			if c.op == record.Update && c.was != c.key {
				was[0] = &c.was
			}
			if c.unsent {
				now[2] = nil
				for len(unsent) <= n/64 {
					unsent = append(unsent, 0)
				}
				unsent[n/64] |= 1 << (n % 64)
			}
			rows, old, b.Ops = append(rows, now), append(old, was), append(b.Ops, c.op)
		}
		b.Txns = append(b.Txns, run)
	}
	for len(unsent) < (len(rows)+63)/64 {
		unsent = append(unsent, 0)
	}
	b.Rows, b.Old, b.Unchanged = columns(s, rows), columns(s, old), map[int][]uint64{2: unsent}
	b.Changes = len(rows)
	return b
}

func columns(s *record.Schema, rows []cells) arrow.RecordBatch {
	build := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	for _, r := range rows {
		for i, v := range r {
			f := build.Field(i).(*array.Int64Builder)
			if v == nil {
				f.AppendNull()
				continue
			}
			f.Append(*v)
		}
	}
	return build.NewRecordBatch()
}

func chunkBatch(s *record.Schema, at record.Position, rows map[int64]row) *record.Batch {
	var all []cells
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		all = append(all, image(k, rows[k]))
	}
	return &record.Batch{Schema: s, Rows: columns(s, all), Chunk: &record.Chunk{Dataset: s.Dataset, Snapshot: at}}
}

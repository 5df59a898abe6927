package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// maxKey is behind the largest key.
const maxKey = 40

// Image is a row of the simulated table; big is a value that updates may leave unsent.
type Image struct {
	V, Big int64
}

// Change is one change of a transaction.
type Change struct {
	Op       record.Op
	Key, Was int64 // Was: the key before, of an update
	Before   Image
	After    Image
	Unsent   bool // big did not change and is not sent
	Truncate bool
}

// Transaction is a transaction in the order of the log; its place is its index plus one.
type Transaction struct {
	XID     int
	Visible bool
	Changes []Change
}

// Database is a table whose transactions become visible in another order than they are logged, as far as locks allow.
type Database struct {
	Rand  *rand.Rand
	Log   []*Transaction
	XID   int             // of the next transaction
	State map[int64]Image // all of the log applied
	last  map[int64]int   // key -> index of the last transaction that touched it
	next  int64

	snapshots []snapshot
	ByLog     bool // mutation: inclusion is judged by places in the log
	Forgetful bool // mutation: snapshots are forgotten at once
	Whole     bool // updates of keys send all values
	Blind     bool // mutation: nothing is included in the snapshot of any chunk, while it is set
	Rash      bool // mutation: everything is taken to be visible
	Eager     bool // mutation: every snapshot is taken to include everything, while it is set
}

type snapshot struct {
	sees map[int]bool // xids
	Log  int          // its length
	now  bool         // it is of no chunk
}

// NewDatabase returns an empty one.
func NewDatabase(r *rand.Rand) *Database {
	return &Database{Rand: r, State: map[int64]Image{}, last: map[int64]int{}, next: 1}
}

// free reports whether nobody holds a lock on the key.
func (d *Database) free(key int64) bool {
	i, ok := d.last[key]
	return !ok || d.Log[i].Visible
}

// Commit logs a random transaction. It becomes visible later.
func (d *Database) Commit() {
	t := &Transaction{XID: d.XID}
	d.XID++
	state := maps.Clone(d.State)
	touched := map[int64]bool{}
	usable := func(key int64) bool { return d.free(key) || touched[key] }
	for range 1 + d.Rand.IntN(4) {
		var c Change
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(state)), func(k int64) bool { return !usable(k) })
		pick := func() int64 { return keys[d.Rand.IntN(len(keys))] }
		fresh := func() (int64, bool) {
			k := d.Rand.Int64N(maxKey)
			_, taken := state[k]
			return k, !taken && usable(k)
		}
		d.next++
		switch n := d.Rand.IntN(10); {
		case n < 4 || len(keys) == 0:
			k, ok := fresh()
			if !ok {
				continue
			}
			c = Change{Op: record.Insert, Key: k, Was: k, After: Image{d.next, d.next}}
		case n < 7:
			k := pick()
			c = Change{Op: record.Update, Key: k, Was: k, Before: state[k], After: Image{d.next, state[k].Big}, Unsent: true}
			if d.Rand.IntN(3) == 0 {
				c.After.Big, c.Unsent = d.next, false
			}
		case n < 9:
			k := pick()
			to, ok := fresh()
			if !ok {
				continue
			}
			c = Change{Op: record.Update, Key: to, Was: k, Before: state[k], After: Image{d.next, state[k].Big}}
			c.Unsent = !d.Whole && d.Rand.IntN(2) == 0
			delete(state, k)
		default:
			k := pick()
			c = Change{Op: record.Delete, Key: k, Was: k, Before: state[k]}
		}
		touched[c.Key], touched[c.Was] = true, true
		if c.Op == record.Delete {
			delete(state, c.Key)
		} else {
			state[c.Key] = c.After
		}
		t.Changes = append(t.Changes, c)
	}
	if len(t.Changes) == 0 {
		return
	}
	d.State = state
	for k := range touched {
		d.last[k] = len(d.Log)
	}
	d.Log = append(d.Log, t)
}

// Truncate empties the table; it waits for everybody and is visible at once.
func (d *Database) Truncate() {
	d.Settle()
	d.Log = append(d.Log, &Transaction{XID: d.XID, Visible: true, Changes: []Change{{Truncate: true}}})
	d.XID++
	d.State = map[int64]Image{}
}

// Settle makes every transaction visible.
func (d *Database) Settle() {
	for _, t := range d.Log {
		t.Visible = true
	}
}

// Show makes one transaction visible.
func (d *Database) Show() {
	var hidden []*Transaction
	for _, t := range d.Log {
		if !t.Visible {
			hidden = append(hidden, t)
		}
	}
	if len(hidden) > 0 {
		hidden[d.Rand.IntN(len(hidden))].Visible = true
	}
}

// Snap takes a snapshot.
func (d *Database) Snap() record.Position {
	s := snapshot{sees: map[int]bool{}, Log: len(d.Log)}
	for _, t := range d.Log {
		if t.Visible {
			s.sees[t.XID] = true
		}
	}
	d.snapshots = append(d.snapshots, s)
	return Place(len(d.snapshots))
}

// Rows is what a snapshot sees.
func (d *Database) Rows(at record.Position) map[int64]Image {
	s := d.snapshots[PlaceOf(at)-1]
	state := map[int64]Image{}
	for _, t := range d.Log {
		if !s.sees[t.XID] {
			continue
		}
		for _, c := range t.Changes {
			c.apply(state)
		}
	}
	return state
}

func (c Change) apply(state map[int64]Image) {
	switch {
	case c.Truncate:
		clear(state)
	case c.Op == record.Delete:
		delete(state, c.Key)
	default:
		delete(state, c.Was)
		state[c.Key] = c.After
	}
}

// Place is the position behind n transactions of the log.
func Place(n int) record.Position {
	return record.Position{Shape: 1, Data: json.RawMessage(strconv.Itoa(n))}
}

// PlaceOf reads what Place returned; 0 of no position.
func PlaceOf(p record.Position) int {
	var n int
	if !p.Zero() {
		if err := json.Unmarshal(p.Data, &n); err != nil {
			panic(err)
		}
	}
	return n
}

// ComparePlaces orders positions.
func ComparePlaces(a, b record.Position) (int, bool) { return PlaceOf(a) - PlaceOf(b), true }

// Now implements connector.Merger. Somebody becomes visible meanwhile.
func (d *Database) Now(context.Context) (record.Position, error) {
	d.Show()
	if d.Rash {
		s := snapshot{sees: map[int]bool{}, Log: len(d.Log)}
		for _, t := range d.Log {
			s.sees[t.XID] = true
		}
		d.snapshots = append(d.snapshots, s)
		return Place(len(d.snapshots)), nil
	}
	at := d.Snap()
	d.snapshots[len(d.snapshots)-1].now = true
	return at, nil
}

// Includes implements connector.Merger: the position of a transaction is its place in the log.
func (d *Database) Includes(at, place record.Position) bool {
	s := d.snapshots[PlaceOf(at)-1]
	if d.Eager || (d.Blind && !s.now) {
		return d.Eager
	}
	if d.ByLog {
		return PlaceOf(place) <= s.Log
	}
	return s.sees[d.Log[PlaceOf(place)-1].XID]
}

// Outlived implements connector.Merger.
func (d *Database) Outlived(at, stream record.Position) bool {
	return d.Forgetful || PlaceOf(stream) >= d.snapshots[PlaceOf(at)-1].Log
}

// Locate implements connector.Merger.
func (*Database) Locate(_ context.Context, _ *record.Schema, rows arrow.RecordBatch, bounds []json.RawMessage) ([]int, error) {
	at := make([]int, rows.NumRows())
	for i := range at {
		for _, b := range bounds {
			if rows.Column(0).IsValid(i) && cell(rows, 0, i) > KeyBound(b) {
				at[i]++
			}
		}
	}
	return at, nil
}

// KeyBound reads an end of a chunk.
func KeyBound(b json.RawMessage) int64 {
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		panic(err)
	}
	return n
}

// KeyOf implements connector.Merger.
func (*Database) KeyOf(_ *record.Schema, rows arrow.RecordBatch, i int) json.RawMessage {
	return json.RawMessage(strconv.FormatInt(cell(rows, 0, i), 10))
}

// Table is the schema of the simulated table.
func Table(dataset string) *record.Schema {
	field := func(name string) arrow.Field {
		return arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	}
	columns := arrow.NewSchema([]arrow.Field{field("id"), field("v"), field("big")}, nil)
	return &record.Schema{Dataset: dataset, Key: []int{0}, Columns: columns}
}

// cell is a value of a row.
func cell(rows arrow.RecordBatch, column, i int) int64 {
	return rows.Column(column).(*array.Int64).Value(i) //nolint:forcetypeassert // by construction
}

// cells are the values of one image: id, v, big; nil: null.
type cells [3]*int64

func image(key int64, r Image) cells { return cells{&key, &r.V, &r.Big} }

// ChangeBatch makes one batch of transactions of the log, the first of which is at place from; it has no position. A truncation must be the
// first change.
func ChangeBatch(s *record.Schema, from int, txns []*Transaction) *record.Batch {
	b := &record.Batch{Schema: s}
	var rows, old []cells
	unsent := []uint64{0}
	for i, t := range txns {
		run := record.Txn{Position: Place(from + i)}
		for _, c := range t.Changes {
			if c.Truncate {
				b.Truncate = true
				continue
			}
			run.Rows++
			n := len(rows)
			now, was := image(c.Key, c.After), cells{}
			if c.Op == record.Delete {
				now = cells{now[0], nil, nil}
			}
			if c.Op == record.Update && c.Was != c.Key {
				was[0] = &c.Was
			}
			if c.Unsent {
				now[2] = nil
				for len(unsent) <= n/64 {
					unsent = append(unsent, 0)
				}
				unsent[n/64] |= 1 << (n % 64)
			}
			rows, old, b.Ops = append(rows, now), append(old, was), append(b.Ops, c.Op)
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
			f := build.Field(i).(*array.Int64Builder) //nolint:forcetypeassert // by construction
			if v == nil {
				f.AppendNull()
				continue
			}
			f.Append(*v)
		}
	}
	return build.NewRecordBatch()
}

// ChunkBatch makes the rows of a chunk.
func ChunkBatch(s *record.Schema, at record.Position, rows map[int64]Image) *record.Batch {
	var all []cells
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		all = append(all, image(k, rows[k]))
	}
	return &record.Batch{Schema: s, Rows: columns(s, all), Chunk: &record.Chunk{Dataset: s.Dataset, Snapshot: at}}
}

// Target is what a lane has. It refuses whatever comes twice, too late, too early or not at all: every change is compared with what the
// log says about it.
type Target struct {
	DB     *Database
	Rows   map[int64]Image
	Refill bool // rows may be written over what is there
	Marked bool // the snapshot is complete
	// Damaged are keys whose rows are not what they should be, with what is to repair them (0: nothing): a row that is missing, that has
	// other values, or that should not be there.
	Damaged map[int64]uint64
	Again   int // rows that were read once more
}

// Clone copies it.
func (t *Target) Clone() *Target {
	c := *t
	c.Rows, c.Damaged = maps.Clone(t.Rows), maps.Clone(t.Damaged)
	return &c
}

// Damage spoils the row of a key in one of three ways; by says what is to repair it.
func (t *Target) Damage(key int64, by uint64) {
	if t.Damaged == nil {
		t.Damaged = map[int64]uint64{}
	}
	t.Damaged[key] = by
	_, there := t.Rows[key]
	switch {
	case there && t.DB.Rand.IntN(2) == 0:
		delete(t.Rows, key)
	default:
		t.Rows[key] = Image{-1, -1}
	}
}

// Refresh takes rows, and deletes of keys without a row, that are read once more: they are exactly what is there, unless that is damaged.
func (t *Target) Refresh(b *record.Batch) error {
	t.Again += b.NumRows()
	for i := range b.NumRows() {
		key := cell(b.Rows, 0, i)
		have, there := t.Rows[key]
		_, damaged := t.Damaged[key]
		delete(t.Damaged, key)
		if b.Op(i) == record.Delete {
			if there && !damaged {
				return fmt.Errorf("key %d has no row, and the lane has %v", key, have)
			}
			delete(t.Rows, key)
			continue
		}
		now := Image{cell(b.Rows, 1, i), cell(b.Rows, 2, i)}
		if (!there || have != now) && !damaged {
			return fmt.Errorf("key %d is read once more as %v, and the lane has %v (%v)", key, now, have, there)
		}
		t.Rows[key] = now
	}
	return nil
}

// Apply takes one batch.
func (t *Target) Apply(b *record.Batch) error {
	if b.Truncate {
		t.Rows, t.Damaged = map[int64]Image{}, nil
	}
	if b.NumRows() == 0 {
		return nil
	}
	col := func(c, i int) int64 { return cell(b.Rows, c, i) }
	if b.Txns == nil && b.Ops != nil {
		return t.again(b) // keys that have no row
	}
	if b.Chunk != nil {
		if b.Chunk.Where != "" || b.Chunk.Keys != nil {
			return t.again(b)
		}
		for i := range b.NumRows() {
			if _, there := t.Rows[col(0, i)]; there && !t.Refill {
				return fmt.Errorf("key %d was there when its chunk came", col(0, i))
			}
			t.Rows[col(0, i)] = Image{col(1, i), col(2, i)}
			delete(t.Damaged, col(0, i))
		}
		return nil
	}
	i := 0
	for _, run := range b.Txns {
		for range run.Rows {
			if err := t.change(b, i, run.Position); err != nil {
				return fmt.Errorf("transaction %s: %w", run.Position, err)
			}
			i++
		}
	}
	return nil
}

// again takes rows that may be read once more, or for the first time.
func (t *Target) again(b *record.Batch) error {
	if t.Refill { // a sink that may have been given more than it knows
		was := t.Damaged
		t.Damaged = map[int64]uint64{}
		for i := range b.NumRows() {
			t.Damaged[cell(b.Rows, 0, i)] = 0
		}
		err := t.Refresh(b)
		t.Damaged = was
		for i := range b.NumRows() {
			delete(t.Damaged, cell(b.Rows, 0, i))
		}
		return err
	}
	if b.Chunk == nil || b.Chunk.Where != "" {
		return t.Refresh(b)
	}
	for i := range b.NumRows() { // of a key that was opened once more there is no row yet
		one, err := b.Keep(func(n int) bool { return n == i })
		if err != nil {
			return err //nolint:wrapcheck // it names the column
		}
		key := cell(b.Rows, 0, i)
		if _, there := t.Rows[key]; !there {
			t.Rows[key] = Image{cell(b.Rows, 1, i), cell(b.Rows, 2, i)}
			delete(t.Damaged, key)
			continue
		}
		if err := t.Refresh(one); err != nil {
			return err
		}
	}
	return nil
}

func (t *Target) change(b *record.Batch, i int, at record.Position) error {
	key := cell(b.Rows, 0, i)
	was := key
	if b.KeyMoved(i) {
		was = cell(b.Old, 0, i)
	}
	// The change that the log has for it: a moved key may come as a delete and an insert.
	said := Change{Op: b.Op(i), Key: key, Was: was, After: Image{V: cell(b.Rows, 1, i)}}
	c, ok := t.DB.find(PlaceOf(at), said, t.Rows)
	if !ok {
		return fmt.Errorf("%s of key %d (%d before) is not what the log says, or the lane has %v", b.Op(i), key, was, t.Rows[was])
	}
	before, there := t.Rows[was]
	refill := t.heal(key, was, b.IsUnchanged(2, i)) || t.Refill
	if refill && b.Op(i) == record.Delete {
		delete(t.Rows, key)
		return nil
	}
	if b.Op(i) != record.Insert && (!there || before != c.Before) && !refill {
		return fmt.Errorf("%s of key %d: the lane has %v (%v), and the log says %v", b.Op(i), was, before, there, c.Before)
	}
	delete(t.Rows, was)
	if b.Op(i) == record.Delete {
		return nil
	}
	if _, there := t.Rows[key]; there && !refill {
		return fmt.Errorf("%s of key %d, which is there", b.Op(i), key)
	}
	now := c.After
	if b.IsUnchanged(2, i) {
		if (b.Op(i) == record.Insert || !there) && !refill {
			return fmt.Errorf("%s of key %d lacks a value, and the lane has none", b.Op(i), key)
		}
		now.Big = before.Big
	}
	t.Rows[key] = now
	return nil
}

// heal takes note of a change of a row that may be damaged, and reports whether it was: the change brings all values but those that were
// not sent. Where the key moved, nothing is to repair these any more.
func (t *Target) heal(key, was int64, unsent bool) bool {
	by, damaged := t.Damaged[was]
	_, over := t.Damaged[key]
	delete(t.Damaged, was)
	delete(t.Damaged, key)
	if damaged && unsent {
		if key != was {
			by = 0
		}
		t.Damaged[key] = by
	}
	return damaged || over
}

// find looks a delivered change up in the log. Of several changes of the transaction it is the one that fits what the lane has.
func (d *Database) find(place int, said Change, rows map[int64]Image) (Change, bool) {
	op, key, was, v := said.Op, said.Key, said.Was, said.After.V
	var found Change
	ok := false
	for _, c := range d.Log[place-1].Changes {
		fits := c.Op == op && c.Key == key && c.Was == was
		moved := c.Op == record.Update && c.Was != c.Key
		switch {
		case moved && op == record.Delete && c.Was == key:
			fits = true
		case moved && op == record.Insert && c.Key == key:
			fits, c.Before = true, Image{}
		}
		if !fits || (op != record.Delete && c.After.V != v) {
			continue
		}
		if have, there := rows[was]; !ok || (there && have == c.Before) || (!there && op == record.Insert) {
			found, ok = c, true
		}
	}
	return found, ok
}

// InChunk keeps the rows of a chunk.
func InChunk(c record.Chunk, rows map[int64]Image) map[int64]Image {
	maps.DeleteFunc(rows, func(k int64, row Image) bool {
		if c.Where != "" && !Meets(c.Where, k, row) {
			return true
		}
		if c.Keys != nil {
			return !slices.ContainsFunc(c.Keys, func(j json.RawMessage) bool { return KeyBound(j) == k })
		}
		return (c.From != nil && k <= KeyBound(c.From)) || (c.To != nil && k > KeyBound(c.To))
	})
	return rows
}

// Meets evaluates a condition of a chunk: id%N=M or v%N=M.
func Meets(where string, key int64, row Image) bool {
	var name string
	var n, m int64
	parts := strings.FieldsFunc(where, func(r rune) bool { return r == '%' || r == '=' })
	if len(parts) == 3 {
		name = parts[0]
		n, _ = strconv.ParseInt(parts[1], 10, 64)
		m, _ = strconv.ParseInt(parts[2], 10, 64)
	}
	switch {
	case name == "id" && n > 0:
		return key%n == m
	case name == "v" && n > 0:
		return row.V%n == m
	}
	panic("sim: the condition " + where)
}

package fold_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector/fold"
	"github.com/leatdata/leat/record"
)

// The rows have a key and two values; no null stands in a row, so that null means unknown.
const columns = 3

type row [columns]int64

func schema() *arrow.Schema {
	fields := make([]arrow.Field, columns)
	for i, name := range []string{"id", "v", "w"} {
		fields[i] = arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}

// log is a batch in the making.
type log struct {
	rows, olds *array.RecordBuilder
	ops        []record.Op
	unchanged  [columns][]int
	images     bool // some row has an image before
}

func newLog() *log {
	return &log{rows: array.NewRecordBuilder(memory.DefaultAllocator, schema()), olds: array.NewRecordBuilder(memory.DefaultAllocator, schema())}
}

func put(b *array.RecordBuilder, r row, known func(col int) bool) {
	for col, v := range r {
		if f := b.Field(col).(*array.Int64Builder); known(col) { //nolint:forcetypeassert // of schema
			f.Append(v)
		} else {
			f.AppendNull()
		}
	}
}

func (l *log) add(op record.Op, r, old row, known, knownOld func(col int) bool) {
	l.ops = append(l.ops, op)
	put(l.rows, r, known)
	put(l.olds, old, knownOld)
	for col := range columns {
		l.images = l.images || knownOld(col)
	}
}

func (l *log) batch() *record.Batch {
	b := &record.Batch{
		Schema: &record.Schema{Dataset: "d", Columns: schema(), Key: []int{0}}, Rows: l.rows.NewRecordBatch(), Ops: l.ops,
	}
	if l.images {
		b.Old = l.olds.NewRecordBatch()
	}
	for col, at := range l.unchanged {
		if len(at) == 0 {
			continue
		}
		if b.Unchanged == nil {
			b.Unchanged = map[int][]uint64{}
		}
		bits := make([]uint64, len(l.ops)/64+1)
		for _, i := range at {
			bits[i/64] |= 1 << (i % 64)
		}
		b.Unchanged[col] = bits
	}
	return b
}

// texts are the images of a batch as texts.
type texts struct{ b *record.Batch }

func (x texts) value(rb arrow.RecordBatch, col, i int) string {
	return string(record.AppendJSON(nil, rb.Column(col), i))
}

func (x texts) AppendID(dst []byte, k fold.Key) ([]byte, error) {
	rb := x.b.Rows
	if k.Old {
		rb = x.b.Old
	}
	if rb.Column(0).IsNull(k.Row) {
		return dst, fold.NullKeyError{Column: rb.ColumnName(0)}
	}
	return append(dst, x.value(rb, 0, k.Row)...), nil
}

func (x texts) Fields(at fold.Place) ([][]byte, error) {
	i, old := at.Row()
	rb := x.b.Rows
	if old {
		rb = x.b.Old
	}
	out := make([][]byte, columns)
	for col := range out {
		out[col] = []byte(x.value(rb, col, i))
	}
	return out, nil
}

// refused collects rows.
type refused map[int]error

func (r refused) Has(i int) bool       { return r[i] != nil }
func (r refused) Add(i int, err error) { r[i] = err }

// target is a table: the values of rows by the ids of their keys.
type target map[string][]string

// apply does what a sink does: what is gone goes first, and values that only the target has come from where the row was.
func (t target) apply(f *fold.Fold, changes []*fold.Change) error {
	before := maps.Clone(t)
	for _, ch := range changes {
		if ch.Gone {
			delete(t, ch.ID)
		}
	}
	for _, ch := range changes {
		if ch.Gone {
			continue
		}
		values := make([]string, columns)
		for n := range values {
			at := ch.Value(n)
			if at == fold.OwnValue {
				from, ok := before[ch.From]
				if ch.Origin == nil || !ok {
					return fmt.Errorf("the target has no part of %s", ch.ID)
				}
				values[n] = from[n]
				continue
			}
			fields, err := f.Fields(at)
			if err != nil {
				return err //nolint:wrapcheck // of texts
			}
			values[n] = string(fields[n])
		}
		if ch.There && ch.Own && before[ch.ID] == nil {
			return fmt.Errorf("the target has no row %s", ch.ID)
		}
		t[ch.ID] = values
	}
	return nil
}

// source is a table, and writes down what changes in it.
type source struct {
	rows map[int64]row
	full bool // images before are whole
}

const keys = 6

// change makes one change to the table, if it can.
func (s *source) change(t *rapid.T, l *log) {
	all := func(int) bool { return true }
	none := func(int) bool { return false }
	key := func(col int) bool { return col == 0 }
	image := key
	if s.full {
		image = all
	}
	id := rapid.Int64Range(0, keys-1).Draw(t, "id")
	r, there := s.rows[id]
	now := row{id, rapid.Int64Range(0, 3).Draw(t, "v"), rapid.Int64Range(0, 3).Draw(t, "w")}
	switch {
	case !there:
		s.rows[id] = now
		l.add(record.Insert, now, row{}, all, none)
	case rapid.IntRange(0, 3).Draw(t, "what") == 0:
		delete(s.rows, id)
		l.add(record.Delete, r, row{}, image, none)
	case rapid.IntRange(0, 4).Draw(t, "how") == 0:
		s.rows[id] = now
		l.add(record.Upsert, now, row{}, all, none)
	default:
		delete(s.rows, id)
		if to := rapid.Int64Range(0, keys-1).Draw(t, "to"); s.rows[to] == (row{}) && rapid.Bool().Draw(t, "moves") {
			if _, taken := s.rows[to]; !taken {
				now[0] = to
			}
		}
		moved := now[0] != id
		known := all
		if rapid.Bool().Draw(t, "unchanged") { // the source does not send w
			now[2] = r[2]
			l.unchanged[2] = append(l.unchanged[2], len(l.ops))
			known = func(col int) bool { return col != 2 }
		}
		s.rows[now[0]] = now
		old := none
		if s.full {
			old = all
		} else if moved {
			old = key
		}
		l.add(record.Update, now, r, known, old)
	}
}

// What changes come to is the same for the target, whether they are applied one by one or folded; in any number of pieces, in any order.
// clause E12
func TestFoldIsWhatHappened(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &source{rows: map[int64]row{}, full: rapid.Bool().Draw(t, "full")}
		at, room, displaced := target{}, &fold.Room{}, map[string]int{}
		for range rapid.IntRange(1, 4).Draw(t, "batches") {
			l := newLog()
			for range rapid.IntRange(1, 12).Draw(t, "changes") {
				s.change(t, l)
			}
			b := l.batch()
			f := fold.New(b, fold.Columns{Send: []int{0, 1, 2}, Key: []int{0}}, texts{b}, displaced, room)
			bad := refused{}
			var order func(*fold.Change) uint64
			if rapid.Bool().Draw(t, "in order") {
				order = func(ch *fold.Change) uint64 { return uint64(ch.ID[0]) }
			}
			for from := 0; from < b.NumRows(); {
				to := rapid.IntRange(from+1, b.NumRows()).Draw(t, "to row")
				changes := f.Rows(from, to, bad, order)
				if err := errors.Join(at.apply(f, changes), bad[0]); err != nil || len(bad) > 0 {
					t.Fatalf("rows %d to %d: %v, %v", from, to, err, bad)
				}
				if order != nil && !slices.IsSortedFunc(changes, func(a, b *fold.Change) int { return strings.Compare(a.ID, b.ID) }) {
					t.Fatal("changes are not in order")
				}
				f.Displace(nil)
				from = to
			}
		}
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		want := target{}
		for id, r := range s.rows {
			want[number(id)] = []string{number(r[0]), number(r[1]), number(r[2])}
		}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Fatalf("(-source +target):\n%s", diff)
		}
	})
}

// Rows that swap their keys in one transaction stand under one key for a moment; the image says which of them is meant.
func TestSwap(t *testing.T) {
	t.Parallel()
	all := func(int) bool { return true }
	at := target{"1": {"1", "10", "11"}, "2": {"2", "20", "21"}}
	l := newLog()
	l.add(record.Update, row{2, 10, 11}, row{1, 10, 11}, all, all)
	l.add(record.Update, row{1, 20, 21}, row{2, 20, 21}, all, all)
	b := l.batch()
	f := fold.New(b, fold.Columns{Send: []int{0, 1, 2}, Key: []int{0}}, texts{b}, map[string]int{}, &fold.Room{})
	if err := at.apply(f, f.Rows(0, 2, refused{}, nil)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(target{"1": {"1", "20", "21"}, "2": {"2", "10", "11"}}, at); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Across batches of one transaction it is remembered which keys' rows the target had to give up.
func TestSwapInTwoBatches(t *testing.T) {
	t.Parallel()
	all := func(int) bool { return true }
	displaced := map[string]int{}
	var folded []*fold.Change
	for n, r := range [][2]row{{{2, 10, 11}, {1, 10, 11}}, {{1, 20, 21}, {2, 20, 21}}} {
		l := newLog()
		l.add(record.Update, r[0], r[1], all, all)
		b := l.batch()
		f := fold.New(b, fold.Columns{Send: []int{0, 1, 2}, Key: []int{0}}, texts{b}, displaced, &fold.Room{})
		folded = f.Rows(0, 1, refused{}, nil)
		if open := f.Open(); n == 0 && open[0] != "2" {
			t.Errorf("open are %v", open)
		}
		f.Displace(map[int][]int{0: {0}}[n])
		if want := map[string]int{}; n == 0 {
			want["2"] = 1
			if diff := cmp.Diff(want, displaced); diff != "" {
				t.Errorf("displaced (-want +got):\n%s", diff)
			}
		}
	}
	for _, ch := range folded { // the row of key 2 is the first one by now, and stays
		if ch.ID == "2" && ch.Gone || ch.ID == "1" && ch.Origin != nil {
			t.Errorf("%+v", ch)
		}
	}
}

func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	all := func(int) bool { return true }
	none := func(int) bool { return false }
	l := newLog()
	l.add(record.Insert, row{1, 1, 1}, row{}, all, none)
	l.add(record.Insert, row{}, row{}, none, none)
	b := l.batch()
	f := fold.New(b, fold.Columns{Send: []int{0, 1, 2}, Key: []int{0}}, texts{b}, map[string]int{}, &fold.Room{})
	bad := refused{}
	if got := f.Rows(0, 2, bad, nil); len(got) != 1 || got[0].ID != "1" {
		t.Errorf("changes %v", got)
	}
	if null, ok := errors.AsType[fold.NullKeyError](bad[1]); !ok || null.Column != "id" {
		t.Errorf("refused: %v", bad)
	}
}

// All rows of the batch that a change was made of are refused where the target lacks what they left out.
func TestRefuseMissing(t *testing.T) {
	t.Parallel()
	all := func(int) bool { return true }
	none := func(int) bool { return false }
	l := newLog()
	l.add(record.Insert, row{5, 1, 1}, row{}, all, none)
	for range 2 {
		l.unchanged[2] = append(l.unchanged[2], len(l.ops))
		l.add(record.Update, row{1, 1, 0}, row{}, func(col int) bool { return col != 2 }, none)
	}
	b := l.batch()
	f := fold.New(b, fold.Columns{Send: []int{0, 1, 2}, Key: []int{0}}, texts{b}, map[string]int{}, &fold.Room{})
	changes := f.Rows(0, 3, refused{}, nil)
	last := changes[1]
	if !last.Partial() || last.Last != 2 {
		t.Fatalf("%+v", last)
	}
	bad := refused{}
	f.RefuseMissing([]int{last.Last}, bad)
	missing, ok := errors.AsType[fold.MissingError](bad[1])
	if len(bad) != 2 || bad[2] == nil || !ok || missing.Column != "w" {
		t.Errorf("refused: %v", bad)
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	var p fold.Patterns
	whole, part := &fold.Change{}, &fold.Change{Values: []fold.Place{0, fold.OwnValue, 0}}
	for n, ch := range []*fold.Change{whole, part, whole, part} {
		if got := p.Of(ch, columns); got != n%2+1 {
			t.Errorf("change %d has pattern %d", n, got)
		}
	}
	if diff := cmp.Diff([][]bool{{true, true, true}, {true, false, true}}, p.Own); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

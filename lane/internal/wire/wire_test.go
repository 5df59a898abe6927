package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// equal compares everything that a sink can see.
func equal(a, b Item) string {
	return cmp.Diff(a, b,
		cmp.Comparer(func(x, y *arrow.Schema) bool {
			return x == y || (x != nil && y != nil && x.Equal(y) && x.Metadata().Equal(y.Metadata()))
		}),
		cmp.Comparer(func(x, y arrow.RecordBatch) bool {
			if x == nil || y == nil {
				return x == y
			}
			return x.Schema().Equal(y.Schema()) && cmp.Equal(texts(x), texts(y)) // NaN does not equal itself
		}),
		cmp.Comparer(func(x, y time.Time) bool { return x.Equal(y) }),
	)
}

func texts(rec arrow.RecordBatch) []string {
	return connectortest.Rows(&record.Batch{Schema: &record.Schema{Columns: rec.Schema()}, Rows: rec})
}

// through is what comes out of a log with small entries.
func through(t testing.TB, s, other *Schemas, limit int, items ...Item) []Item {
	t.Helper()
	var frames []*Frame
	for _, it := range items {
		f, err := s.Encode(it, []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, f)
	}
	entries, err := Pack(Head{Epoch: 3, First: 7}, frames, limit)
	if err != nil {
		t.Fatal(err)
	}
	var payload []byte
	for i, e := range entries {
		p, part, err := ReadPrefix(e)
		if err != nil || p != (Prefix{Epoch: 3, Part: i, Parts: len(entries)}) || len(e) > limit {
			t.Fatalf("entry %d of %d has %+v, %d bytes, %v", i, len(entries), p, len(e), err)
		}
		payload = append(payload, part...)
	}
	o, err := other.Open(payload)
	if err != nil || o.Items != len(items) || o.First != 7 {
		t.Fatalf("%+v, %v", o, err)
	}
	var out []Item
	for i := range items {
		it, err := o.Item(i)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := o.Sum(i).Stored, frames[i].Size(); got != want {
			t.Errorf("item %d takes %d bytes, and %d are said", i, got, want)
		}
		out = append(out, it)
	}
	return out
}

// full has a value in every field that a batch may have.
func full() *record.Batch {
	b := connectortest.Batch("public.all", connectortest.Cases()...)
	n := b.NumRows()
	fields := b.Schema.Columns.Fields()
	fields[0] = record.WithNative(fields[0], record.Native{System: "postgres", Type: "varchar(20)", ReadOnly: true})
	meta := arrow.NewMetadata([]string{"z", "a"}, []string{"1", "2"})
	cols := arrow.NewSchema(fields, &meta)
	b.Schema = &record.Schema{Dataset: "public.all", Columns: cols, Key: []int{1, 0}, Version: 9}
	b.Rows = array.NewRecordBatch(cols, b.Rows.Columns(), int64(n))
	b.Truncate, b.Changes, b.Size = true, 77, 12345
	for i := range n {
		b.Ops = append(b.Ops, record.Op(i%3))
	}
	b.Old = b.Rows.NewSlice(0, int64(n))
	words := make([]uint64, (n+63)/64)
	words[0] = 0xDEADBEEF
	b.Unchanged = map[int][]uint64{2: words, 0: make([]uint64, (n+63)/64)}
	b.Txns = []record.Txn{
		{Rows: 2, Position: at(`{"lsn": "1/2" }`), Time: time.Date(2024, 2, 29, 1, 2, 3, 456789, time.UTC)},
		{Rows: n - 2},
	}
	other := &record.Schema{Dataset: "other", Columns: arrow.NewSchema(fields[:2], nil), Key: []int{0}}
	b.Rejects = []record.Reject{{
		Dataset: "d", Line: 3, Offset: 4, Key: raw(`{ "<": 1}`), Column: "c", Value: "v\xff", Class: "bad_value", Code: "22P02",
		Message: "no \xfe", Raw: []byte{0, 1, 255}, Schema: other, Op: 2, Before: raw(`{"a" :1}`), Step: 5,
	}, {}}
	b.Chunk = &record.Chunk{
		Dataset: "d", From: raw(`[ 1 ]`), To: raw(`["<&>"]`), Keys: []json.RawMessage{raw(`{"k":  1}`), nil}, Where: "x > 1",
		Snapshot: at(`"s"`),
	}
	b.Position = at(`{ "lsn" : "16/B374D848", "n": 18446744073709551615, "<": 1.10 }`)
	return b
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func at(s string) record.Position { return record.Position{Shape: 3, Data: raw(s)} }

// clause W12: everything comes back as it was, to the byte: from whole batches and from windows of larger ones, in one entry and in many.
func TestRoundTrip(t *testing.T) {
	b := full()
	window := *b
	window.Rows, window.Old = b.Rows.NewSlice(1, 6), b.Old.NewSlice(1, 6)
	window.Ops, window.Txns, window.Chunk = b.Ops[1:6], nil, nil
	nothing := &record.Batch{}
	empty := &record.Batch{
		Schema: b.Schema, Rows: b.Rows.NewSlice(0, 0), Ops: []record.Op{}, Unchanged: map[int][]uint64{}, Txns: []record.Txn{},
		Rejects: []record.Reject{}, Chunk: &record.Chunk{Keys: []json.RawMessage{}, From: raw("")},
	}
	sliced := connectortest.Sliced(connectortest.Batch("public.all", connectortest.Cases()...))
	items := []Item{
		{Batch: b, Ledger: `{"open": ["<x>"] }`},
		{Batch: &window},
		{Batch: nothing},
		{Batch: empty, Ledger: "\xff"},
		{Batch: sliced},
		{Complete: []string{"a", "b"}},
		{Complete: nil},
	}
	for _, limit := range []int{1 << 20, 5000, PrefixSize + 100} {
		got := through(t, NewSchemas(), NewSchemas(), limit, items...)
		for i := range items {
			if diff := equal(items[i], got[i]); diff != "" {
				t.Errorf("limit %d, item %d (-want +got)\n%s", limit, i, diff)
			}
			if b := items[i].Batch; b != nil && b.Schema != nil && connectortest.Digest(b) != connectortest.Digest(got[i].Batch) {
				t.Errorf("limit %d, item %d: another digest", limit, i)
			}
		}
	}
}

// A field that is added to a batch, and that nobody thought of here, is noticed.
func TestEveryFieldIsFull(t *testing.T) {
	b := full()
	values := []any{*b, *b.Schema, b.Txns[0], b.Rejects[0], *b.Chunk, b.Position}
	want := map[string]int{"Batch": 13, "Schema": 4, "Txn": 3, "Reject": 14, "Chunk": 6, "Position": 2}
	for _, v := range values {
		r := reflect.ValueOf(v)
		if n := want[r.Type().Name()]; r.NumField() != n {
			t.Errorf("record.%s has %d fields, and %d are persisted", r.Type().Name(), r.NumField(), n)
		}
		for i := range r.NumField() {
			if r.Type().Field(i).Name == "Encoded" {
				continue // such batches are refused
			}
			if r.Field(i).IsZero() {
				t.Errorf("%s.%s is not tested", r.Type(), r.Type().Field(i).Name)
			}
		}
	}
}

// Who asks whether a schema has changed compares pointers: equal schemas are one, whether they were published or read.
func TestSchemasAreShared(t *testing.T) {
	a, b := full(), full()
	s := NewSchemas()
	got := through(t, s, s, 1<<20, Item{Batch: a}, Item{Batch: b}, Item{Batch: a})
	for i, it := range got {
		if it.Batch.Schema != a.Schema {
			t.Errorf("item %d has a schema of its own", i)
		}
	}
	b.Schema = &record.Schema{Dataset: b.Schema.Dataset, Columns: b.Schema.Columns, Key: b.Schema.Key, Version: b.Schema.Version + 1}
	if got := through(t, s, s, 1<<20, Item{Batch: b}); got[0].Batch.Schema == a.Schema || got[0].Batch.Schema.Version != b.Schema.Version {
		t.Error("another version is another schema")
	}
}

// clause W12: random columns, values and windows.
func TestRandomRoundTrip(t *testing.T) {
	cases := connectortest.Cases()
	rapid.Check(t, func(t *rapid.T) {
		var picked []connectortest.Case
		for i, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(cases)-1), 1, 6, rapid.ID[int]).Draw(t, "columns") {
			c := cases[n]
			c.Name = fmt.Sprintf("c%d", i)
			c.Values = rapid.SliceOfN(rapid.SampledFrom(c.Values), 1, 20).Draw(t, "values")
			picked = append(picked, c)
		}
		b := connectortest.Batch("t", picked...)
		from := rapid.IntRange(0, b.NumRows()).Draw(t, "from")
		to := rapid.IntRange(from, b.NumRows()).Draw(t, "to")
		b.Rows = b.Rows.NewSlice(int64(from), int64(to))
		if rapid.Bool().Draw(t, "images") {
			b.Old = b.Rows
		}
		s := NewSchemas()
		f, err := s.Encode(Item{Batch: b}, nil)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := Pack(Head{}, []*Frame{f, f}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		o, err := NewSchemas().Open(entries[0][PrefixSize:])
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			got, err := o.Item(i)
			if err != nil {
				t.Fatal(err)
			}
			if diff := equal(Item{Batch: b}, got); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// stride looks at every byte at the beginning, and at some of the others.
func stride(at int) int {
	if at < 200 {
		return 1
	}
	return 97
}

// Damage is found; what another version wrote is refused as such.
func TestRefused(t *testing.T) {
	f, err := NewSchemas().Encode(Item{Batch: full()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := Pack(Head{Epoch: 1}, []*Frame{f}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	e := entries[0]
	for at := 0; at < len(e); at += stride(at) {
		damaged := bytes.Clone(e)
		damaged[at] ^= 0x10
		_, _, err := ReadPrefix(damaged)
		if err == nil {
			t.Fatalf("byte %d was damaged, and nobody noticed", at)
		}
		if at < 8 != errors.Is(err, ErrFormat) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	for n := 0; n < len(e); n += stride(n) {
		if _, _, err := ReadPrefix(e[:n]); err == nil {
			t.Fatalf("%d of %d bytes are accepted", n, len(e))
		}
	}
}

// FuzzOpen: whatever the bytes are, there is an error or an item, no panic, and no memory without end.
func FuzzOpen(f *testing.F) {
	for _, b := range []*record.Batch{full(), connectortest.Numbered("t", 0, 3), {}} {
		fr, err := NewSchemas().Encode(Item{Batch: b}, nil)
		if err != nil {
			f.Fatal(err)
		}
		entries, err := Pack(Head{Epoch: 1}, []*Frame{fr, fr}, 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(entries[0][PrefixSize:], uint32(100), byte(1))
	}
	f.Fuzz(func(_ *testing.T, payload []byte, at uint32, with byte) {
		if len(payload) > 0 {
			payload = bytes.Clone(payload)
			payload[int(at)%len(payload)] ^= with
		}
		o, err := NewSchemas().Open(payload)
		if err != nil {
			return
		}
		for i := range o.Items {
			it, err := o.Item(i)
			if err == nil && it.Batch != nil {
				look(it.Batch)
			}
		}
	})
}

// look touches every value, as a sink does.
func look(b *record.Batch) {
	for i := range b.NumRows() {
		b.RowJSON(i)
		b.Op(i)
		for c := range int(b.Rows.NumCols()) {
			b.IsUnchanged(c, i)
		}
	}
}

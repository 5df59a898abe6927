package record_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/record"
)

// row is what a batch says of one row, for comparison.
type row struct {
	JSON, Old string
	Op        record.Op
	Unchanged [2]bool
}

func rowsOf(b *record.Batch) []row {
	rows := make([]row, b.NumRows())
	for i := range rows {
		rows[i] = row{JSON: string(b.RowJSON(i)), Op: b.Op(i), Unchanged: [2]bool{b.IsUnchanged(0, i), b.IsUnchanged(1, i)}}
		if b.Old != nil {
			rows[i].Old = string((&record.Batch{Rows: b.Old}).RowJSON(i))
		}
	}
	return rows
}

// anyBatch draws a batch of two columns with everything that goes with rows.
func anyBatch(t *rapid.T) *record.Batch {
	n := rapid.IntRange(0, 200).Draw(t, "rows")
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, {Name: "v", Type: anyType(t, 2), Nullable: true},
	}, nil)
	records := func() arrow.RecordBatch {
		return array.NewRecordBatch(schema, []arrow.Array{anyArray(t, schema.Field(0).Type, n), anyArray(t, schema.Field(1).Type, n)}, int64(n))
	}
	b := &record.Batch{Schema: &record.Schema{Dataset: "d", Columns: schema, Key: []int{0}}, Rows: records(), Changes: n, Position: position("1")}
	if rapid.Bool().Draw(t, "old") {
		b.Old = records()
	}
	if rapid.Bool().Draw(t, "ops") {
		b.Ops = rapid.SliceOfN(rapid.SampledFrom([]record.Op{record.Insert, record.Update, record.Upsert, record.Delete}), n, n).Draw(t, "ops")
	}
	if rapid.Bool().Draw(t, "unchanged") {
		words := (n + 63) / 64
		b.Unchanged = map[int][]uint64{1: rapid.SliceOfN(rapid.Uint64(), words, words).Draw(t, "bits")}
	}
	for left := n; left > 0 && len(b.Txns) < 5; {
		rows := rapid.IntRange(0, left).Draw(t, "transaction")
		b.Txns = append(b.Txns, record.Txn{Rows: rows, Position: position(strings.Repeat("1", len(b.Txns)+1)), Time: time.Unix(1, 0)})
		left -= rows
	}
	return b
}

func position(data string) record.Position {
	return record.Position{Shape: 1, Data: json.RawMessage(data)}
}

// Keep leaves out exactly the other rows, with their operations, old images and bitmaps; transactions lose rows, but none is lost.
func TestKeep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBatch(t)
		before := rowsOf(b)
		dice := rapid.SliceOfN(rapid.IntRange(0, 9), len(before), len(before)).Draw(t, "dice")
		limit := rapid.IntRange(0, 10).Draw(t, "limit")
		keep := func(i int) bool { return dice[i] < limit }
		got, err := b.Keep(keep)
		if err != nil {
			t.Fatal(err)
		}
		want := []row{}
		for i, r := range before {
			if keep(i) {
				want = append(want, r)
			}
		}
		if diff := cmp.Diff(want, rowsOf(got)); diff != "" {
			t.Fatalf("rows (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff(before, rowsOf(b)); diff != "" {
			t.Fatalf("the batch itself changed (-want +got)\n%s", diff)
		}
		at := 0
		for i, txn := range b.Txns {
			kept := 0
			for end := at + txn.Rows; at < end; at++ {
				if keep(at) {
					kept++
				}
			}
			txn.Rows = kept
			if diff := cmp.Diff(txn, got.Txns[i]); diff != "" {
				t.Fatalf("transaction %d (-want +got)\n%s", i, diff)
			}
		}
		if len(got.Txns) != len(b.Txns) || got.Changes != b.Changes || !got.Position.Equal(b.Position) || got.Schema != b.Schema {
			t.Fatalf("%d transactions, %d changes, position %s", len(got.Txns), got.Changes, got.Position)
		}
		if len(want) == len(before) && got != b {
			t.Fatal("nothing was left out, but the batch is another one")
		}
		if b.NumRows() > 0 && b.Bytes() < int64(b.NumRows()) {
			t.Fatalf("%d rows in %d bytes", b.NumRows(), b.Bytes())
		}
	})
}

func TestBatchWithoutRows(t *testing.T) {
	b := &record.Batch{Schema: &record.Schema{Dataset: "d"}, Rejects: []record.Reject{{Raw: make([]byte, 1000)}}}
	got, err := b.Keep(func(int) bool { t.Error("there is no row"); return true })
	if err != nil || got != b || b.NumRows() != 0 || b.KeyJSON(0) != nil || b.Bytes() < 1000 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestKeyJSON(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "v", Type: arrow.BinaryTypes.String}, {Name: `a"b`, Type: arrow.PrimitiveTypes.Int64}, {Name: "t", Type: arrow.BinaryTypes.String},
	}, nil)
	rows := array.NewRecordBatch(schema, []arrow.Array{
		parsed(schema.Field(0).Type, "x"), parsed(schema.Field(1).Type, "9007199254740993"), parsed(schema.Field(2).Type, "é\n"),
	}, 1)
	s := &record.Schema{Dataset: "d", Columns: schema}
	b := &record.Batch{Schema: s, Rows: rows}
	if key := b.KeyJSON(0); key != nil {
		t.Errorf("a dataset without key has key %s", key)
	}
	keyed, err := s.WithKey("t", `a"b`)
	if err != nil {
		t.Fatal(err)
	}
	b.Schema = keyed
	if got, want := string(b.KeyJSON(0)), `{"t":"é\n","a\"b":9007199254740993}`; got != want {
		t.Errorf("key %s, want %s", got, want)
	}
	if diff := cmp.Diff([]string{"t", `a"b`}, keyed.KeyNames()); diff != "" || len(s.Key) != 0 {
		t.Errorf("names (-want +got)\n%s", diff)
	}
	if _, err := s.WithKey("id"); err == nil || !strings.Contains(err.Error(), `"id"`) {
		t.Errorf("a key that is no column: %v", err)
	}
}

func TestSchemaValidate(t *testing.T) {
	field := func(name string, dt arrow.DataType) arrow.Field { return arrow.Field{Name: name, Type: dt} }
	ints := arrow.PrimitiveTypes.Int64
	schema := func(fields ...arrow.Field) *record.Schema {
		return &record.Schema{Dataset: "d", Columns: arrow.NewSchema(fields, nil)}
	}
	good := schema(field("a", ints), field("A", ints))
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	wrongKey, negative := *good, *good
	wrongKey.Key, negative.Key = []int{2}, []int{-1}
	for name, s := range map[string]*record.Schema{
		"no such key": &wrongKey, "negative key": &negative,
		"twice":        schema(field("a", ints), field("a", ints)),
		"foreign type": schema(field("a", &arrow.LargeStringType{})),
		"nested":       schema(field("a", arrow.ListOf(&arrow.LargeStringType{}))),
	} {
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "dataset d") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if good.Column("A") != 1 || good.Column("b") != -1 {
		t.Errorf("columns are found by exact name: %d, %d", good.Column("A"), good.Column("b"))
	}
}

func TestNative(t *testing.T) {
	f := arrow.Field{Name: "a", Type: arrow.BinaryTypes.String, Metadata: arrow.NewMetadata([]string{"other"}, []string{"stays"})}
	want := record.Native{System: "postgres", Type: "varchar(20)", ReadOnly: true}
	g := record.WithNative(f, want)
	if got := record.NativeOf(g); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := record.NativeOf(f); got != (record.Native{}) {
		t.Errorf("the field itself changed: %+v", got)
	}
	want.ReadOnly = false
	if got := record.NativeOf(record.WithNative(g, want)); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if v, _ := g.Metadata.GetValue("other"); v != "stays" {
		t.Errorf("other metadata became %q", v)
	}
}

func TestRejectIsOneReadableLine(t *testing.T) {
	r := record.Reject{
		Dataset: "orders", Line: 12, Offset: 340, Key: json.RawMessage(`{"id":7}`), Column: "total", Value: "12,5", Message: "no number",
	}
	if got, want := r.Error(), `orders, line 12 (byte 340), key {"id":7}, column "total", value "12,5": no number`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := (record.Reject{Dataset: "orders", Message: "no"}).Error(); got != "orders: no" {
		t.Errorf("%s", got)
	}
}

// clause S14: a position is opaque bytes with a shape, and none is none.
func TestPosition(t *testing.T) {
	p := position(`{"lsn":"0/1"}`)
	for _, c := range []struct {
		q     record.Position
		equal bool
	}{
		{p, true}, {position(`{"lsn": "0/1"}`), false}, {record.Position{Shape: 2, Data: p.Data}, false}, {record.Position{}, false},
	} {
		if p.Equal(c.q) != c.equal {
			t.Errorf("%v equals %v: want %v", p, c.q, c.equal)
		}
	}
	none := record.Position{Shape: 1}
	if !none.Zero() || p.Zero() || none.String() != "none" || p.String() != `{"lsn":"0/1"}` {
		t.Errorf("%s is %v, %s is %v", none, none.Zero(), p, p.Zero())
	}
	data, err := json.Marshal(record.Progress{Run: "r", Position: p, Done: true})
	if want := `{"run":"r","position":{"shape":1,"data":{"lsn":"0/1"}},"done":true}`; err != nil || string(data) != want {
		t.Errorf("%s, %v, want %s", data, err, want)
	}
}

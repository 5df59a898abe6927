package record_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// Batches that are joined have the same rows in the same order, of every type, with operations, images and gaps.
//
// clause E12.
func TestConcat(t *testing.T) {
	whole := connectortest.Batch("all", connectortest.Cases()...)
	n := whole.NumRows()
	if n < 4 {
		t.Fatalf("%d rows", n)
	}
	whole.Ops = make([]record.Op, n)
	unchanged := make([]uint64, (n+63)/64)
	for i := range n {
		whole.Ops[i] = []record.Op{record.Insert, record.Update, record.Delete}[i%3]
		if i%2 == 1 {
			unchanged[i/64] |= 1 << (i % 64)
		}
	}
	whole.Old, whole.Unchanged = whole.Rows, map[int][]uint64{1: unchanged}
	at := func(i int) record.Position {
		return record.Position{Shape: 1, Data: json.RawMessage(strconv.Itoa(i / 2))}
	}
	var parts []*record.Batch
	for i := range n {
		p, err := whole.Keep(func(j int) bool { return i == j })
		if err != nil {
			t.Fatal(err)
		}
		p.Txns, p.Changes, p.Size, p.Position = []record.Txn{{Rows: 1, Position: at(i), Time: time.Unix(int64(i), 0)}}, 1, 10, at(i)
		if i == 0 {
			p.Old = nil
		}
		parts = append(parts, p)
	}
	got, err := record.Concat(parts)
	if err != nil {
		t.Fatal(err)
	}
	if got.NumRows() != n || got.Changes != n || got.Size != int64(10*n) || !got.Position.Equal(at(n-1)) {
		t.Errorf("%d rows, %d changes, %d bytes, position %s", got.NumRows(), got.Changes, got.Size, got.Position)
	}
	if len(got.Txns) != (n+1)/2 || got.Txns[0].Rows != 2 {
		t.Errorf("%d transactions: %v", len(got.Txns), got.Txns)
	}
	for i := range n {
		if !bytes.Equal(got.RowJSON(i), whole.RowJSON(i)) || got.Op(i) != whole.Op(i) {
			t.Errorf("row %d: %s %s, want %s %s", i, got.Op(i), got.RowJSON(i), whole.Op(i), whole.RowJSON(i))
		}
		if got.IsUnchanged(1, i) != (i%2 == 1) {
			t.Errorf("row %d: unchanged %v", i, got.IsUnchanged(1, i))
		}
		for c := range got.Old.Columns() {
			want := record.AppendJSON(nil, whole.Old.Column(c), i)
			if i == 0 {
				want = []byte("null")
			}
			if have := record.AppendJSON(nil, got.Old.Column(c), i); !bytes.Equal(have, want) {
				t.Errorf("row %d, image before: %s, want %s", i, have, want)
			}
		}
	}
}

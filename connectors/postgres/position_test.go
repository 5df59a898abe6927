package postgres

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leatdata/leat/record"
)

// Where a transaction ends is read the same whether quickly or with all that a position says, and quickly where this source
// wrote it.
func TestQuickEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := streamPosition{
			LSN: lsn(rapid.Uint64().Draw(t, "lsn")), XID: rapid.Uint64().Draw(t, "xid"),
			origin: origin{System: rapid.StringN(1, 20, 40).Draw(t, "system"), Slot: rapid.StringN(1, 20, 40).Draw(t, "slot")},
		}
		want := txnEnd{lsn: p.LSN, xid: p.XID}
		fast := newPositionCode(p.origin).encode(want)
		for _, at := range []record.Position{p.encode(), fast} {
			got, err := decodeEnd(at)
			if err != nil || got != want {
				t.Fatalf("%s is %v, %v; want %v", at.Data, got, err, want)
			}
		}
		if _, ok := quickEnd(fast); ok != (p.XID != 0 && p.XID < 1e19) {
			t.Fatalf("%s: quickly %t", fast.Data, ok)
		}
	})
}

func FuzzQuickEnd(f *testing.F) {
	f.Add([]byte(`{"lsn":"16/B3748","xid":731,"system":"1","timeline":1,"slot":"s","created":"0/0"}`))
	f.Add([]byte(`{"lsn":"0/b3748","xid":731,"system":"1"}`))
	f.Add([]byte(`{"lsn":"123456789/1","xid":18446744073709551615,"system":"1"}`))
	f.Add([]byte(`{"lsn":"/","xid":,"system":"1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		at := record.Position{Shape: streamShape, Data: data}
		got, ok := quickEnd(at)
		want, err := decodeStream(at)
		if !ok || err != nil || strings.Count(strings.ToLower(string(data)), `"lsn"`)+strings.Count(strings.ToLower(string(data)), `"xid"`) > 2 {
			return // an encoded object has no name twice, and the last one would count
		}
		if got.lsn != want.LSN || got.xid != want.XID {
			t.Fatalf("%s is %v, want %v", data, got, want)
		}
	})
}

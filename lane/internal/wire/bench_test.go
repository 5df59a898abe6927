package wire

import (
	"testing"

	"github.com/leatdata/leat/internal/benchtest"
	"github.com/leatdata/leat/record"
)

// benchInput is what lanes get: batches of rows, of changes that are behind, and single transactions.
type benchInput struct {
	name    string
	batches []*record.Batch
}

func benchInputs() []benchInput {
	s := benchtest.Orders()
	small := benchInput{name: "small"}
	for i := range 512 {
		small.batches = append(small.batches, benchtest.Changes(s, 16*i, 16))
	}
	return []benchInput{
		{"rows", []*record.Batch{benchtest.Batch(s, 0, benchtest.Rows)}},
		{"changes", []*record.Batch{benchtest.Changes(s, 0, benchtest.Rows)}},
		small,
	}
}

// Items become frames, frames become a pack.
func BenchmarkEncode(b *testing.B) {
	for _, in := range benchInputs() {
		b.Run(in.name, func(b *testing.B) {
			schemas := NewSchemas()
			size, rows := 0, 0
			for _, batch := range in.batches {
				rows += batch.NumRows()
			}
			b.ReportAllocs()
			for b.Loop() {
				frames := make([]*Frame, len(in.batches))
				for i, batch := range in.batches {
					f, err := schemas.Encode(Item{Batch: batch, Ledger: `{"seeded":{"a":["public.orders"]}}`}, nil)
					if err != nil {
						b.Fatal(err)
					}
					frames[i] = f
				}
				entries, err := Pack(Head{}, frames, 1<<20)
				if err != nil {
					b.Fatal(err)
				}
				size = 0
				for _, e := range entries {
					size += len(e)
				}
			}
			b.SetBytes(int64(size))
			benchtest.PerRow(b, rows)
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, in := range benchInputs() {
		b.Run(in.name, func(b *testing.B) {
			schemas := NewSchemas()
			var frames []*Frame
			rows := 0
			for _, batch := range in.batches {
				f, err := schemas.Encode(Item{Batch: batch}, nil)
				if err != nil {
					b.Fatal(err)
				}
				frames, rows = append(frames, f), rows+batch.NumRows()
			}
			entries, err := Pack(Head{}, frames, 64<<20)
			if err != nil || len(entries) != 1 {
				b.Fatal(len(entries), err)
			}
			b.SetBytes(int64(len(entries[0])))
			b.ReportAllocs()
			for b.Loop() {
				_, payload, err := ReadPrefix(entries[0])
				if err != nil {
					b.Fatal(err)
				}
				o, err := schemas.Open(payload)
				if err != nil {
					b.Fatal(err)
				}
				for i := range o.Items {
					if _, err := o.Item(i); err != nil {
						b.Fatal(err)
					}
				}
			}
			benchtest.PerRow(b, rows)
		})
	}
}

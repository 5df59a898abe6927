package backfill

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/leatdata/leat/internal/benchtest"
	"github.com/leatdata/leat/record"
)

// plainMerger is a source without a server: transactions are visible at once and in no snapshot of a chunk, keys are whole numbers.
type plainMerger struct{}

var now = record.Position{Shape: 1, Data: json.RawMessage(`"now"`)}

func (plainMerger) Now(context.Context) (record.Position, error)   { return now, nil }
func (plainMerger) Includes(at, _ record.Position) bool            { return at.Equal(now) }
func (plainMerger) Outlived(record.Position, record.Position) bool { return false }

func (plainMerger) KeyOf(_ *record.Schema, rows arrow.RecordBatch, i int) json.RawMessage {
	return strconv.AppendInt(nil, keysOf(rows)[i], 10)
}

func (plainMerger) Locate(_ context.Context, _ *record.Schema, rows arrow.RecordBatch, bounds []json.RawMessage) ([]int, error) {
	ends := make([]int64, len(bounds))
	for i, b := range bounds {
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("a bound: %w", err)
		}
		ends[i] = n
	}
	at := make([]int, rows.NumRows())
	for i, k := range keysOf(rows) {
		at[i], _ = slices.BinarySearchFunc(ends, k, cmp.Compare)
	}
	return at, nil
}

func keysOf(rows arrow.RecordBatch) []int64 {
	return rows.Column(0).(*array.Int64).Int64Values() //nolint:forcetypeassert // by construction
}

// BenchmarkChange routes batches of changes: while no backfill is open, while one chunk is being read, while many that were read have to be
// told apart by their snapshots, and while all is yet to be read.
func BenchmarkChange(b *testing.B) {
	s := benchtest.Orders()
	batch := benchtest.Changes(s, 0, benchtest.Rows)
	batch.Unchanged = nil // rows that lack values are read once more, each time
	published := func(i int) string {
		return fmt.Sprintf(`{"to":%d,"snapshot":{"shape":1,"data":"s%d"}},`, (i+1)*benchtest.Rows/256, i)
	}
	var many strings.Builder
	for i := range 255 {
		many.WriteString(published(i))
	}
	const job = `{"jobs":[{"dataset":"public.orders","lanes":["a"],"segments":[%s{}]}]}`
	for _, tc := range []struct {
		name, ledger string
		begin        bool
	}{
		{"none open", `{"seeded":{"a":["public.orders"]}}`, false},
		{"others open", `{"seeded":{"a":["public.orders"]},"jobs":[{"dataset":"public.others","lanes":["a"]}]}`, false},
		{"planned", fmt.Sprintf(job, ""), false},
		{"one chunk", fmt.Sprintf(job, ""), true},
		{"one published", fmt.Sprintf(job, published(64)), false},
		{"many published", fmt.Sprintf(job, &many), false},
	} {
		b.Run(tc.name, func(b *testing.B) {
			m, err := New(plainMerger{}, func(record.Position, record.Position) (int, bool) { return 0, true }, []Lane{{
				Name: "a", Ledger: json.RawMessage(tc.ledger),
			}})
			if err != nil {
				b.Fatal(err)
			}
			m.Describe(s)
			var w *Work
			if tc.begin {
				if w = m.Next(1); w.Plan {
					m.Planned(w, json.RawMessage("4000"))
					w = m.Next(1)
				}
			}
			lanes := []string{"a"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Change(b.Context(), batch, lanes); err != nil {
					b.Fatal(err)
				}
				if w != nil {
					w.seg.held = nil // else it would grow with the iterations
				}
			}
			benchtest.PerRow(b, benchtest.Rows)
		})
	}
}

// BenchmarkLedger encodes what is saved with positions, when it has changed.
func BenchmarkLedger(b *testing.B) {
	const lanes, datasets = 4, 64
	var known []Lane
	for l := range lanes {
		known = append(known, Lane{Name: fmt.Sprint("lane", l)})
	}
	m, err := New(plainMerger{}, func(record.Position, record.Position) (int, bool) { return 0, true }, known)
	if err != nil {
		b.Fatal(err)
	}
	for d := range datasets {
		for _, l := range known {
			m.Known(fmt.Sprint("public.table", d), l.Name)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		m.dirty = true
		if len(m.Ledger()) == 0 {
			b.Fatal("it is empty")
		}
	}
	benchtest.PerRow(b, lanes*datasets)
}

package benchtest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/record"
)

// Rows is how many rows a batch of a source has.
const Rows = 8192

// PerRow reports how many rows one iteration works with, and what each of them takes.
func PerRow(b *testing.B, rows int) {
	b.Helper()
	b.ReportMetric(float64(rows), "rows/op")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
}

// Orders is a table of nine columns: whole numbers, a float, a decimal, texts, a truth value, a moment, and one that is often null.
func Orders() *record.Schema {
	return &record.Schema{Dataset: "public.orders", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "qty", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "price", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "amount", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}, Nullable: true},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "category", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "active", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "at", Type: record.InstantType(), Nullable: true},
		{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)}
}

// Batch is n rows of Orders, with the keys from this one on.
func Batch(s *record.Schema, from, n int) *record.Batch {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	for i := from; i < from+n; i++ {
		some := int64(uint64(i) * 0x9E3779B97F4A7C15 >> 34) // as good as random
		texts := []string{
			strconv.Itoa(i), strconv.FormatInt(some%1000, 10), fmt.Sprintf("%d.%02d", some/100%10_000, some%100),
			fmt.Sprintf("%d.%02d", some/100, some%100), fmt.Sprintf("customer name number %d", i), fmt.Sprintf("category %d", some%20),
			strconv.FormatBool(i%3 == 0), string(record.AppendTimestamp(nil, 1704067200000000+int64(i)*1000000, arrow.Microsecond, true)),
			strings.Repeat("some words ", i%4),
		}
		for c, text := range texts {
			if c == len(texts)-1 && i%2 == 0 {
				rb.Field(c).AppendNull()
			} else if err := record.ParseText(rb.Field(c), text); err != nil {
				panic(err) // they are values of the types
			}
		}
	}
	return &record.Batch{Schema: s, Rows: rb.NewRecordBatch()}
}

// perTxn is how many changes a transaction has.
const perTxn = 16

// Changes are rows of Orders as a stream brings them: inserts, updates, of which some have the image before and some lack a value
// that was not sent, and deletes, in transactions of 16.
func Changes(s *record.Schema, from, n int) *record.Batch {
	b := Batch(s, from, n)
	b.Changes, b.Ops = n, make([]record.Op, n)
	b.Old = b.Rows
	unsent := make([]uint64, (n+63)/64)
	for i := range b.Ops {
		b.Ops[i] = []record.Op{record.Insert, record.Update, record.Update, record.Delete}[i%4]
		if i%4 == 2 {
			unsent[i/64] |= 1 << (i % 64)
		}
	}
	b.Unchanged = map[int][]uint64{8: unsent}
	for at := 0; at < n; at += perTxn {
		b.Txns = append(b.Txns, record.Txn{
			Rows: min(perTxn, n-at), Position: Position(from + at), Time: time.Date(2026, 1, 1, 0, 0, 0, (from+at)*1000, time.UTC),
		})
	}
	b.Position = Position(from + n)
	return b
}

// Position is a place of a stream.
func Position(n int) record.Position {
	return record.Position{Shape: 2, Data: json.RawMessage(fmt.Sprintf(`{"lsn":"%X/%08X","system":"7123456789012345678"}`, n>>32, n))}
}

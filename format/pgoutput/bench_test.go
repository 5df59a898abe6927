package pgoutput_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/format/pgoutput"
	"github.com/leatdata/leat/record"
)

// benchTable is a table of six columns: a key, a name, a price, a moment, a flag and a float.
func benchTable() (*record.Schema, []pgoutput.RowColumn) {
	fields := []arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "price", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}, Nullable: true},
		{Name: "at", Type: record.InfiniteTimestampType(true), Nullable: true},
		{Name: "ok", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}
	var cols []pgoutput.RowColumn
	for i, f := range []pgcopy.Form{pgcopy.Int8, pgcopy.Raw, pgcopy.Numeric, pgcopy.Timestamp, pgcopy.Bool, pgcopy.Float8} {
		cols = append(cols, pgoutput.RowColumn{Target: i, Type: pgcopy.Type{Form: f}, Binary: true})
	}
	return &record.Schema{Dataset: "public.bench", Columns: arrow.NewSchema(fields, nil), Key: []int{0}}, cols
}

const benchChanges = 8192

func benchMessages(inBinary bool) [][]byte {
	out := make([][]byte, benchChanges)
	value := func(dst []byte, kind byte, v []byte) []byte {
		return append(binary.BigEndian.AppendUint32(append(dst, kind), uint32(len(v))), v...)
	}
	for i := range out {
		m := []byte("I\x00\x00\x00\x07N\x00\x06")
		if i%4 == 0 {
			m[0] = 'U'
		}
		name := fmt.Appendf(nil, "name of %d", i)
		if inBinary {
			m = value(m, 'b', binary.BigEndian.AppendUint64(nil, uint64(i)))
			m = value(m, 'b', name)
			m = value(m, 'b', []byte{0, 3, 0, 1, 0, 0, 0, 2, 0, byte(i), 0, 77, 19, 136})
			m = value(m, 'b', binary.BigEndian.AppendUint64(nil, uint64(800_000_000_000_000+i)))
			m = value(m, 'b', []byte{byte(i & 1)})
			m = value(m, 'b', binary.BigEndian.AppendUint64(nil, math.Float64bits(float64(i)*0.37)))
		} else {
			m = value(m, 't', fmt.Append(nil, i))
			m = value(m, 't', name)
			m = value(m, 't', fmt.Appendf(nil, "%d0077.50", 1+i&255))
			m = value(m, 't', fmt.Appendf(nil, "2026-01-01 00:00:00.%06d+00", i))
			m = value(m, 't', []byte{"ft"[i&1]})
			m = value(m, 't', fmt.Append(nil, float64(i)*0.37))
		}
		out[i] = m
	}
	return out
}

func BenchmarkChanges(b *testing.B) {
	for _, inBinary := range []bool{true, false} {
		b.Run(map[bool]string{true: "binary", false: "text"}[inBinary], func(b *testing.B) {
			messages := benchMessages(inBinary)
			s, cols := benchTable()
			rows, err := pgoutput.NewRows(s, cols, pgoutput.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, m := range messages {
					if err := feed(rows, m); err != nil {
						b.Fatal(err)
					}
				}
				if got := rows.Take(); got.NumRows() != benchChanges {
					b.Fatal(got.NumRows(), got.Rejects)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchChanges, "ns/change")
			b.ReportMetric(benchChanges, "rows/op")
		})
	}
}

// feed takes one insert, update or delete.
func feed(rows *pgoutput.Rows, message []byte) error {
	c, ok, err := pgoutput.ParseChange(message, false)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("message %q is no change", message)
	case c.Kind == 'I':
		return rows.Insert(c.New)
	case c.Kind == 'U':
		return rows.Update(c.OldKind, c.Old, c.New)
	default:
		return rows.Delete(c.OldKind, c.Old)
	}
}

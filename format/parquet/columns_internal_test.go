package parquet

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/record"
)

// flatCases are the types without nested columns, with the values that are kept.
func flatCases(t *testing.T) []connectortest.Case {
	t.Helper()
	var out []connectortest.Case
	for _, c := range connectortest.Cases() {
		s := connectortest.Schema("all", c)
		m := Mapping(s)[1]
		if m.Fidelity == connector.Inexact || nested(stored(s.Columns.Field(1).Type).arrow) {
			continue
		}
		c.Values = connectortest.Fitting(c, m.Limits)
		out = append(out, c)
	}
	if len(out) < 20 {
		t.Fatalf("only %d cases", len(out))
	}
	return out
}

// written writes the windows of a batch, each a first row and the one behind the last, several columns at a time or by the library alone.
func written(t rapid.TB, flat bool, b *record.Batch, o Options, dictionary []bool, windows ...[2]int64) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, b.Schema, o)
	if err != nil {
		t.Fatal(err)
	}
	if flat {
		w.file, err = newFlatColumns(w.stored, w.out, w.properties(dictionary))
	} else {
		w.file, err = newNestedColumns(w.stored, w.out, w.properties(dictionary))
	}
	if err == nil {
		err = w.keepTypes()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, win := range windows {
		if err := w.Write(&record.Batch{Schema: b.Schema, Rows: b.Rows.NewSlice(win[0], win[1])}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Several columns at a time make the very pages and statistics that the library makes of one after the other, and bounds are those of
// the values: any columns, nulls, windows of arrays and empty ones, dictionaries, several row groups. No row group is empty.
//
// case C006, case C069.
func TestColumnsAtATime(t *testing.T) {
	all := flatCases(t)
	rapid.Check(t, func(t *rapid.T) {
		cases := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 8, func(c connectortest.Case) string { return c.Name }).Draw(t, "columns")
		n := rapid.IntRange(1, 60).Draw(t, "rows")
		for i := range cases {
			nulls := rapid.SampledFrom([]int{0, 20, 95, 100}).Draw(t, "nulls")
			values := slices.DeleteFunc(slices.Clone(cases[i].Values), func(v string) bool { return v == "null" })
			cases[i].Values = make([]string, n)
			for r := range cases[i].Values {
				cases[i].Values[r] = "null"
				if rapid.IntRange(1, 100).Draw(t, "null") > nulls {
					cases[i].Values[r] = rapid.SampledFrom(values).Draw(t, "value")
				}
			}
		}
		b := connectortest.Batch("all", cases...)
		o := Options{
			Compression: rapid.SampledFrom([]string{"", "none", "snappy"}).Draw(t, "codec"),
			GroupRows:   rapid.SampledFrom([]int64{0, 7, 60}).Draw(t, "group"),
		}
		dictionary := rapid.SliceOfN(rapid.Bool(), len(cases)+1, len(cases)+1).Draw(t, "dictionary")
		var windows [][2]int64
		rows := []string{}
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			from := rapid.IntRange(0, n).Draw(t, "from")
			to := rapid.IntRange(from, n).Draw(t, "to")
			windows = append(windows, [2]int64{int64(from), int64(to)})
			rows = append(rows, connectortest.Rows(b)[from:to]...)
		}
		flat, nested := written(t, true, b, o, dictionary, windows...), written(t, false, b, o, dictionary, windows...)
		if diff := cmp.Diff(chunks(t, nested), chunks(t, flat)); diff != "" {
			t.Error(diff)
		}
		for _, data := range [][]byte{flat, nested} {
			if diff := cmp.Diff(rows, readRows(t, data)); diff != "" {
				t.Error(diff)
			}
			checkBounds(t, data)
		}
	})
}

// Pages and dictionaries that end in the middle of a write.
//
// case C006.
func TestManyPagesAtATime(t *testing.T) {
	b := connectortest.Batch("all", flatCases(t)...)
	cols := b.Rows.Columns()
	for i, c := range cols {
		joined, err := array.Concatenate(slices.Repeat([]arrow.Array{c}, 1500), memory.DefaultAllocator)
		if err != nil {
			t.Fatal(err)
		}
		cols[i] = joined
	}
	n := int64(cols[0].Len())
	b = &record.Batch{Schema: b.Schema, Rows: array.NewRecordBatch(b.Rows.Schema(), cols, n)}
	windows := [][2]int64{{0, n}, {3, n - 5}}
	for _, repeats := range []bool{false, true} {
		dictionary := slices.Repeat([]bool{repeats}, len(cols))
		flat, nested := written(t, true, b, Options{}, dictionary, windows...), written(t, false, b, Options{}, dictionary, windows...)
		if diff := cmp.Diff(chunks(t, nested), chunks(t, flat)); diff != "" {
			t.Errorf("dictionary %t: %s", repeats, diff)
		}
	}
}

func readRows(t rapid.TB, data []byte) []string {
	t.Helper()
	r, err := NewReader(bytes.NewReader(data), int64(len(data)), "all")
	if err != nil {
		t.Fatal(err)
	}
	rows := []string{}
	for {
		b, err := r.Next(format.Want{})
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, connectortest.Rows(b)...)
	}
}

// chunk is what a file has of a column in a row group. Files are not compared as a whole: their metadata list encodings in any order.
type chunk struct {
	Column       string
	Rows, Values int64
	Bytes        int64
	Nulls        int64
	Bounded      bool
	Low, High    string
	Pages        [32]byte
}

func chunks(t rapid.TB, data []byte) []chunk {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var out []chunk
	for g := range r.NumRowGroups() {
		group := r.MetaData().RowGroup(g)
		if group.NumRows() == 0 {
			t.Errorf("row group %d is empty", g)
		}
		for c := range group.NumColumns() {
			m, err := group.ColumnChunk(c)
			if err != nil {
				t.Fatal(err)
			}
			one := chunk{Column: m.PathInSchema().String(), Rows: group.NumRows(), Values: m.NumValues(), Bytes: m.TotalUncompressedSize()}
			from := m.DataPageOffset()
			if m.HasDictionaryPage() {
				from = m.DictionaryPageOffset()
			}
			if m.Type() != parquet.Types.Boolean { // the bits behind the last one of their pages are of no meaning
				one.Pages = sha256.Sum256(data[from : from+m.TotalCompressedSize()])
			}
			stats, err := m.Statistics()
			if err != nil {
				t.Fatal(err)
			}
			if stats != nil {
				one.Nulls, one.Bounded = stats.NullCount(), stats.HasMinMax()
				one.Low, one.High = string(stats.EncodeMin()), string(stats.EncodeMax())
			}
			out = append(out, one)
		}
	}
	return out
}

// checkBounds compares the statistics of a file with its values.
func checkBounds(t rapid.TB, data []byte) {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range chunks(t, data) {
		n := r.MetaData().Schema.NumColumns()
		column := r.MetaData().Schema.Column(i % n)
		in, err := r.RowGroup(i / n).Column(i % n)
		if err != nil {
			t.Fatal(err)
		}
		values, nulls := physical(t, in, c.Values)
		if nulls != c.Nulls && (c.Bounded || c.Nulls != 0) {
			t.Errorf("%s: %d nulls, the statistics say %d", c.Column, nulls, c.Nulls)
		}
		if !c.Bounded {
			continue
		}
		less := func(a, b string) int { return ordered(column, a, b) }
		if low, high := slices.MinFunc(values, less), slices.MaxFunc(values, less); less(low, c.Low) != 0 || less(high, c.High) != 0 {
			t.Errorf("%s: values from %x to %x, the statistics say %x to %x", c.Column, low, high, c.Low, c.High)
		}
	}
}

// physical returns the values of a column in a row group as statistics show them, and how many are null.
func physical(t rapid.TB, in file.ColumnChunkReader, n int64) ([]string, int64) {
	t.Helper()
	levels := make([]int16, n)
	out := make([]string, 0, n)
	var total int64
	var err error
	switch in := in.(type) {
	case *file.BooleanColumnChunkReader:
		total, out, err = readChunk(in.ReadBatch, levels, func(v bool) []byte { return []byte{map[bool]byte{true: 1}[v]} })
	case *file.Int32ColumnChunkReader:
		total, out, err = readChunk(in.ReadBatch, levels, func(v int32) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) })
	case *file.Int64ColumnChunkReader:
		total, out, err = readChunk(in.ReadBatch, levels, func(v int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(v)) })
	case *file.Float32ColumnChunkReader:
		total, out, err = readChunk(in.ReadBatch, levels, func(float32) []byte { return nil })
	case *file.Float64ColumnChunkReader:
		total, out, err = readChunk(in.ReadBatch, levels, func(float64) []byte { return nil })
	case *file.ByteArrayColumnChunkReader:
		total, out, err = readChunk(in.ReadBatch, levels, func(v parquet.ByteArray) []byte { return v })
	case *file.FixedLenByteArrayColumnChunkReader:
		total, out, err = readChunk(in.ReadBatch, levels, func(v parquet.FixedLenByteArray) []byte { return v })
	default:
		t.Fatalf("a column of %s", in.Type())
	}
	if err != nil || total != n {
		t.Fatalf("%d of %d values: %v", total, n, err)
	}
	return out, n - int64(len(out))
}

func readChunk[T any](
	read func(n int64, values []T, def, rep []int16) (int64, int, error), levels []int16, plain func(T) []byte,
) (total int64, out []string, err error) {
	values := make([]T, len(levels))
	for total < int64(len(levels)) {
		n, some, err := read(int64(len(levels))-total, values, levels, nil)
		if err != nil || n == 0 {
			return total, out, err
		}
		for _, v := range values[:some] {
			out = append(out, string(plain(v)))
		}
		total += n
	}
	return total, out, nil
}

// ordered compares two plain values of a column in the order that Parquet gives its type.
func ordered(c *schema.Column, a, b string) int {
	number := func(s string) *big.Int {
		raw := []byte(s)
		if c.PhysicalType() != parquet.Types.FixedLenByteArray {
			slices.Reverse(raw)
		}
		n := new(big.Int).SetBytes(raw)
		if integer, ok := c.LogicalType().(schema.IntLogicalType); (!ok || integer.IsSigned()) && len(raw) > 0 && raw[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(raw))))
		}
		return n
	}
	_, decimal := c.LogicalType().(schema.DecimalLogicalType)
	if decimal || c.PhysicalType() == parquet.Types.Int32 || c.PhysicalType() == parquet.Types.Int64 {
		return number(a).Cmp(number(b))
	}
	return bytes.Compare([]byte(a), []byte(b))
}

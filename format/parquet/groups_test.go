package parquet_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	pq "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/record"
)

// A resume by row number gives exactly what follows, inside of row groups and between them.
func TestSkip(t *testing.T) {
	b := connectortest.Batch("all", connectortest.Pick("text", "list_struct", "uuid")...)
	want := append(connectortest.Rows(b), connectortest.Rows(b)...)
	data := write(t, parquet.Options{GroupRows: 7}, b.Schema, b, b)
	for n := range int64(len(want) + 2) {
		r, err := open(data)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Skip(n)
		if n > int64(len(want)) {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("skipping %d of %d rows: %v", n, len(want), err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append([]string{}, want[n:]...), drain(t, r, format.Want{Rows: 4})); diff != "" {
			t.Errorf("behind %d rows: %s", n, diff)
		}
		if r.Offset().Rows != int64(len(want)) {
			t.Errorf("offset %+v", r.Offset())
		}
	}
}

// case C091.
func TestFileWithoutRows(t *testing.T) {
	b := connectortest.Batch("all", fitting()...)
	r, err := open(write(t, parquet.Options{}, b.Schema))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Schema().Columns.Equal(b.Schema.Columns) {
		t.Errorf("schema %s", r.Schema().Columns)
	}
	if rows := drain(t, r, format.Want{}); len(rows) != 0 {
		t.Errorf("rows %q", rows)
	}
}

// foreign writes a file with the library alone, as another program does: one row group for each batch.
func foreign(t *testing.T, s *arrow.Schema, batches ...arrow.RecordBatch) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := pqarrow.NewFileWriter(s, &buf, pq.NewWriterProperties(pq.WithVersion(pq.V2_LATEST)), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// case C091.
func TestRowGroupsWithoutRows(t *testing.T) {
	b := connectortest.Batch("all", connectortest.Pick("text", "list_int", "struct", "decimal_20_4")...)
	none, five := b.Rows.NewSlice(0, 0), b.Rows.NewSlice(2, 7)
	want := connectortest.Rows(&record.Batch{Schema: b.Schema, Rows: five})
	for name, groups := range map[string][]arrow.RecordBatch{"0, 5, 0": {none, five, none}, "0, 0": {none, none}, "5, 0, 5": {five, none, five}} {
		r, err := open(foreign(t, b.Schema.Columns, groups...))
		if err != nil {
			t.Fatal(err)
		}
		all := []string{}
		for _, g := range groups {
			if g.NumRows() > 0 {
				all = append(all, want...)
			}
		}
		if diff := cmp.Diff(all, drain(t, r, format.Want{Rows: 2})); diff != "" {
			t.Errorf("row groups of %s rows: %s", name, diff)
		}
	}
}

// decimals writes one column of unscaled numbers as a physical type.
func decimals(t *testing.T, typ pq.Type, width int, precision, scale int32, values []string) []byte {
	t.Helper()
	node, err := schema.NewPrimitiveNodeLogical("d", pq.Repetitions.Required, schema.NewDecimalLogicalType(precision, scale), typ, width, -1)
	if err != nil {
		t.Fatal(err)
	}
	root, err := schema.NewGroupNode("schema", pq.Repetitions.Required, schema.FieldList{node}, -1)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := file.NewParquetWriter(&buf, root)
	rg, err := w.AppendRowGroupChecked()
	if err != nil {
		t.Fatal(err)
	}
	cw, err := rg.NextColumn()
	if err != nil {
		t.Fatal(err)
	}
	var i32 []int32
	var i64 []int64
	var raw []pq.ByteArray
	var fixed []pq.FixedLenByteArray
	for _, v := range values {
		n, _ := new(big.Int).SetString(v, 10)
		i32, i64 = append(i32, int32(n.Int64())), append(i64, n.Int64())
		raw = append(raw, twosComplement(n, n.BitLen()/8+1))
		if width > 0 {
			fixed = append(fixed, twosComplement(n, width))
		}
	}
	switch cw := cw.(type) {
	case *file.Int32ColumnChunkWriter:
		_, err = cw.WriteBatch(i32, nil, nil)
	case *file.Int64ColumnChunkWriter:
		_, err = cw.WriteBatch(i64, nil, nil)
	case *file.ByteArrayColumnChunkWriter:
		_, err = cw.WriteBatch(raw, nil, nil)
	case *file.FixedLenByteArrayColumnChunkWriter:
		_, err = cw.WriteBatch(fixed, nil, nil)
	}
	if err := errors.Join(err, cw.Close(), rg.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// twosComplement is the big-endian form in n bytes.
func twosComplement(v *big.Int, n int) []byte {
	if v.Sign() < 0 {
		v = new(big.Int).Add(v, new(big.Int).Lsh(big.NewInt(1), uint(8*n)))
	}
	return v.FillBytes(make([]byte, n))
}

// case C003, case C004.
func TestDecimalsOfEveryPhysicalType(t *testing.T) {
	small := []string{"0", "1", "-1", "-256", "-65536", "256", "999999999", "-999999999", "-25600"}
	long := append([]string{"-2560000", "-655360000", "99999999999999999", "-99999999999999999"}, small...)
	wide := append([]string{"99999999999999999999999999999999999999", "-99999999999999999999999999999999999999", "-4722366482869645213696"}, long...)
	huge := append([]string{strings.Repeat("9", 76), "-" + strings.Repeat("9", 76)}, wide...)
	for _, c := range []struct {
		typ              pq.Type
		width            int
		precision, scale int32
		values           []string
	}{
		{pq.Types.Int32, -1, 9, 4, small},
		{pq.Types.Int64, -1, 18, 4, long},
		{pq.Types.FixedLenByteArray, 5, 9, 2, small},
		{pq.Types.FixedLenByteArray, 16, 38, 18, wide},
		{pq.Types.FixedLenByteArray, 32, 76, 30, huge},
		{pq.Types.ByteArray, -1, 38, 10, wide},
		{pq.Types.ByteArray, -1, 76, 0, huge},
	} {
		t.Run(fmt.Sprintf("%s(%d) decimal(%d,%d)", c.typ, c.width, c.precision, c.scale), func(t *testing.T) {
			r, err := open(decimals(t, c.typ, c.width, c.precision, c.scale, c.values))
			if err != nil {
				t.Fatal(err)
			}
			b, err := r.Next(format.Want{})
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range c.values {
				n, _ := new(big.Rat).SetString(v + "e-" + strconv.Itoa(int(c.scale)))
				if got := string(record.AppendText(nil, b.Rows.Column(0), i)); got != n.FloatString(int(c.scale)) {
					t.Errorf("unscaled %s is %s", v, got)
				}
			}
		})
	}
}

// case C004.
func TestDecimalsAreWrittenExactly(t *testing.T) {
	c := connectortest.Case{Name: "d", Type: &arrow.Decimal128Type{Precision: 20, Scale: 4}, Values: []string{
		"-256.0000", "-65536.0000", "-0.0001", "0.0000", "9999999999999999.9999", "-9999999999999999.9999", "-200000.0000", "null",
	}}
	b := connectortest.Batch("all", c)
	r, err := open(write(t, parquet.Options{}, b.Schema, b))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(connectortest.Rows(b), drain(t, r, format.Want{})); diff != "" {
		t.Error(diff)
	}
}

// case C092.
func TestNullListsAreNoEmptyLists(t *testing.T) {
	b := connectortest.Batch("all", connectortest.Pick("list_int", "list_nested", "list_struct", "struct_nested", "map", "array_int", "list_text")...)
	r, err := open(write(t, parquet.Options{GroupRows: 3}, b.Schema, b))
	if err != nil {
		t.Fatal(err)
	}
	rows := drain(t, r, format.Want{})
	if diff := cmp.Diff(connectortest.Rows(b), rows); diff != "" {
		t.Error(diff)
	}
	seen := map[string]bool{}
	for _, row := range rows {
		seen[row[strings.Index(row, `"list_nested"`):strings.Index(row, `,"list_struct"`)]] = true
	}
	for _, want := range []string{`null`, `[]`, `[[]]`, `[null]`, `[[1],[],null]`} {
		if !seen[`"list_nested":`+want] {
			t.Errorf("%s is not among %v", want, seen)
		}
	}
}

// case C017.
func TestTimestampsKeepUnitAndZone(t *testing.T) {
	for _, unit := range []arrow.TimeUnit{arrow.Millisecond, arrow.Microsecond, arrow.Nanosecond} {
		for _, zone := range []string{"", "UTC", "Europe/Berlin"} {
			dt := &arrow.TimestampType{Unit: unit, TimeZone: zone}
			b := array.NewTimestampBuilder(memory.DefaultAllocator, dt)
			b.AppendValues([]arrow.Timestamp{0, -1, 1_767_225_600_123_456_789, 1<<63 - 1, -1 << 63}, nil)
			s := arrow.NewSchema([]arrow.Field{{Name: "t", Type: dt}}, nil)
			arr := b.NewArray()
			r, err := open(foreign(t, s, array.NewRecordBatch(s, []arrow.Array{arr}, int64(arr.Len()))))
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Next(format.Want{})
			if err != nil {
				t.Fatal(err)
			}
			typ, err := record.TypeOf(got.Schema.Columns.Field(0).Type)
			if err != nil || typ.Unit != unit || typ.Zoned != (zone != "") {
				t.Errorf("%s became %s (%v)", dt, typ, err)
			}
			if !bytes.Equal(got.Rows.Column(0).Data().Buffers()[1].Bytes()[:40], arr.Data().Buffers()[1].Bytes()[:40]) {
				t.Errorf("%s: values changed", dt)
			}
		}
	}
	far := connectortest.Pick("instant_s")[0]
	far.Values = []string{`"1970-01-01T00:00:00Z"`}
	b := connectortest.Batch("all", far)
	col := array.NewTimestampBuilder(memory.DefaultAllocator, &arrow.TimestampType{Unit: arrow.Second, TimeZone: "UTC"})
	col.Append(1 << 60)
	b.Rows = array.NewRecordBatch(b.Rows.Schema(), []arrow.Array{b.Rows.Column(0), col.NewArray()}, 1)
	w, err := parquet.NewWriter(io.Discard, b.Schema, parquet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(b); err == nil || !strings.Contains(err.Error(), "instant_s") {
		t.Errorf("seconds that do not fit milliseconds: %v", err)
	}
}

// Values outside of the limits that Mapping states are an error that names the column, never another value.
func TestOutsideOfLimitsIsRefused(t *testing.T) {
	for _, c := range connectortest.Cases() {
		m := parquet.Mapping(connectortest.Schema("all", c))[1]
		inside := connectortest.Fitting(c, m.Limits)
		for _, v := range c.Values {
			one := c
			one.Values = []string{v}
			b := connectortest.Batch("all", one)
			w, err := parquet.NewWriter(io.Discard, b.Schema, parquet.Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = w.Write(b)
			if fits := contains(inside, v); fits != (err == nil) {
				t.Errorf("%s: value %.100s, within the limits is %v: %v", c.Name, v, fits, err)
			}
		}
	}
}

func contains(list []string, s string) bool {
	return slices.Contains(list, s)
}

// Random columns, sizes, row groups and cuts.
func TestRandomRoundTrip(t *testing.T) {
	cases := fitting()
	rapid.Check(t, func(t *rapid.T) {
		var picked []connectortest.Case
		for i, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(cases)-1), 1, 6, rapid.ID[int]).Draw(t, "columns") {
			c := cases[n]
			c.Name = fmt.Sprintf("c%d", i)
			c.Values = rapid.SliceOfN(rapid.SampledFrom(c.Values), 1, 40).Draw(t, "values")
			picked = append(picked, c)
		}
		b := connectortest.Batch("all", picked...)
		o := parquet.Options{
			GroupRows: int64(rapid.IntRange(1, 50).Draw(t, "group")), GroupBytes: int64(rapid.IntRange(0, 3_000).Draw(t, "bytes")),
			Compression: rapid.SampledFrom([]string{"", "none", "lz4"}).Draw(t, "compression"),
		}
		r, err := open(write(t, o, b.Schema, connectortest.Sliced(b), b))
		if err != nil {
			t.Fatal(err)
		}
		want := format.Want{Rows: rapid.IntRange(0, 9).Draw(t, "rows"), Bytes: int64(rapid.IntRange(0, 500).Draw(t, "want"))}
		if diff := cmp.Diff(append(connectortest.Rows(b), connectortest.Rows(b)...), drain(t, r, want)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// readAll reads everything and prints it, which touches every value.
func readAll(data []byte) (int, error) {
	r, err := open(data)
	if err != nil {
		return 0, err
	}
	rows := 0
	for {
		b, err := r.Next(format.Want{Rows: 3})
		if errors.Is(err, io.EOF) {
			return rows, r.Close()
		}
		if err != nil {
			return rows, err
		}
		rows += len(connectortest.Rows(b))
	}
}

// A file that was cut off anywhere is an error, never fewer rows.
func TestTruncatedFile(t *testing.T) {
	b := connectortest.Numbered("all", 0, 20)
	data := write(t, parquet.Options{GroupRows: 10}, b.Schema, b)
	for n := range len(data) {
		if _, err := readAll(data[:n]); err == nil {
			t.Fatalf("cut off behind %d of %d bytes: no error", n, len(data))
		}
	}
}

// Damage in many places: no panic, no endless memory, and messages of one line.
func TestDamagedBytes(t *testing.T) {
	b := connectortest.Batch("all", fitting()...)
	r := rand.New(rand.NewPCG(3, 4))
	for _, o := range []parquet.Options{{}, {Compression: "none"}} {
		data := write(t, o, b.Schema, b)
		for n := range 100 {
			damaged := bytes.Clone(data)
			at := r.IntN(len(damaged))
			if n%2 == 0 {
				at = len(damaged) - 1 - r.IntN(len(damaged)/3) // the footer
			}
			damaged[at] ^= byte(1 + r.IntN(255))
			if _, err := readAll(damaged); err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("byte %d: %q", at, err)
			}
		}
	}
}

// Damaged bytes give errors, or other values; never a panic.
func FuzzReader(f *testing.F) {
	b := connectortest.Batch("all", fitting()...)
	f.Add(write(f, parquet.Options{}, b.Schema, b), uint32(700), byte(0xff))
	f.Add(write(f, parquet.Options{Compression: "none", GroupRows: 5}, b.Schema, b), uint32(9), byte(0xff))
	f.Fuzz(func(t *testing.T, data []byte, at uint32, with byte) {
		damaged := bytes.Clone(data)
		if len(damaged) > 0 {
			damaged[int(at)%len(damaged)] ^= with
		}
		readAll(damaged) //nolint:errcheck // must return
	})
}

// noise returns a batch of incompressible strings of the given size.
func noise(r *rand.Rand, rows, bytesEach int) *record.Batch {
	s := connectortest.Schema("all", connectortest.Case{Name: "v", Type: arrow.BinaryTypes.String})
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	raw := make([]byte, bytesEach*3/4)
	for i := range rows {
		for j := 0; j+8 <= len(raw); j += 8 {
			binary.LittleEndian.PutUint64(raw[j:], r.Uint64())
		}
		rb.Field(0).(*array.Int64Builder).Append(int64(i))                                //nolint:forcetypeassert // by construction
		rb.Field(1).(*array.StringBuilder).Append(base64.StdEncoding.EncodeToString(raw)) //nolint:forcetypeassert // by construction
	}
	return &record.Batch{Schema: s, Rows: rb.NewRecordBatch()}
}

// peak runs f and returns the most memory that was live while it ran, in bytes, beyond what was live before.
func peak(f func(sample func())) uint64 {
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := uint64(0)
	f(func() {
		runtime.GC()
		runtime.ReadMemStats(&now)
		most = max(most, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
	})
	return most
}

// Memory does not grow with rows, and not with values that do not compress: row groups end by bytes.
//
// case C069.
func TestWriterMemoryIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const groupBytes = 8 << 20
	b := noise(r, 20, 180_000)
	total := int64(0)
	most := peak(func(sample func()) {
		counter := &countingWriter{}
		w, err := parquet.NewWriter(counter, b.Schema, parquet.Options{GroupBytes: groupBytes})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			if err := w.Write(b); err != nil {
				t.Fatal(err)
			}
			if i%7 == 6 {
				sample()
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		total = counter.n
	})
	if total < 120<<20 {
		t.Fatalf("only %d bytes were written", total)
	}
	if most > groupBytes+80<<20 {
		t.Errorf("%d MB were live with row groups of %d MB", most>>20, groupBytes>>20)
	}
}

type countingWriter struct{ n int64 }

func (c *countingWriter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// A reader holds a few batches, not a row group.
func TestReaderMemoryIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	b := noise(r, 20, 180_000)
	batches := make([]*record.Batch, 40)
	for i := range batches {
		batches[i] = b
	}
	data := write(t, parquet.Options{GroupBytes: 1 << 30, Compression: "none"}, b.Schema, batches...)
	rows := 0
	most := peak(func(sample func()) {
		rd, err := open(data)
		if err != nil {
			t.Fatal(err)
		}
		for {
			got, err := rd.Next(format.Want{})
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if rows += got.NumRows(); rows%5 == 0 {
				sample()
			}
		}
	})
	if rows != 800 || most > 40<<20 {
		t.Errorf("%d rows, %d MB were live while %d MB in one row group were read", rows, most>>20, len(data)>>20)
	}
}

package pgoutput_test

import (
	"encoding/binary"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/format/pgoutput"
	"github.com/leatdata/leat/record"
)

// Whatever bytes come, Parse returns an error or a message all of whose parts can be read, and the two ways to read a change, a begin or a
// commit agree.
func FuzzParse(f *testing.F) {
	for _, m := range messages(f) {
		f.Add([]byte(m.data), m.inStream, m.version)
	}
	f.Fuzz(func(t *testing.T, data []byte, inStream bool, version int) {
		m, err := pgoutput.Parse(data, inStream, version)
		if (m == nil) == (err == nil) {
			t.Fatalf("%v and %v", m, err)
		}
		c, ok, errChange := pgoutput.ParseChange(data, inStream)
		if ok && (err != nil || errChange != nil) {
			t.Fatalf("one reads it, the other does not: %v, %v", err, errChange)
		}
		begin, isBegin, errBegin := pgoutput.ParseBegin(data)
		commit, isCommit, errCommit := pgoutput.ParseCommit(data)
		wantBegin, oneBegins := m.(pgoutput.Begin)
		wantCommit, oneCommits := m.(pgoutput.Commit)
		if isBegin != oneBegins || isCommit != oneCommits || begin != wantBegin || commit != wantCommit {
			t.Fatalf("%+v is read as %+v and %+v", m, begin, commit)
		}
		if first := min(len(data), 1); (errBegin != nil) != (err != nil && string(data[:first]) == "B") ||
			(errCommit != nil) != (err != nil && string(data[:first]) == "C") {
			t.Fatalf("one refuses it, the other does not: %v, %v, %v", err, errBegin, errCommit)
		}
		for _, tuple := range []pgoutput.Tuple{c.Old, c.New} {
			total := 0
			for i := range tuple.Len() {
				_, v := tuple.Value(i)
				total += len(v)
			}
			if total > len(data) {
				t.Fatalf("values of %d bytes in a message of %d", total, len(data))
			}
		}
	})
}

// fuzzed is a table with a column of every form, none of whose values has more than one text.
func fuzzed(f *testing.F) (*record.Schema, []pgoutput.RowColumn) {
	f.Helper()
	cols := []struct {
		dt   arrow.DataType
		wire pgcopy.Type
	}{
		{arrow.PrimitiveTypes.Int32, form(pgcopy.Int4)},
		{arrow.PrimitiveTypes.Int16, form(pgcopy.Int2)},
		{arrow.PrimitiveTypes.Int64, form(pgcopy.Int8)},
		{arrow.PrimitiveTypes.Float64, form(pgcopy.Float8)},
		{arrow.FixedWidthTypes.Boolean, form(pgcopy.Bool)},
		{&arrow.Decimal128Type{Precision: 12, Scale: 2}, form(pgcopy.Numeric)},
		{&arrow.Decimal256Type{Precision: 70, Scale: 30}, form(pgcopy.Numeric)},
		{record.NumericType(), form(pgcopy.Numeric)},
		{arrow.BinaryTypes.String, form(pgcopy.Raw)},
		{arrow.BinaryTypes.Binary, form(pgcopy.Raw)},
		{record.InfiniteTimestampType(true), form(pgcopy.Timestamp)},
		{record.InfiniteTimestampType(false), form(pgcopy.Timestamp)},
		{record.InfiniteDateType(), form(pgcopy.Date)},
		{arrow.FixedWidthTypes.Time64us, form(pgcopy.Time)},
		{record.IntervalType(), form(pgcopy.Interval)},
		{record.BitsType(0, true), form(pgcopy.Bits)},
		{record.UUIDType(), form(pgcopy.UUID)},
		{record.JSONType(), form(pgcopy.Versioned)},
		{record.ArrayType(arrow.BinaryTypes.String, 1), pgcopy.ArrayOf(form(pgcopy.Raw), 25)},
		{record.ArrayType(&arrow.Decimal128Type{Precision: 5, Scale: 1}, 1), pgcopy.ArrayOf(form(pgcopy.Numeric), 1700)},
	}
	var fields []arrow.Field
	var out []pgoutput.RowColumn
	for i, c := range cols {
		fields = append(fields, arrow.Field{Name: string(rune('a' + i)), Type: c.dt, Nullable: true})
		out = append(out, pgoutput.RowColumn{Target: i, Type: c.wire, Binary: true})
	}
	return &record.Schema{Dataset: "public.fuzz", Columns: arrow.NewSchema(fields, nil), Key: []int{0}}, out
}

// fuzzTexts are values of the columns of fuzzed, as the server prints them.
func fuzzTexts() []string {
	return []string{
		"7", "-32768", "9223372036854775807", "-1.5e-300", "t", "-1234.50", "12345678901234567890.000000000000000000000000000001", "0.00",
		"grüße", `\x00ff`, "2026-01-01 00:00:00.5+05:45", "0044-03-15 01:02:03 BC", "5874897-12-31", "24:00:00", "1 year -2 mons +3 days -04:05:06.7",
		"101", "01234567-89ab-cdef-0123-456789abcdef", `{"a": 1}`, `[0:1][1:2]={{"a,b",NULL},{"c\"d",""}}`, "{1.5,NULL}",
	}
}

// Whatever stands for a value, in text or in binary, it becomes a row, a reject or an error, and the batch stays well formed: the rows
// around it are whole. What stands in the row is what its text says, and what its binary form says.
func FuzzRows(f *testing.F) {
	s, cols := fuzzed(f)
	texts := fuzzTexts()
	for i, v := range texts {
		f.Add([]byte(v), i, byte('t'), byte('I'))
	}
	for i, v := range binaryOf(f, s, cols, rowsOf(f, s, cols, texts...)) {
		f.Add([]byte(v[2:]), i, byte('b'), byte('O'))
	}
	f.Add([]byte("NaN"), 5, byte('t'), byte('K'))
	f.Add([]byte{}, 3, byte('u'), byte('U'))
	f.Fuzz(func(t *testing.T, value []byte, column int, kind, op byte) {
		values := append([]string{}, texts...)
		at := int(uint(column) % uint(len(values)))
		values[at] = "\x00" + string([]byte{"tbnu"[kind&3]}) + string(value)
		rows, err := pgoutput.NewRows(s, cols, pgoutput.Options{CheckUTF8: true})
		check(t, err)
		check(t, rows.Insert(tupleOf(t, texts...)))
		failed := fuzzChange(t, rows, op, values)
		check(t, rows.Update('O', tupleOf(t, texts...), tupleOf(t, texts...)))
		b := rows.Take()
		n, set := b.NumRows(), len(b.Rejects)
		if want := 3; (failed == nil && n+set != want) || (failed != nil && n+set != want-1) || b.Changes != n+set {
			t.Fatalf("%d rows and %d set aside of %d changes; %v", n, set, b.Changes, failed)
		}
		whole := connectortest.Rows(&record.Batch{Schema: s, Rows: b.Rows})
		if whole[0] != whole[n-1] || whole[0] != connectortest.Rows(&record.Batch{Schema: s, Rows: b.Old})[n-1] {
			t.Errorf("the rows around it:\n%s", cmp.Diff(whole[0], whole[n-1]))
		}
		if n == 3 && op&3 == 0 {
			readBack(t, b.Rows, 1)
			one := rowsOf(t, s, cols, values...)
			if encoded := binaryOf(t, s, cols, one); encoded != nil {
				if what := differIn(one, rowsOf(t, s, cols, encoded...)); what != "" {
					t.Error(what)
				}
			}
		}
	})
}

// fuzzChange makes one change of the values, as a row and as the row before.
func fuzzChange(t *testing.T, rows *pgoutput.Rows, op byte, values []string) error {
	t.Helper()
	tuple := tupleOf(t, values...)
	switch op & 3 {
	case 0:
		return rows.Insert(tuple)
	case 1:
		return rows.Update('O', tuple, tuple)
	case 2:
		return rows.Delete('K', tuple)
	default:
		return rows.Update(0, pgoutput.Tuple{}, tuple)
	}
}

// rowsOf is a batch of one row.
func rowsOf(t testing.TB, s *record.Schema, cols []pgoutput.RowColumn, values ...string) *record.Batch {
	t.Helper()
	rows, err := pgoutput.NewRows(s, cols, pgoutput.Options{CheckUTF8: true})
	check(t, err)
	check(t, rows.Insert(tupleOf(t, values...)))
	return rows.Take()
}

// binaryOf returns the values of a row as a sink would send them in a binary COPY; nil where it refuses one.
func binaryOf(t testing.TB, s *record.Schema, cols []pgoutput.RowColumn, b *record.Batch) []string {
	t.Helper()
	wires := make([]pgcopy.Column, len(cols))
	for i, c := range cols {
		wires[i] = pgcopy.Column{Name: s.Columns.Field(i).Name, Type: c.Type}
	}
	e, err := pgcopy.NewEncoder(s.Columns, wires)
	check(t, err)
	row, err := e.AppendRows(nil, b.Rows, 0, 1)
	if err != nil {
		return nil
	}
	var out []string
	for row = row[2:]; len(row) > 0; {
		size := int32(binary.BigEndian.Uint32(row))
		if row = row[4:]; size < 0 {
			out = append(out, null)
			continue
		}
		out = append(out, inBinary(string(row[:size])))
		row = row[size:]
	}
	return out
}

// differIn says in which column two batches differ.
func differIn(a, b *record.Batch) string {
	for c := range int(a.Rows.NumCols()) {
		if what := differ(a.Rows.Column(c).Data(), b.Rows.Column(c).Data()); what != "" {
			return "column " + a.Rows.ColumnName(c) + ": " + what
		}
	}
	return ""
}

// readBack holds each value of a row against what its text is read as.
func readBack(t *testing.T, rb arrow.RecordBatch, i int) {
	t.Helper()
	for c := range int(rb.NumCols()) {
		col := rb.Column(c)
		if col.IsNull(i) {
			continue
		}
		text := string(record.AppendText(nil, col, i))
		b := array.NewBuilder(memory.DefaultAllocator, col.DataType())
		if err := record.ParseText(b, text); err != nil {
			if kind, _ := record.TypeOf(col.DataType()); kind.Kind != record.JSON { // the server vouches for it
				t.Errorf("column %s: %v", rb.ColumnName(c), err)
			}
			continue
		}
		if again := string(record.AppendText(nil, b.NewArray(), 0)); again != text {
			t.Errorf("column %s: %q reads back as %q", rb.ColumnName(c), text, again)
		}
	}
}

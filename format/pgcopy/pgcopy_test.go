package pgcopy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

func schemaOf(types ...arrow.DataType) *record.Schema {
	fields := make([]arrow.Field, len(types))
	for i, t := range types {
		fields[i] = arrow.Field{Name: fmt.Sprintf("c%d", i), Type: t, Nullable: true}
	}
	return &record.Schema{Dataset: "d", Columns: arrow.NewSchema(fields, nil), Key: []int{0}}
}

// A value that the column can't hold sets aside its row, whole and with its key, and no other.
// cases C001, C012, C105.
func TestRejects(t *testing.T) {
	conn := pgtest.Conn(t, pgtest.URL(t))
	s := schemaOf(arrow.PrimitiveTypes.Int32, &arrow.Decimal128Type{Precision: 12, Scale: 2}, record.InfiniteTimestampType(false),
		arrow.BinaryTypes.String, record.ArrayType(&arrow.Decimal128Type{Precision: 5, Scale: 1}, 1))
	types := []pgcopy.Type{
		form(pgcopy.Int4), form(pgcopy.Numeric), form(pgcopy.Timestamp), form(pgcopy.Raw), pgcopy.ArrayOf(form(pgcopy.Numeric), 1700),
	}
	stream := copyOut(t, conn, `SELECT * FROM (VALUES
		(1, 1.5::numeric, '2026-01-01'::timestamp, 'one', '{1.5}'::numeric[]),
		(2, 'NaN', '2026-01-01', 'two', '{2.5}'),
		(3, 3.5, '294276-12-31 23:59:59.999999', 'three', '{3.5}'),
		(4, 4.5, '2026-01-01', 'four', '{4.5,NULL,NaN}'),
		(5, 1.005, '2026-01-01', 'five', '{}'),
		(6, 6.5, 'infinity', NULL, '{6.5,NULL}')) v ORDER BY 1`)
	for _, piece := range []int{1, 64, 1 << 20} {
		var rows, rejects []string
		for _, b := range decode(t, s, types, stream, piece, pgcopy.DecoderOptions{Rows: 1}) {
			rows = append(rows, connectortest.Rows(b)...)
			for _, r := range b.Rejects {
				rejects = append(rejects, fmt.Sprintf("%s %s %s %s %s", r.Key, r.Column, r.Value, r.Class, r.Raw))
			}
		}
		wantRows := []string{
			`{"c0":1,"c1":1.50,"c2":"2026-01-01T00:00:00","c3":"one","c4":[1.5]}`,
			`{"c0":6,"c1":6.50,"c2":"infinity","c3":null,"c4":[6.5,null]}`,
		}
		if diff := cmp.Diff(wantRows, rows); diff != "" {
			t.Errorf("pieces of %d: rows (-want +got):\n%s", piece, diff)
		}
		wantRejects := []string{
			`{"c0":2} c1 NaN not_representable {"c0":2,"c1":"NaN","c2":"2026-01-01T00:00:00","c3":"two","c4":[2.5]}`,
			`{"c0":3} c2 +294276-12-31T23:59:59.999999 not_representable {"c0":3,"c1":3.5,"c2":"+294276-12-31T23:59:59.999999","c3":"three","c4":[3.5]}`,
			`{"c0":4} c4 [4.5,null,"NaN"] not_representable {"c0":4,"c1":4.5,"c2":"2026-01-01T00:00:00","c3":"four","c4":[4.5,null,"NaN"]}`,
			`{"c0":5} c1 1.005 not_representable {"c0":5,"c1":1.005,"c2":"2026-01-01T00:00:00","c3":"five","c4":[]}`,
		}
		if diff := cmp.Diff(wantRejects, rejects); diff != "" {
			t.Errorf("pieces of %d: rejects (-want +got):\n%s", piece, diff)
		}
	}
}

// Streams that are cut short, or no binary COPY at all, are errors and never a shorter result.
func TestBrokenStreams(t *testing.T) {
	s := schemaOf(arrow.PrimitiveTypes.Int32)
	whole := pgcopy.AppendHeader(nil)
	whole = append(whole, 0, 1, 0, 0, 0, 4, 0, 0, 0, 7)
	whole = pgcopy.AppendTrailer(whole)
	read := func(stream []byte) (int, error) {
		rows := 0
		d, err := pgcopy.NewDecoder(s, []pgcopy.Type{form(pgcopy.Int4)}, pgcopy.DecoderOptions{}, func(b *record.Batch) error {
			rows += b.NumRows()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Write(stream); err != nil {
			return rows, err
		}
		return rows, d.Finish()
	}
	if rows, err := read(whole); rows != 1 || err != nil {
		t.Fatalf("the whole stream: %d rows, %v", rows, err)
	}
	for n := range whole {
		if _, err := read(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes: no error", n, len(whole))
		}
	}
	broken := map[string][]byte{
		"text":               []byte("1\tone\n2\ttwo\n\\.\n and more"),
		"data behind":        append(bytes.Clone(whole), 0, 1, 0, 0, 0, 4, 0, 0, 0, 8),
		"too many columns":   append(pgcopy.AppendHeader(nil), 0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 7, 0xff, 0xff),
		"a value too short":  append(pgcopy.AppendHeader(nil), 0, 1, 0, 0, 0, 3, 0, 0, 7, 0xff, 0xff),
		"a negative length":  append(pgcopy.AppendHeader(nil), 0, 1, 0xff, 0xff, 0xff, 0xfe, 0, 0, 7, 0xff, 0xff),
		"a value of 2 GB":    append(pgcopy.AppendHeader(nil), 0, 1, 0x7f, 0xff, 0xff, 0xff, 0, 0, 7, 0xff, 0xff),
		"flags of with OIDs": append([]byte("PGCOPY\n\xff\r\n\x00\x00\x01\x00\x00\x00\x00\x00\x00"), 0xff, 0xff),
	}
	for what, stream := range broken {
		if _, err := read(stream); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// What the encoder refuses, it refuses with row, column and value, and it leaves nothing of the row behind.
func TestEncodeRefuses(t *testing.T) {
	for _, c := range []struct {
		dt    arrow.DataType
		wire  pgcopy.Type
		value string
	}{
		{arrow.PrimitiveTypes.Int64, form(pgcopy.Int4), "2147483648"},
		{arrow.PrimitiveTypes.Int32, form(pgcopy.Int2), "-32769"},
		{arrow.PrimitiveTypes.Uint64, form(pgcopy.Int8), "9223372036854775808"},
		{arrow.FixedWidthTypes.Timestamp_ns, form(pgcopy.Timestamp), `"2026-01-01T00:00:00.000000001Z"`},
		{&arrow.TimestampType{Unit: arrow.Second}, form(pgcopy.Timestamp), `"-9999-01-01T00:00:00"`},
		{arrow.FixedWidthTypes.Duration_s, form(pgcopy.Interval), `"PT2562047788015215H"`},
		{record.NetworkType("inet"), pgcopy.Type{Form: pgcopy.Network, CIDR: true}, `"10.1.2.3/8"`},
	} {
		s := schemaOf(c.dt)
		b := connectortest.BatchOf(s, []string{"null"}, []string{c.value})
		e, err := pgcopy.NewEncoder(s.Columns, []pgcopy.Column{{Name: "v", Type: c.wire}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.AppendRows([]byte("before"), b.Rows, 0, 2)
		var refused *pgcopy.ValueError
		if !errors.As(err, &refused) || refused.Row != 1 || refused.Column != "v" || refused.Value == "" {
			t.Errorf("%s %s: error %v", c.dt, c.value, err)
		}
		if want := "before\x00\x01\xff\xff\xff\xff"; string(got) != want {
			t.Errorf("%s %s: left %q, want %q", c.dt, c.value, got, want)
		}
	}
}

// Every type of the vocabulary that has a binary form comes back from the server as it went in.
// cases C001, C002, C012, C016, C021, C026.
func TestVocabulary(t *testing.T) {
	conn := pgtest.Conn(t, pgtest.Database(t))
	elem := func(f pgcopy.Form, oid uint32) pgcopy.Type { return pgcopy.ArrayOf(form(f), oid) }
	for name, target := range map[string]struct {
		sql  string
		wire pgcopy.Type
	}{
		"bool": {"bool", form(pgcopy.Bool)}, "int16": {"int2", form(pgcopy.Int2)}, "int32": {"int4", form(pgcopy.Int4)},
		"int64": {"int8", form(pgcopy.Int8)}, "float32": {"float4", form(pgcopy.Float4)}, "float64": {"float8", form(pgcopy.Float8)},
		"decimal_38_10": {"numeric(38,10)", form(pgcopy.Numeric)}, "decimal_20_4": {"numeric(20,4)", form(pgcopy.Numeric)},
		"decimal_9_2": {"numeric(9,2)", form(pgcopy.Numeric)}, "decimal_76_30": {"numeric(76,30)", form(pgcopy.Numeric)},
		"numeric": {"numeric", form(pgcopy.Numeric)}, "text": {"text", form(pgcopy.Raw)}, "binary": {"bytea", form(pgcopy.Raw)},
		"uuid": {"uuid", form(pgcopy.UUID)}, "json": {"json", form(pgcopy.Raw)}, "bits_8": {"bit(8)", form(pgcopy.Bits)},
		"bits_varying": {"varbit", form(pgcopy.Bits)}, "inet": {"inet", form(pgcopy.Network)},
		"cidr": {"cidr", pgcopy.Type{Form: pgcopy.Network, CIDR: true}}, "macaddr": {"macaddr", form(pgcopy.MAC)},
		"date": {"date", form(pgcopy.Date)}, "date_infinite": {"date", form(pgcopy.Date)}, "time_us": {"time", form(pgcopy.Time)},
		"timestamp_us": {"timestamp", form(pgcopy.Timestamp)}, "timestamp_infinite": {"timestamp", form(pgcopy.Timestamp)},
		"instant_infinite": {"timestamptz", form(pgcopy.Timestamp)}, "interval": {"interval", form(pgcopy.Interval)},
		"array_int": {"int4[]", elem(pgcopy.Int4, 23)}, "array_any": {"int4[]", elem(pgcopy.Int4, 23)},
		"array_text": {"text[]", elem(pgcopy.Raw, 25)}, "array_binary": {"bytea[]", elem(pgcopy.Raw, 17)},
		"array_decimal": {"numeric(20,4)[]", elem(pgcopy.Numeric, 1700)},
	} {
		t.Run(name, func(t *testing.T) {
			cases := connectortest.Pick(name)
			if len(cases) != 1 {
				t.Fatalf("no case %s", name)
			}
			b := connectortest.Batch("d", cases[0])
			value := b.Schema.Columns.NumFields() - 1
			if _, err := conn.Exec(t.Context(), "DROP TABLE IF EXISTS v; CREATE TABLE v (n serial, v "+target.sql+")"); err != nil {
				t.Fatal(err)
			}
			s := &record.Schema{Dataset: "d", Columns: arrow.NewSchema([]arrow.Field{b.Schema.Columns.Field(value)}, nil)}
			for _, b := range []*record.Batch{b, connectortest.Sliced(b)} {
				one := selectColumn(b, value, s)
				e, err := pgcopy.NewEncoder(s.Columns, []pgcopy.Column{{Name: "v", Type: target.wire}})
				if err != nil {
					t.Fatal(err)
				}
				stream, err := e.AppendRows(pgcopy.AppendHeader(nil), one, 0, int(one.NumRows()))
				if err != nil {
					t.Fatal(err)
				}
				stream = pgcopy.AppendTrailer(stream)
				if _, err := conn.Exec(t.Context(), "TRUNCATE v"); err != nil {
					t.Fatal(err)
				}
				if _, err := conn.PgConn().CopyFrom(t.Context(), bytes.NewReader(stream), "COPY v (v) FROM STDIN (FORMAT binary)"); err != nil {
					t.Fatal(err)
				}
				back := decode(t, s, []pgcopy.Type{target.wire}, copyOut(t, conn, "SELECT v FROM v ORDER BY n"), 100, pgcopy.DecoderOptions{})
				want := connectortest.Rows(&record.Batch{Schema: s, Rows: one})
				if diff := cmp.Diff(want, connectortest.Rows(back[0])); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A number survives its way into the binary form and back, whatever its digits.
// case C002.
func TestNumericRoundTrip(t *testing.T) {
	s := schemaOf(record.NumericType())
	e, err := pgcopy.NewEncoder(s.Columns, []pgcopy.Column{{Name: "v", Type: form(pgcopy.Numeric)}})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.StringMatching(`-?(0|[1-9][0-9]{0,60})`).Draw(t, "whole")
		value := whole + rapid.StringMatching(`(\.[0-9]{1,60})?`).Draw(t, "fraction")
		b := connectortest.BatchOf(s, []string{value})
		stream, err := e.AppendRows(pgcopy.AppendHeader(nil), b.Rows, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		d, err := pgcopy.NewDecoder(s, []pgcopy.Type{form(pgcopy.Numeric)}, pgcopy.DecoderOptions{}, func(b *record.Batch) error {
			got = string(record.AppendText(nil, b.Rows.Column(0), 0))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Write(pgcopy.AppendTrailer(stream)); err != nil {
			t.Fatal(err)
		}
		if err := d.Finish(); err != nil {
			t.Fatal(err)
		}
		want := value
		if strings.Trim(value, "-0.") == "" {
			want = strings.TrimPrefix(value, "-")
		}
		if got != want {
			t.Fatalf("%s came back as %s", want, got)
		}
	})
}

// Whatever bytes come, the decoder returns an error or rows that are well formed.
func FuzzDecode(f *testing.F) {
	types := []arrow.DataType{
		arrow.FixedWidthTypes.Boolean, &arrow.Decimal128Type{Precision: 12, Scale: 2}, &arrow.Decimal256Type{Precision: 70, Scale: 30},
		record.NumericType(), arrow.BinaryTypes.String, record.InfiniteTimestampType(true), record.IntervalType(), record.BitsType(0, true),
		record.NetworkType("inet"), record.ArrayType(arrow.PrimitiveTypes.Int32, 1), record.JSONType(), record.InfiniteDateType(),
	}
	wires := []pgcopy.Type{
		form(pgcopy.Bool), form(pgcopy.Numeric), form(pgcopy.Numeric), form(pgcopy.Numeric), form(pgcopy.Raw), form(pgcopy.Timestamp),
		form(pgcopy.Interval), form(pgcopy.Bits), form(pgcopy.Network), pgcopy.ArrayOf(form(pgcopy.Int4), 23), form(pgcopy.Versioned),
		form(pgcopy.Date),
	}
	s := schemaOf(types...)
	row := binary.BigEndian.AppendUint16(nil, uint16(len(types)))
	for range types {
		row = append(row, 0xff, 0xff, 0xff, 0xff)
	}
	f.Add(row, 3)
	f.Add(append(append(row, 0, 12, 0, 0, 0, 1, 1, 0, 0, 0, 10, 0, 1, 0, 0, 0, 0, 0, 2, 0, 7), row[16:]...), 5)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		stream := pgcopy.AppendTrailer(append(pgcopy.AppendHeader(nil), data...))
		d, err := pgcopy.NewDecoder(s, wires, pgcopy.DecoderOptions{Rows: 2, CheckUTF8: true}, func(b *record.Batch) error {
			if b.Rows.NumRows() > 2 {
				t.Errorf("a batch of %d rows", b.NumRows())
			}
			connectortest.Rows(b)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for piece = max(1, piece&0xff); len(stream) > 0; {
			n := min(piece, len(stream))
			if _, err := d.Write(stream[:n]); err != nil {
				return
			}
			stream = stream[n:]
		}
		if err := d.Finish(); err != nil {
			return
		}
	})
}

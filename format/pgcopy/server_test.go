package pgcopy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/format/pgcopy"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// serverCase is a column on the server, how it is carried, and values as literals of SQL.
type serverCase struct {
	sql    string
	wire   pgcopy.Type
	arrow  arrow.DataType
	values []string
	want   []string // record's JSON of each value; nil: only the bytes are compared
}

func form(f pgcopy.Form) pgcopy.Type { return pgcopy.Type{Form: f} }

func serverCases() []serverCase {
	return []serverCase{
		{"bool", form(pgcopy.Bool), arrow.FixedWidthTypes.Boolean, []string{"true", "false"}, []string{"true", "false"}},
		{"int2", form(pgcopy.Int2), arrow.PrimitiveTypes.Int16, []string{"-32768", "32767"}, []string{"-32768", "32767"}},
		{"int4", form(pgcopy.Int4), arrow.PrimitiveTypes.Int32, []string{"-2147483648", "1"}, []string{"-2147483648", "1"}},
		{"int8", form(pgcopy.Int8), arrow.PrimitiveTypes.Int64, []string{"-9223372036854775808", "1"}, []string{"-9223372036854775808", "1"}},
		{
			"float4", form(pgcopy.Float4), arrow.PrimitiveTypes.Float32,
			[]string{"NaN", "-Infinity", "-0", "1e-45"},
			[]string{`"NaN"`, `"-Infinity"`, "-0", "1e-45"},
		},
		{
			"float8", form(pgcopy.Float8), arrow.PrimitiveTypes.Float64,
			[]string{"NaN", "Infinity", "0.1", "5e-324"},
			[]string{`"NaN"`, `"Infinity"`, "0.1", "5e-324"},
		},
		{
			"numeric(12,2)", form(pgcopy.Numeric), &arrow.Decimal128Type{Precision: 12, Scale: 2},
			[]string{"0", "-0.01", "9999999999.99", "10000", "100000000", "-1234.5", "0.10"},
			[]string{"0.00", "-0.01", "9999999999.99", "10000.00", "100000000.00", "-1234.50", "0.10"},
		},
		{
			"numeric(38,10)", form(pgcopy.Numeric), &arrow.Decimal128Type{Precision: 38, Scale: 10},
			[]string{"9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999", "0.0000000001", "-12345678901234567890"},
			[]string{
				"9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999", "0.0000000001",
				"-12345678901234567890.0000000000",
			},
		},
		{
			"numeric(76,30)", form(pgcopy.Numeric), &arrow.Decimal256Type{Precision: 76, Scale: 30},
			[]string{strings.Repeat("9", 46) + "." + strings.Repeat("9", 30), "-" + strings.Repeat("9", 46), "1e-30"},
			[]string{
				strings.Repeat("9", 46) + "." + strings.Repeat("9", 30), "-" + strings.Repeat("9", 46) + "." + strings.Repeat("0", 30),
				"0." + strings.Repeat("0", 29) + "1",
			},
		},
		{
			"numeric", form(pgcopy.Numeric), record.NumericType(),
			[]string{
				"8", "12.125", "0.00000000000000000000417", "98765432109876543210987654321098765432109.5", "NaN", "Infinity", "-Infinity", "0.0",
				"1.100", "0", "10000", "0.0001", "0.00010", "123456789.0", "1e20", "-5000.00005",
			},
			[]string{
				"8", "12.125", "0.00000000000000000000417", "98765432109876543210987654321098765432109.5", `"NaN"`, `"Infinity"`, `"-Infinity"`, "0.0",
				"1.100", "0", "10000", "0.0001", "0.00010", "123456789.0", "100000000000000000000", "-5000.00005",
			},
		},
		{"text", form(pgcopy.Raw), arrow.BinaryTypes.String, []string{"", "grüße", `a\b`}, []string{`""`, `"grüße"`, `"a\\b"`}},
		{"bpchar(5)", form(pgcopy.Raw), arrow.BinaryTypes.String, []string{"ab"}, []string{`"ab   "`}},
		{"bytea", form(pgcopy.Raw), arrow.BinaryTypes.Binary, []string{`\x`, `\x00ff5c`}, []string{`""`, `"AP9c"`}},
		{"json", form(pgcopy.Raw), record.JSONType(), []string{`{ "a" : 1, "a": 2 }`}, []string{`{ "a" : 1, "a": 2 }`}},
		{"jsonb", form(pgcopy.Versioned), record.JSONType(), []string{`{"b":1,"a":1.50}`}, []string{`{"a": 1.50, "b": 1}`}},
		{
			"uuid", form(pgcopy.UUID), record.UUIDType(),
			[]string{"01234567-89ab-cdef-0123-456789abcdef"},
			[]string{`"01234567-89ab-cdef-0123-456789abcdef"`},
		},
		{
			"date", form(pgcopy.Date), record.InfiniteDateType(),
			[]string{"-infinity", "0044-03-15 BC", "0001-01-01", "15000-06-01", "infinity", "5874897-12-31", "4713-01-01 BC"},
			[]string{
				`"-infinity"`, `"-0043-03-15"`, `"0001-01-01"`, `"+15000-06-01"`, `"infinity"`, `"+5874897-12-31"`, `"-4712-01-01"`,
			},
		},
		{"time", form(pgcopy.Time), arrow.FixedWidthTypes.Time64us, []string{"24:00:00", "00:00:00.000001"}, []string{`"24:00:00"`, `"00:00:00.000001"`}},
		{
			"timestamp", form(pgcopy.Timestamp), record.InfiniteTimestampType(false),
			[]string{"-infinity", "infinity", "4714-11-24 00:00:00 BC", "294246-12-31 23:59:59.999999"},
			[]string{`"-infinity"`, `"infinity"`, `"-4713-11-24T00:00:00"`, `"+294246-12-31T23:59:59.999999"`},
		},
		{
			"timestamptz", form(pgcopy.Timestamp), record.InfiniteTimestampType(true),
			[]string{"2026-01-01 00:00:00.123456+02", "infinity"},
			[]string{`"2025-12-31T22:00:00.123456Z"`, `"infinity"`},
		},
		{
			"interval", form(pgcopy.Interval), record.IntervalType(),
			[]string{"1 mon -1 day 00:00:00.000001", "-13 mons", "2147483647 days"},
			[]string{`"P1M-1DT0.000001S"`, `"P-1Y-1M"`, `"P2147483647D"`},
		},
		{"bit(9)", form(pgcopy.Bits), record.BitsType(9, false), []string{"101010101"}, []string{`"101010101"`}},
		{"varbit", form(pgcopy.Bits), record.BitsType(0, true), []string{"", "1"}, []string{`""`, `"1"`}},
		{
			"inet", form(pgcopy.Network), record.NetworkType("inet"),
			[]string{"1.2.3.4", "10.1.2.3/8", "::1", "::", "::1.2.3.4", "::ffff:1.2.3.4", "2001:db8:0:0:1:0:0:1", "2001:db8::/64", "1::ffff:0:0", "::2", "0:0:1::"},
			nil,
		},
		{"cidr", pgcopy.Type{Form: pgcopy.Network, CIDR: true}, record.NetworkType("cidr"), []string{"10/8", "::/0", "1.2.3.4"}, nil},
		{"macaddr", form(pgcopy.MAC), record.NetworkType("macaddr"), []string{"08:00:2b:01:02:03"}, []string{`"08:00:2b:01:02:03"`}},
		{"macaddr8", form(pgcopy.MAC), record.NetworkType("macaddr8"), []string{"08:00:2b:01:02:03:04:05"}, []string{`"08:00:2b:01:02:03:04:05"`}},
		{
			"int4[]", pgcopy.ArrayOf(form(pgcopy.Int4), 23), record.ArrayType(arrow.PrimitiveTypes.Int32, 1),
			[]string{"{}", "{NULL,1}", "{{1,2},{3,4}}", "[0:1]={7,8}", "[-1:0][5:5]={{1},{2}}"},
			[]string{"[]", "[null,1]", "[[1,2],[3,4]]", `{"lower":[0],"values":[7,8]}`, `{"lower":[-1,5],"values":[[1],[2]]}`},
		},
		{
			"text[]", pgcopy.ArrayOf(form(pgcopy.Raw), 25), record.ArrayType(arrow.BinaryTypes.String, 1),
			[]string{`{"a,b","c\"d",""}`, `{NULL,"NULL"}`},
			[]string{`["a,b","c\"d",""]`, `[null,"NULL"]`},
		},
		{
			"bytea[]", pgcopy.ArrayOf(form(pgcopy.Raw), 17), record.ArrayType(arrow.BinaryTypes.Binary, 1),
			[]string{`{"\\x00ff",NULL,"\\x"}`},
			[]string{`["AP8=",null,""]`},
		},
		{
			"numeric(10,3)[]", pgcopy.ArrayOf(form(pgcopy.Numeric), 1700), record.ArrayType(&arrow.Decimal128Type{Precision: 10, Scale: 3}, 1),
			[]string{`{1.5,NULL,-0.001}`},
			[]string{`[1.500,null,-0.001]`},
		},
		{
			"bool[]", pgcopy.ArrayOf(form(pgcopy.Bool), 16), record.ArrayType(arrow.FixedWidthTypes.Boolean, 1),
			[]string{`{t,NULL,f,t,t,t,t,t,t,t}`, `{f}`},
			nil,
		},
	}
}

// copyOut returns what COPY writes.
func copyOut(t testing.TB, conn *pgx.Conn, query string) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := conn.PgConn().CopyTo(t.Context(), &out, "COPY ("+query+") TO STDOUT (FORMAT binary)"); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out.Bytes()
}

// decode reads a whole stream that is cut into pieces of the given size.
func decode(t testing.TB, s *record.Schema, types []pgcopy.Type, stream []byte, piece int, o pgcopy.DecoderOptions) []*record.Batch {
	t.Helper()
	var batches []*record.Batch
	d, err := pgcopy.NewDecoder(s, types, o, func(b *record.Batch) error {
		batches = append(batches, b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for len(stream) > 0 {
		n := min(piece, len(stream))
		if _, err := d.Write(stream[:n]); err != nil {
			t.Fatal(err)
		}
		stream = stream[n:]
	}
	if err := d.Finish(); err != nil {
		t.Fatal(err)
	}
	return batches
}

// What the server sends is decoded and encoded to the same bytes, wherever the stream is cut.
// cases C001, C002, C012, C016, C021, C026.
func TestServer(t *testing.T) {
	conn := pgtest.Conn(t, pgtest.URL(t))
	for _, c := range serverCases() {
		t.Run(c.sql, func(t *testing.T) {
			var rows []string
			for i, v := range append(c.values, "") {
				expr := fmt.Sprintf("'%s'::%s", strings.ReplaceAll(v, "'", "''"), c.sql)
				if i == len(c.values) {
					expr = "NULL::" + c.sql
				}
				rows = append(rows, fmt.Sprintf("SELECT %d, %s, 'end'::text", i, expr))
			}
			stream := copyOut(t, conn, strings.Join(rows, " UNION ALL ")+" ORDER BY 1")
			fields := []arrow.Field{
				{Name: "n", Type: arrow.PrimitiveTypes.Int32},
				{Name: "v", Type: c.arrow, Nullable: true},
				{Name: "end", Type: arrow.BinaryTypes.String},
			}
			s := &record.Schema{Dataset: "d", Columns: arrow.NewSchema(fields, nil)}
			types := []pgcopy.Type{form(pgcopy.Int4), c.wire, form(pgcopy.Raw)}
			for _, piece := range []int{1, 7, 1 << 20} {
				batches := decode(t, s, types, stream, piece, pgcopy.DecoderOptions{Rows: 2})
				checkServer(t, c, batches)
				back := encode(t, s, []pgcopy.Column{{Name: "n", Type: types[0]}, {Name: "v", Type: types[1]}, {Name: "end", Type: types[2]}}, batches)
				if diff := cmp.Diff(stream, back); diff != "" {
					t.Errorf("pieces of %d: encoded differently (-server +ours):\n%s", piece, diff)
				}
			}
		})
	}
}

func checkServer(t *testing.T, c serverCase, batches []*record.Batch) {
	t.Helper()
	var got []string
	for _, b := range batches {
		if len(b.Rejects) > 0 {
			t.Fatalf("rejected: %v", b.Rejects)
		}
		for i := range b.NumRows() {
			got = append(got, string(record.AppendJSON(nil, b.Rows.Column(1), i)))
		}
	}
	if c.want == nil {
		return
	}
	if diff := cmp.Diff(append(c.want, "null"), got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func encode(t testing.TB, s *record.Schema, cols []pgcopy.Column, batches []*record.Batch) []byte {
	t.Helper()
	e, err := pgcopy.NewEncoder(s.Columns, cols)
	if err != nil {
		t.Fatal(err)
	}
	out := pgcopy.AppendHeader(nil)
	for _, b := range batches {
		if out, err = e.AppendRows(out, b.Rows, 0, b.NumRows()); err != nil {
			t.Fatal(err)
		}
	}
	return pgcopy.AppendTrailer(out)
}

// Network addresses look as the server prints them.
func TestNetworkText(t *testing.T) {
	conn := pgtest.Conn(t, pgtest.URL(t))
	for _, c := range serverCases() {
		if c.wire.Form != pgcopy.Network {
			continue
		}
		for _, v := range c.values {
			var want string
			if err := conn.QueryRow(t.Context(), fmt.Sprintf("SELECT textin(inet_out('%s'::%s::inet))", v, c.sql)).Scan(&want); err != nil {
				t.Fatal(err)
			}
			if c.sql == "cidr" {
				if err := conn.QueryRow(t.Context(), fmt.Sprintf("SELECT textin(cidr_out('%s'::cidr))", v)).Scan(&want); err != nil {
					t.Fatal(err)
				}
			}
			s := &record.Schema{Dataset: "d", Columns: arrow.NewSchema([]arrow.Field{{Name: "v", Type: c.arrow}}, nil)}
			b := decode(t, s, []pgcopy.Type{c.wire}, copyOut(t, conn, fmt.Sprintf("SELECT '%s'::%s", v, c.sql)), 1<<20, pgcopy.DecoderOptions{})
			if got := string(record.AppendText(nil, b[0].Rows.Column(0), 0)); got != want {
				t.Errorf("%s %s: got %s, want %s", c.sql, v, got, want)
			}
		}
	}
}

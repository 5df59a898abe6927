package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// db is a database of a test's own, and a connection that watches.
func db(t testing.TB) (string, *pgx.Conn) {
	t.Helper()
	url := pgtest.Database(t)
	conn := pgtest.Conn(t, url)
	sqlExec(t, conn, "SET lock_timeout = '10s'") // a lock that nobody lets go fails the test
	return url, conn
}

// one returns the single text value of a query.
func one(t testing.TB, conn *pgx.Conn, sql string) string {
	t.Helper()
	results, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if len(results[0].Rows) == 0 {
		return "no row"
	}
	var cells []string
	for _, row := range results[0].Rows {
		parts := make([]string, len(row))
		for i, v := range row {
			parts[i] = string(v)
		}
		cells = append(cells, strings.Join(parts, "|"))
	}
	return strings.Join(cells, "\n")
}

func want(t testing.TB, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// keyed is a schema whose first column is the key.
func keyed(dataset string, fields ...arrow.Field) *record.Schema {
	return &record.Schema{Dataset: dataset, Columns: arrow.NewSchema(fields, nil), Key: []int{0}}
}

func native(name string, dt arrow.DataType, typ string) arrow.Field {
	return record.WithNative(arrow.Field{Name: name, Type: dt, Nullable: true}, record.Native{System: "postgres", Type: typ})
}

var idField = arrow.Field{Name: "id", Type: arrow.PrimitiveTypes.Int64}

func ops(b *record.Batch, ops ...record.Op) *record.Batch {
	b.Ops = ops
	return b
}

func rowErrorsOf(t testing.TB, err error) []connector.RowError {
	t.Helper()
	var rows *connector.RowErrors
	if !errors.As(err, &rows) {
		t.Fatalf("got %v, want refused rows", err)
	}
	return rows.Rows
}

// case C032
func TestSinkIdentityAlways(t *testing.T) {
	url, conn := db(t)
	sqlExec(t, conn, `CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n bigint GENERATED ALWAYS AS IDENTITY, v text,
		twice text GENERATED ALWAYS AS (v || v) STORED)`)
	s := keyed("t", idField, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "v", Type: arrow.BinaryTypes.String},
		arrow.Field{Name: "twice", Type: arrow.BinaryTypes.String})
	snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
	must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"7", "70", `"a"`, `"?"`}, []string{"8", "80", `"b"`, `"?"`})))
	must(t, snk.Write(t.Context(), ops(connectortest.BatchOf(s, []string{"7", "70", `"c"`, `"?"`}, []string{"8", "80", `""`, `""`}, []string{"9", "90", `"d"`, `""`}),
		record.Update, record.Delete, record.Insert)))
	must(t, snk.Commit(t.Context(), position(1)))
	want(t, "rows", "7|70|c|cc\n9|90|d|dd", one(t, conn, "SELECT * FROM t ORDER BY id"))

	appending := startSink(t, sinkConfig(t, url), connector.Append, 1)
	must(t, appending.Write(t.Context(), connectortest.BatchOf(s, []string{"10", "100", `"e"`, `"?"`})))
	must(t, appending.Commit(t.Context(), position(2)))
	want(t, "an appended row", "10|100|e|ee", one(t, conn, "SELECT * FROM t WHERE id = 10"))
}

// case C050
func TestSinkTargetAlteredInTheMiddle(t *testing.T) {
	for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert} {
		t.Run(mode.String(), func(t *testing.T) {
			url, conn := db(t)
			sqlExec(t, conn, "CREATE TABLE t (id bigint PRIMARY KEY, n bigint, m integer)")
			s := keyed("t", idField, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "m", Type: arrow.PrimitiveTypes.Int32})
			snk := startSink(t, sinkConfig(t, url), mode, 1)
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"1", "4607182418800017408", "7"})))
			must(t, snk.Commit(t.Context(), position(1)))
			// The same width: a value that is taken for the old type would become another number without an error.
			sqlExec(t, conn, "ALTER TABLE t ALTER n TYPE numeric, ALTER m TYPE bigint")
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"2", "4607182418800017409", "8"})))
			must(t, snk.Commit(t.Context(), position(2)))
			sqlExec(t, conn, "ALTER TABLE t ALTER n TYPE text")
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"3", "4607182418800017410", "9"})))
			must(t, snk.Commit(t.Context(), position(3)))
			want(t, "rows", "1|4607182418800017408|7\n2|4607182418800017409|8\n3|4607182418800017410|9", one(t, conn, "SELECT * FROM t ORDER BY id"))
			sqlExec(t, conn, "ALTER TABLE t ALTER n TYPE bigint USING n::bigint")
			var many [][]string
			for i := range 2000 { // by way of a stage
				many = append(many, []string{strconv.Itoa(i + 10), "5", "6"})
			}
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, many...)))
			must(t, snk.Commit(t.Context(), position(4)))
			sqlExec(t, conn, "DROP TABLE t; CREATE TABLE t (m bigint, n text, id bigint PRIMARY KEY)")
			for i := range many {
				many[i][1] = "7"
			}
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, many...)))
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"4", "8", "9"})))
			must(t, snk.Commit(t.Context(), position(5)))
			want(t, "rows of the new table", "2001|6|7", one(t, conn, "SELECT count(*), min(m), min(n) FROM t"))
			sqlExec(t, conn, "ALTER TABLE t DROP n")
			err := snk.Write(t.Context(), connectortest.BatchOf(s, []string{"5", "1", "1"}))
			if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(connector.HintOf(err), `ADD COLUMN "n" bigint`) {
				t.Errorf("a dropped column: %v, hint %q", err, connector.HintOf(err))
			}
		})
	}
}

// cases C101, C105
func TestSinkBadRowIsNamed(t *testing.T) {
	const rows, bad = 20_000, 12_345
	for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert} {
		t.Run(mode.String(), func(t *testing.T) {
			url, conn := db(t)
			sqlExec(t, conn, "CREATE TABLE t (id bigint PRIMARY KEY, v text CHECK (v <> 'value 12345'))")
			snk := startSink(t, sinkConfig(t, url), mode, 1)
			b := connectortest.Numbered("t", 0, rows)
			got := rowErrorsOf(t, snk.Write(t.Context(), b))
			must(t, snk.Commit(t.Context(), position(1)))
			if len(got) != 1 || got[0].Index != bad {
				t.Fatalf("refused: %+v", got)
			}
			text := got[0].Reject.Error()
			for _, part := range []string{"t, key", `{"id":12345}`, `column "v"`, `value "value 12345"`, "t_v_check", "23514"} {
				if !strings.Contains(text, part) {
					t.Errorf("%q does not say %s", text, part)
				}
			}
			if string(got[0].Reject.Raw) != `{"id":12345,"v":"value 12345"}` {
				t.Errorf("the original row is %s", got[0].Reject.Raw)
			}
			want(t, "all others", strconv.Itoa(rows-1), one(t, conn, "SELECT count(*) FROM t"))
		})
	}
}

// case C025
func TestSinkNUL(t *testing.T) {
	for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert} {
		url, conn := db(t)
		sqlExec(t, conn, "CREATE TABLE t (id bigint PRIMARY KEY, v text, j jsonb)")
		s := keyed("t", idField, arrow.Field{Name: "v", Type: arrow.BinaryTypes.String, Nullable: true},
			arrow.Field{Name: "j", Type: record.JSONType(), Nullable: true})
		var rows [][]string
		for i := range 1000 {
			row := []string{strconv.Itoa(i), `"ok"`, `{"t":"x"}`}
			switch i {
			case 300:
				row[1] = `"ab\u0000cd"`
			case 700:
				row[2] = `{"t":"x\u0000y"}`
			}
			rows = append(rows, row)
		}
		snk := startSink(t, sinkConfig(t, url), mode, 1)
		mapping, err := snk.Map(t.Context(), s)
		must(t, err)
		if !mapping[1].Limits.NoNUL || !mapping[2].Limits.NoNUL {
			t.Errorf("the mapping does not say that NUL is refused: %+v", mapping)
		}
		got := rowErrorsOf(t, snk.Write(t.Context(), connectortest.BatchOf(s, rows...)))
		must(t, snk.Commit(t.Context(), position(1)))
		if len(got) != 2 || got[0].Index != 300 || got[1].Index != 700 {
			t.Errorf("refused: %+v", got)
		}
		want(t, "the others", "998", one(t, conn, "SELECT count(*) FROM t"))
	}
}

// cases C001, C002
func TestSinkNumericOfAnyPrecision(t *testing.T) {
	values := []string{"8", "12.125", "0.00000000000000000000000417", "98765432109876543210987654321098765432109.5", `"NaN"`, `"Infinity"`, `"-Infinity"`, "0.0"}
	s := keyed("t", idField, native("v", record.NumericType(), "numeric"))
	for _, reverse := range []bool{false, true} {
		url, conn := db(t)
		var rows [][]string
		for i, v := range values {
			rows = append(rows, []string{strconv.Itoa(i), v})
		}
		if reverse {
			slices.Reverse(rows)
		}
		snk := startSink(t, sinkConfig(t, url), connector.Append, 1)
		must(t, snk.Write(t.Context(), connectortest.BatchOf(s, rows...)))
		must(t, snk.Commit(t.Context(), position(1)))
		want(t, "values", "8\n12.125\n0.00000000000000000000000417\n98765432109876543210987654321098765432109.5\nNaN\nInfinity\n-Infinity\n0.0",
			one(t, conn, "SELECT v FROM t ORDER BY id"))
	}
}

// case C027
func TestSinkTypesOfTheSameSystem(t *testing.T) {
	url, conn := db(t)
	sqlExec(t, conn, "CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE DOMAIN price AS numeric(6,2) CHECK (VALUE > 0)")
	s := keyed("shop.t", idField,
		native("name", arrow.BinaryTypes.String, "character varying(20)"),
		native("mood", record.EnumType("mood", []string{"ok", "it's"}), "mood"),
		native("moods", record.ArrayType(record.EnumType("mood", []string{"ok", "it's"}), 1), "mood[]"),
		native("price", &arrow.Decimal128Type{Precision: 6, Scale: 2}, "price"),
		native("gone", &arrow.Decimal128Type{Precision: 6, Scale: 2}, "no_such_domain"),
		native("ci", arrow.BinaryTypes.String, "citext"),
		native("h", record.ForeignType("postgres", "hstore"), "hstore"),
		native("r", record.ForeignType("postgres", "int4range"), "int4range"),
		native("geo", record.ForeignType("postgres", "no_such_type"), "no_such_type"),
		native("stamp", arrow.FixedWidthTypes.Timestamp_us, "timestamp(3) with time zone"),
	)
	snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
	mapping, err := snk.Map(t.Context(), s)
	must(t, err)
	for _, m := range mapping {
		if m.Fidelity == connector.Inexact {
			t.Errorf("%+v", m)
		}
	}
	row := []string{"1", `"n"`, `"it's"`, `["ok",null,"it's"]`, "1.50", "2.50", `"Ci"`, `"\"a\"=>\"1\""`, `"[1,5)"`, `"POINT(1 2)"`, `"2026-01-02T03:04:05.678Z"`}
	must(t, snk.Write(t.Context(), connectortest.BatchOf(s, row)))
	must(t, snk.Commit(t.Context(), position(1)))
	row[2], row[7] = `"ok"`, `null`
	must(t, snk.Write(t.Context(), ops(connectortest.BatchOf(s, row), record.Update)))
	must(t, snk.Commit(t.Context(), position(2)))
	want(t, "types", "bigint\ncharacter varying(20)\nshop.mood\nshop.mood[]\nprice\nnumeric(6,2)\ncitext\nhstore\nint4range\ntext\ntimestamp(3) with time zone",
		one(t, conn, "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'shop.t'::regclass AND attnum > 0 ORDER BY attnum"))
	want(t, "labels", "{ok,it's}", one(t, conn, "SELECT enum_range(NULL::shop.mood)"))
	want(t, "row", `1|n|ok|{ok,NULL,it's}|1.50|2.50|Ci||[1,5)|POINT(1 2)|2026-01-02 03:04:05.678+00`, one(t, conn, "SELECT * FROM shop.t"))
	bad := rowErrorsOf(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"2", "null", "null", "null", "-1.00", "null", "null", "null", "null", "null", "null"})))
	if len(bad) != 1 || !strings.Contains(bad[0].Reject.Message, "price_check") {
		t.Errorf("a value that the domain refuses: %+v", bad)
	}
}

func TestSinkNarrowerTarget(t *testing.T) {
	url, conn := db(t)
	sqlExec(t, conn, `CREATE TABLE t (id integer PRIMARY KEY, s varchar(5), n numeric(6,2), small smallint, label text, extra text,
		day timestamp, f real, own integer)`)
	s := keyed("t", idField, arrow.Field{Name: "s", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "n", Type: record.NumericType()},
		arrow.Field{Name: "small", Type: arrow.PrimitiveTypes.Uint64}, arrow.Field{Name: "label", Type: arrow.PrimitiveTypes.Int32},
		arrow.Field{Name: "f", Type: arrow.PrimitiveTypes.Float64}, arrow.Field{Name: "own", Type: &arrow.Decimal128Type{Precision: 4}})
	snk := startSink(t, sinkConfig(t, url), connector.Append, 1)
	m, err := snk.Map(t.Context(), s)
	must(t, err)
	wants := []struct {
		fidelity connector.Fidelity
		limits   connector.Limits
	}{
		{connector.Checked, connector.Limits{Min: -1 << 31, Max: 1<<31 - 1}},
		{connector.Checked, connector.Limits{MaxChars: 5, NoNUL: true}},
		{connector.Checked, connector.Limits{Precision: 6, Scale: 2, NoInfinity: true}},
		{connector.Checked, connector.Limits{Min: -1 << 15, Max: 1<<15 - 1}},
		{connector.Exact, connector.Limits{}},
		{connector.Inexact, connector.Limits{}},
		{connector.Inexact, connector.Limits{}},
	}
	for i, w := range wants {
		if m[i].Fidelity != w.fidelity || !cmp.Equal(m[i].Limits, w.limits) {
			t.Errorf("column %s: %s with %+v, want %s with %+v", m[i].Column, m[i].Fidelity, m[i].Limits, w.fidelity, w.limits)
		}
	}
	bad := rowErrorsOf(t, snk.Write(t.Context(), connectortest.BatchOf(s,
		[]string{"1", `"abcde"`, "1234.50", "32767", "7", "1.5", "12"}, []string{"2", `"abcdef"`, "1", "1", "7", "1", "1"},
		[]string{"3", `"x"`, "12345", "1", "7", "1", "1"}, []string{"3000000000", `"x"`, "1", "1", "7", "1", "1"},
		[]string{"5", `"x"`, "1", "40000", "7", "1", "1"})))
	must(t, snk.Commit(t.Context(), position(1)))
	var refused []string
	for _, r := range bad {
		refused = append(refused, fmt.Sprint(r.Index, r.Reject.Column))
	}
	want(t, "refused rows", "1s|2|3id|4small", strings.Join(refused, "|"))
	want(t, "rows", "1|abcde|1234.50|32767|7|||1.5|12", one(t, conn, "SELECT * FROM t"))
}

func TestSinkMissingColumnsAndKeys(t *testing.T) {
	url, conn := db(t)
	sqlExec(t, conn, `CREATE TABLE t (id bigint, "Other" text NOT NULL)`)
	s := keyed("t", idField, arrow.Field{Name: "a b", Type: arrow.BinaryTypes.String, Nullable: true},
		native("c", arrow.BinaryTypes.String, "character varying(7)"))
	snk := openSink(t, sinkConfig(t, url))
	_, err := snk.Map(t.Context(), s)
	want(t, "missing columns", `ALTER TABLE "public"."t" ADD COLUMN "a b" text, ADD COLUMN "c" character varying(7); or leave the columns out (--columns)`,
		connector.HintOf(err))
	sqlExec(t, conn, connector.HintOf(err)[:strings.Index(connector.HintOf(err), ";")])
	_, err = snk.Map(t.Context(), s)
	want(t, "required columns", `ALTER TABLE "public"."t" ALTER COLUMN "Other" DROP NOT NULL; or give them a default`, connector.HintOf(err))
	sqlExec(t, conn, connector.HintOf(err)[:strings.Index(connector.HintOf(err), ";")])

	upsert := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
	err = upsert.Write(t.Context(), connectortest.BatchOf(s, []string{"1", "null", "null"}))
	want(t, "missing key", `ALTER TABLE "public"."t" ADD PRIMARY KEY ("id")`, connector.HintOf(err))
	must(t, upsert.Close(t.Context()))
	sqlExec(t, conn, "ALTER TABLE t ADD UNIQUE (id) DEFERRABLE")
	upsert = startSink(t, sinkConfig(t, url), connector.Upsert, 1)
	if err = upsert.Write(t.Context(), connectortest.BatchOf(s, []string{"1", "null", "null"})); err == nil || !strings.Contains(err.Error(), "deferrable") {
		t.Errorf("a deferrable key: %v", err)
	}
	must(t, upsert.Close(t.Context()))
	want(t, "deferrable key", `ALTER TABLE "public"."t" DROP CONSTRAINT "t_id_key", ADD UNIQUE ("id")`, connector.HintOf(err))
	sqlExec(t, conn, connector.HintOf(err))
	upsert = startSink(t, sinkConfig(t, url), connector.Upsert, 1)
	must(t, upsert.Write(t.Context(), connectortest.BatchOf(s, []string{"1", "null", "null"})))

	never := sinkConfig(t, url+"&create=never")
	snk = openSink(t, never)
	_, err = snk.Map(t.Context(), keyed("new", idField))
	want(t, "a table that may not be made", "CREATE SCHEMA IF NOT EXISTS \"public\"; CREATE TABLE \"public\".\"new\" (\n\t\"id\" bigint NOT NULL,\n\tPRIMARY KEY (\"id\")\n)",
		connector.HintOf(err))
	_, err = snk.Map(t.Context(), s)
	must(t, err)
	if _, err = snk.Map(t.Context(), &record.Schema{Dataset: "public.t", Columns: s.Columns}); connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("two datasets in one table: %v", err)
	}
}

// Values of keys that the server takes for equal although their text differs.
func TestSinkKeysThatOnlyTheServerCompares(t *testing.T) {
	url, conn := db(t)
	sqlExec(t, conn, `CREATE EXTENSION citext; CREATE TABLE t (id citext PRIMARY KEY, n numeric, v text); CREATE TABLE u (id numeric PRIMARY KEY, v text)`)
	snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
	s := keyed("t", arrow.Field{Name: "id", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "v", Type: arrow.BinaryTypes.String})
	must(t, snk.Write(t.Context(), ops(connectortest.BatchOf(s, []string{`"A"`, `"1"`}, []string{`"a"`, `"2"`}, []string{`"B"`, `"3"`}, []string{`"b"`, `"3"`}, []string{`"c"`, `"4"`}),
		record.Insert, record.Update, record.Insert, record.Delete, record.Insert)))
	u := keyed("u", arrow.Field{Name: "id", Type: record.NumericType()}, arrow.Field{Name: "v", Type: arrow.BinaryTypes.String})
	must(t, snk.Write(t.Context(), ops(connectortest.BatchOf(u, []string{"1.0", `"1"`}, []string{"1.00", `"2"`}), record.Insert, record.Update)))
	must(t, snk.Commit(t.Context(), position(1)))
	want(t, "rows", "A|2\nc|4", one(t, conn, "SELECT id, v FROM t ORDER BY id"))
	want(t, "rows", "2", one(t, conn, "SELECT v FROM u"))
}

// A swap of values of a second unique column inside one batch goes as it went in the source.
// clause E12
func TestSinkSecondUniqueColumn(t *testing.T) {
	url, conn := db(t)
	sqlExec(t, conn, "CREATE TABLE t (id bigint PRIMARY KEY, v text UNIQUE)")
	snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
	s := keyed("t", idField, arrow.Field{Name: "v", Type: arrow.BinaryTypes.String})
	must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"1", `"a"`}, []string{"2", `"b"`})))
	must(t, snk.Write(t.Context(), ops(connectortest.BatchOf(s, []string{"1", `"x"`}, []string{"2", `"a"`}, []string{"1", `"b"`}),
		record.Update, record.Update, record.Update)))
	must(t, snk.Commit(t.Context(), position(1)))
	want(t, "rows", "1|b\n2|a", one(t, conn, "SELECT * FROM t ORDER BY id"))
}

// A row of which only a part was sent, and which the target does not have, is refused: never filled with nulls.
func TestSinkUnchangedOfAMissingRow(t *testing.T) {
	url, conn := db(t)
	snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
	s := keyed("t", idField, arrow.Field{Name: "v", Type: arrow.BinaryTypes.String, Nullable: true}, arrow.Field{Name: "w", Type: arrow.BinaryTypes.String, Nullable: true})
	b := ops(connectortest.BatchOf(s, []string{"1", `"a"`, `"b"`}, []string{"2", `"c"`, "null"}, []string{"2", "null", `"d"`}, []string{"1", `"e"`, "null"},
		[]string{"3", `"f"`, "null"}, []string{"3", `"g"`, "null"}), record.Insert, record.Update, record.Update, record.Update, record.Update, record.Update)
	b.Unchanged = map[int][]uint64{1: {0b000100}, 2: {0b111010}}
	var refused []int
	for _, r := range rowErrorsOf(t, snk.Write(t.Context(), b)) {
		refused = append(refused, r.Index)
	}
	must(t, snk.Commit(t.Context(), position(1)))
	want(t, "refused", "[4 5]", fmt.Sprint(refused))
	// Both rows of key 2 together have every value, so they are a row.
	want(t, "rows", "1|e|b\n2|c|d", one(t, conn, "SELECT * FROM t ORDER BY id"))
}

package mysql

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// keyed is a schema whose first column is the key.
func keyed(dataset string, fields ...arrow.Field) *record.Schema {
	return &record.Schema{Dataset: dataset, Columns: arrow.NewSchema(fields, nil), Key: []int{0}}
}

var (
	idField   = arrow.Field{Name: "id", Type: arrow.PrimitiveTypes.Int64}
	textField = arrow.Field{Name: "v", Type: arrow.BinaryTypes.String, Nullable: true}
)

// nativeField is a column as the source of this package sends it.
func nativeField(name string, dt arrow.DataType, typ string) arrow.Field {
	return record.WithNative(arrow.Field{Name: name, Type: dt, Nullable: true}, record.Native{System: systemName, Type: typ})
}

func withOps(b *record.Batch, ops ...record.Op) *record.Batch {
	b.Ops = ops
	return b
}

// case C058
func TestSinkUpsertNeverHitsAnotherUniqueKey(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		sqlRun(t, db, "CREATE TABLE u (id bigint PRIMARY KEY, v varchar(20) UNIQUE) CHARACTER SET utf8mb4",
			"INSERT INTO u VALUES (2, 'q@x'), (3, 'c@x')")
		s := keyed("u", idField, textField)
		snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
		got := rowErrorsOf(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"1", `"a@x"`}, []string{"44", `"q@x"`}, []string{"3", `"C@x"`},
			[]string{"5", `"e@x"`})))
		must(t, snk.Commit(t.Context(), position(1)))
		if len(got) != 1 || got[0].Index != 1 {
			t.Fatalf("refused: %+v", got)
		}
		for _, part := range []string{"u, key", `{"id":44}`, `column "v"`, `value "q@x"`, "1062"} {
			if text := got[0].Reject.Error(); !strings.Contains(text+got[0].Reject.Code, part) {
				t.Errorf("%q does not say %s", text, part)
			}
		}
		want(t, "rows", "1|a@x\n2|q@x\n3|C@x\n5|e@x", one(t, db, "SELECT * FROM u ORDER BY id"))

		// What the source did one by one is no clash, though for a moment both rows seem to want one value.
		u := record.Update
		must(t, snk.Write(t.Context(), withOps(connectortest.BatchOf(s, []string{"1", `"free"`}, []string{"2", `"a@x"`}, []string{"1", `"q@x"`}), u, u, u)))
		must(t, snk.Commit(t.Context(), position(2)))
		want(t, "values that changed places", "1|q@x\n2|a@x", one(t, db, "SELECT * FROM u WHERE id < 3 ORDER BY id"))
	})
}

// Keys that an old table takes for equal though they are not never meet: the second one is refused, and no row is overwritten.
func TestSinkKeysThatTheTargetTakesForEqual(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		sqlRun(t, db, "CREATE TABLE k (k varchar(20) PRIMARY KEY, v text) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
		s := keyed("k", arrow.Field{Name: "k", Type: arrow.BinaryTypes.String}, textField)
		snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
		got := rowErrorsOf(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{`"a"`, `"1"`}, []string{`"A"`, `"2"`}, []string{`"a "`, `"3"`},
			[]string{`"b"`, `"4"`})))
		if len(got) != 2 || got[0].Index != 1 || got[1].Index != 2 {
			t.Errorf("refused: %+v", got)
		}
		must(t, snk.Write(t.Context(), withOps(connectortest.BatchOf(s, []string{`"B"`, "null"}, []string{`"a"`, `"5"`}), record.Delete, record.Upsert)))
		must(t, snk.Commit(t.Context(), position(1)))
		want(t, "rows", "a|5\nb|4", one(t, db, "SELECT * FROM k ORDER BY k"))

		// A table that leat makes tells them apart, blanks at the end included.
		s = keyed("made", arrow.Field{Name: "k", Type: arrow.BinaryTypes.String}, textField)
		rows := [][]string{{`"a"`, `"1"`}, {`"A"`, `"2"`}, {`"a "`, `"3"`}, {`"á"`, `"4"`}, {`"a\u0301"`, `"5"`}, {`""`, `"6"`}, {`" "`, `"7"`}}
		must(t, snk.Write(t.Context(), connectortest.BatchOf(s, rows...)))
		must(t, snk.Write(t.Context(), withOps(connectortest.BatchOf(s, []string{`"a "`, "null"}), record.Delete)))
		must(t, snk.Commit(t.Context(), position(2)))
		want(t, "rows of a table that was made", "6", one(t, db, "SELECT COUNT(*) FROM made"))
		want(t, "the row without a blank", "1", one(t, db, "SELECT v FROM made WHERE k = 'a'"))
	})
}

// cases C005, C007, C008, C009, C013, C014, C015, C019, C020: what the source of this package reads comes out as it was
func TestSinkTypesOfTheSameSystem(t *testing.T) {
	text := arrow.BinaryTypes.String
	columns := []struct {
		typ, doc, want string
		dt             arrow.DataType
	}{
		{"tinyint unsigned", "255", "255", arrow.PrimitiveTypes.Uint8},
		{"mediumint unsigned", "16777215", "16777215", arrow.PrimitiveTypes.Uint32},
		{"bigint unsigned", "18446744073709551615", "18446744073709551615", arrow.PrimitiveTypes.Uint64},
		{"tinyint(1)", "99", "99", arrow.PrimitiveTypes.Int8},
		{"tinyint(1)", "true", "1", arrow.FixedWidthTypes.Boolean},
		{"bit(9)", `"100000001"`, "257", record.BitsType(9, false)},
		{"bit(64)", `"` + strings.Repeat("1", 64) + `"`, "18446744073709551615", record.BitsType(64, false)},
		{"year(4)", "0", "0", arrow.PrimitiveTypes.Int16},
		{"date", `"0000-00-00"`, "0000-00-00", text},
		{"date", `"2023-05-00"`, "2023-05-00", text},
		{"datetime(6)", `"0000-00-00 00:00:00.000000"`, "0000-00-00 00:00:00.000000", text},
		{"timestamp", `"0000-00-00 00:00:00"`, "0000-00-00 00:00:00", text},
		{"timestamp", `"1970-01-01T00:00:01Z"`, "1970-01-01 00:00:01", record.InstantType()},
		{"timestamp(6)", `"2026-01-30T12:34:56.000001Z"`, "2026-01-30 12:34:56.000001", record.InstantType()},
		{"datetime", `"2026-01-30T12:34:56"`, "2026-01-30 12:34:56", &arrow.TimestampType{Unit: arrow.Microsecond}},
		{"time(6)", `"PT-838H-59M-59S"`, "-838:59:59.000000", arrow.FixedWidthTypes.Duration_us},
		{"time(6)", `"PT-0.000001S"`, "-00:00:00.000001", arrow.FixedWidthTypes.Duration_us},
		{"time", `"PT25H"`, "25:00:00", arrow.FixedWidthTypes.Duration_us},
		{"enum('1','0','2') CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", `"0"`, "0", record.EnumType("", nil)},
		{"set('a','b','d') CHARACTER SET latin1 COLLATE latin1_swedish_ci", `["a","d"]`, "a,d", arrow.ListOfNonNullable(text)},
		{"set('a','b','d') CHARACTER SET latin1 COLLATE latin1_swedish_ci", `[]`, "", arrow.ListOfNonNullable(text)},
		{"binary(16)", `"` + strings.Repeat("AAAA", 5) + `AA=="`, strings.Repeat("00", 16), arrow.BinaryTypes.Binary},
		{"varbinary(16)", `"AQA="`, "0100", arrow.BinaryTypes.Binary},
		{
			"decimal(65,30)", strings.Repeat("9", 35) + "." + strings.Repeat("9", 30), strings.Repeat("9", 35) + "." + strings.Repeat("9", 30),
			&arrow.Decimal256Type{Precision: 65, Scale: 30},
		},
		{"varchar(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci", `"grüße "`, "grüße ", text},
		{"char(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", `"ab"`, "ab", text},
		{"longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", `"😀\u0000\\"`, "😀\x00\\", text},
	}
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert} {
			url := mysqltest.Database(t, kind)
			db := watcher(t, url)
			fields, row := []arrow.Field{idField}, []string{"1"}
			for i, c := range columns {
				fields, row = append(fields, nativeField(fmt.Sprintf("c%d", i), c.dt, c.typ)), append(row, c.doc)
			}
			s := keyed("t", fields...)
			snk := startSink(t, sinkConfig(t, url), mode, 1)
			mapped, err := snk.Map(t.Context(), s)
			must(t, err)
			for i, m := range mapped[1:] {
				if m.Fidelity != connector.Exact {
					t.Errorf("%s is mapped to %s, %s: %s", columns[i].typ, m.Native, m.Fidelity, m.Why)
				}
			}
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, row)))
			must(t, snk.Commit(t.Context(), position(1)))
			for i, c := range columns {
				expr := fmt.Sprintf("c%d", i)
				switch {
				case strings.Contains(c.typ, "binary"):
					expr = "HEX(" + expr + ")"
				case strings.HasPrefix(c.typ, "bit"):
					expr += " + 0"
				case c.typ == "year(4)":
					expr += " + 0"
				}
				want(t, c.typ, c.want, one(t, db, "SELECT "+expr+" FROM t"))
				declared := one(t, db, fmt.Sprintf("SELECT COLUMN_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND COLUMN_NAME = 'c%d'", i))
				if kind == mysqltest.MariaDB || !strings.HasPrefix(c.typ, "year") {
					want(t, "the type", strings.Split(c.typ, " CHARACTER")[0], strings.NewReplacer("tinyint(3)", "tinyint", "mediumint(8)", "mediumint",
						"bigint(20)", "bigint").Replace(declared))
				}
			}
		}
	})
}

// cases C006, C007, C018, C019: values that an old table would change are refused, one by one
func TestSinkRefusesWhatTheTargetWouldChange(t *testing.T) {
	text := arrow.BinaryTypes.String
	cases := []struct {
		typ       string
		dt        arrow.DataType
		good, bad []string
	}{
		{"char(5)", text, []string{`"ab"`, `" ab"`}, []string{`"ab "`, `"abcdef"`}},
		{"varchar(3)", text, []string{`"ab "`, `"äöü"`}, []string{`"abcd"`, `"abc "`}},
		{"varchar(9) CHARACTER SET latin1", text, []string{`"é€"`}, []string{`"好"`, `"😀"`}},
		{"binary(4)", arrow.BinaryTypes.Binary, []string{`"AQIDBA=="`}, []string{`"AQID"`, `"AQIDBAU="`, `""`}},
		{"varbinary(2)", arrow.BinaryTypes.Binary, []string{`"AQA="`}, []string{`"AQID"`}},
		{
			"datetime(3)", &arrow.TimestampType{Unit: arrow.Microsecond},
			[]string{`"2026-01-01T00:00:00.123"`},
			[]string{`"2026-01-01T00:00:00.1234"`, `"+10000-01-01T00:00:00"`, `"-0001-01-01T00:00:00"`},
		},
		{"time", arrow.FixedWidthTypes.Duration_us, []string{`"PT25H"`, `"PT-1S"`}, []string{`"PT0.5S"`, `"PT839H"`}},
		{"float", arrow.PrimitiveTypes.Float64, []string{"0.5", "1.5"}, []string{"0.1", "16777217", `"NaN"`, "1e+300"}},
		{"decimal(5,2)", &arrow.Decimal128Type{Precision: 20, Scale: 4}, []string{"1.2500", "-999.9900"}, []string{"1.2340", "1000.0000"}},
		{"decimal(5,2) unsigned", &arrow.Decimal128Type{Precision: 5, Scale: 2}, []string{"1.25"}, []string{"-1.25"}},
		{"tinyint", arrow.PrimitiveTypes.Int64, []string{"-128"}, []string{"128", "9223372036854775807"}},
		{"int unsigned", arrow.PrimitiveTypes.Int64, []string{"4294967295"}, []string{"-1"}},
		{"year", arrow.PrimitiveTypes.Int32, []string{"1901"}, []string{"1900", "2156"}},
		{"enum('1','0','2')", text, []string{`"0"`, `"2"`}, []string{`"3"`, `""`, `"00"`, `"a"`}},
		{"set('a','b')", arrow.ListOf(text), []string{`["a","b"]`, `[]`}, []string{`["c"]`, `["b","a"]`, `["a","a"]`, `[null]`}},
		{"int NOT NULL", arrow.PrimitiveTypes.Int32, []string{"1"}, []string{"null"}},
		{
			"timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP", record.InstantType(),
			[]string{`"2038-01-19T03:14:07Z"`},
			[]string{"null", `"1970-01-01T00:00:00Z"`, `"1969-12-31T23:59:59Z"`},
		},
	}
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		for i, c := range cases {
			for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert} {
				name := fmt.Sprintf("t%d_%s", i, mode)
				sqlRun(t, db, fmt.Sprintf("CREATE TABLE %s (id bigint PRIMARY KEY, v %s) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", name, c.typ))
				s := keyed(name, idField, arrow.Field{Name: "v", Type: c.dt, Nullable: true})
				var rows [][]string
				for n, doc := range append(append([]string{}, c.good...), c.bad...) {
					rows = append(rows, []string{strconv.Itoa(n), doc})
				}
				snk := startSink(t, sinkConfig(t, url), mode, 1)
				got := rowErrorsOf(t, snk.Write(t.Context(), connectortest.BatchOf(s, rows...)))
				must(t, snk.Commit(t.Context(), position(1)))
				if len(got) != len(c.bad) || got[0].Index != len(c.good) {
					t.Errorf("%s, %s: refused are %+v", c.typ, mode, got)
				}
				for _, r := range got {
					if r.Reject.Column != "v" || len(r.Reject.Key) == 0 {
						t.Errorf("%s, %s: a refused row does not name key and column: %+v", c.typ, mode, r.Reject)
					}
				}
				want(t, c.typ+": the others", strconv.Itoa(len(c.good)), one(t, db, "SELECT COUNT(*) FROM "+name))
			}
		}
	})
}

// cases C101, C105
func TestSinkBadRowIsNamed(t *testing.T) {
	const rows, bad = 20_000, 12_345
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert} {
			url := mysqltest.Database(t, kind)
			db := watcher(t, url)
			sqlRun(t, db, "CREATE TABLE t (id bigint PRIMARY KEY, v varchar(20) CHECK (v <> 'value 12345'))")
			snk := startSink(t, sinkConfig(t, url), mode, 1)
			got := rowErrorsOf(t, snk.Write(t.Context(), connectortest.Numbered("t", 0, rows)))
			must(t, snk.Commit(t.Context(), position(1)))
			if len(got) != 1 || got[0].Index != bad {
				t.Fatalf("refused: %+v", got)
			}
			text := got[0].Reject.Error()
			for _, part := range []string{"t, key", `{"id":12345}`, `column "v"`, `value "value 12345"`} {
				if !strings.Contains(text, part) {
					t.Errorf("%q does not say %s", text, part)
				}
			}
			if string(got[0].Reject.Raw) != `{"id":12345,"v":"value 12345"}` {
				t.Errorf("the original row is %s", got[0].Reject.Raw)
			}
			want(t, "all others", strconv.Itoa(rows-1), one(t, db, "SELECT count(*) FROM t"))
		}
	})
}

// case C050
func TestSinkTargetAlteredInTheMiddle(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		for _, mode := range []connector.WriteMode{connector.Append, connector.Upsert} {
			url := mysqltest.Database(t, kind)
			db := watcher(t, url)
			sqlRun(t, db, "CREATE TABLE t (id bigint PRIMARY KEY, n bigint, m int)")
			s := keyed("t", idField, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "m", Type: arrow.PrimitiveTypes.Int32})
			snk := startSink(t, sinkConfig(t, url), mode, 1)
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"1", "4607182418800017408", "7"})))
			must(t, snk.Commit(t.Context(), position(1)))
			sqlRun(t, db, "ALTER TABLE t MODIFY n decimal(30,2), MODIFY m bigint")
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"2", "4607182418800017409", "8"})))
			must(t, snk.Commit(t.Context(), position(2)))
			want(t, "rows", "1|4607182418800017408.00|7\n2|4607182418800017409.00|8", one(t, db, "SELECT * FROM t ORDER BY id"))
			sqlRun(t, db, "DROP TABLE t", "CREATE TABLE t (m bigint, n text, id bigint PRIMARY KEY)")
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, []string{"4", "8", "9"})))
			must(t, snk.Commit(t.Context(), position(3)))
			want(t, "rows of the new table", "9|8|4", one(t, db, "SELECT * FROM t"))
			sqlRun(t, db, "ALTER TABLE t DROP n")
			err := snk.Write(t.Context(), connectortest.BatchOf(s, []string{"5", "1", "1"}))
			if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(connector.HintOf(err), "ADD COLUMN `n` bigint") {
				t.Errorf("a dropped column: %v, hint %q", err, connector.HintOf(err))
			}
		}
	})
}

// Rows and progress are one only in a table with transactions.
func TestSinkRefusesTablesWithoutTransactions(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		sqlRun(t, db, "CREATE TABLE t (id bigint PRIMARY KEY, v text) ENGINE=MyISAM", "CREATE VIEW w AS SELECT * FROM t")
		snk := startSink(t, sinkConfig(t, url), connector.Append, 1)
		_, err := snk.Map(t.Context(), keyed("t", idField, textField))
		if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(connector.HintOf(err), "ENGINE = InnoDB") {
			t.Errorf("MyISAM: %v, hint %q", err, connector.HintOf(err))
		}
		err = snk.Write(t.Context(), connectortest.Numbered("w", 0, 1))
		if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(err.Error(), "view") {
			t.Errorf("a view: %v", err)
		}
	})
}

package mysql_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// typeCase is a type with values as SQL, and how they come out.
type typeCase struct {
	typ    string
	values []string
	want   []string // as JSON
	kind   record.Kind
	only   mysqltest.Flavor // empty: both
}

// typeCases are the edges of every type.
func typeCases() []typeCase {
	return []typeCase{
		{"tinyint unsigned", []string{"255", "0"}, []string{"255", "0"}, record.Uint8, ""},
		{"smallint unsigned", []string{"65535"}, []string{"65535"}, record.Uint16, ""},
		{"mediumint unsigned", []string{"16777215"}, []string{"16777215"}, record.Uint32, ""},
		{"int unsigned", []string{"4294967295"}, []string{"4294967295"}, record.Uint32, ""},
		{"bigint unsigned", []string{"18446744073709551615", "9223372036854775808"}, []string{"18446744073709551615", "9223372036854775808"}, record.Uint64, ""},
		{"int(5) unsigned zerofill", []string{"7"}, []string{"7"}, record.Uint32, ""},
		{"tinyint", []string{"-128", "127"}, []string{"-128", "127"}, record.Int8, ""},
		{"tinyint(1)", []string{"-1", "0", "1", "2", "99"}, []string{"-1", "0", "1", "2", "99"}, record.Int8, ""},
		{"smallint", []string{"-32768", "32767"}, []string{"-32768", "32767"}, record.Int16, ""},
		{"mediumint", []string{"-8388608", "8388607"}, []string{"-8388608", "8388607"}, record.Int32, ""},
		{"int", []string{"-2147483648"}, []string{"-2147483648"}, record.Int32, ""},
		{"bigint", []string{"-9223372036854775808"}, []string{"-9223372036854775808"}, record.Int64, ""},
		{
			"float",
			[]string{"0.1", "3.4028234e38", "1.17549435e-38", "16777217", "1234567.8"},
			[]string{"0.1", "3.4028235e+38", "1.1754944e-38", "16777216", "1234567.8"},
			record.Float32, "",
		},
		{
			"double",
			[]string{"0.1", "1.7976931348623157e308", "5e-324", "9007199254740993"},
			[]string{"0.1", "1.7976931348623157e+308", "5e-324", "9007199254740992"},
			record.Float64, "",
		},
		{"decimal(5,2)", []string{"1.5", "-999.99", "0"}, []string{"1.50", "-999.99", "0.00"}, record.Decimal, ""},
		{"decimal(38,0)", []string{strings.Repeat("9", 38)}, []string{strings.Repeat("9", 38)}, record.Decimal, ""},
		{
			"decimal(65,30)",
			[]string{"-" + strings.Repeat("9", 35) + "." + strings.Repeat("9", 30), "0." + strings.Repeat("0", 29) + "1"},
			[]string{"-" + strings.Repeat("9", 35) + "." + strings.Repeat("9", 30), "0." + strings.Repeat("0", 29) + "1"},
			record.Decimal, "",
		},
		{"decimal(30,30)", []string{"0." + strings.Repeat("9", 30)}, []string{"0." + strings.Repeat("9", 30)}, record.Decimal, ""},
		{"decimal(6,2) unsigned", []string{"9999.99"}, []string{"9999.99"}, record.Decimal, ""},
		{"bit(1)", []string{"b'0'", "b'1'"}, []string{`"0"`, `"1"`}, record.Bits, ""},
		{"bit(9)", []string{"b'100000001'", "b'1'"}, []string{`"100000001"`, `"000000001"`}, record.Bits, ""},
		{"bit(64)", []string{"b'" + strings.Repeat("1", 64) + "'"}, []string{`"` + strings.Repeat("1", 64) + `"`}, record.Bits, ""},
		{"year", []string{"0", "1901", "2155"}, []string{"0", "1901", "2155"}, record.Int16, ""},
		{
			"date",
			[]string{"'9999-12-31'", "'1000-01-01'", "'0001-01-01'", "'1970-01-01'", "'2024-02-29'"},
			[]string{`"9999-12-31"`, `"1000-01-01"`, `"0001-01-01"`, `"1970-01-01"`, `"2024-02-29"`},
			record.Date, "",
		},
		{"datetime", []string{"'2026-01-30 12:34:56'"}, []string{`"2026-01-30T12:34:56"`}, record.Timestamp, ""},
		{
			"datetime(6)",
			[]string{"'9999-12-31 23:59:59.999999'", "'1000-01-01 00:00:00.000001'"},
			[]string{`"9999-12-31T23:59:59.999999"`, `"1000-01-01T00:00:00.000001"`},
			record.Timestamp, "",
		},
		{"datetime(3)", []string{"'2026-03-29 02:30:00.120'"}, []string{`"2026-03-29T02:30:00.12"`}, record.Timestamp, ""},
		{
			"timestamp",
			[]string{"'1970-01-01 00:00:01'", "'2026-01-30 12:34:56'"},
			[]string{`"1970-01-01T00:00:01Z"`, `"2026-01-30T12:34:56Z"`},
			record.Timestamp, "",
		},
		{"timestamp(6)", []string{"'2026-10-25 01:30:00.000001'"}, []string{`"2026-10-25T01:30:00.000001Z"`}, record.Timestamp, ""},
		{
			"time",
			[]string{"'838:59:59'", "'-838:59:59'", "'25:00:00'", "'00:00:00'"},
			[]string{`"PT838H59M59S"`, `"PT-838H-59M-59S"`, `"PT25H"`, `"PT0S"`},
			record.Duration, "",
		},
		{
			"time(6)",
			[]string{"'-838:59:59.000000'", "'-00:00:00.000001'", "'507:48:27.5'"},
			[]string{`"PT-838H-59M-59S"`, `"PT-0.000001S"`, `"PT507H48M27.5S"`},
			record.Duration, "",
		},
		{"char(5)", []string{"'ab '", "''"}, []string{`"ab"`, `""`}, record.String, ""},
		{"varchar(20)", []string{"' a '", "'\\0'"}, []string{`" a "`, `"\u0000"`}, record.String, ""},
		{"longtext", []string{"REPEAT('x', 3)"}, []string{`"xxx"`}, record.String, ""},
		{
			"binary(16)",
			[]string{"X'01020300'", "X'00'", "X'2020'"},
			[]string{`"AQIDAAAAAAAAAAAAAAAAAA=="`, `"AAAAAAAAAAAAAAAAAAAAAA=="`, `"ICAAAAAAAAAAAAAAAAAAAA=="`},
			record.Binary, "",
		},
		{"varbinary(16)", []string{"X'0100'", "X''"}, []string{`"AQA="`, `""`}, record.Binary, ""},
		{"blob", []string{"X'00ff'"}, []string{`"AP8="`}, record.Binary, ""},
		{
			"enum('1','0','2','it''s','a,b','','\\\\')",
			[]string{"'0'", "'it''s'", "'a,b'", "''", "'\\\\'"},
			[]string{`"0"`, `"it's"`, `"a,b"`, `""`, `"\\"`},
			record.Enum, "",
		},
		{"set('a','b','d')", []string{"'a,d'", "''", "'b'"}, []string{`["a","d"]`, `[]`, `["b"]`}, record.List, ""},
		{"json", []string{`'{"b":1,"a":[1,null]}'`}, []string{`{"a": [1, null], "b": 1}`}, record.JSON, mysqltest.MySQL},
		{
			"json",
			[]string{`JSON_OBJECT('a',1.0,'b',CAST(2.50 AS DECIMAL(5,2)),'c',18446744073709551615)`},
			[]string{`{"a": 1.0, "b": 2.50, "c": 18446744073709551615}`},
			record.JSON, mysqltest.MySQL,
		},
		{"json", []string{`'{"b":1, "a":1.0}'`}, []string{`{"b":1, "a":1.0}`}, record.JSON, mysqltest.MariaDB},
		{"geometry", []string{"ST_GeomFromText('POINT(1 2)')"}, []string{`"AQEAAAAAAAAAAADwPwAAAAAAAABA"`}, record.Binary, ""},
		{"point", []string{"ST_GeomFromText('POINT(1 2)', 3857)"}, []string{`"AQEAACARDwAAAAAAAAAA8D8AAAAAAAAAQA=="`}, record.Binary, ""},
		{"uuid", []string{"'01234567-89ab-4def-8123-456789abcdef'"}, []string{`"01234567-89ab-4def-8123-456789abcdef"`}, record.UUID, mysqltest.MariaDB},
		{"inet6", []string{"'2001:db8::1'", "'::ffff:192.0.2.1'", "'::'"}, []string{`"2001:db8::1"`, `"::ffff:192.0.2.1"`, `"::"`}, record.Network, mysqltest.MariaDB},
		{"inet4", []string{"'192.0.2.1'"}, []string{`"192.0.2.1"`}, record.Network, mysqltest.MariaDB},
		{"vector(3)", []string{"TO_VECTOR('[1,-0.5,3.25]')"}, []string{"[1,-0.5,3.25]"}, record.List, mysqltest.MySQL},
	}
}

// Every type is read exactly, whatever the zones, the character set and the modes of the server are.
// cases C005, C007, C008, C009, C014, C015, C019, C020, C022.
func TestTypes(t *testing.T) {
	for _, f := range mysqltest.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			readTypes(t, f, mysqltest.Database(t, f))
		})
		t.Run(string(f)+" in Kathmandu", func(t *testing.T) {
			s := mysqltest.Server(t, f, "TZ=Asia/Kathmandu", "default_time_zone=-11:30", "character_set_server=latin1",
				"collation_server=latin1_german1_ci", "sql_mode=ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT")
			readTypes(t, f, s.Database())
		})
	}
}

func readTypes(t *testing.T, f mysqltest.Flavor, url string) {
	t.Helper()
	for i, c := range typeCases() {
		if c.only != "" && c.only != f {
			continue
		}
		table := fmt.Sprintf("t%d", i)
		const session = "SET time_zone = '+00:00', sql_mode = ''; SET NAMES utf8mb4; "
		statements := []string{session + fmt.Sprintf("CREATE TABLE %s (id int PRIMARY KEY, v %s NULL)", table, c.typ)}
		for j, v := range append(slices.Clone(c.values), "NULL") {
			statements = append(statements, session+fmt.Sprintf("INSERT INTO %s VALUES (%d, %s)", table, j, v))
		}
		mysqltest.Exec(t, url, statements...)
		roads := []map[string]string{{"table": table}, {"query": "SELECT * FROM " + table, "key": "id"}}
		if c.kind == record.JSON && f == mysqltest.MariaDB { // what a query returns is text there
			roads = roads[:1]
		}
		for _, options := range roads {
			p := readAll(t, url, options)
			rows, schema := p.only(t)
			if len(p.rejects) > 0 {
				t.Errorf("%s: set aside: %v", c.typ, p.rejects)
			}
			var want []string
			for j, v := range append(slices.Clone(c.want), "null") {
				want = append(want, fmt.Sprintf(`{"id":%d,"v":%s}`, j, v))
			}
			sameRows(t, c.typ+fmt.Sprint(options), want, rows)
			kind, err := record.TypeOf(schema.Columns.Field(1).Type)
			if err != nil || (kind.Kind != c.kind && options["table"] != "") {
				t.Errorf("%s is read as %s, want %s (%v)", c.typ, kind, c.kind, err)
			}
		}
	}
}

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/engine"
	"github.com/leatdata/leat/internal/pgtest"
)

// sameType is a type, whether rows with it may be passed on as they come, and values at its edges.
type sameType struct {
	sql    string
	asIs   bool
	values []string
}

func sameTypes() []sameType {
	return []sameType{
		{"bool", true, []string{"t", "f"}},
		{"int2", true, []string{"-32768", "32767"}},
		{"int4", true, []string{"-2147483648", "2147483647"}},
		{"int8", true, []string{"-9223372036854775808", "9223372036854775807"}},
		{"float4", true, []string{"0.1", "NaN", "-Infinity", "1e-45", "-0"}},
		{"float8", true, []string{"0.1", "NaN", "Infinity", "5e-324", "-0"}},
		{"numeric", true, []string{"NaN", "Infinity", "-Infinity", "0.0", "1e-40", "10000", strings.Repeat("9", 200)}},
		{"numeric(12,2)", true, []string{"1.5", "NaN", "-9999999999.99"}},
		{"numeric(3,-2)", true, []string{"12300"}},
		{"price", true, []string{"1.5"}}, // a domain: its values are those of numeric(6,2)
		{"mood", false, []string{"it's"}},
		{"mood[]", false, []string{`{"it's",NULL}`}},
		{"text", true, []string{"", "a\tb\nc\\N", "\u00e9\U0001F600", strings.Repeat("long ", 30_000)}},
		{"varchar(20)", true, []string{" a ", ""}},
		{"char(5)", true, []string{"ab", "é"}},
		{"name", true, []string{"ab"}},
		{`"char"`, false, []string{"x"}},
		{"bytea", true, []string{`\x00ff5c`, ""}},
		{"uuid", true, []string{"01234567-89ab-cdef-0123-456789abcdef"}},
		{"json", true, []string{`{ "a":1,"a":2}`, `"x\u0000y"`}},
		{"jsonb", true, []string{`{"b":1,"a":1.0}`, "null"}},
		{"date", true, []string{"-infinity", "infinity", "4713-01-01 BC", "5874897-12-31"}},
		{"time", true, []string{"24:00:00", "01:02:03.000001"}},
		{"time(3)", true, []string{"01:02:03.5"}},
		{"timetz", false, []string{"01:02:03.5+05:45"}},
		{"timestamp", true, []string{"infinity", "-infinity", "0044-03-15 01:02:03 BC", "294276-12-31 23:59:59.999999"}},
		{"timestamptz", true, []string{"2026-01-01 00:00:00.123456+02", "infinity"}},
		{"bit(3)", true, []string{"101"}},
		{"varbit", true, []string{"", "1"}},
		{"inet", true, []string{"10.1.2.3/8", "::1"}},
		{"cidr", true, []string{"10.0.0.0/8"}},
		{"macaddr", true, []string{"08:00:2b:01:02:03"}},
		{"macaddr8", true, []string{"08:00:2b:01:02:03:04:05"}},
		{"int4range", false, []string{"[1,5]"}},
		{"citext", false, []string{"MiXed"}},
		{"xml", false, []string{"<a>1</a>"}},
		{"text[]", true, []string{`{"a,b","c\"d",""}`, `[0:1]={x,NULL}`}},
		{"int4[]", true, []string{"{{1,2},{3,4}}", "{}", "[-1:0][5:5]={{1},{NULL}}"}},
		{"timestamptz[]", true, []string{`{"2026-01-01 00:00+02",infinity,NULL}`}},
		{"numeric(6,2)[]", true, []string{"{1.5,NULL}"}},
		{"json[]", true, []string{`{"{\"a\": [1]}",NULL}`}},
	}
}

// userTypes are in every database, under other numbers.
func userTypes() []string {
	return []string{
		`CREATE EXTENSION citext`, `CREATE TYPE mood AS ENUM ('1', 'it''s')`, `CREATE DOMAIN price AS numeric(6,2)`,
	}
}

// typed makes a database with a table for each type, under its number.
func typed(t *testing.T, url string, types []sameType) {
	t.Helper()
	sql := userTypes()
	for i, typ := range types {
		sql = append(sql, fmt.Sprintf("CREATE TABLE t%02d (id int PRIMARY KEY, v %s)", i, typ.sql), fmt.Sprintf("INSERT INTO t%02d (id) VALUES (0)", i))
		for n, v := range typ.values {
			sql = append(sql, fmt.Sprintf("INSERT INTO t%02d VALUES (%d, '%s'::%s)", i, n+1, strings.ReplaceAll(v, "'", "''"), typ.sql))
		}
	}
	statements(t, pgtest.Conn(t, url), sql...)
}

func statements(t *testing.T, c *pgx.Conn, sql ...string) {
	t.Helper()
	for _, s := range sql {
		if _, err := c.Exec(context.Background(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// databaseOn makes a database on one of the two servers.
func databaseOn(t *testing.T, server string) string {
	t.Helper()
	usual := os.Getenv("LEAT_TEST_POSTGRES")
	if os.Getenv(server) == "" {
		t.Skip(server + " is not set")
	}
	t.Setenv("LEAT_TEST_POSTGRES", os.Getenv(server))
	url := pgtest.Database(t)
	t.Setenv("LEAT_TEST_POSTGRES", usual)
	return url
}

// sameKind copies all tables of one database into another one.
type sameKind struct {
	from, to string
	mode     connector.WriteMode
	decoded  bool
}

func (c sameKind) plan(t *testing.T) engine.Plan {
	t.Helper()
	to := sinkAt(t, c.to)
	p := engine.Plan{
		Name: "copy", Source: sourceAt(t, system{typed: true, all: func(url string) string { return url }}, c.from, nil),
		Sinks: []engine.SinkSpec{{Name: "to", Connector: to.connector, Config: to.cfg, Mode: &c.mode}},
	}
	if c.decoded {
		p.BadRows.Action = engine.SetAside
	}
	return p
}

// run returns why rows were decoded, by table; empty: they were not.
func (c sameKind) run(t *testing.T) (why map[string]string, err error) {
	t.Helper()
	r, err := engine.Check(t.Context(), c.plan(t), deps(t, &rejects{}))
	if err != nil || !r.OK() {
		t.Fatal(err, r.Problems)
	}
	why = map[string]string{}
	for _, d := range r.Sinks[0].Datasets {
		why[bare(d.Dataset)] = d.WhyDecoded
		if (d.Encoding == "") != (d.WhyDecoded != "") {
			t.Errorf("%s: encoding %q, decoded because %q", d.Dataset, d.Encoding, d.WhyDecoded)
		}
	}
	_, err = engine.Run(t.Context(), c.plan(t), deps(t, &rejects{}))
	return why, err
}

// bytesOf is a table as its server sends it.
func bytesOf(t *testing.T, c *pgx.Conn, what string) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := c.PgConn().CopyTo(t.Context(), &b, "COPY ("+what+") TO STDOUT (FORMAT binary)"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every type between two servers, also of different versions: rows with types that every server knows by the same number are passed on as
// they come, into tables that are there and into ones that are made; the target holds the same bytes as where they were decoded.
//
// clause S27.
func TestPassedOn(t *testing.T) {
	for name, servers := range map[string][2]string{
		"15":       {"LEAT_TEST_POSTGRES", "LEAT_TEST_POSTGRES"},
		"15 to 18": {"LEAT_TEST_POSTGRES", "LEAT_TEST_POSTGRES18"},
		"18 to 15": {"LEAT_TEST_POSTGRES18", "LEAT_TEST_POSTGRES"},
	} {
		t.Run(name, func(t *testing.T) {
			from, types := databaseOn(t, servers[0]), sameTypes()
			typed(t, from, types)
			source := pgtest.Conn(t, from)
			for _, mode := range []connector.WriteMode{connector.Append, connector.Replace} {
				made := databaseOn(t, servers[1])
				statements(t, pgtest.Conn(t, made), userTypes()...)
				for i := range 2 { // the second time the tables are there
					target := pgtest.Conn(t, made)
					why, err := sameKind{from: from, to: made, mode: mode}.run(t)
					if err != nil {
						t.Fatal(err)
					}
					for n, typ := range types {
						table := fmt.Sprintf("t%02d", n)
						if (why[table] == "") != typ.asIs {
							t.Errorf("%s, mode %s, copy %d: decoded because %q", typ.sql, mode, i, why[table])
						}
						rows := "SELECT id, v::text FROM " + table + " ORDER BY id"
						if typ.asIs {
							rows = "SELECT * FROM " + table + " ORDER BY id"
						}
						if bytesOf(t, target, rows) != bytesOf(t, source, rows) {
							t.Errorf("%s, mode %s, copy %d: the target has other values", typ.sql, mode, i)
						}
						if mode == connector.Append {
							statements(t, target, "TRUNCATE "+table)
						}
					}
				}
			}
		})
	}
}

// An infinite interval is a finite one to servers before version 17: only between servers that mean the same by its bytes it is passed on.
//
// clause S27; case C012.
func TestInfiniteIntervals(t *testing.T) {
	const old, young = "LEAT_TEST_POSTGRES", "LEAT_TEST_POSTGRES18"
	for _, c := range []struct {
		from, to, value string
		asIs            bool
	}{
		{old, old, "1 mon", true}, {young, young, "infinity", true}, {old, young, "1 mon", false}, {young, old, "1 mon", false},
	} {
		from, to := databaseOn(t, c.from), databaseOn(t, c.to)
		source := pgtest.Conn(t, from)
		statements(t, source, "CREATE TABLE t (id int PRIMARY KEY, v interval, l interval[])",
			fmt.Sprintf("INSERT INTO t VALUES (1, '%s', '{%s}')", c.value, c.value))
		why, err := sameKind{from: from, to: to}.run(t)
		if err != nil || (why["t"] == "") != c.asIs {
			t.Fatalf("%s to %s: %v, decoded because %q", c.from, c.to, err, why["t"])
		}
		if what := "SELECT * FROM t"; bytesOf(t, source, what) != bytesOf(t, pgtest.Conn(t, to), what) {
			t.Errorf("%s to %s: the target has another value", c.from, c.to)
		}
	}
}

// A target whose columns are not the very same ones gets decoded rows, and the plan says which column; what it refuses of rows that are
// passed on is told as it is of decoded ones.
//
// clause S27.
func TestNotPassedOn(t *testing.T) {
	from := pgtest.Database(t)
	statements(t, pgtest.Conn(t, from), `CREATE TABLE t (id int PRIMARY KEY, v varchar(20))`, `INSERT INTO t SELECT i, nullif('v' || i, 'v77') FROM generate_series(1, 100) i`)
	for _, c := range []struct{ table, why, err string }{
		{"(id int, v varchar(20))", "", ""},
		{"(v varchar(20), extra text, id int)", "", ""}, // columns are named
		{"(id int, v varchar)", "", ""},
		{"(id bigint, v varchar(20))", `column "id" is integer at the source and bigint at the target`, ""},
		{"(id int, v text)", `column "v" is character varying(20) at the source and text at the target`, ""},
		{"(id int, v varchar(3))", `the values of column "v" are checked`, `"v100"`},
		{"(id int, v varchar(20) NOT NULL)", "", `"id":77`},
		{"(id int PRIMARY KEY, v varchar(20) CHECK (v <> 'v9'))", "", `"id":9`},
		{"(id int, v varchar(20), n int GENERATED ALWAYS AS (id + 1) STORED)", "", ""},
		{"(id int GENERATED ALWAYS AS IDENTITY, v varchar(20))", "", ""},
	} {
		texts := map[bool]string{}
		for _, decoded := range []bool{false, true} {
			to := pgtest.Database(t)
			target := pgtest.Conn(t, to)
			statements(t, target, "CREATE TABLE t "+c.table)
			copying := sameKind{from: from, to: to, decoded: decoded}
			if decoded {
				copying.decoded = false
				plan := copying.plan(t)
				plan.Limit = 1000
				_, err := engine.Run(t.Context(), plan, deps(t, nil))
				texts[true] = fmt.Sprint(err)
				continue
			}
			why, err := copying.run(t)
			texts[false] = fmt.Sprint(err)
			if (c.why == "") != (why["t"] == "") || !strings.Contains(why["t"], c.why) {
				t.Errorf("%s: decoded because %q", c.table, why["t"])
			}
			var n int
			if err := target.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil || c.err == "" && n != 100 || c.err != "" && n != 0 {
				t.Errorf("%s: %d rows, %v", c.table, n, err)
			}
		}
		if texts[false] != texts[true] || c.err == "" && texts[false] != "<nil>" || !strings.Contains(texts[false], c.err) {
			t.Errorf("%s:\nas they came: %s\ndecoded:      %s", c.table, texts[false], texts[true])
		}
	}
}

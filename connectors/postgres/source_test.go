package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/postgres"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// pass is what one run of a source delivered.
type pass struct {
	rows    map[string][]string
	schemas map[string]*record.Schema
	rejects []record.Reject
	end     record.Position
	marks   []record.Position
}

// readFrom runs a source from a position to its end.
func readFrom(t testing.TB, cfg *postgres.SourceConfig, from record.Position) (*pass, error) {
	t.Helper()
	return readEach(t, cfg, from, func(*record.Batch) {})
}

func readEach(t testing.TB, cfg *postgres.SourceConfig, from record.Position, each func(*record.Batch)) (*pass, error) {
	t.Helper()
	src, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := src.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	start := connector.SourceStart{}
	if !from.Zero() {
		start.From = connector.From{Origin: connector.Resume, Attempt: 1, Position: from}
	}
	if err := src.Start(t.Context(), start); err != nil {
		return nil, err
	}
	p := &pass{rows: map[string][]string{}, schemas: map[string]*record.Schema{}}
	for {
		b, err := src.Read(t.Context(), connector.Limit{Rows: 1000, Bytes: 1 << 20})
		if errors.Is(err, io.EOF) {
			return p, nil
		}
		if err != nil {
			return p, err
		}
		name := b.Schema.Dataset
		p.rows[name] = append(p.rows[name], connectortest.Rows(b)...)
		p.schemas[name] = b.Schema
		p.rejects = append(p.rejects, b.Rejects...)
		if !b.Position.Zero() {
			p.end = b.Position
			p.marks = append(p.marks, b.Position)
		}
		each(b)
	}
}

func readAll(t testing.TB, db string, options map[string]string) *pass {
	t.Helper()
	p, err := readFrom(t, sourceConfig(t, db, options), record.Position{})
	if err != nil {
		t.Fatalf("%v (%s)", err, connector.HintOf(err))
	}
	return p
}

func sameRows(t testing.TB, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, got...)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Every type is read exactly, whatever the settings of database and role say about text forms.
// cases C001, C002, C012, C016, C019, C021, C026, C027.
func TestTypes(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE EXTENSION citext`, `CREATE EXTENSION hstore`, `CREATE EXTENSION ltree`,
		`CREATE TYPE mood AS ENUM ('1', 'it''s', '0', 'two words')`, `CREATE DOMAIN price AS numeric(6,2)`, `CREATE DOMAIN prices AS price[]`,
		`CREATE TYPE pair AS (a int, b text)`,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET intervalstyle = sql_standard', current_database());
			EXECUTE format('ALTER DATABASE %I SET datestyle = ''German, DMY''', current_database());
			EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Kathmandu''', current_database());
			EXECUTE format('ALTER DATABASE %I SET bytea_output = escape', current_database());
			EXECUTE format('ALTER DATABASE %I SET extra_float_digits = 0', current_database()); END $$`)
	for _, c := range []struct {
		typ    string
		values []string
		want   []string
		kind   record.Kind
		native string
	}{
		{
			"numeric",
			[]string{"NaN", "Infinity", "-Infinity", "0.0", "98765432109876543210987654321098765432109.5"},
			[]string{`"NaN"`, `"Infinity"`, `"-Infinity"`, "0.0", "98765432109876543210987654321098765432109.5"},
			record.Numeric, "numeric",
		},
		{"numeric(12,2)", []string{"1.5", "-9999999999.99"}, []string{"1.50", "-9999999999.99"}, record.Decimal, "numeric(12,2)"},
		{"numeric(3,-2)", []string{"12300"}, []string{"12300"}, record.Numeric, "numeric(3,-2)"},
		{"numeric(100,10)", []string{"1"}, []string{"1.0000000000"}, record.Numeric, "numeric(100,10)"},
		{"float4", []string{"0.1", "NaN"}, []string{"0.1", `"NaN"`}, record.Float32, "real"},
		{"float8", []string{"0.1", "-0"}, []string{"0.1", "-0"}, record.Float64, "double precision"},
		{"price", []string{"1.5"}, []string{"1.50"}, record.Decimal, "public.price"},
		{"prices", []string{"{1.5,NULL}"}, []string{"[1.50,null]"}, record.Array, "public.prices"},
		{"price[]", []string{"{1.5,NULL}"}, []string{"[1.50,null]"}, record.Array, "public.price[]"},
		{"mood", []string{"0", "it's"}, []string{`"0"`, `"it's"`}, record.Enum, "public.mood"},
		{"mood[]", []string{`{"it's",NULL,0}`}, []string{`["it's",null,"0"]`}, record.Array, "public.mood[]"},
		{"varchar(20)", []string{" a "}, []string{`" a "`}, record.String, "character varying(20)"},
		{"char(5)", []string{"ab"}, []string{`"ab   "`}, record.String, "character(5)"},
		{"name", []string{"ab"}, []string{`"ab"`}, record.String, "name"},
		{`"char"`, []string{"x"}, []string{`"x"`}, record.String, `"char"`},
		{"bytea", []string{`\x00ff5c`, ""}, []string{`"AP9c"`, `""`}, record.Binary, "bytea"},
		{"uuid", []string{"01234567-89ab-cdef-0123-456789abcdef"}, []string{`"01234567-89ab-cdef-0123-456789abcdef"`}, record.UUID, "uuid"},
		{"json", []string{`{ "a":1,"a":2}`}, []string{`{ "a":1,"a":2}`}, record.JSON, "json"},
		{"jsonb", []string{`{"b":1,"a":1.0}`}, []string{`{"a": 1.0, "b": 1}`}, record.JSON, "jsonb"},
		{"date", []string{"-infinity", "0044-03-15 BC", "15000-06-01"}, []string{`"-infinity"`, `"-0043-03-15"`, `"+15000-06-01"`}, record.Date, "date"},
		{"time(3)", []string{"24:00:00", "01:02:03.5"}, []string{`"24:00:00"`, `"01:02:03.5"`}, record.Time, "time(3) without time zone"},
		{"timetz", []string{"01:02:03.5+05:45"}, []string{`"01:02:03.5+05:45"`}, record.Foreign, "time with time zone"},
		{
			"timestamp",
			[]string{"infinity", "0044-03-15 01:02:03 BC"},
			[]string{`"infinity"`, `"-0043-03-15T01:02:03"`},
			record.Timestamp,
			"timestamp without time zone",
		},
		{
			"timestamptz",
			[]string{"2026-01-01 00:00:00.123456+02"},
			[]string{`"2025-12-31T22:00:00.123456Z"`},
			record.Timestamp,
			"timestamp with time zone",
		},
		{"interval", []string{"1 mon -1 day 00:00:00.000001", "-13 mons"}, []string{`"P1M-1DT0.000001S"`, `"P-1Y-1M"`}, record.Interval, "interval"},
		{"bit(3)", []string{"101"}, []string{`"101"`}, record.Bits, "bit(3)"},
		{"varbit", []string{""}, []string{`""`}, record.Bits, "bit varying"},
		{"inet", []string{"10.1.2.3/8", "10.1.2.3"}, []string{`"10.1.2.3/8"`, `"10.1.2.3"`}, record.Network, "inet"},
		{"macaddr8", []string{"08:00:2b:01:02:03:04:05"}, []string{`"08:00:2b:01:02:03:04:05"`}, record.Network, "macaddr8"},
		{"int4range", []string{"[1,5]", "empty"}, []string{`"[1,6)"`, `"empty"`}, record.Foreign, "int4range"},
		{"int4range[]", []string{`{"[1,5]",NULL}`}, []string{`["[1,6)",null]`}, record.Array, "int4range[]"},
		{"int4multirange", []string{"{[1,2],[5,7]}"}, []string{`"{[1,3),[5,8)}"`}, record.Foreign, "int4multirange"},
		{"pair", []string{`(1,"a,b")`, "(,)"}, []string{`"(1,\"a,b\")"`, `"(,)"`}, record.Foreign, "public.pair"},
		{"citext", []string{"MiXed"}, []string{`"MiXed"`}, record.Foreign, "public.citext"},
		{"hstore", []string{`a=>1,b=>NULL`}, []string{`"\"a\"=>\"1\", \"b\"=>NULL"`}, record.Foreign, "public.hstore"},
		{"ltree", []string{"a.b"}, []string{`"a.b"`}, record.Foreign, "public.ltree"},
		{"xml", []string{"<a>1</a>"}, []string{`"<a>1</a>"`}, record.Foreign, "xml"},
		{"tsvector", []string{"b a"}, []string{`"'a' 'b'"`}, record.Foreign, "tsvector"},
		{"pg_lsn", []string{"16/B374D848"}, []string{`"16/B374D848"`}, record.Foreign, "pg_lsn"},
		{"oid", []string{"4294967295"}, []string{`"4294967295"`}, record.Foreign, "oid"},
		{"point", []string{"(0.1,2)"}, []string{`"(0.1,2)"`}, record.Foreign, "point"},
		{"text[]", []string{`{"a,b","c\"d",""}`, `[0:1]={x,NULL}`}, []string{`["a,b","c\"d",""]`, `{"lower":[0],"values":["x",null]}`}, record.Array, "text[]"},
		{"int4[]", []string{"{{1,2},{3,4}}", "{}"}, []string{"[[1,2],[3,4]]", "[]"}, record.Array, "integer[]"},
		{"bytea[]", []string{`{"\\x00",NULL}`}, []string{`["AA==",null]`}, record.Array, "bytea[]"},
		{"int2vector", []string{"1 2"}, []string{`"1 2"`}, record.Foreign, "int2vector"},
	} {
		t.Run(c.typ, func(t *testing.T) {
			must(t, conn, "DROP TABLE IF EXISTS v", "CREATE TABLE v (id serial PRIMARY KEY, v "+c.typ+")")
			for _, v := range c.values {
				must(t, conn, fmt.Sprintf("INSERT INTO v (v) VALUES ('%s'::%s)", strings.ReplaceAll(v, "'", "''"), c.typ))
			}
			must(t, conn, "INSERT INTO v (v) VALUES (NULL)")
			var want []string
			for i, v := range append(c.want, "null") {
				want = append(want, fmt.Sprintf(`{"id":%d,"v":%s}`, i+1, v))
			}
			for name, options := range map[string]map[string]string{
				"table": {"table": "v"}, "blocks": {"table": "v", "chunks": "block"}, "query": {"query": "SELECT id, v FROM v ORDER BY id"},
				"cursor": {"table": "v", "cursor": "id"},
			} {
				p := readAll(t, db, options)
				dataset := slices.Collect(mapsKeys(p.rows))[0]
				sameRows(t, name, want, p.rows[dataset])
				f := p.schemas[dataset].Columns.Field(1)
				rt, err := record.TypeOf(f.Type)
				if err != nil {
					t.Fatal(err)
				}
				native := c.native
				if name == "query" && strings.HasPrefix(native, "public.price") {
					native = record.NativeOf(f).Type // the server describes the columns of queries without domains
				}
				if n := record.NativeOf(f); rt.Kind != c.kind || n.System != "postgres" || n.Type != native {
					t.Errorf("%s: %s from %+v, want %s from %s", name, rt, n, c.kind, native)
				}
			}
		})
	}
}

func mapsKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// A value that a fast type can't hold sets its row aside, with what to type; the slower type holds it.
// cases C001, C012, C105.
func TestValuesThatDoNotFit(t *testing.T) {
	db := pgtest.Database(t)
	must(t, pgtest.Conn(t, db), `CREATE TABLE v (id int PRIMARY KEY, a numeric(12,2), t timestamptz)`,
		`INSERT INTO v VALUES (1, 1, now()), (2, 'NaN', '2026-01-01Z'), (3, 3, '294276-12-31Z')`)
	p := readAll(t, db, map[string]string{"table": "v"})
	if len(p.rows["public.v"]) != 1 || len(p.rejects) != 2 {
		t.Fatalf("rows %v, rejects %v", p.rows, p.rejects)
	}
	for i, want := range []string{"types=a:numeric", "types=t:text"} {
		if r := p.rejects[i]; !strings.Contains(r.Error(), want) || r.Dataset != "public.v" || string(r.Key) != fmt.Sprintf(`{"id":%d}`, i+2) {
			t.Errorf("reject %q: want the key and %s", r.Error(), want)
		}
	}
	p = readAll(t, db, map[string]string{"table": "v", "types": "a:numeric,t:text", "where": "id > 1"})
	sameRows(t, "with types", []string{
		`{"id":2,"a":"NaN","t":"2026-01-01 00:00:00+00"}`, `{"id":3,"a":3.00,"t":"294276-12-31 00:00:00+00"}`,
	}, p.rows["public.v"])
	p = readAll(t, db, map[string]string{"table": "v", "numeric": "numeric", "columns": "id,a"})
	sameRows(t, "with numeric", []string{`{"id":1,"a":1.00}`, `{"id":2,"a":"NaN"}`, `{"id":3,"a":3.00}`}, p.rows["public.v"])
}

// Keys that no arithmetic could split are cut all the same: every row comes once, in the server's order.
// cases C062, C075.
func TestChunkKeys(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	for name, ddl := range map[string]string{
		"sparse":     `(k bigint PRIMARY KEY); INSERT INTO keys SELECT (i::numeric * 4e16)::bigint FROM generate_series(-200, 200) i`,
		"uuid text":  `(k text PRIMARY KEY); INSERT INTO keys SELECT CASE WHEN i % 2 = 0 THEN upper(md5(i::text)) ELSE md5(i::text) END FROM generate_series(1, 300) i`,
		"collation":  `(k text COLLATE nocase PRIMARY KEY); INSERT INTO keys SELECT chr(65 + i % 26) || chr(97 + i / 26) || 'ß''\"' FROM generate_series(1, 300) i ON CONFLICT DO NOTHING`,
		"composite":  `(a text, k int, PRIMARY KEY (a, k)); INSERT INTO keys SELECT 'it''s ' || i % 7, i FROM generate_series(1, 300) i`,
		"unique":     `(k numeric NOT NULL UNIQUE, v text); INSERT INTO keys SELECT i / 7.0 FROM generate_series(1, 300) i; INSERT INTO keys VALUES ('NaN'), ('Infinity')`,
		"instants":   `(k timestamptz PRIMARY KEY); INSERT INTO keys SELECT '2026-01-01'::timestamptz + i * interval '1.000001 s' FROM generate_series(1, 300) i; INSERT INTO keys VALUES ('infinity'), ('-infinity'), ('0044-03-15 BC')`,
		"bytes":      `(k bytea PRIMARY KEY); INSERT INTO keys SELECT decode(md5(i::text), 'hex') FROM generate_series(1, 300) i; INSERT INTO keys VALUES ('')`,
		"padded":     `(k char(8) PRIMARY KEY); INSERT INTO keys SELECT 'k' || i FROM generate_series(1, 300) i`,
		"descending": `(k int NOT NULL); CREATE UNIQUE INDEX ON keys (k DESC); INSERT INTO keys SELECT i FROM generate_series(1, 300) i`,
	} {
		t.Run(name, func(t *testing.T) {
			must(t, conn, "DROP TABLE IF EXISTS keys", "CREATE TABLE keys "+ddl, "ANALYZE keys")
			var total int
			if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM keys").Scan(&total); err != nil {
				t.Fatal(err)
			}
			one := readAll(t, db, map[string]string{"table": "keys"})
			many := readAll(t, db, map[string]string{"table": "keys", "chunk_bytes": "3000", "parallel": "4"})
			if len(one.rows["public.keys"]) != total {
				t.Errorf("%d rows, the table has %d", len(one.rows["public.keys"]), total)
			}
			if len(many.marks) < 5 {
				t.Errorf("only %d chunks", len(many.marks))
			}
			sameRows(t, "in chunks", one.rows["public.keys"], many.rows["public.keys"])
			half, err := readFrom(t, sourceConfig(t, db, map[string]string{"table": "keys", "chunk_bytes": "3000"}), many.marks[len(many.marks)/2])
			if err != nil {
				t.Fatal(err)
			}
			rest := half.rows["public.keys"]
			sameRows(t, "resumed", one.rows["public.keys"][total-len(rest):], rest)
		})
	}
}

// A unique index over columns that may be NULL is no key; a key that the user names may be NULL, and such rows come too.
// case C062.
func TestNullKeys(t *testing.T) {
	db := pgtest.Database(t)
	must(t, pgtest.Conn(t, db), `CREATE TABLE k (a int UNIQUE, b int)`,
		`INSERT INTO k SELECT i, i FROM generate_series(1, 100) i; INSERT INTO k VALUES (NULL, 1), (NULL, 2), (NULL, NULL)`,
		`CREATE VIEW w AS SELECT * FROM k`, `ANALYZE`)
	for name, options := range map[string]map[string]string{
		"no key": {"table": "k"}, "view": {"table": "w"}, "one": {"table": "w", "key": "a", "chunk_bytes": "1000"},
		"two": {"table": "w", "key": "b,a", "chunk_bytes": "1000"}, "query": {"query": "TABLE k;", "key": "b", "chunk_bytes": "1000"},
	} {
		p := readAll(t, db, options)
		for dataset, rows := range p.rows {
			slices.Sort(rows)
			if n := len(slices.Compact(rows)); n != 103 {
				t.Errorf("%s: %d different rows of %s, want 103", name, n, dataset)
			}
			if options["key"] != "" && len(p.marks) < 5 {
				t.Errorf("%s: only %d chunks", name, len(p.marks))
			}
		}
	}
}

// Rows of a table without a key don't move between its ranges, however much is written meanwhile; no transaction stays open.
// cases C062, C065.
func TestBlocksUnderOneSnapshot(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE log (n int, v text) WITH (autovacuum_enabled = off)`,
		`INSERT INTO log SELECT i, repeat('x', 500) FROM generate_series(1, 3000) i`, `ANALYZE log`)
	options := map[string]string{"table": "log", "chunk_bytes": "65536", "parallel": "2"}
	var seen []string
	p, err := readEach(t, sourceConfig(t, db, options), record.Position{}, func(b *record.Batch) {
		must(t, conn, `UPDATE log SET v = v || 'y' WHERE n % 7 = 0`, `DELETE FROM log WHERE n % 11 = 0`, `INSERT INTO log VALUES (-1, 'new')`)
		seen = append(seen, strconv.Itoa(b.NumRows()))
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := p.rows["public.log"]
	slices.Sort(rows)
	if n := len(slices.Compact(slices.Clone(rows))); n != 3000 || len(rows) != 3000 {
		t.Errorf("%d rows, %d different ones, want 3000 (batches of %s)", len(rows), n, strings.Join(seen, " "))
	}
	if len(p.marks) != 1 {
		t.Errorf("%d positions, want one: row addresses mean nothing later", len(p.marks))
	}
	if n := activity(t, conn); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// Partitions and inheriting tables come with their parent, once; views, materialised views and empty tables work.
func TestRelations(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE p (id int, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region)`,
		`CREATE TABLE p_north PARTITION OF p FOR VALUES IN ('n')`, `CREATE TABLE p_south PARTITION OF p FOR VALUES IN ('s')`,
		`INSERT INTO p SELECT i, CASE WHEN i % 2 = 0 THEN 'n' ELSE 's' END FROM generate_series(1, 50) i`,
		`CREATE TABLE parent (id int PRIMARY KEY)`, `CREATE TABLE child () INHERITS (parent)`, `INSERT INTO parent VALUES (1)`,
		`INSERT INTO child VALUES (2)`, `CREATE TABLE empty (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, d int GENERATED ALWAYS AS (1) STORED)`,
		`CREATE VIEW v AS SELECT * FROM p`, `CREATE MATERIALIZED VIEW m AS SELECT * FROM p`, `CREATE SCHEMA other`, `CREATE TABLE other.t (id int)`,
		`CREATE SCHEMA _leat`, `CREATE TABLE _leat.progress (id int)`, `ANALYZE`)
	counts := func(options map[string]string) map[string]int {
		out := map[string]int{}
		p := readAll(t, db, options)
		for d, rows := range p.rows {
			slices.Sort(rows)
			out[d] = len(slices.Compact(rows))
		}
		return out
	}
	for _, c := range []struct {
		options map[string]string
		want    map[string]int
	}{
		{map[string]string{}, map[string]int{"public.p": 50, "public.parent": 2, "public.empty": 0, "other.t": 0}},
		{map[string]string{"tables": "public.*,!public.p*"}, map[string]int{"public.empty": 0, "public.child": 1}},
		{map[string]string{"tables": "p_*"}, map[string]int{"public.p_north": 25, "public.p_south": 25}},
		{map[string]string{"tables": "v,other.?"}, map[string]int{"public.v": 50, "other.t": 0}},
		{map[string]string{"table": "m"}, map[string]int{"public.m": 50}},
		{map[string]string{"table": "p", "chunk_bytes": "500"}, map[string]int{"public.p": 50}},
		{map[string]string{"table": "t", "schema": "other"}, map[string]int{"other.t": 0}},
	} {
		if diff := cmp.Diff(c.want, counts(c.options)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.options, diff)
		}
	}
	s := readAll(t, db, map[string]string{"table": "empty"}).schemas["public.empty"]
	for i := range 2 {
		if !record.NativeOf(s.Columns.Field(i)).ReadOnly {
			t.Errorf("column %s is not marked as computed by the server", s.Columns.Field(i).Name)
		}
	}
	if diff := cmp.Diff([]string{"id"}, s.KeyNames()); diff != "" {
		t.Errorf("key:\n%s", diff)
	}
}

// Any identifier works everywhere.
// case C100.
func TestIdentifiers(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	for _, name := range []string{"Order", "order", "select", `a.b`, `x"y`, "ünï", "with space", `it's`, `back\slash`, "percent%s", "tab\tname"} {
		table := pgx.Identifier{name}.Sanitize()
		must(t, conn, "CREATE TABLE "+table+` ("user" int, "Group" int, "a b" int, "x""y" int, "ünï" int, "it's" int, "`+`c%d\" int, PRIMARY KEY ("x""y", "Group"))`,
			"INSERT INTO "+table+" SELECT i, i, i, i, i, i, i FROM generate_series(1, 30) i", "ANALYZE "+table)
		dataset := record.JoinName("public", name)
		for _, options := range []map[string]string{
			{"table": dataset, "chunk_bytes": "500"},
			{"table": dataset, "cursor": "ünï"},
			{"table": dataset, "chunks": "block"},
			{"table": dataset, "columns": `x"y,Group`, "where": `"a b" > 0`},
		} {
			p := readAll(t, db, options)
			if len(p.rows) != 1 || len(p.rows[dataset]) != 30 {
				t.Errorf("table %s with %v: %d rows in %v", name, options, len(p.rows[dataset]), slices.Collect(mapsKeys(p.rows)))
			}
		}
	}
	if p := readAll(t, db, map[string]string{}); len(p.rows) != 11 {
		t.Errorf("%d of 11 tables were found", len(p.rows))
	}
}

// A table that is altered while it is read gives an error that a new attempt gets over, and never values of the wrong type.
// case C050.
func TestAlteredWhileRead(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE t (id int PRIMARY KEY, v int)`, `INSERT INTO t SELECT i, i FROM generate_series(1, 2000) i`, `ANALYZE t`)
	for name, options := range map[string]map[string]string{
		"table": {"table": "t", "chunk_bytes": "1000", "parallel": "1"},
		"query": {"query": "SELECT * FROM t", "key": "id", "chunk_bytes": "1000", "parallel": "1"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := sourceConfig(t, db, options)
			altered := false
			_, err := readEach(t, cfg, record.Position{}, func(*record.Batch) {
				if !altered {
					must(t, conn, `ALTER TABLE t ALTER v TYPE bigint`)
					altered = true
				}
			})
			if connector.ClassOf(err) != connector.ClassTransient {
				t.Fatalf("error %v of class %s, want a transient one", err, connector.ClassOf(err))
			}
			p, err := readFrom(t, cfg, record.Position{})
			if err != nil || slices.ContainsFunc(slices.Collect(mapsKeys(p.rows)), func(d string) bool { return len(p.rows[d]) != 2000 }) {
				t.Errorf("the next attempt: %v", err)
			}
			must(t, conn, `ALTER TABLE t ALTER v TYPE int`)
		})
	}
}

// A connection that is killed is a transient error, and a resume delivers what is missing.
// clause S7.
func TestConnectionKilled(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t SELECT i, repeat('x', 2000) FROM generate_series(1, 20000) i`, `ANALYZE t`)
	cfg := sourceConfig(t, db, map[string]string{"table": "t", "chunk_bytes": "1000000"})
	var covered []string
	var at record.Position
	killed := false
	pending := 0
	_, err := readEach(t, cfg, at, func(b *record.Batch) {
		for i := range b.NumRows() {
			covered = append(covered, string(b.KeyJSON(i)))
		}
		pending += b.NumRows()
		if !b.Position.Zero() {
			at, pending = b.Position, 0
		}
		if !killed && len(covered) > 3000 {
			must(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
			killed = true
		}
	})
	if connector.ClassOf(err) != connector.ClassTransient {
		t.Fatalf("error %v of class %s, want a transient one", err, connector.ClassOf(err))
	}
	covered = covered[:len(covered)-pending]
	if _, err := readEach(t, cfg, at, func(b *record.Batch) {
		for i := range b.NumRows() {
			covered = append(covered, string(b.KeyJSON(i)))
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i, k := range covered {
		if k != fmt.Sprintf(`{"id":%d}`, i+1) {
			t.Fatalf("row %d is %s", i, k)
		}
	}
	if len(covered) != 20000 {
		t.Errorf("%d rows, want 20000", len(covered))
	}
}

// Wide rows are bounded by bytes: the heap stays small while hundreds of megabytes stream through.
// case C068.
func TestWideRows(t *testing.T) {
	db := pgtest.Database(t)
	const rows = 700
	must(t, pgtest.Conn(t, db), `CREATE TABLE wide (id int PRIMARY KEY, a jsonb, b jsonb, c jsonb, d jsonb, e jsonb, f jsonb, g jsonb, h jsonb)`,
		fmt.Sprintf(`INSERT INTO wide SELECT i, v, v, v, v, v, v, v, v FROM generate_series(1, %d) i, to_jsonb(repeat('wide ', 10000)) v`, rows),
		`ANALYZE wide`)
	src, err := sourceConfig(t, db, map[string]string{"table": "wide"}).Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := src.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if err := src.Start(t.Context(), connector.SourceStart{}); err != nil {
		t.Fatal(err)
	}
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n, peak := 0, uint64(0)
	for {
		b, err := src.Read(t.Context(), connector.Limit{Rows: 8192, Bytes: 8 << 20})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n += b.NumRows()
		if size := b.Bytes(); size > 16<<20 {
			t.Errorf("a batch of %d bytes", size)
		}
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapAlloc)
	}
	if n != rows || peak > before.HeapAlloc+256<<20 {
		t.Errorf("%d rows of %d with a heap of %d MB", n, rows, peak>>20)
	}
	t.Logf("%d MB", peak>>20)
}

// A server that does not vouch for its text: a row that is not UTF-8 is set aside, the others come.
func TestUncheckedEncoding(t *testing.T) {
	base := pgtest.Conn(t, pgtest.URL(t))
	name := "leat_test_" + strings.ToLower(rand.Text()[:12])
	must(t, base, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	conn := pgtest.Conn(t, u.String())
	must(t, conn, `CREATE TABLE t (id int PRIMARY KEY, v text)`, `INSERT INTO t VALUES (1, 'ok'), (2, E'\377'), (3, E'gr\303\274n')`)
	p := readAll(t, u.String(), map[string]string{"table": "t"})
	sameRows(t, "rows", []string{`{"id":1,"v":"ok"}`, `{"id":3,"v":"grün"}`}, p.rows["public.t"])
	if len(p.rejects) != 1 || string(p.rejects[0].Key) != `{"id":2}` {
		t.Errorf("rejects %v", p.rejects)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, base, "DROP DATABASE "+name+" WITH (FORCE)")
}

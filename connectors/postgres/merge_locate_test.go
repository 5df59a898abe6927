package postgres

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// planned are the chunks of a dataset, and their ends.
func planned(t testing.TB, s *Source, dataset string, target int64) (chunks []record.Chunk, ends []json.RawMessage) {
	t.Helper()
	for c, err := range s.PlanChunks(t.Context(), dataset, nil, target) {
		if err != nil {
			t.Fatalf("planning: %v (%s)", err, connector.HintOf(err))
		}
		chunks = append(chunks, c)
		if c.To != nil {
			ends = append(ends, c.To)
		}
	}
	return chunks, ends
}

// Each row that a chunk has is located in that chunk, and its key alone gives the row again: for keys that no arithmetic could order,
// under collations of the system, of ICU, and of ones that take different texts for equal, and with operators that no path leads to.
// case C062.
func TestLocate(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE SCHEMA ext; CREATE EXTENSION citext SCHEMA ext; CREATE EXTENSION ltree SCHEMA ext;
		CREATE COLLATION ext.nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE COLLATION ext."Swedish x" (provider = icu, locale = 'sv-SE');
		CREATE TYPE ext.mood AS ENUM ('z', 'it''s', 'a'); CREATE DOMAIN ext.code AS text COLLATE "sv-SE-x-icu";
		CREATE TYPE ext.pair AS (a int, b text);
		CREATE PUBLICATION pub FOR ALL TABLES`)
	odd := `chr(64 + i % 60) || CASE i % 4 WHEN 0 THEN 'ä' WHEN 1 THEN 'Z' WHEN 2 THEN '-' ELSE ' ' END || lpad(to_hex(i), 3, 'Ab') || E'"\\,{}'''`
	cases := map[string]struct {
		columns string
		rows    string // an expression of i
		here    bool   // compared here
	}{
		"int":             {`k int PRIMARY KEY`, `i * 7 - 900`, true},
		"sparse":          {`k bigint PRIMARY KEY`, `CASE i WHEN 1 THEN 1 WHEN 2 THEN 2 ELSE 4e18::bigint + i END`, true},
		"smallint":        {`k smallint PRIMARY KEY`, `i - 150`, true},
		"boolean, int":    {`k bool, j int, PRIMARY KEY (k, j)`, `i % 3 = 0, -i`, true},
		"uuid":            {`k uuid PRIMARY KEY`, `md5(i::text)::uuid`, true},
		"bytea":           {`k bytea PRIMARY KEY`, `substr(decode(md5(i::text), 'hex'), 1, 2 + i % 5)`, true},
		"date":            {`k date PRIMARY KEY`, `CASE i WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' WHEN 3 THEN '4713-01-01 BC' WHEN 4 THEN '12345-01-02' ELSE '0044-03-15 BC'::date + i * 3000 END`, true},
		"timestamp":       {`k timestamp PRIMARY KEY`, `CASE i WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' ELSE '0001-01-01 00:00:00.000001 BC'::timestamp + i * interval '400 days 1.000001 s' END`, true},
		"timestamptz":     {`k timestamptz PRIMARY KEY`, `'1969-12-31 23:59:59.5+00'::timestamptz + (i - 150) * interval '10000 days 0.000003 s'`, true},
		"time":            {`k time PRIMARY KEY`, `CASE i WHEN 1 THEN '24:00' ELSE '00:00'::time + i * interval '7.000001 s' END`, true},
		"text of C":       {`k text COLLATE "C" PRIMARY KEY`, odd, true},
		"text of POSIX":   {`k varchar(50) COLLATE "POSIX" PRIMARY KEY`, odd, true},
		"text of basic":   {`k text COLLATE "ucs_basic" PRIMARY KEY`, odd, true},
		"padded, of C":    {`k char(12) COLLATE "C" PRIMARY KEY`, `chr(33 + i % 60) || chr(33 + i / 60 ) || CASE i % 3 WHEN 0 THEN '' WHEN 1 THEN '!' ELSE '~' END`, true},
		"name":            {`k name PRIMARY KEY`, odd, true},
		"text":            {`k text PRIMARY KEY`, odd, false},
		"padded":          {`k char(12) PRIMARY KEY`, `chr(33 + i % 60) || chr(33 + i / 60 )`, false},
		"uuid as text":    {`k text PRIMARY KEY`, `CASE WHEN i % 2 = 0 THEN upper(md5(i::text)::uuid::text) ELSE md5(i::text) END`, false},
		"English":         {`k text COLLATE "en-US-x-icu" PRIMARY KEY`, odd, false},
		"Swedish":         {`k text COLLATE ext."Swedish x" PRIMARY KEY`, odd, false},
		"no case":         {`k text COLLATE ext.nocase PRIMARY KEY`, `CASE WHEN i % 2 = 0 THEN upper(md5(i::text)) ELSE md5(i::text) END`, false},
		"domain":          {`k ext.code PRIMARY KEY`, odd, false},
		"citext":          {`k ext.citext PRIMARY KEY`, `CASE WHEN i % 2 = 0 THEN upper(md5(i::text)) ELSE md5(i::text) END`, false},
		"int, citext":     {`j int, k ext.citext, PRIMARY KEY (j, k)`, `i % 3, CASE WHEN i % 2 = 0 THEN upper(md5(i::text)) ELSE md5(i::text) END`, false},
		"text, int":       {`k text COLLATE "sv-SE-x-icu", j int, PRIMARY KEY (k, j)`, `'it''s ' || chr(64 + i % 7), i`, false},
		"int, text of C":  {`j int, k text COLLATE "C", PRIMARY KEY (j, k)`, `i % 4, ` + odd, true},
		"numeric":         {`k numeric PRIMARY KEY`, `CASE i WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' WHEN 3 THEN '-Infinity' ELSE ((i - 150) / 7.0)::numeric END`, false},
		"numeric(9,2)":    {`k numeric(9,2) PRIMARY KEY`, `(i - 150) / 4.0`, false},
		"float8":          {`k float8 PRIMARY KEY`, `CASE i WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' WHEN 3 THEN '-0' ELSE exp(i) END::float8`, false},
		"enum, int":       {`k ext.mood, j int, PRIMARY KEY (k, j)`, `(ARRAY['z', 'it''s', 'a']::ext.mood[])[1 + i % 3], i`, false},
		"interval":        {`k interval PRIMARY KEY`, `make_interval(months => i % 5, days => i - 100, secs => i / 7.0)`, false},
		"int[]":           {`k int[] PRIMARY KEY`, `CASE i WHEN 1 THEN '{}' WHEN 2 THEN '[0:1]={7,8}' WHEN 3 THEN '{{1,2},{3,4}}' WHEN 4 THEN '{NULL,3}' ELSE ARRAY[i % 9, -i] END`, false},
		"text[]":          {`k text[] PRIMARY KEY`, `ARRAY[` + odd + `, NULL, 'NULL']`, false},
		"range":           {`k int4range PRIMARY KEY`, `int4range(i % 20, i + 30)`, false},
		"composite":       {`k ext.pair PRIMARY KEY`, `row(i % 20, ` + odd + `)::ext.pair`, false},
		"ltree":           {`k ext.ltree PRIMARY KEY`, `('a' || i % 9 || '.B' || i)::ext.ltree`, false},
		"inet":            {`k inet PRIMARY KEY`, `'10.0.0.0/8'::inet + i * 1000`, false},
		"macaddr":         {`k macaddr PRIMARY KEY`, `('08:00:2b:01:02:' || lpad(to_hex(i % 256), 2, '0'))::macaddr`, false},
		"bits":            {`k varbit PRIMARY KEY`, `i::bit(9)::varbit`, false},
		"timetz":          {`k timetz PRIMARY KEY`, `('00:00:00+0' || i % 7)::timetz + i * interval '77 s'`, false},
		"jsonb":           {`k jsonb PRIMARY KEY`, `jsonb_build_object('a', i % 9, 'b', ` + odd + `)`, false},
		"\"char\", int":   {`k "char", j int, PRIMARY KEY (k, j)`, `chr(33 + i % 90)::"char", i`, false},
		"pg_lsn and more": {`k pg_lsn, "J ""x" timestamp, PRIMARY KEY (k, "J ""x")`, `'0/0'::pg_lsn + i, '2026-01-01'::timestamp + i * interval '1 us'`, false},
	}
	var ddl strings.Builder
	for name, c := range cases {
		fmt.Fprintf(&ddl, "CREATE TABLE %[1]s (v int, %[2]s); INSERT INTO %[1]s SELECT i, %[3]s FROM generate_series(1, 299) i ON CONFLICT DO NOTHING;",
			ident(name), c.columns, c.rows)
	}
	sqlExec(t, conn, ddl.String()+"ANALYZE")
	s := followSource(t, db, nil)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dataset := record.JoinName("public", name)
			chunks, ends := planned(t, s, dataset, 3000)
			if len(ends) < 5 {
				t.Fatalf("only %d bounds", len(ends))
			}
			tab, err := s.find(t.Context(), dataset)
			must(t, err)
			key, err := s.keyColumns(t.Context(), tab.schema)
			must(t, err)
			here := !slices.ContainsFunc(key, func(k keyColumn) bool { return !k.local })
			if utf8 := tab.utf8; here != c.here || utf8 {
				t.Errorf("keys are compared here: %t, want %t", here, c.here)
			}
			total, keys := 0, []json.RawMessage{}
			var some []string
			for i, chunk := range chunks {
				for _, b := range readChunk(t, s, chunk).batches {
					if b.NumRows() == 0 {
						continue // the table ended with the chunk before
					}
					at, err := s.Locate(t.Context(), b.Schema, b.Rows, ends)
					if err != nil || slices.ContainsFunc(at, func(n int) bool { return n != i }) {
						t.Fatalf("rows of chunk %d are located in %v, %v", i, at, err)
					}
					total += b.NumRows()
					n := b.NumRows() / 2
					keys = append(keys, s.KeyOf(b.Schema, b.Rows, n))
					some = append(some, connectortest.Rows(b)[n])
				}
			}
			var want int
			must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM `+ident(name)).Scan(&want))
			if total != want {
				t.Errorf("%d rows in chunks, the table has %d", total, want)
			}
			slices.Reverse(keys)
			got := readChunk(t, s, record.Chunk{Dataset: dataset, Keys: append(keys, keys[0])})
			if !slices.Equal(got.rows, some) {
				t.Errorf("rows of keys %s:\n%s\nwant\n%s", keys, strings.Join(got.rows, "\n"), strings.Join(some, "\n"))
			}
		})
	}
}

// A key that the user chose may have NULLs: they lie behind every bound, and each is one key.
func TestLocateNulls(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	sqlExec(t, conn, `CREATE TABLE k (a int, b text, v int); ALTER TABLE k REPLICA IDENTITY FULL;
		INSERT INTO k SELECT i, 'x' || i, i FROM generate_series(1, 100) i; INSERT INTO k VALUES (NULL, 'x', 101), (5, NULL, 102), (NULL, NULL, 103);
		ANALYZE k; CREATE PUBLICATION pub FOR TABLE k`)
	for _, key := range []string{"a", "a,b"} {
		s := followSource(t, db, map[string]string{"table": "k", "key": key})
		chunks, ends := planned(t, s, "public.k", 1000)
		seen := 0
		for i, c := range chunks {
			for _, b := range readChunk(t, s, c).batches {
				at, err := s.Locate(t.Context(), b.Schema, b.Rows, ends)
				if err != nil || slices.ContainsFunc(at, func(n int) bool { return n != i }) {
					t.Errorf("rows of chunk %d are located in %v, %v", i, at, err)
				}
				seen += b.NumRows()
				if i < len(chunks)-1 {
					continue
				}
				for r := range b.NumRows() {
					k := s.KeyOf(b.Schema, b.Rows, r)
					if !strings.Contains(string(k), "null") {
						continue
					}
					got := readChunk(t, s, record.Chunk{Dataset: "public.k", Keys: []json.RawMessage{k}})
					if !slices.Contains(got.rows, connectortest.Rows(b)[r]) || len(got.rows) > 2 {
						t.Errorf("the key %s gives %q", k, got.rows)
					}
				}
			}
		}
		if seen != 103 || len(ends) < 5 {
			t.Errorf("%d rows in %d chunks", seen, len(chunks))
		}
	}
}

// Equal keys have equal bytes, also where they print differently.
func TestKeyOf(t *testing.T) {
	var s *Source
	for name, c := range map[string]struct {
		dt     arrow.DataType
		values []string // each is equal to the first
		want   string
	}{
		"numeric":  {record.NumericType(), []string{"1", "1.0", "1.000"}, `{"key":["1"]}`},
		"hundred":  {record.NumericType(), []string{"100"}, `{"key":["100"]}`},
		"zero":     {record.NumericType(), []string{"0.00", "0"}, `{"key":["0"]}`},
		"float":    {arrow.PrimitiveTypes.Float64, []string{"-0", "0"}, `{"key":["0"]}`},
		"interval": {record.IntervalType(), []string{"P1M", "P30D", "PT720H", "P1M1DT-24H", "P31DT-24H"}, `{"key":["P30D"]}`},
		"negative": {record.IntervalType(), []string{"PT-1H", "P-1DT23H"}, `{"key":["P-1DT23H"]}`},
		"text":     {arrow.BinaryTypes.String, []string{`it's "x" <&>`}, `{"key":["it's \"x\" \u003c\u0026\u003e"]}`},
	} {
		b := array.NewBuilder(memory.DefaultAllocator, c.dt)
		for _, v := range c.values {
			must(t, record.ParseText(b, v))
		}
		schema := &record.Schema{Dataset: "x", Columns: arrow.NewSchema([]arrow.Field{{Name: "k", Type: c.dt}}, nil), Key: []int{0}}
		rows := array.NewRecordBatch(schema.Columns, []arrow.Array{b.NewArray()}, int64(len(c.values)))
		for i, v := range c.values {
			if got := s.KeyOf(schema, rows, i); string(got) != c.want {
				t.Errorf("%s: the key of %s is %s, want %s", name, v, got, c.want)
			}
		}
	}
}

// For every type that is compared here: random values lie where the server says they do, by an order that does not depend on how its
// texts are made.
// case C062.
func TestLocalOrderIsTheServers(t *testing.T) {
	const seed = 20261129
	random := rand.New(rand.NewPCG(seed, seed))
	db := pgtest.Database(t)
	sqlExec(t, pgtest.Conn(t, db), `CREATE TABLE t (id int); CREATE PUBLICATION pub FOR TABLE t`)
	s := followSource(t, db, map[string]string{"table": "t"})
	letters := []string{"a", "A", "b", "é", "ß", "z", " ", "!", "~", "\u00a0", "\u4e2d", "\U0001F600", "\uffff", "e\u0301", "\x01", "\t", `\`, `"`}
	texts := func() string {
		var b strings.Builder
		for range random.IntN(5) {
			b.WriteString(letters[random.IntN(len(letters))])
		}
		return b.String()
	}
	integers := func(bits int) func() string {
		return func() string {
			v := int64(random.Uint64()) >> (64 - bits) >> random.IntN(bits)
			return strconv.FormatInt(v, 10)
		}
	}
	binary := func() string {
		out := make([]byte, random.IntN(4))
		for i := range out {
			out[i] = []byte{0, 1, 0x7f, 0x80, 0xff}[random.IntN(5)]
		}
		return fmt.Sprintf(`\x%x`, out)
	}
	instants := func(zone string) func() string {
		return func() string {
			if random.IntN(20) == 0 {
				return []string{"infinity", "-infinity"}[random.IntN(2)]
			}
			v := random.Int64N(math.MaxInt64/8) >> random.IntN(60)
			if random.IntN(3) == 0 {
				v = max(-v, -62_135_596_800_000_000-86_400_000_000*365*4000)
			}
			return string(record.AppendTimestamp(nil, min(v, 9_000_000_000_000_000_000), arrow.Microsecond, zone != ""))
		}
	}
	for _, c := range []struct {
		sql     string
		dt      arrow.DataType
		collate string
		padded  bool
		value   func() string
	}{
		{"int2", arrow.PrimitiveTypes.Int16, "", false, integers(16)},
		{"int4", arrow.PrimitiveTypes.Int32, "", false, integers(32)},
		{"int8", arrow.PrimitiveTypes.Int64, "", false, integers(64)},
		{"bool", arrow.FixedWidthTypes.Boolean, "", false, func() string { return []string{"true", "false"}[random.IntN(2)] }},
		{"uuid", record.UUIDType(), "", false, func() string {
			return fmt.Sprintf("%08x-0000-%04x-8000-%012x", random.Uint32()>>random.IntN(32), random.IntN(3), random.IntN(2))
		}},
		{"bytea", arrow.BinaryTypes.Binary, "", false, binary},
		{"date", record.InfiniteDateType(), "", false, func() string {
			if random.IntN(20) == 0 {
				return []string{"infinity", "-infinity"}[random.IntN(2)]
			}
			return string(record.AppendDate(nil, int64(random.IntN(4_000_000)-2_000_000)>>random.IntN(20)))
		}},
		{"timestamp", record.InfiniteTimestampType(false), "", false, instants("")},
		{"timestamptz", record.InfiniteTimestampType(true), "", false, instants("Z")},
		{"time", arrow.FixedWidthTypes.Time64us, "", false, func() string {
			return fmt.Sprintf("%02d:%02d:00.%06d", random.IntN(24), random.IntN(2), random.IntN(3))
		}},
		{"text", arrow.BinaryTypes.String, `pg_catalog."C"`, false, texts},
		{"varchar", arrow.BinaryTypes.String, `pg_catalog."POSIX"`, false, texts},
		{"text", arrow.BinaryTypes.String, `pg_catalog."ucs_basic"`, false, texts},
		{"bpchar", arrow.BinaryTypes.String, `pg_catalog."C"`, true, texts},
	} {
		schema := &record.Schema{Dataset: "public.t", Columns: arrow.NewSchema([]arrow.Field{{Name: "k", Type: c.dt}}, nil), Key: []int{0}}
		key := []keyColumn{{at: 0, cast: c.sql, collate: c.collate, local: true, padded: c.padded}}
		build := func(n int) arrow.RecordBatch {
			b := array.NewBuilder(memory.DefaultAllocator, c.dt)
			for range n {
				must(t, record.ParseText(b, c.value()))
			}
			return array.NewRecordBatch(schema.Columns, []arrow.Array{b.NewArray()}, int64(n))
		}
		bounds, rows := build(200), build(500)
		// The server's own order makes the bounds ascend.
		candidates := make([]bound, bounds.NumRows())
		for i := range candidates {
			text, _ := keyText(bounds.Column(0), i)
			candidates[i] = bound{Key: []string{text}}
		}
		ends := ascending(t, s, c.sql, c.collate, candidates)
		there, err := s.locateThere(t.Context(), key, rows, ends)
		must(t, err)
		here, err := locateHere(schema, key, rows, ends)
		must(t, err)
		for i := range here {
			if here[i] != there[i] {
				text, _ := keyText(rows.Column(0), i)
				t.Fatalf("%s %s: %q lies behind %d bounds here, behind %d at the server", c.sql, c.collate, text, here[i], there[i])
			}
		}
		if slices.Max(here) == slices.Min(here) {
			t.Errorf("%s: all keys lie in one place: nothing was proven", c.sql)
		}
	}
}

// ascending sorts bounds as the server does, and takes equal ones out.
func ascending(t testing.TB, s *Source, cast, collate string, in []bound) []bound {
	t.Helper()
	conn, err := s.pool.take(t.Context())
	must(t, err)
	defer s.pool.put(t.Context(), conn)
	if collate != "" {
		cast += " COLLATE " + collate
	}
	rows, err := ask(t.Context(), conn.PgConn(), `SELECT min(k COLLATE "C") FROM unnest($1::text[]) k GROUP BY k::`+cast+` ORDER BY k::`+cast,
		textArray(len(in), func(i int) (string, bool) { return in[i].Key[0], true }))
	must(t, err)
	out := make([]bound, len(rows))
	for i, r := range rows {
		out[i] = bound{Key: []string{string(r[0])}}
	}
	return out
}

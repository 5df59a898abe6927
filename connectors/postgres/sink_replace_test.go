package postgres

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// replace runs a whole replacement.
func replace(t testing.TB, url, run string, fence uint64, batches ...*record.Batch) error {
	t.Helper()
	snk := openSink(t, sinkConfig(t, url))
	defer snk.Close(t.Context()) //nolint:errcheck // reported by openSink
	must(t, snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: run, Fence: fence, Mode: connector.Replace}))
	for _, b := range batches {
		if err := snk.Write(t.Context(), b); err != nil {
			return err
		}
	}
	p := position(1)
	p.Run, p.Done = run, true
	return snk.Finish(t.Context(), p)
}

// A table to which nothing else refers is swapped; indexes, their names, checks, defaults, comments and grants stay.
func TestSinkReplaceKeepsTheTablesParts(t *testing.T) {
	url, conn := db(t)
	sqlExec(t, conn, `CREATE TABLE t (id bigint PRIMARY KEY, v text DEFAULT 'd' CONSTRAINT nice CHECK (v <> 'bad'), extra int DEFAULT 7);
		CREATE INDEX by_v ON t (v); CREATE UNIQUE INDEX "By Both" ON t (id, v DESC) WHERE v IS NOT NULL; ALTER TABLE t ADD CONSTRAINT odd UNIQUE (v, extra);
		COMMENT ON TABLE t IS 'mine'; COMMENT ON COLUMN t.v IS 'value'; INSERT INTO t VALUES (100, 'old');
		GRANT SELECT ON t TO PUBLIC`)
	const parts = `SELECT string_agg(indexdef, E'\n' ORDER BY indexname) FROM pg_indexes WHERE tablename = 't'
		UNION ALL SELECT string_agg(conname || pg_get_constraintdef(oid), ',' ORDER BY conname) FROM pg_constraint WHERE conrelid = 't'::regclass AND contype <> 'n'
		UNION ALL SELECT obj_description('t'::regclass, 'pg_class') || col_description('t'::regclass, 2)
		UNION ALL SELECT has_table_privilege('public', 't', 'SELECT')::text`
	before, oid := one(t, conn, parts), one(t, conn, "SELECT 't'::regclass::oid")
	must(t, replace(t, url, "r1", 1, connectortest.Numbered("t", 0, 5)))
	want(t, "parts", before, one(t, conn, parts))
	want(t, "rows", "5|35", one(t, conn, "SELECT count(*), sum(extra) FROM t"))
	if oid == one(t, conn, "SELECT 't'::regclass::oid") {
		t.Error("the table was not swapped")
	}
	must(t, replace(t, url, "r2", 2, connectortest.Numbered("t", 10, 6)))
	want(t, "parts", before, one(t, conn, parts))
	want(t, "rows", "6", one(t, conn, "SELECT count(*) FROM t"))
}

// Views, foreign keys in both directions, triggers and sequences go on working: the table stays and only its rows change.
func TestSinkReplaceUnderDependents(t *testing.T) {
	for name, sql := range map[string]string{
		"view":             "CREATE VIEW dep AS SELECT * FROM t",
		"materialised":     "CREATE MATERIALIZED VIEW dep AS SELECT * FROM t",
		"referenced":       "CREATE TABLE dep (t bigint REFERENCES t); INSERT INTO dep VALUES (3)",
		"refers":           "CREATE TABLE dep (id bigint PRIMARY KEY); INSERT INTO dep SELECT generate_series(0, 200); ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES dep",
		"trigger":          "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER dep BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
		"identity":         "ALTER TABLE t ADD n bigint GENERATED ALWAYS AS IDENTITY",
		"sequence":         "CREATE SEQUENCE dep OWNED BY t.extra; ALTER TABLE t ALTER extra SET DEFAULT nextval('dep')",
		"policy":           "CREATE POLICY dep ON t USING (true)",
		"publication":      "CREATE PUBLICATION dep FOR TABLE t",
		"function of rows": "CREATE FUNCTION dep(t) RETURNS bigint LANGUAGE sql AS 'SELECT $1.id'",
		"column grant":     "GRANT SELECT (id) ON t TO PUBLIC",
		"storage":          "ALTER TABLE t SET (fillfactor = 70)",
		"partitioned":      "DROP TABLE t; CREATE TABLE t (id bigint PRIMARY KEY, v text, extra int) PARTITION BY RANGE (id); CREATE TABLE t0 PARTITION OF t DEFAULT",
		"inherited":        "CREATE TABLE dep () INHERITS (t)",
	} {
		t.Run(name, func(t *testing.T) {
			url, conn := db(t)
			sqlExec(t, conn, "CREATE TABLE t (id bigint PRIMARY KEY, v text, extra int); INSERT INTO t VALUES (3, 'old', 1), (100, 'old', 1);"+sql)
			oid := one(t, conn, "SELECT 't'::regclass::oid")
			must(t, replace(t, url, "r1", 1, connectortest.Numbered("t", 0, 5)))
			want(t, "rows", "5|value 3", one(t, conn, "SELECT count(*), max(v) FILTER (WHERE id = 3) FROM t"))
			if name == "view" {
				want(t, "the view's rows", "5", one(t, conn, "SELECT count(*) FROM dep"))
			}
			want(t, "the table", oid, one(t, conn, "SELECT 't'::regclass::oid"))
			want(t, "left behind", "0", one(t, conn, `SELECT count(*) FROM pg_class WHERE relname LIKE '\_leat%' AND relkind = 'r' AND relpersistence = 'p'`))
		})
	}
}

// Several tables change at the same moment, and until then readers see the old rows.
func TestSinkReplaceIsOneMoment(t *testing.T) {
	url, conn := db(t)
	must(t, replace(t, url, "r1", 1, connectortest.Numbered("a", 0, 3), connectortest.Numbered("b", 0, 3)))
	snk := openSink(t, sinkConfig(t, url))
	must(t, snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r2", Fence: 2, Mode: connector.Replace}))
	const count = "SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)"
	must(t, snk.Write(t.Context(), connectortest.Numbered("a", 0, 7)))
	must(t, snk.Commit(t.Context(), record.Progress{Run: "r2", Position: position(1).Position}))
	must(t, snk.Write(t.Context(), connectortest.Numbered("b", 0, 8)))
	want(t, "before the end", "3|3", one(t, conn, count))
	must(t, snk.Close(t.Context()))
	want(t, "after a crash", "3|3", one(t, conn, count))

	// Another pipeline's replacement of the same table is its own.
	other := openSink(t, sinkConfig(t, url))
	must(t, other.Start(t.Context(), connector.SinkStart{Pipeline: "q", Lane: "l", Run: "x", Fence: 1, Mode: connector.Replace}))
	must(t, other.Close(t.Context()))

	snk = openSink(t, sinkConfig(t, url))
	must(t, snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r2", Fence: 3, Mode: connector.Replace}))
	must(t, snk.Write(t.Context(), connectortest.Numbered("b", 0, 8)))
	end := record.Progress{Run: "r2", Position: position(2).Position, Done: true}
	must(t, snk.Finish(t.Context(), end))
	want(t, "after the end", "7|8", one(t, conn, count))
	must(t, snk.Finish(t.Context(), end))
	want(t, "after the end, twice", "7|8", one(t, conn, count))
	want(t, "indexes", "a_pkey\nb_pkey", one(t, conn, "SELECT indexname FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1"))

	// What an interrupted run wrote is gone: it can't be resumed.
	snk = openSink(t, sinkConfig(t, url))
	must(t, snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r3", Fence: 4, Mode: connector.Replace}))
	must(t, snk.Write(t.Context(), connectortest.Numbered("a", 0, 1)))
	must(t, snk.Commit(t.Context(), record.Progress{Run: "r3", Position: position(1).Position}))
	sqlExec(t, conn, "DROP TABLE "+one(t, conn, `SELECT relname FROM pg_class WHERE relname LIKE '\_leat\_new%' AND relkind = 'r'`))
	snk = openSink(t, sinkConfig(t, url))
	err := snk.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r3", Fence: 5, Mode: connector.Replace})
	if connector.ClassOf(err) != connector.ClassPosition {
		t.Errorf("resuming without the rows: %v", err)
	}
}

// clause E15
func TestSinkEvolve(t *testing.T) {
	url, conn := db(t)
	snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
	from := keyed("t", idField, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, native("s", arrow.BinaryTypes.String, "character varying(3)"),
		arrow.Field{Name: "f", Type: arrow.PrimitiveTypes.Float32, Nullable: true}, arrow.Field{Name: "gone", Type: arrow.PrimitiveTypes.Int32})
	to := keyed("t", idField, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Uint64, Nullable: true}, native("s", arrow.BinaryTypes.String, "character varying(9)"),
		arrow.Field{Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true}, arrow.Field{Name: "more", Type: arrow.BinaryTypes.String},
		native("mood", record.EnumType("mood", []string{"a", "b"}), "mood"))
	must(t, snk.Write(t.Context(), connectortest.BatchOf(from, []string{"1", "1", `"abc"`, "0.5", "3"})))
	for range 2 {
		must(t, snk.Evolve(t.Context(), from, to))
	}
	must(t, snk.Write(t.Context(), connectortest.BatchOf(to, []string{"2", "18446744073709551615", `"abcdefghi"`, "0.1", `"x"`, `"b"`})))
	must(t, snk.Commit(t.Context(), position(1)))
	must(t, snk.Close(t.Context()))
	again := startSink(t, sinkConfig(t, url), connector.Upsert, 1) // a replay on another generation
	must(t, again.Evolve(t.Context(), from, to))
	must(t, again.Write(t.Context(), connectortest.BatchOf(to, []string{"2", "18446744073709551615", `"abcdefghi"`, "0.1", `"x"`, `"b"`})))
	must(t, again.Commit(t.Context(), position(2)))
	want(t, "rows", "1|1|abc|0.5||\n2|18446744073709551615|abcdefghi|0.1|x|b", one(t, conn, "SELECT * FROM t ORDER BY id"))
}

// cases C099, C100
func TestSinkNames(t *testing.T) {
	long := func(s string) string {
		for len(s) < 63 {
			s += "ü"
		}
		return s
	}
	for _, c := range []struct {
		dataset, schema, table string
		want                   relation
	}{
		{"orders", "public", "", relation{"public", "orders"}},
		{"Sales.Order", "public", "", relation{"Sales", "Order"}},
		{"db.Sales.Order", "public", "", relation{"Sales", "Order"}},
		{`"a.b"."c""d"`, "public", "", relation{"a.b", `c"d`}},
		{"orders", "public", "other", relation{"public", "other"}},
		{"x.orders", "public", "s.other", relation{"s", "other"}},
	} {
		if got := place(c.dataset, c.schema, c.table); got != c.want {
			t.Errorf("%s goes to %s, want %s", c.dataset, got, c.want)
		}
	}
	seen := map[string]string{}
	for _, name := range []string{long("a"), long("a") + "x", long("a") + "y", long("ab"), long("ab") + "z", "a"} {
		short := shortName(name)
		if len(short) > maxIdentifier || seen[short] != "" {
			t.Errorf("%s becomes %s (%d bytes), as does %q", name, short, len(short), seen[short])
		}
		if short != shortName(name) || len(name) <= maxIdentifier && short != name {
			t.Errorf("%s becomes %s", name, short)
		}
		seen[short] = name
	}
	url, _ := db(t)
	snk := openSink(t, sinkConfig(t, url))
	for _, name := range []string{long("a"), long("a") + "x"} {
		if _, err := snk.Map(t.Context(), keyed(record.JoinName(name), idField)); err != nil {
			t.Errorf("table %s: %v", name, err)
		}
	}
	if _, err := snk.Map(t.Context(), keyed("t", idField, arrow.Field{Name: long("a") + "x", Type: arrow.BinaryTypes.String})); connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("a long column: %v", err)
	}
}

package postgres

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// columnsIn lists a table's columns and their types.
const columnsIn = `SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef FROM pg_attribute a
	WHERE a.attrelid = 'public.t'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attname`

// Older rows get the value that they have at the source, of every type, without being written; no default stays.
// clause E15
// case C037
func TestSinkEvolveFillsOlderRows(t *testing.T) {
	rawURL, conn := db(t)
	s := keyed("t", number("id0", "id"))
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	must(t, snk.Evolve(t.Context(), nil, s))
	must(t, snk.Write(t.Context(), connectortest.Changes(s, connectortest.Change{Row: []string{"1"}}, connectortest.Change{Row: []string{"2"}})))
	must(t, snk.Commit(t.Context(), position(1)))
	fields := s.Columns.Fields()
	row := []string{"1"}
	for i, c := range connectortest.Cases() {
		if c.Name == "text_nul" {
			continue
		}
		doc := c.Values[0]
		b := array.NewBuilder(memory.DefaultAllocator, c.Type)
		must(t, record.ParseJSON(b, []byte(doc)))
		missing := string(record.AppendText(nil, b.NewArray(), 0))
		fields = append(fields, record.WithMissing(record.WithID(c.Field(), strconv.Itoa(i)), missing))
		row = append(row, doc)
	}
	to := keyed("t", fields...)
	before := one(t, conn, "SELECT string_agg(ctid || xmin::text, ',' ORDER BY id) FROM t")
	must(t, snk.Evolve(t.Context(), s, to))
	must(t, snk.Commit(t.Context(), position(2)))
	other := slices.Clone(row)
	other[0] = "2"
	want := connectortest.Rows(connectortest.BatchOf(to, row, other))
	got := rowsOf(t, conn, to)
	if !slices.Equal(want, got) {
		t.Errorf("older rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if after := one(t, conn, "SELECT string_agg(ctid || xmin::text, ',' ORDER BY id) FROM t"); after != before {
		t.Errorf("rows were written: %s, before %s", after, before)
	}
	if n := one(t, conn, "SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND atthasdef"); n != "0" {
		t.Errorf("%s columns have a default", n)
	}
}

// Names that are swapped, that go and come back, and that changed while nobody looked: the ids tell, in any generation, as often as it is
// asked.
// clause E15
// case C038
func TestSinkEvolveByIDs(t *testing.T) {
	rawURL, conn := db(t)
	start := func() *Sink { return startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1) }
	rows := func(what, rows string) {
		t.Helper()
		want(t, what, rows, one(t, conn, "SELECT to_jsonb(t) FROM t ORDER BY id"))
	}
	v1 := keyed("t", number("1", "id"), text("2", "a"), text("3", "b"))
	snk := start()
	must(t, snk.Evolve(t.Context(), nil, v1))
	must(t, snk.Write(t.Context(), connectortest.Changes(v1, connectortest.Change{Row: []string{"1", `"A"`, `"B"`}})))
	must(t, snk.Commit(t.Context(), position(1)))

	v2 := keyed("t", number("1", "id"), text("3", "a"), text("2", "b")) // swapped
	must(t, snk.Evolve(t.Context(), v1, v2))
	must(t, snk.Evolve(t.Context(), v1, v2))
	must(t, snk.Commit(t.Context(), position(2)))
	must(t, snk.Close(t.Context()))
	snk = start()
	must(t, snk.Evolve(t.Context(), v1, v2)) // again, in another generation
	must(t, snk.Commit(t.Context(), position(2)))
	rows("swapped", `{"a": "B", "b": "A", "id": 1}`)

	must(t, snk.Evolve(t.Context(), v2, v1)) // not committed
	must(t, snk.Close(t.Context()))
	snk = start()
	must(t, snk.Evolve(t.Context(), nil, v2))
	rows("rolled back", `{"a": "B", "b": "A", "id": 1}`)

	v3 := keyed("t", number("1", "id"), text("3", "b"), text("4", "c"), record.WithMissing(text("5", "a"), "new")) // b goes, a is b, a and c come
	must(t, snk.Close(t.Context()))
	snk = start()
	must(t, snk.Evolve(t.Context(), nil, v3)) // while nobody looked
	must(t, snk.Write(t.Context(), connectortest.Changes(v3, connectortest.Change{Op: record.Update, Row: []string{"1", connectortest.Unsent, `"C"`, connectortest.Unsent}})))
	must(t, snk.Commit(t.Context(), position(3)))
	rows("while nobody looked", `{"a": "new", "b": "B", "c": "C", "id": 1}`)

	v4 := keyed("t", number("1", "id"), text("6", "b"), text("4", "a"), text("5", "c")) // b goes and comes, a and c are swapped
	for range 2 {
		must(t, snk.Evolve(t.Context(), v3, v4))
		must(t, snk.Write(t.Context(), connectortest.Changes(v4, connectortest.Change{Op: record.Update, Row: []string{"1", `"b6"`, connectortest.Unsent, connectortest.Unsent}})))
		must(t, snk.Commit(t.Context(), position(4)))
		must(t, snk.Close(t.Context()))
		snk = start()
	}
	rows("goes and comes", `{"a": "C", "b": "b6", "c": "new", "id": 1}`)

	sqlExec(t, conn, "DROP TABLE t") // what it had means nothing for the next one
	must(t, snk.Evolve(t.Context(), nil, v1))
	must(t, snk.Write(t.Context(), connectortest.Changes(v1, connectortest.Change{Row: []string{"1", `"A"`, `"B"`}})))
	must(t, snk.Commit(t.Context(), position(5)))
	rows("made anew", `{"a": "A", "b": "B", "id": 1}`)
}

// What the target itself does with columns decides: a view keeps a dropped one, which then demands nothing; a type without a cast is
// an error that says what to type, and what was typed is enough.
// cases C038, C050
func TestSinkEvolveUnderDependents(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, "CREATE TABLE t (id bigint PRIMARY KEY, a text NOT NULL, b integer, own int DEFAULT 3); CREATE VIEW dep AS SELECT a FROM t")
	v1 := keyed("t", number("1", "id"), native("a", arrow.BinaryTypes.String, "text"), native("b", arrow.PrimitiveTypes.Int32, "integer"))
	v2 := keyed("t", number("1", "id"), native("b", arrow.PrimitiveTypes.Int32, "integer"))
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	must(t, snk.Evolve(t.Context(), nil, v1))
	must(t, snk.Write(t.Context(), connectortest.Changes(v1, connectortest.Change{Row: []string{"1", `"a"`, "12"}})))
	must(t, snk.Commit(t.Context(), position(1)))
	must(t, snk.Evolve(t.Context(), v1, v2))
	must(t, snk.Write(t.Context(), connectortest.Changes(v2, connectortest.Change{Row: []string{"2", "34"}},
		connectortest.Change{Op: record.Update, Row: []string{"1", "56"}})))
	must(t, snk.Commit(t.Context(), position(2)))
	want(t, "a column that a view uses", "1|a|56|3\n2||34|3", one(t, conn, "SELECT * FROM t ORDER BY id"))

	id := keyed("t", number("1", "id"), native("b", record.UUIDType(), "uuid"))
	err := snk.Evolve(t.Context(), v2, id)
	hint := connector.HintOf(err)
	if connector.ClassOf(err) != connector.ClassPermanent || !strings.Contains(hint, `ALTER TABLE "public"."t" ALTER COLUMN "b" TYPE uuid USING "b"::uuid`) {
		t.Errorf("values that are no uuid: %v, hint %q", err, hint)
	}
	must(t, snk.Close(t.Context()))
	sqlExec(t, conn, `ALTER TABLE "public"."t" ALTER COLUMN "b" TYPE uuid USING md5("b"::text)::uuid`)
	snk = startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	must(t, snk.Evolve(t.Context(), nil, id))
	must(t, snk.Write(t.Context(), connectortest.Changes(id, connectortest.Change{Row: []string{"3", `"01234567-89ab-cdef-0123-456789abcdef"`}})))
	must(t, snk.Commit(t.Context(), position(3)))
	want(t, "after it was changed by hand", "01234567-89ab-cdef-0123-456789abcdef", one(t, conn, "SELECT b FROM t WHERE id = 3"))
}

// A narrower column of the user's own is not touched; one that mirrors its source follows it exactly.
func TestSinkEvolveTypes(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, "CREATE TABLE t (id bigint PRIMARY KEY, mine varchar(5), n numeric(6,2), i integer, e real)")
	from := keyed("t", number("1", "id"), native("mine", arrow.BinaryTypes.String, "character varying(10)"), native("n", &arrow.Decimal128Type{Precision: 6, Scale: 2}, "numeric(6,2)"),
		native("i", arrow.PrimitiveTypes.Int32, "integer"), native("e", arrow.PrimitiveTypes.Float32, "real"))
	to := keyed("t", number("1", "id"), native("mine", arrow.BinaryTypes.String, "character varying(10)"), native("n", &arrow.Decimal128Type{Precision: 9, Scale: 4}, "numeric(9,4)"),
		native("i", arrow.PrimitiveTypes.Int16, "smallint"), native("e", arrow.PrimitiveTypes.Float64, "double precision"))
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	must(t, snk.Evolve(t.Context(), nil, from))
	must(t, snk.Evolve(t.Context(), from, to))
	must(t, snk.Commit(t.Context(), position(1)))
	want(t, "columns", "e|double precision|f|f\ni|integer|f|f\nid|bigint|t|f\nmine|character varying(5)|f|f\nn|numeric(9,4)|f|f", one(t, conn, columnsIn))

	never := startSink(t, sinkConfig(t, rawURL+"&create=never"), connector.Upsert, 1)
	more := keyed("t", append(to.Columns.Fields()[:4], native("e2", arrow.PrimitiveTypes.Float64, "double precision"))...)
	err := never.Evolve(t.Context(), to, more)
	want(t, "what may not be done", `ALTER TABLE "public"."t" DROP COLUMN "e", ADD COLUMN "e2" double precision`, connector.HintOf(err))
}

// While changes of the columns are on their way through the stream, the table is described as it will be.
func TestSinkMapsWhatWillBe(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, "CREATE TABLE t (id bigint PRIMARY KEY, n integer, gone text NOT NULL)")
	s := keyed("t", number("1", "id"), record.WithID(native("n", arrow.PrimitiveTypes.Int64, "bigint"), "2"), text("4", "more"))
	for name, rawURL := range map[string]string{"auto": rawURL, "never": rawURL + "&create=never"} {
		m, err := openSink(t, sinkConfig(t, rawURL)).Map(t.Context(), s)
		if name == "never" {
			if connector.ClassOf(err) != connector.ClassConfig {
				t.Errorf("create=never: %v", err)
			}
			continue
		}
		must(t, err)
		if m[1].Native != "bigint" || m[1].Fidelity != connector.Exact || m[2].Native != "text" {
			t.Errorf("mapped %+v", m)
		}
	}
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	must(t, snk.Evolve(t.Context(), nil, s))
	m, err := snk.Map(t.Context(), s) // also while it is written to
	must(t, err)
	if m[2].Native != "text" {
		t.Errorf("mapped %+v", m)
	}
	err = snk.Write(t.Context(), connectortest.Changes(s, connectortest.Change{Row: []string{"1", "2", "null"}}))
	if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(connector.HintOf(err), `ALTER COLUMN "gone" DROP NOT NULL`) {
		t.Errorf("a column that only the target has: %v, hint %q", err, connector.HintOf(err))
	}
}

// A table that gets a primary key at its source gets one here.
func TestSinkEvolveKey(t *testing.T) {
	rawURL, conn := db(t)
	without, with := bag("t", number("1", "id"), text("2", "v")), keyed("t", number("1", "id"), text("2", "v"))
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	must(t, snk.Evolve(t.Context(), nil, without))
	must(t, snk.Write(t.Context(), connectortest.Changes(without, connectortest.Change{Row: []string{"1", `"a"`}}, connectortest.Change{Row: []string{"2", `"b"`}})))
	must(t, snk.Evolve(t.Context(), without, with))
	must(t, snk.Write(t.Context(), connectortest.Changes(with, connectortest.Change{Op: record.Update, Row: []string{"1", `"A"`}})))
	must(t, snk.Commit(t.Context(), position(1)))
	want(t, "rows", "1|A\n2|b", one(t, conn, "SELECT * FROM t ORDER BY id"))
	want(t, "key", "PRIMARY KEY (id)", one(t, conn, "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'p'"))
}

package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

func text(id, name string) arrow.Field {
	return record.WithID(arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true}, id)
}

func number(id, name string) arrow.Field {
	return record.WithID(arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true}, id)
}

func bag(dataset string, fields ...arrow.Field) *record.Schema {
	return &record.Schema{Dataset: dataset, Columns: arrow.NewSchema(fields, nil)}
}

// Keys that all move in one statement under a deferred constraint, in any order of rows, cut into batches anywhere: a row that came
// to a key before its owner left it takes nothing from it.
// clause E12
func TestSinkShiftedKeysAcrossBatches(t *testing.T) {
	rawURL, conn := db(t)
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 12 {
		const rows = 40
		s := keyed(fmt.Sprintf("t%d", round), number("1", "id"), text("2", "v"))
		snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
		var inserts []connectortest.Change
		for i := range rows {
			inserts = append(inserts, connectortest.Change{Row: []string{strconv.Itoa(i), fmt.Sprintf(`"v%d"`, i)}})
		}
		must(t, snk.Write(t.Context(), connectortest.Changes(s, inserts...)))
		must(t, snk.Commit(t.Context(), position(1)))
		to := r.Perm(rows) // row i gets key to[i]
		if round%3 == 0 {
			for i := range to {
				to[i] = i + 1
			}
		}
		var moves []connectortest.Change
		for _, i := range r.Perm(rows) {
			moves = append(moves, connectortest.Change{
				Op: record.Update, Row: []string{strconv.Itoa(to[i]), connectortest.Unsent}, Old: []string{strconv.Itoa(i), fmt.Sprintf(`"v%d"`, i)},
			})
		}
		for len(moves) > 0 {
			n := min(len(moves), 1+r.IntN(10))
			if round == 0 {
				n = 1
			}
			b := connectortest.Changes(s, moves[:n]...)
			if moves = moves[n:]; len(moves) == 0 {
				b.Position = position(2).Position
			}
			must(t, snk.Write(t.Context(), b))
		}
		must(t, snk.Commit(t.Context(), position(2)))
		must(t, snk.Close(t.Context()))
		var rowsWant []string
		for i := range rows {
			rowsWant = append(rowsWant, fmt.Sprintf(`{"id":%d,"v":"v%d"}`, to[i], i))
		}
		slices.Sort(rowsWant)
		want(t, fmt.Sprintf("round %d", round), strings.Join(rowsWant, "\n"), strings.Join(rowsOf(t, conn, s), "\n"))
	}
}

// The same where only the server can tell which keys are equal, and where a row is refused in between, so that the batch is taken apart.
// clause E12
func TestSinkSwappedKeysRowByRow(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, "CREATE EXTENSION citext; CREATE TABLE t (id citext PRIMARY KEY, v text CHECK (v <> 'bad')); CREATE TABLE u (id bigint PRIMARY KEY, v text CHECK (v <> 'bad'))")
	for _, s := range []*record.Schema{keyed("t", text("", "id"), text("", "v")), keyed("u", number("", "id"), text("", "v"))} {
		snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
		row := func(id int, v string) []string {
			if s.Dataset == "t" {
				return []string{fmt.Sprintf(`"%d"`, id), v}
			}
			return []string{strconv.Itoa(id), v}
		}
		var inserts, moves []connectortest.Change
		for i := range 8 {
			inserts = append(inserts, connectortest.Change{Row: row(i, fmt.Sprintf(`"v%d"`, i))})
			moves = append(moves, connectortest.Change{Op: record.Update, Row: row(i^1, connectortest.Unsent), Old: row(i, fmt.Sprintf(`"v%d"`, i))})
		}
		must(t, snk.Write(t.Context(), connectortest.Changes(s, inserts...)))
		moves = slices.Insert(moves, 3, connectortest.Change{Row: row(99, `"bad"`)})
		b := connectortest.Changes(s, moves...)
		b.Position = position(1).Position
		if bad := rowErrorsOf(t, snk.Write(t.Context(), b)); len(bad) != 1 || bad[0].Index != 3 {
			t.Errorf("refused: %+v", bad)
		}
		must(t, snk.Commit(t.Context(), position(1)))
		must(t, snk.Close(t.Context()))
		want(t, s.Dataset, "0|v1\n1|v0\n2|v3\n3|v2\n4|v5\n5|v4\n6|v7\n7|v6", one(t, conn, "SELECT * FROM "+s.Dataset+" ORDER BY id"))
	}
}

// Few rows travel as arrays: every type but arrays themselves, updated, moved and deleted.
func TestSinkFewRowsOfAnyType(t *testing.T) {
	rawURL, conn := db(t)
	var cases []connectortest.Case
	snk := openSink(t, sinkConfig(t, rawURL))
	all := connectortest.Cases()
	mapped, err := snk.Map(t.Context(), connectortest.Schema("types", all...))
	must(t, err)
	for i, c := range all {
		rt, err := record.TypeOf(c.Type)
		must(t, err)
		if m := mapped[i+1]; m.Fidelity == connector.Exact && rt.Kind != record.Array && rt.Kind != record.List {
			cases = append(cases, c)
		}
	}
	if len(cases) < 30 {
		t.Fatalf("%d types", len(cases))
	}
	b := connectortest.Batch("types", cases...)
	snk = startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	must(t, snk.Write(t.Context(), b))
	must(t, snk.Write(t.Context(), connectortest.Sliced(b)))
	if snk.datasets["types"].stageTxn != 0 || !snk.datasets["types"].plan.arrays {
		t.Error("they went through a stage")
	}
	must(t, snk.Commit(t.Context(), position(1)))
	rows := connectortest.Rows(b)
	slices.Sort(rows)
	if got := rowsOf(t, conn, b.Schema); !slices.Equal(rows, got) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(rows, "\n"))
	}
}

// Rows without a key are found whatever their types: those without an equality, and those whose equality takes different values for
// the same (NaN, -0, 1.0 and 1.00, A and a).
// case C034
func TestSinkKeylessOfAnyType(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, `CREATE EXTENSION citext; CREATE TABLE t (f float8, n numeric, r numeric(6,2), j json, b jsonb, p point, x xml, c citext, ch char(4),
		ts timestamp(3), iv interval, a int[], v varchar(5), en int GENERATED ALWAYS AS (1) STORED, own text DEFAULT 'own')`)
	s := bag("t", native("f", arrow.PrimitiveTypes.Float64, "double precision"), native("n", record.NumericType(), "numeric"),
		native("r", record.NumericType(), "numeric"), native("j", record.JSONType(), "json"), native("b", record.JSONType(), "jsonb"),
		native("p", record.ForeignType("postgres", "point"), "point"), native("x", record.ForeignType("postgres", "xml"), "xml"),
		native("c", record.ForeignType("postgres", "citext"), "citext"), native("ch", arrow.BinaryTypes.String, "character(4)"),
		native("ts", arrow.FixedWidthTypes.Timestamp_us, "timestamp without time zone"), native("iv", record.IntervalType(), "interval"),
		native("a", record.ArrayType(arrow.PrimitiveTypes.Int32, 1), "integer[]"), native("v", arrow.BinaryTypes.String, "character varying(5)"))
	s.Columns = arrow.NewSchema(append(s.Columns.Fields()[:9], append([]arrow.Field{native("ts", &arrow.TimestampType{Unit: arrow.Microsecond},
		"timestamp without time zone")}, s.Columns.Fields()[10:]...)...), nil)
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	image := func(col int, doc string) []string {
		row := []string{"0", "1.0", "1.5", `{"a": 1}`, `{"a": 1}`, `"(1,2)"`, `"<a/>"`, `"Aa"`, `"ab  "`, `"2026-01-02T03:04:05.123"`, `"P1D"`, `[1,2]`, `"v"`}
		if col >= 0 {
			row[col] = doc
		}
		return row
	}
	var others [][]string // each differs from the first one in one column, by what an equality might not see
	for col, docs := range map[int][]string{
		0: {"-0", `"NaN"`, "null"}, 1: {"1.00", `"NaN"`}, 2: {"1.51"}, 3: {`{"a":1}`, `{"a": 1.0}`}, 4: {`{"a": 1.0}`}, 5: {`"(2,1)"`}, 6: {`"<a></a>"`},
		7: {`"aA"`}, 8: {`"Ab  "`}, 9: {`"2026-01-02T03:04:05.124"`}, 10: {`"PT24H"`}, 11: {`[1,2,null]`, "null"}, 12: {`""`, "null"},
	} {
		for _, doc := range docs {
			others = append(others, image(col, doc))
		}
	}
	slices.SortFunc(others, slices.Compare)
	var inserts []connectortest.Change
	for _, row := range append([][]string{image(-1, ""), image(-1, "")}, others...) {
		inserts = append(inserts, connectortest.Change{Row: row})
	}
	must(t, snk.Write(t.Context(), connectortest.Changes(s, inserts...)))
	must(t, snk.Commit(t.Context(), position(1)))
	sqlExec(t, conn, "UPDATE t SET own = 'mine'")
	count := func() string { return one(t, conn, "SELECT count(*), count(*) FILTER (WHERE own = 'mine') FROM t") }
	must(t, snk.Write(t.Context(), connectortest.Changes(s, connectortest.Change{Op: record.Delete, Row: image(-1, "")})))
	must(t, snk.Commit(t.Context(), position(2)))
	want(t, "one of two equal rows is gone", fmt.Sprintf("%d|%[1]d", len(others)+1), count())
	for i, row := range others { // each is found, and nothing else
		is := slices.Clone(row)
		is[12] = `"new"`
		must(t, snk.Write(t.Context(), connectortest.Changes(s, connectortest.Change{Op: record.Update, Row: is, Old: row})))
		must(t, snk.Commit(t.Context(), position(3)))
		want(t, fmt.Sprintf("updated, of %q", row), fmt.Sprintf("%d|%[1]d", len(others)+1), count())
		want(t, fmt.Sprintf("updated %d", i), strconv.Itoa(i+1), one(t, conn, "SELECT count(*) FROM t WHERE v = 'new'"))
	}
	var removes []connectortest.Change
	for _, row := range others {
		is := slices.Clone(row)
		is[12] = `"new"`
		removes = append(removes, connectortest.Change{Op: record.Delete, Row: is})
	}
	removes = append(removes, connectortest.Change{Op: record.Delete, Row: image(-1, "")})
	must(t, snk.Write(t.Context(), connectortest.Changes(s, removes...)))
	must(t, snk.Commit(t.Context(), position(4)))
	want(t, "all are gone", "0|0", count())
	bad := rowErrorsOf(t, snk.Write(t.Context(), connectortest.Changes(s, removes[0])))
	if len(bad) != 1 || !strings.Contains(bad[0].Reject.Message, `"c":"Aa"`) {
		t.Errorf("a missing row: %+v", bad)
	}
	noImage := connectortest.Changes(s, connectortest.Change{Op: record.Update, Row: image(-1, "")})
	if err := snk.Write(t.Context(), noImage); connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(connector.HintOf(err), "REPLICA IDENTITY FULL") {
		t.Errorf("an update without an image: %v, hint %q", err, connector.HintOf(err))
	}
}

// A target whose type is coarser makes one of two images; both their rows are found.
func TestSinkKeylessImagesThatBecomeOne(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, "CREATE TABLE t (n numeric(6,2), v text); CREATE INDEX ON t (v)")
	s := bag("t", native("n", record.NumericType(), "numeric"), text("", "v"))
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	ins, del := func(row ...string) connectortest.Change { return connectortest.Change{Row: row} }, func(row ...string) connectortest.Change {
		return connectortest.Change{Op: record.Delete, Row: row}
	}
	must(t, snk.Write(t.Context(), connectortest.Changes(s, ins("1.0", `"a"`), ins("1.00", `"a"`), ins("2", "null"), ins("3", "null"))))
	must(t, snk.Write(t.Context(), connectortest.Changes(s, del("1.00", `"a"`), del("1.0", `"a"`), del("2", "null"))))
	must(t, snk.Commit(t.Context(), position(1)))
	want(t, "rows", "3.00|", one(t, conn, "SELECT * FROM t"))
}

// A dataset without a key in random batches, with many equal rows, partitions and a missing row now and then.
// case C034
func TestSinkKeylessPartitions(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, `CREATE TABLE t (n bigint, v text) PARTITION BY LIST (n); CREATE TABLE t0 PARTITION OF t FOR VALUES IN (0); CREATE TABLE t1 PARTITION OF t DEFAULT`)
	s := bag("t", number("", "n"), text("", "v"))
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	r := rand.New(rand.NewPCG(3, 4))
	var model [][]string
	random := func() []string { return []string{strconv.Itoa(r.IntN(3)), fmt.Sprintf(`"%c"`, 'a'+rune(r.IntN(2)))} }
	for range 30 {
		var changes []connectortest.Change
		missing := 0
		for range 1 + r.IntN(20) {
			at := 0
			if len(model) > 0 {
				at = r.IntN(len(model))
			}
			switch k := r.IntN(10); {
			case k < 4 || len(model) == 0:
				model = append(model, random())
				changes = append(changes, connectortest.Change{Row: model[len(model)-1]})
			case k < 6:
				changes = append(changes, connectortest.Change{Op: record.Delete, Row: model[at]})
				model = slices.Delete(model, at, at+1)
			case k == 6:
				changes = append(changes, connectortest.Change{Op: record.Delete, Row: []string{"9", `"missing"`}})
				missing++
			default:
				old := model[at]
				model[at] = random()
				changes = append(changes, connectortest.Change{Op: record.Update, Row: model[at], Old: old})
			}
		}
		err := snk.Write(t.Context(), connectortest.Changes(s, changes...))
		if missing > 0 {
			if n := len(rowErrorsOf(t, err)); n != missing {
				t.Fatalf("%d rows are refused, want %d", n, missing)
			}
		} else {
			must(t, err)
		}
		must(t, snk.Commit(t.Context(), position(1)))
		rows := []string{}
		for _, m := range model {
			rows = append(rows, fmt.Sprintf(`{"n":%s,"v":%s}`, m[0], m[1]))
		}
		slices.Sort(rows)
		want(t, "rows", strings.Join(rows, "\n"), strings.Join(rowsOf(t, conn, s), "\n"))
	}
}

// The target's own columns: left alone by updates, also where a key moves, with their defaults where a row is new.
func TestSinkColumnsOfTheTarget(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, `CREATE TYPE mood AS ENUM ('ok', 'bad'); CREATE TABLE t (id bigint PRIMARY KEY, v text, note text DEFAULT 'new', m mood, ar int[] NOT NULL DEFAULT '{7}',
		n bigint GENERATED ALWAYS AS IDENTITY, twice text GENERATED ALWAYS AS (v || v) STORED)`)
	s := keyed("t", number("", "id"), text("", "v"))
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	change := func(op record.Op, id, v string, old ...string) connectortest.Change {
		c := connectortest.Change{Op: op, Row: []string{id, v}}
		if len(old) > 0 {
			c.Old = []string{old[0], "null"}
		}
		return c
	}
	must(t, snk.Write(t.Context(), connectortest.Changes(s, change(record.Insert, "1", `"a"`), change(record.Insert, "2", `"b"`), change(record.Insert, "3", `"c"`),
		change(record.Insert, "4", `"d"`))))
	must(t, snk.Commit(t.Context(), position(1)))
	sqlExec(t, conn, "UPDATE t SET note = 'kept' || id, m = 'ok', ar = '{1,2}'")
	must(t, snk.Write(t.Context(), connectortest.Changes(s,
		change(record.Update, "1", `"A"`), change(record.Update, "20", connectortest.Unsent, "2"), change(record.Update, "30", `"C"`, "3"),
		change(record.Delete, "4", "null"), change(record.Insert, "4", `"D"`), change(record.Update, "50", `"E"`, "5"))))
	must(t, snk.Commit(t.Context(), position(2)))
	want(t, "rows", "1|A|kept1|ok|{1,2}|1|AA\n4|D|new||{7}|new|DD\n20|b|kept2|ok|{1,2}|2|bb\n30|C|kept3|ok|{1,2}|3|CC\n50|E|new||{7}|new|EE",
		one(t, conn, "SELECT id, v, note, m, ar, CASE WHEN n > 4 THEN 'new' ELSE n::text END, twice FROM t ORDER BY id"))
}

// Under constraints=hold a broken foreign key ends the run with what can be done about it; under off it is not looked at, and triggers
// do not fire.
func TestSinkConstraints(t *testing.T) {
	parents, children := keyed("p", number("", "id")), keyed("c", number("", "id"), number("", "p"))
	ins := func(row ...string) connectortest.Change { return connectortest.Change{Row: row} }
	setup := func(t *testing.T) (string, func(sql string) string) {
		t.Helper()
		rawURL, conn := db(t)
		sqlExec(t, conn, `CREATE TABLE p (id bigint PRIMARY KEY); CREATE TABLE c (id bigint PRIMARY KEY, p bigint REFERENCES p);
			CREATE TABLE log (n int); CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (1); RETURN NEW; END';
			CREATE TRIGGER tr AFTER INSERT ON p FOR EACH ROW EXECUTE FUNCTION f()`)
		return rawURL, func(sql string) string { return one(t, conn, sql) }
	}
	t.Run("hold", func(t *testing.T) {
		rawURL, ask := setup(t)
		snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
		err := snk.Write(t.Context(), connectortest.Changes(children, ins("1", "1")))
		if connector.ClassOf(err) != connector.ClassPermanent || !strings.Contains(connector.HintOf(err), "constraints=off") ||
			!strings.Contains(connector.HintOf(err), `ALTER CONSTRAINT "c_p_fkey" DEFERRABLE`) {
			t.Errorf("a child without its parent: %v, hint %q", err, connector.HintOf(err))
		}
		must(t, snk.Close(t.Context()))
		ask("ALTER TABLE c ALTER CONSTRAINT c_p_fkey DEFERRABLE; SELECT 1")
		snk = startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
		must(t, snk.Write(t.Context(), connectortest.Changes(children, ins("1", "1"))))
		must(t, snk.Write(t.Context(), connectortest.Changes(parents, ins("1"))))
		must(t, snk.Commit(t.Context(), position(1)))
		must(t, snk.Write(t.Context(), connectortest.Changes(children, ins("2", "2"))))
		if err := snk.Commit(t.Context(), position(2)); !strings.Contains(connector.HintOf(err), "constraints=off") {
			t.Errorf("a child without its parent at the commit: %v, hint %q", err, connector.HintOf(err))
		}
		want(t, "rows, and what triggers wrote", "1|1|1", ask("SELECT (SELECT count(*) FROM p), (SELECT count(*) FROM c), (SELECT count(*) FROM log)"))
	})
	t.Run("off", func(t *testing.T) {
		rawURL, ask := setup(t)
		snk := startSink(t, sinkConfig(t, rawURL+"&constraints=off"), connector.Upsert, 1)
		must(t, snk.Write(t.Context(), connectortest.Changes(children, ins("1", "1"), ins("2", "7"))))
		must(t, snk.Write(t.Context(), connectortest.Changes(parents, ins("1"))))
		must(t, snk.Commit(t.Context(), position(1)))
		truncate := &record.Batch{Schema: parents, Truncate: true}
		must(t, snk.Write(t.Context(), truncate))
		must(t, snk.Commit(t.Context(), position(2)))
		want(t, "rows, and what triggers wrote", "0|2|0", ask("SELECT (SELECT count(*) FROM p), (SELECT count(*) FROM c), (SELECT count(*) FROM log)"))
	})
	// case C036
	t.Run("truncate", func(t *testing.T) {
		rawURL, ask := setup(t)
		snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
		must(t, snk.Write(t.Context(), connectortest.Changes(parents, ins("1"), ins("2"))))
		must(t, snk.Write(t.Context(), connectortest.Changes(children, ins("1", "1"))))
		must(t, snk.Commit(t.Context(), position(1)))
		for _, s := range []*record.Schema{children, parents} { // the referring one first, or else in any order if it is deferrable
			b := connectortest.Changes(s)
			b.Truncate = true
			must(t, snk.Write(t.Context(), b))
		}
		must(t, snk.Write(t.Context(), connectortest.Changes(parents, ins("3"))))
		must(t, snk.Commit(t.Context(), position(2)))
		want(t, "rows", "1|0|3", ask("SELECT (SELECT count(*) FROM p), (SELECT count(*) FROM c), (SELECT max(id) FROM p)"))
	})
}

// clause S23
func TestSinkConstraintsChecked(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, `CREATE TABLE p (id bigint PRIMARY KEY); CREATE TABLE c (id bigint PRIMARY KEY, p bigint REFERENCES p);
		CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER tr BEFORE INSERT ON c FOR EACH ROW EXECUTE FUNCTION f()`)
	probe := func(rawURL, name string) connector.Probe {
		probes, err := openSink(t, sinkConfig(t, rawURL)).Check(t.Context())
		must(t, err)
		for _, p := range probes {
			if p.Name == name {
				return p
			}
		}
		return connector.Probe{}
	}
	p := probe(rawURL, "foreign keys")
	if p.Status != connector.Warn || !strings.Contains(p.Detail, "c_p_fkey") || !strings.Contains(p.Fix, "constraints=off") {
		t.Errorf("foreign keys under hold: %+v", p)
	}
	if p = probe(rawURL, "triggers"); !strings.Contains(p.Detail, "tr") {
		t.Errorf("triggers: %+v", p)
	}
	if p = probe(rawURL+"&constraints=off", "write without constraints"); p.Status != connector.Pass || p.Name == "" {
		t.Errorf("a superuser: %+v", p)
	}
	role := "leat_test_" + one(t, conn, "SELECT substr(md5(random()::text), 1, 10)")
	sqlExec(t, conn, "CREATE ROLE "+role+" LOGIN PASSWORD 'pw'; GRANT CREATE ON DATABASE "+one(t, conn, "SELECT current_database()")+" TO "+role+
		"; GRANT ALL ON p, c TO "+role)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		must(t, err)
	})
	u, err := url.Parse(rawURL)
	must(t, err)
	u.User = url.UserPassword(role, "pw")
	other := u.String() + "&constraints=off"
	snk := startSink(t, sinkConfig(t, other), connector.Upsert, 1)
	err = snk.Write(t.Context(), connectortest.Numbered("p2", 0, 1))
	if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(connector.HintOf(err), "GRANT SET ON PARAMETER session_replication_role") {
		t.Errorf("writing without the privilege: %v, hint %q", err, connector.HintOf(err))
	}
	p = probe(other, "write without constraints")
	fix := `GRANT SET ON PARAMETER session_replication_role TO "` + role + `"`
	if p.Status != connector.Fail || p.Fix != fix {
		t.Fatalf("without the privilege: %+v", p)
	}
	sqlExec(t, conn, p.Fix)
	if p = probe(other, "write without constraints"); p.Status != connector.Pass {
		t.Errorf("with the privilege: %+v", p)
	}
	snk = startSink(t, sinkConfig(t, other+"&table=c"), connector.Upsert, 1)
	must(t, snk.Write(t.Context(), connectortest.Changes(keyed("c", number("", "id"), number("", "p")), connectortest.Change{Row: []string{"1", "99"}})))
	must(t, snk.Commit(t.Context(), position(1)))
}

// What a commit of few rows costs: one message for the rows, one for the progress.
func TestSinkRoundTripsOfACommit(t *testing.T) {
	rawURL, conn := db(t)
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	s := keyed("t", number("", "id"), text("", "v"), text("", "w"))
	ins := connectortest.Changes(s, connectortest.Change{Row: []string{"1", `"a"`, `"b"`}}, connectortest.Change{Row: []string{"2", `"c"`, `"d"`}})
	must(t, snk.Write(t.Context(), ins))
	must(t, snk.Commit(t.Context(), position(1)))
	trips := 0
	snk.db.env.Roundtrip = func(string) { trips++ }
	for _, c := range []struct {
		name    string
		changes []connectortest.Change
	}{
		{"update", []connectortest.Change{{Op: record.Update, Row: []string{"1", `"A"`, `"B"`}}}},
		{"unsent", []connectortest.Change{{Op: record.Update, Row: []string{"1", `"x"`, connectortest.Unsent}}, {Op: record.Update, Row: []string{"2", connectortest.Unsent, `"y"`}}}},
		{"delete, insert", []connectortest.Change{{Op: record.Delete, Row: []string{"2", "null", "null"}}, {Op: record.Insert, Row: []string{"3", `"e"`, `"f"`}}}},
		{"moved", []connectortest.Change{{Op: record.Update, Row: []string{"4", `"x"`, "null"}, Old: []string{"3", "null", "null"}}}},
		{"nothing", []connectortest.Change{}},
	} {
		trips = 0
		must(t, snk.Write(t.Context(), connectortest.Changes(s, c.changes...)))
		must(t, snk.Commit(t.Context(), position(2)))
		if trips > 2 {
			t.Errorf("%s: %d round trips, want 2", c.name, trips)
		}
	}
	want(t, "rows", "2", one(t, conn, "SELECT count(*) FROM t"))
}

// The ledger, which is large and changes seldom, is written where it changed, and comes back byte for byte in any case; what an
// earlier layout of the table holds is read.
// case C063
func TestSinkLedgerIsKept(t *testing.T) {
	rawURL, conn := db(t)
	snk := startSink(t, sinkConfig(t, rawURL), connector.Append, 1)
	committed := func(what, ledger string) {
		t.Helper()
		again := startSink(t, sinkConfig(t, rawURL), connector.Append, 1)
		p, ok, err := again.Committed(t.Context())
		must(t, err)
		want(t, what, ledger, string(p.Ledger))
		if !ok {
			t.Errorf("%s: no progress", what)
		}
		must(t, again.Close(t.Context()))
	}
	large := `{ "chunks": [` + strings.Repeat(`{"dataset":"public.t","from":[1]}, `, 600) + `1] }`
	writes := func() string {
		return one(t, conn, "SELECT n_tup_ins FROM pg_stat_all_tables WHERE relid = (SELECT reltoastrelid FROM pg_class WHERE oid = '_leat.progress'::regclass)")
	}
	for i, ledger := range []string{"", large, large, large, `[1]`, ""} {
		p := position(i)
		p.Ledger = []byte(ledger)
		must(t, snk.Commit(t.Context(), p))
		committed(fmt.Sprintf("commit %d", i), ledger)
	}
	must(t, snk.Close(t.Context())) // its statistics are reported
	if n := writes(); n != "0" && n != "1" && n != "2" {
		t.Errorf("the ledger was written in %s pieces, want it once", n)
	}

	sqlExec(t, conn, `DROP TABLE _leat.columns; ALTER TABLE _leat.progress DROP COLUMN ledger; UPDATE _leat.progress SET progress = '{"run":"r","position":{"shape":1,"data":7},"ledger":[{"old":1}]}'`)
	committed("an earlier layout", `[{"old":1}]`)
	snk = startSink(t, sinkConfig(t, rawURL), connector.Append, 1)
	p := position(8)
	p.Ledger = []byte(`[{"new":1}]`)
	must(t, snk.Commit(t.Context(), p))
	committed("from an earlier layout on", `[{"new":1}]`)
}

// case C032
func TestSinkIdentityAlwaysFollows(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text)")
	s := keyed("t", number("1", "id"), text("2", "v"))
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	must(t, snk.Write(t.Context(), connectortest.Changes(s, connectortest.Change{Row: []string{"7", `"a"`}}, connectortest.Change{Row: []string{"8", `"b"`}})))
	must(t, snk.Commit(t.Context(), position(1)))
	must(t, snk.Write(t.Context(), connectortest.Changes(s, connectortest.Change{Op: record.Update, Row: []string{"7", `"A"`}},
		connectortest.Change{Op: record.Update, Row: []string{"9", connectortest.Unsent}, Old: []string{"8", "null"}},
		connectortest.Change{Op: record.Insert, Row: []string{"10", `"c"`}}, connectortest.Change{Op: record.Delete, Row: []string{"10", "null"}})))
	must(t, snk.Commit(t.Context(), position(2)))
	want(t, "rows", "7|A\n9|b", one(t, conn, "SELECT * FROM t ORDER BY id"))
}

// Rows of a snapshot are appended while the target has none of them, and written by key as soon as it has one.
// clause E11
func TestSinkSnapshotRows(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, "CREATE TABLE t (id bigint PRIMARY KEY, v text CHECK (v <> 'value 7'))")
	snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
	chunk := func(from, n int) *record.Batch {
		b := connectortest.Numbered("t", from, n)
		b.Chunk = &record.Chunk{Dataset: "t"}
		return b
	}
	bad := rowErrorsOf(t, snk.Write(t.Context(), chunk(0, 10)))
	if len(bad) != 1 || bad[0].Index != 7 {
		t.Errorf("refused: %+v", bad)
	}
	must(t, snk.Write(t.Context(), chunk(10, 10)))
	must(t, snk.Commit(t.Context(), position(1)))
	want(t, "rows that were not there", "19", one(t, conn, "SELECT count(*) FROM t WHERE xmax = 0"))
	sqlExec(t, conn, "UPDATE t SET v = 'old'")
	must(t, snk.Write(t.Context(), chunk(15, 10)))
	must(t, snk.Write(t.Context(), chunk(12, 2)))
	must(t, snk.Commit(t.Context(), position(2)))
	want(t, "rows that were", "24|12", one(t, conn, "SELECT count(*), count(*) FILTER (WHERE v = 'old') FROM t"))
}

// A pipeline behind another one: no column of leat's own is added to a table, so the tables at both ends have the same columns, also
// once the first one got one more.
// case C039
func TestSinkChain(t *testing.T) {
	urls, conns := make([]string, 3), make([]*pgx.Conn, 3)
	for i := range urls {
		urls[i], conns[i] = db(t)
	}
	sqlExec(t, conns[0], `CREATE TABLE t (id integer PRIMARY KEY, v character varying(7), n numeric(9,2)); INSERT INTO t SELECT i, 'v' || i, i / 4.0 FROM generate_series(1, 50) i`)
	hop := func(from, to, fence int) {
		t.Helper()
		cfg, ok := NewSource().(*SourceConfig)
		if !ok {
			t.Fatal("no source")
		}
		must(t, cfg.SetURL(urls[from]+"&table=public.t"))
		src, err := cfg.Open(connectortest.Env(t))
		must(t, err)
		defer src.Close(t.Context()) //nolint:errcheck // it was read to its end
		must(t, src.Start(t.Context(), connector.SourceStart{}))
		snk := startSink(t, sinkConfig(t, urls[to]), connector.Upsert, uint64(fence))
		for {
			b, err := src.Read(t.Context(), connector.Limit{Rows: 20, Bytes: 1 << 20})
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			must(t, snk.Evolve(t.Context(), nil, b.Schema))
			must(t, snk.Write(t.Context(), b))
		}
		must(t, snk.Commit(t.Context(), position(1)))
		must(t, snk.Close(t.Context()))
	}
	same := func(what string) {
		t.Helper()
		for _, sql := range []string{columnsIn, "SELECT to_jsonb(t) FROM public.t ORDER BY id"} {
			first := one(t, conns[0], sql)
			want(t, what+", second", first, one(t, conns[1], sql))
			want(t, what+", third", first, one(t, conns[2], sql))
		}
	}
	hop(0, 1, 1)
	hop(1, 2, 1)
	same("copied")
	sqlExec(t, conns[0], "ALTER TABLE t ADD c integer; UPDATE t SET c = id, v = 'w' WHERE id % 2 = 0")
	hop(0, 1, 2)
	hop(1, 2, 2)
	same("with a column more")
}

// Rows that the source updates are updated, and inserted where the target lacks them: few rows and many, in the order of their key where
// its bytes tell it and where only the server knows it, alone and together with inserts and deletes.
// clause E12
func TestSinkUpdatesOfRowsThatMayBeMissing(t *testing.T) {
	rawURL, conn := db(t)
	sqlExec(t, conn, `CREATE TABLE whole (id bigint PRIMARY KEY, v text, own int DEFAULT 7);
		CREATE TABLE fraction (id numeric PRIMARY KEY, v text, own int DEFAULT 7);
		CREATE TABLE word (id text PRIMARY KEY, v text, own int DEFAULT 7)`)
	key := map[string]arrow.Field{
		"whole": number("", "id"), "fraction": native("id", record.NumericType(), "numeric"), "word": text("", "id"),
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, name := range slices.Sorted(maps.Keys(key)) {
		s := keyed(name, key[name], text("", "v"))
		snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
		model := map[int]string{}
		for n, rows := range []int{5, 300, 5000, 700, 6000, 2500} {
			missing, only := n != 1 && n != 4, n%2 == 0 // whether the target lacks some; only updates
			delete(snk.datasets, name)                  // what it found out before is forgotten
			var changes []connectortest.Change
			for i := range rows {
				k := r.IntN(2*rows) - rows/2
				id := strconv.Itoa(k)
				if name == "word" {
					id = strconv.Quote(id)
				}
				op := []record.Op{record.Update, record.Update, record.Update, record.Insert, record.Delete}[r.IntN(5)]
				if only {
					op = record.Update
				}
				if _, ok := model[k]; !ok && !missing && op == record.Update {
					op = record.Upsert
				}
				v := strconv.Quote(fmt.Sprintf("v%d.%d", n, i))
				if model[k] = v; op == record.Delete {
					v = "null"
					delete(model, k)
				}
				changes = append(changes, connectortest.Change{Op: op, Row: []string{id, v}})
			}
			must(t, snk.Write(t.Context(), connectortest.Changes(s, changes...)))
			must(t, snk.Commit(t.Context(), position(n)))
			var rowsWant []string
			for k, v := range model {
				rowsWant = append(rowsWant, fmt.Sprintf("%d|%s|7", k, strings.Trim(v, `"`)))
			}
			slices.Sort(rowsWant)
			got := strings.Split(one(t, conn, "SELECT * FROM "+name), "\n")
			slices.Sort(got)
			want(t, fmt.Sprintf("%s, batch %d", name, n), strings.Join(rowsWant, "\n"), strings.Join(got, "\n"))
		}
		must(t, snk.Close(t.Context()))
	}
}

// Where a pooler may stand in between, settings end with the transaction and no statement stays; where none does, both stay.
func TestSinkLeavesNothingToAPooler(t *testing.T) {
	rawURL, conn := db(t)
	for _, direct := range []bool{true, false} {
		snk := startSink(t, sinkConfig(t, rawURL), connector.Upsert, 1)
		if !snk.db.direct {
			t.Fatal("no pooler stands in between")
		}
		if snk.db.direct = direct; !direct {
			must(t, snk.db.exec(t.Context(), "settings", "DISCARD ALL"))
		}
		s := keyed("t", number("", "id"), text("", "v"))
		for n := range 3 {
			must(t, snk.Write(t.Context(), connectortest.Changes(s, connectortest.Change{Op: record.Update, Row: []string{"1", strconv.Quote(strconv.Itoa(n))}})))
			must(t, snk.Commit(t.Context(), position(n)))
		}
		var kept struct {
			Statements int
			Messages   string
		}
		asked := "SELECT json_build_object('statements', (SELECT count(*) FROM pg_prepared_statements), 'messages', current_setting('client_min_messages'))"
		_, err := snk.db.query(t.Context(), "kept", asked, &kept)
		must(t, err)
		if got := kept.Statements > 0; got != direct || (kept.Messages == "warning") != direct {
			t.Errorf("direct %t: %+v", direct, kept)
		}
		must(t, snk.Close(t.Context()))
		want(t, "rows", "1|2", one(t, conn, "SELECT * FROM t"))
	}
}

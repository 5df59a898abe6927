package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// follow starts a sink as the engine does for a source that is followed.
func follow(t *testing.T, path string) connector.Sink {
	t.Helper()
	return openSink(t, sinkOf(path), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 1, Mode: connector.Upsert})
}

func mustWrite(t *testing.T, snk connector.Sink, batches ...*record.Batch) {
	t.Helper()
	for _, b := range batches {
		if err := snk.Write(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

func evolve(t *testing.T, snk connector.Sink, from, to *record.Schema) error {
	t.Helper()
	ev, ok := connector.As[connector.Evolver](snk)
	if !ok {
		t.Fatal("the sink is no Evolver")
	}
	return ev.Evolve(t.Context(), from, to)
}

func mustEvolve(t *testing.T, snk connector.Sink, from, to *record.Schema) {
	t.Helper()
	if err := evolve(t, snk, from, to); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error) []connector.RowError {
	t.Helper()
	var rows *connector.RowErrors
	if !errors.As(err, &rows) {
		t.Fatalf("Write returned %v: want refused rows", err)
	}
	return rows.Rows
}

// columns is a schema of dataset t; the first keys columns are its key, ids count from 1.
func columns(keys int, fields ...arrow.Field) *record.Schema {
	s := &record.Schema{Dataset: "t"}
	for i := range fields {
		if record.IDOf(fields[i]) == "" {
			fields[i] = record.WithID(fields[i], strconv.Itoa(i+1))
		}
		if fields[i].Nullable = i >= keys; i < keys {
			s.Key = append(s.Key, i)
		}
	}
	s.Columns = arrow.NewSchema(fields, nil)
	return s
}

func column(name string, dt arrow.DataType) arrow.Field { return arrow.Field{Name: name, Type: dt} }

func ins(docs ...string) connectortest.Change {
	return connectortest.Change{Op: record.Insert, Row: docs}
}

func del(docs ...string) connectortest.Change {
	return connectortest.Change{Op: record.Delete, Row: docs}
}

// upd is an update from the first half of docs to the second one.
func upd(docs ...string) connectortest.Change {
	half := len(docs) / 2
	return connectortest.Change{Op: record.Update, Old: docs[:half], Row: docs[half:]}
}

func holds(t *testing.T, path, sql string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, query(t, path, sql)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", sql, diff)
	}
}

const unsent = connectortest.Unsent

// txns cuts a batch into transactions of so many rows.
func txns(b *record.Batch, first int, rows ...int) *record.Batch {
	for i, n := range rows {
		b.Txns = append(b.Txns, record.Txn{Rows: n, Position: record.Position{Shape: 1, Data: []byte(strconv.Itoa(first + i))}})
	}
	return b
}

// clause E12: two rows have one key only inside a transaction, also where it spans batches; columns of the table that the source does
// not have move with their rows.
func TestSwapsEndWithTheirTransaction(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, own TEXT DEFAULT 'none');
		INSERT INTO t VALUES (1, 'a', 'A'), (2, 'b', 'B'), (3, 'c', 'C')`)
	s := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	snk := follow(t, path)
	mustWrite(t, snk,
		// One transaction: 1 and 2 swap. The next one moves 2 on, then deletes it.
		txns(connectortest.Changes(s, upd("1", "null", "2", unsent)), 1, 1),
		txns(connectortest.Changes(s, upd("2", "null", "1", unsent), upd("2", "null", "4", unsent), upd("4", "null", "3", unsent)), 1, 1, 2),
		txns(connectortest.Changes(s, del("3", "null")), 2, 1),
	)
	commit(t, snk, record.Progress{Run: "r"})
	holds(t, path, `SELECT id||v||own FROM t ORDER BY id`, "1bB", "3aA")

	// A row that moves onto an older state of itself, as in a replay, is not a second row.
	mustWrite(t, snk, txns(connectortest.Changes(s, upd("7", "null", "1", `"new"`), upd("1", "null", "5", unsent)), 3, 2))
	commit(t, snk, record.Progress{Run: "r"})
	holds(t, path, `SELECT id||v||own FROM t ORDER BY id`, "3aA", "5newB")
}

// clause E12: with full images, changes find the right one of two rows that have one key for a moment.
func TestChangesOfRowsThatShareAKey(t *testing.T) {
	s := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String), column("w", arrow.BinaryTypes.String))
	for name, tt := range map[string]struct {
		changes []connectortest.Change
		want    []string
	}{
		"the second is updated": {[]connectortest.Change{
			upd("1", `"a"`, `"A"`, "2", `"a"`, `"A"`), upd("2", `"a"`, `"A"`, "2", `"x"`, unsent), upd("2", `"b"`, `"B"`, "1", unsent, `"B"`),
		}, []string{"1bB", "2xA", "3cC"}},
		"the first is updated": {[]connectortest.Change{
			upd("1", `"a"`, `"A"`, "2", `"a"`, `"A"`), upd("2", `"b"`, `"B"`, "2", `"x"`, unsent), upd("2", `"x"`, `"B"`, "1", unsent, `"B"`),
		}, []string{"1xB", "2aA", "3cC"}},
		"the second moves on": {[]connectortest.Change{
			upd("1", `"a"`, `"A"`, "2", `"a"`, `"A"`), upd("2", `"a"`, `"A"`, "3", `"a"`, `"A"`), upd("3", `"a"`, `"A"`, "9", `"z"`, `"A"`),
		}, []string{"2bB", "3cC", "9zA"}},
		"the second is deleted": {[]connectortest.Change{
			upd("1", `"a"`, `"A"`, "2", `"a"`, `"A"`), del("2", `"a"`, `"A"`),
		}, []string{"2bB", "3cC"}},
		"the first is deleted": {[]connectortest.Change{
			upd("1", `"a"`, `"A"`, "2", `"a"`, `"A"`), del("2", `"b"`, `"B"`),
		}, []string{"2aA", "3cC"}},
		"a key alone means the first": {[]connectortest.Change{
			upd("1", "null", "null", "2", `"a"`, unsent), del("2", "null", "null"),
		}, []string{"2aA", "3cC"}},
		"three at one key": {[]connectortest.Change{
			upd("1", "null", "null", "3", unsent, unsent), upd("2", "null", "null", "3", unsent, unsent),
			upd("3", "null", "null", "1", unsent, unsent), upd("3", "null", "null", "2", unsent, unsent),
		}, []string{"1cC", "2aA", "3bB"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.db")
			snk := follow(t, path)
			mustWrite(t, snk, connectortest.Changes(s, ins("1", `"a"`, `"A"`), ins("2", `"b"`, `"B"`), ins("3", `"c"`, `"C"`)))
			mustWrite(t, snk, connectortest.Changes(s, tt.changes...))
			commit(t, snk, record.Progress{Run: "r"})
			holds(t, path, `SELECT id||v||w FROM t ORDER BY id`, tt.want...)
		})
	}
}

// clause E12: what else is unique in a table, and its triggers, see the order of the source, also in large batches.
func TestOrderBesidesTheKey(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT UNIQUE); INSERT INTO t VALUES (1000, 'x')`)
	s := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	changes := []connectortest.Change{del("1000", "null")}
	for i := range 200 {
		changes = append(changes, ins(strconv.Itoa(500-i), fmt.Sprintf(`"x%d"`, i)))
	}
	changes = append(changes, ins("1", `"x"`))
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(s, changes...))
	commit(t, snk, record.Progress{Run: "r"})
	holds(t, path, `SELECT id FROM t WHERE v = 'x'`, "1")
}

// case C033: half of an old key says nothing.
func TestPartOfAnOldKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	s := columns(2, column("a", arrow.PrimitiveTypes.Int64), column("b", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(s, ins("1", "1", `"x"`)))
	rows := refused(t, snk.Write(t.Context(), connectortest.Changes(s, upd("1", "null", "null", "1", "2", `"y"`))))
	if len(rows) != 1 || rows[0].Reject.Column != "b" {
		t.Errorf("refused %+v", rows)
	}
}

// case C034: rows without a key are found one by one by all their columns, exactly: NULLs, kinds of values, case, the sign of zero.
func TestKeylessRowsAreFoundExactly(t *testing.T) {
	path := database(t, `CREATE TABLE t (f, s TEXT COLLATE NOCASE, n NUMERIC, b BLOB)`)
	s := columns(0, column("f", arrow.PrimitiveTypes.Float64), column("s", arrow.BinaryTypes.String), column("n", record.NumericType()),
		column("b", arrow.BinaryTypes.Binary))
	all := [][]string{
		{"0", `"a"`, "1", `"AA=="`},
		{"-0", `"a"`, "1", `"AA=="`},
		{"-0", `"A"`, "1", `"AA=="`},
		{"null", `"a"`, "1", "null"},
		{"1.5", "null", "0.10", `""`},
		{`"Infinity"`, `""`, "9007199254740993", "null"},
		{"null", "null", "null", "null"},
	}
	for _, many := range []bool{false, true} { // searched one by one, and together
		for skip := range all {
			snk := follow(t, path)
			var inserts, deletes []connectortest.Change
			for i, r := range all {
				inserts = append(inserts, ins(r...), ins(r...))
				if i != skip {
					deletes = append(deletes, del(r...), del(r...))
				}
			}
			mustWrite(t, snk, connectortest.Changes(s, inserts...))
			commit(t, snk, record.Progress{Run: "r"})
			if many {
				mustWrite(t, snk, connectortest.Changes(s, deletes...))
			} else {
				for _, d := range deletes {
					mustWrite(t, snk, connectortest.Changes(s, d))
				}
			}
			mustWrite(t, snk, connectortest.Changes(s, del(all[skip]...))) // one of the two that are left
			rows := refused(t, snk.Write(t.Context(), connectortest.Changes(s, del(all[skip]...), del(all[skip]...))))
			if len(rows) != 1 || rows[0].Index != 1 || !strings.Contains(rows[0].Reject.Message, "the table has no row") {
				t.Errorf("without %q: refused %+v", all[skip], rows)
			}
			commit(t, snk, record.Progress{Run: "r"})
			holds(t, path, `SELECT count(*) FROM t`, "0")
			if err := snk.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// case C034: what a batch inserts it can change and delete again, however many images are looked up together.
func TestKeylessChangesOfOneBatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	s := columns(0, column("n", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	snk := follow(t, path)
	var first, second []connectortest.Change
	for i := range 50 {
		n := strconv.Itoa(i % 10)
		first = append(first, ins(n, `"a"`))
		second = append(second, upd(n, `"a"`, n, `"b"`), ins(n, `"c"`), upd(n, `"c"`, n, unsent), del(n, `"b"`))
	}
	mustWrite(t, snk, connectortest.Changes(s, first...), connectortest.Changes(s, second...))
	commit(t, snk, record.Progress{Run: "r"})
	holds(t, path, `SELECT count(*)||v FROM t GROUP BY v`, "50c")
	if err := snk.Write(t.Context(), connectortest.Changes(s, connectortest.Change{Op: record.Upsert, Row: []string{"1", `"c"`}})); connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("an upsert without a key returned %v", err)
	}
}

// clause E15; case C038: renames and drops in tables with indexes, views and triggers.
func TestEvolveWithIndexes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	text := arrow.BinaryTypes.String
	was := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("a", text), column("b", text), column("c", text))
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(was, ins("1", `"A"`, `"B"`, `"C"`)))
	commit(t, snk, record.Progress{Run: "r"})
	run(t, path, `CREATE INDEX ia ON t (a); CREATE INDEX ibc ON t (b, c); CREATE VIEW seen AS SELECT id, a FROM t; CREATE TABLE log (v TEXT);
		CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.a); END`)
	f := was.Columns.Fields()
	f[1].Name, f[3].Name = "x", "b"
	is := columns(1, f[0], f[1], f[3]) // a is called x, b is gone, c is called b
	mustEvolve(t, snk, was, is)
	mustWrite(t, snk, connectortest.Changes(is, ins("2", `"A2"`, `"C2"`)))
	commit(t, snk, record.Progress{Run: "r"})
	holds(t, path, `SELECT id||x||b FROM t ORDER BY id`, "1AC", "2A2C2")
	holds(t, path, `SELECT v FROM log`, "A2")
	holds(t, path, `SELECT count(*) FROM seen`, "2")
	holds(t, path, `SELECT x.name FROM pragma_index_list('t') AS l, pragma_index_info(l.name) AS x`, "x")
}

// case C038: a column is made anew where the one that is there would not store, or not give back, what the new type has.
func TestRetype(t *testing.T) {
	num := func(p, s int32) arrow.DataType { return &arrow.Decimal128Type{Precision: p, Scale: s} }
	for _, tt := range []struct {
		from, to     arrow.DataType
		before       string
		after        string // a value that only the new type has
		want         string
		declared     string
		ownerChanged bool
	}{
		{arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64, "7", "3000000000", "7, 3000000000", "INT4", false},
		{arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String, "7", `"007"`, "7, 007", "TEXT", true},
		{arrow.PrimitiveTypes.Int64, record.NumericType(), "7", "0.1234567890123456789", "7, 0.1234567890123456789", "NUMERIC_TEXT", true},
		{num(10, 2), num(20, 4), "1.5", "1234567890123456.0001", "1.5000, 1234567890123456.0001", "DECIMAL_TEXT(20,4)", true},
		{num(10, 2), num(12, 2), "1.5", "1234567890.01", "1.5, 1234567890.01", "DECIMAL(10,2)", false},
		{num(10, 2), arrow.BinaryTypes.String, "1.5", `"x"`, "1.50, x", "TEXT", true},
		{arrow.FixedWidthTypes.Boolean, arrow.BinaryTypes.String, "true", `"maybe"`, "true, maybe", "TEXT", true},
		{arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64, "0.5", "0.1", "0.5, 0.1", "REAL", true},
		{arrow.BinaryTypes.String, record.JSONType(), `"[1]"`, `{"a":1}`, `[1], {"a":1}`, "JSON_TEXT", true},
		{record.EnumType("e", []string{"a"}), record.EnumType("e", []string{"a", "b"}), `"a"`, `"b"`, "a, b", "TEXT", false},
		{arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32, `"12"`, "13", "12, 13", "INT4", true},
		{arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32, `"abc"`, "13", "abc, 13", "TEXT", false}, // it holds both as it is
	} {
		t.Run(fmt.Sprintf("%s to %s", tt.from, tt.to), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.db")
			was := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", tt.from), column("w", arrow.BinaryTypes.String))
			is := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", tt.to), column("w", arrow.BinaryTypes.String))
			snk := follow(t, path)
			mustWrite(t, snk, connectortest.Changes(was, ins("5", tt.before, `"W"`), ins("6", "null", "null")))
			commit(t, snk, record.Progress{Run: "r"})
			run(t, path, `CREATE INDEX iw ON t (w); ALTER TABLE t ADD COLUMN own TEXT DEFAULT 'mine'`)
			mustEvolve(t, snk, was, is)
			mustEvolve(t, snk, was, is)
			mustWrite(t, snk, connectortest.Changes(is, ins("7", tt.after, `"W"`)))
			commit(t, snk, record.Progress{Run: "r"})
			holds(t, path, `SELECT group_concat(v, ', ') FROM (SELECT v FROM t WHERE v IS NOT NULL ORDER BY id)`, tt.want)
			holds(t, path, `SELECT type FROM pragma_table_info('t') WHERE name = 'v'`, tt.declared)
			holds(t, path, `SELECT group_concat(id||coalesce(w, '')||own, ', ') FROM (SELECT * FROM t ORDER BY id)`, "5Wmine, 6mine, 7Wmine")
			holds(t, path, `SELECT name FROM pragma_index_list('t')`, "iw")
			holds(t, path, `SELECT name FROM pragma_table_info('t') WHERE pk = 1`, "id")
		})
	}
}

// case C038: a table that somebody made with constraints is not made anew: the error says what to type.
func TestRetypeOfAForeignTable(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, v INT CHECK (v > 0))`)
	was := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.PrimitiveTypes.Int32))
	is := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(was, ins("1", "7")))
	err := evolve(t, snk, was, is)
	var e *connector.Error
	if !errors.As(err, &e) || e.Class != connector.ClassConfig || e.Column != "v" || !strings.Contains(e.Hint, "DROP TABLE") {
		t.Errorf("Evolve returned %v (hint %q)", err, connector.HintOf(err))
	}
}

// case C038: another key makes the table anew, where its rows allow.
func TestAnotherKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	id, a, b := column("id", arrow.PrimitiveTypes.Int64), column("a", arrow.BinaryTypes.String), column("b", arrow.BinaryTypes.String)
	was, is := columns(1, id, a, b), columns(0, id, a, b)
	is.Key = []int{1, 0}
	none := columns(0, id, a, b)
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(was, ins("1", `"x"`, `"B"`), ins("2", `"x"`, "null")))
	mustEvolve(t, snk, was, is)
	mustWrite(t, snk, connectortest.Changes(is, ins("1", `"y"`, "null"), connectortest.Change{Op: record.Update, Row: []string{"1", `"x"`, `"C"`}}))
	commit(t, snk, record.Progress{Run: "r"})
	holds(t, path, `SELECT id||a||coalesce(b, '') FROM t ORDER BY 1`, "1xC", "1y", "2x")
	mustEvolve(t, snk, is, none)
	mustWrite(t, snk, connectortest.Changes(none, ins("1", `"y"`, "null"), ins("null", "null", "null"), del("1", `"x"`, `"C"`)))
	commit(t, snk, record.Progress{Run: "r"})
	holds(t, path, `SELECT coalesce(id||a||coalesce(b, ''), '') FROM t ORDER BY 1`, "", "1y", "1y", "2x")
	if err := evolve(t, snk, none, was); connector.ClassOf(err) != connector.ClassConfig || connector.HintOf(err) == "" {
		t.Errorf("a key that the rows do not have: %v", err)
	}
}

// case C037: the value of older rows, of every kind that has one.
func TestValueOfOlderRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	was := columns(1, column("id", arrow.PrimitiveTypes.Int64))
	missing := func(name string, dt arrow.DataType, text string) arrow.Field {
		return record.WithMissing(record.WithID(column(name, dt), name), text)
	}
	is := columns(1, column("id", arrow.PrimitiveTypes.Int64), missing("i", arrow.PrimitiveTypes.Int64, "-9223372036854775808"),
		missing("f", arrow.PrimitiveTypes.Float64, "0.1"), missing("inf", arrow.PrimitiveTypes.Float64, "-Infinity"),
		missing("s", arrow.BinaryTypes.String, "it's \x00 zero"), missing("b", arrow.BinaryTypes.Binary, `\x00ff`),
		missing("n", record.NumericType(), "1.10"), missing("d", &arrow.Decimal128Type{Precision: 10, Scale: 2}, "1.10"),
		missing("t", arrow.FixedWidthTypes.Boolean, "true"), missing("e", arrow.BinaryTypes.String, ""), missing("z", arrow.BinaryTypes.String, "007"))
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(was, ins("1")))
	mustEvolve(t, snk, was, is)
	mustWrite(t, snk, connectortest.Changes(was, ins("2"))) // rows that are late are older than the columns
	commit(t, snk, record.Progress{Run: "r"})
	for _, id := range []string{"1", "2"} {
		late := id == "2" // a default can't have a zero character
		want := []string{"-9223372036854775808|0.1|-Inf|it's \x00 zero|00FF|1.10|1.1|1||007"}
		if late {
			want = []string{"-9223372036854775808|0.1|-Inf||00FF|1.10|1.1|1||007"}
		}
		got := query(t, path, `SELECT i||'|'||f||'|'||coalesce(inf, '')||'|'||coalesce(s, '')||'|'||hex(b)||'|'||n||'|'||d||'|'||t||'|'||e||'|'||z FROM t WHERE id = `+id)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("row %s (-want +got):\n%s", id, diff)
		}
	}
}

// clause E5: the progress comes back byte for byte.
func TestProgressKeepsItsBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	snk := follow(t, path)
	p := record.Progress{
		Run: "r", Position: record.Position{Shape: 2, Data: []byte(`{ "lsn": "0/1<&>" }`)}, Ledger: []byte(`[ {"key":"a<b"},	1 ]`),
	}
	commit(t, snk, p)
	got, found, err := store(t, snk).Committed(t.Context())
	if diff := cmp.Diff(p, got); err != nil || !found || diff != "" {
		t.Errorf("%v, %v (-want +got):\n%s", found, err, diff)
	}
}

// A column that somebody else declared is never changed.
func TestForeignTablesStay(t *testing.T) {
	path := database(t, `CREATE TABLE t (id INTEGER PRIMARY KEY, v NUMERIC)`)
	is := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", record.NumericType()), column("more", arrow.PrimitiveTypes.Int64))
	snk := follow(t, path)
	mustEvolve(t, snk, nil, is)
	rows := refused(t, snk.Write(t.Context(), connectortest.Changes(is, ins("1", "1.5", "1"), ins("2", "0.1234567890123456789", "2"))))
	if len(rows) != 1 || rows[0].Index != 1 {
		t.Errorf("refused %+v", rows)
	}
	commit(t, snk, record.Progress{Run: "r"})
	holds(t, path, `SELECT name||' '||type FROM pragma_table_info('t')`, "id INTEGER", "v NUMERIC", "more INTEGER")
}

// What one run knew of columns is forgotten by the next one: it may read another database, in which other columns have the ids.
func TestIDsBelongToARun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	text := arrow.BinaryTypes.String
	one := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("a", text), column("b", text))
	f := one.Columns.Fields()
	two := columns(1, f[0], record.WithID(f[1], "3"), record.WithID(f[2], "2"))
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(one, ins("1", `"A"`, `"B"`)))
	finish(t, snk, "r")
	snk = openSink(t, sinkOf(path), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "another", Fence: 2, Mode: connector.Upsert})
	mustEvolve(t, snk, nil, two)
	mustWrite(t, snk, connectortest.Changes(two, ins("2", `"A2"`, `"B2"`)))
	commit(t, snk, record.Progress{Run: "another"})
	holds(t, path, `SELECT id||a||b FROM t ORDER BY id`, "1AB", "2A2B2")
}

// NaN is no value of SQLite: a row with one is refused, and so is a change of it, by name.
func TestNaNWithoutAKey(t *testing.T) {
	s := columns(0, column("f", arrow.PrimitiveTypes.Float64))
	snk := follow(t, filepath.Join(t.TempDir(), "t.db"))
	mustWrite(t, snk, connectortest.Changes(s, ins("1"), ins("2"), ins("3"), ins("4")))
	b := connectortest.Changes(s, del("1"), del("2"), del(`"NaN"`), del("3"), del("4"))
	col, ok := b.Rows.Column(0).(*array.Float64)
	if !ok || !math.IsNaN(col.Value(2)) {
		t.Fatal("the batch has no NaN")
	}
	if rows := refused(t, snk.Write(t.Context(), b)); len(rows) != 1 || rows[0].Index != 2 || rows[0].Reject.Column != "f" {
		t.Errorf("refused %+v", rows)
	}
}

// clause E15: rows of an older schema find their columns by ids, also behind a rename; a change of the columns that was rolled back with its
// transaction is made again with the first row that needs it.
func TestColumnsAreFoundByID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	text := arrow.BinaryTypes.String
	was := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("a", text))
	f := was.Columns.Fields()
	f[0].Name, f[1].Name = "key", "b"
	is := columns(1, f[0], f[1], record.WithMissing(column("c", text), "older"))
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(was, ins("1", `"A"`)))
	commit(t, snk, record.Progress{Run: "r"})
	mustEvolve(t, snk, was, is)
	mustWrite(t, snk, connectortest.Changes(was, ins("2", `"late"`), upd("1", "null", "3", unsent)))
	if err := snk.Close(t.Context()); err != nil { // and all of it is rolled back
		t.Fatal(err)
	}
	snk = openSink(t, sinkOf(path), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 2, Mode: connector.Upsert})
	mustWrite(t, snk, connectortest.Changes(is, ins("5", `"B"`, `"C"`)))
	mustWrite(t, snk, connectortest.Changes(was, ins("2", `"late"`), upd("1", "null", "3", unsent)))
	commit(t, snk, record.Progress{Run: "r"})
	holds(t, path, `SELECT key||b||c FROM t ORDER BY 1`, "2lateolder", "3Aolder", "5BC")
}

// clause E15: the engine asks for the mapping of changed columns before the table is changed: a column of ours will be what it has to be.
func TestMapOfChangedColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	was := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.PrimitiveTypes.Int32))
	is := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String), column("w", arrow.BinaryTypes.String))
	env := testEnv(t)
	start := connector.SinkStart{Pipeline: env.Pipeline, Lane: "l", Run: "r", Fence: 1, Mode: connector.Upsert}
	snk := openSink(t, sinkOf(path), start)
	mustWrite(t, snk, connectortest.Changes(was, ins("1", "7")))
	commit(t, snk, record.Progress{Run: "r"})
	mustWrite(t, snk, connectortest.Changes(was, ins("2", "8")))
	other, err := sinkOf(path).Open(env)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background()) //nolint:errcheck // it only looked
	m, err := mapping(t, other, is)
	if err != nil || m[1].Native != "TEXT" || m[1].Fidelity != connector.Exact || m[2].Native != "TEXT" {
		t.Errorf("Map returned %+v, %v", m, err)
	}
}

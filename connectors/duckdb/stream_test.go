//go:build cgo && duckdb_arrow

package duckdb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	_ "github.com/duckdb/duckdb-go/v2" // another program
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/duckdb"
	"github.com/leatdata/leat/record"
)

// follow starts a sink as the engine does for a source that is followed.
func follow(t testing.TB, path string) connector.Sink {
	t.Helper()
	return started(t, path, "r", 1)
}

func started(t testing.TB, path, run string, fence uint64) connector.Sink {
	t.Helper()
	snk, err := (&duckdb.SinkConfig{Database: duckdb.Database{Path: path}}).Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = snk.Close(context.Background()) })
	req := connector.SinkStart{Pipeline: "p", Lane: "l", Run: run, Fence: fence, Mode: connector.Upsert}
	if err := snk.Start(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	return snk
}

func mustWrite(t testing.TB, snk connector.Sink, batches ...*record.Batch) {
	t.Helper()
	for _, b := range batches {
		if err := snk.Write(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
}

func commit(t testing.TB, snk connector.Sink) {
	t.Helper()
	ps, ok := connector.As[connector.PositionStore](snk)
	if !ok {
		t.Fatal("the sink is no PositionStore")
	}
	if err := ps.Commit(context.Background(), record.Progress{Run: "r", Position: record.Position{Shape: 2, Data: []byte(`{"lsn":"0/1"}`)}}); err != nil {
		t.Fatal(err)
	}
}

func evolve(t testing.TB, snk connector.Sink, from, to *record.Schema) error {
	t.Helper()
	ev, ok := connector.As[connector.Evolver](snk)
	if !ok {
		t.Fatal("the sink is no Evolver")
	}
	return ev.Evolve(context.Background(), from, to)
}

func mustEvolve(t testing.TB, snk connector.Sink, from, to *record.Schema) {
	t.Helper()
	if err := evolve(t, snk, from, to); err != nil {
		t.Fatal(err)
	}
}

// end commits and closes: a file has one owner.
func end(t testing.TB, snk connector.Sink) {
	t.Helper()
	commit(t, snk)
	if err := snk.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func refused(t testing.TB, err error) []connector.RowError {
	t.Helper()
	var rows *connector.RowErrors
	if !errors.As(err, &rows) {
		t.Fatalf("Write returned %v: want refused rows", err)
	}
	return rows.Rows
}

// script runs statements, as another program would.
func script(t testing.TB, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("duckdb", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // a test's own
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// holds compares the rows of a query, whose columns are joined.
func holds(t testing.TB, path, query string, want ...string) {
	t.Helper()
	db, err := sql.Open("duckdb", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // a test's own
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close() //nolint:errcheck // a test's own
	cols, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for rows.Next() {
		vals, ptrs := make([]any, len(cols)), make([]any, len(cols))
		for i := range vals {
			ptrs[i] = &vals[i]
		}
		if err := rows.Scan(ptrs...); err != nil {
			t.Fatal(err)
		}
		parts := make([]string, len(vals))
		for i, v := range vals {
			if v != nil {
				parts[i] = fmt.Sprint(v)
			}
		}
		got = append(got, strings.Join(parts, "|"))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", query, diff)
	}
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

// put is an update of a row whose key stays.
func put(docs ...string) connectortest.Change {
	return connectortest.Change{Op: record.Update, Row: docs}
}

// upd is an update from the first half of docs to the second one.
func upd(docs ...string) connectortest.Change {
	half := len(docs) / 2
	return connectortest.Change{Op: record.Update, Old: docs[:half], Row: docs[half:]}
}

const unsent = connectortest.Unsent

// txns cuts a batch into transactions of so many rows.
func txns(b *record.Batch, first int, rows ...int) *record.Batch {
	for i, n := range rows {
		b.Txns = append(b.Txns, record.Txn{Rows: n, Position: record.Position{Shape: 1, Data: []byte(strconv.Itoa(first + i))}})
	}
	return b
}

func newFile(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "t.duckdb")
}

// clause E12: two rows have one key only inside a transaction, also where it spans batches; columns of the table that the source does
// not have move with their rows.
func TestSwapsEndWithTheirTransaction(t *testing.T) {
	path := newFile(t)
	script(t, path, `CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR, own VARCHAR DEFAULT 'none')`,
		`INSERT INTO t VALUES (1, 'a', 'A'), (2, 'b', 'B'), (3, 'c', 'C')`)
	s := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	snk := follow(t, path)
	mustWrite(t, snk,
		// One transaction, each batch of which is applied at once: 1 and 2 swap. The next one moves 2 on, then deletes it.
		txns(connectortest.Changes(s, upd("1", "null", "2", unsent)), 1, 1),
		txns(connectortest.Changes(s, upd("2", "null", "1", unsent), upd("2", "null", "4", unsent), upd("4", "null", "3", unsent)), 1, 1, 2),
		txns(connectortest.Changes(s, del("3", "null"), ins("7", `"d"`)), 2, 1, 1),
	)
	end(t, snk)
	holds(t, path, `SELECT * FROM t ORDER BY id`, "1|b|B", "3|a|A", "7|d|none")

	// A row that moves onto an older state of itself, as in a replay, is not a second row.
	snk = started(t, path, "r", 2)
	mustWrite(t, snk, txns(connectortest.Changes(s, upd("8", "null", "1", `"new"`), upd("1", "null", "5", unsent)), 3, 2))
	end(t, snk)
	holds(t, path, `SELECT * FROM t ORDER BY id`, "3|a|A", "5|new|B", "7|d|none")
}

// clause E12: rows wait for their keys through any number of batches, whatever the schema of those.
func TestRowsWaitForKeys(t *testing.T) {
	path := newFile(t)
	text := arrow.BinaryTypes.String
	s := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", text), column("w", text))
	older := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", text))
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(s, ins("1", `"a"`, `"A"`), ins("2", `"b"`, `"B"`), ins("3", `"c"`, `"C"`), ins("4", `"d"`, `"D"`)))
	mustWrite(t, snk,
		connectortest.Changes(s, upd("1", "null", "null", "3", unsent, `"A2"`), upd("2", "null", "null", "3", `"b2"`, unsent)),
		connectortest.Changes(older, put("4", unsent), upd("3", "null", "1", unsent)),
		connectortest.Changes(s, put("4", unsent, `"D2"`)),
		connectortest.Changes(s, upd("3", "null", "null", "2", unsent, unsent)),
	)
	end(t, snk)
	holds(t, path, `SELECT * FROM t ORDER BY id`, "1|c|C", "2|a|A2", "3|b2|B", "4|d|D2")
}

// clause E12: with full images, changes find the right one of two rows that have one key for a moment.
func TestChangesOfRowsThatShareAKey(t *testing.T) {
	s := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String), column("w", arrow.BinaryTypes.String))
	path := newFile(t)
	snk := follow(t, path)
	var want [][]string
	for n, tt := range []struct {
		changes []connectortest.Change
		want    []string
	}{
		{[]connectortest.Change{
			upd("1", `"a"`, `"A"`, "2", `"a"`, `"A"`), upd("2", `"a"`, `"A"`, "2", `"x"`, unsent), upd("2", `"b"`, `"B"`, "1", unsent, `"B"`),
		}, []string{"1|b|B", "2|x|A", "3|c|C"}},
		{[]connectortest.Change{
			upd("1", `"a"`, `"A"`, "2", `"a"`, `"A"`), upd("2", `"b"`, `"B"`, "2", `"x"`, unsent), upd("2", `"x"`, `"B"`, "1", unsent, `"B"`),
		}, []string{"1|x|B", "2|a|A", "3|c|C"}},
		{[]connectortest.Change{
			upd("1", `"a"`, `"A"`, "2", `"a"`, `"A"`), upd("2", `"a"`, `"A"`, "3", `"a"`, `"A"`), upd("3", `"a"`, `"A"`, "9", `"z"`, `"A"`),
		}, []string{"2|b|B", "3|c|C", "9|z|A"}},
		{[]connectortest.Change{upd("1", `"a"`, `"A"`, "2", `"a"`, `"A"`), del("2", `"a"`, `"A"`)}, []string{"2|b|B", "3|c|C"}},
		{[]connectortest.Change{upd("1", `"a"`, `"A"`, "2", `"a"`, `"A"`), del("2", `"b"`, `"B"`)}, []string{"2|a|A", "3|c|C"}},
		{[]connectortest.Change{upd("1", "null", "null", "2", `"a"`, unsent), del("2", "null", "null")}, []string{"2|a|A", "3|c|C"}},
		{[]connectortest.Change{upd("1", "null", "null", "2", `"a"`, unsent), put("2", unsent, `"A2"`)}, []string{"2|a|A2", "3|c|C"}},
		{[]connectortest.Change{
			upd("1", "null", "null", "3", unsent, unsent), upd("2", "null", "null", "3", unsent, unsent),
			upd("3", "null", "null", "1", unsent, unsent), upd("3", "null", "null", "2", unsent, unsent),
		}, []string{"1|c|C", "2|a|A", "3|b|B"}},
	} {
		for _, alone := range []bool{false, true} { // in one batch, or each in its own
			own := *s
			own.Dataset = fmt.Sprintf("t%d_%v", n, alone)
			mustWrite(t, snk, connectortest.Changes(&own, ins("1", `"a"`, `"A"`), ins("2", `"b"`, `"B"`), ins("3", `"c"`, `"C"`)))
			if !alone {
				mustWrite(t, snk, connectortest.Changes(&own, tt.changes...))
			}
			for _, c := range tt.changes {
				if alone {
					mustWrite(t, snk, connectortest.Changes(&own, c))
				}
			}
			want = append(want, tt.want)
		}
	}
	end(t, snk)
	for n, rows := range want {
		holds(t, path, fmt.Sprintf(`SELECT * FROM t%d_%v ORDER BY id`, n/2, n%2 == 1), rows...)
	}
}

// case C033: half of an old key says nothing; a key is never null.
func TestKeysThatSayNothing(t *testing.T) {
	s := columns(2, column("a", arrow.PrimitiveTypes.Int64), column("b", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	path := newFile(t)
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(s, ins("1", "1", `"x"`)))
	rows := refused(t, snk.Write(t.Context(), connectortest.Changes(s, upd("1", "null", "null", "1", "2", `"y"`), ins("null", "1", `"z"`), ins("3", "3", `"w"`))))
	if len(rows) != 2 || rows[0].Index != 0 || rows[0].Reject.Column != "b" || rows[1].Index != 1 || rows[1].Reject.Column != "a" {
		t.Errorf("refused %+v", rows)
	}
	end(t, snk)
	holds(t, path, `SELECT * FROM t ORDER BY a`, "1|1|x", "3|3|w")
}

// case C034: rows without a key are found one by one by all their columns, exactly: nulls, NaN, the sign of zero, a month that is not
// thirty days, values inside of lists.
func TestKeylessRowsAreFoundExactly(t *testing.T) {
	s := columns(0, column("f", arrow.PrimitiveTypes.Float64), column("s", arrow.BinaryTypes.String), column("i", record.IntervalType()),
		column("l", arrow.ListOf(arrow.PrimitiveTypes.Float64)), column("j", record.JSONType()), column("n", record.NumericType()))
	all := [][]string{
		{"0", `"a"`, `"P1M"`, "[0]", `{"a":1}`, "1.0"},
		{"-0", `"a"`, `"P1M"`, "[0]", `{"a":1}`, "1.0"},
		{"-0", `"a"`, `"P30D"`, "[0]", `{"a":1}`, "1.0"},
		{"-0", `"a"`, `"P30D"`, "[-0]", `{"a":1}`, "1.0"},
		{"-0", `"a"`, `"P30D"`, "[-0]", `{"a": 1}`, "1.0"},
		{"-0", `"a"`, `"P30D"`, "[-0]", `{"a": 1}`, "1.00"},
		{`"NaN"`, `"A"`, "null", `["NaN",null]`, "null", `"NaN"`},
		{"null", "null", "null", "null", "null", "null"},
		{`"-Infinity"`, `""`, "null", "[]", "null", "null"},
	}
	path := newFile(t)
	snk := follow(t, path)
	for skip := range all {
		var inserts, deletes []connectortest.Change
		for i, r := range all {
			inserts = append(inserts, ins(r...), ins(r...))
			if i != skip {
				deletes = append(deletes, del(r...), del(r...))
			}
		}
		mustWrite(t, snk, connectortest.Changes(s, inserts...))
		if skip%2 == 0 { // else the rows are of the same transaction
			commit(t, snk)
		}
		mustWrite(t, snk, connectortest.Changes(s, deletes...))
		mustWrite(t, snk, connectortest.Changes(s, del(all[skip]...))) // one of the two that are left
		rows := refused(t, snk.Write(t.Context(), connectortest.Changes(s, del(all[skip]...), del(all[skip]...))))
		if len(rows) != 1 || rows[0].Index != 1 || !strings.Contains(rows[0].Reject.Message, "the table has no row") {
			t.Errorf("without %q: refused %+v", all[skip], rows)
		}
	}
	end(t, snk)
	holds(t, path, `SELECT count(*) FROM t`, "0")
}

// case C034: what a batch inserts it can change and delete again; columns that the source does not have stay with the row.
func TestKeylessChangesOfOneBatch(t *testing.T) {
	path := newFile(t)
	script(t, path, `CREATE TABLE t (n BIGINT, v VARCHAR, own VARCHAR DEFAULT 'new')`,
		`INSERT INTO t SELECT i % 10, 'a', 'old' FROM range(50) r(i)`)
	s := columns(0, column("n", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	snk := follow(t, path)
	var changes []connectortest.Change
	for i := range 50 {
		n := strconv.Itoa(i % 10)
		changes = append(changes, upd(n, `"a"`, n, `"b"`), ins(n, `"c"`), upd(n, `"c"`, n, unsent), upd(n, `"b"`, n, `"d"`))
		if i%2 == 0 {
			changes = append(changes, del(n, `"c"`))
		}
	}
	mustWrite(t, snk, connectortest.Changes(s, changes...))
	if err := snk.Write(t.Context(), connectortest.Changes(s, connectortest.Change{Op: record.Upsert, Row: []string{"1", `"c"`}})); connector.ClassOf(err) != connector.ClassConfig {
		t.Errorf("an upsert without a key returned %v", err)
	}
	if err := snk.Close(t.Context()); err != nil { // nothing of it counts
		t.Fatal(err)
	}
	snk = started(t, path, "r", 2)
	mustWrite(t, snk, connectortest.Changes(s, changes...))
	end(t, snk)
	holds(t, path, `SELECT v, own, count(*) FROM t GROUP BY ALL ORDER BY ALL`, "c|new|25", "d|old|50")
}

// clause E15; case C038: columns change in tables with indexes, and in the middle of transactions that changed rows before.
func TestEvolveOfBusyTables(t *testing.T) {
	text := arrow.BinaryTypes.String
	was := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("a", text), column("b", text), column("c", text), column("n", arrow.PrimitiveTypes.Int32))
	f := was.Columns.Fields()
	f[1].Name, f[3].Name, f[4].Type = "x", "b", arrow.PrimitiveTypes.Int64
	is := columns(1, f[0], f[1], f[3], f[4], record.WithMissing(record.WithID(column("more", record.NumericType()), "9"), "1.50"))
	for _, indexed := range []bool{false, true} {
		for _, changed := range []string{"nothing", "gathered", "applied"} {
			t.Run(fmt.Sprintf("indexed %v, %s", indexed, changed), func(t *testing.T) {
				path := newFile(t)
				snk := follow(t, path)
				mustWrite(t, snk, connectortest.Changes(was, ins("1", `"A"`, `"B"`, `"C"`, "5"), ins("2", `"A2"`, "null", "null", "6"), ins("3", `"A3"`, "null", "null", "7")))
				end(t, snk)
				if indexed {
					script(t, path, `CREATE INDEX ia ON t (a)`, `CREATE UNIQUE INDEX iid ON t (id)`, `CREATE INDEX ibc ON t (b, c)`)
				}
				snk = started(t, path, "r", 2)
				want := []string{"1|A|C|5|1.50", "2|A2||6|1.50", "3|A3||7|1.50"}
				switch changed {
				case "gathered":
					mustWrite(t, snk, connectortest.Changes(was, put("1", `"A+"`, `"gone"`, `"C+"`, "8"), del("2", "null", "null", "null", "null"), ins("4", `"A4"`, `"gone"`, "null", "9")))
				case "applied":
					mustWrite(t, snk, connectortest.Changes(was, put("1", `"A+"`, `"gone"`, `"C+"`, "8"), put("3", unsent, unsent, unsent, "7"),
						del("2", "null", "null", "null", "null"), ins("4", `"A4"`, `"gone"`, "null", "9")))
				}
				if changed != "nothing" {
					want = []string{"1|A+|C+|8|1.50", "3|A3||7|1.50", "4|A4||9|1.50"}
				}
				for range 2 {
					mustEvolve(t, snk, was, is)
				}
				mustWrite(t, snk, connectortest.Changes(is, put("3", unsent, `"new"`, "3000000000", "2.5"), ins("5", `"A5"`, "null", "null", "null")))
				for i, w := range want {
					if strings.HasPrefix(w, "3|") {
						want[i] = "3|A3|new|3000000000|2.5"
					}
				}
				end(t, snk)
				holds(t, path, `SELECT id, x, b, n, more FROM t ORDER BY id`, append(want, "5|A5|||")...)
				holds(t, path, `SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY column_name) FROM duckdb_columns() WHERE table_name = 't'`,
					"b VARCHAR, id BIGINT, more VARCHAR, n BIGINT, x VARCHAR")
				holds(t, path, `SELECT comment FROM duckdb_tables() WHERE table_name = 't'`, `leat:{"key":["id"]}`)
				if indexed {
					holds(t, path, `SELECT index_name, expressions::VARCHAR FROM duckdb_indexes() ORDER BY 1`, "ia|[x]", "iid|[id]")
				}
			})
		}
	}
}

// case C038: types change where that is exact; what the new type has not is an error that says what to type.
func TestRetype(t *testing.T) {
	num := func(p, s int32) arrow.DataType { return &arrow.Decimal128Type{Precision: p, Scale: s} }
	for _, tt := range []struct {
		from, to      arrow.DataType
		before, after string
		want          string
		native        string
	}{
		{arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64, "7", "3000000000", "7|3000000000", "BIGINT"},
		{arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Int32, "7", "8", "7|8", "BIGINT"},
		{arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String, "7", `"007"`, "7|007", "VARCHAR"},
		{arrow.PrimitiveTypes.Int64, record.NumericType(), "7", "0.1234567890123456789", "7|0.1234567890123456789", "VARCHAR"},
		{num(10, 2), num(20, 4), "1.5", "1234567890123456.0001", "1.5000|1234567890123456.0001", "DECIMAL(20,4)"},
		{arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64, "0.5", "0.1", "0.5|0.1", "DOUBLE"},
		{record.EnumType("e", []string{"a"}), record.EnumType("e", []string{"b", "a"}), `"a"`, `"b"`, "a|b", "ENUM('b', 'a')"},
		{arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32, `"12"`, "13", "12|13", "INTEGER"},
		{arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32, `"abc"`, "13", "abc|13", "VARCHAR"}, // it holds both as it is
		{arrow.PrimitiveTypes.Int32, record.UUIDType(), "7", "", "", "INTEGER"},
	} {
		t.Run(fmt.Sprintf("%s to %s", tt.from, tt.to), func(t *testing.T) {
			path := newFile(t)
			was := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", tt.from))
			is := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", tt.to))
			snk := follow(t, path)
			mustWrite(t, snk, connectortest.Changes(was, ins("5", tt.before), ins("6", "null")))
			commit(t, snk)
			if tt.after == "" {
				err := evolve(t, snk, was, is)
				if connector.ClassOf(err) == connector.ClassUnknown || !strings.Contains(connector.HintOf(err), "--resnapshot") {
					t.Errorf("Evolve returned %v (hint %q)", err, connector.HintOf(err))
				}
				return
			}
			mustEvolve(t, snk, was, is)
			mustEvolve(t, snk, was, is)
			mustWrite(t, snk, connectortest.Changes(is, ins("7", tt.after)))
			end(t, snk)
			holds(t, path, `SELECT string_agg(v::VARCHAR, '|' ORDER BY id) FROM t`, tt.want)
			holds(t, path, `SELECT data_type FROM duckdb_columns() WHERE table_name = 't' AND column_name = 'v'`, tt.native)
		})
	}
}

// case C037: the value of older rows, of every kind that has one; rows that are late are older than the columns.
func TestValueOfOlderRows(t *testing.T) {
	path := newFile(t)
	was := columns(1, column("id", arrow.PrimitiveTypes.Int64))
	missing := func(name string, dt arrow.DataType, text string) arrow.Field {
		return record.WithMissing(record.WithID(column(name, dt), name), text)
	}
	fields := []arrow.Field{
		column("id", arrow.PrimitiveTypes.Int64), missing("i", arrow.PrimitiveTypes.Int64, "-9223372036854775808"),
		missing("f", arrow.PrimitiveTypes.Float64, "0.1"), missing("inf", arrow.PrimitiveTypes.Float64, "-Infinity"),
		missing("s", arrow.BinaryTypes.String, `it's "x"`), missing("b", arrow.BinaryTypes.Binary, `\x00ff`), missing("n", record.NumericType(), "1.10"),
		missing("d", &arrow.Decimal128Type{Precision: 10, Scale: 2}, "1.10"), missing("t", arrow.FixedWidthTypes.Boolean, "true"),
		missing("e", arrow.BinaryTypes.String, ""), missing("ts", record.InstantType(), "2024-02-29T12:00:00.5Z"),
		missing("u", record.UUIDType(), "00112233-4455-6677-8899-aabbccddeeff"), missing("l", record.ArrayType(arrow.PrimitiveTypes.Int32, 1), "[1,2]"),
		missing("iv", record.IntervalType(), "P1M2D"), missing("en", record.EnumType("e", []string{"a", "b"}), "b"), missing("j", record.JSONType(), `{"a": "b"}`),
	}
	is := columns(1, fields...)
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(was, ins("1")))
	commit(t, snk)
	mustWrite(t, snk, connectortest.Changes(was, ins("2")))
	mustEvolve(t, snk, was, is)
	mustWrite(t, snk, connectortest.Changes(was, ins("3")))
	// A table that is made with such columns takes late rows, too, also where the source has NOT NULL.
	made := *is
	made.Dataset = "made"
	notNull := is.Columns.Fields()
	for i := range notNull {
		notNull[i].Nullable = false
	}
	made.Columns = arrow.NewSchema(notNull, nil)
	late := *was
	late.Dataset = "made"
	mustEvolve(t, snk, nil, &made)
	empty := connectortest.BatchOf(&made)
	mustWrite(t, snk, empty, connectortest.Changes(&late, ins("4")))
	end(t, snk)
	const want = `-9223372036854775808|0.1|-inf|it's "x"|00FF|1.10|1.10|true||2024-02-29 12:00:00.5+00|00112233-4455-6677-8899-aabbccddeeff|[1, 2]|1 month 2 days|b|{"a": "b"}`
	const list = `SELECT i, f::VARCHAR, inf::VARCHAR, s, hex(b), n, d::VARCHAR, t, e, ts::VARCHAR, u::VARCHAR, l::VARCHAR, iv::VARCHAR, en::VARCHAR, j::VARCHAR FROM `
	holds(t, path, list+"t ORDER BY id", want, want, want)
	holds(t, path, list+"made", want)
}

// A column that somebody else declared is never changed; rows that it refuses are named.
func TestForeignTablesStay(t *testing.T) {
	path := newFile(t)
	script(t, path, `CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR NOT NULL, n HUGEINT)`)
	is := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String), column("n", arrow.PrimitiveTypes.Int64),
		column("more", arrow.PrimitiveTypes.Int64))
	snk := follow(t, path)
	mustEvolve(t, snk, nil, is)
	rows := refused(t, snk.Write(t.Context(), connectortest.Changes(is, ins("1", `"x"`, "1", "1"), ins("2", "null", "2", "2"), del("3", "null", "null", "null"))))
	if len(rows) != 1 || rows[0].Index != 1 || rows[0].Reject.Column != "v" {
		t.Errorf("refused %+v", rows)
	}
	end(t, snk)
	holds(t, path, `SELECT * FROM t`, "1|x|1|1")
	holds(t, path, `SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY column_index) FROM duckdb_columns() WHERE table_name = 't'`,
		"id BIGINT, v VARCHAR, n HUGEINT, more BIGINT")
}

// case C038: another key is written down; DuckDB needs no more.
func TestAnotherKey(t *testing.T) {
	path := newFile(t)
	id, a := column("id", arrow.PrimitiveTypes.Int64), column("a", arrow.BinaryTypes.String)
	was, is, none := columns(1, id, a), columns(2, id, a), columns(0, id, a)
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(was, ins("1", `"x"`), ins("2", `"x"`)))
	mustEvolve(t, snk, was, is)
	mustWrite(t, snk, connectortest.Changes(is, ins("1", `"y"`), put("1", `"x"`)))
	commit(t, snk)
	mustEvolve(t, snk, is, none)
	mustWrite(t, snk, connectortest.Changes(none, ins("1", `"y"`), ins("null", "null"), del("1", `"x"`)))
	end(t, snk)
	holds(t, path, `SELECT * FROM t ORDER BY id NULLS FIRST, a`, "|", "1|y", "1|y", "2|x")
	holds(t, path, `SELECT comment FROM duckdb_tables() WHERE table_name = 't'`, `leat:{}`)
}

// clause E5: the progress comes back byte for byte.
func TestProgressKeepsItsBytes(t *testing.T) {
	snk := follow(t, newFile(t))
	p := record.Progress{
		Run: "r", Position: record.Position{Shape: 2, Data: []byte(`{ "lsn": "0/1<&>" }`)}, Ledger: []byte(`[ {"key":"a<b"},	1 ]`),
	}
	ps, ok := connector.As[connector.PositionStore](snk)
	if !ok {
		t.Fatal("no position store")
	}
	if err := ps.Commit(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	got, found, err := ps.Committed(t.Context())
	if diff := cmp.Diff(p, got); err != nil || !found || diff != "" {
		t.Errorf("%v, %v (-want +got):\n%s", found, err, diff)
	}
}

// The engine asks for the mapping of changed columns while the sink writes.
func TestMapWhileTheFileIsOpen(t *testing.T) {
	path := newFile(t)
	s := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(s, ins("1", `"x"`)))
	commit(t, snk)
	mustWrite(t, snk, connectortest.Changes(s, ins("2", `"x"`)))
	for range 2 {
		other, err := (&duckdb.SinkConfig{Database: duckdb.Database{Path: path}}).Open(connectortest.Env(t))
		if err != nil {
			t.Fatal(err)
		}
		m, ok := connector.As[connector.Mapper](other)
		if !ok {
			t.Fatal("the sink is no Mapper")
		}
		if ms, err := m.Map(t.Context(), s); err != nil || len(ms) != 2 || ms[1].Native != "VARCHAR" {
			t.Errorf("Map returned %+v, %v", ms, err)
		}
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	mustWrite(t, snk, connectortest.Changes(s, ins("3", `"x"`)))
	end(t, snk)
	holds(t, path, `SELECT count(*) FROM t`, "3")
}

// A label that came to the type after the schema was read is refused by name, in rows and in images; the transaction goes on.
func TestUnknownLabels(t *testing.T) {
	path := newFile(t)
	schemas := func(labels ...string) (*record.Schema, *record.Schema) {
		e := record.EnumType("e", labels)
		none := columns(0, column("e", e))
		none.Dataset = "none"
		return columns(1, column("id", arrow.PrimitiveTypes.Int64), column("e", e)), none
	}
	s, none := schemas("a", "it's")
	wideS, wideNone := schemas("a", "it's", "b", "c")
	late := func(wide, s *record.Schema, changes ...connectortest.Change) *record.Batch {
		b := connectortest.Changes(wide, changes...)
		b.Schema = s
		return b
	}
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(s, ins("1", `"a"`), ins("2", `"it's"`)))
	rows := refused(t, snk.Write(t.Context(), late(wideS, s, ins("3", `"b"`), put("2", `"a"`), upd("1", `"b"`, "1", `"a"`),
		upd("1", `"b"`, "4", unsent), del("1", `"c"`))))
	if len(rows) != 2 || rows[0].Index != 0 || rows[1].Index != 3 || rows[0].Reject.Column != "e" {
		t.Errorf("refused %+v", rows)
	}
	mustWrite(t, snk, connectortest.Changes(none, ins(`"a"`)))
	rows = refused(t, snk.Write(t.Context(), late(wideNone, none, del(`"b"`), upd(`"c"`, `"a"`), upd(`"a"`, `"it's"`))))
	if len(rows) != 2 {
		t.Errorf("refused %+v", rows)
	}
	end(t, snk)
	holds(t, path, `SELECT * FROM t`, "2|a")
	holds(t, path, `SELECT * FROM none`, "it's")
}

// A transaction that is larger than what is gathered: changes of one key in several parts, keys that move from part to part.
func TestLargeTransaction(t *testing.T) {
	path := newFile(t)
	s := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.BinaryTypes.String))
	snk := follow(t, path)
	const parts, size = 8, 20_000
	for part := range parts { // rows 0 … size-1 move on by size each time, and new ones come
		var changes []connectortest.Change
		for i := range size {
			if part > 0 {
				changes = append(changes, upd(strconv.Itoa((part-1)*size+i), "null", strconv.Itoa(part*size+i), `"moved"`))
			}
			changes = append(changes, connectortest.Change{Op: record.Upsert, Row: []string{strconv.Itoa(i % 100), fmt.Sprintf(`"part %d"`, part)}})
		}
		b := connectortest.Changes(s, changes...)
		mustWrite(t, snk, txns(b, 1, b.NumRows()))
	}
	end(t, snk)
	holds(t, path, `SELECT v, count(*), min(id), max(id) FROM t GROUP BY v ORDER BY v`,
		fmt.Sprintf("moved|%d|%d|%d", size, (parts-1)*size, parts*size-1), fmt.Sprintf("part %d|100|0|99", parts-1))
}

// clause E15: rows of an older schema find their columns by ids, also behind a rename; a change of the columns that was rolled back with its
// transaction is made again with the first row that needs it.
func TestColumnsAreFoundByID(t *testing.T) {
	path := newFile(t)
	text := arrow.BinaryTypes.String
	was := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("a", text))
	f := was.Columns.Fields()
	f[0].Name, f[1].Name = "key", "b"
	is := columns(1, f[0], f[1], record.WithMissing(column("c", text), "older"))
	snk := follow(t, path)
	mustWrite(t, snk, connectortest.Changes(was, ins("1", `"A"`)))
	commit(t, snk)
	mustEvolve(t, snk, was, is)
	mustWrite(t, snk, connectortest.Changes(was, ins("2", `"late"`), upd("1", "null", "3", unsent)))
	if err := snk.Close(t.Context()); err != nil { // and all of it is rolled back
		t.Fatal(err)
	}
	snk = started(t, path, "r", 2)
	mustWrite(t, snk, connectortest.Changes(is, ins("5", `"B"`, `"C"`)))
	mustWrite(t, snk, connectortest.Changes(was, ins("2", `"late"`), upd("1", "null", "3", unsent)))
	end(t, snk)
	holds(t, path, `SELECT key, b, c FROM t ORDER BY 1`, "2|late|older", "3|A|older", "5|B|C")
}

// clause E15: the engine asks for the mapping of changed columns before the table is changed: a column of ours will be what it has to be.
func TestMapOfChangedColumns(t *testing.T) {
	path := newFile(t)
	was := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.PrimitiveTypes.Int32))
	is := columns(1, column("id", arrow.PrimitiveTypes.Int64), column("v", arrow.PrimitiveTypes.Int64), column("w", arrow.BinaryTypes.String))
	env := connectortest.Env(t)
	cfg := &duckdb.SinkConfig{Database: duckdb.Database{Path: path}}
	snk, err := cfg.Open(env)
	if err != nil {
		t.Fatal(err)
	}
	defer snk.Close(context.Background()) //nolint:errcheck // a test's own
	if err := snk.Start(t.Context(), connector.SinkStart{Pipeline: env.Pipeline, Lane: "l", Run: "r", Fence: 1, Mode: connector.Upsert}); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, snk, connectortest.Changes(was, ins("1", "7")))
	commit(t, snk)
	other, err := cfg.Open(env)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background()) //nolint:errcheck // it only looked
	m, ok := connector.As[connector.Mapper](other)
	if !ok {
		t.Fatal("the sink is no Mapper")
	}
	ms, err := m.Map(t.Context(), is)
	if err != nil || ms[1].Native != "BIGINT" || ms[1].Fidelity != connector.Exact || ms[2].Native != "VARCHAR" {
		t.Errorf("Map returned %+v, %v", ms, err)
	}
}

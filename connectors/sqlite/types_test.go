package sqlite_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/record"
)

// read returns what a source over the script's tables delivers: types, rows, and what was set aside.
func read(t *testing.T, script string, options map[string]string) (types, got, bad []string) {
	t.Helper()
	batches, err := readAll(t, sourceOf(database(t, script), options))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range batches[0].Schema.Columns.Fields() {
		dt, err := record.TypeOf(f.Type)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, f.Name+" "+dt.String())
	}
	return types, rows(batches), rejects(batches)
}

const anything = `CREATE TABLE t (n INTEGER, d DOUBLE);
	INSERT INTO t VALUES (5, 1.5), (0.99, '23g'), ('twelve', NULL), (x'00ff', 2.5), (NULL, 3)`

// case C028.
func TestMixedValuesWiden(t *testing.T) {
	types, got, bad := read(t, anything, nil)
	want := []string{`{"n":"5","d":"1.5"}`, `{"n":"0.99","d":"23g"}`, `{"n":"twelve","d":null}`, `{"n":null,"d":"3"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"n string", "d string"}, types); diff != "" {
		t.Errorf("types:\n%s", diff)
	}
	if diff := cmp.Diff([]string{`{"rowid":4} n x'00ff'`}, bad); diff != "" {
		t.Errorf("rejects:\n%s", diff)
	}
}

// case C028.
func TestMixedValuesReject(t *testing.T) {
	types, got, bad := read(t, anything, map[string]string{"mixed": "reject"})
	if diff := cmp.Diff([]string{"n int64", "d float64"}, types); diff != "" {
		t.Errorf("types:\n%s", diff)
	}
	if diff := cmp.Diff([]string{`{"n":5,"d":1.5}`, `{"n":null,"d":3}`}, got); diff != "" {
		t.Errorf("rows:\n%s", diff)
	}
	want := []string{`{"rowid":2} n 0.99`, `{"rowid":3} n twelve`, `{"rowid":4} n x'00ff'`}
	if diff := cmp.Diff(want, bad); diff != "" {
		t.Errorf("rejects:\n%s", diff)
	}
}

// case C028: A value behind the rows that were looked at is rejected with all that is needed to find and to replay it.
func TestValueBehindTheScan(t *testing.T) {
	_, got, bad := read(t, `CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1), (2), ('N/A'), (4)`, map[string]string{"scan": "2"})
	if diff := cmp.Diff([]string{`{"n":1}`, `{"n":2}`, `{"n":4}`}, got); diff != "" {
		t.Errorf("rows:\n%s", diff)
	}
	if diff := cmp.Diff([]string{`{"rowid":3} n N/A`}, bad); diff != "" {
		t.Errorf("rejects:\n%s", diff)
	}
	types, got, bad := read(t, `CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1), ('N/A'), (x'01')`,
		map[string]string{"scan": "1", "types": "n:text"})
	if len(bad) > 0 || types[0] != "n string" || !cmp.Equal(got, []string{`{"n":"1"}`, `{"n":"N/A"}`, `{"n":"\\x01"}`}) {
		t.Errorf("with types=n:text: %q, rejects %q", got, bad)
	}
}

func TestNothingLostByReading(t *testing.T) {
	for _, tt := range []struct {
		name, declared, values string
		typ                    string
		want                   string
	}{
		{"whole and fraction", "INTEGER", "(5), (0.99)", "float64", "5 0.99"},
		{"too large for float64", "INTEGER", "(9007199254740993), (0.5)", "numeric", "9007199254740993 0.5"},
		{"edges", "BIGINT UNSIGNED", "(9223372036854775807), (-9223372036854775808)", "int64", "9223372036854775807 -9223372036854775808"},
		{"small", "SMALLINT", "(1), (-32768)", "int16", "1 -32768"},
		{"not small", "SMALLINT", "(1), (40000)", "int64", "1 40000"},
		{"decimal", "DECIMAL(6, 2)", "(1), (0.1), (-1234.56)", "decimal(6,2)", "1.00 0.10 -1234.56"},
		{"decimal with more digits", "DECIMAL(6, 2)", "(1), (0.125)", "numeric", "1 0.125"},
		{"numeric", "NUMERIC", "(1), (1e300)", "numeric", "1 1" + strings.Repeat("0", 300)},
		{"infinity", "REAL", "(9e999), (-9e999)", "float64", `"Infinity" "-Infinity"`},
		{"boolean", "BOOLEAN", "(0), (1), ('true')", "bool", "false true true"},
		{"boolean with 2", "BOOLEAN", "(0), (2)", "int64", "0 2"},
		{"boolean with words", "BOOLEAN", "('yes'), (1)", "string", `"yes" "1"`},
		{
			"datetime", "DATETIME", "('2024-01-02 03:04:05'), ('2024-01-02T03:04:05.123456')", "timestamp[us]",
			`"2024-01-02T03:04:05" "2024-01-02T03:04:05.123456"`,
		},
		{"datetime with 7 digits", "DATETIME", "('2024-01-02 03:04:05.1234561')", "string", `"2024-01-02 03:04:05.1234561"`},
		{"datetime with infinity", "TIMESTAMP", "('2024-01-02 03:04:05'), ('infinity')", "timestamp[us]", `"2024-01-02T03:04:05" "infinity"`},
		{"datetime with zone", "DATETIME", "('2024-01-02 03:04:05Z')", "timestamp[us, UTC]", `"2024-01-02T03:04:05Z"`},
		{
			"datetime with and without", "DATETIME", "('2024-01-02 03:04:05Z'), ('2024-01-02 03:04:05')", "string",
			`"2024-01-02 03:04:05Z" "2024-01-02 03:04:05"`,
		},
		{"datetime as number", "DATETIME", "(1700000000), (1700000001)", "int64", "1700000000 1700000001"},
		{"date", "DATE", "('2024-02-29'), ('-0043-03-15')", "date", `"2024-02-29" "-0043-03-15"`},
		{"no date", "DATE", "('2024-02-30')", "string", `"2024-02-30"`},
		{"date as julian day", "DATE", "(2460000.5)", "float64", "2460000.5"},
		{"uuid", "UUID", "('01234567-89ab-cdef-0123-456789abcdef')", "uuid", `"01234567-89ab-cdef-0123-456789abcdef"`},
		{"uuid spelled otherwise", "UUID", "('01234567-89AB-cdef-0123-456789abcdef')", "string", `"01234567-89AB-cdef-0123-456789abcdef"`},
		{"json", "JSON", `('{"a": 1}'), ('[]'), (5)`, "json", `{"a": 1} [] 5`},
		{"no json", "JSON", `('{"a": 1')`, "string", `"{\"a\": 1"`},
		{"blob", "BLOB", "(x'00ff'), (x'')", "binary", `"AP8=" ""`},
		{"blob that is text", "BLOB", "('abc')", "string", `"abc"`},
		{"untyped numbers", "", "(1), (2)", "int64", "1 2"},
		{"untyped text and numbers", "", "(1), ('x'), (0.5)", "string", `"1" "x" "0.5"`},
		{"untyped blobs", "", "(x'01')", "binary", `"AQ=="`},
		{"untyped nothing", "", "(NULL)", "string", "null"},
		{"a name that means nothing", "STRING", "('007'), ('x')", "string", `"7" "x"`}, // SQLite itself stored 7
		{"leading zeros", "VARCHAR(10)", "('007'), (7)", "string", `"007" "7"`},
		{"exact text", "NUMERIC_TEXT", "('1.10'), ('NaN')", "numeric", `1.10 "NaN"`},
		{"time", "TIME", "('24:00:00'), ('01:02:03.000004')", "time", `"24:00:00" "01:02:03.000004"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			types, got, bad := read(t, "CREATE TABLE t (v "+tt.declared+"); INSERT INTO t VALUES "+tt.values, nil)
			if len(bad) > 0 {
				t.Errorf("rejected: %q", bad)
			}
			if types[0] != "v "+tt.typ {
				t.Errorf("read as %q, want %q", types[0], tt.typ)
			}
			for i := range got {
				got[i] = strings.TrimSuffix(strings.TrimPrefix(got[i], `{"v":`), "}")
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("values %s, want %s", s, tt.want)
			}
		})
	}
}

// case C025.
func TestZeroCharacter(t *testing.T) {
	path := database(t, `CREATE TABLE t (v TEXT); INSERT INTO t VALUES ('ab'||char(0)||'cd'), (char(0)), ('')`)
	batches, err := readAll(t, sourceOf(path, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`{"v":"ab\u0000cd"}`, `{"v":"\u0000"}`, `{"v":""}`}
	if diff := cmp.Diff(want, rows(batches)); diff != "" {
		t.Fatalf("read (-want +got):\n%s", diff)
	}
	target := newTarget(t)
	write(t, target, connector.Append, &record.Batch{Schema: batches[0].Schema, Rows: batches[0].Rows})
	if got, _ := target.Read(t, batches[0].Schema); !cmp.Equal(want, got) {
		t.Errorf("written and read back: %q", got)
	}
}

// Text that is no UTF-8 is set aside; as binary it can be read.
func TestTextThatIsNoUTF8(t *testing.T) {
	const script = `CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT); INSERT INTO t VALUES (1, 'ok'), (2, CAST(x'ff41' AS TEXT)), (3, 'ok')`
	_, got, bad := read(t, script, nil)
	if !cmp.Equal(got, []string{`{"id":1,"v":"ok"}`, `{"id":3,"v":"ok"}`}) || !cmp.Equal(bad, []string{"{\"rowid\":2} v \ufffdA"}) {
		t.Errorf("rows %q, rejects %q", got, bad)
	}
	_, got, bad = read(t, script, map[string]string{"types": "v:binary"})
	if !cmp.Equal(got, []string{`{"id":1,"v":"b2s="}`, `{"id":2,"v":"/0E="}`, `{"id":3,"v":"b2s="}`}) || len(bad) > 0 {
		t.Errorf("as binary: rows %q, rejects %q", got, bad)
	}
}

// UTF-16 files are read like any other.
func TestUTF16(t *testing.T) {
	_, got, _ := read(t, `PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID;
		INSERT INTO t VALUES ('ü', '😀'), ('a', 'x'||char(0)||'y')`, nil)
	if !cmp.Equal(got, []string{`{"k":"a","v":"x\u0000y"}`, `{"k":"ü","v":"😀"}`}) {
		t.Errorf("read %q", got)
	}
}

// A primary key with a NULL, which SQLite allows, is no key.
func TestNullInPrimaryKey(t *testing.T) {
	path := database(t, `CREATE TABLE t (k TEXT PRIMARY KEY, v INT); INSERT INTO t VALUES (NULL, 1), ('a', 2), (NULL, 3)`)
	batches, err := readAll(t, sourceOf(path, nil))
	if err != nil {
		t.Fatal(err)
	}
	if key := batches[0].Schema.KeyNames(); len(key) > 0 || len(rows(batches)) != 3 {
		t.Errorf("key %q, rows %q", key, rows(batches))
	}
}

func TestWhereColumnsAndGenerated(t *testing.T) {
	types, got, _ := read(t, `CREATE TABLE t (a INT, b INT, c INT GENERATED ALWAYS AS (a + b) STORED, d TEXT);
		INSERT INTO t (a, b, d) VALUES (1, 2, 'x'), (3, 4, 'y')`, map[string]string{"where": "a > 1 -- not the first", "columns": "c,a"})
	if !cmp.Equal(types, []string{"c int64", "a int64"}) || !cmp.Equal(got, []string{`{"c":7,"a":3}`}) {
		t.Errorf("types %q, rows %q", types, got)
	}
}

// cases C099, C100.
func TestNames(t *testing.T) {
	long := strings.Repeat("x", 70)
	script := `CREATE TABLE "select" ("user" INT, "Group" INT, "a b" INT, "x""y" INT, "ünï" INT); INSERT INTO "select" VALUES (1, 2, 3, 4, 5);
		CREATE TABLE "` + long + `1" (a INT); CREATE TABLE "` + long + `2" (a INT); INSERT INTO "` + long + `2" VALUES (2);
		CREATE TABLE "a.b" (a INT); INSERT INTO "a.b" VALUES (3)`
	batches, err := readAll(t, sourceOf(database(t, script), nil))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, b := range batches {
		got[b.Schema.Dataset] = append(append([]string{}, got[b.Schema.Dataset]...), connectortest.Rows(b)...)
	}
	want := map[string][]string{
		"select": {`{"user":1,"Group":2,"a b":3,"x\"y":4,"ünï":5}`}, long + "1": {}, long + "2": {`{"a":2}`}, `"a.b"`: {`{"a":3}`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

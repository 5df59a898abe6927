package postgres_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// increments runs a source by cursor again and again, each from where the last run ended.
type increments struct {
	t       *testing.T
	db      string
	options map[string]string
	at      record.Position
}

// next returns the values of column id that a run delivered, in order.
func (in *increments) next() []string {
	in.t.Helper()
	p, err := readFrom(in.t, sourceConfig(in.t, in.db, in.options), in.at)
	if err != nil {
		in.t.Fatalf("%v (%s)", err, connector.HintOf(err))
	}
	in.at = p.end
	var ids []string
	for _, d := range slices.Sorted(maps.Keys(p.rows)) {
		for _, row := range p.rows[d] {
			id, _, _ := strings.Cut(strings.TrimPrefix(row, `{"id":`), ",")
			ids = append(ids, strings.TrimSuffix(id, "}"))
		}
	}
	return ids
}

func (in *increments) want(what string, ids ...string) {
	in.t.Helper()
	if diff := cmp.Diff(append([]string{}, ids...), append([]string{}, in.next()...)); diff != "" {
		in.t.Errorf("%s (-want +got):\n%s\nposition %s", what, diff, in.at)
	}
}

// Rows that are committed at or below the greatest cursor seen come in the next run, and no row comes twice while no transaction
// overlaps.
// case C071.
func TestCursorBoundary(t *testing.T) {
	for _, typ := range []string{"timestamptz", "timestamp", "date"} {
		t.Run(typ, func(t *testing.T) {
			db := pgtest.Database(t)
			conn := pgtest.Conn(t, db)
			must(t, conn, `CREATE TABLE t (id int PRIMARY KEY, at `+typ+` NOT NULL)`,
				`INSERT INTO t SELECT i, now() - interval '1 day' * (5 - i) FROM generate_series(1, 5) i`)
			in := &increments{t: t, db: db, options: map[string]string{"table": "t", "cursor": "at"}}
			in.want("the first run", "1", "2", "3", "4", "5")
			in.want("nothing is new")
			must(t, conn, `INSERT INTO t SELECT 0, max(at) FROM t`)
			in.want("a row with the last maximum, and a smaller key", "0")
			in.want("nothing is new")

			late := pgtest.Conn(t, db)
			must(t, late, `BEGIN`, `SAVEPOINT s`, `INSERT INTO t VALUES (6, now())`)
			must(t, conn, `INSERT INTO t VALUES (7, now())`)
			in.want("the late transaction is not committed", "7")
			must(t, late, `COMMIT`)
			got := in.next()
			if !slices.Contains(got, "6") {
				t.Errorf("a transaction that was open during a run and committed after it is missing: %v", got)
			}
			in.want("nothing is new")
			must(t, conn, `UPDATE t SET at = now() + interval '1 day' WHERE id = 3`)
			in.want("an update", "3")
		})
	}
}

// Cursors that are not times: every type, bound with its exact text.
// cases C071, C073, C075.
func TestCursorTypes(t *testing.T) {
	for typ, values := range map[string][]string{
		"bigint": {"1", "2", "9007199254740993", "9007199254740994"}, "uuid": {"01234567-89ab-7def-8123-456789abcdef", "01234567-89ab-7def-8123-456789abcdf0"},
		"numeric":     {"0.00000000000000000001", "0.000000000000000000011", "98765432109876543210.5", "NaN"},
		"text":        {"", "it's", `it"s \ back`, "ünï"},
		"bytea":       {`\x00`, `\x0001`, `\xff`},
		"timestamptz": {"0044-03-15 BC", "2026-01-01 00:00:00.123456+00", "2026-01-01 00:00:00.123457+00", "15000-06-01", "infinity"},
		"date":        {"0044-03-15 BC", "0001-01-01 BC", "2026-01-01", "15000-06-01"},
		"float8":      {"-Infinity", "0.1", "0.30000000000000004", "NaN"},
		"interval":    {"-13 mons", "00:00:00.000001", "1 mon"},
		"inet":        {"10.0.0.1", "10.0.0.2/8"},
		"varchar(9)":  {"a", "b"},
	} {
		t.Run(typ, func(t *testing.T) {
			db := pgtest.Database(t)
			conn := pgtest.Conn(t, db)
			must(t, conn, `CREATE TABLE t (id int PRIMARY KEY, at `+typ+`)`, `CREATE VIEW v AS TABLE t`)
			for _, options := range []map[string]string{
				{"table": "t", "cursor": "at", "nulls": "skip"},
				{"table": "v", "cursor": "at", "nulls": "skip", "key": "id"},
				{"query": "SELECT * FROM t", "cursor": "at", "nulls": "skip", "key": "id"},
			} {
				must(t, conn, `TRUNCATE t`)
				in := &increments{t: t, db: db, options: options}
				in.want("an empty table")
				slices.SortFunc(values, func(a, b string) int {
					var less bool
					if err := conn.QueryRow(t.Context(), fmt.Sprintf("SELECT %s::%s < %s::%s", sqlText(a), typ, sqlText(b), typ)).Scan(&less); err != nil {
						t.Fatal(err)
					}
					if less {
						return -1
					}
					return 1
				})
				for i, v := range values {
					must(t, conn, fmt.Sprintf("INSERT INTO t VALUES (%d, %s::%s)", i, sqlText(v), typ))
					in.want(fmt.Sprintf("%v: value %s", options, v), strconv.Itoa(i))
					in.want("nothing is new")
				}
				must(t, conn, fmt.Sprintf("INSERT INTO t VALUES (-1, %s::%s)", sqlText(values[len(values)-1]), typ))
				in.want("a tie", "-1")
				in.want("nothing is new")
			}
		})
	}
}

func sqlText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Rows that move while a run reads are neither skipped nor shifted.
// case C072.
func TestCursorWhileRowsMove(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE t (id int PRIMARY KEY, at bigint NOT NULL, v text)`,
		`INSERT INTO t SELECT i, i, repeat('x', 3000) FROM generate_series(1, 5000) i`)
	cfg := sourceConfig(t, db, map[string]string{"table": "t", "cursor": "at"})
	n := 0
	p, err := readEach(t, cfg, record.Position{}, func(*record.Batch) {
		n++
		must(t, conn, fmt.Sprintf(`UPDATE t SET at = 10000 + %d WHERE id = %d`, n, n))
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.rows["public.t"]) != 5000 {
		t.Errorf("%d rows, want 5000", len(p.rows["public.t"]))
	}
	again, err := readFrom(t, cfg, p.end)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.rows["public.t"]) != n {
		t.Errorf("%d rows in the next run, %d were moved", len(again.rows["public.t"]), n)
	}
}

// Rows without a cursor follow the declared policy.
// case C074.
func TestCursorNull(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE t (id int PRIMARY KEY, at timestamptz)`, `INSERT INTO t VALUES (1, now()), (2, NULL), (3, now())`)
	_, err := readFrom(t, sourceConfig(t, db, map[string]string{"table": "t", "cursor": "at"}), record.Position{})
	if connector.ClassOf(err) != connector.ClassPermanent || !strings.Contains(err.Error(), "1 rows have no cursor") || connector.HintOf(err) == "" {
		t.Errorf("by default: %v", err)
	}
	skip := &increments{t: t, db: db, options: map[string]string{"table": "t", "cursor": "at", "nulls": "skip"}}
	skip.want("skip", "1", "3")
	include := &increments{t: t, db: db, options: map[string]string{"table": "t", "cursor": "at", "nulls": "include"}}
	include.want("include", "1", "3", "2")
	include.want("include again", "2")
	must(t, conn, `UPDATE t SET at = now() WHERE id = 2`)
	skip.want("set later", "2")
	include.want("set later", "2")
	include.want("nothing is new")
}

// A source without transaction numbers finds late rows within the declared lag.
// case C071.
func TestCursorLag(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE t (id int PRIMARY KEY, at int)`, `INSERT INTO t VALUES (1, 10), (2, 20)`, `CREATE VIEW v AS TABLE t`)
	in := &increments{t: t, db: db, options: map[string]string{"table": "v", "cursor": "at", "key": "id", "lag": "5"}}
	in.want("first", "1", "2")
	must(t, conn, `INSERT INTO t VALUES (3, 16), (4, 14)`)
	in.want("within the lag", "3", "2")
	in.options["lag"] = "often"
	_, err := readFrom(t, sourceConfig(t, db, in.options), in.at)
	if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(err.Error(), "lag") {
		t.Errorf("a lag that is no number: %v", err)
	}
}

// A run that ends in the middle goes on behind the last batch, over several tables.
// clauses S7, S8.
func TestCursorResume(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE a (id int PRIMARY KEY, at int NOT NULL)`, `CREATE TABLE b (id int PRIMARY KEY, at int NOT NULL)`,
		`INSERT INTO a SELECT i, i / 10 FROM generate_series(1, 20000) i`, `INSERT INTO b SELECT i, i / 10 FROM generate_series(1, 20000) i`)
	cfg := sourceConfig(t, db, map[string]string{"tables": "a,b", "cursor": "at"})
	whole, err := readFrom(t, cfg, record.Position{})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range whole.marks {
		rest, err := readFrom(t, cfg, m)
		if err != nil {
			t.Fatal(err)
		}
		if i == len(whole.marks)-1 && len(rest.rows["public.a"])+len(rest.rows["public.b"]) > 0 {
			t.Errorf("rows behind the end: %v", rest.rows)
		}
		for _, d := range []string{"public.a", "public.b"} {
			n := len(rest.rows[d])
			sameRows(t, d, whole.rows[d][20000-n:], rest.rows[d])
		}
		if !rest.end.Equal(whole.end) && !strings.Contains(string(rest.end.Data), `"round":`) {
			t.Errorf("the end is %s, want %s", rest.end, whole.end)
		}
	}
}

// clause S24.
func TestCursorColumnMissing(t *testing.T) {
	db := pgtest.Database(t)
	must(t, pgtest.Conn(t, db), `CREATE TABLE t (id int PRIMARY KEY, updated_at int)`)
	_, err := readFrom(t, sourceConfig(t, db, map[string]string{"table": "t", "cursor": "update_at"}), record.Position{})
	if connector.ClassOf(err) != connector.ClassConfig || !strings.Contains(err.Error(), `"updated_at"`) {
		t.Errorf("error %v: want the name that was meant", err)
	}
}

// A dataset that is gone does not keep the others from being read again.
func TestCursorDatasetGone(t *testing.T) {
	db := pgtest.Database(t)
	conn := pgtest.Conn(t, db)
	must(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`, `CREATE TABLE b (id int PRIMARY KEY)`, `INSERT INTO a VALUES (1)`, `INSERT INTO b VALUES (2)`)
	options := map[string]string{"tables": "public.*", "cursor": "id"}
	p := readAll(t, db, options)
	must(t, conn, `DROP TABLE b`, `INSERT INTO a VALUES (3)`)
	between := p.marks[slices.IndexFunc(p.marks, func(m record.Position) bool { return strings.Contains(string(m.Data), `"dataset":"public.b"`) })]
	in := &increments{t: t, db: db, options: options, at: between}
	in.want("the round that ends without the table", "3")
	must(t, conn, `INSERT INTO a VALUES (4)`)
	in.want("the next round", "4")
}

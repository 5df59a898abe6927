package mysql

import (
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// fittingValues are the values of a case that the sink takes, without null.
func fittingValues(t testing.TB, snk *Sink, s *record.Schema, col int, c connectortest.Case) []string {
	t.Helper()
	mapped, err := snk.Map(t.Context(), s)
	must(t, err)
	values := connectortest.Fitting(c, mapped[col].Limits)
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "null" })
	slices.Sort(values)
	return slices.Compact(values)
}

// committedOne commits and asks.
func committedOne(t testing.TB, snk *Sink, db *sql.DB, query string) string {
	t.Helper()
	must(t, snk.Commit(t.Context(), position(1)))
	return one(t, db, query)
}

// Rows are found by keys of every type: each is written, written over, moved away and deleted, by statements with the keys themselves and
// by way of the stage.
func TestSinkKeysOfAnyType(t *testing.T) {
	cases := connectortest.Pick("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "decimal_38_10",
		"decimal_20_4", "decimal_18_0", "numeric", "binary", "binary_16", "uuid", "enum", "bits_8", "inet", "date", "time_us", "time_ms",
		"timestamp_us", "instant_us", "timestamp_ms", "timestamp_s", "duration_us", "interval")
	cases = append(cases, connectortest.Case{Name: "texts", Type: arrow.BinaryTypes.String, Values: []string{
		`""`, `" "`, `"a"`, `"A"`, `"a "`, `"it's"`, `"\\"`, `"a,b'),('"`, `"\u0000"`, `"😀"`, `"ß"`, `"ss"`,
	}})
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
		for _, c := range cases {
			for _, way := range []string{"direct", "staged"} {
				name := c.Name + "_" + way
				s := keyed(name, arrow.Field{Name: "k", Type: c.Type}, textField)
				values := fittingValues(t, snk, s, 0, c)
				if c.Name == "float32" || c.Name == "float64" { // 0 and -0 are one key
					values = slices.DeleteFunc(values, func(v string) bool { return v == "-0" })
				}
				if len(values) == 0 {
					t.Errorf("%s: no value fits", c.Name)
					continue
				}
				rows := func(v string) (out [][]string) {
					for i, k := range values {
						out = append(out, []string{k, strconv.Quote(v + strconv.Itoa(i))})
					}
					return out
				}
				must(t, snk.Write(t.Context(), connectortest.BatchOf(s, rows("a")...)))
				must(t, snk.Commit(t.Context(), position(1)))
				if way == "staged" {
					sqlRun(t, db, "ALTER TABLE "+name+" ADD COLUMN u int UNIQUE")
				}
				again := connectortest.BatchOf(s, rows("b")...)
				again.Ops = slices.Repeat([]record.Op{record.Update}, len(values))
				must(t, snk.Write(t.Context(), again))
				want(t, name+": rows that were written over", fmt.Sprintf("%d|%[1]d", len(values)), committedOne(t, snk, db, "SELECT COUNT(*), SUM(v LIKE 'b%') FROM "+name))
				gone := connectortest.BatchOf(s, rows("c")[1:]...)
				gone.Ops = slices.Repeat([]record.Op{record.Delete}, len(values)-1)
				must(t, snk.Write(t.Context(), gone))
				want(t, name+": rows that are left", "b0", committedOne(t, snk, db, "SELECT GROUP_CONCAT(v) FROM "+name))
			}
		}
	})
}

// Rows without a key are found by values of every type, one by one.
func TestSinkKeylessOfAnyType(t *testing.T) {
	onBoth(t, func(t *testing.T, kind mysqltest.Flavor) {
		t.Helper()
		url := mysqltest.Database(t, kind)
		db := watcher(t, url)
		snk := startSink(t, sinkConfig(t, url), connector.Upsert, 1)
		for _, c := range connectortest.Cases() {
			s := &record.Schema{Dataset: c.Name, Columns: arrow.NewSchema([]arrow.Field{c.Field(), textField}, nil)}
			values := append(fittingValues(t, snk, s, 0, c), "null")
			if c.Name == "float32" || c.Name == "float64" {
				values = slices.DeleteFunc(values, func(v string) bool { return v == "-0" })
			}
			var rows, changes [][]string
			for _, v := range values {
				rows = append(rows, []string{v, `"x"`}, []string{v, `"x"`}, []string{v, `"x"`})
				changes = append(changes, []string{v, `"x"`})
			}
			must(t, snk.Write(t.Context(), connectortest.BatchOf(s, rows...)))
			gone := connectortest.BatchOf(s, changes...)
			gone.Ops = slices.Repeat([]record.Op{record.Delete}, len(values))
			must(t, snk.Write(t.Context(), gone))
			for i := range changes {
				changes[i] = []string{changes[i][0], `"y"`}
			}
			changed := connectortest.BatchOf(s, changes...)
			changed.Old, changed.Ops = gone.Rows, slices.Repeat([]record.Op{record.Update}, len(values))
			must(t, snk.Write(t.Context(), changed))
			n := strconv.Itoa(len(values))
			want(t, c.Name, n+"|"+n, committedOne(t, snk, db, "SELECT SUM(v = 'x'), SUM(v = 'y') FROM "+ident(c.Name)))
		}
	})
}

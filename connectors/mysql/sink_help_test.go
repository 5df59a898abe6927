package mysql

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/mysqltest"
	"github.com/leatdata/leat/record"
)

// onBoth runs a test on both kinds of server.
func onBoth(t *testing.T, f func(t *testing.T, kind mysqltest.Flavor)) {
	t.Helper()
	for _, kind := range mysqltest.Flavors() {
		t.Run(string(kind), func(t *testing.T) { f(t, kind) })
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, connector.HintOf(err))
	}
}

func want(t testing.TB, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// sinkConfig returns a configuration for a database.
func sinkConfig(t testing.TB, url string) *SinkConfig {
	t.Helper()
	c, ok := NewSink().(*SinkConfig)
	if !ok {
		t.Fatal("no configuration")
	}
	must(t, c.SetURL(url))
	return c
}

// startSink opens and starts a sink of run r1.
func startSink(t testing.TB, c *SinkConfig, mode connector.WriteMode, fence uint64) *Sink {
	t.Helper()
	snk, err := c.Open(connectortest.Env(t))
	must(t, err)
	s, ok := snk.(*Sink)
	if !ok {
		t.Fatalf("a %T", snk)
	}
	t.Cleanup(func() { must(t, s.Close(context.WithoutCancel(t.Context()))) })
	must(t, s.Start(t.Context(), connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r1", Fence: fence, Mode: mode}))
	return s
}

func position(n int) record.Progress {
	return record.Progress{Run: "r1", Position: record.Position{Shape: 1, Data: fmt.Appendf(nil, `{"at":%d}`, n)}}
}

// watcher connects to a database to look at it, in UTC.
func watcher(t testing.TB, url string) *sql.DB {
	t.Helper()
	db := mysqltest.DB(t, url)
	db.SetMaxOpenConns(1)
	sqlRun(t, db, "SET SESSION time_zone = '+00:00', sql_mode = '', lock_wait_timeout = 10, innodb_lock_wait_timeout = 10")
	return db
}

func sqlRun(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%.300s: %v", s, err)
		}
	}
}

// one returns what a query answers, a line for each row.
func one(t testing.TB, db *sql.DB, query string) string {
	t.Helper()
	rows, err := ask(t.Context(), db, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	lines := make([]string, len(rows))
	for i, r := range rows {
		cells := make([]string, len(r))
		for n, v := range r {
			cells[n] = string(v)
			if v == nil {
				cells[n] = "NULL"
			}
		}
		lines[i] = strings.Join(cells, "|")
	}
	return strings.Join(lines, "\n")
}

// selected is the SQL that reads a column without losing anything, and document makes JSON of what it returns: no code of the sink.
func selected(rt record.Type, col string) string {
	switch rt.Kind {
	case record.Float32, record.Float64:
		return "CAST(" + col + " AS DOUBLE)"
	case record.Bits:
		if !rt.Varying && rt.Width > 0 {
			return fmt.Sprintf("LPAD(BIN(%s), %d, '0')", col, rt.Width)
		}
		return col
	default:
		return col
	}
}

func document(rt record.Type, v []byte) []byte {
	switch rt.Kind {
	case record.Bool:
		return []byte(map[string]string{"0": "false", "1": "true"}[string(v)])
	case record.Binary:
		return record.AppendJSONString(nil, base64.StdEncoding.EncodeToString(v))
	case record.Timestamp:
		text := strings.Replace(string(v), " ", "T", 1)
		if rt.Zoned {
			text += "Z"
		}
		return record.AppendJSONString(nil, text)
	case record.String, record.Enum, record.Foreign, record.UUID, record.Network, record.Bits, record.Date, record.Time, record.Duration,
		record.Interval:
		return record.AppendJSONString(nil, string(v))
	default:
		return v
	}
}

// readTable returns a table's rows as connectortest.Rows prints them.
func readTable(t testing.TB, db *sql.DB, c *SinkConfig, s *record.Schema) ([]string, bool) {
	t.Helper()
	types := make([]record.Type, s.Columns.NumFields())
	exprs := make([]string, len(types))
	for i, f := range s.Columns.Fields() {
		rt, err := record.TypeOf(f.Type)
		must(t, err)
		types[i], exprs[i] = rt, selected(rt, ident(f.Name))
	}
	rows, err := ask(t.Context(), db, fmt.Sprintf("SELECT %s FROM %s", strings.Join(exprs, ", "), c.place(s.Dataset)))
	if e, ok := serverErrorOf(err); ok && e.number == errNoTable {
		return nil, false
	}
	must(t, err)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	for _, row := range rows {
		for n, v := range row {
			doc := []byte("null")
			if v != nil {
				doc = document(types[n], v)
			}
			if err := record.ParseJSON(b.Field(n), doc); err != nil {
				t.Fatalf("column %s: %s: %v", s.Columns.Field(n).Name, v, err)
			}
		}
	}
	return connectortest.Rows(&record.Batch{Schema: s, Rows: b.NewRecordBatch()}), true
}

// rowErrorsOf returns the refused rows.
func rowErrorsOf(t testing.TB, err error) []connector.RowError {
	t.Helper()
	var rows *connector.RowErrors
	if !errors.As(err, &rows) {
		t.Fatalf("got %v (hint: %s), want refused rows", err, connector.HintOf(err))
	}
	return rows.Rows
}

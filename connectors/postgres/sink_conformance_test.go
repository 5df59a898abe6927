package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/internal/pgtest"
	"github.com/leatdata/leat/record"
)

// sinkConfig returns a configuration for a database.
func sinkConfig(t testing.TB, url string) *SinkConfig {
	t.Helper()
	c, ok := NewSink().(*SinkConfig)
	if !ok {
		t.Fatal("no configuration")
	}
	if err := c.SetURL(url); err != nil {
		t.Fatal(err)
	}
	return c
}

// jsonValue is the SQL that turns a column into the JSON that record.ParseJSON reads, without any code of the sink.
func jsonValue(rt record.Type, col string) string {
	switch rt.Kind {
	case record.Binary:
		return fmt.Sprintf("to_json(translate(encode(%s, 'base64'), E'\\n', ''))", col)
	case record.Duration:
		return fmt.Sprintf("to_json(CASE WHEN %[1]s < '0' THEN '-' || (-%[1]s)::text ELSE %[1]s::text END)", col)
	case record.Interval, record.Foreign, record.Bits, record.Enum, record.UUID, record.Date:
		return fmt.Sprintf("to_json(%s::text)", col)
	case record.JSON, record.Struct, record.Map:
		return col + "::json"
	case record.List:
		if rt.Elem.Nested() {
			return col + "::json"
		}
		return "to_json(" + col + ")"
	case record.Array:
		values := "to_json(" + col + ")"
		if rt.Elem.Kind == record.Binary {
			values = fmt.Sprintf("(SELECT coalesce(json_agg(%s ORDER BY n), '[]') FROM unnest(%s) WITH ORDINALITY q(v, n))", jsonValue(*rt.Elem, "v"), col)
		}
		lower := fmt.Sprintf("array_remove(ARRAY[array_lower(%[1]s,1), array_lower(%[1]s,2), array_lower(%[1]s,3)], NULL)", col)
		return fmt.Sprintf(`CASE WHEN 1 <> ALL(%[1]s) OR EXISTS (SELECT FROM unnest(%[1]s) q(l) WHERE l <> 1) THEN json_build_object('lower', %[1]s, 'values', %[2]s) ELSE %[2]s END`, lower, values)
	default:
		return "to_json(" + col + ")"
	}
}

// readTable returns a table's rows as connectortest.Rows prints them.
func readTable(t testing.TB, conn *pgx.Conn, s *record.Schema) ([]string, bool) {
	t.Helper()
	ctx := context.Background()
	at := place(s.Dataset, "public", "")
	exprs := make([]string, 0, s.Columns.NumFields())
	for _, f := range s.Columns.Fields() {
		rt, err := record.TypeOf(f.Type)
		if err != nil {
			t.Fatal(err)
		}
		col := "t." + ident(f.Name)
		exprs = append(exprs, fmt.Sprintf("CASE WHEN %s IS NOT NULL THEN (%s)::text END", col, jsonValue(rt, col)))
	}
	for _, set := range []string{"TimeZone = 'UTC'", "IntervalStyle = iso_8601", "DateStyle = 'ISO, YMD'"} {
		if _, err := conn.Exec(ctx, "SET "+set); err != nil {
			t.Fatal(err)
		}
	}
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", at.String()).Scan(&exists); err != nil || !exists {
		return nil, false
	}
	results, err := conn.PgConn().Exec(ctx, fmt.Sprintf("SELECT %s FROM %s t", strings.Join(exprs, ", "), at)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Columns)
	for _, row := range results[0].Rows {
		for c, v := range row {
			if v == nil {
				v = []byte("null")
			}
			if err := record.ParseJSON(b.Field(c), v); err != nil {
				t.Fatalf("column %s: %s: %v", s.Columns.Field(c).Name, v, err)
			}
		}
	}
	return connectortest.Rows(&record.Batch{Schema: s, Rows: b.NewRecordBatch()}), true
}

// clauses S12, S15, S23, E5, E12, E15, K7, W10
// cases C001, C012, C021, C025, C026, C099, C100
func TestSinkConformance(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{
		New: func(t testing.TB) connectortest.Target {
			t.Helper()
			url := pgtest.Database(t)
			conn := pgtest.Conn(t, url)
			return connectortest.Target{
				Config: func() connector.SinkConfig { return sinkConfig(t, url) },
				Read: func(t testing.TB, s *record.Schema) ([]string, bool) {
					t.Helper()
					return readTable(t, conn, s)
				},
			}
		},
		Refused: func(t testing.TB, target connectortest.Target) (*record.Batch, []int) {
			t.Helper()
			b := connectortest.Numbered("refused", 0, 1000)
			cfg, ok := target.Config().(*SinkConfig)
			if !ok {
				t.Fatal("not ours")
			}
			conn, err := cfg.connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = conn.Exec(t.Context(), `CREATE TABLE refused (id bigint PRIMARY KEY, v text CHECK (v NOT IN ('value 0', 'value 500', 'value 501', 'value 999')))`)
			if err = errors.Join(err, conn.Close(t.Context())); err != nil {
				t.Fatal(err)
			}
			return b, []int{0, 500, 501, 999}
		},
		Unreachable: func(t testing.TB) connector.SinkConfig {
			t.Helper()
			return sinkConfig(t, "postgres://nobody:s3cret-word@127.0.0.1:1/none?connect_timeout=2")
		},
		Secrets: []string{"s3cret-word"},
		Activity: func(t testing.TB) int {
			t.Helper()
			return 0
		},
	})
}

// clauses E12, E15
// cases C029, C030, C033, C034, C036, C037, C038
func TestSinkChangeStream(t *testing.T) {
	connectortest.ChangeStream(t, connectortest.SinkCase{New: func(t testing.TB) connectortest.Target {
		t.Helper()
		url := pgtest.Database(t)
		conn := pgtest.Conn(t, url)
		return connectortest.Target{
			Config: func() connector.SinkConfig { return sinkConfig(t, url) },
			Read: func(t testing.TB, s *record.Schema) ([]string, bool) {
				t.Helper()
				return readTable(t, conn, s)
			},
		}
	}})
}

// rowsOf sorts what readTable returns.
func rowsOf(t testing.TB, conn *pgx.Conn, s *record.Schema) []string {
	t.Helper()
	rows, _ := readTable(t, conn, s)
	slices.Sort(rows)
	return rows
}

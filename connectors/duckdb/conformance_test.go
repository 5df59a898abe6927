//go:build cgo && duckdb_arrow

package duckdb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/duckdb"
	"github.com/leatdata/leat/record"
)

// fill writes batches into a new file and returns it.
func fill(t testing.TB, batches ...*record.Batch) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.duckdb")
	cfg := &duckdb.SinkConfig{Database: duckdb.Database{Path: path}}
	sink, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := sink.Start(ctx, connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r", Fence: 1}); err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := sink.Write(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(sink.Flush(ctx), sink.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	return path
}

// clauses S1, S5, S6, S7, S8, S9, S12, S14, S15, S24
func TestSource(t *testing.T) {
	connectortest.Source(t, connectortest.SourceCase{
		New: func(t testing.TB) connector.SourceConfig {
			t.Helper()
			path := fill(t, connectortest.Numbered("numbers", 0, 12), connectortest.Numbered("none", 0, 0),
				connectortest.Batch("types", connectortest.Pick("int64", "text", "uuid", "date_inf")...))
			return &duckdb.SourceConfig{Database: duckdb.Database{Path: path}}
		},
		Unreachable: func(t testing.TB) connector.SourceConfig {
			t.Helper()
			return &duckdb.SourceConfig{Database: duckdb.Database{Path: filepath.Join(t.TempDir(), "missing.duckdb")}}
		},
	})
}

// readAll reads one dataset in the form in which it was written.
func readAll(t testing.TB, path string, s *record.Schema) (rows []string, exists bool) {
	t.Helper()
	ctx := context.Background()
	src, err := (&duckdb.SourceConfig{Database: duckdb.Database{Path: path}, Table: s.Dataset}).Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close(ctx) //nolint:errcheck // only read
	discover, ok := connector.As[connector.Discoverer](src)
	if !ok {
		t.Fatal("no discovery")
	}
	found, err := discover.Discover(ctx)
	if err != nil {
		return nil, false // no file or no table yet
	}
	for _, d := range found {
		exists = exists || d.Name == s.Dataset
	}
	if !exists {
		return nil, false
	}
	if err := src.Start(ctx, connector.SourceStart{Datasets: []string{s.Dataset}}); err != nil {
		t.Fatal(err)
	}
	for {
		b, err := src.Read(ctx, connector.Limit{Rows: 1000})
		if errors.Is(err, io.EOF) {
			return rows, true
		}
		if err != nil {
			t.Fatal(err)
		}
		if b != nil {
			rows = append(rows, asWritten(t, b, s)...)
		}
	}
}

// asWritten prints rows as connectortest.Rows does, after their text was read as the types that were written.
func asWritten(t testing.TB, b *record.Batch, s *record.Schema) []string {
	t.Helper()
	vals := make([][]string, b.NumRows())
	for i := range vals {
		for _, f := range s.Columns.Fields() {
			c := b.Schema.Column(f.Name)
			if c < 0 {
				t.Fatalf("no column %q", f.Name)
			}
			col := b.Rows.Column(c)
			typ, err := record.TypeOf(f.Type)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case col.IsNull(i):
				vals[i] = append(vals[i], "null")
			case typ.Nested() && record.AppendJSON(nil, col, i)[0] != '"':
				vals[i] = append(vals[i], string(record.AppendJSON(nil, col, i)))
			case typ.Nested():
				vals[i] = append(vals[i], string(record.AppendText(nil, col, i)))
			default:
				vals[i] = append(vals[i], jsonOf(t, f.Type, string(record.AppendText(nil, col, i))))
			}
		}
	}
	return connectortest.Rows(connectortest.BatchOf(s, vals...))
}

func newTarget(t testing.TB) connectortest.Target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "target.duckdb")
	return connectortest.Target{
		Config: func() connector.SinkConfig { return &duckdb.SinkConfig{Database: duckdb.Database{Path: path}} },
		Read: func(t testing.TB, s *record.Schema) ([]string, bool) {
			t.Helper()
			return readAll(t, path, s)
		},
	}
}

// clauses E5, E12, E15; cases C029, C030, C033, C034, C036, C037, C038, C063: the changes of a stream.
func TestChangeStream(t *testing.T) {
	if os.Getenv("LEAT_STREAM_SEEDS") == "" {
		t.Setenv("LEAT_STREAM_SEEDS", "6") // a file has one owner: each look at it opens it
	}
	connectortest.ChangeStream(t, connectortest.SinkCase{New: newTarget, OneOwner: true})
}

// clauses E1, E5, S12, S15
// cases C063, C099, C100
func TestSink(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{
		OneOwner: true,
		New:      newTarget,
		Unreachable: func(t testing.TB) connector.SinkConfig {
			t.Helper()
			return &duckdb.SinkConfig{Database: duckdb.Database{Path: filepath.Join(t.TempDir(), "no", "such", "folder.duckdb")}}
		},
	})
}

// case C086: the first row and the longest strings arrive like all others.
func TestFirstRowIsNotLost(t *testing.T) {
	b := connectortest.BatchOf(connectortest.Schema("t", connectortest.Pick("text")...), []string{"1", fmt.Sprintf("%q", string(make([]rune, 0)))})
	rows, ok := readAll(t, fill(t, b), b.Schema)
	if !ok || len(rows) != 1 {
		t.Errorf("rows %q", rows)
	}
}

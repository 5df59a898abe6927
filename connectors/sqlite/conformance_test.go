package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/sqlite"
	"github.com/leatdata/leat/record"
)

func sourceOf(path string, options map[string]string) *sqlite.SourceConfig {
	cfg := sqlite.NewSource()
	cfg.Path = path
	if err := connector.SetOptions(cfg, options); err != nil {
		panic(err)
	}
	return cfg
}

func conform(t *testing.T, path string, options map[string]string, want map[string][]string) {
	t.Helper()
	connectortest.Source(t, connectortest.SourceCase{
		New:  func(testing.TB) connector.SourceConfig { return sourceOf(path, options) },
		Want: want,
		Unreachable: func(t testing.TB) connector.SourceConfig {
			t.Helper()
			return sourceOf(filepath.Join(t.TempDir(), "none.db"), options)
		},
	})
}

const sample = `
	CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, total DECIMAL(10,2));
	INSERT INTO orders VALUES (-5, 'minus', -0.5), (1, 'one', 1.25), (2, NULL, 3), (4000000000000000000, '', NULL), (9, 'n', 10), (10, 'x', 0.1);
	CREATE TABLE pairs (a TEXT COLLATE NOCASE, b INT, v REAL, PRIMARY KEY (a, b)) WITHOUT ROWID;
	INSERT INTO pairs VALUES ('B', 1, 0.5), ('a', 2, 1.5), ('a', 1, NULL), ('C', -1, 2.5), ('', 0, 1e300);
	CREATE TABLE empty (id INTEGER PRIMARY KEY, at TIMESTAMP);
	CREATE TABLE nokey (v TEXT);
	INSERT INTO nokey VALUES ('same'), ('same'), (NULL);
	CREATE TABLE hidden (rowid TEXT, oid TEXT, _rowid_ TEXT);
	INSERT INTO hidden VALUES ('1', '2', '3'), ('4', '5', '6');
	CREATE VIEW both AS SELECT id, name FROM orders UNION ALL SELECT 1, 'again' UNION ALL SELECT NULL, 'no id';
`

func database(t testing.TB, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	run(t, path, script)
	return path
}

// clauses S1, S2, S5, S6, S7, S8, S9, S12, S14, S15, S23, S24: over tables of every kind.
func TestSourceTables(t *testing.T) {
	conform(t, database(t, sample), nil, map[string][]string{
		"orders": {
			`{"id":-5,"name":"minus","total":-0.50}`, `{"id":1,"name":"one","total":1.25}`, `{"id":2,"name":null,"total":3.00}`,
			`{"id":9,"name":"n","total":10.00}`, `{"id":10,"name":"x","total":0.10}`, `{"id":4000000000000000000,"name":"","total":null}`,
		},
		"pairs": {
			`{"a":"","b":0,"v":1e+300}`, `{"a":"a","b":1,"v":null}`, `{"a":"a","b":2,"v":1.5}`, `{"a":"B","b":1,"v":0.5}`, `{"a":"C","b":-1,"v":2.5}`,
		},
		"empty":  {},
		"nokey":  {`{"v":"same"}`, `{"v":"same"}`, `{"v":null}`},
		"hidden": {`{"rowid":"1","oid":"2","_rowid_":"3"}`, `{"rowid":"4","oid":"5","_rowid_":"6"}`},
	})
}

func TestSourceView(t *testing.T) {
	conform(t, database(t, sample), map[string]string{"table": "both"}, nil)
}

func TestSourceQueryWithKey(t *testing.T) {
	conform(t, database(t, sample), map[string]string{"query": "SELECT id / 3 AS k, name FROM orders WHERE id < 100;", "key": "k"}, map[string][]string{
		"query": {`{"k":-1,"name":"minus"}`, `{"k":0,"name":"one"}`, `{"k":0,"name":null}`, `{"k":3,"name":"n"}`, `{"k":3,"name":"x"}`},
	})
}

func TestSourceIncremental(t *testing.T) {
	conform(t, database(t, sample), map[string]string{"table": "orders", "cursor": "name"}, nil)
}

func TestSourceOneSnapshot(t *testing.T) {
	conform(t, database(t, sample), map[string]string{"tables": "orders,pairs", "snapshot": "run"}, nil)
}

// clauses E5, S12, S15; cases C001, C002, C012, C021, C026: every type and mode.
func TestSink(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{
		New: newTarget,
		Refused: func(t testing.TB, target connectortest.Target) (*record.Batch, []int) {
			t.Helper()
			cfg, ok := target.Config().(*sqlite.SinkConfig)
			if !ok {
				t.Fatal("the target is no SQLite file")
			}
			run(t, cfg.Path, `CREATE TABLE one (id INTEGER PRIMARY KEY, v TEXT CHECK (v NOT IN ('value 3', 'value 7')))`)
			return connectortest.Numbered("one", 0, 10), []int{3, 7}
		},
		Unreachable: func(t testing.TB) connector.SinkConfig {
			t.Helper()
			return sinkOf(filepath.Join(t.TempDir(), "no", "folder.db"))
		},
	})
}

// clauses E5, E12, E15; cases C029, C030, C033, C034, C036, C037, C038, C063: the changes of a stream.
func TestChangeStream(t *testing.T) {
	connectortest.ChangeStream(t, connectortest.SinkCase{New: newTarget})
}

func newTarget(t testing.TB) connectortest.Target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.db")
	return connectortest.Target{
		Config: func() connector.SinkConfig {
			cfg := sqlite.NewSink()
			cfg.Path = path
			return cfg
		},
		Read: func(t testing.TB, s *record.Schema) ([]string, bool) {
			t.Helper()
			cfg := sourceOf(path, nil)
			parts := record.SplitName(s.Dataset)
			cfg.Table, cfg.Columns = parts[len(parts)-1], s.Names()
			batches, err := readAll(t, cfg)
			if connector.ClassOf(err) == connector.ClassConfig {
				return nil, false
			}
			if err != nil {
				t.Fatalf("reading back: %v", err)
			}
			return rows(batches), true
		},
	}
}

// readAll reads a source from its beginning.
func readAll(t testing.TB, cfg connector.SourceConfig) ([]*record.Batch, error) {
	t.Helper()
	batches, _, err := readFrom(t, cfg, record.Position{})
	return batches, err
}

func readFrom(t testing.TB, cfg connector.SourceConfig, at record.Position) ([]*record.Batch, record.Position, error) {
	t.Helper()
	src, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		return nil, at, err
	}
	defer src.Close(context.Background()) //nolint:errcheck // reading only
	var req connector.SourceStart
	if !at.Zero() {
		req.From = connector.From{Origin: connector.Resume, Attempt: 1, Position: at}
	}
	if err := src.Start(t.Context(), req); err != nil {
		return nil, at, err
	}
	var out []*record.Batch
	for {
		b, err := src.Read(t.Context(), connector.Limit{Rows: 10, Bytes: 1 << 20})
		if errors.Is(err, io.EOF) {
			return out, at, nil
		}
		if err != nil {
			return out, at, err
		}
		out = append(out, b)
		if !b.Position.Zero() {
			at = b.Position
		}
	}
}

func rows(batches []*record.Batch) []string {
	out := []string{}
	for _, b := range batches {
		out = append(out, connectortest.Rows(b)...)
	}
	return out
}

func rejects(batches []*record.Batch) []string {
	var out []string
	for _, b := range batches {
		for _, r := range b.Rejects {
			out = append(out, fmt.Sprintf("%s %s %s", r.Key, r.Column, r.Value))
		}
	}
	return out
}

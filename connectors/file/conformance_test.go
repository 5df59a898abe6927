package file_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/connectors/file"
	"github.com/leatdata/leat/record"
)

// put writes a file of a test and returns its path.
func put(t testing.TB, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// store writes batches as files.
func store(t testing.TB, cfg *file.SinkConfig, mode connector.WriteMode, batches ...*record.Batch) {
	t.Helper()
	snk, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	defer snk.Close(ctx) //nolint:errcheck // closed below
	if err := snk.Start(ctx, connector.SinkStart{Pipeline: "p", Lane: "l", Run: "r1", Fence: 1, Mode: mode}); err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := snk.Write(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	f, ok := connector.As[connector.Finisher](snk)
	if !ok {
		t.Fatal("no Finisher")
	}
	if err := errors.Join(f.Finish(ctx, record.Progress{Run: "r1", Done: true}), snk.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}

func missing(t testing.TB) connector.SourceConfig {
	t.Helper()
	return file.NewSource(filepath.Join(t.TempDir(), "missing.csv"))
}

const quotedRows = "id,name,note\n1,a,\"x\n\ny\"\n2,,\"\"\n\n3,c,é\n4,d,\"quoted \"\"\"\n5,e,f\n6,g,\n7,h,i\n"

// source runs the suite on files of a folder.
func source(t *testing.T, files map[string]string, pattern string, set func(*file.SourceConfig), want map[string][]string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		put(t, dir, name, content)
	}
	connectortest.Source(t, connectortest.SourceCase{
		New: func(testing.TB) connector.SourceConfig {
			c := file.NewSource(filepath.Join(dir, pattern))
			if set != nil {
				set(c)
			}
			return c
		},
		Want: want, Unreachable: missing,
	})
}

func rows(lines ...string) []string { return lines }

// clauses S1, S2, S5, S6, S7, S8, S9, S12, S14, S15, S23, S24.
func TestSourceCSV(t *testing.T) {
	source(t, map[string]string{"orders.csv": quotedRows}, "orders.csv", nil, map[string][]string{"orders": rows(
		`{"id":1,"name":"a","note":"x\n\ny"}`, `{"id":2,"name":null,"note":""}`, `{"id":3,"name":"c","note":"é"}`, `{"id":4,"name":"d","note":"quoted \""}`,
		`{"id":5,"name":"e","note":"f"}`, `{"id":6,"name":"g","note":null}`, `{"id":7,"name":"h","note":"i"}`,
	)})
}

// clauses S6, S7: many files, one of them empty, one without rows, one with a byte order mark and its columns in another order.
func TestSourceManyCSV(t *testing.T) {
	source(t, map[string]string{
		"day-1.csv": "id,v\n1,a\n2,b\n", "day-2.csv": "", "day-3.csv": "id,v\n", "day-4.csv": "\xef\xbb\xbfv,id\r\nc,3\r\n\r\nd,4\r\n", "day-5.csv": "id,v\n5,\"e\ne\"",
	}, "day-*.csv", nil, map[string][]string{"day": rows(
		`{"id":1,"v":"a"}`, `{"id":2,"v":"b"}`, `{"id":3,"v":"c"}`, `{"id":4,"v":"d"}`, `{"id":5,"v":"e\ne"}`,
	)})
}

// clauses S7, S24: a dataset for each file.
func TestSourcePerFile(t *testing.T) {
	source(t, map[string]string{
		"a.csv": "id\n1\n2\n3\n", "public.b.csv": "x;y\n1;2\n3;4\n", "c.csv": "id\n", "d%2Fe.csv": "k,v\n1,x\n", "a~more.csv": "id\n4\n",
	}, "", func(c *file.SourceConfig) { c.Datasets = "per_file" }, map[string][]string{
		"a": rows(`{"id":1}`, `{"id":2}`, `{"id":3}`, `{"id":4}`), "public.b": rows(`{"x":1,"y":2}`, `{"x":3,"y":4}`), "c": {}, "d/e": rows(`{"k":1,"v":"x"}`),
	})
}

// clause S7.
func TestSourceJSONL(t *testing.T) {
	source(t, map[string]string{"1.jsonl": `{"u":null,"n":1}` + "\n", "2.jsonl": `{"u":"x","n":2}` + "\n\n" + `{"n":3}`}, "*.jsonl", func(c *file.SourceConfig) { c.Dataset = "d" },
		map[string][]string{"d": rows(`{"u":null,"n":1}`, `{"u":"x","n":2}`, `{"u":null,"n":3}`)})
}

// clauses S6, S7: compressed, and in another encoding: no seek is possible.
func TestSourcePacked(t *testing.T) {
	for _, name := range []string{"one.csv.gz", "one.jsonl.zst", "one.parquet", "one.arrow", "one.arrows", "one.tsv", "one.psv"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			b := connectortest.Numbered("one", 0, 9)
			store(t, file.NewSink(path), connector.Replace, b, connectortest.Sliced(b))
			connectortest.Source(t, connectortest.SourceCase{
				New:  func(testing.TB) connector.SourceConfig { return file.NewSource(path) },
				Want: map[string][]string{"one": append(connectortest.Rows(b), connectortest.Rows(connectortest.Sliced(b))...)},
			})
		})
	}
	source(t, map[string]string{"u.csv": "\xff\xfei\x00d\x00\n\x001\x00\n\x002\x00\n\x003\x00\n\x00"}, "u.csv", nil, map[string][]string{"u": rows(`{"id":1}`, `{"id":2}`, `{"id":3}`)})
}

// Standard input gives the same rows; it can't be resumed.
func TestSourceStdin(t *testing.T) {
	connectortest.Source(t, connectortest.SourceCase{
		New: func(testing.TB) connector.SourceConfig {
			c := file.NewSource("-")
			c.Format, c.Stdin = "csv", strings.NewReader(quotedRows)
			return c
		},
	})
}

// target is a folder or a file that a sink writes to and the source reads back.
func target(t testing.TB, path string, sinkOf func() *file.SinkConfig) connectortest.Target {
	t.Helper()
	return connectortest.Target{
		Config: func() connector.SinkConfig { return sinkOf() },
		Read: func(t testing.TB, s *record.Schema) ([]string, bool) {
			t.Helper()
			to := sinkOf()
			c := file.NewSource(path)
			c.Format, c.Header, c.Delimiter = to.Format, to.Header, to.Delimiter
			if to.Null != "" {
				c.Null = []string{to.Null}
			}
			if c.Dataset = s.Dataset; strings.HasSuffix(path, "/") {
				c.Dataset, c.Datasets, c.Only = "", "per_file", []string{s.Dataset}
			}
			if !c.Header {
				c.Names = s.Names()
			}
			c.Types = map[string]string{}
			if !strings.Contains(path+to.Format, "parquet") && !strings.Contains(path+to.Format, "arrow") {
				for _, f := range s.Columns.Fields() {
					c.Types[f.Name] = record.FormatType(f.Type)
				}
			}
			return readAll(t, c)
		},
	}
}

// readAll reads a source to its end; false: there is nothing.
func readAll(t testing.TB, c *file.SourceConfig) ([]string, bool) {
	t.Helper()
	out, rejects, err := read(t, c)
	var e *connector.Error
	if errors.As(err, &e) && (e.Code == "file.missing" || e.Code == "file.config") {
		return nil, false
	}
	if err != nil || len(rejects) > 0 {
		t.Fatal(err, rejects)
	}
	return out, true
}

func read(t testing.TB, c *file.SourceConfig) (out []string, rejects []record.Reject, err error) {
	t.Helper()
	ctx := context.Background()
	src, err := c.Open(connectortest.Env(t))
	if err != nil {
		return nil, nil, err
	}
	defer src.Close(ctx) //nolint:errcheck // only read
	if err := src.Start(ctx, connector.SourceStart{}); err != nil {
		return nil, nil, err
	}
	for {
		b, err := src.Read(ctx, connector.Limit{Rows: 100})
		if errors.Is(err, io.EOF) {
			return out, rejects, nil
		}
		if err != nil {
			return out, rejects, err
		}
		out = append(out, connectortest.Rows(b)...)
		rejects = append(rejects, b.Rejects...)
	}
}

// clauses S12, S15, E8, E16; cases C083, C099, C100.
func TestSink(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		set  func(*file.SinkConfig)
	}{
		"csv": {"one.csv", nil}, "csv options": {"one.csv", func(c *file.SinkConfig) { c.Header, c.Null, c.Delimiter = false, `\N`, "semicolon" }}, "tsv.zst": {"one.tsv.zst", nil},
		"csv.gz": {"one.csv.gz", nil}, "jsonl": {"one.jsonl", nil}, "parquet": {"one.parquet", nil}, "arrow": {"one.arrow", nil}, "arrows": {"one.arrows", nil},
		"folder of csv": {"out/", func(c *file.SinkConfig) { c.Format = "csv" }}, "folder of jsonl.gz": {"out/", func(c *file.SinkConfig) { c.Format, c.Compression = "jsonl", "gzip" }},
		"folder of parquet": {"out/", func(c *file.SinkConfig) { c.Format = "parquet" }}, "folder of arrow": {"out/", func(c *file.SinkConfig) { c.Format = "arrow" }},
	} {
		t.Run(name, func(t *testing.T) {
			connectortest.Sink(t, connectortest.SinkCase{
				New: func(t testing.TB) connectortest.Target {
					t.Helper()
					path := t.TempDir() + "/" + c.path
					return target(t, path, func() *file.SinkConfig {
						cfg := file.NewSink(path)
						if c.set != nil {
							c.set(cfg)
						}
						return cfg
					})
				},
				OneDataset: !strings.HasSuffix(c.path, "/"),
				Unreachable: func(t testing.TB) connector.SinkConfig {
					t.Helper()
					return file.NewSink(filepath.Join(t.TempDir(), "missing", "one.csv"))
				},
			})
		})
	}
}

// Standard output gets the rows at every Flush.
func TestStdout(t *testing.T) {
	var out bytes.Buffer
	cfg := file.NewSink("-")
	cfg.Format, cfg.Stdout = "jsonl", &out
	snk, err := cfg.Open(connectortest.Env(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := errors.Join(snk.Start(ctx, connector.SinkStart{Pipeline: "p"}), snk.Write(ctx, connectortest.Numbered("d", 0, 2)), snk.Flush(ctx)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "\n"); got != 2 {
		t.Errorf("after a Flush there are %d lines", got)
	}
	if err := snk.Write(ctx, connectortest.Numbered("other", 0, 2)); err == nil {
		t.Error("a second dataset was taken")
	}
	if err := snk.Close(ctx); err != nil {
		t.Error(err)
	}
}

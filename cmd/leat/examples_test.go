package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/leatdata/leat/config"
	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connectors/all"
	"github.com/leatdata/leat/internal/pgtest"
)

// examples returns the pipeline files that the repository ships.
func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	return files
}

func registry(t *testing.T) *connector.Registry {
	t.Helper()
	reg, err := all.All()
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// clause S31
// The examples are right, and the schema for editors says so too.
func TestExamplesAreValid(t *testing.T) {
	reg := registry(t)
	schema := editorSchema(t, reg)
	lookup := config.Lookup{Env: func(name string) (string, bool) { return "postgres://localhost/shop", name == "SHOP_URL" }}
	for _, file := range examples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			if _, err := config.Load(file, reg, lookup); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var doc any
			if err := yaml.Unmarshal(text, &doc); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(doc); err != nil {
				t.Errorf("schema: %v", err)
			}
		})
	}
}

func editorSchema(t *testing.T, reg *connector.Registry) *jsonschema.Schema {
	t.Helper()
	text, err := config.JSONSchema(reg)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("pipeline.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("pipeline.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// sample makes a folder in which the examples run as they do at the top of the repository.
func sample(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("../../examples")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// leatIn runs leat in a folder and returns its output.
func leatIn(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("leat", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "LEAT_STATE="+filepath.Join(dir, "state")), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("leat %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// The README's sample arrives whole, in every kind of file and database that needs no server.
func TestSample(t *testing.T) {
	dir := sample(t)
	leatIn(t, dir, nil, "copy", "examples/orders.csv", "examples/out/orders.jsonl", "-q")
	leatIn(t, dir, nil, "copy", "examples/orders.csv", "examples/out/orders.parquet", "-q")
	leatIn(t, dir, nil, "copy", "examples/orders.csv", "sqlite:examples/out/sample.db", "-q")
	want := sampleText(t, dir, "examples/orders.csv")
	for _, got := range []string{"examples/out/orders.jsonl", "examples/out/orders.parquet", "sqlite:examples/out/sample.db"} {
		if text := sampleText(t, dir, got); text != want {
			t.Errorf("%s differs from the sample: %.300s", got, text)
		}
	}
	if duckdbBuiltIn(t) {
		leatIn(t, dir, nil, "run", "examples/orders-to-duckdb.yaml", "-q")
		if text := sampleText(t, dir, "duckdb:examples/out/orders.duckdb"); text != want {
			t.Errorf("DuckDB differs from the sample: %.300s", text)
		}
	}
}

// sampleText is all rows of a dataset as CSV.
func sampleText(t *testing.T, dir, src string) string {
	t.Helper()
	return leatIn(t, dir, nil, "copy", src, "csv:-", "-q")
}

// duckdbBuiltIn reports whether this build has DuckDB: it needs cgo.
func duckdbBuiltIn(t *testing.T) bool {
	t.Helper()
	def, ok := registry(t).Lookup("duckdb")
	if !ok {
		return false
	}
	sink := def.Sink()
	if u, ok := sink.(connector.URLSetter); !ok || u.SetURL("duckdb:x.duckdb") != nil {
		return false
	}
	_, err := sink.Open(connector.Env{})
	return err == nil
}

// One read, three sinks: the numbers of rows add up, and what was left out is not there.
func TestFanOutExample(t *testing.T) {
	dir := sample(t)
	for range 2 { // running it again changes nothing
		leatIn(t, dir, nil, "run", "examples/fan-out.yaml", "-q")
		rows := func(src string) int {
			return strings.Count(leatIn(t, dir, nil, "copy", src, "jsonl:-", "-q"), "\n")
		}
		shop, analytics, shipping := rows("examples/out/shop.db"), rows("examples/out/orders.parquet"), rows("examples/out/to-ship.jsonl")
		if shop != analytics || shop < 400 || shop >= 500 || shipping == 0 || shipping >= shop {
			t.Errorf("%d, %d and %d rows", shop, analytics, shipping)
		}
		text := leatIn(t, dir, nil, "copy", "examples/out/orders.parquet", "jsonl:-", "-q")
		if strings.Contains(text, "Aoife") || strings.Contains(text, `"note"`) || strings.Contains(text, "cancelled") {
			t.Errorf("left in: %.300s", text)
		}
	}
}

// The examples with a server, one after the other: a file into Postgres by key, and from there what is new.
func TestPostgresExamples(t *testing.T) {
	dir, url := sample(t), pgtest.Database(t)
	env := []string{"SHOP_URL=" + url}
	for range 2 {
		leatIn(t, dir, env, "run", "examples/orders-to-postgres.yaml", "-q")
		leatIn(t, dir, env, "run", "examples/postgres-incremental.yaml", "-q")
		if n := strings.Count(leatIn(t, dir, nil, "copy", "examples/out/orders-replica.db", "jsonl:-", "-q"), "\n"); n != 500 {
			t.Errorf("%d rows", n)
		}
	}
	conn := pgtest.Conn(t, url)
	if _, err := conn.Exec(t.Context(), `insert into public.orders (order_id, ordered_at) values (1, '2027-01-01Z')`); err != nil {
		t.Fatal(err)
	}
	out := leatIn(t, dir, env, "run", "examples/postgres-incremental.yaml", "--json")
	if n := strings.Count(leatIn(t, dir, nil, "copy", "examples/out/orders-replica.db", "jsonl:-", "-q"), "\n"); n != 501 {
		t.Errorf("%d rows, %s", n, out)
	}
}

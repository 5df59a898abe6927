package main

import (
	"context"
	"fmt"
	"strings"
)

// DuckDB comes twice: the newest, and the newest with whose postgres extension there is a package.
func duckDB() tool { return python("duckdb", "2.0.0", "duckdb==2.0.0", "pytz==2026.1") }

func duckDBPostgres() tool {
	return python("duckdb-postgres", "1.5.5", "duckdb==1.5.5", "pytz==2026.1", "duckdb-extension-postgres-scanner==1.5.5")
}

// runDuckDB is a command that runs SQL.
func runDuckDB(t tool, e jobEnv, flags string, statements ...string) string {
	words := []string{t.path(e, "bin/python"), source("run_duckdb.py") + flags}
	for _, s := range statements {
		words = append(words, quote(s))
	}
	return strings.Join(words, " ")
}

func polars() tool { return python("polars", "2.1.0", "polars==2.1.0") }

func dlt() tool {
	return python("dlt", "1.31.0", "dlt[duckdb,filesystem,parquet,postgres]==1.31.0", "duckdb==1.5.5", "pyarrow==26.0.1", "pandas==3.1.1",
		"psycopg2-binary==2.9.13", "sqlalchemy==2.1.9", "connectorx==0.4.6")
}

// runDLT is a command that moves rows by copy_dlt.py, with nothing left of runs before.
func runDLT(e jobEnv, words ...string) string {
	state := e.dir + "/dlt"
	return "rm -rf " + state + " && RUNTIME__DLTHUB_TELEMETRY=false NORMALIZE__DATA_WRITER__DISABLE_COMPRESSION=true " +
		dlt().path(e, "bin/python") + " " + source("copy_dlt.py") + " " + state + " " + strings.Join(words, " ") + " > /dev/null"
}

// sling is its makers' build. For Parquet and DuckDB it calls DuckDB's command line, which finds its extensions at home.
func sling() tool {
	return tool{"sling", "1.4.11", strings.Join([]string{
		"python3 -m venv DIR",
		"DIR/bin/pip install -q sling-linux-amd64==1.4.11 duckdb-cli==1.4.4.post2 duckdb-extension-json==1.4.4 " +
			"duckdb-extension-parquet==1.4.4 duckdb-extension-httpfs==1.4.4",
		"install $(find DIR/lib -name sling-linux-amd64 -type f) DIR/bin/sling",
		"mkdir -p DIR/home/.duckdb/extensions/v1.4.4/linux_amd64",
		"find DIR/lib -name '*.duckdb_extension' -exec cp {} DIR/home/.duckdb/extensions/v1.4.4/linux_amd64/ ';'",
	}, " && ")}
}

const slingSaid = "the newest build of its makers in a package registry; telemetry off"

// runSling is a command that moves rows.
func runSling(e jobEnv, flags ...string) string {
	t := sling()
	return "HOME=" + t.path(e, "home") + " DUCKDB_PATH=" + t.path(e, "bin/duckdb") + " SLING_DISABLE_TELEMETRY=true " +
		t.path(e, "bin/sling") + " run " + strings.Join(flags, " ") + " > /dev/null"
}

// benthos is the engine of Redpanda Connect: of its distribution no registry of packages has a build.
func benthos() tool {
	return tool{"benthos", "4.60.0", "cd SRC && GOFLAGS= CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o DIR/benthos ./benthos"}
}

// loosely is a relation with the columns of a job in their own types: a tool may have written others that hold the same values.
func loosely(relation string, cols []column) string {
	return "(select " + join(cols, func(c column) string { return c.name + "::" + c.duckdb + " as " + c.name }) + " from " + relation +
		")"
}

// sameAsCSV compares what a tool wrote with the CSV it read.
func sameAsCSV(e jobEnv, relation string, before ...string) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		return sameRelations(ctx, fromCSV(), csvRelation(e.csv, fromCSV()), loosely(relation, fromCSV()), before...)
	}
}

func peersCSVJSONL(e jobEnv) []contender {
	out := func(name string) string { return e.dir + "/out." + name + ".jsonl" }
	verify := func(name string) func(context.Context, string) error {
		return sameAsCSV(e, jsonlRelation(out(name), fromCSV()))
	}
	duck := func(name string) string {
		return "copy (from read_csv(" + quoteSQL(e.csv) + ")) to " + quoteSQL(out(name)) + " (format json)"
	}
	slingTypes := quote(`{"columns": {"price": "float", "amount": "float"}}`)
	var all []contender
	all = append(all, duckDB().with(e,
		contender{
			name: "DuckDB", settings: "Python package, all threads, types inferred", command: runDuckDB(duckDB(), e, "", duck("duckdb")),
			output: out("duckdb"), verify: verify("duckdb"),
		},
		contender{
			name: "DuckDB, 1 thread", settings: "Python package, types inferred", command: runDuckDB(duckDB(), e, " --threads 1",
				duck("duckdb1")),
			output: out("duckdb1"), verify: verify("duckdb1"),
		})...)
	all = append(all, polars().with(e, contender{
		name: "Polars", settings: "scan_csv, sink_ndjson, types inferred, times too",
		command: polars().path(e, "bin/python") + " -c " + quote("import polars; polars.scan_csv("+quoteSQL(e.csv)+
			", try_parse_dates=True).sink_ndjson("+quoteSQL(out("polars"))+")"),
		output: out("polars"), verify: verify("polars"),
	})...)
	all = append(all, contender{
		name: "Python", version: "3", settings: "its csv and json, types given: what a tap of Singer's does at best",
		command: "python3 " + source("csv_jsonl.py") + " " + e.csv + " " + out("python"), output: out("python"), verify: verify("python"),
	})
	connect := func(name, flags, said string) contender {
		return contender{
			settings: "its engine, benthos, built from source; types given by a mapping; " + said,
			command: "IN=" + e.csv + " OUT=" + out(name) + " " + benthos().path(e, "benthos") + " -c " +
				source("benthos/csv-jsonl.yaml") + flags,
			reset: "rm -f " + out(name), output: out(name), verify: verify(name),
		}
	}
	batched, single := connect("benthos", "", "1,000 rows at a time"), connect("benthos1", " --set input.csv.batch_count=1",
		"batches as by default")
	batched.name, single.name = "Redpanda Connect", "Redpanda Connect, row by row"
	all = append(all, benthos().with(e, batched, single)...)
	all = append(all, dlt().with(e, contender{
		name: "dlt", settings: "batches of pyarrow's CSV reader, no compression", command: runDLT(e, "csv", e.csv, "jsonl",
			e.dir+"/out.dlt"),
		reset: "rm -rf " + e.dir + "/out.dlt", output: e.dir + "/out.dlt",
		verify: sameAsCSV(e, jsonlRelation(e.dir+"/out.dlt/loaded/t/*.jsonl", fromCSV())),
	})...)
	return append(all, sling().with(e, contender{
		name: "sling", settings: slingSaid + "; types given for fractions, which are strings else; booleans stay strings, no value is " +
			"an empty one",
		command: runSling(e, "--src-stream file://"+e.csv, "--tgt-object file://"+out("sling"), "--src-options", slingTypes),
		output:  out("sling"), verify: sameAsCSV(e, "(select * replace (nullif(note, '') as note) from "+jsonlRelation(out("sling"),
			fromCSV())+")"),
	})...)
}

func peersCSVParquet(e jobEnv) []contender {
	out := func(name string) string { return e.dir + "/out." + name + ".parquet" }
	verify := func(name string) func(context.Context, string) error { return sameAsCSV(e, parquetRelation(out(name))) }
	duck := func(name string) string {
		return "copy (from read_csv(" + quoteSQL(e.csv) + ")) to " + quoteSQL(out(name)) + " (format parquet, compression zstd)"
	}
	var all []contender
	all = append(all, duckDB().with(e,
		contender{
			name: "DuckDB", settings: "Python package, all threads, types inferred, zstd", command: runDuckDB(duckDB(), e, "",
				duck("duckdb")),
			output: out("duckdb"), verify: verify("duckdb"),
		},
		contender{
			name: "DuckDB, 1 thread", settings: "Python package, types inferred, zstd",
			command: runDuckDB(duckDB(), e, " --threads 1", duck("duckdb1")), output: out("duckdb1"), verify: verify("duckdb1"),
		})...)
	all = append(all, polars().with(e, contender{
		name: "Polars", settings: "scan_csv, sink_parquet, types inferred, times too, zstd",
		command: polars().path(e, "bin/python") + " -c " + quote("import polars; polars.scan_csv("+quoteSQL(e.csv)+
			", try_parse_dates=True).sink_parquet("+quoteSQL(out("polars"))+")"),
		output: out("polars"), verify: verify("polars"),
	})...)
	all = append(all, dlt().with(e, contender{
		name: "dlt", settings: "batches of pyarrow's CSV reader", command: runDLT(e, "csv", e.csv, "parquet", e.dir+"/out.dlt"),
		reset: "rm -rf " + e.dir + "/out.dlt", output: e.dir + "/out.dlt", verify: sameAsCSV(e,
			parquetRelation(e.dir+"/out.dlt/loaded/t/*.parquet")),
	})...)
	return append(all, sling().with(e, contender{
		name: "sling", settings: slingSaid + "; zstd; fractions are decimals with 6 digits",
		command: runSling(e, "--src-stream file://"+e.csv, "--tgt-object file://"+out("sling"), "--tgt-options '{compression: zstd}'"),
		output:  out("sling"), verify: sameAsCSV(e,
			"(select * replace (nullif(note, '') as note) from "+parquetRelation(out("sling"))+")"),
	})...)
}

func peersCSVDuckDB(e jobEnv) []contender {
	out := func(name string) string { return e.dir + "/out." + name + ".duckdb" }
	// The version that leat has inside of it reads files of this one.
	one := duckDBPostgres()
	duck := func(name, flags string) contender {
		return contender{
			settings: "Python package, read_csv, types inferred, a new file", reset: "rm -f " + out(name) + "*", output: out(name),
			command: runDuckDB(one, e, flags, "attach "+quoteSQL(out(name))+" as o",
				"create table o.t as from read_csv("+quoteSQL(e.csv)+")"),
			verify: sameAsCSV(e, "o.t", "attach "+quoteSQL(out(name))+" as o (read_only)"),
		}
	}
	all, single := duck("all", ""), duck("single", " --threads 1")
	all.name, single.name = "DuckDB", "DuckDB, 1 thread"
	cs := one.with(e, all, single)
	cs = append(cs, dlt().with(e, contender{
		name: "dlt", settings: "batches of pyarrow's CSV reader", command: runDLT(e, "csv", e.csv, "duckdb", out("dlt")),
		reset: "rm -f " + out("dlt") + "*", output: out("dlt"),
		verify: sameAsCSV(e, "o.loaded.t", "attach "+quoteSQL(out("dlt"))+" as o (read_only)"),
	})...)
	return append(cs, sling().with(e, contender{
		name: "sling", settings: slingSaid + "; fractions are decimals with 6 digits, by DuckDB's command line", reset: "rm -f " +
			out("sling") + "*",
		command: runSling(e, "--src-stream file://"+e.csv, fmt.Sprintf("--tgt-conn duckdb://%s --tgt-object main.t", out("sling"))),
		output:  out("sling"),
		verify: sameAsCSV(e, "(select * replace (nullif(note, '') as note) from o.main.t)",
			"attach "+quoteSQL(out("sling"))+" as o (read_only)"),
	})...)
}

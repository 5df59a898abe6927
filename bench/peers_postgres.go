package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// attach is SQL of DuckDB's that opens a database of Postgres under a name.
func attach(server, name, more string) string {
	return "attach " + quoteSQL(server) + " as " + name + " (type postgres" + more + ")"
}

// runDuckDBPostgres is a command of DuckDB with its postgres extension.
func runDuckDBPostgres(e jobEnv, statements ...string) string {
	return runDuckDB(duckDBPostgres(), e, " --extension $(find "+duckDBPostgres().path(e,
		"lib")+" -name postgres_scanner.duckdb_extension)",
		statements...)
}

// afresh is the command that makes the target anew.
func afresh(e jobEnv) string { return psql(e.into, strings.Split(e.create, "; ")...) }

// inTable compares a table that a tool made, or filled, with a relation.
func inTable(e jobEnv, want, table string, cols []column) func(context.Context, string) error {
	return func(ctx context.Context, dir string) error {
		got, err := exportTable(ctx, dir, e.into, table, cols)
		return errors.Join(err, sameRelations(ctx, cols, want, got))
	}
}

// likeTable compares a table that a tool made, or filled, with the one that it read.
func likeTable(e jobEnv, source, table string) func(context.Context, string) error {
	return func(ctx context.Context, dir string) error {
		folder, err := os.MkdirTemp(dir, "source-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder) //nolint:errcheck // what is left goes with the job's folder
		want, err := exportTable(ctx, folder, e.postgres, source, wide())
		if err != nil {
			return err
		}
		return inTable(e, want, table, wide())(ctx, dir)
	}
}

const slingInto = "; mode truncate, direct_insert: into the same table as the others"

// slingTable are flags: from, and the table that all fill.
func slingTable(e jobEnv, from ...string) []string {
	return append(from, "--tgt-conn "+quote(e.into), "--tgt-object "+e.target, "--mode truncate", "--tgt-options '{direct_insert: true}'")
}

func peersParquetPostgres(e jobEnv) []contender {
	verify := inTable(e, csvRelation(e.csv, fromCSV()), e.target, fromCSV())
	own := inTable(e, csvRelation(e.csv, fromCSV()), "loaded.t", fromCSV())
	var all []contender
	all = append(all, duckDBPostgres().with(e, contender{
		name: "DuckDB", settings: "Python package with its postgres extension, which writes by binary COPY", reset: afresh(e),
		verify:  verify,
		command: runDuckDBPostgres(e, attach(e.into, "d", ""), "insert into d."+e.target+" from "+parquetRelation(e.parquet)),
	})...)
	all = append(all, duckDB().with(e, contender{
		name: "DuckDB piped into psql", settings: "as CSV", reset: afresh(e), verify: verify,
		command: runDuckDB(duckDB(), e, "", "copy (from "+parquetRelation(e.parquet)+") to '/dev/stdout' (format csv, header false)") +
			" | " +
			psql(e.into, "copy "+e.target+" from stdin (format csv)"),
	})...)
	all = append(all, sling().with(e, contender{
		name: "sling", settings: slingSaid + slingInto, reset: afresh(e), verify: verify,
		command: runSling(e, slingTable(e, "--src-stream file://"+e.parquet)...),
	})...)
	return append(all, dlt().with(e, contender{
		name: "dlt", settings: "batches of pyarrow's Parquet reader, CSV to the server, a table of its own", verify: own,
		reset:   psql(e.into, "drop schema if exists loaded cascade", "drop schema if exists loaded_staging cascade"),
		command: runDLT(e, "parquet", e.parquet, "postgres", quote(e.into)),
	})...)
}

// fewer is how many rows slow tools move: it is said beside them.
func fewer(e jobEnv, part int64) int64 { return max(1, e.rows/part) }

func peersPostgresCopy(e jobEnv) []contender {
	verify := likeTable(e, e.source, e.target)
	all := []contender{{
		name: "pg_dump piped into psql", settings: "data only, as text; the table's name is replaced on the way", reset: afresh(e),
		verify: verify,
		command: "pg_dump --data-only --table " + e.source + " " + quote(e.postgres) + " | LC_ALL=C sed 's/^COPY " +
			strings.ReplaceAll(e.source, ".", `\.`) + " /COPY " + e.target + " /' | " + psql(e.into) + " -o /dev/null",
	}}
	all = append(all, duckDBPostgres().with(e, contender{
		name: "DuckDB", settings: "Python package with its postgres extension: binary COPY both ways", reset: afresh(e), verify: verify,
		command: runDuckDBPostgres(e, attach(e.postgres, "s", ", read_only"), attach(e.into, "d", ""),
			"insert into d."+e.target+" from s."+e.source),
	})...)
	all = append(all, sling().with(e, contender{
		name: "sling", settings: slingSaid + slingInto, reset: afresh(e), verify: verify,
		command: runSling(e, slingTable(e, "--src-conn "+quote(e.postgres), "--src-stream "+e.source)...),
	})...)
	all = append(all, dlt().with(e, contender{
		name: "dlt", settings: "connectorx, batches of Arrow, CSV to the server; a logged table of its own without a key",
		reset:   psql(e.into, "drop schema if exists loaded cascade", "drop schema if exists loaded_staging cascade"),
		command: runDLT(e, "postgres", quote(e.postgres+" "+e.source), "postgres", quote(e.into)), verify: likeTable(e, e.source,
			"loaded.t"),
	})...)
	return append(all, singer(e), contender{name: "ingestr", version: "1.1.76", skip: "its package fetches the program from GitHub " +
		"when it runs first"})
}

// meltano is what Meltano runs: a tap and a target, each in an environment of its own, because they ask for different versions of
// libraries.
func meltano() tool {
	return tool{"meltano", "tap 0.10.0, target 0.8.1", "for p in tap-postgres==0.10.0 target-postgres==0.8.1; do " +
		"python3 -m venv DIR/${p%%-*} && DIR/${p%%-*}/bin/pip install -q meltanolabs-$p || exit 1; done"}
}

// singer moves a part of the rows: the tap and the target hand each other a JSON document for each of them.
func singer(e jobEnv) contender {
	rows := fewer(e, 40)
	config := func(name string, settings map[string]any) string {
		text, err := json.Marshal(settings)
		if err != nil {
			return err.Error()
		}
		return "printf %s " + quote(string(text)) + " > " + e.dir + "/" + name + ".json"
	}
	url := func(server string) string { return strings.Replace(server, "postgres://", "postgresql://", 1) }
	reset := psql(e.postgres, "drop schema if exists singer cascade", "drop schema if exists singer_out cascade", "create schema singer",
		fmt.Sprintf("create table singer.t as select * from %s order by id limit %d", e.source, rows),
		"alter table singer.t add primary key (id)")
	tap := meltano().path(e, "tap/bin/tap-postgres") + " --config " + e.dir + "/tap.json"
	return meltano().with(e, contender{
		name: "Meltano", rows: rows, settings: "tap-postgres piped into target-postgres, use_copy, 10,000 rows a batch; a part of the " +
			"rows, into " +
			"a table of its own, where times have no zone and fractions are numeric",
		reset: strings.Join([]string{
			reset, config("tap", map[string]any{"sqlalchemy_url": url(e.postgres), "filter_schemas": []string{"singer"}}),
			config("target", map[string]any{
				"sqlalchemy_url": url(e.into), "default_target_schema": "singer_out", "use_copy": true, "add_record_metadata": false,
				"activate_version": false, "batch_size_rows": 10_000,
			}),
			tap + " --discover | " + meltano().path(e, "tap/bin/python") + " " + source("select_streams.py") + " > " + e.dir +
				"/catalog.json",
		}, " && "),
		command: tap + " --catalog " + e.dir + "/catalog.json | " + meltano().path(e, "target/bin/target-postgres") + " --config " +
			e.dir +
			"/target.json > /dev/null",
		verify: likeTable(e, "singer.t", "singer_out.t"),
	})[0]
}

func peersPostgresParquet(e jobEnv) []contender {
	out := func(name string) string { return e.dir + "/out." + name + ".parquet" }
	verify := func(name string) func(context.Context, string) error {
		return func(ctx context.Context, dir string) error {
			want, err := exportTable(ctx, dir, e.postgres, e.source, wide())
			return errors.Join(err, sameRelations(ctx, wide(), want, loosely(parquetRelation(out(name)), wide())))
		}
	}
	typed := "read_csv('/dev/stdin', header=false, auto_detect=false, columns={" + duckColumns(wide()) + "})"
	all := duckDBPostgres().with(e, contender{
		name: "DuckDB", settings: "Python package with its postgres extension, which reads by binary COPY over several sessions; zstd",
		command: runDuckDBPostgres(e, attach(e.postgres, "s", ", read_only"), "copy s."+e.source+" to "+quoteSQL(out("duckdb"))+
			" (format parquet, compression zstd)"),
		output: out("duckdb"), verify: verify("duckdb"),
	})
	all = append(all, duckDB().with(e, contender{
		name: "psql piped into DuckDB", settings: "as CSV, types given; zstd", output: out("psql"), verify: verify("psql"),
		command: psql(e.postgres, "copy "+e.source+" to stdout (format csv)") + " | " + runDuckDB(duckDB(), e, "",
			"copy (from "+typed+") to "+quoteSQL(out("psql"))+" (format parquet, compression zstd)"),
	})...)
	return append(all, sling().with(e, contender{
		name: "sling", settings: slingSaid + "; zstd, by DuckDB's command line", output: out("sling"), verify: verify("sling"),
		command: runSling(e, "--src-conn "+quote(e.postgres), "--src-stream "+e.source, "--tgt-object file://"+out("sling"),
			"--tgt-options '{compression: zstd}'"),
	})...)
}

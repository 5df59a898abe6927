package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// copyCommand is leat's command for a copy that begins anew.
func copyCommand(e jobEnv, from, to string, flags ...string) string {
	words := append([]string{e.leat, "copy --restart --quiet --state", e.dir + "/state"}, flags...)
	return strings.Join(append(words, quote(from), quote(to)), " ")
}

// prepareCSV makes the input of jobs that read CSV.
func prepareCSV(_ context.Context, e *jobEnv) (string, error) {
	e.csv = filepath.Join(e.dir, "in.csv")
	size, _, err := writeCSV(e.csv, e.rows, 0)
	return fmt.Sprintf("%s rows, 8 columns, %.0f MB, types inferred", count(e.rows), float64(size)/1e6), err
}

// catCSV is the limit of whoever reads the CSV: every byte is touched and written.
func catCSV(e jobEnv) contender {
	return contender{name: "cat", limit: true, command: "cat " + e.csv + " > " + e.dir + "/out.cat"}
}

func csvJSONL() job {
	return job{
		name: "csv-jsonl", title: "CSV → JSON Lines", rows: 1_000_000, note: "`cat` touches every byte: the limit.",
		prepare: prepareCSV,
		contenders: func(e jobEnv) []contender {
			out := e.dir + "/out.jsonl"
			return []contender{catCSV(e), {
				name: "leat", command: copyCommand(e, e.csv, out), output: out,
				verify: func(ctx context.Context, _ string) error {
					return sameRelations(ctx, fromCSV(), csvRelation(e.csv, fromCSV()), jsonlRelation(out, fromCSV()))
				},
			}}
		},
	}
}

func csvParquet() job {
	return job{
		name: "csv-parquet", title: "CSV → Parquet", rows: 1_000_000, note: "Both compress with their own defaults.", prepare: prepareCSV,
		contenders: func(e jobEnv) []contender {
			out := e.dir + "/out.parquet"
			return []contender{catCSV(e), {
				name: "leat", command: copyCommand(e, e.csv, out), output: out,
				verify: func(ctx context.Context, _ string) error {
					return sameRelations(ctx, fromCSV(), csvRelation(e.csv, fromCSV()), parquetRelation(out))
				},
			}}
		},
	}
}

func csvDuckDB() job {
	return job{
		name: "csv-duckdb", title: "CSV → DuckDB", rows: 1_000_000, note: "Into a new file.", prepare: prepareCSV,
		contenders: func(e jobEnv) []contender {
			out := e.dir + "/out.duckdb"
			return []contender{catCSV(e), {
				name: "leat", reset: "rm -f " + out + "*", command: copyCommand(e, e.csv, out+"?table=t"), output: out,
				verify: func(ctx context.Context, _ string) error {
					return sameRelations(ctx, fromCSV(), csvRelation(e.csv, fromCSV()), "o.t", "attach "+quoteSQL(out)+" as o "+
						"(read_only)")
				},
			}}
		},
	}
}

func parquetPostgres() job {
	return job{
		name: "parquet-postgres", title: "Parquet → Postgres", rows: 1_000_000, servers: true,
		note: "Into an unlogged table without a key. The file was written by DuckDB.",
		prepare: func(ctx context.Context, e *jobEnv) (string, error) {
			if _, err := prepareCSV(ctx, e); err != nil {
				return "", err
			}
			e.parquet = filepath.Join(e.dir, "in.parquet")
			e.target = "public.dst"
			e.create = "drop table if exists public.dst; create unlogged table public.dst (" + definition(fromCSV()) + "); checkpoint"
			err := writeParquet(ctx, csvRelation(e.csv, fromCSV()), e.parquet)
			return count(e.rows) + " rows, 8 columns", err
		},
		contenders: func(e jobEnv) []contender {
			return []contender{
				{
					name: "psql, COPY of the same rows as CSV", limit: true, reset: psql(e.into, e.create),
					command: psql(e.into, "copy public.dst from stdin (format csv, header)") + " < " + e.csv,
				},
				{
					name: "leat", reset: psql(e.into, e.create),
					command: copyCommand(e, e.parquet, withTable(e.into, e.target), "--mode append"),
					verify: func(ctx context.Context, dir string) error {
						got, err := exportTable(ctx, dir, e.into, e.target, fromCSV())
						return errors.Join(err, sameRelations(ctx, fromCSV(), csvRelation(e.csv, fromCSV()), got))
					},
				},
			}
		},
	}
}

// writeParquet makes a Parquet file of a relation of DuckDB's.
func writeParquet(ctx context.Context, relation, path string) (err error) {
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, "copy (from "+relation+") to "+quoteSQL(path)+" (format parquet, compression zstd)")
	return err
}

// bigSize is what a file that does not fit into memory budgets weighs.
const bigSize = 10_000_000_000

// bigCSV is measured once: it is about memory. What comes out is compared with what the generator says, byte for byte.
func bigCSV() job {
	const fullRows = 100_000_000 // more than bigSize holds
	return job{
		name: "csv-10gb", title: "One CSV of 10 GB", rows: fullRows, most: 1, alone: true, note: "Memory must not grow with the file.",
		prepare: func(_ context.Context, e *jobEnv) (string, error) {
			e.csv = filepath.Join(e.dir, "in.csv")
			size, n, err := writeCSV(e.csv, math.MaxInt64, e.rows*(bigSize/fullRows))
			e.rows = n
			return fmt.Sprintf("%.1f GB, %s rows, 8 columns", float64(size)/1e9, count(n)), err
		},
		contenders: func(e jobEnv) []contender {
			command := copyCommand(e, e.csv, "jsonl:-")
			return []contender{{
				name: "leat, to JSON Lines", command: command + " > /dev/null",
				verify: func(ctx context.Context, _ string) error {
					return run(ctx, command+" | cmp - <("+e.self+" rows -format jsonl -rows "+strconv.FormatInt(e.rows, 10)+")")
				},
			}}
		},
	}
}

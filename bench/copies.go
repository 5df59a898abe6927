package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// withTable returns the URL of a table for leat.
func withTable(server, table string) string {
	sign := "?"
	if strings.Contains(server, "?") {
		sign = "&"
	}
	return server + sign + "table=" + table
}

// prepareWide makes the table that is copied, with all that a first reader would have to write done: hint bits, statistics.
func prepareWide(ctx context.Context, e *jobEnv) (string, error) {
	e.source = "public.src"
	err := execute(ctx, e.postgres, "create unlogged table public.src ("+definition(wide())+")",
		"insert into public.src "+values(wide(), 1, e.rows), "alter table public.src add primary key (id)",
		"vacuum (analyze) public.src", "checkpoint")
	return count(e.rows) + " rows, 10 typed columns", err
}

// postgresCopies copy a table within one server: into one that costs the least, and into one as it usually is.
func postgresCopies() []job {
	variant := func(name, title, create string) job {
		return job{
			name: name, title: title, rows: 2_000_000, least: 5, servers: true,
			note: "Reading and writing one server on the same machine.",
			prepare: func(ctx context.Context, e *jobEnv) (string, error) {
				e.target, e.into = "public.dst", e.postgres
				e.create = fmt.Sprintf("drop table if exists public.dst; "+create+"; checkpoint", definition(wide()))
				return prepareWide(ctx, e)
			},
			contenders: func(e jobEnv) []contender {
				verify := func(ctx context.Context, _ string) error {
					return sameTables(ctx, e.postgres, e.source, e.into, e.target)
				}
				reset := psql(e.into, strings.Split(e.create, "; ")...)
				return []contender{
					{
						name: "psql, binary COPY piped", limit: true, reset: reset, verify: verify,
						command: psql(e.postgres, "copy public.src to stdout (format binary)") + " | " + psql(e.into,
							"copy public.dst from stdin (format binary)"),
					},
					{
						name: "INSERT … SELECT inside of the server", limit: true, reset: reset, verify: verify,
						command: psql(e.into, "insert into public.dst select * from public.src"),
					},
					{
						name: "leat", reset: reset, verify: verify,
						command: copyCommand(e, withTable(e.postgres, e.source), withTable(e.into, e.target), "--mode append"),
					},
				}
			},
		}
	}
	return []job{
		variant("pg-pg-unlogged", "Postgres → Postgres, an unlogged table without a key", "create unlogged table public.dst (%s)"),
		variant("pg-pg-logged", "Postgres → Postgres, a logged table with a primary key", "create table public.dst (%s, primary key "+
			"(id))"),
	}
}

func postgresParquet() job {
	return job{
		name: "pg-parquet", title: "Postgres → Parquet", rows: 2_000_000, servers: true, note: "Compressed with zstd.",
		prepare: prepareWide,
		contenders: func(e jobEnv) []contender {
			out := e.dir + "/out.parquet"
			return []contender{
				{
					name: "psql, binary COPY to /dev/null", limit: true,
					command: psql(e.postgres, "copy public.src to stdout (format binary)") + " > /dev/null",
				},
				{
					name: "leat", command: copyCommand(e, withTable(e.postgres, e.source), out, "--sink-opt compression=zstd"),
					output: out,
					verify: func(ctx context.Context, dir string) error {
						want, err := exportTable(ctx, dir, e.postgres, e.source, wide())
						return errors.Join(err, sameRelations(ctx, wide(), want, parquetRelation(out)))
					},
				},
			}
		},
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Names of what grows.
const (
	growCSV      = "leat, CSV → Parquet"
	growPostgres = "leat, Postgres → Postgres"
)

// growthJob copies ever more rows, which are made while they are read.
func growthJob(most int64) job {
	return job{
		name: "growth", title: "Growth", rows: 100_000_000, largest: most, servers: true, most: 3, alone: true,
		note: "The rows are made while they are read: by a program that writes CSV to a pipe, and by a view over generate_series. " +
			"What makes them is in the wall time.",
		prepare: func(_ context.Context, e *jobEnv) (string, error) {
			return "from 1,000 rows to " + count(e.rows), nil
		},
		contenders: func(e jobEnv) []contender {
			var cs []contender
			for n := int64(1000); n <= e.rows; n *= 10 {
				cs = append(cs, growingCSV(e, n), growingPostgres(e, n))
			}
			return cs
		},
	}
}

func growingCSV(e jobEnv, n int64) contender {
	out := filepath.Join(e.dir, "out.parquet")
	return contender{
		name: growCSV + ", " + count(n) + " rows", rows: n, output: out, reset: "rm -f " + out,
		// bash becomes leat, which does not wait for the program that makes rows: its CPU time is not counted.
		command: fmt.Sprintf("exec %s < <(%s rows -rows %d)", copyCommand(e, "csv:-", out), e.self, n),
		verify: func(ctx context.Context, dir string) (err error) {
			made := filepath.Join(dir, "made.csv")
			defer func() { err = errors.Join(err, os.Remove(made)) }()
			if n <= exceptRows {
				_, _, err = writeCSV(made, n, 0)
				return errors.Join(err, sameRelations(ctx, fromCSV(), csvRelation(made, fromCSV()), parquetRelation(out)))
			}
			if err := syscall.Mkfifo(made, 0o600); err != nil { // read once, and too large for the disk
				return err
			}
			written := make(chan error, 1)
			go func() {
				_, _, err := writeCSV(made, n, 0)
				written <- err
			}()
			return errors.Join(sameRelations(ctx, fromCSV(), csvRelation(made, fromCSV()), parquetRelation(out)), <-written)
		},
	}
}

func growingPostgres(e jobEnv, n int64) contender {
	view := fmt.Sprintf("public.rows_%d", n)
	return contender{
		name: growPostgres + ", " + count(n) + " rows", rows: n, settings: "into an unlogged table without a key",
		reset: psql(e.postgres, "create or replace view "+view+" as "+values(narrow(), 1, n), "drop table if exists public.dst",
			"create unlogged table public.dst ("+definition(narrow())+")", "checkpoint"),
		command: copyCommand(e, withTable(e.postgres, view), withTable(e.postgres, "public.dst"), "--mode append"),
		verify: func(ctx context.Context, _ string) error {
			return sameTables(ctx, e.postgres, view, e.postgres, "public.dst")
		},
	}
}

// growthOf picks the sizes of one of the things that grow, in order, with its median runs.
func growthOf(r result, what string) (rows []int64, wall, rss []float64) {
	for _, e := range r.Entries {
		if !strings.HasPrefix(e.Name, what+",") || len(e.Runs) == 0 {
			continue
		}
		rows = append(rows, e.Rows)
		wall = append(wall, median(each(e.Runs, func(m measured) float64 { return m.Wall })))
		rss = append(rss, float64(median(each(e.Runs, func(m measured) int64 { return m.RSS }))))
	}
	return rows, wall, rss
}

// growthPlots draws time and memory against the number of rows.
func growthPlots(r result) map[string]string {
	var times, memory []curve
	for _, what := range []string{growCSV, growPostgres} {
		rows, wall, rss := growthOf(r, what)
		name := strings.TrimPrefix(what, "leat, ")
		t, m := curve{name: name}, curve{name: name}
		for i, n := range rows {
			t.points = append(t.points, point{float64(n), wall[i]})
			m.points = append(m.points, point{float64(n), rss[i] / 1e6})
		}
		times, memory = append(times, t), append(memory, m)
	}
	return map[string]string{
		"growth-time.svg":   plot{title: "Time against rows", x: "rows", y: "seconds", logX: true, logY: true, curves: times}.svg(),
		"growth-memory.svg": plot{title: "Peak memory against rows", x: "rows", y: "MB", logX: true, curves: memory}.svg(),
	}
}

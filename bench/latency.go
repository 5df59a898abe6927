package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// commitsPerSecond is the rate at which the writer commits.
const commitsPerSecond = 1000

// latencyJob commits single rows at a fixed rate while a contender follows, and looks at the target once a millisecond. A contender's
// command follows followed into its sink until it gets SIGTERM.
func latencyJob() job {
	return job{
		name: "latency", title: "Latency, commit → visible in a Postgres sink", rows: 60_000, most: 3, servers: true,
		note: "A writer commits 1,000 rows a second, one by one, with synchronous_commit on. A reader looks " +
			"at the target every millisecond: a row is visible when it is found. " +
			"Counted is the time from the moment at which the commit returned.",
		prepare: func(_ context.Context, e *jobEnv) (string, error) {
			e.source, e.target = followed, followed
			return count(e.rows) + " commits", nil
		},
		contenders: func(e jobEnv) []contender {
			p := pipeline{e, "latency", []string{
				"source: {postgres: {url: '" + e.postgres + "', tables: [" + followed + "], follow: true, slot: bench_latency}}",
				"sinks:", "  kept: {postgres: {url: '" + e.into + "'}}",
			}}
			c := contender{
				name: "leat", reset: p.write() + " && rm -rf " + p.state(), command: "exec " + p.run() + " --restart",
				verify: func(ctx context.Context, _ string) error {
					return sameTables(ctx, e.postgres, followed, e.into, followed)
				},
			}
			return []contender{c}
		},
		measure: measureLatency,
	}
}

func measureLatency(ctx context.Context, e jobEnv, c contender) (m measured, err error) {
	dropped := "drop table if exists " + followed
	err = execute(ctx, e.postgres, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = "+
		"current_database()",
		dropped, "create table "+followed+" ("+definition(narrow())+", primary key (id))",
		"insert into "+followed+" "+values(narrow(), 0, 0))
	if err = errors.Join(err, execute(ctx, e.into, dropped), resetFor(ctx, c)); err != nil {
		return m, err
	}
	r := metered(ctx, e, c.command)
	if err := r.cmd.Start(); err != nil {
		return m, err
	}
	ended := make(chan error, 1)
	lives, stop := context.WithCancel(ctx)
	go func() {
		ended <- r.cmd.Wait()
		stop()
	}()
	taken, err := commitAndLook(lives, e)
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	if werr := <-ended; werr != nil {
		err = errors.Join(err, werr)
	}
	if err != nil {
		return m, fmt.Errorf("%w\n%s", err, r.said)
	}
	if m, err = r.usage(); err != nil {
		return m, err
	}
	slices.Sort(taken)
	at := func(p float64) float64 { return taken[min(len(taken)-1, int(p*float64(len(taken))))].Seconds() * 1e3 }
	m.Extra = map[string]float64{"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)}
	return m, nil
}

// commitAndLook waits until the first row is at the target, commits the others at their times, and returns how long each took to be
// visible.
func commitAndLook(ctx context.Context, e jobEnv) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+10*time.Duration(e.rows)*time.Second/commitsPerSecond)
	defer cancel()
	seen := make([]time.Time, e.rows+1)
	first := make(chan struct{})
	var looked error
	var work sync.WaitGroup
	work.Go(func() {
		if looked = look(ctx, e, seen, first); looked != nil {
			cancel()
		}
	})
	select {
	case <-first:
	case <-ctx.Done():
	}
	committed, err := commit(ctx, e)
	if err != nil {
		cancel()
	}
	work.Wait()
	if err = errors.Join(looked, err); err != nil {
		return nil, err
	}
	taken := make([]time.Duration, e.rows)
	for i := range taken {
		taken[i] = max(0, seen[i+1].Sub(committed[i+1]))
	}
	return taken, nil
}

// commit inserts row after row, each when its time has come, and returns when each commit had returned.
func commit(ctx context.Context, e jobEnv) ([]time.Time, error) {
	conn, err := connect(ctx, e.postgres)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // all was said
	// A commit that does not wait for the log is seen by nobody who follows the log before that is written, up to 200 ms later.
	if _, err := conn.Exec(ctx, "set synchronous_commit = on"); err != nil {
		return nil, err
	}
	committed := make([]time.Time, e.rows+1)
	insert := "insert into " + followed + " values ($1, 1, 0.5, 2.25, 'name', now())"
	start := time.Now()
	for i := int64(1); i <= e.rows; i++ {
		if err := until(ctx, start.Add(time.Duration(i)*time.Second/commitsPerSecond)); err != nil {
			return nil, err
		}
		if _, err := conn.Exec(ctx, insert, i); err != nil {
			return nil, err
		}
		committed[i] = time.Now()
	}
	return committed, nil
}

// look notes when each row is seen at the target for the first time, until all are.
func look(ctx context.Context, e jobEnv, seen []time.Time, first chan<- struct{}) error {
	conn, err := connect(ctx, e.into)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // all was read
	exists := false
	for !exists {
		if err := conn.QueryRow(ctx, "select to_regclass($1) is not null", followed).Scan(&exists); err != nil {
			return err
		}
		if err := until(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			return err
		}
	}
	last := int64(-1)
	for int(last) < len(seen)-1 {
		rows, err := conn.Query(ctx, "select id from "+followed+" where id > $1 order by id", last)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		now := time.Now()
		for _, id := range ids {
			seen[id], last = now, id
		}
		if len(ids) > 0 && first != nil {
			close(first)
			first = nil
		}
		if err := until(ctx, now.Add(time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// until waits for a time.
func until(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// startRounds are many, as each takes next to no time.
const startRounds = 15

// startJob measures how long it takes from the start of the process to the first byte of the first row on standard output.
func startJob() job {
	return job{
		name: "start", title: "Start to first row", rows: 200_000, least: startRounds, servers: true,
		note: "From the start of the process to the first byte on standard output; then it is stopped. Medians over many starts.",
		prepare: func(ctx context.Context, e *jobEnv) (string, error) {
			if _, err := prepareCSV(ctx, e); err != nil {
				return "", err
			}
			if _, _, err := writeCSV(filepath.Join(e.dir, "small.csv"), 100, 0); err != nil {
				return "", err
			}
			return prepareWide(ctx, e)
		},
		contenders: func(e jobEnv) []contender {
			first := func(name, from string, rows int64, want func(ctx context.Context) (relation string, cols []column,
				err error),
			) contender {
				command, out := copyCommand(e, from, "jsonl:-"), filepath.Join(e.dir, "whole.jsonl")
				return contender{
					name: name, command: "exec " + command, rows: rows,
					verify: func(ctx context.Context, _ string) error { // what was stopped, run to its end
						relation, cols, err := want(ctx)
						if err = errors.Join(err, run(ctx, command+" > "+out)); err != nil {
							return err
						}
						return sameRelations(ctx, cols, relation, jsonlRelation(out, cols))
					},
				}
			}
			of := func(path string) func(context.Context) (string, []column, error) {
				return func(context.Context) (string, []column, error) { return csvRelation(path, fromCSV()), fromCSV(), nil }
			}
			small := filepath.Join(e.dir, "small.csv")
			return []contender{
				{name: "cat", limit: true, command: "exec cat " + e.csv},
				{name: "psql, COPY", limit: true, command: "exec " + psql(e.postgres, "copy public.src to stdout")},
				first("leat, a CSV of 100 rows → JSON Lines", small, 100, of(small)),
				first("leat, a long CSV → JSON Lines", e.csv, 0, of(e.csv)),
				first("leat, Postgres → JSON Lines", withTable(e.postgres, e.source), 0, func(ctx context.Context) (string, []column,
					error,
				) {
					// Documents are embedded in the line, where their white space can't be told.
					cols := slices.DeleteFunc(wide(), func(c column) bool { return c.name == "doc" })
					relation, err := exportTable(ctx, e.dir, e.postgres, e.source, cols)
					return relation, cols, err
				}),
			}
		},
		measure: measureFirstByte,
	}
}

func measureFirstByte(ctx context.Context, e jobEnv, c contender) (measured, error) {
	r := metered(ctx, e, c.command)
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return measured{}, err
	}
	start := time.Now()
	if err := r.cmd.Start(); err != nil {
		return measured{}, err
	}
	_, rerr := out.Read(make([]byte, 1))
	first := time.Since(start)
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	_ = out.Close()      // what waits for a full pipe would not hear the signal
	werr := r.cmd.Wait() // how it ends does not matter
	if rerr != nil {
		return measured{}, fmt.Errorf("%w, %w\n%s", rerr, werr, r.said)
	}
	m, err := r.usage()
	if err != nil {
		return m, err
	}
	m.Wall = first.Seconds()
	m.Extra = map[string]float64{"first_ms": first.Seconds() * 1e3}
	return m, nil
}

// titleOf makes the name of a figure of its key: p50_ms is "p50 ms".
func titleOf(key string) string { return strings.ReplaceAll(key, "_", " ") }

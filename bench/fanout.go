package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fanoutRounds are enough for a difference of a few percent to show.
const fanoutRounds = 7

const fanoutNote = "What one more sink costs the others: it takes every row and keeps none."

// fanoutCopy copies a file into one sink, and into the same one and a second one that costs nothing itself.
func fanoutCopy(leat, format string) job {
	const rows = 2_000_000
	return job{
		name: "fanout-" + format, title: "Fan-out of a copy: CSV → " + format, note: fanoutNote, least: fanoutRounds,
		prepare: func(_ context.Context, dir string) (prepared, error) {
			size, n, err := writeCSV(filepath.Join(dir, "in.csv"), rows, 0)
			for _, more := range []string{"", discardSink} {
				err = errors.Join(err, writePipeline(dir, more,
					"source: "+dir+"/in.csv", "sinks:", "  kept: "+dir+"/"+pipelineName(more)+"."+format))
			}
			return prepared{fmt.Sprintf("2 million rows, 8 columns, %.0f MB, types inferred", float64(size)/1e6), n}, err
		},
		contenders: func(dir string) []contender {
			command := func(more string) string { return runPipeline(leat, dir, more) + " --restart" }
			return []contender{
				{name: "one sink", command: command("")},
				{name: "the same and discard", command: command(discardSink)},
			}
		},
	}
}

const (
	discardSink = "  nothing: {discard: }"
	memoryLanes = "lanes: memory"
)

// pipelineFile is the name of a pipeline that differs from others by the line more.
func pipelineFile(dir, more string) string { return filepath.Join(dir, pipelineName(more)+".yaml") }

func pipelineName(more string) string {
	switch more {
	case "":
		return "bench-one"
	case memoryLanes:
		return "bench-memory"
	}
	return "bench-two"
}

// writePipeline writes a pipeline file; more is one line besides those that it has anyway.
func writePipeline(dir, more string, lines ...string) error {
	lines = append([]string{"name: " + pipelineName(more)}, append(lines, more)...)
	return os.WriteFile(pipelineFile(dir, more), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func runPipeline(leat, dir, more string) string {
	return leat + " run " + pipelineFile(dir, more) + " --state " + dir + "/state"
}

// fanoutFollow follows changes that wait in a replication slot, to their end.
func fanoutFollow(leat string) job {
	const changes = 600_000
	url := os.Getenv("LEAT_TEST_POSTGRES")
	psql := "psql -qXAt '" + url + "' -v ON_ERROR_STOP=1"
	return job{
		name: "fanout-follow", title: "Fan-out of changes: Postgres → a log of JSON Lines", least: fanoutRounds,
		note: fanoutNote + " The changes wait when a run begins. Durable lanes are on a disk, which makes wall times spread by more than " +
			"the sinks differ: CPU time tells more. Lanes in memory are beside them to compare.",
		prepare: func(ctx context.Context, dir string) (prepared, error) {
			if url == "" {
				return prepared{}, errors.New("LEAT_TEST_POSTGRES is not set: dev/services run -- make bench-jobs")
			}
			sql := "drop table if exists public.bench_changes; " +
				"create table public.bench_changes (id bigint primary key, n int, name text, at timestamptz)"
			if out, err := exec.CommandContext(ctx, "bash", "-c", psql+" -c \""+sql+"\"").CombinedOutput(); err != nil {
				return prepared{}, fmt.Errorf("%w: %s", err, out)
			}
			var err error
			for _, more := range []string{"", discardSink, memoryLanes} {
				lines := []string{
					"source: {postgres: {url: '" + url + "', tables: [public.bench_changes], follow: true}}",
					"sinks:", "  kept: {file: {path: '" + dir + "/" + pipelineName(more) + "/', format: jsonl, log: true}}",
				}
				if more != memoryLanes {
					lines = append([]string{"lanes: {kind: durable}"}, lines...)
				}
				err = errors.Join(err, writePipeline(dir, more, lines...))
			}
			return prepared{"600,000 changes of one table in 600 transactions", changes}, err
		},
		contenders: func(dir string) []contender {
			const changing = "do \\$\\$ begin for t in 0..399 loop " +
				"insert into public.bench_changes select i, 0, 'name ' || md5(i::text), now() " +
				"from generate_series(t * 1000, t * 1000 + 999) i; commit; " +
				"if t % 2 = 0 then update public.bench_changes set n = n + 1 " +
				"where id between t * 1000 and t * 1000 + 999; commit; end if; " +
				"end loop; end \\$\\$"
			// A table that is empty is copied, so that the slot is there; then the changes are made.
			reset := func(more string) string {
				return strings.Join([]string{
					leat + " drop " + pipelineFile(dir, more) + " --state " + dir + "/state --yes",
					"rm -rf " + dir + "/" + pipelineName(more), psql + " -c 'truncate public.bench_changes'",
					runPipeline(leat, dir, more) + " --once --restart",
					psql + ` -c "` + changing + `"`,
				}, " && ")
			}
			var cs []contender
			for _, c := range []struct{ name, more string }{
				{"one sink, durable lanes", ""}, {"the same and discard", discardSink}, {"one sink, lanes in memory", memoryLanes},
			} {
				cs = append(cs, contender{name: c.name, reset: reset(c.more), command: runPipeline(leat, dir, c.more) + " --once"})
			}
			return cs
		},
		clean: func(ctx context.Context, dir string) error {
			commands := []string{psql + " -c 'drop table if exists public.bench_changes'"}
			for _, more := range []string{"", discardSink, memoryLanes} {
				commands = append(commands, leat+" drop "+pipelineFile(dir, more)+" --state "+dir+"/state --yes")
			}
			out, err := exec.CommandContext(ctx, "bash", "-c", strings.Join(commands, "; ")).CombinedOutput()
			if err != nil {
				return fmt.Errorf("cleaning up: %w: %s", err, out)
			}
			return nil
		},
	}
}

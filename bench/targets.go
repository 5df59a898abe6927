package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// target is one figure that leat has to reach.
type target struct {
	workload, text string
	jobs           []string // whose results it needs; nil: all
	form           string   // of the measured figure
	// figure works it out; false: what it needs was not measured. nil: there is no job for it yet.
	figure      func(map[string]result) (float64, bool)
	least, most float64 // 0: no bound
}

// whole says whether the results are of the size that the target means, and leat's outputs were compared.
func (t target) whole(all map[string]result) (why string) {
	names := t.jobs
	if names == nil { // it is about all jobs
		names = slices.Sorted(maps.Keys(all))
	}
	for _, name := range names {
		r, ok := all[name]
		if !ok {
			return "not measured"
		}
		if r.Scale < 1 {
			return fmt.Sprintf("at %g of the size", r.Scale)
		}
		for _, e := range r.Entries {
			if len(e.Runs) > 0 && !e.Verified && isLeat(e) {
				return "not compared"
			}
		}
	}
	return ""
}

// said returns the measured figure and whether it is met, in words.
func (t target) said(all map[string]result) (figure, verdict string) {
	if t.figure == nil {
		return "–", "no job yet"
	}
	v, ok := t.figure(all)
	if !ok {
		return "–", "not measured"
	}
	figure = fmt.Sprintf(t.form, v)
	if why := t.whole(all); why != "" {
		return figure, why
	}
	if (t.least > 0 && v < t.least) || (t.most > 0 && v > t.most) {
		return figure, "**not met**"
	}
	return figure, "met"
}

// of makes a figure of one of a job's entries.
func of(job, who string, f func(entry) float64) func(map[string]result) (float64, bool) {
	return func(all map[string]result) (float64, bool) {
		e, ok := all[job].find(who)
		if !ok {
			return 0, false
		}
		return f(e), true
	}
}

// times makes the ratio of two entries' times: how many times as long a takes as b.
func times(job, a, b string) func(map[string]result) (float64, bool) {
	return func(all map[string]result) (float64, bool) {
		x, ok := all[job].find(a)
		y, ok2 := all[job].find(b)
		if !ok || !ok2 {
			return 0, false
		}
		return timeRatio(x, y), true
	}
}

// Makers of targets. who is the beginning of an entry's name.

func faster(workload, job, who, than string, least float64) target {
	return target{
		workload: workload, text: fmt.Sprintf("≥ %g × %s", least, than), jobs: []string{job}, form: "%.2f ×",
		figure: times(job, than, who), least: least,
	}
}

func cpuPerRow(workload, job, who, text string, most float64) target {
	return target{workload: workload, text: text, jobs: []string{job}, form: "%.2f µs", figure: of(job, who, entry.perRow), most: most}
}

func changesPerSecond(workload, job string, least float64) target {
	return target{
		workload: workload, text: fmt.Sprintf("≥ %.0fk changes/s", least/1e3), jobs: []string{job}, form: "%.0fk/s",
		figure: of(job, "leat", func(e entry) float64 { return e.rate() / 1e3 }), least: least / 1e3,
	}
}

func memoryBelow(workload, job string, most float64) target {
	return target{
		workload: workload, text: fmt.Sprintf("< %.0f MB", most), jobs: []string{job}, form: "%.0f MB",
		figure: of(job, "leat", func(e entry) float64 { return float64(e.rss()) / 1e6 }), most: most,
	}
}

// extraOf makes a figure of what only one job measures.
func extraOf(job, key string) func(map[string]result) (float64, bool) {
	return of(job, "leat", func(e entry) float64 { return e.extra(key) })
}

// targets are those of the design, in its order.
func targets() []target {
	const (
		jsonl, wide, stream = "CSV → JSON Lines, types inferred", "Postgres → Postgres, typed", "change stream → discard"
		parquet, ten        = "Postgres → Parquet (zstd)", "a transaction of 10 million rows"

		latency = "latency commit → visible in a Postgres sink, 1,000 commits/s"
	)
	all := []target{
		cpuPerRow(jsonl, "csv-jsonl", "leat", "≤ 0.7 µs of CPU per row", 0.7),
		{
			workload: jsonl, text: "≤ 6 × `cat`", jobs: []string{"csv-jsonl"}, form: "%.1f ×", figure: times("csv-jsonl", "leat", "cat"),
			most: 6,
		},
		faster(jsonl, "csv-jsonl", "leat", "DuckDB", 1.7), faster(jsonl, "csv-jsonl", "leat", "Python", 8),
		faster(jsonl, "csv-jsonl", "leat", "sling", 15),
		faster(jsonl, "csv-jsonl", "leat", "Redpanda Connect, row by row", 20), // as it comes, and as the target was set
		memoryBelow(jsonl, "csv-jsonl", 64),
		faster("CSV → Parquet", "csv-parquet", "leat", "DuckDB", 1), faster("CSV → DuckDB", "csv-duckdb", "leat", "DuckDB", 1),
		faster("Parquet → Postgres", "parquet-postgres", "leat", "DuckDB", 1),
		faster(wide+", unlogged", "pg-pg-unlogged", "leat", "psql", 0.97), faster(wide+", logged, with a key", "pg-pg-logged", "leat",
			"psql", 0.97),
		cpuPerRow(wide, "pg-pg-unlogged", "leat", "≤ 0.5 µs of client CPU per row", 0.5),
		{
			workload: parquet, text: "≤ 1.15 × COPY to /dev/null", jobs: []string{"pg-parquet"}, form: "%.2f ×",
			figure: times("pg-parquet", "leat", "psql, binary"), most: 1.15,
		},
		faster(parquet, "pg-parquet", "leat", "psql piped into DuckDB", 2),
		{
			workload: parquet, text: "file no larger than DuckDB's", jobs: []string{"pg-parquet"}, form: "%.2f ×",
			figure: outputRatio("pg-parquet", "leat", "psql piped into DuckDB"), most: 1,
		},
		memoryBelow(parquet, "pg-parquet", 256),
	}
	all = append(all, streamTargets(stream)...)
	return append(all,
		target{
			workload: latency, text: "p50 < 5 ms", jobs: []string{"latency"}, form: "%.1f ms",
			figure: extraOf("latency", "p50_ms"), most: 5,
		},
		target{
			workload: latency, text: "p99 < 20 ms", jobs: []string{"latency"}, form: "%.1f ms",
			figure: extraOf("latency", "p99_ms"), most: 20,
		},
		memoryBelow(ten, "stream-transaction", 512),
		target{
			workload: ten, text: "no stall of feedback: < 15 s", jobs: []string{"stream-transaction"}, form: "%.1f s",
			figure: extraOf("stream-transaction", "feedback_gap"), most: 15,
		},
		firstRow("leat, a CSV of 100 rows"), firstRow("leat, a long CSV"), firstRow("leat, Postgres"),
		furtherSink("fanout-jsonl", "leat, one sink"), furtherSink("fanout-parquet", "leat, one sink"),
		furtherSink("fanout-follow", "leat, one sink, durable"),
		target{
			workload: "memory of anything streaming", text: "< 256 MB whatever the volume", form: "%.0f MB", figure: mostMemory,
			most: 256,
		},
		target{
			workload: "growth", text: "time linear: µs per row at most 1.2 × those of a tenth of the rows",
			jobs: []string{"growth"}, form: "%.2f ×", figure: timeGrowth, most: 1.2,
		},
		target{
			workload: "growth", text: "memory flat: at most 1.2 × that of a tenth of the rows", jobs: []string{"growth"},
			form: "%.2f ×", figure: memoryGrowth, most: 1.2,
		},
		target{
			workload: "8 hours at 1,000 commits/s", text: "no growth of memory, threads, files, state", jobs: []string{"soak"},
			form:   "%.2f ×",
			figure: of("soak", "leat", func(e entry) float64 { return soakGrowth(e.Runs[0].Series) }), most: 1.1,
		},
	)
}

func streamTargets(stream string) []target {
	return []target{
		faster(stream+", unix socket", "stream-discard", "leat, unix socket", "pg_recvlogical, unix socket", 0.97),
		faster(stream+", TCP", "stream-discard", "leat, TCP", "pg_recvlogical, TCP", 1.5),
		cpuPerRow(stream+", TCP", "stream-discard", "leat, TCP", "≤ 0.8 µs of client CPU per change", 0.8),
		{
			workload: stream, text: "the server's sender busy ≥ 90 % of a core", jobs: []string{"stream-discard"}, form: "%.0f %%",
			least:  90,
			figure: of("stream-discard", "leat, unix socket", func(e entry) float64 { return 100 * e.extra("sender_cpu") / e.wall() }),
		},
		changesPerSecond("change stream → Postgres, random keys", "stream-postgres-random", 100_000),
		changesPerSecond("change stream → Postgres, in key order", "stream-postgres-ordered", 180_000),
		faster("change stream → Postgres", "stream-postgres-random", "leat", "Debezium", 5),
		changesPerSecond("change stream → SQLite", "stream-sqlite", 120_000),
		changesPerSecond("change stream → DuckDB", "stream-duckdb", 200_000),
		changesPerSecond("change stream → Parquet log", "stream-parquet", 250_000),
		changesPerSecond("change stream → Kafka", "stream-kafka", 200_000),
		{
			workload: "durable lanes", text: "≥ 150 MB/s synced", jobs: []string{"lanes-synced"}, form: "%.0f MB/s", least: 150,
			figure: of("lanes-synced", "leat", func(e entry) float64 { return e.extra("mb_per_second") }),
		},
		faster("durable lanes, change stream", "stream-lanes", "leat, durable lanes", "leat, lanes in memory", 0.9),
	}
}

func firstRow(who string) target {
	return target{
		workload: "start to first row", text: "< 50 ms: " + who[len("leat, "):], jobs: []string{"start"}, form: "%.0f ms",
		figure: of("start", who, func(e entry) float64 { return e.extra("first_ms") }), most: 50,
	}
}

func furtherSink(job, one string) target {
	return target{
		workload: "each further sink that discards", text: "< 10 % of throughput: " + job, jobs: []string{job}, form: "%.0f %%",
		figure: func(all map[string]result) (float64, bool) {
			ratio, ok := times(job, "leat, the same and discard", one)(all)
			return max(0, 100*(1-1/ratio)), ok
		}, most: 10,
	}
}

func outputRatio(job, a, b string) func(map[string]result) (float64, bool) {
	return func(all map[string]result) (float64, bool) {
		x, ok := all[job].find(a)
		y, ok2 := all[job].find(b)
		if !ok || !ok2 || y.output() == 0 {
			return 0, false
		}
		return float64(x.output()) / float64(y.output()), true
	}
}

// mostMemory is the largest resident set that leat had in any job, but the one with a target of its own, and the one that drives lanes from
// within the benchmark's process.
func mostMemory(all map[string]result) (float64, bool) {
	most := int64(0)
	for name, r := range all {
		if name == "stream-transaction" || name == "lanes-synced" {
			continue
		}
		for _, e := range r.Entries {
			if isLeat(e) && len(e.Runs) > 0 {
				most = max(most, e.rss())
			}
		}
	}
	return float64(most) / 1e6, most > 0
}

// timeGrowth compares the time of a row at the largest size with that at a tenth of it: the worst of all that grows.
func timeGrowth(all map[string]result) (float64, bool) {
	return worstGrowth(all, func(rows int64, wall, _ float64) float64 { return wall / float64(rows) })
}

func memoryGrowth(all map[string]result) (float64, bool) {
	return worstGrowth(all, func(_ int64, _, rss float64) float64 { return rss })
}

func worstGrowth(all map[string]result, figure func(rows int64, wall, rss float64) float64) (float64, bool) {
	var ratios []float64
	for _, what := range []string{growCSV, growPostgres} {
		rows, wall, rss := growthOf(all["growth"], what)
		n := len(rows) - 1
		if n < 1 {
			return 0, false
		}
		ratios = append(ratios, figure(rows[n], wall[n], rss[n])/cmp.Or(figure(rows[n-1], wall[n-1], rss[n-1]), 1))
	}
	return slices.Max(ratios), true
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

func jobs(leat string) []job {
	return []job{
		csvJSONL(leat), bigCSV(leat), postgresCopy(leat), fanoutCopy(leat, "jsonl"), fanoutCopy(leat, "parquet"), fanoutFollow(leat),
	}
}

func csvJSONL(leat string) job {
	const rows = 1_000_000
	return job{
		name: "csv-jsonl", title: "CSV → JSON Lines",
		note: "`cat` touches every byte: the limit.",
		prepare: func(_ context.Context, dir string) (prepared, error) {
			size, n, err := writeCSV(filepath.Join(dir, "in.csv"), rows, 0)
			return prepared{fmt.Sprintf("1 million rows, 8 columns, %.0f MB, types inferred", float64(size)/1e6), n}, err
		},
		contenders: func(dir string) []contender {
			return []contender{
				{name: "cat", command: "cat " + dir + "/in.csv > " + dir + "/out.cat"},
				{name: "leat", command: leat + " copy --restart --state " + dir + "/state " + dir + "/in.csv " + dir + "/out.jsonl"},
			}
		},
	}
}

// bigSize is what a file that does not fit into memory budgets weighs.
const bigSize = 10_000_000_000

func bigCSV(leat string) job {
	j := job{
		name: "csv-10gb", title: "One CSV of 10 GB",
		note: "Memory must not grow with the file.", most: 1,
		contenders: func(dir string) []contender {
			return []contender{{name: "leat, to JSON Lines", command: leat + " copy --restart --state " + dir + "/state " +
				dir + "/in.csv jsonl:- > /dev/null"}}
		},
	}
	j.prepare = func(_ context.Context, dir string) (prepared, error) {
		size, n, err := writeCSV(filepath.Join(dir, "in.csv"), math.MaxInt64, bigSize)
		return prepared{fmt.Sprintf("%.1f GB, %.1f million rows, 8 columns", float64(size)/1e9, float64(n)/1e6), n}, err
	}
	return j
}

// writeCSV writes rows of believable data, always the same, and stops early at the size limit if there is one.
func writeCSV(path string, rows, limit int64) (size, n int64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	line := append(make([]byte, 0, 256), "id,qty,price,amount,name,active,created,note\n"...)
	for i := int64(0); ; i++ {
		if _, err := w.Write(line); err != nil {
			return 0, 0, err
		}
		if size += int64(len(line)); i == rows || (limit > 0 && size >= limit) {
			return size, i, w.Flush()
		}
		line = appendLine(line[:0], i, rnd)
	}
}

func appendLine(line []byte, i int64, rnd *rand.Rand) []byte {
	line = strconv.AppendInt(line, i, 10)
	line = append(line, ',')
	line = strconv.AppendInt(line, rnd.Int64N(1000), 10)
	line = append(line, ',')
	line = strconv.AppendFloat(line, float64(rnd.Int64N(1_000_000))/1000, 'f', -1, 64)
	line = fmt.Appendf(line, ",%d.%02d,customer name number %d,%t,2026-01-%02dT%02d:%02d:%02d,", rnd.Int64N(100_000),
		rnd.Int64N(100), rnd.Int64N(1_000_000),
		rnd.IntN(2) == 0, 1+rnd.IntN(28), rnd.IntN(24), rnd.IntN(60), rnd.IntN(60))
	if rnd.IntN(10) == 0 {
		return append(line, '\n')
	}
	return fmt.Appendf(line, "\"note, with a comma %x\"\n", rnd.Uint64())
}

func postgresCopy(leat string) job {
	const rows = 2_000_000
	url := os.Getenv("LEAT_TEST_POSTGRES")
	psql := "psql -qXAt '" + url + "'"
	create := "(id bigint, qty int, price float8, amt numeric(12,2), name text, code text, ok boolean, ts timestamptz, doc jsonb, uid uuid)"
	return job{
		name: "pg-pg", title: "Postgres → Postgres",
		note: "Reading and writing one server on the same machine, into a logged table without a key.",
		prepare: func(ctx context.Context, _ string) (prepared, error) {
			if url == "" {
				return prepared{}, errors.New("LEAT_TEST_POSTGRES is not set: dev/services run -- make bench-jobs")
			}
			sql := "drop table if exists public.bench_src, public.bench_dst; create unlogged table public.bench_src " + create +
				"; insert into public.bench_src select i, i % 1000, i * 0.37, " +
				"i * 0.31, 'customer name number ' || i, 'C' || i % 5000, i % 3 = 0, timestamptz '2026-01-01Z' + i * " +
				"interval '1 second', " +
				"jsonb_build_object('n', i, 't', 'text ' || i % 100), md5(i::text)::uuid from generate_series(1, " +
				strconv.Itoa(rows) + ") i; " +
				"alter table public.bench_src add primary key (id); analyze public.bench_src"
			out, err := exec.CommandContext(ctx, "bash", "-c", psql+" -c \""+sql+"\"").CombinedOutput()
			if err != nil {
				return prepared{}, fmt.Errorf("%w: %s", err, out)
			}
			return prepared{"2 million rows, 10 typed columns", rows}, nil
		},
		contenders: func(dir string) []contender {
			reset := psql + " -c 'drop table if exists public.bench_dst; create table public.bench_dst " + create + "'"
			return []contender{
				{
					name: "psql, binary COPY piped", reset: reset,
					command: psql + " -c 'copy public.bench_src to stdout (format binary)' | " + psql +
						" -c 'copy public.bench_dst from stdin (format binary)'",
				},
				{
					name: "leat", reset: reset,
					command: leat + " copy --restart --state " + dir + "/state --mode append '" + url +
						"&table=public.bench_src' '" + url + "&table=public.bench_dst'",
				},
			}
		},
	}
}

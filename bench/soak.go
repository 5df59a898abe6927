package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// soakCommits are those of 8 hours at 1,000 commits/s.
const soakCommits = 8 * 3600 * 1000

// soakJob follows very many small transactions, and looks at the process meanwhile.
func soakJob() job {
	j := streamJob{
		job: job{
			name: "soak", title: "8 hours at 1,000 commits/s, replayed", rows: soakCommits, most: 1, alone: true,
			note: "Every change is a transaction. The process is looked at while it follows as fast as it can.",
		},
		base: 100_000, said: "updates of random keys, each in a transaction",
		make: func(base, n int64) []string {
			return []string{"set synchronous_commit = off", someUpdates(n, 1, random(base))}
		},
		variants: []follower{{name: "leat", id: "leat", sinks: "  kept: {postgres: {url: 'INTO'}}", verify: inPostgres}},
	}.finish()
	j.measure = measureSampled
	return j
}

// measureSampled measures a contender whose command leat itself becomes, and takes samples of it: at most 500, evenly over the run.
func measureSampled(ctx context.Context, e jobEnv, c contender) (measured, error) {
	if err := resetFor(ctx, c); err != nil {
		return measured{}, err
	}
	r := metered(ctx, e, "exec "+c.command)
	start := time.Now()
	if err := r.cmd.Start(); err != nil {
		return measured{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	var series []sample
	every := 100 * time.Millisecond
	for {
		select {
		case err := <-ended:
			if err != nil {
				return measured{}, fmt.Errorf("%w\n%s", err, r.said)
			}
			m, err := r.usage()
			m.Series = series
			return m, err
		case <-time.After(every):
			if s, ok := lookAt(childOf(r.cmd.Process.Pid), start, e.dir+"/leat.state"); ok {
				series = append(series, s)
			}
			if len(series) == 500 {
				series, every = halve(series), 2*every
			}
		}
	}
}

// halve leaves every second sample out.
func halve(all []sample) []sample {
	kept := all[:0]
	for i := 1; i < len(all); i += 2 {
		kept = append(kept, all[i])
	}
	return kept
}

// trend compares the last third of a run with its middle third, by medians: 1 is no growth. The first third is warming up.
func trend(series []sample, figure func(sample) int64) float64 {
	n := len(series) / 3
	if n == 0 {
		return 0
	}
	of := func(part []sample) float64 {
		xs := make([]int64, len(part))
		for i, s := range part {
			xs[i] = figure(s)
		}
		return float64(median(xs))
	}
	return of(series[2*n:]) / max(1, of(series[n:2*n]))
}

// soakGrowth is the largest trend of all that is looked at.
func soakGrowth(series []sample) float64 {
	return max(trend(series, func(s sample) int64 { return s.RSS }), trend(series, func(s sample) int64 { return s.Threads }),
		trend(series, func(s sample) int64 { return s.Files }), trend(series, func(s sample) int64 { return s.State }))
}

// soakText says what the samples show.
func soakText(series []sample) (string, error) {
	if len(series) < 3 {
		return "", errors.New("too few samples")
	}
	line := func(name string, unit int64, figure func(sample) int64) string {
		first, last, top := figure(series[0]), figure(series[len(series)-1]), int64(0)
		for _, s := range series {
			top = max(top, figure(s))
		}
		return fmt.Sprintf("| %s | %d | %d | %d | %.2f |\n", name, first/unit, last/unit, top/unit, trend(series, figure))
	}
	return "| | first | last | largest | last third ÷ middle third |\n|---|---|---|---|---|\n" +
		line("memory, MB", 1e6, func(s sample) int64 { return s.RSS }) + line("threads", 1, func(s sample) int64 { return s.Threads }) +
		line("open files", 1, func(s sample) int64 { return s.Files }) +
		line("state folder, KB", 1e3, func(s sample) int64 { return s.State }), nil
}

// soakPlot draws memory over time.
func soakPlot(series []sample) string {
	c := curve{name: "resident memory"}
	for _, s := range series {
		c.points = append(c.points, point{s.At, float64(s.RSS) / 1e6})
	}
	return plot{title: "Memory while following", x: "seconds", y: "MB", curves: []curve{c}}.svg()
}

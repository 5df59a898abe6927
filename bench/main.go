package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// job is one workload.
type job struct {
	name       string
	title      string
	prepare    func(ctx context.Context, dir string) (prepared, error)
	contenders func(dir string) []contender
	note       string
	most       int                                         // rounds at the most; 0: as asked for
	least      int                                         // rounds at the least
	clean      func(ctx context.Context, dir string) error // nil: what is left is in dir
}

// prepared is the data of a job.
type prepared struct {
	text string // what it is, in words
	rows int64
}

// measured is one run of one contender.
type measured struct {
	wall, cpu time.Duration
	rss       int64 // bytes
}

func main() {
	only := flag.String("job", "", "run this job alone")
	rounds := flag.Int("rounds", 3, "rounds of each contender")
	leat := flag.String("leat", "bin/leat", "the binary to measure")
	out := flag.String("out", "docs/PERFORMANCE.md", "where the results go")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *leat, *only, *rounds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, leat, only string, rounds int, out string) error {
	bin, err := filepath.Abs(leat)
	if err != nil {
		return err
	}
	var b strings.Builder
	header(&b)
	for _, j := range jobs(bin) {
		if only != "" && j.name != only && !strings.HasPrefix(j.name, only+"-") {
			continue
		}
		at := b.Len()
		if err := runJob(ctx, &b, j, rounds); err != nil {
			return fmt.Errorf("job %s: %w", j.name, err)
		}
		if only == "" {
			continue
		}
		fmt.Print(b.String()[at:])
		if err := replaceSection(out, j.title, b.String()[at:]); err != nil {
			return err
		}
	}
	if only != "" {
		return nil
	}
	return os.WriteFile(out, []byte(b.String()), 0o644)
}

// replaceSection puts the section of one job in the place of the one that the page has, or at the page's end.
func replaceSection(page, title, section string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, behind, found := strings.Cut(string(text), "\n## "+title+"\n")
	after := ""
	if i := strings.Index(behind, "\n## "); found && i >= 0 {
		after = behind[i:]
	}
	return os.WriteFile(page, []byte(before+section+after), 0o644)
}

func header(b *strings.Builder) {
	fmt.Fprintf(b, "# Performance\n\nWritten by `make bench-jobs` on %s/%s with %d cores, %s. Medians of interleaved rounds; machines are "+
		"noisy, so only ratios within one table count. Peak memory is the largest resident set of the process.\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

func runJob(ctx context.Context, b *strings.Builder, j job, rounds int) (err error) {
	dir, err := os.MkdirTemp("", "leat-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	if j.clean != nil {
		defer func() { err = errors.Join(err, j.clean(context.WithoutCancel(ctx), dir)) }()
	}
	data, err := j.prepare(ctx, dir)
	if err != nil {
		return err
	}
	rounds = max(rounds, j.least)
	if j.most > 0 {
		rounds = min(rounds, j.most)
	}
	cs := append(j.contenders(dir), peersOf(j.name, jobEnv{dir: dir, rows: data.rows})...)
	results := make([][]measured, len(cs))
	for r := range rounds {
		for i, c := range cs {
			m, err := measure(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(os.Stderr, "%s round %d %-24s wall %.2fs cpu %.2fs rss %d MB\n", j.name, r+1, c.name,
				m.wall.Seconds(), m.cpu.Seconds(), m.rss>>20)
			results[i] = append(results[i], m)
		}
	}
	fmt.Fprintf(b, "\n## %s\n\n%s. `make bench-jobs JOB=%s`, %d rounds. %s\n\n", j.title, data.text, j.name, rounds, j.note)
	b.WriteString("| what | wall s | spread | CPU s | µs CPU/row | rows/s | peak MB | wall ratio |\n|---|---|---|---|---|---|---|---|\n")
	base := median(results[0]).wall
	for i, c := range cs {
		m := median(results[i])
		low, high := spread(results[i])
		fmt.Fprintf(b, "| %s | %.2f | %.2f–%.2f | %.2f | %.2f | %s | %d | %.2f |\n", c.name, m.wall.Seconds(), low.Seconds(),
			high.Seconds(),
			m.cpu.Seconds(), float64(m.cpu.Microseconds())/float64(data.rows), thousands(float64(data.rows)/m.wall.Seconds()), m.rss>>20,
			m.wall.Seconds()/base.Seconds())
	}
	return nil
}

// measure runs one command; CPU and memory are those of its largest process and of all its children together.
func measure(ctx context.Context, c contender) (measured, error) {
	if c.reset != "" {
		if out, err := exec.CommandContext(ctx, "bash", "-c", c.reset).CombinedOutput(); err != nil {
			return measured{}, fmt.Errorf("before the round: %w\n%s", err, out)
		}
	}
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", c.command)
	var errs strings.Builder
	cmd.Stderr = &errs
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return measured{}, fmt.Errorf("%w\n%s", err, errs.String())
	}
	m := measured{wall: time.Since(start), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		m.rss = u.Maxrss << 10 // Linux counts kilobytes
	}
	return m, nil
}

func median(ms []measured) measured {
	s := slices.Clone(ms)
	slices.SortFunc(s, func(a, b measured) int { return cmp.Compare(a.wall, b.wall) })
	return s[len(s)/2]
}

func spread(ms []measured) (low, high time.Duration) {
	s := slices.Clone(ms)
	slices.SortFunc(s, func(a, b measured) int { return cmp.Compare(a.wall, b.wall) })
	return s[0].wall, s[len(s)-1].wall
}

func thousands(f float64) string {
	if f >= 1e6 {
		return fmt.Sprintf("%.2fM", f/1e6)
	}
	return fmt.Sprintf("%.0fk", f/1e3)
}

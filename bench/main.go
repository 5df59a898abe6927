package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// options are what the command line says.
type options struct {
	only    string  // a job, or the beginning of its name; "all"; empty: all but those that stand alone
	rounds  int     // of each contender
	scale   float64 // of the sizes
	most    int64   // largest size of what grows
	seed    uint64  // of the order of contenders
	leat    string  // the binary that is measured
	results string  // folder of results
	page    string
	cache   string // folder of other tools
	peers   bool   // other tools run, too
	smoke   bool   // everything once and tiny, only to see that it works; nothing is written
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	if len(args) > 0 && slices.Contains([]string{"rows", "lanes", "topics"}, args[0]) {
		return helper(ctx, args[0], args[1:])
	}
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.only, "job", "", "run this job, or those whose names begin so; all: also those that take long")
	f.IntVar(&o.rounds, "rounds", 3, "rounds of each contender")
	f.Float64Var(&o.scale, "scale", 1, "share of the rows that jobs mean")
	f.Int64Var(&o.most, "most", 100_000_000, "largest number of rows of the job growth")
	f.Uint64Var(&o.seed, "seed", 1, "of the order of contenders")
	f.StringVar(&o.leat, "leat", "bin/leat", "the binary to measure")
	f.StringVar(&o.results, "results", "bench/results", "where results are kept")
	f.StringVar(&o.page, "page", "docs/PERFORMANCE.md", "the page that is made of them")
	f.StringVar(&o.cache, "cache", ".dev/bench", "where other tools are installed")
	f.BoolVar(&o.peers, "peers", true, "run other tools, too")
	f.BoolVar(&o.smoke, "smoke", false, "run every job once, tiny, without other tools, and write nothing")
	only := f.Bool("page-only", false, "measure nothing, make the page")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *only {
		return writePage(o.page, o.results)
	}
	return runJobs(ctx, o)
}

// helper does what contenders' commands need besides other programs.
func helper(ctx context.Context, name string, args []string) error {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	rows := f.Int64("rows", 1000, "how many")
	format := f.String("format", "csv", "csv or jsonl")
	dir := f.String("dir", "", "folder of the lanes")
	brokers := f.String("brokers", "", "of the topics")
	prefix := f.String("prefix", "", "how the names of the topics begin")
	kept := f.String("kept", "", "file of what the topics were, which they become again")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case name == "lanes":
		return runLanes(ctx, *dir, *rows, os.Stdout)
	case name == "topics":
		return restoreTopics(ctx, *brokers, *prefix, *kept)
	case *format == "jsonl":
		return makeJSONL(os.Stdout, *rows)
	}
	_, _, err := makeCSV(os.Stdout, *rows, 0)
	return err
}

// smokeScale leaves a thousandth of everything.
const smokeScale = 0.001

func runJobs(ctx context.Context, o options) error {
	if o.smoke {
		o.only, o.rounds, o.scale, o.peers = "all", 1, smokeScale, false
	}
	ran := 0
	for _, j := range jobs(o.most) {
		if !o.means(j) {
			continue
		}
		ran++
		r, err := runJob(ctx, o, j)
		if err != nil {
			return fmt.Errorf("job %s: %w", j.name, err)
		}
		if why := r.skipped(); why != "" { // what was measured before stays
			fmt.Fprintf(os.Stderr, "%s did not run: %s\n", j.name, why)
			continue
		}
		if o.smoke {
			continue
		}
		if err := errors.Join(saveResult(o.results, r), writePage(o.page, o.results)); err != nil {
			return err
		}
	}
	if ran == 0 {
		return fmt.Errorf("there is no job %q", o.only)
	}
	return nil
}

// means says whether a job is asked for.
func (o options) means(j job) bool {
	if o.only == "" || strings.HasPrefix(j.name, o.only+"-") && j.name != o.only {
		return !j.alone
	}
	return o.only == "all" || o.only == j.name
}

// fewestRows are what the smallest scale leaves.
const fewestRows = 1000

func runJob(ctx context.Context, o options, j job) (r result, err error) {
	e, err := newEnv(o, j)
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(e.dir) //nolint:errcheck // a temporary folder
	if j.servers {
		defer func() { err = errors.Join(err, dropServers(context.WithoutCancel(ctx))) }()
		if err := openServers(ctx, &e); err != nil {
			return r, err
		}
	}
	if j.drop != nil {
		defer func() { err = errors.Join(err, j.drop(context.WithoutCancel(ctx), e)) }()
	}
	r = result{Job: j.name, Scale: float64(e.rows) / float64(j.rows), Rounds: roundsOf(o, j), Seed: o.seed, When: today()}
	if r.Machine, err = thisMachine(ctx, e); err != nil {
		return r, err
	}
	if r.Data, err = j.prepare(ctx, &e); err != nil {
		return r, fmt.Errorf("preparing: %w", err)
	}
	r.Rows = e.rows
	own := j.contenders(e)
	cs := own
	if o.peers {
		cs = append(cs, peersOf(j.name, e)...)
	}
	for i, c := range cs {
		x := entry{Name: c.name, Version: c.version, Settings: c.settings, Skip: c.skip, Limit: c.limit, Rows: c.rows}
		if x.Rows == 0 {
			x.Rows = e.rows
		}
		if i < len(own) && isLeat(x) {
			x.Version = "leat " + r.Machine.Commit
		}
		r.Entries = append(r.Entries, x)
	}
	order := rand.New(rand.NewPCG(o.seed, 0))
	for range r.Rounds {
		for _, i := range order.Perm(len(cs)) {
			if r.Entries[i].Skip != "" {
				continue
			}
			err := j.runOnce(ctx, e, cs[i], &r.Entries[i])
			if err != nil && i < len(own) {
				return r, fmt.Errorf("%s: %w", cs[i].name, err)
			}
			if err != nil { // another tool's trouble is told, and stops nothing
				r.Entries[i].Skip, r.Entries[i].Runs = lastLine(err.Error()), nil
				fmt.Fprintf(os.Stderr, "%s %s: %v\n", j.name, cs[i].name, err)
			}
		}
	}
	return r, nil
}

func newEnv(o options, j job) (e jobEnv, err error) {
	e.rows = max(fewestRows, int64(float64(j.rows)*o.scale))
	if j.largest > 0 {
		e.rows = min(e.rows, j.largest)
	}
	if e.dir, err = os.MkdirTemp("", "leat-bench-"); err != nil {
		return e, err
	}
	var errs [3]error
	e.leat, errs[0] = install(o.leat, e.dir)
	e.cache, errs[1] = filepath.Abs(o.cache)
	e.self, errs[2] = os.Executable()
	e.meter = filepath.Join(filepath.Dir(e.self), "meter")
	if _, err := os.Stat(e.meter); err != nil {
		return e, fmt.Errorf("the program meter has to be beside this one, make bench builds both: %w", err)
	}
	return e, errors.Join(errs[:]...)
}

// install copies the program to where it is run, as who installs it does: how much of a program's file shows as its memory depends on
// how the file was written, and no user runs what the linker left. The copy stays what it is while the program is built anew.
func install(program, dir string) (string, error) {
	from, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer from.Close() //nolint:errcheck // it was read
	path := filepath.Join(dir, "leat")
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(struct{ io.Writer }{to}, from)
	return path, errors.Join(err, to.Close())
}

// roundsOf is how often each contender of a job runs.
func roundsOf(o options, j job) int {
	if o.smoke {
		return 1
	}
	rounds := o.rounds
	if o.scale >= 1 { // less is for trying a job out
		rounds = max(rounds, j.least)
	}
	if j.most > 0 {
		rounds = min(rounds, j.most)
	}
	return rounds
}

// runOnce measures a contender once more. What it wrote in the first round is compared.
func (j job) runOnce(ctx context.Context, e jobEnv, c contender, x *entry) error {
	m, err := j.run(ctx, e, c)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s round %d %-36s wall %.3fs cpu %.2fs rss %d MB %v\n", j.name, len(x.Runs)+1, c.name, m.Wall, m.CPU,
		m.RSS/1e6, m.Extra)
	if c.complete != nil {
		if err := c.complete(ctx); err != nil {
			return fmt.Errorf("it did not do all of its work: %w", err)
		}
	}
	x.Runs = append(x.Runs, m)
	if len(x.Runs) == 1 && c.verify != nil {
		if err := c.verify(ctx, e.dir); err != nil {
			return fmt.Errorf("what it wrote is wrong: %w", err)
		}
		x.Verified = true
	}
	return nil
}

// lastLine is the end of what a tool said.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

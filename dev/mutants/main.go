// Mutants breaks the code on purpose, one place at a time, and demands that tests notice.
//
// Usage:
//
//	go run ./dev/mutants [-quick] [-only regexp] [-j n] [directory]
//
// The breaks are listed in dev/mutants/lists, in the form that list.go describes. Each is built with an overlay, so that no file of the
// repository is touched. The tests that it names must pass without it and fail with it. It is an error of the list where the code that
// is to be broken is not found exactly once, where the broken code does not compile, and where no test is named.
//
// One line is printed for each. The exit code is 1 where a break went unnoticed or the list has an error.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"
)

// listFiles are the lists, from the root of the repository.
const listFiles = "dev/mutants/lists/*.txt"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "only those that need no server and little time")
	only := flags.String("only", "", "only those whose id, file or text match this `regexp`")
	jobs := flags.Int("j", 2, "how many at the same time")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	root := "."
	if flags.NArg() > 0 {
		root = flags.Arg(0)
	}
	chosen, err := choose(root, *quick, *only)
	if err != nil {
		fmt.Fprintf(stderr, "mutants: %v\n", err)
		return 2
	}
	ok, err := check(ctx, root, chosen, *jobs, stdout)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "mutants: %v\n", err)
		return 2
	case !ok:
		return 1
	}
	return 0
}

// choose reads the lists and keeps what was asked for.
func choose(root string, quick bool, only string) ([]mutation, error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	all, err := readLists(root)
	if err != nil {
		return nil, err
	}
	var chosen []mutation
	for _, m := range all {
		if (m.quick || !quick) && match.MatchString(m.title()+" "+m.file) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("none of the %d breaks in %s is meant", len(all), filepath.Join(root, listFiles))
	}
	return chosen, nil
}

// check tries all, several at the same time, prints a line for each in their order, and reports whether every one was noticed.
func check(ctx context.Context, root string, all []mutation, jobs int, w io.Writer) (bool, error) {
	dir, err := os.MkdirTemp("", "mutants-*")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is in the system's folder for such things
	l := newLaboratory(root, dir)
	slots := make(chan struct{}, max(jobs, 1))
	verdicts := make([]chan verdict, len(all))
	for i := range all {
		verdicts[i] = make(chan verdict, 1)
	}
	go func() {
		for i, m := range all {
			slots <- struct{}{}
			go func() {
				defer func() { <-slots }()
				verdicts[i] <- l.try(ctx, i, m)
			}()
		}
	}()
	start, unnoticed, errs := time.Now(), 0, 0
	for i, m := range all {
		v := <-verdicts[i]
		switch {
		case v.err != nil:
			errs++
			fmt.Fprintf(w, "ERROR     %-4s %s (%s): %v\n", m.ids[0], m.text, m.where, v.err)
		case v.by == "":
			unnoticed++
			fmt.Fprintf(w, "UNNOTICED %-4s %s (%s): %s of %s passed\n", m.ids[0], m.text, m.where, m.pattern, m.pkg)
		default:
			fmt.Fprintf(w, "caught    %-4s %s: by %s.%s in %.1f s\n", m.ids[0], m.text, m.pkg, v.by, v.took.Seconds())
		}
	}
	fmt.Fprintf(w, "%d breaks: %d caught, %d unnoticed, %d errors, in %.0f s\n",
		len(all), len(all)-unnoticed-errs, unnoticed, errs, time.Since(start).Seconds())
	return unnoticed+errs == 0, ctx.Err()
}

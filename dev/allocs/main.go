// Allocs holds hot paths to what they allocate for each row.
//
// Usage:
//
//	go run ./dev/allocs [-record] [-list]
//
// It runs, from the root of the repository, the benchmarks that report rows/op, a fixed number of iterations of each, without servers and
// with -short: a benchmark that needs a server or much time skips itself then. Allocations and bytes are divided by the rows and compared
// with dev/allocs/recorded.txt. The exit code is 1 where a path allocates more than recorded, beyond the tolerance of compare.go, where a
// recorded benchmark is missing, and where one is not recorded yet. With -record the file is written anew: its diff is the review. Times
// are not compared. -list prints what was measured.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
)

// recordedFile is the record, from the root of the repository.
const recordedFile = "dev/allocs/recorded.txt"

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("allocs", flag.ContinueOnError)
	flags.SetOutput(stderr)
	record := flags.Bool("record", false, "write "+recordedFile+" anew")
	list := flags.Bool("list", false, "print what was measured")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ok, err := gate(ctx, stdout, stderr, *record, *list)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "allocs: %v\n", err)
		return 2
	case !ok:
		return 1
	default:
		return 0
	}
}

// gate measures, and records or compares.
func gate(ctx context.Context, stdout, stderr io.Writer, record, list bool) (bool, error) {
	packages, err := packagesIn(os.DirFS("."))
	if err != nil {
		return false, err
	}
	now, err := measure(ctx, packages, stderr)
	if err != nil {
		return false, err
	}
	if list {
		fmt.Fprint(stdout, format(now))
	}
	if record {
		return true, os.WriteFile(recordedFile, []byte(format(now)), 0o644) //nolint:gosec // a source file
	}
	text, err := os.ReadFile(recordedFile)
	if err != nil {
		return false, err
	}
	before, err := parseRecord(string(text))
	if err != nil {
		return false, fmt.Errorf("%s: %w", recordedFile, err)
	}
	return report(stdout, compare(before, now)), nil
}

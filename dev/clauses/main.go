// Clauses tells which promises of docs/clauses.md are proven by tests, and which are not.
//
// Usage:
//
//	go run ./dev/clauses [-quiet] [-v] [-strict] [directory]
//
// A test proves an id by naming it; the rules are in docs/clauses.md and in scan.go. The exit code is
// 1 when a clause that is required now has no test, when a test names an id that does not exist, and,
// with -strict, when a required case has no test. Deliberate breaks, which dev/mutants tries, are counted.
package main

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// catalogueFile is where the ids are declared, from the root of the repository.
const catalogueFile = "docs/clauses.md"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("clauses", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.BoolVar(&o.quiet, "quiet", false, "print only what is missing and the sums")
	flags.BoolVar(&o.verbose, "v", false, "print the tests of each id")
	flags.BoolVar(&o.strict, "strict", false, "fail for cases too")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	root := "."
	if flags.NArg() > 0 {
		root = flags.Arg(0)
	}
	complete, err := check(os.DirFS(root), stdout, o)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "clauses: %v\n", err)
		return 2
	case !complete:
		return 1
	default:
		return 0
	}
}

// check prints the report on the repository and says whether it is complete.
func check(repo fs.FS, w io.Writer, o options) (bool, error) {
	f, err := repo.Open(catalogueFile)
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	promises, err := readCatalogue(f)
	if err != nil {
		return false, fmt.Errorf("%s: %w", catalogueFile, err)
	}
	mentions, err := scanTree(repo)
	if err != nil {
		return false, err
	}
	breaks, err := scanBreaks(repo)
	if err != nil {
		return false, err
	}
	return report(w, promises, mentions, breaks, o), nil
}

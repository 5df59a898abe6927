package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

type options struct {
	quiet   bool // only what is missing, and the sums
	verbose bool // the tests of each id
	strict  bool // required cases count as well
}

// report prints which promises are proven and returns false when something required is not. breaks counts the deliberate breaks of
// each id.
func report(w io.Writer, promises []promise, mentions []mention, breaks map[string]int, o options) bool {
	tests := map[string]map[string]bool{} // id to the tests that name it
	for _, p := range promises {
		tests[p.id] = map[string]bool{}
	}
	complete := true
	for _, m := range mentions {
		if tests[m.id] == nil {
			fmt.Fprintf(w, "%s:%d: %s is not in %s\n", m.file, m.line, m.id, catalogueFile)
			complete = false
			continue
		}
		tests[m.id][m.source()] = true
	}
	if !o.quiet {
		printTable(w, promises, tests, breaks, o)
	}
	missingClauses := printSum(w, "clauses", promises, tests)
	missingCases := printSum(w, "cases", promises, tests)
	printBreaks(w, breaks)
	return complete && missingClauses == 0 && (missingCases == 0 || !o.strict)
}

// printBreaks prints one line on the deliberate breaks, if there are any.
func printBreaks(w io.Writer, breaks map[string]int) {
	if len(breaks) == 0 {
		return
	}
	total := 0
	for _, n := range breaks {
		total += n
	}
	fmt.Fprintf(w, "breaks: %d, of %d clauses; make mutants tries them\n", total, len(breaks))
}

func printTable(w io.Writer, promises []promise, tests map[string]map[string]bool, breaks map[string]int, o options) {
	for _, p := range promises {
		count := strconv.Itoa(len(tests[p.id]))
		switch {
		case len(tests[p.id]) > 0:
		case p.required:
			count = "MISSING"
		default:
			count = "-"
		}
		statement := p.statement
		if n := breaks[p.id]; n > 0 {
			statement += fmt.Sprintf(" (breaks: %d)", n)
		}
		fmt.Fprintf(w, "%-4s  %7s  %s\n", p.id, count, statement)
		if o.verbose {
			for _, test := range slices.Sorted(maps.Keys(tests[p.id])) {
				fmt.Fprintf(w, "               %s\n", test)
			}
		}
	}
	fmt.Fprintln(w)
}

// printSum prints one line on the clauses or on the cases and returns how many required ones are missing.
func printSum(w io.Writer, kind string, promises []promise, tests map[string]map[string]bool) int {
	var missing []string
	required := 0
	for _, p := range promises {
		if !p.required || p.isCase() != (kind == "cases") {
			continue
		}
		required++
		if len(tests[p.id]) == 0 {
			missing = append(missing, p.id)
		}
	}
	fmt.Fprintf(w, "%s: %d of %d required are named by a test", kind, required-len(missing), required)
	if len(missing) > 0 {
		fmt.Fprintf(w, "; missing: %s", strings.Join(missing, " "))
	}
	fmt.Fprintln(w)
	return len(missing)
}

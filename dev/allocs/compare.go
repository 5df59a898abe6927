package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A path may take this much more than recorded, for what differs from run to run: a share, and an amount for each row. Paths that take
// whole batches allocate a few thousandths for each row, so that one allocation more for each row is always noticed, and one more for each
// batch of 8192 rows is not.
const (
	share       = 0.05
	extraAllocs = 0.002
	extraBytes  = 1.0
)

// over reports whether a figure is beyond its record.
func over(now, before, extra float64) bool { return now > before*(1+share)+extra }

// verdict is what a comparison says about one benchmark.
type verdict string

const (
	more       verdict = "allocates more"
	missing    verdict = "is missing"
	unrecorded verdict = "is not recorded"
	less       verdict = "allocates less" // no mistake, but the record has to follow, or the gain can be lost again unnoticed
)

// difference is one benchmark that is not as recorded.
type difference struct {
	name        string
	verdict     verdict
	before, now cost
}

// compare returns what is not as recorded, in order of the names.
func compare(before, now map[string]cost) []difference {
	all := maps.Clone(before)
	maps.Copy(all, now)
	var out []difference
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b, recorded := before[name]
		n, measured := now[name]
		d := difference{name: name, before: b, now: n}
		switch {
		case !measured:
			d.verdict = missing
		case !recorded:
			d.verdict = unrecorded
		case over(n.allocs, b.allocs, extraAllocs) || over(n.bytes, b.bytes, extraBytes):
			d.verdict = more
		case over(b.allocs, n.allocs, extraAllocs) || over(b.bytes, n.bytes, extraBytes):
			d.verdict = less
		default:
			continue
		}
		out = append(out, d)
	}
	return out
}

// report prints the differences, and says whether the gate is passed.
func report(w io.Writer, all []difference) bool {
	ok := true
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, d := range all {
		ok = ok && d.verdict == less
		allocs, size := change(d, d.before.allocs, d.now.allocs), change(d, d.before.bytes, d.now.bytes)
		fmt.Fprintf(t, "%s\t%s\tallocations %s\tbytes %s\n", d.name, d.verdict, allocs, size)
	}
	_ = t.Flush()
	if len(all) > 0 {
		fmt.Fprintf(w, "\nAll for each row; allowed are %.0f %% and %v allocations or %v byte more than recorded (on this: %s).\n",
			100*share, extraAllocs, extraBytes, platform())
		fmt.Fprintln(w, "Where that is meant: make allocs-record, and say why in the commit.")
	}
	return ok
}

func change(d difference, before, now float64) string {
	switch d.verdict {
	case missing:
		return number(before) + " → ?"
	case unrecorded:
		return "? → " + number(now)
	default:
		return number(before) + " → " + number(now)
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }

func platform() string { return runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH }

// format writes a record.
func format(all map[string]cost) string {
	var b strings.Builder
	b.WriteString("# What hot paths allocate, written by: make allocs-record\n")
	fmt.Fprintf(&b, "# %s. Of each benchmark: allocations for each row, bytes for each row.\n\n", platform())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s %s %s\n", name, number(all[name].allocs), strconv.FormatFloat(all[name].bytes, 'f', 1, 64))
	}
	return b.String()
}

// parseRecord reads a record.
func parseRecord(text string) (map[string]cost, error) {
	out := map[string]cost{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d: want a name and two numbers", n)
		}
		var c cost
		var err error
		if c.allocs, err = strconv.ParseFloat(fields[1], 64); err == nil {
			c.bytes, err = strconv.ParseFloat(fields[2], 64)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if _, twice := out[fields[0]]; twice {
			return nil, fmt.Errorf("line %d: %s stands here for the second time", n, fields[0])
		}
		out[fields[0]] = c
	}
	return out, nil
}

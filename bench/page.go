package main

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// accounts say what stands in the way of targets that are not met: facts, and how they were found.
//
//go:embed accounts.md
var accounts string

// isLeat tells leat's ways from limits and other tools.
func isLeat(e entry) bool { return strings.HasPrefix(e.Name, "leat") }

// writePage makes the page, and its plots beside it in a folder of its name, of all results.
func writePage(page, results string) error {
	all, err := loadResults(results)
	if err != nil {
		return err
	}
	plots := filepath.Join(filepath.Dir(page), "performance")
	var b strings.Builder
	b.WriteString("# Performance\n\nMade of [results](../bench/results) by `make bench-page`; `make bench` measures and makes it " +
		"anew, `make bench JOB=name` for " +
		"one job. Contenders run in turn, in an order that is shuffled in each round; figures are medians over rounds, ratios medians " +
		"of each round's ratio, and peak " +
		"memory is the largest resident set of a process in any round. CPU is user and system time of the client's processes. " +
		"Machines are noisy: only " +
		"ratios within one table count. What leat wrote is compared with the source, value by value, or the job fails.\n\n## Targets\n\n")
	b.WriteString("| workload | target | measured | |\n|---|---|---|---|\n")
	for _, t := range targets() {
		figure, verdict := t.said(all)
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", t.workload, t.text, figure, verdict)
	}
	b.WriteString("\n" + accounts)
	for _, j := range jobs(0) {
		r, ok := all[j.name]
		if !ok {
			continue
		}
		writeSection(&b, j, r)
		if err := writePlots(&b, plots, r); err != nil {
			return err
		}
	}
	writeMachines(&b, all)
	return os.WriteFile(page, []byte(b.String()), 0o644)
}

// writeSection writes what one job measured.
func writeSection(b *strings.Builder, j job, r result) {
	reduced := ""
	if r.Scale < 1 {
		reduced = fmt.Sprintf(" Only %g of the size that targets mean.", r.Scale)
	}
	fmt.Fprintf(b, "\n## %s\n\n%s. `make bench JOB=%s`, %d rounds.%s %s\n\n", j.title, r.Data, j.name, r.Rounds, reduced, j.note)
	first := slices.IndexFunc(r.Entries, func(e entry) bool { return isLeat(e) && len(e.Runs) > 0 })
	if first < 0 {
		return
	}
	extras := slices.Sorted(maps.Keys(r.Entries[first].Runs[0].Extra))
	head, rule := "| what | wall s | spread | CPU s | µs CPU/row | rows/s | peak MB | output MB | time ÷ leat's |",
		"|---|---|---|---|---|---|---|---|---|"
	for _, x := range extras {
		head, rule = head+" "+titleOf(x)+" |", rule+"---|"
	}
	fmt.Fprintf(b, "%s\n%s\n", head, rule)
	for _, e := range r.Entries {
		if len(e.Runs) == 0 {
			continue
		}
		walls := each(e.Runs, func(m measured) float64 { return m.Wall })
		ratio := fmt.Sprintf("%.2f", timeRatio(e, r.Entries[first]))
		if e.Rows != r.Entries[first].Rows {
			ratio = ""
		}
		fmt.Fprintf(b, "| %s | %s | %s–%s | %.2f | %.2f | %s | %d | %s | %s |", e.Name, seconds(e.wall()), seconds(slices.Min(walls)),
			seconds(slices.Max(walls)), e.cpu(), e.perRow(), thousands(e.rate()), e.rss()/1e6, megabytes(e.output()), ratio)
		for _, x := range extras {
			fmt.Fprintf(b, " %.1f |", e.extra(x))
		}
		b.WriteString("\n")
	}
	writeNotes(b, r)
}

// writeNotes says what else there is to know of the contenders.
func writeNotes(b *strings.Builder, r result) {
	b.WriteString("\n")
	for _, e := range r.Entries {
		var notes []string
		if e.Version != "" {
			notes = append(notes, e.Version)
		}
		if e.Settings != "" {
			notes = append(notes, e.Settings)
		}
		if e.Skip != "" {
			notes = append(notes, "did not run: "+e.Skip)
		}
		if len(notes) > 0 {
			fmt.Fprintf(b, "- %s: %s\n", e.Name, strings.Join(notes, "; "))
		}
	}
}

// writePlots writes the plots of a job into their folder, and links them.
func writePlots(b *strings.Builder, dir string, r result) error {
	plots := map[string]string{}
	switch r.Job {
	case "growth":
		plots = growthPlots(r)
	case "soak":
		e, ok := r.find("leat")
		if !ok {
			return nil
		}
		text, err := soakText(e.Runs[0].Series)
		if err != nil {
			return err
		}
		b.WriteString("\n" + text)
		plots["soak-memory.svg"] = soakPlot(e.Runs[0].Series)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(plots)) {
		errs = append(errs, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(plots[name]), 0o644))
		fmt.Fprintf(b, "\n![%s](performance/%s)\n", strings.TrimSuffix(name, ".svg"), name)
	}
	return errors.Join(errs...)
}

// writeMachines says where and when each job was measured, jobs of one machine together.
func writeMachines(b *strings.Builder, all map[string]result) {
	b.WriteString("\n## Where it was measured\n\n| jobs | when | commit | machine |\n|---|---|---|---|\n")
	where := map[string][]string{}
	servers := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		m := r.Machine
		line := fmt.Sprintf("%s | %s | %s, %d cores, %s, %s, %s", r.When, m.Commit, m.CPU, m.Cores, m.Memory, m.System, m.Go)
		where[line] = append(where[line], name)
		for _, s := range m.Servers {
			servers[s] = true
		}
	}
	for _, line := range slices.Sorted(maps.Keys(where)) {
		fmt.Fprintf(b, "| %s | %s |\n", strings.Join(where[line], ", "), line)
	}
	b.WriteString("\nServers, over loopback or a unix socket, without TLS:\n\n")
	for _, s := range slices.Sorted(maps.Keys(servers)) {
		fmt.Fprintf(b, "- %s\n", s)
	}
}

// seconds writes a time with as many digits as it is worth.
func seconds(s float64) string {
	if s < 0.1 {
		return fmt.Sprintf("%.3f", s)
	}
	return fmt.Sprintf("%.2f", s)
}

func megabytes(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", float64(n)/1e6)
}

func thousands(f float64) string {
	if f >= 1e6 {
		return fmt.Sprintf("%.2fM", f/1e6)
	}
	return fmt.Sprintf("%.0fk", f/1e3)
}

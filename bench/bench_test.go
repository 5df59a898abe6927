package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is compared is found to differ by one value, one row, or a type.
func TestSameRelations(t *testing.T) {
	t.Parallel()
	cols := []column{{"id", "bigint", "BIGINT", ""}, {"v", "text", "VARCHAR", ""}}
	const want = "(values (1::bigint, 'a'), (2, null), (2, null)) w(id, v)"
	for _, c := range []struct{ name, got, says string }{
		{"the same in another order", "(values (2::bigint, null), (1, 'a'), (2, null)) g(id, v)", ""},
		{"a value", "(values (2::bigint, null), (1, 'b'), (2, null)) g(id, v)", "values differ"},
		{"null is no empty text", "(values (2::bigint, ''), (1, 'a'), (2, null)) g(id, v)", "values differ"},
		{"a row fewer", "(values (2::bigint, null), (1, 'a')) g(id, v)", "values differ"},
		{"a row doubled for another one", "(values (1::bigint, 'a'), (1, 'a'), (2, null)) g(id, v)", "values differ"},
		{"a type", "(values (1, 'a'), (2, null), (2, null)) g(id, v)", "types differ"},
		{"nothing", "(select 1::bigint id, 'a' v where false)", "values differ"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := sameRelations(t.Context(), cols, want, c.got)
			if (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, not %q", err, c.says)
			}
		})
	}
	if err := sameRelations(t.Context(), cols, "(select 1::bigint id, 'a' v where false)", "(select 1::bigint id, 'a' v where false)"); err == nil {
		t.Error("nothing equals nothing: a job that wrote no rows would pass")
	}
}

// The CSV says the same as the JSON Lines, and both are the same each time.
func TestGenerators(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "in.csv")
	if _, n, err := writeCSV(path, 5000, 0); err != nil || n != 5000 {
		t.Fatal(n, err)
	}
	var lines, again strings.Builder
	for _, to := range []*strings.Builder{&lines, &again} {
		if err := makeJSONL(to, 5000); err != nil {
			t.Fatal(err)
		}
	}
	if lines.String() != again.String() {
		t.Error("two runs differ")
	}
	out := filepath.Join(dir, "out.jsonl")
	if err := os.WriteFile(out, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sameRelations(t.Context(), fromCSV(), csvRelation(path, fromCSV()), jsonlRelation(out, fromCSV())); err != nil {
		t.Error(err)
	}
}

// A target counts only at full size and with compared outputs; ratios are of the rounds.
func TestTargets(t *testing.T) {
	t.Parallel()
	runs := func(walls ...float64) (all []measured) {
		for _, w := range walls {
			all = append(all, measured{Wall: w, CPU: w, RSS: 50e6})
		}
		return all
	}
	r := result{Job: "csv-jsonl", Scale: 1, Entries: []entry{
		{Name: "leat", Rows: 1e6, Verified: true, Runs: runs(1, 2, 4)},
		{Name: "DuckDB, one thread", Rows: 1e6, Runs: runs(2, 4, 9)},
		{Name: "DuckDB, two threads", Rows: 1e6, Runs: runs(3, 6, 12)},
		{Name: "sling", Rows: 1e6, Skip: "not here"},
	}}
	twice := faster("w", "csv-jsonl", "leat", "DuckDB", 2)
	if figure, verdict := twice.said(map[string]result{"csv-jsonl": r}); figure != "2.00 ×" || verdict != "met" {
		t.Error(figure, verdict)
	}
	more := faster("w", "csv-jsonl", "leat", "DuckDB", 2.01)
	if _, verdict := more.said(map[string]result{"csv-jsonl": r}); verdict != "**not met**" {
		t.Error(verdict)
	}
	if _, verdict := faster("w", "csv-jsonl", "leat", "sling", 1).said(map[string]result{"csv-jsonl": r}); verdict != "not measured" {
		t.Error(verdict)
	}
	r.Scale = 0.5
	if _, verdict := twice.said(map[string]result{"csv-jsonl": r}); verdict != "at 0.5 of the size" {
		t.Error(verdict)
	}
	r.Scale, r.Entries[0].Verified = 1, false
	if _, verdict := twice.said(map[string]result{"csv-jsonl": r}); verdict != "not compared" {
		t.Error(verdict)
	}
}

// Growth in the last third of a run shows; warming up does not.
func TestTrend(t *testing.T) {
	t.Parallel()
	series := func(rss func(i int) int64) (all []sample) {
		for i := range 90 {
			all = append(all, sample{RSS: rss(i), Threads: 10, Files: 10, State: 10})
		}
		return all
	}
	if g := soakGrowth(series(func(i int) int64 { return min(int64(i), 30) + 100 })); g != 1 {
		t.Error(g)
	}
	if g := soakGrowth(series(func(i int) int64 { return int64(i) * 10 })); g < 1.5 {
		t.Error(g)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 28800000: "28,800,000"} {
		if got := count(n); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

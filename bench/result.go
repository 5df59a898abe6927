package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result is what a job measured: what the page is made of.
type result struct {
	Job     string  `json:"job"`
	Data    string  `json:"data"` // in words
	Rows    int64   `json:"rows"`
	Scale   float64 `json:"scale"` // 1: as the targets mean it
	Rounds  int     `json:"rounds"`
	Seed    uint64  `json:"seed"` // of the order in each round
	When    string  `json:"when"`
	Machine machine `json:"machine"`
	Entries []entry `json:"entries"`
}

// machine is where it was measured.
type machine struct {
	CPU     string   `json:"cpu"`
	Cores   int      `json:"cores"`
	Memory  string   `json:"memory"`
	System  string   `json:"system"`
	Go      string   `json:"go"`
	Commit  string   `json:"commit"`
	Servers []string `json:"servers,omitempty"` // versions and settings
}

// entry is what a contender did. Runs are in the order of rounds.
type entry struct {
	Name     string     `json:"name"`
	Version  string     `json:"version,omitempty"`
	Settings string     `json:"settings,omitempty"`
	Skip     string     `json:"skip,omitempty"` // why it has no runs
	Limit    bool       `json:"limit,omitempty"`
	Rows     int64      `json:"rows"`
	Verified bool       `json:"verified"` // its output was compared
	Runs     []measured `json:"runs,omitempty"`
}

func (e entry) wall() float64 {
	return median(each(e.Runs, func(m measured) float64 { return m.Wall }))
}

func (e entry) cpu() float64 { return median(each(e.Runs, func(m measured) float64 { return m.CPU })) }

func (e entry) rss() int64 { return slices.Max(each(e.Runs, func(m measured) int64 { return m.RSS })) }

func (e entry) output() int64 {
	return median(each(e.Runs, func(m measured) int64 { return m.Output }))
}

// perRow is the CPU time of a row in microseconds.
func (e entry) perRow() float64 { return e.cpu() * 1e6 / float64(e.Rows) }

// rate is rows per second.
func (e entry) rate() float64 { return float64(e.Rows) / e.wall() }

// extra is the median of a figure that only some jobs have.
func (e entry) extra(key string) float64 {
	return median(each(e.Runs, func(m measured) float64 { return m.Extra[key] }))
}

// find returns the fastest of those whose names begin so, upper and lower case aside; false: none ran.
func (r result) find(name string) (found entry, ok bool) {
	for _, e := range r.Entries {
		if len(e.Runs) > 0 && strings.HasPrefix(strings.ToLower(e.Name), strings.ToLower(name)) && (!ok || e.wall() < found.wall()) {
			found, ok = e, true
		}
	}
	return found, ok
}

// skipped says why nothing ran; empty: something did.
func (r result) skipped() (why string) {
	for _, e := range r.Entries {
		if len(e.Runs) > 0 {
			return ""
		}
		why = e.Skip
	}
	return why
}

// timeRatio is how many times as long a takes as b: the median of the ratios of each round, which noise that lasts changes least.
func timeRatio(a, b entry) float64 {
	ratios := make([]float64, min(len(a.Runs), len(b.Runs)))
	for i := range ratios {
		ratios[i] = a.Runs[i].Wall / b.Runs[i].Wall
	}
	return median(ratios)
}

func resultFile(dir, job string) string { return filepath.Join(dir, job+".json") }

func saveResult(dir string, r result) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(resultFile(dir, r.Job), append(text, '\n'), 0o644))
}

// loadResults reads what there is, by job.
func loadResults(dir string) (map[string]result, error) {
	files, err := filepath.Glob(resultFile(dir, "*"))
	if err != nil {
		return nil, err
	}
	all := map[string]result{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var r result
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		all[r.Job] = r
	}
	return all, nil
}

// thisMachine describes where the program runs.
func thisMachine(ctx context.Context, e jobEnv) (machine, error) {
	said := func(command string) string {
		out, err := exec.CommandContext(ctx, "bash", "-c", command).Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	m := machine{
		CPU: said("sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1"), Cores: runtime.NumCPU(),
		Memory: said("awk '/^MemTotal/ { printf \"%.0f GB\", $2 / 1e6 }' /proc/meminfo"), System: said("uname -sr"),
		Go:     runtime.Version(),
		Commit: said("git rev-parse --short HEAD"),
	}
	servers := []string{e.postgres}
	if e.into != "" && os.Getenv("LEAT_TEST_POSTGRES18") != "" {
		servers = append(servers, e.into)
	}
	for _, s := range servers {
		if s == "" {
			continue
		}
		settings, err := serverSettings(ctx, s)
		if err != nil {
			return m, err
		}
		if !slices.Contains(m.Servers, settings) {
			m.Servers = append(m.Servers, settings)
		}
	}
	return m, nil
}

// today is the day of a measurement.
func today() string { return time.Now().UTC().Format(time.DateOnly) }

// count writes a number with commas.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

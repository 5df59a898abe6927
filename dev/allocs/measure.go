package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// cost is what one row takes.
type cost struct{ allocs, bytes float64 }

// module is the prefix of packages that the record leaves out.
const module = "github.com/leatdata/leat/"

// reports is how a benchmark says how many rows it works with: itself, or as internal/benchtest does.
var reports = regexp.MustCompile(`"rows/op"|benchtest\.PerRow\(`)

// packagesIn finds the packages that have a benchmark which reports rows/op, as patterns for go test.
func packagesIn(repo fs.FS) ([]string, error) {
	var out []string
	err := fs.WalkDir(repo, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"), name == "dev":
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(repo, name)
		if dir := "./" + path.Dir(name); err == nil && reports.Match(text) && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
		return err
	})
	if err == nil && len(out) == 0 {
		err = errors.New("no benchmark reports rows/op: is this the root of the repository?")
	}
	return out, err
}

// iterations are run of each benchmark: enough for the first one, which fills pools and grows buffers, to weigh little.
const iterations = 20

// measure runs the benchmarks of the packages and returns what each of those that report rows/op costs.
func measure(ctx context.Context, packages []string, stderr io.Writer) (map[string]cost, error) {
	args := []string{"test", "-run=^$", "-bench=.", "-benchmem", "-benchtime=" + strconv.Itoa(iterations) + "x", "-cpu=2", "-short"}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...) //nolint:gosec // the packages of this repository
	cmd.Env = environment(os.Environ())
	cmd.Stderr = stderr
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out.Bytes())
	}
	return parseOutput(&out)
}

// environment is that of the benchmarks: no servers; no collection, which would empty pools at moments of its own, below a limit that
// keeps small machines well.
func environment(from []string) []string {
	out := slices.DeleteFunc(slices.Clone(from), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "LEAT_") || name == "CI"
	})
	return append(out, "GOGC=off", "GOMEMLIMIT=768MiB")
}

// procs is what the testing package appends to names, for -cpu=2.
var procs = regexp.MustCompile(`-2$`)

// parseOutput reads what go test -bench -benchmem prints.
func parseOutput(r io.Reader) (map[string]cost, error) {
	out := map[string]cost{}
	in := bufio.NewScanner(r)
	pkg := ""
	for in.Scan() {
		if p, ok := strings.CutPrefix(in.Text(), "pkg: "); ok {
			pkg = strings.TrimPrefix(p, module)
		}
		fields := strings.Fields(in.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") || fields[1] != strconv.Itoa(iterations) {
			continue
		}
		units := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", in.Text(), err)
			}
			units[fields[i+1]] = v
		}
		if rows, ok := units["rows/op"]; ok {
			name := pkg + "." + procs.ReplaceAllString(fields[0], "")
			if rows <= 0 {
				return nil, fmt.Errorf("%s reports %v rows/op", name, rows)
			}
			out[name] = cost{units["allocs/op"] / rows, units["B/op"] / rows}
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, errors.New("no benchmark reported rows/op")
	}
	return out, nil
}

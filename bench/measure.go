package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// measured is one run of one contender. Times are in seconds, sizes in bytes.
type measured struct {
	Wall   float64            `json:"wall"`
	CPU    float64            `json:"cpu"` // user and system, of the process and of all that it waited for
	RSS    int64              `json:"rss"` // the largest resident set of one of these processes
	Output int64              `json:"output,omitempty"`
	Extra  map[string]float64 `json:"extra,omitempty"`  // what only some jobs measure
	Series []sample           `json:"series,omitempty"` // what a process used while it ran
}

// measure runs a contender's command.
func measure(ctx context.Context, e jobEnv, c contender) (measured, error) {
	if err := resetFor(ctx, c); err != nil {
		return measured{}, err
	}
	r := metered(ctx, e, c.command)
	if err := r.cmd.Run(); err != nil {
		return measured{}, fmt.Errorf("%w\n%s", err, r.said)
	}
	m, err := r.usage()
	if err == nil && c.figures != "" {
		err = readFigures(c.figures, &m)
	}
	if err == nil && c.output != "" {
		m.Output, err = sizeOf(c.output)
	}
	return m, err
}

// running is a command that meter runs: see bench/meter.
type running struct {
	cmd  *exec.Cmd
	said *strings.Builder // on standard error
	file string           // what it took
}

// metered makes a command, which the caller starts.
func metered(ctx context.Context, e jobEnv, command string) running {
	r := running{said: &strings.Builder{}, file: filepath.Join(e.dir, "metered.json")}
	r.cmd = exec.CommandContext(ctx, e.meter, r.file, command)
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(syscall.SIGTERM) }
	r.cmd.WaitDelay = waitDelay
	r.cmd.Stderr = r.said
	return r
}

// usage is what a command that has ended took, with all of its children that it waited for.
func (r running) usage() (m measured, err error) {
	err = readFigures(r.file, &m)
	return m, err
}

// readFigures takes over what a file says of a run.
func readFigures(file string, m *measured) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, m)
}

// waitDelay is how long processes may live that a command left behind.
const waitDelay = 10 * time.Second

// resetFor runs what a contender needs before a round.
func resetFor(ctx context.Context, c contender) error {
	if c.reset == "" {
		return nil
	}
	if err := run(ctx, c.reset); err != nil {
		return fmt.Errorf("before the round: %w", err)
	}
	return nil
}

// shell returns a command that bash will run, and what it will say on standard error.
func shell(ctx context.Context, command string) (*exec.Cmd, *strings.Builder) {
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command)
	cmd.WaitDelay = waitDelay
	said := &strings.Builder{}
	cmd.Stderr = said
	return cmd, said
}

// run runs a shell command that is not measured.
func run(ctx context.Context, command string) error {
	cmd, said := shell(ctx, command)
	cmd.Stdout = said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, said)
	}
	return nil
}

// sizeOf is the size of a file, or of all files in a folder.
func sizeOf(path string) (size int64, err error) {
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return gone(err)
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return gone(err)
	})
	return size, err
}

// gone makes nothing of a file that was removed meanwhile.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// median of some numbers; 0 of none.
func median[T cmp.Ordered](xs []T) T {
	if len(xs) == 0 {
		var zero T
		return zero
	}
	s := slices.Sorted(slices.Values(xs))
	return s[len(s)/2]
}

// each returns one figure of every run.
func each[T any](runs []measured, figure func(measured) T) []T {
	out := make([]T, len(runs))
	for i, m := range runs {
		out[i] = figure(m)
	}
	return out
}

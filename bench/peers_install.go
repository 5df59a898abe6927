package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// peersDir is where programs and settings of other tools are, seen from the root of the repository.
const peersDir = "bench/peers"

// tool is another tool in a pinned version. It is installed where it is asked for first, into a folder of its own, and stays there.
type tool struct {
	name    string
	version string
	install string // a shell command; DIR is the tool's folder, SRC is peersDir
}

// python is a tool of Python's, in an environment of its own. packages are its own and those that matter to what is measured.
func python(name, version string, packages ...string) tool {
	return tool{name, version, "python3 -m venv DIR && DIR/bin/pip install -q " + strings.Join(packages, " ")}
}

func (t tool) dir(e jobEnv) string { return filepath.Join(e.cache, "peers", t.name) }

// path is a file in the tool's folder.
func (t tool) path(e jobEnv, name string) string { return filepath.Join(t.dir(e), name) }

// source is a file of peersDir, wherever the command runs.
func source(name string) string {
	path, err := filepath.Abs(filepath.Join(peersDir, name))
	if err != nil {
		return name
	}
	return path
}

// installTime is how long a tool may take to install.
const installTime = 10 * time.Minute

// ready installs the tool unless its folder has just this.
func (t tool) ready(e jobEnv) error {
	dir, err := filepath.Abs(t.dir(e))
	if err != nil {
		return err
	}
	stamp := filepath.Join(dir, ".installed")
	command := strings.NewReplacer("DIR", quote(dir), "SRC", quote(source(""))).Replace(t.install)
	if found, err := os.ReadFile(stamp); err == nil && string(found) == t.version+"\n"+command {
		return nil
	}
	fmt.Fprintf(os.Stderr, "installing %s %s\n", t.name, t.version)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	if said, err := exec.CommandContext(ctx, "bash", "-c", command).CombinedOutput(); err != nil {
		return fmt.Errorf("installing %s %s: %w: %s", t.name, t.version, err, reason(string(said)))
	}
	return os.WriteFile(stamp, []byte(t.version+"\n"+command), 0o600)
}

// reason is the line of an installer's output that says most: the first one with an error, else the last one.
func reason(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for _, l := range lines {
		if strings.Contains(strings.ToLower(l), "error") {
			return l
		}
	}
	return lines[len(lines)-1]
}

// with completes a tool's contenders: its version, and why they can't run if the tool can't be installed.
func (t tool) with(e jobEnv, cs ...contender) []contender {
	err := t.ready(e)
	for i := range cs {
		cs[i].version = t.version
		if err != nil {
			cs[i].skip = err.Error()
		}
	}
	return cs
}

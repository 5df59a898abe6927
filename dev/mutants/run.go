package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// verdict is what became of one break.
type verdict struct {
	by   string // the test that noticed; empty: none did
	took time.Duration
	err  error // of the list
}

// laboratory builds and runs tests, with and without breaks.
type laboratory struct {
	root, dir string

	mu    sync.Mutex
	sound map[string]*sync.Mutex // one build or run without a break at a time, by what it is
	known map[string]known       // what was done without a break
	flags map[string][]string    // by package
}

// known is a result without a break.
type known struct {
	binary string
	err    error
}

func newLaboratory(root, dir string) *laboratory {
	return &laboratory{root: root, dir: dir, sound: map[string]*sync.Mutex{}, known: map[string]known{}, flags: map[string][]string{}}
}

// try tries one break: the tests must pass without it and fail with it.
func (l *laboratory) try(ctx context.Context, i int, m mutation) verdict {
	start := time.Now()
	fail := func(err error) verdict { return verdict{err: err} }
	overlay, err := l.overlay(i, m)
	if err != nil {
		return fail(err)
	}
	if err := l.passes(ctx, m); err != nil {
		return fail(err)
	}
	binary := filepath.Join(l.dir, fmt.Sprintf("%d.test", i))
	if err := l.build(ctx, m.pkg, binary, "-overlay="+overlay); err != nil {
		return fail(fmt.Errorf("the broken code does not compile: %w", err))
	}
	defer os.Remove(binary) //nolint:errcheck // the whole folder is removed at the end
	// Programs that a test builds are broken, too.
	out, err := l.test(ctx, binary, m, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	if err == nil {
		return verdict{}
	}
	if _, ended := errors.AsType[*exec.ExitError](err); !ended || ctx.Err() != nil {
		return fail(err)
	}
	return verdict{by: noticed(out), took: time.Since(start)}
}

// overlay writes the broken file, and the description that the go command takes.
func (l *laboratory) overlay(i int, m mutation) (string, error) {
	name, err := filepath.Abs(filepath.Join(l.root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", err
	}
	src, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	if src, err = m.apply(src); err != nil {
		return "", err
	}
	broken := filepath.Join(l.dir, fmt.Sprintf("%d.go", i))
	if err := os.WriteFile(broken, src, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {name: broken}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(l.dir, fmt.Sprintf("%d.json", i))
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// once does what is the same for several breaks one single time.
func (l *laboratory) once(what string, do func() known) known {
	l.mu.Lock()
	one := l.sound[what]
	if one == nil {
		one = &sync.Mutex{}
		l.sound[what] = one
	}
	l.mu.Unlock()
	one.Lock()
	defer one.Unlock()
	l.mu.Lock()
	k, done := l.known[what]
	l.mu.Unlock()
	if !done {
		k = do()
		l.mu.Lock()
		l.known[what] = k
		l.mu.Unlock()
	}
	return k
}

// passes runs the tests without the break, once for each package, pattern and environment.
func (l *laboratory) passes(ctx context.Context, m mutation) error {
	k := l.once("run "+strings.Join(append([]string{m.pkg, m.pattern}, m.env...), " "), func() known {
		built := l.once("build "+m.pkg, func() known {
			binary := filepath.Join(l.dir, strings.NewReplacer("/", "_", ".", "_").Replace(m.pkg)+".test")
			return known{binary, l.build(ctx, m.pkg, binary)}
		})
		if built.err != nil {
			return known{err: fmt.Errorf("the code does not compile without the break: %w", built.err)}
		}
		out, err := l.test(ctx, built.binary, m)
		switch {
		case err != nil:
			return known{err: fmt.Errorf("the tests fail without the break: %s: %w", noticed(out), err)}
		case bytes.Contains(out, []byte("no tests to run")):
			return known{err: fmt.Errorf("no test of %s is called %s", m.pkg, m.pattern)}
		case !bytes.Contains(out, []byte("--- PASS")):
			return known{err: errors.New("the tests are all skipped: does a server run? make mutants starts them")}
		}
		return known{}
	})
	return k.err
}

// build compiles the tests of a package.
func (l *laboratory) build(ctx context.Context, pkg, binary string, flags ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"test", "-c", "-vet=off", "-o", binary}, flags...), pkg)...)
	cmd.Dir = l.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// test runs the named tests of a package, in its folder, up to the first that fails.
func (l *laboratory) test(ctx context.Context, binary string, m mutation, env ...string) ([]byte, error) {
	flags, err := l.flagsOf(ctx, m.pkg)
	if err != nil {
		return nil, err
	}
	args := append([]string{"-test.v", "-test.run=" + m.pattern, "-test.failfast", "-test.timeout=" + m.timeout.String()}, flags...)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(l.root, filepath.FromSlash(m.pkg))
	cmd.Env = append(append(os.Environ(), m.env...), env...)
	return cmd.CombinedOutput()
}

// flagsOf are what the tests of a package need so that a failure leaves nothing in the repository: rapid keeps what failed.
func (l *laboratory) flagsOf(ctx context.Context, pkg string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if flags, ok := l.flags[pkg]; ok {
		return flags, nil
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-test", "-deps", pkg)
	cmd.Dir = l.root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing what the tests of %s import: %w", pkg, err)
	}
	l.flags[pkg] = nil
	if bytes.Contains(out, []byte("pgregory.net/rapid\n")) {
		l.flags[pkg] = []string{"-rapid.nofailfile"}
	}
	return l.flags[pkg], nil
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// noticed says which test failed, or what else ended the run.
func noticed(out []byte) string {
	found := failed.FindAllSubmatch(out, -1)
	name := ""
	for _, f := range found { // the innermost one says most
		if len(f[1]) > len(name) {
			name = string(f[1])
		}
	}
	if name != "" {
		return name
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "goleak:") {
			return strings.TrimSpace(line)
		}
	}
	return "its exit"
}
